"""What does the body of an error answer say?

Backends speak at least four dialects: OpenAI's nested `error`, the flat form of older engines, Anthropic's, FastAPI's
`detail`, and an agent's own envelope is a fifth. This reads whichever it finds into one value and never fails: a body
in no known shape is plain text. What the words mean for the request is decided in `backend_errors.py`.
"""

import json
from dataclasses import dataclass
from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024
MESSAGE_BYTES_MAX: Final = 512

_Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What was found in an error body; every field is empty where nothing was found."""

    message: str = ""
    """The text meant for a person, from whichever member holds it; unbounded."""
    detail: str = ""
    """FastAPI's `detail`, as one line of text."""
    words: frozenset[str] = frozenset()
    """The texts of `type` and `code`, at the top and under `error`; a numeric code is left out."""
    code: str = ""
    """`error.code`, if it is text."""
    source: str = ""
    """`error.source`, which only an agent or a router writes."""


def read_error_body(body: bytes) -> ErrorBody:
    """What the body says; at most its first 64 KiB are looked at.

    Source: wire.md §8.4; http-api.md §6.1 and §15, 6.
    """
    try:
        top = json.loads(body[:BODY_BYTES_MAX])
    except (ValueError, RecursionError):
        return ErrorBody()
    if not isinstance(top, dict):
        return ErrorBody()
    error = top.get("error")
    nested: _Json = error if isinstance(error, dict) else {}
    words = {_text(of, name) for of in (top, nested) for name in ("type", "code")}
    return ErrorBody(
        message=_text(top, "message") or _text(nested, "message"),
        detail=_detail(top.get("detail")),
        words=frozenset(words - {""}),
        code=_text(nested, "code"),
        source=_text(nested, "source"),
    )


def raw_text(body: bytes) -> str:
    """The body's beginning as text, at most 512 bytes, for a body whose message cannot be found."""
    return bounded(body[:MESSAGE_BYTES_MAX].decode(errors="replace"))


def bounded(message: str) -> str:
    """The message as text that can be sent: at most 512 bytes of UTF-8, no half characters."""
    sendable = message[:MESSAGE_BYTES_MAX].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return sendable.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore")


def _text(members: _Json, name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _detail(detail: object) -> str:
    if isinstance(detail, str):
        return detail
    if not isinstance(detail, list):
        return ""
    lines = (_detail_line(entry) for entry in detail if isinstance(entry, dict))
    return "; ".join(line for line in lines if line)


def _detail_line(entry: _Json) -> str:
    place, what = entry.get("loc"), _text(entry, "msg")
    where = ".".join(str(part) for part in place) if isinstance(place, list) else ""
    return f"{where}: {what}" if where and what else what
