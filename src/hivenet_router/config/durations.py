"""How long is `1h30m`? Go's duration text, read into seconds and written back.

Invariant: exactly what Go's `time.ParseDuration` accepts is accepted, and what is written is what Go would print, so
files and command lines move between the two programs. Ranges are checked by whoever asked.
"""

import re
from typing import Final

_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_TERM: Final = re.compile("([0-9]*)(?:\\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_DURATION_NS_MAX: Final = 2**63 - 1
_TEXT_CHARACTERS_MAX: Final = 200

DURATION_RULE: Final = "must be a duration such as 500ms, 1.5s or 1h30m (units ns us ms s m h)"


def parse_duration(text: str) -> float:
    """Seconds in a Go duration: an optional sign, then numbers each with a unit; a bare `0` needs none.

    Digits beyond whole nanoseconds are cut off.

    Raises: ValueError when the text is no duration or exceeds about 292 years.
    Source: configuration.md §1.2.
    """
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    if not rest or len(rest) > _TEXT_CHARACTERS_MAX:
        raise ValueError(DURATION_RULE)
    total_ns = 0
    position = 0
    while position < len(rest):
        term = _TERM.match(rest, position)
        if term is None or not (term[1] or term[2]):
            raise ValueError(DURATION_RULE)
        unit_ns = _UNIT_NS[term[3]]
        fraction = term[2] or ""
        total_ns += int(term[1] or "0") * unit_ns + int(fraction or "0") * unit_ns // 10 ** len(fraction)
        position = term.end()
    if total_ns > _DURATION_NS_MAX + negative:
        raise ValueError("must not exceed about 292 years")
    return (-total_ns if negative else total_ns) / 1e9


def format_duration(seconds: float) -> str:
    """The text Go prints for a duration of `seconds`, rounded to whole nanoseconds: `1h30m0s`, `1.5s`, `250ms`, `0s`.

    What is written reads back as the same float up to thirteen days; beyond, a nanosecond may be lost.

    Source: Go `time.Duration.String`.
    """
    total_ns = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and total_ns else ""
    if total_ns < 1_000_000_000:
        return sign + _below_a_second(total_ns)
    whole_s, rest_ns = divmod(total_ns, 1_000_000_000)
    minutes, whole_s = divmod(whole_s, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(whole_s * 1_000_000_000 + rest_ns, 1_000_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def _below_a_second(total_ns: int) -> str:
    if total_ns == 0:
        return "0s"
    for unit, unit_ns in (("ms", 1_000_000), ("\u00b5s", 1_000)):
        if total_ns >= unit_ns:
            return _decimal(total_ns, unit_ns) + unit
    return f"{total_ns}ns"


def _decimal(value: int, scale: int) -> str:
    """`value / scale` in decimal digits without trailing zeros; `scale` is a power of ten."""
    whole, rest = divmod(value, scale)
    digits = str(rest).rjust(len(str(scale)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)
