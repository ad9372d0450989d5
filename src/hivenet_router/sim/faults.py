"""Which misbehaviour is wanted of an answer, and how is it spelled?

A fault is written as words joined by commas (`status=429,retry_after=7`), in the `X-Sim` header of one request or in a
rule for many. Invariant: a text is either understood whole or refused whole, with the word that is wrong. Acting on a
fault is the business of `exchange`, `transfer` and `outlet`; choosing the rule is that of `fault_board`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from hivenet_router.sim.options import OUTPUT_TOKENS_MAX

FAULT_TEXT_CHARS_MAX: Final = 256 * 1024
COUNT_MAX: Final = 1 << 40
# A token is made whole before it is sent.
PIECE_BYTES_MAX: Final = 1024 * 1024


class FaultError(ValueError):
    """A fault text that is not understood; the message names the word and what it may be."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to go wrong, or differently, with one answer. The default is an ordinary answer.

    `stall_before_head_s` and `stall_s` may be infinite: silent until the client leaves.
    """

    status: int | None = None
    retry_after: str | None = None
    body: str | None = None
    raw: bytes | None = None
    header: tuple[tuple[str, str], ...] = ()
    content_type: str | None = None
    delay_s: float = 0.0
    stall_before_head_s: float = 0.0
    reset_before_head: bool = False
    close_before_head: bool = False
    reset_after_bytes: int | None = None
    close_after_bytes: int | None = None
    reset_after_chunks: int | None = None
    close_after_chunks: int | None = None
    stall_after_chunks: int | None = None
    stall_s: float = math.inf
    truncate_body: int = 0
    no_done: bool = False
    no_usage: bool = False
    usage: tuple[int, int] | None = None
    chunks: int | None = None
    interval_s: float | None = None
    chunk_bytes: int | None = None
    http_chunk_bytes: int | None = None
    write_bytes: int | None = None
    comments: bool = False
    late_head: bool = False
    tool_call: bool = False
    reasoning: int = 0
    gzip: bool = False
    close_connection: bool = False
    reused_only: bool = False


NO_FAULT: Final = Fault()


def _flag(value: str | None) -> object:
    if value is not None:
        raise ValueError("takes no value")
    return True


def _given(value: str | None) -> str:
    if not value:
        raise ValueError("needs a value")
    return value


def _whole(value: str | None, low: int, high: int, wanted: str) -> int:
    text = _given(value)
    # The length is looked at first: Python reads no number of thousands of digits.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(COUNT_MAX)) and low <= int(text) <= high):
        raise ValueError(f"needs {wanted} from {low} to {high}")
    return int(text)


def _count(value: str | None) -> object:
    return _whole(value, 0, COUNT_MAX, "a whole number")


def _size(value: str | None) -> object:
    return _whole(value, 1, COUNT_MAX, "a whole number")


def _tokens(value: str | None) -> object:
    return _whole(value, 1, OUTPUT_TOKENS_MAX, "a whole number")


def _piece(value: str | None) -> object:
    return _whole(value, 1, PIECE_BYTES_MAX, "a whole number")


def _status(value: str | None) -> object:
    return _whole(value, 200, 599, "a status")


def _number(value: str | None, unit: str) -> float:
    try:
        number = float(_given(value))
    except ValueError:
        number = math.nan
    if not 0.0 <= number < 1e9:
        raise ValueError(f"needs a number of {unit}, 0 or more")
    return number


def _seconds(value: str | None) -> object:
    return _number(value, "seconds")


def _milliseconds(value: str | None) -> object:
    return _number(value, "milliseconds") / 1000.0


def _patience(value: str | None) -> object:
    if value == "forever":
        return math.inf
    try:
        return _number(value, "seconds")
    except ValueError:
        raise ValueError("needs a number of seconds or the word forever") from None


def _text(value: str | None) -> object:
    if value is None:
        raise ValueError("needs a value")
    return unquote(value)


def _line(value: str | None) -> object:
    """Text that fits into a header line."""
    text = unquote(_given(value))
    if not text.isascii() or not text.isprintable():
        raise ValueError("needs printable ASCII text")
    return text


def _bytes(value: str | None) -> object:
    return unquote_to_bytes(_given(value))


def _header(value: str | None) -> object:
    name, colon, text = str(_line(value)).partition(":")
    if not colon or not name or not name.replace("-", "").replace("_", "").isalnum():
        raise ValueError("needs Name:value")
    return ((name, text.strip()),)


def _usage(value: str | None) -> object:
    prompt, slash, completion = _given(value).partition("/")
    if not slash:
        raise ValueError("needs PROMPT/COMPLETION, two whole numbers")
    return (_count(prompt), _count(completion))


# One row per word: the field it sets and how its value is read. The table in docs/simulator.md lists the same words.
WORDS: Final[Mapping[str, tuple[str, Callable[[str | None], object]]]] = {
    "status": ("status", _status),
    "retry_after": ("retry_after", _line),
    "body": ("body", _text),
    "raw": ("raw", _bytes),
    "header": ("header", _header),
    "content_type": ("content_type", _line),
    "delay": ("delay_s", _seconds),
    "stall_before_head": ("stall_before_head_s", _patience),
    "reset_before_head": ("reset_before_head", _flag),
    "close_before_head": ("close_before_head", _flag),
    "reset_after_bytes": ("reset_after_bytes", _count),
    "close_after_bytes": ("close_after_bytes", _count),
    "reset_after_chunks": ("reset_after_chunks", _count),
    "close_after_chunks": ("close_after_chunks", _count),
    "stall_after_chunks": ("stall_after_chunks", _count),
    "stall": ("stall_s", _patience),
    "truncate_body": ("truncate_body", _size),
    "no_done": ("no_done", _flag),
    "no_usage": ("no_usage", _flag),
    "usage": ("usage", _usage),
    "chunks": ("chunks", _tokens),
    "interval_ms": ("interval_s", _milliseconds),
    "chunk_bytes": ("chunk_bytes", _piece),
    "http_chunk_bytes": ("http_chunk_bytes", _size),
    "write_bytes": ("write_bytes", _size),
    "comments": ("comments", _flag),
    "late_head": ("late_head", _flag),
    "tool_call": ("tool_call", _flag),
    "reasoning": ("reasoning", _count),
    "gzip": ("gzip", _flag),
    "close_connection": ("close_connection", _flag),
    "reused_only": ("reused_only", _flag),
}


def parse_fault(text: str, base: Fault = NO_FAULT) -> Fault:
    """The fault that `text` spells, over what `base` already says. Empty text changes nothing.

    Values are percent-decoded, so a comma inside a value is written %2C. `header` may stand several times.

    Raises: FaultError for an unknown or repeated word, or a value the word cannot take.
    """
    if len(text) > FAULT_TEXT_CHARS_MAX:
        raise FaultError(f"the text is longer than {FAULT_TEXT_CHARS_MAX} characters")
    fields: dict[str, object] = {}
    headers: tuple[tuple[str, str], ...] = base.header
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        word, equals, value = part.partition("=")
        if word not in WORDS:
            raise FaultError(f"unknown word {word[:60]!r}; known are {', '.join(WORDS)}")
        name, read = WORDS[word]
        if name in fields and word != "header":
            raise FaultError(f"{word}: given twice")
        try:
            fields[name] = read(value if equals else None)
        except ValueError as wrong:
            raise FaultError(f"{word}: {wrong}") from None
        if word == "header":
            headers = (*headers, *_pairs(fields[name]))
            fields[name] = headers
    return _changed(base, fields)


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    return value if isinstance(value, tuple) else ()


def _changed(base: Fault, fields: Mapping[str, object]) -> Fault:
    # The table above pairs each field with a reader of its type; the type checker cannot see through it.
    return replace(base, **fields)  # type: ignore[arg-type]
