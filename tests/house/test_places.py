"""When an agent gets requests and when it does not: its link, its engine, its capacity."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.house.cable import cable_to
from tests.house.client import CHAT, MESSAGES, ask, connected, error_of, hello
from tests.house.running import FAST, House, free_port, house_in, router_in, until, until_so

from hivenet_router.sim import Simulator


async def serves(house: House) -> bool:
    return (await ask(house.http, CHAT, hello())).status == 200


async def test_an_agent_without_a_link_gets_nothing_and_one_that_comes_back_is_served_again(tmp_path: Path) -> None:
    port, announced = free_port(), free_port()
    flags = (f"--p2p-port={port}", f"--p2p-announce-addr=/ip4/127.0.0.1/tcp/{announced}")
    async with router_in(tmp_path, *flags) as house, cable_to(("127.0.0.1", port), port=announced) as cable:
        engine = await house.add_engine()
        agent = await house.add_agent(engine.url)
        assert await serves(house)
        async with connected(house.http) as streaming, connected(house.http) as silent:
            streaming.ask(CHAT, hello(stream=True), x_sim="stall_after_chunks=2")
            await streaming.until(b"\n\n")
            silent.ask(CHAT, hello(), x_sim="delay=60")
            await engine.wait_for(lambda stats: stats.running == 2)
            cable.cut()
            assert (await streaming.rest())[1] in ("fin", "reset")
            gone = await silent.reply()
            assert (gone.status, error_of(gone)["code"]) in (
                (503, "agent_disconnected"),
                (503, "no_agents_available"),
            )
        assert not house.is_routable(agent.peer_id)
        reply = await ask(house.http, CHAT, hello())
        assert (reply.status, error_of(reply)["code"]) == (503, "no_agents_available")
        # What the agent had been doing for the router that is gone, its engine need not do.
        await engine.wait_for(lambda stats: stats.cancelled == 2)
        cable.mend()
        await until(lambda: house.is_routable(agent.peer_id))
        assert await serves(house)
        assert len(list(house.router.registry)) == 1
        assert cable.taken >= 2
        await house.rests()


async def test_a_router_that_closes_the_link_has_the_agent_back_in_the_same_session(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house:
        (agent,) = house.agents
        for _ in range(3):
            house.router.plane.close_peer(agent.peer_id)
            await until_so(lambda: serves(house))
        assert agent.agent.sessions[0].is_registered
        await house.rests()


async def test_a_restarted_router_has_its_agent_back(tmp_path: Path) -> None:
    grpc = ("127.0.0.1", free_port())
    ports = (f"--grpc-port=127.0.0.1:{grpc[1]}", f"--p2p-port={free_port()}")
    async with router_in(tmp_path, *ports) as house:
        engine = await house.add_engine()
        agent = await house.add_agent(engine.url)
        first_id = house.router.plane.peer_id
        await house.router.close()
        async with router_in(tmp_path / "..", *ports, f"--identity-path={tmp_path / 'router-again.key'}") as again:
            await until(lambda: again.is_routable(agent.peer_id))
            assert await serves(again)
            assert again.router.plane.peer_id != first_id


async def test_an_engine_that_is_down_is_out_after_three_probes_and_back_after_one(tmp_path: Path) -> None:
    options = replace(FAST, port=free_port())
    async with router_in(tmp_path) as house:
        async with Simulator(options) as engine:
            agent = await house.add_agent(engine.url)
            assert await serves(house)
            engine.set_fault("status=503", count=2, path="/health")
            assert await serves(house)
        await until(lambda: not house.is_routable(agent.peer_id))
        for path in (CHAT, MESSAGES):
            reply = await ask(house.http, path, hello(max_tokens=5))
            assert (reply.status, error_of(reply)["code"]) == (503, "no_agents_available")
        async with Simulator(options) as engine:
            await until(lambda: house.is_routable(agent.peer_id))
            assert await serves(house)
            assert agent.agent.sessions[0].is_registered
        await house.rests()


async def test_one_failed_probe_or_two_change_nothing(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house:
        (agent,) = house.agents
        for _ in range(5):
            house.engine.set_fault("status=503", count=2, path="/health")
            probed = len(house.engine.requests("/health"))
            await until(lambda: len(house.engine.requests("/health")) >= probed + 3)  # noqa: B023  (awaited here)
            assert house.is_routable(agent.peer_id)
            assert await serves(house)
        page = await house.page()
        assert page.total("hivenet_model_backend_failure_total") == 0


async def test_who_finds_the_agent_full_waits_in_line_and_who_finds_the_line_full_is_told_when_to_come_back(
    tmp_path: Path,
) -> None:
    async with house_in(tmp_path, agent=("--capacity=2",), router=("--queue-depth=3",)) as house:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(house.http)) for _ in range(5)]
            for client in clients:
                client.ask(CHAT, hello(), x_sim="delay=60")

            async def are_waiting() -> bool:
                return (await house.page()).total("hivenet_queue_depth") == 3

            await until_so(are_waiting)
            await until(lambda: house.engine.load.running == 2)
            for path in (CHAT, MESSAGES):
                reply = await ask(house.http, path, hello(max_tokens=5))
                assert (reply.status, error_of(reply)["code"]) == (503, "no_capacity")
                assert int(reply.header("retry-after") or 0) >= 1
            for client in clients[:3]:
                client.abort()
            # The two that waited longest have the places now.
            await house.engine.wait_for(lambda stats: stats.seen >= 4 and stats.running == 2)
        await house.rests()
        assert await serves(house)
        assert (await house.page()).total("hivenet_requests_total", outcome="no_capacity") == 2


async def test_the_line_is_served_to_its_end(tmp_path: Path) -> None:
    async with house_in(tmp_path, agent=("--capacity=2",), router=("--queue-depth=100",)) as house:
        replies = await asyncio.gather(*(ask(house.http, CHAT, hello(), x_sim="delay=0.02") for _ in range(80)))
        assert {reply.status for reply in replies} == {200}
        assert house.engine.stats.finished == 80
        await house.rests()


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_without_a_line_a_full_router_says_so_at_once(tmp_path: Path, path: str) -> None:
    flags = ("--max-concurrent=1", "--queue-size=0", "--enqueue-timeout=0s")
    async with house_in(tmp_path, router=flags) as house:
        async with connected(house.http) as client:
            client.ask(CHAT, hello(), x_sim="delay=60")
            await house.engine.wait_for(lambda stats: stats.running == 1)
            reply = await ask(house.http, path, hello(max_tokens=5))
            assert (reply.status, error_of(reply)["code"]) == (503, "queue_full")
            assert reply.header("retry-after") is not None
            assert (await ask(house.http, "/health")).status == 200
        await house.rests()
        assert await serves(house)


async def test_a_stream_gives_its_place_back_at_its_head_and_is_counted_to_its_end(tmp_path: Path) -> None:
    async with house_in(tmp_path, agent=("--capacity=1",)) as house, AsyncExitStack() as stack:
        for number in range(10):
            client = await stack.enter_async_context(connected(house.http))
            client.ask(CHAT, hello(stream=True), x_sim="chunks=3000,interval_ms=20")
            await client.until(b"\n\n")

            async def only_streams(running: int = number + 1) -> bool:
                page = await house.page()
                busy = page.total("hivenet_streams_in_progress"), page.total("hivenet_agent_active_requests")
                return busy == (running, 0)

            await until_so(only_streams)
        assert house.engine.load.running == 10


@pytest.mark.parametrize("is_stream", [False, True])
async def test_whoever_has_its_answer_finds_its_place_free_for_the_next_request(
    tmp_path: Path, is_stream: bool
) -> None:
    nobody_waits = ("--max-concurrent=1", "--queue-size=0", "--enqueue-timeout=0s", "--queue-depth=0")
    flags = (*nobody_waits, "--hold-slot-for-stream")
    async with house_in(tmp_path, router=flags, agent=("--capacity=1",)) as house:
        async with connected(house.http) as client:
            for _ in range(300):
                client.ask(CHAT, hello(stream=is_stream, max_tokens=1))
                assert (await client.reply()).status == 200
        await house.rests()
