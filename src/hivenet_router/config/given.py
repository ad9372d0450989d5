"""Which text was given for each option, from where, and what is wrong with it?

Invariant: the command line wins over the environment, the environment over the default; an empty variable counts as
unset, an empty flag does not. A message made here never shows a secret or a URL's credentials.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from hivenet_router.config.option import Kind, Option, Program
from hivenet_router.config.options import OPTIONS_BY_FLAG
from hivenet_router.config.reading import Value, read_value
from hivenet_router.config.secrets_file import GivenSecret, env_bytes, is_readable_by_others, read_secret_file
from hivenet_router.config.values import UnusableError

EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 1
SourceKind = Literal["command line", "environment", "default"]
Found = TypeVar("Found", bound=Value)

_SHOWN_CHARACTERS_MAX: Final = 200
_WITH_CREDENTIALS: Final = frozenset(
    {Kind.BACKEND_URL, Kind.URL, Kind.OTLP, Kind.HOST_PORT, Kind.HOST_PORTS, Kind.ADVERTISED}
)


@dataclass(frozen=True, slots=True)
class Given:
    """The text of one option. `name` is the flag or the variable that gave it."""

    option: Option
    text: str
    source: SourceKind
    name: str

    @property
    def origin(self) -> str:
        """Where it came from, as a message says it."""
        if self.source == "environment":
            return f"environment, sets {self.option.flag}"
        return self.source

    def shown(self) -> str:
        """The text, quoted as a message may show it; empty for a secret."""
        return "" if self.option.kind is Kind.SECRET else show(self.option, self.text)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing to put right before the program can start."""

    name: str
    value: str
    origin: str
    rule: str
    exit_code: int = EXIT_CONFIG

    def __str__(self) -> str:
        origin = f"({self.origin})" if self.origin else ""
        return " ".join(part for part in (self.name, self.value, origin, self.rule) if part)


def show(option: Option, text: str) -> str:
    """A value in quotes, bounded, on one line, without the credentials a URL may carry."""
    if option.kind in _WITH_CREDENTIALS and "@" in text:
        text = "…@" + text.rpartition("@")[2]
    if len(text) > _SHOWN_CHARACTERS_MAX:
        text = text[:_SHOWN_CHARACTERS_MAX] + "…"
    return '"' + "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text) + '"'


def resolve(program: Program, flags: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Given]:
    """The text of every option of the program, by flag. Source: configuration.md §1.1."""
    return {
        option.flag: _resolve_one(option, flags.get(option.flag), environ)
        for option in OPTIONS_BY_FLAG[program].values()
    }


def _resolve_one(option: Option, flag_text: str | None, environ: Mapping[str, str]) -> Given:
    if flag_text is not None:
        return Given(option, flag_text, "command line", option.flag)
    for name in option.names_env:
        if text := environ.get(name):
            return Given(option, text, "environment", name)
    return Given(option, option.default, "default", option.flag)


@dataclass
class Facts:
    """All that was given, what of it could be read, and what is wrong so far.

    Invariant: a flag is in `values` or `secrets` only if its text was usable, so a rule between options is checked
    only when both sides are known, and one mistake is not reported twice.
    """

    program: Program
    given: Mapping[str, Given]
    values: dict[str, Value] = field(default_factory=dict)
    secrets: dict[str, GivenSecret] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def find(self, flag: str, kind: type[Found]) -> Found | None:
        """The value of an option; None when it was left empty or could not be read."""
        value = self.values.get(flag)
        return value if isinstance(value, kind) else None

    def get(self, flag: str, kind: type[Found]) -> Found:
        """The value of an option that always has one; only for use when there are no mistakes."""
        value = self.values[flag]
        if not isinstance(value, kind):
            raise TypeError(f"{flag} holds no {kind.__name__}")
        return value

    def was_given(self, flag: str) -> bool:
        """Whether the operator said anything about this option."""
        return self.given[flag].source != "default"

    def object(self, flag: str, rule: str) -> None:
        """Report that the value of `flag` breaks a rule; the sentence starts with `must`."""
        given = self.given[flag]
        value = given.shown() if given.text else ""
        origin = "" if given.source == "default" and not given.text else given.origin
        self.mistakes.append(Mistake(given.name, value, origin, rule))


def read_all(facts: Facts) -> None:
    """Read every given text into `facts`, noting what cannot be used."""
    for flag, given in facts.given.items():
        try:
            if given.option.kind is Kind.SECRET:
                _read_secret(facts, given)
            else:
                facts.values[flag] = read_value(given.option, given.text, from_flag=given.source == "command line")
        except UnusableError as error:
            on_command_line = given.source == "command line"
            exit_code = EXIT_USAGE if error.grammar and on_command_line else EXIT_CONFIG
            facts.mistakes.append(Mistake(given.name, given.shown(), given.origin, error.rule, exit_code))


def _read_secret(facts: Facts, given: Given) -> None:
    if not given.text:
        return
    from_file = given.source == "command line"
    content = read_secret_file(given.text) if from_file else env_bytes(given.text)
    is_open = from_file and is_readable_by_others(given.text)
    facts.secrets[given.option.flag] = GivenSecret(content, from_file, given.name, is_open)
