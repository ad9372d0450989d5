"""How does an ordinary ASGI app answer requests that came through the data plane?

Turns one exchange into one ASGI call and its messages into one answer. Answers are buffered: what streams to a client
takes the walk. Invariant: whatever the app does, the exchange gets exactly one answer.
Source: architecture.md §4; the ASGI HTTP specification, version 2.3.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

import structlog

from hivenet_router.names import headers
from hivenet_router.ports import AnswerWith, Arrived, Exchange, Fields, Finished

# ASGI messages and scopes are open dictionaries by their specification.
_Message = MutableMapping[str, Any]  # type: ignore[explicit-any]
AsgiApp = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]

log = structlog.get_logger("api")


def answer_with(app: AsgiApp) -> AnswerWith:
    """What lets this app answer an exchange under a path, and waits until the client has the answer or has left."""

    async def answer(exchange: Exchange, path: str) -> Finished:
        return await _answer(app, exchange, path)

    return answer


async def _answer(app: AsgiApp, exchange: Exchange, path: str) -> Finished:
    arrived = exchange.arrived
    scope: _Message = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": arrived.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": arrived.query.encode("latin-1", "replace"),
        "root_path": "",
        "headers": _headers(arrived),
        "client": (arrived.client, 0),
        "server": None,
    }
    body_sent = False

    async def receive() -> _Message:
        nonlocal body_sent
        if body_sent:
            return {"type": "http.disconnect"}
        body_sent = True
        return {"type": "http.request", "body": arrived.body(), "more_body": False}

    status, fields, chunks = 500, list[tuple[bytes, bytes]](), list[bytes]()

    async def send(message: _Message) -> None:
        nonlocal status, fields
        if message["type"] == "http.response.start":
            status = int(message["status"])
            fields = [(bytes(name), bytes(value)) for name, value in message.get("headers", [])]
        elif message["type"] == "http.response.body":
            chunks.append(bytes(message.get("body", b"")))

    async def run() -> None:
        await app(scope, receive, send)

    try:
        # Frameworks look for more than asyncio asks of the task that they run in.
        await asyncio.create_task(run())
    except Exception:
        log.exception("control_request_failed", path=path, request_id=arrived.request_id)
        status, fields, chunks = 500, [], []
    return await exchange.respond(status, _without_length(fields), b"".join(chunks))


def _headers(arrived: Arrived) -> Fields:
    """As the client sent them, but for the request ID: an app reads the one that the answer will carry."""
    own = (headers.X_REQUEST_ID.encode(), arrived.request_id.encode())
    sent = ((name.lower(), value) for name, value in arrived.fields())
    return [*(field for field in sent if field[0] != own[0]), own]


def _without_length(fields: Fields) -> Fields:
    return [(name, value) for name, value in fields if name.lower() != b"content-length"]
