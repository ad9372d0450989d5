"""The original's agent under our router."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs
from tests.house.client import CHAT, MESSAGES, ask, connected, error_of, hello
from tests.house.running import FAST, House, free_port, router_in, until
from tests.interop.originals import needs_originals, original_agent
from tests.raw_http import at

from hivenet_router.sim import Simulator

pytestmark = needs_originals
NOTICED_WITHIN_S: Final = 2.0


@asynccontextmanager
async def scene(folder: Path, *router: str) -> AsyncIterator[House]:
    """A router with an original agent that is registered."""
    async with router_in(folder, *router) as house:
        engine = await house.add_engine()
        with original_agent(folder, house.grpc, engine.url, "--capacity", "100"):
            await until(lambda: any(agent.routable for agent in house.router.registry))
            yield house
            await house.rests()


async def test_it_registers_and_serves_every_kind_of_request(tmp_path: Path) -> None:
    async with scene(tmp_path) as house:
        for path in (CHAT, MESSAGES):
            reply = await ask(house.http, path, hello(max_tokens=5))
            assert (reply.status, reply.json()["model"]) == (200, "m1")
            stream = await ask(house.http, path, hello(stream=True, max_tokens=5))
            assert (stream.status, stream.whole) == (200, True)
            assert b"error" not in stream.body
        models = (await ask(house.http, "/v1/models")).json()
        assert at(models, "data", 0, "agents", "healthy") == 1
        mine = "0AF76519-16CD-43DD-8448-EB211C80319C"
        assert (await ask(house.http, CHAT, hello(), x_request_id=mine)).header("x-request-id") == mine
        assert {n.lower(): v for n, v in house.engine.requests(CHAT)[-1].headers}["x-request-id"] == mine


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_an_engine_s_complaint_is_told_once(tmp_path: Path, path: str) -> None:
    async with scene(tmp_path) as house:
        fault = "status=400,body=" + '{"error":{"message":"bad temperature"%2C"type":"invalid_request_error"}}'
        reply = await ask(house.http, path, hello(max_tokens=5), x_sim=fault)
        assert (reply.status, error_of(reply)["code"]) == (400, "invalid_parameter")
        assert "bad temperature" in str(error_of(reply)["message"])
        assert house.engine.stats.seen == 1


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize(("phase", "is_stream"), [("chunks=2000,interval_ms=20", True), ("delay=60", False)])
async def test_a_client_that_leaves_is_noticed_by_its_engine(
    tmp_path: Path, path: str, phase: str, is_stream: bool, how: str
) -> None:
    async with scene(tmp_path) as house, connected(house.http) as client:
        client.ask(path, hello(stream=is_stream, max_tokens=2000), x_sim=phase)
        await house.engine.wait_for(lambda stats: stats.running == 1)
        if is_stream:
            await client.until(b"\n\n")
        if how == "fin":
            client.leave()
        else:
            client.abort()
        await house.engine.wait_for(lambda stats: stats.cancelled == 1, timeout_s=NOTICED_WITHIN_S)


@pytest.mark.parametrize(
    ("path", "event"), [(CHAT, b'data: {"error":'), (MESSAGES, b'event: error\ndata: {"type":"error",')]
)
async def test_a_stream_that_its_backend_broke_off_is_not_taken_for_whole(
    tmp_path: Path, path: str, event: bytes
) -> None:
    """The original ends it as if it were whole: only the dialect's end mark tells (wire.md §8.7)."""
    async with scene(tmp_path) as house:
        for fault in ("reset_after_chunks=3", "close_after_chunks=3"):
            reply = await ask(house.http, path, hello(stream=True, max_tokens=50), x_sim=fault)
            assert (reply.status, reply.whole) == (200, False)
            assert reply.body.rstrip(b"\n").rpartition(b"\n\n")[2].startswith(event)


async def test_sixty_at_once_and_two_hundred_in_line_are_all_served(tmp_path: Path) -> None:
    flags = ("--max-concurrent=500", "--queue-size=500", "--queue-depth=500")
    async with scene(tmp_path, *flags) as house:
        for number in (60, 200):
            replies = await asyncio.gather(
                *(ask(house.http, CHAT, hello(max_tokens=5), x_sim="delay=0.1") for _ in range(number))
            )
            assert Counter(reply.status for reply in replies) == {200: number}


async def test_a_slow_request_costs_only_itself(tmp_path: Path) -> None:
    async with scene(tmp_path, "--request-timeout=1s") as house, connected(house.http) as stream:
        stream.ask(CHAT, hello(stream=True), x_sim="chunks=100,interval_ms=30")
        await stream.until(b"\n\n")
        slow = await ask(house.http, CHAT, hello(), x_sim="delay=60")
        assert (slow.status, error_of(slow)["code"]) == (504, "request_timeout")
        assert b"error" not in await stream.until(b"data: [DONE]\n\n")


async def test_its_session_is_renewed_without_a_gap(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with scene(tmp_path, "--session-ttl=302s") as house:
            for _ in range(2):
                seen = sum(line["event"] == "agent_renewed" for line in logs)
                await until(lambda: sum(line["event"] == "agent_renewed" for line in logs) > seen)  # noqa: B023
                assert (await ask(house.http, CHAT, hello())).status == 200
    assert sum(line["event"] == "agent_registered" for line in logs) == 1


async def test_its_engine_is_out_while_it_is_down_and_back_afterwards(tmp_path: Path) -> None:
    options = replace(FAST, port=free_port())
    async with router_in(tmp_path) as house, Simulator(options) as engine:
        with original_agent(tmp_path, house.grpc, engine.url):
            await until(lambda: any(agent.routable for agent in house.router.registry))
            engine.set_fault("status=503", path="/health")
            await until(lambda: not any(agent.routable for agent in house.router.registry))
            reply = await ask(house.http, CHAT, hello())
            assert (reply.status, error_of(reply)["code"]) == (503, "no_agents_available")
            engine.clear_faults()
            await until(lambda: any(agent.routable for agent in house.router.registry))
            assert json.loads((await ask(house.http, CHAT, hello())).body)["model"] == "m1"
