"""What did the operator ask for: start with which settings, or print something and exit?

Invariant: every mistake on the command line, in the environment and between options is reported at once, and settings
exist only when there is none. Each step has a module of its own: `command_line`, `given`, `keys`, `checks`, `build`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from hivenet_router.config.build import build_agent, build_router, program_version
from hivenet_router.config.checks import check_agent, check_effects, check_router, warn_of_variables
from hivenet_router.config.command_line import scan
from hivenet_router.config.given import Facts, Mistake, read_all, resolve
from hivenet_router.config.help_text import check_text, help_text, mistakes_text
from hivenet_router.config.keys import read_keys
from hivenet_router.config.option import Program
from hivenet_router.config.settings import AgentSettings, RouterSettings


@dataclass(frozen=True, slots=True)
class Exit:
    """The program is to print these texts, start nothing and end with `code`.

    `mistakes` are what `stderr` lists; empty when nothing is wrong.
    """

    code: int
    stdout: str = ""
    stderr: str = ""
    mistakes: tuple[Mistake, ...] = ()


@overload
def parse(
    program: Literal[Program.ROUTER], argv: Sequence[str], environ: Mapping[str, str]
) -> RouterSettings | Exit: ...
@overload
def parse(program: Literal[Program.AGENT], argv: Sequence[str], environ: Mapping[str, str]) -> AgentSettings | Exit: ...
@overload
def parse(
    program: Program, argv: Sequence[str], environ: Mapping[str, str]
) -> RouterSettings | AgentSettings | Exit: ...
def parse(program: Program, argv: Sequence[str], environ: Mapping[str, str]) -> RouterSettings | AgentSettings | Exit:
    """The settings to start with, or what to print instead; `argv` begins after the program's name.

    Secret files are read; nothing else is touched. Exit codes: 0 for help, version and a good `--check-config`; 2 when
    the command line cannot be understood; 1 for any other value or combination that cannot be used.
    Source: configuration.md §1, §9.3; decisions.md 16.
    """
    line = scan(program, argv)
    if line.wants_help:
        return Exit(0, stdout=help_text(program))
    if line.wants_version:
        return Exit(0, stdout=f"{program} {program_version()}\n")
    facts = Facts(program, resolve(program, line.texts, environ), mistakes=line.mistakes)
    read_all(facts)
    keys = read_keys(facts)
    # First what is not there at all: the rules between such options help nobody.
    check_effects(facts)
    _check(facts)
    warn_of_variables(facts, environ)
    if facts.mistakes:
        code = max(mistake.exit_code for mistake in facts.mistakes)
        return Exit(code, stderr=mistakes_text(program, facts.mistakes), mistakes=tuple(facts.mistakes))
    settings = build_router(facts, keys) if program is Program.ROUTER else build_agent(facts, keys)
    if facts.find("--check-config", bool):
        warnings = "".join(f"warning: {warning}\n" for warning in settings.warnings)
        return Exit(0, stdout=check_text(program, settings.resolved), stderr=warnings)
    return settings


def _check(facts: Facts) -> None:
    if facts.program is Program.ROUTER:
        check_router(facts)
    else:
        check_agent(facts)
