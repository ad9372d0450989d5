"""Links that are cut or frozen under requests, and engines that die of requests, as seen from outside."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.house.cable import Cable, cable_to
from tests.house.client import CHAT, ask, error_of, hello
from tests.house.raw_engine import RawRequest, Said, raw_engine, sized
from tests.house.running import House, free_port, router_in, until, until_so

from hivenet_router.adapters.clock import LoopClock

OK = sized(b'{"choices":[]}')
SILENT = Said([b"never"], pause_s=60.0)
DIES = Said([], then="close")
BACK_WITHIN_S = 20.0
"""field-cases.md O-31."""


class Script:
    """What an engine answers, one request after another; `OK` behind that."""

    def __init__(self, *said: Said) -> None:
        self.said = list(said)

    def __call__(self, request: RawRequest) -> Said:
        return self.said.pop(0) if self.said else OK


@asynccontextmanager
async def cabled(folder: Path, *flags: str) -> AsyncIterator[tuple[House, Cable]]:
    """A router whose agents' links run over a cable."""
    port, announced = free_port(), free_port()
    flags = (f"--p2p-port={port}", f"--p2p-announce-addr=/ip4/127.0.0.1/tcp/{announced}", *flags)
    async with router_in(folder, *flags) as house, cable_to(("127.0.0.1", port), port=announced) as cable:
        yield house, cable
        await house.rests()


async def failures_and_resets(house: House) -> tuple[float, float]:
    page = await house.page()
    assert all(agent.outcomes.consecutive_failures == 0 for agent in house.router.registry)
    names = ("hivenet_agent_requests_failed_total", "hivenet_agent_connection_resets_total")
    failed, resets = (page.total(name) for name in names)
    return failed, resets


@pytest.mark.parametrize("tries", [1, 3])
@pytest.mark.parametrize("damage", ["cut", "frozen"])
async def test_requests_of_a_lone_agent_whose_link_is_cut_or_replaced_are_served_over_its_new_one(
    tmp_path: Path, damage: str, tries: int
) -> None:
    """O-31."""
    # One answer first, so that one of the three finds a stream that was kept.
    script = Script(OK, SILENT, SILENT, SILENT)
    flag = f"--max-tries-per-step={tries}"
    async with cabled(tmp_path, flag) as (house, cable), raw_engine(script) as engine:
        await house.add_agent(engine.url)
        assert (await ask(house.http, CHAT, hello())).status == 200
        asking = [asyncio.create_task(ask(house.http, CHAT, hello())) for _ in range(3)]
        await until(lambda: len(engine.asked()) == 4)
        if damage == "cut":
            cable.cut()
            cable.mend()
        else:
            cable.freeze()
        async with asyncio.timeout(BACK_WITHIN_S):
            replies = await asyncio.gather(*asking)
        assert [reply.status for reply in replies] == [200] * 3
        assert len(engine.asked()) == 7
        assert await failures_and_resets(house) == (0, 1)


async def test_a_lone_agent_that_stays_away_costs_its_requests_a_moment_only(tmp_path: Path) -> None:
    async with cabled(tmp_path) as (house, cable), raw_engine(Script(SILENT)) as engine:
        agent = await house.add_agent(engine.url)
        cut_off = asyncio.create_task(ask(house.http, CHAT, hello()))
        await until(lambda: len(engine.asked()) == 1)
        cable.cut()
        reply = await cut_off
        assert (reply.status, error_of(reply)["code"]) == (503, "agent_disconnected")
        reply = await ask(house.http, CHAT, hello())
        assert (reply.status, error_of(reply)["code"]) == (503, "no_agents_available")
        cable.mend()
        await until(lambda: house.is_routable(agent.peer_id))
        assert (await ask(house.http, CHAT, hello())).status == 200


def dies_of_it(request: RawRequest) -> Said:
    return DIES if b"deadly" in request.body else OK


@pytest.mark.parametrize("is_warm", [False, True])
async def test_a_request_on_which_engines_die_is_carried_out_twice_and_then_once(tmp_path: Path, is_warm: bool) -> None:
    async with router_in(tmp_path) as house, AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(raw_engine(dies_of_it)) for _ in range(3)]
        for engine in engines:
            await house.add_agent(engine.url)
        if is_warm:
            # Whoever is asked first has a connection from this one, and the router a stream to it.
            assert (await ask(house.http, CHAT, hello())).status == 200

        async def executions(text: str) -> int:
            before = sum(len(engine.asked()) for engine in engines)
            reply = await ask(house.http, CHAT, hello(messages=[{"role": "user", "content": text}]))
            assert (reply.status, error_of(reply)["code"]) == (503, "backend_unavailable")
            return sum(len(engine.asked()) for engine in engines) - before

        assert [await executions(text) for text in ("deadly", "deadly", "deadly too")] == [2, 1, 2]
        assert (await ask(house.http, CHAT, hello())).status == 200
        await house.rests()


async def test_a_lone_engine_that_closed_a_kept_connection_serves_on_a_fresh_one_and_nobody_is_blamed(
    tmp_path: Path,
) -> None:
    """O-09: the agent's connection was on its way out when the request went into it."""
    async with router_in(tmp_path) as house, raw_engine(Script(*[OK, DIES] * 10)) as engine:
        await house.add_agent(engine.url)
        for _ in range(11):
            assert (await ask(house.http, CHAT, hello())).status == 200
        assert len(engine.asked()) == 21
        assert (await failures_and_resets(house))[0] == 0
        await house.rests()


async def test_an_agent_that_was_removed_and_returns_goes_on_counting(tmp_path: Path) -> None:
    async with router_in(tmp_path) as house, raw_engine(Script()) as engine:
        agent = await house.add_agent(engine.url)
        for _ in range(2):
            assert (await ask(house.http, CHAT, hello())).status == 200
        [known] = house.router.registry
        house.router.registry.remove(known.peer, now=LoopClock().now())
        house.router.plane.close_peer(agent.peer_id)
        await until_so(lambda: serves(house))
        page = await house.page()
        assert page.total("hivenet_agent_disconnections_total") == 1
        assert page.total("hivenet_agent_requests_success_total") == 3


async def serves(house: House) -> bool:
    return (await ask(house.http, CHAT, hello())).status == 200
