"""What does the body of an error answer say?

Engines and what stands before them speak many dialects: OpenAI's nested `error`, the flat form of older engines,
Anthropic's, FastAPI's `detail`, a bare text, a list of one; an agent's own envelope is another. This reads whichever it
finds into one value and never fails. Invariant: no message is JSON or a page of markup: what has no words for a person
gives none. What the words mean for the request is decided in `backend_errors.py`.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024
MESSAGE_BYTES_MAX: Final = 512

_Json = dict[str, object]

_DEPTH_MAX: Final = 8
"""So many shapes are looked into one inside another: a message may hold the JSON of another server."""
_ENTRIES_MAX: Final = 8
"""So many entries of a list of complaints are told."""
_SAYING_MEMBERS: Final = (
    "message",
    "error_description",
    "error_message",
    "error",
    "errors",
    "detail",
    "msg",
    "title",
    "reason",
    "description",
)
"""The members that may hold the words, the telling ones first."""
_DATA_LINE: Final = re.compile(rb"^data:[ \t]*(.*)$", re.MULTILINE)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_FIRST_WORDS: Final = re.compile(r'"(?:message|msg|detail|error)"\s*:\s*"((?:[^"\\]|\\.){1,2048})', re.DOTALL)
_HALF_ESCAPE: Final = re.compile(r"\\u[0-9a-fA-F]{0,3}$")
_BEGINS_JSON: Final = re.compile(r'(?:\[\s*)*(?:\{\s*(?:["}]|$)|\[\s*(?:["\]]|$))')
_BEGINS_MARKUP: Final = re.compile(r"<(?:!doctype|!--|\?xml|html|head|body|title|center|h1)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What was found in an error body; every field is empty where nothing was found."""

    message: str = ""
    """The text meant for a person, in whichever shape it came; at most 512 bytes."""
    words: frozenset[str] = frozenset()
    """The texts of `type` and `code`, at the top and under `error`; a numeric code is left out."""
    code: str = ""
    """`error.code`, if it is text."""
    source: str = ""
    """`error.source`, which only an agent or a router writes."""
    is_json: bool = False
    """Whether it was JSON of any shape."""
    plain_message: str = ""
    """`message`, else `error.message`, as it is and unbounded: what an original agent reads."""


def read_error_body(body: bytes) -> ErrorBody:
    """What the body says; at most its first 64 KiB are looked at. Of JSON that is longer, such as one that repeats the
    whole request, the first words are the message.

    Source: wire.md §8.4; http-api.md §6.1 and §15, 6; field-cases.md O-22.
    """
    is_cut = len(body) >= BODY_BYTES_MAX
    body = body[:BODY_BYTES_MAX].strip()
    if body.startswith((b"data:", b"event:")) and (line := _DATA_LINE.search(body)):
        body = line[1].strip()
    try:
        top = json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode(errors="replace")
        return ErrorBody(_first_words(text) if is_cut and text[:1] in ("{", "[") else _plain(text))
    message = bounded(_words_in(top)).strip()
    if isinstance(top, list):
        top = top[0] if top else None
    if not isinstance(top, dict):
        return ErrorBody(message, is_json=True)
    error = top.get("error")
    nested: _Json = error if isinstance(error, dict) else {}
    words = {_text(of, name) for of in (top, nested) for name in ("type", "code")}
    return ErrorBody(
        message=message,
        words=frozenset(words - {""}),
        code=_text(nested, "code"),
        source=_text(nested, "source"),
        is_json=True,
        plain_message=_text(top, "message") or _text(nested, "message"),
    )


def raw_text(body: bytes) -> str:
    """The body's beginning as text, at most 512 bytes, whatever it is: an original agent's words where it has none."""
    return bounded(body[:MESSAGE_BYTES_MAX].decode(errors="replace"))


def bounded(message: str) -> str:
    """The message as text that can be sent: at most 512 bytes of UTF-8, no half characters."""
    sendable = message[:MESSAGE_BYTES_MAX].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return sendable.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore")


def _words_in(value: object, depth: int = 0) -> str:
    """The words for a person somewhere in a JSON value; empty where there are none."""
    if depth == _DEPTH_MAX:
        return ""
    match value:
        case str():
            return _words_in_text(value, depth)
        case list():
            lines = (_line(entry, depth + 1) for entry in value[:_ENTRIES_MAX])
            return "; ".join(line for line in lines if line)
        case dict():
            found = (_words_in(value[name], depth + 1) for name in _SAYING_MEMBERS if name in value)
            return next((words for words in found if words), "")
        case _:
            return ""


def _words_in_text(text: str, depth: int) -> str:
    if text.lstrip()[:1] not in ("{", "["):
        return _plain(_CONTROLS.sub("", _COLOURS.sub("", text)))
    try:
        return _words_in(json.loads(text), depth + 1)
    except (ValueError, RecursionError):
        return _plain(text)


def _first_words(text: str) -> str:
    """The first words in JSON whose end is missing."""
    found = _FIRST_WORDS.search(text)
    try:
        return _words_in(json.loads(f'"{_HALF_ESCAPE.sub("", found[1])}"', strict=False)) if found else ""
    except ValueError:
        return ""


def _line(entry: object, depth: int) -> str:
    """One complaint of a list, with the place that FastAPI names."""
    what = _words_in(entry, depth)
    place = entry.get("loc") if isinstance(entry, dict) else None
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    return f"{where}: {what}" if where and what else what


def _plain(text: str) -> str:
    """A text that is no JSON; empty where it is a piece of some, markup, or nothing that can be read."""
    text = bounded(text.strip()).strip()
    is_readable = not (_BEGINS_JSON.match(text) or _BEGINS_MARKUP.match(text) or _CONTROLS.search(text))
    return text if is_readable else ""


def _text(members: _Json, name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""
