"""What the original's router answers its agents, asked of ours over a real link; and what ours sends to an agent.

The cases that differ stand in `CHANGED`, with the decision behind each; docs/decisions/0004 says the same in words.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest_asyncio
from tests.house.client import connected
from tests.house.peers import METADATA, Peer, peer, session_for
from tests.house.recorded import VECTORS, Message, cases, message
from tests.house.running import House, router_in

from hivenet_router.names.protocol_ids import ORIGINAL_AGENT_VERSION_PREFIX
from hivenet_router.ports import Exchange, Fields, Finished

RECORDED_TOKEN: Final = b"d4330dc33e8fe86217f483dfbad651f6715e749a72cd7dc9c58b89ffe03d50e1"
RECORDED_PEER: Final = b"12D3KooWA4Xop1JaT3MHxwYMkCepYsv4iPVopMXwCz5iHYdBfeSB"
RECORDED_CID: Final = b"bafzaajaiaejcaa5ba677htqqxyoxbxiy45f4bglh4tldbg5fbvpr3xegmqjfkmny"

_ANSWERING: Final[set["asyncio.Future[Finished]"]] = set()

NOT_SAYABLE: Final = {"wellknown-nohost", "register-http10", "register-chunked", "keepalive-two", "garbage"}
"""No client of ours can say these; the data plane's own tests do."""
CHANGED: Final = {
    "wellknown-accept-text": 406,
    "wellknown-post": 405,
    "proto-noslash": 404,
    "register-doubleslash": 404,
    "signals-key-case": 400,
    "signals-trailing-garbage": 400,
}


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[tuple[House, Peer]]:
    async with router_in(tmp_path) as house, peer(house) as agent:
        yield house, agent


def as_ours(request: Message, agent: Peer, token: str) -> bytes:
    """The recorded body, said by this agent in its session."""
    body = request.body.replace(RECORDED_TOKEN, token.encode()).replace(RECORDED_PEER, agent.peer_id.encode())
    return body.replace(RECORDED_CID, agent.cid.encode())


def fields_of(request: Message, *left_out: str) -> Fields:
    return [(name.encode(), value.encode()) for name, value in request.headers if name not in left_out]


async def test_every_recorded_message_of_an_agent_gets_the_recorded_answer(scene: tuple[House, Peer]) -> None:
    house, agent = scene
    token = (await session_for(house, agent.peer_id)).session_token
    replayed = 0
    for name, request, recorded in cases("wire-management-http.json"):
        if name in NOT_SAYABLE:
            continue
        method, path, _ = request.line.split(" ")
        host = dict(request.headers)["host"]
        fields = fields_of(request, "host", "content-length", "connection")
        got = await agent.ask(method, path, as_ours(request, agent, token), host=host, fields=fields)
        status, headers, body = recorded.compared()
        replayed += 1
        if name in CHANGED:
            assert got.status == CHANGED[name], name
            continue
        ours = {field: (got.field(field) or b"").decode() for field in headers}
        assert (got.status, ours, got.body()) == (status, headers, body), name
    assert replayed == len(cases("wire-management-http.json")) - len(NOT_SAYABLE)
    assert [found.peer for found in house.router.registry] == [agent.peer_id]


HOP_BY_HOP: Final = {"connection", "keep-alive", "proxy-authorization", "te", "upgrade", "expect", "x-drop"}
OURS: Final = {"host", "content-length", "accept-encoding", "x-request-id", "user-agent"}


def client_request(recorded: Message, path: str) -> bytes:
    """What the client must have sent so that this reached the agent."""
    not_the_client_s = {("host", ""), ("connection", "close")}
    lines = [f"{name}: {value}" for name, value in recorded.headers if (name, value) not in not_the_client_s]
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: h", *lines])
    return head.encode() + b"\r\n\r\n" + recorded.body


async def test_what_a_client_sends_reaches_the_agent_as_the_original_s_router_passes_it_on(
    scene: tuple[House, Peer],
) -> None:
    house, agent = scene
    for model, capability in (("m1", "llm"), ("emb", "embedding"), ("rr", "reranker")):
        await _replay_inference(house, agent, model, capability)


async def _replay_inference(house: House, agent: Peer, model: str, capability: str) -> None:
    metadata = replace(METADATA, model=model, capability=capability)
    token = (await session_for(house, agent.peer_id, metadata)).session_token
    body = json.dumps({"session_token": token, "peer_id": agent.peer_id}).encode()
    registered = await agent.ask("POST", "/hivenet_router/router/1.0.0/register", body)
    assert registered.status == 200
    document = json.loads((VECTORS / "wire-inference-requests.json").read_text("utf-8"))
    prefix = document["prefix"]
    agent.on_arrival = _answer
    for case in document["requests"]:
        recorded = message(case["request"])
        if not recorded.body or json.loads(recorded.body)["model"] != model:
            continue
        path = recorded.line.split(" ")[1]
        agent.arrivals.clear()
        async with connected(house.http) as client:
            client.send(client_request(recorded, path.removeprefix(prefix)))
            while (head := await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100"):
                pass
            assert head.startswith(b"HTTP/1.1 200 "), (case["name"], head)
        (arrived,) = [exchange.arrived for exchange in agent.arrivals]
        assert (arrived.method, arrived.path, arrived.body()) == ("POST", path, recorded.body), case["name"]
        sent = [(name.decode().lower(), value.decode()) for name, value in arrived.fields()]
        expected = [pair for pair in recorded.headers if pair[0] not in HOP_BY_HOP | OURS]
        assert [pair for pair in sent if pair[0] not in OURS] == expected, case["name"]
        assert not {name for name, _ in sent} & HOP_BY_HOP
        assert ("accept-encoding", "identity") in sent
        assert sum(name == "x-request-id" for name, _ in sent) == 1


def _answer(exchange: Exchange) -> None:
    answering = asyncio.ensure_future(exchange.respond(200, [(b"content-type", b"application/json")], b"{}"))
    _ANSWERING.add(answering)
    answering.add_done_callback(_ANSWERING.discard)


def test_an_original_agent_is_known_by_what_it_says_it_is() -> None:
    document = json.loads((VECTORS / "wire-identify.json").read_text("utf-8"))
    for side in ("router", "agent"):
        assert document[side]["fields"]["6 agentVersion"].startswith(ORIGINAL_AGENT_VERSION_PREFIX)
    assert document["agent_version_note"]
