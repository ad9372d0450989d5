"""Which texts does each kind of plain value accept, and what do they mean?

Invariant: a text is either read whole or refused with a rule a person can follow; nothing is silently cut, replaced
or defaulted. Addresses and URLs are in `addresses`; which option takes which kind is in `options`.
"""

import re
from dataclasses import dataclass
from typing import Final

_FLAG_INTEGER: Final = re.compile(
    r"([+-]?)(?:0[xX](?P<hex>(?:_?[0-9a-fA-F])+)|0[oO](?P<oct>(?:_?[0-7])+)|0[bB](?P<bin>(?:_?[01])+)"
    r"|0(?P<old>(?:_?[0-7])*)|(?P<dec>[1-9](?:_?[0-9])*))"
)
_DECIMAL_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FRACTION: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_BASES: Final = {"hex": 16, "oct": 8, "bin": 2, "old": 8, "dec": 10}
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_DIGITS_MAX: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_DOMAIN_SUFFIX: Final = re.compile(r"(?:\.(?!-)[a-z0-9-]{1,63}(?<!-))+")

INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

LOG_LEVELS: Final = ("debug", "info", "warn", "error", "fatal")
_LEVEL_WORDS: Final = {
    **{level: level for level in LOG_LEVELS},
    "warning": "warn",
    "critical": "fatal",
    "dpanic": "fatal",
    "panic": "fatal",
}


class UnusableError(ValueError):
    """A text that a setting cannot take; the message is the rule it breaks, worded to follow the value.

    `grammar` is true when the text is not even of its kind (no number, no duration, no boolean): on the command line
    that is a usage mistake, while a well-formed value outside its range is a fault of configuration.
    """

    def __init__(self, rule: str, *, grammar: bool = False) -> None:
        super().__init__(rule)
        self.rule = rule
        self.grammar = grammar


@dataclass(frozen=True, slots=True)
class Words:
    """A comma list: trimmed items, empty ones dropped."""

    items: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join(self.items)


@dataclass(frozen=True, slots=True)
class LogLevels:
    """The level of all loggers, and of those that have their own."""

    base: str
    by_logger: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return ",".join((self.base, *(f"{name}={level}" for name, level in self.by_logger)))


def read_flag_integer(text: str) -> int:
    """An integer as Go's `flag` reads it: decimal, `0x` `0o` `0b`, `_` between digits; a leading `0` means octal.

    Raises: UnusableError.
    Source: configuration.md §1.2.
    """
    found = _FLAG_INTEGER.fullmatch(text) if len(text) <= _DIGITS_MAX else None
    if found is None:
        raise UnusableError("must be a whole number", grammar=True)
    base_name = found.lastgroup or "old"
    digits = found[base_name].replace("_", "") or "0"
    return _within_int64(int(digits, _BASES[base_name]) * (-1 if found[1] == "-" else 1))


def read_env_integer(text: str) -> int:
    """An integer as environment variables hold it: decimal digits only, so `010` is ten.

    Raises: UnusableError.
    Source: configuration.md §1.2.
    """
    if len(text) > _DIGITS_MAX or not _DECIMAL_INTEGER.fullmatch(text):
        raise UnusableError("must be a whole number in decimal digits", grammar=True)
    return _within_int64(int(text))


def _within_int64(value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise UnusableError("must be a whole number of at most 64 bits", grammar=True)
    return value


def read_fraction(text: str) -> float:
    """A decimal number; neither `inf` nor `nan`.

    Raises: UnusableError.
    """
    if len(text) > _DIGITS_MAX or not _FRACTION.fullmatch(text):
        raise UnusableError("must be a decimal number such as 0.9", grammar=True)
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise UnusableError("must be a decimal number such as 0.9", grammar=True)
    return value


def read_boolean(text: str) -> bool:
    """A boolean as Go reads it. Raises: UnusableError. Source: configuration.md §1.2."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UnusableError("must be true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)", grammar=True)


def read_text(text: str) -> str:
    """Any valid text without control characters other than line ends and tabs. Raises: UnusableError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnusableError("must be valid UTF-8") from None
    if any(character < " " and character not in "\t\r\n" for character in text) or "\x7f" in text:
        raise UnusableError("must not contain control characters")
    return text


def read_path(text: str) -> str:
    """A path of this system, bytes that are no UTF-8 included. Raises: UnusableError."""
    if "\x00" in text:
        raise UnusableError("must be a path, which cannot contain a NUL character")
    return text


def read_name(text: str, characters_max: int) -> str:
    """An identifier of ASCII letters, digits, `.`, `_` and `-`. Raises: UnusableError."""
    if text and (len(text) > characters_max or not _NAME.fullmatch(text)):
        raise UnusableError(f"must be 1 to {characters_max} letters, digits, '.', '_' or '-'")
    return text


def read_words(text: str) -> Words:
    """The items of a comma list, trimmed, without empty ones. Raises: UnusableError."""
    items = (item.strip() for item in read_text(text).split(","))
    return Words(tuple(item for item in items if item))


def read_domain_suffixes(text: str) -> Words:
    """Host suffixes in lower case, each a `.` followed by DNS labels.

    Raises: UnusableError.
    Source: cross-site.md X-8.
    """
    suffixes = tuple(item.lower() for item in read_words(text).items)
    for suffix in suffixes:
        if not _DOMAIN_SUFFIX.fullmatch(suffix):
            raise UnusableError(
                "must be a comma-separated list of host suffixes, each starting with '.', such as .example.com"
            )
    return Words(suffixes)


def read_log_levels(text: str) -> LogLevels:
    """Levels as `info`, `policy=debug` or both in a comma list; a list without a bare level keeps `info`.

    Raises: UnusableError.
    Source: configuration.md §9.4, §13 item 26.
    """
    base = "info"
    by_logger: dict[str, str] = {}
    for item in read_words(text).items:
        logger, separator, word = item.rpartition("=")
        level = _LEVEL_WORDS.get(word.strip().lower())
        if level is None or (separator and not logger.strip()):
            raise UnusableError(f"must be one of {', '.join(LOG_LEVELS)}, or logger=level pairs, comma-separated")
        if separator:
            by_logger[logger.strip()] = level
        else:
            base = level
    return LogLevels(base, tuple(by_logger.items()))
