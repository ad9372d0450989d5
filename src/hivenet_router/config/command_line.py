"""Which flags stand on the command line, and with which texts?

Invariant: what Go's `flag` package accepts is understood alike (one dash or two, `=` or the next argument, booleans
with a value only after `=`, the last one wins), but an argument that belongs to no flag is refused, not ignored, and
reading goes on after a mistake so that all are reported. Values are read in `given`.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from hivenet_router.config.given import EXIT_USAGE, Mistake, show
from hivenet_router.config.option import Kind, Option, Program
from hivenet_router.config.options import OPTIONS_BY_FLAG
from hivenet_router.config.reading import read_value
from hivenet_router.config.values import UnusableError

_HELP = ("--h", "--help")
_VERSION = "--version"
_BOOLEAN_WORDS = frozenset({"true", "false", "1", "0", "yes", "no", "on", "off"})


@dataclass
class CommandLine:
    """What was found: the last text of each flag, whether help or the version was asked for, and mistakes."""

    program: Program
    texts: dict[str, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    wants_help: bool = False
    wants_version: bool = False


def scan(program: Program, argv: Sequence[str]) -> CommandLine:
    """The flags of `argv`, which begins after the program's name. Source: configuration.md §1.2."""
    found = CommandLine(program)
    position = 0
    while position < len(argv):
        argument = argv[position]
        if argument == "--":
            if argv[position + 1 :]:
                _refuse(found, f"argument {position + 2}", "belongs to no flag; this program takes flags only")
            break
        position += _take(found, argv, position)
    return found


def _take(found: CommandLine, argv: Sequence[str], position: int) -> int:
    """Take in the argument at `position`; how many arguments it used."""
    argument = argv[position]
    following = argv[position + 1] if position + 1 < len(argv) else None
    if len(argument) < 2 or not argument.startswith("-"):
        _refuse_positional(found, argument, position)
        return 1
    bare = argument.removeprefix("-").removeprefix("-")
    name, equals, text = bare.partition("=")
    if not name or name.startswith("-"):
        _refuse(found, f"argument {position + 1}", "is no flag: one or two dashes and a name are expected")
        return 1
    flag = f"--{name}"
    option = OPTIONS_BY_FLAG[found.program].get(flag)
    if option is None:
        return _take_unlisted(found, flag, following=None if equals else following)
    if equals:
        _keep(found, option, text)
        return 1
    if option.kind is Kind.BOOLEAN:
        _keep(found, option, "true")
        return 1
    if following is None:
        _take_without_value(found, flag)
        return 1
    _keep(found, option, following)
    return 2


def _keep(found: CommandLine, option: Option, text: str) -> None:
    # Go reads each occurrence when it meets it, so an unreadable one is a mistake even if a later one wins.
    earlier = found.texts.get(option.flag)
    if earlier is not None and option.kind is not Kind.SECRET:
        try:
            read_value(option, earlier, from_flag=True)
        except UnusableError as error:
            if error.grammar:
                shown = show(option, earlier)
                found.mistakes.append(Mistake(option.flag, shown, "command line", error.rule, EXIT_USAGE))
    found.texts[option.flag] = text


def _take_unlisted(found: CommandLine, flag: str, *, following: str | None) -> int:
    if flag in _HELP:
        found.wants_help = True
        return 1
    if flag == _VERSION:
        found.wants_version = True
        return 1
    near = difflib.get_close_matches(flag, OPTIONS_BY_FLAG[found.program], n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else f"; {found.program} --help lists them all"
    # The text after an unknown flag is neither shown nor taken for an argument: it may be a secret.
    _refuse(found, _printable(flag), f"is not a flag of {found.program}{hint}")
    return 1 if following is None or following.startswith("-") else 2


def _take_without_value(found: CommandLine, flag: str) -> None:
    if flag == _VERSION:
        found.wants_version = True
    else:
        _refuse(found, flag, "needs a value")


def _refuse_positional(found: CommandLine, argument: str, position: int) -> None:
    hint = "; a boolean flag takes its value after '=', as --flag=false" if argument.lower() in _BOOLEAN_WORDS else ""
    _refuse(found, f"argument {position + 1}", f"belongs to no flag; this program takes flags only{hint}")


def _refuse(found: CommandLine, name: str, rule: str) -> None:
    found.mistakes.append(Mistake(name, "", "command line", rule, EXIT_USAGE))


def _printable(flag: str) -> str:
    shown = "".join(character if character.isprintable() else "?" for character in flag)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
