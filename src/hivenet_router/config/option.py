"""What is one option of a program: its name, kind, default and range?

The rows themselves are in `router_options`, `site_options` and `agent_options`, and all together in `options`.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final


class Program(StrEnum):
    """The two programs; the value is the name in their messages."""

    ROUTER = "hivenet-router"
    AGENT = "hivenet-agent"


class Kind(Enum):
    """What an option's text is read as."""

    BOOLEAN = auto()
    INTEGER = auto()
    FRACTION = auto()
    DURATION = auto()
    WHOLE_SECONDS = auto()
    TEXT = auto()
    PATH = auto()
    NAME = auto()
    CHOICE = auto()
    WORDS = auto()
    DOMAINS = auto()
    LOG_LEVELS = auto()
    LISTEN_ADDRESS = auto()
    IP = auto()
    MULTIADDR = auto()
    HOST_PORT = auto()
    HOST_PORTS = auto()
    ADVERTISED = auto()
    NETWORKS = auto()
    BACKEND_URL = auto()
    URL = auto()
    OTLP = auto()
    SECRET = auto()
    """The flag takes the path of a file, the environment variable the secret itself."""


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """Why an option has no effect yet: `why` says what is not there.

    `refuses`: the option's part protects, limits or persists, so whoever sets it would rely on what is not there, and
    the program does not start. Any other one is warned of.
    """

    why: str
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One option of one program.

    `default` and the bounds are written as an operator would type them. `more_than` excludes its value, `at_least` and
    `at_most` include theirs; for names `at_most` is the length. An option that may be empty has an empty default or
    `empty_ok`. `env_also` holds further variables, read in order when `env` is unset. `unbuilt` marks an option
    that has no effect yet; `off` is a value besides the default with which it asks for nothing.
    """

    flag: str
    default: str
    kind: Kind
    help: str
    unit: str = ""
    at_least: str = ""
    more_than: str = ""
    at_most: str = ""
    choices: tuple[str, ...] = ()
    empty_ok: bool = False
    env: str = ""
    env_also: tuple[str, ...] = ()
    unbuilt: Unbuilt | None = None
    off: str = ""
    group: str = ""
    program: Program = Program.ROUTER

    @property
    def names_env(self) -> tuple[str, ...]:
        """Every environment variable that sets this option, the one that wins first."""
        return (self.env, *self.env_also)


INT32_MAX: Final = "2147483647"
INT32_SECONDS: Final = "596523h"
