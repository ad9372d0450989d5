"""Which series stand on a Prometheus text page, of those that were asked for?

Invariant: whatever bytes come in, nothing is raised and the work is bounded; a line that is no sample is as if it were
not there, and a page past a bound is as if it were empty, since half a histogram is worse than none. What the series
mean is left to others.
Source: signals.md §1.4.2, with labels read in full (§9.1, "Parser").
"""

import math
import re
from collections.abc import Callable, Mapping, Set
from typing import Final, TypeAlias

PAGE_BYTES_MAX: Final = 4 << 20
SERIES_MAX: Final = 50_000
"""Lines of the engine's own that are looked at; a page with more of them counts as empty."""
LINE_BYTES_MAX: Final = 64 << 10
"""Longer lines are skipped."""

Series: TypeAlias = Mapping[bytes, float]
"""The values under one name by their labels, as these stand between the braces; empty when there are none."""
_NONE: Final[Mapping[bytes, Series]] = {}

# Possessive throughout, so that a line is read once from left to right however it is broken.
_NAME: Final = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_KEY: Final = rb"[a-zA-Z_][a-zA-Z0-9_]*+"
_BLANKS: Final = rb"[ \t]*+"
_TEXT: Final = rb'(?:[^"\\]++|\\.)*+'
_LABELS: Final = rb'(?:%b%b=%b"%b"%b(?:,%b|(?=\})))*+' % (_KEY, _BLANKS, _BLANKS, _TEXT, _BLANKS, _BLANKS)
_FLOAT: Final = rb"[+-]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+"
_REST: Final = re.compile(
    rb"(?:%b\{%b(%b)\}%b|[ \t]++)(%b)(?=[ \t\r]|\Z)" % (_BLANKS, _BLANKS, _LABELS, _BLANKS, _FLOAT)
)
_NUMBER: Final = re.compile(_FLOAT)
_ESCAPED: Final = re.compile(r"\\(.)")
_INFINITY: Final = frozenset((b"+inf", b"inf", b"+infinity", b"infinity"))


def series_in(page: bytes, *, prefix: bytes, names: Set[bytes]) -> Mapping[bytes, Series]:
    """The series with these names, all of which begin with `prefix`; a name without a sample is left out.

    Values are finite. Of a series that stands twice, the first counts.
    """
    if len(page) > PAGE_BYTES_MAX:
        return _NONE
    found: dict[bytes, dict[bytes, float]] = {}
    page = b"\n" + page
    line_start = b"\n" + prefix
    at = page.find(line_start)
    looked_at = 0
    while at >= 0:
        looked_at += 1
        if looked_at > SERIES_MAX:
            return _NONE
        end = page.find(b"\n", at + 1)
        end = len(page) if end < 0 else end
        if end - (at + 1) <= LINE_BYTES_MAX:
            _read(page, at + 1, end, names, found)
        at = page.find(line_start, end)
    return found


def _read(page: bytes, at: int, end: int, names: Set[bytes], found: dict[bytes, dict[bytes, float]]) -> None:
    name = _NAME.match(page, at, end)
    if name is None or name[0] not in names:
        return
    rest = _REST.match(page, name.end(), end)
    if rest is None:
        return
    value = float(rest[2])
    if math.isfinite(value):
        found.setdefault(name[0], {}).setdefault(rest[1] or b"", value)


def _label(name: bytes) -> re.Pattern[bytes]:
    """Finds the value of that label among those of a series, never within the value of another."""
    other = rb'%b%b=%b"%b"%b,%b' % (_KEY, _BLANKS, _BLANKS, _TEXT, _BLANKS, _BLANKS)
    own = rb"%b%b=" % (name, _BLANKS)
    return re.compile(rb'(?:(?!%b)%b)*+%b%b"(%b)"' % (own, other, own, _BLANKS, _TEXT))


_LE: Final = _label(b"le")


def label_reader(name: bytes) -> Callable[[bytes], str | None]:
    """Gives, of the labels of a series, the value of the one with that name; None when there is none."""
    label = _label(name)

    def read(labels: bytes) -> str | None:
        found = label.match(labels)
        return None if found is None else _ESCAPED.sub(_unescaped, found[1].decode(errors="replace"))

    return read


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def bound_in(labels: bytes) -> float | None:
    """The upper bound of a histogram's bucket, infinity included; None when there is none or it is not a number."""
    found = _LE.match(labels)
    if found is None:
        return None
    if _NUMBER.fullmatch(found[1]) is None:
        return math.inf if found[1].lower() in _INFINITY else None
    bound = float(found[1])
    return bound if math.isfinite(bound) else None
