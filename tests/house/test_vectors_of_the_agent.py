"""What the original's agent answers its router, asked of ours over a real link; and what reaches the backend.

The cases that differ stand in `CHANGED`, with what ours does; docs/decisions/0004 has the reasons.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from tests.house.client import CHAT, MESSAGES, connected, hello
from tests.house.peers import asked
from tests.house.raw_engine import RawEngine, RawRequest, Said, raw_engine
from tests.house.recorded import VECTORS, Message, cases, message
from tests.house.running import House, router_in, until
from tests.house.stand_in import stand_in

from hivenet_router._plane import Completed
from hivenet_router.adapters.plane import PlaneAdapter
from hivenet_router.core.backend_errors import agent_error_body, chat_refusal
from hivenet_router.names.errors import Blame
from hivenet_router.ports import RequestFailed

MOUNT: Final = "/hivenet_router/inference/1.0.0"
NOT_SAYABLE: Final = {"chunked-req"}
CHANGED: Final = {
    # Bodies are the backend's business: they are passed on as they are.
    "chat-empty": 200,
    "chat-badjson": 200,
    "chat-badcontent": 200,
    "chat-maxtok-float": 200,
    "chat-GET": 200,
    # Nothing is decoded on the way, and identity is what is asked for.
    "chat-gzip": 200,
    # The recording stand-in had reset a kept connection here.
    "chat-streamreq-json": 200,
    "messages-query": 200,
    "messages-400": 400,
    # Only /v1/ is served, and paths are not cleaned.
    "other": 404,
    "dotdot": 404,
}


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[tuple[House, RawEngine]]:
    async with router_in(tmp_path) as house, raw_engine(stand_in) as engine:
        await house.add_agent(engine.url)
        yield house, engine


async def ask_agent(house: House, request: Message) -> Completed:
    method, path, _ = request.line.split(" ")
    fields = [
        (name.encode(), value.encode()) for name, value in request.headers if name not in ("host", "content-length")
    ]
    plane = house.router.plane
    assert isinstance(plane, PlaneAdapter)
    host = dict(request.headers)["host"]
    return await asked(plane, house.agents[0].peer_id, method, path, request.body, host=host, fields=fields)


async def test_every_recorded_request_of_a_router_gets_the_recorded_answer(scene: tuple[House, RawEngine]) -> None:
    house, _ = scene
    for name, request, recorded in cases("wire-agent-responses.json"):
        if name in NOT_SAYABLE:
            continue
        got = await ask_agent(house, request)
        status, headers, body = recorded.compared()
        if name in CHANGED:
            assert got.status == CHANGED[name], name
            continue
        ours = {field: (got.field(field) or b"").decode() for field in headers}
        if name.startswith("chat") and b'"source":"backend"' in body:
            # The router here is of our own kind and has it raw; an original is told this of it (decisions.md 40).
            told = chat_refusal(got.status, got.body())
            text = agent_error_body(told.code, told.message, Blame.BACKEND)
            assert (told.status, text) == (status, body) or (got.status, got.body()) == (status, body), name
            continue
        assert (got.status, ours, got.body()) == (status, headers, body), name


IMPROVED: Final = {
    # Hop by hop: they end at the agent (RFC 9110 §7.6.1), and so does what `Connection` names.
    *("connection", "keep-alive", "te", "upgrade", "expect", "x-drop"),
    # Each hop's own.
    *("host", "content-length", "accept-encoding"),
}


def as_sent(raw: Message) -> list[tuple[str, str]]:
    own_agent = ("user-agent", "Go-http-client/1.1")
    return sorted(pair for pair in raw.headers if pair[0] not in IMPROVED and pair != own_agent)


async def test_the_backend_is_asked_what_the_original_asks_it_and_no_header_of_a_hop(
    scene: tuple[House, RawEngine],
) -> None:
    house, engine = scene
    for name, request, _ in cases("wire-agent-responses.json"):
        if name not in NOT_SAYABLE:
            await ask_agent(house, request)
    sent = [message({"raw": request.raw.decode()}) for request in engine.requests if request.body]
    document = json.loads((VECTORS / "wire-agent-to-backend.json").read_text("utf-8"))
    compared = 0
    for each in document["requests"]:
        recorded = message(each)
        if not recorded.body or not recorded.line.startswith("POST /v1/") or "/v1/a/b" in recorded.line:
            continue
        alike = [
            as_sent(ours)
            for ours in sent
            if ours.line.partition("?")[0].split(" ")[:2] == recorded.line.split(" ")[:2] and ours.body == recorded.body
        ]
        assert as_sent(recorded) in alike, recorded
        compared += 1
    assert compared == 29
    for ours in sent:
        # `X-Drop` is named by a `Connection` that our own sender keeps to itself.
        crossed = {name for name, _ in ours.headers} & IMPROVED
        assert crossed <= {"host", "content-length", "accept-encoding", "x-drop"}
        assert dict(ours.headers)["accept-encoding"] == "identity"
    assert "POST /v1/messages?beta=true HTTP/1.1" in {ours.line for ours in sent}


def cut(pieces: list[bytes]) -> Said:
    return Said(pieces, then="end")


EVENTS: Final = b'data: {"choices":[]}\n\n'
HALF_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n"
    % (
        len(EVENTS),
        EVENTS,
    )
)
HALF_BODY: Final = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"a":1'


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_backend_that_breaks_off_never_looks_complete(tmp_path: Path, path: str) -> None:
    """`backend_breaks` of wire-cancellation.json, where the original's ends look complete in three of four rows."""
    said = cut([HALF_STREAM])
    async with router_in(tmp_path) as house, raw_engine(lambda _: said) as engine:
        await house.add_agent(engine.url)
        request = Message(f"POST {MOUNT}{path} HTTP/1.1", [("host", "")], b"{}")
        with pytest.raises(RequestFailed):
            await ask_agent(house, request)
        said = cut([HALF_BODY])
        got = await ask_agent(house, request)
        assert (got.status, json.loads(got.body())["error"]["code"]) == (503, "backend_unavailable")


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("phase", ["waiting for headers", "streaming"])
async def test_a_reset_of_the_stream_closes_the_backend_connection(tmp_path: Path, path: str, phase: str) -> None:
    """wire-cancellation.json, the rows without FIN; the rows with FIN need a router that half-closes (interop)."""

    def answer(_: RawRequest) -> Said:
        head = [HALF_STREAM] if phase == "streaming" else []
        return Said([*head, *[b""] * 1000], pause_s=0.05)

    async with router_in(tmp_path) as house, raw_engine(answer) as engine:
        await house.add_agent(engine.url)
        async with connected(house.http) as client:
            client.ask(path, hello(stream=True, max_tokens=5))
            await until(lambda: len(engine.asked()) == 1)
            if phase == "streaming":
                await client.until(b"\n\n")
            ended = engine.ended
            client.abort()
            await until(lambda: engine.ended == ended + 1, within_s=2.0)
        await house.rests()


async def test_a_reader_that_stalls_is_given_up_by_the_agent(tmp_path: Path) -> None:
    """`stall` of wire-cancellation.json: only so much is kept for it, and its backend connection is closed."""
    megabyte = b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))

    def answer(_: RawRequest) -> Said:
        return Said([HALF_STREAM, *[megabyte] * 64], then="end")

    async with router_in(tmp_path) as house, raw_engine(answer) as engine:
        await house.add_agent(engine.url, "--stream-write-timeout=500ms")
        async with connected(house.http, reads_ahead_bytes=1 << 16) as client:
            client.ask(CHAT, hello(stream=True))
            await client.until(b"\n\n")
            await until(lambda: len(engine.asked()) == 1)
            ended = engine.ended
            await until(lambda: engine.ended > ended)
            rest, ending = await client.rest()
        assert ending in ("fin", "reset")
        assert not rest.endswith(b"0\r\n\r\n")
        await house.rests()
