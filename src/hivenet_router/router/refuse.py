"""How does a client learn that its request is not served?

The only place where a refusal becomes bytes: the envelope of the client's dialect, the status, `Retry-After` and the
headers that belong to it. Invariant: every answer that the router makes itself for a client has passed here.
Source: http-api.md §7, §15 items 23 and 29; decisions.md 3.
"""

import json
import math
from collections.abc import Mapping
from typing import Final

from hivenet_router.core.refusals import RefusalReason, reason
from hivenet_router.names import headers
from hivenet_router.names.errors import (
    ANTHROPIC_TYPE_BY_STATUS,
    OPENAI_TYPE_BY_STATUS,
    Blame,
    ErrorCode,
)
from hivenet_router.names.paths import ANTHROPIC_PREFIX, Dialect
from hivenet_router.ports import Exchange, Fields, Finished

STOPPING: Final = reason(ErrorCode.NO_AGENTS_AVAILABLE, "this router is stopping; try another one", retry_after_s=1.0)
"""What nobody is served for any more. Source: decisions.md 33."""

_JSON: Final = (headers.CONTENT_TYPE.encode(), b"application/json")


class Refusal(Exception):
    """A request that leaves the walk here, with the reason and any headers that go with it."""

    def __init__(self, why: RefusalReason, fields: Fields | None = None, *, exhausted_by: str | None = None) -> None:
        super().__init__(why.message)
        self.reason: Final = why
        self.fields: Final = fields or []
        self.exhausted_by: Final = exhausted_by
        """What left no agent to the last step of the policy; None where no policy was exhausted."""


def refuse(code: ErrorCode, message: str, *, status: int | None = None, retry_after_s: float | None = None) -> Refusal:
    """A refusal with the row of its code, or with another status where the place asks for one."""
    why = reason(code, message, retry_after_s=retry_after_s)
    if status is not None:
        why = RefusalReason(why.code, status, why.message, why.source, why.retry_after_s)
    return Refusal(why)


def dialect_of(path: str) -> Dialect:
    """In whose words errors of this path are written, known path or not."""
    return Dialect.ANTHROPIC if path.startswith(ANTHROPIC_PREFIX) else Dialect.OPENAI


def envelope(why: RefusalReason, dialect: Dialect, request_id: str) -> bytes:
    """The body of the answer.

    Source: http-api.md §15 item 23.
    """
    own = {"message": why.message, "code": str(why.code), "source": str(why.source)}
    if dialect is Dialect.ANTHROPIC:
        error = {"type": _kind(ANTHROPIC_TYPE_BY_STATUS, why.status, "api_error"), **own}
        return _compact({"type": "error", "error": error, "request_id": request_id})
    kind = _kind(OPENAI_TYPE_BY_STATUS, why.status, "server_error")
    return _compact(
        {"error": {"code": own["code"], "message": why.message, "source": own["source"], "type": kind, "param": None}}
    )


def reply_fields(refusal: Refusal) -> Fields:
    """The headers of the answer."""
    fields = [_JSON, *refusal.fields]
    retry_after_s = refusal.reason.retry_after_s
    if retry_after_s is not None:
        fields.append((headers.RETRY_AFTER.encode(), str(max(1, math.ceil(retry_after_s))).encode()))
    if refusal.reason.status == 401:
        fields.append((headers.WWW_AUTHENTICATE.encode(), headers.BEARER_REALM.encode()))
    return fields


async def answer(exchange: Exchange, refusal: Refusal, dialect: Dialect) -> Finished:
    """Send the refusal and wait until the client has it, or has left."""
    body = envelope(refusal.reason, dialect, exchange.arrived.request_id)
    return await exchange.respond(refusal.reason.status, reply_fields(refusal), body)


def call_off(exchange: Exchange, why: RefusalReason) -> None:
    """Refuse what has not been answered, and end what is being answered where it stands; waits for nothing."""
    arrived = exchange.arrived
    body = envelope(why, dialect_of(arrived.path), arrived.request_id)
    exchange.call_off(why.status, reply_fields(Refusal(why)), body)


def edge_refusals() -> list[tuple[int, bytes]]:
    """Bodies for what a listener refuses by itself, before there is a path or a dialect."""
    said = {
        400: "the request is not valid HTTP/1.1",
        408: "the request did not arrive within the time allowed",
        431: "the request's header block is too large",
        501: "the request uses a transfer coding that is not supported",
        505: "this HTTP version is not supported",
    }
    full = RefusalReason(
        ErrorCode.QUEUE_FULL, 503, "this router has as many connections as it may; try again shortly", Blame.ROUTER
    )
    invalid = [RefusalReason(ErrorCode.REQUEST_INVALID, status, text, Blame.ROUTER) for status, text in said.items()]
    return [(reason.status, envelope(reason, Dialect.OPENAI, "")) for reason in (*invalid, full)]


SEQUENCE_MARK: Final = b"\x00sequence\x00"
"""Stands in a break event for its number, which the data plane knows when it comes to that; no JSON holds it."""


def break_events(dialect: Dialect) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """What a stream ends with where it breaks off: backend lost, too long silent, too long in all, router stopping,
    link to the agent lost. Those of the responses API hold `SEQUENCE_MARK` in place of their number.

    Source: http-api.md §15 item 1; decisions.md 26 and 41.
    """
    return (
        _break_event(dialect, ErrorCode.BACKEND_ERROR, "the backend broke off before the end of its answer"),
        _break_event(dialect, ErrorCode.REQUEST_TIMEOUT, "the backend fell silent before the end of its answer"),
        _break_event(dialect, ErrorCode.REQUEST_TIMEOUT, "the answer took longer than a stream may"),
        _break_event(dialect, STOPPING.code, "this router is stopping"),
        _break_event(
            dialect,
            ErrorCode.AGENT_DISCONNECTED,
            "the connection to the agent was lost before the end of its answer",
        ),
    )


def _break_event(dialect: Dialect, code: ErrorCode, message: str) -> bytes:
    why = reason(code, message)
    body = envelope(why, dialect, "")
    if dialect is Dialect.RESPONSES:
        event = {"type": "error", "code": str(code), "message": message, "param": None, "sequence_number": 0}
        # It is the last member, so that the number stands before the closing brace.
        return b"event: error\ndata: " + _compact(event).removesuffix(b"0}") + SEQUENCE_MARK + b"}\n\n"
    if dialect is Dialect.ANTHROPIC:
        without_id = json.loads(body)
        del without_id["request_id"]
        return b"event: error\ndata: " + _compact(without_id) + b"\n\n"
    return b"data: " + body + b"\n\n"


def _kind(by_status: Mapping[int, str], status: int, ours: str) -> str:
    """The word for a status; one that is in no table is the client's fault below 500 and ours above."""
    return by_status.get(status, "invalid_request_error" if status < 500 else ours)


def _compact(value: object) -> bytes:
    """JSON that does nothing either where somebody shows it as a page. Source: http-api.md §7.1."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace")
