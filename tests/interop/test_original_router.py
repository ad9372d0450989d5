"""Our agent under the original's router."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.house.client import CHAT, MESSAGES, Address, ask, connected, error_of, hello
from tests.house.running import FAST, RunningAgent, agent_of, until, until_so
from tests.interop.originals import OriginalRouter, needs_originals, original_router
from tests.raw_http import at

from hivenet_router.sim import Simulator

pytestmark = needs_originals


@dataclass
class Scene:
    """An original router, and an agent of ours that is registered with it."""

    router: OriginalRouter
    engine: Simulator
    agent: RunningAgent

    @property
    def http(self) -> Address:
        """Where clients ask."""
        return self.router.http

    async def serves(self) -> bool:
        """Whether the router has the agent."""
        with suppress(OSError, asyncio.IncompleteReadError):
            return at((await ask(self.http, "/v1/models")).json(), "data", 0, "agents", "healthy") == 1
        return False


@asynccontextmanager
async def scene(folder: Path, *router_flags: str) -> AsyncIterator[Scene]:
    with original_router(folder, *router_flags) as router:
        key = folder / "agent.key"
        async with Simulator(FAST) as engine, agent_of(key, router.grpc, engine.url, "--capacity=100") as agent:
            made = Scene(router, engine, agent)
            await until_so(made.serves)
            yield made


async def test_it_registers_and_serves_every_kind_of_request(tmp_path: Path) -> None:
    async with scene(tmp_path) as house:
        for path in (CHAT, MESSAGES):
            # Slow enough for the half-close behind the request to arrive first: it is no cancelling.
            reply = await ask(house.http, path, hello(max_tokens=5), x_sim="delay=0.2")
            assert (reply.status, reply.json()["model"]) == (200, "m1")
            stream = await ask(house.http, path, hello(stream=True, max_tokens=50), x_sim="interval_ms=5")
            assert (stream.status, stream.whole) == (200, True)
            assert stream.body.rstrip().endswith(b"[DONE]" if path == CHAT else b'{"type":"message_stop"}')
        assert house.engine.stats.cancelled == 0


async def test_an_engine_s_complaint_reaches_the_client(tmp_path: Path) -> None:
    async with scene(tmp_path) as house:
        reply = await ask(house.http, CHAT, hello(), x_sim="status=400,body=bad%20temperature")
        assert (reply.status, error_of(reply)["code"]) == (400, "invalid_parameter")
        assert error_of(reply)["message"] == "bad temperature"
        long = "status=400,body=maximum%20context%20length%20is%20exceeded"
        reply = await ask(house.http, CHAT, hello(), x_sim=long)
        assert (reply.status, error_of(reply)["code"]) == (400, "context_length_exceeded")


async def test_forty_at_once_are_all_served(tmp_path: Path) -> None:
    async with scene(tmp_path) as house:
        replies = await asyncio.gather(*(ask(house.http, CHAT, hello(), x_sim="delay=0.1") for _ in range(40)))
        assert Counter(reply.status for reply in replies) == {200: 40}


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_when_the_router_dies_the_engine_is_told_to_stop(tmp_path: Path, path: str) -> None:
    async with scene(tmp_path) as house, connected(house.http) as stream, connected(house.http) as silent:
        stream.ask(path, hello(stream=True, max_tokens=2000), x_sim="chunks=2000,interval_ms=20")
        await stream.until(b"\n\n")
        silent.ask(path, hello(max_tokens=5), x_sim="delay=60")
        await house.engine.wait_for(lambda stats: stats.running == 2)
        house.router.original.kill()
        await house.engine.wait_for(lambda stats: stats.cancelled == 2, timeout_s=2.0)


async def test_a_broken_stream_is_no_reason_to_lose_the_others(tmp_path: Path) -> None:
    """The original closes every link to an agent that resets before its headers; ours resets behind them only."""
    async with scene(tmp_path) as house, connected(house.http) as other:
        other.ask(CHAT, hello(stream=True), x_sim="chunks=60,interval_ms=20")
        await other.until(b"\n\n")
        for fault in ("reset_after_chunks=3", "reset_before_head", "status=500"):
            await ask(house.http, CHAT, hello(stream=True, max_tokens=50), x_sim=fault)
        assert (await other.until(b"data: [DONE]\n\n")).count(b"data: {") > 40


async def test_its_session_is_renewed_without_a_gap(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with scene(tmp_path, "--session-ttl", "302s") as house:
            await until(lambda: sum(line["event"] == "session_renewed" for line in logs) >= 2)
            assert (await ask(house.http, CHAT, hello())).status == 200
    assert sum(line["event"] == "registered" for line in logs) == 1
    assert not any(line["event"] == "session_lost" for line in logs)


async def test_a_router_that_comes_back_has_its_agent_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as house:
        house.router.original.kill()
        port = str(house.router.grpc[1])
        with original_router(tmp_path, "--grpc-port", f"127.0.0.1:{port}") as again:
            house.router = again
            await until_so(house.serves)
            assert (await ask(again.http, CHAT, hello())).status == 200
