"""SIGTERM in every state, a second one, and faults, on a virtual clock. `Stop.signalled` is what the signals call."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.agent.running import RunningAgent, agent_of
from tests.fakes.agent_world import FakeEngine, FakeRouter, now, peer_id

from hivenet_router.agent.connect import Stage
from hivenet_router.agent.report import Reports
from hivenet_router.agent.serve import Stop, serve
from hivenet_router.agent.world import SessionFailed
from hivenet_router.names.paths import HEARTBEAT, REGISTER
from hivenet_router.ports import Reply

pytestmark = pytest.mark.looptime

A = "router-a:50051"
B = "router-b:50051"


async def ended(agent: RunningAgent) -> float:
    """Seconds from the first signal to the end."""
    begun = now()
    agent.stop.signalled()
    assert agent.done is not None
    await agent.done
    return now() - begun


@pytest.mark.parametrize(
    ("stage", "hangs_at"),
    [(Stage.AUTHENTICATE, "authenticate"), (Stage.DIAL, "dial"), (Stage.REGISTER, REGISTER), (Stage.BACK_OFF, "")],
)
async def test_on_the_way_to_a_session_the_agent_ends_at_once(stage: Stage, hangs_at: str) -> None:
    one = FakeRouter(peer_id(1), hangs_at=hangs_at)
    if stage is Stage.BACK_OFF:
        one.refuses = SessionFailed("down")
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(12)
        assert agent.session.stage is stage
        assert await ended(agent) < 1
    assert not one.heartbeats


async def test_while_the_backend_is_not_ready_the_agent_ends_at_once() -> None:
    engine = FakeEngine()
    engine.ready_at = 1e9
    async with agent_of({A: FakeRouter(peer_id(1))}, engine=engine) as agent:
        await asyncio.sleep(12)
        assert agent.session.stage is Stage.WAIT_BACKEND
        assert await ended(agent) < 1


async def test_an_agent_that_stands_by_for_a_router_ends_too() -> None:
    one = FakeRouter(peer_id(1))
    async with agent_of({A: one, B: one}) as agent:
        await asyncio.sleep(12)
        assert Stage.STAND_BY in {session.stage for session in agent.sessions}
        assert await ended(agent) < 1


async def test_each_router_hears_goodbye_and_then_the_links_close() -> None:
    one, two = FakeRouter(peer_id(1)), FakeRouter(peer_id(2))
    async with agent_of({A: one, B: two}) as agent:
        await asyncio.sleep(12)
        assert await ended(agent) < 1
    for router in (one, two):
        assert router.heartbeats[-1][1].backend_healthy is False
        assert router.closes == 1


async def test_requests_that_run_may_end_and_the_routers_are_kept_until_then() -> None:
    one = FakeRouter(peer_id(1))
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(12)
        agent.running[0] = 2
        stopping = asyncio.create_task(ended(agent))
        await asyncio.sleep(17)
        assert agent.session.is_registered
        assert {beat.backend_healthy for at, beat in one.heartbeats if at > 12} == {False}
        agent.running[0] = 0
        assert 17 <= await stopping < 18
    assert max(one.beat_times) > 25


async def test_requests_that_do_not_end_are_given_the_time_allowed() -> None:
    async with agent_of({A: FakeRouter(peer_id(1))}, shutdown_timeout_s=20) as agent:
        await asyncio.sleep(12)
        agent.running[0] = 1
        assert await ended(agent) == pytest.approx(20, abs=0.5)


async def test_a_router_that_does_not_answer_the_goodbye_does_not_hold_the_agent() -> None:
    one = FakeRouter(peer_id(1))
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(12)
        one.hangs_at = HEARTBEAT
        assert await ended(agent) < 6


async def test_the_second_signal_ends_at_once_whatever_runs() -> None:
    async with agent_of({A: FakeRouter(peer_id(1))}) as agent:
        await asyncio.sleep(12)
        agent.running[0] = 1
        stopping = asyncio.create_task(ended(agent))
        await asyncio.sleep(3)
        with capture_logs() as lines:
            agent.stop.signalled()
            assert await stopping < 3.1
    assert [(line["event"], line.get("requests")) for line in lines] == [("requests_cut", 1), ("ended", None)]


async def test_a_session_lost_while_leaving_is_not_begun_again() -> None:
    one = FakeRouter(peer_id(1))
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(12)
        agent.running[0] = 1
        stopping = asyncio.create_task(ended(agent))
        one.answers[HEARTBEAT] = Reply(404, b"")
        await asyncio.sleep(20)
        agent.running[0] = 0
        await stopping
    assert len(one.asked_at) == 1


async def test_a_fault_in_any_part_ends_the_agent_with_it() -> None:
    async def faulty() -> None:
        await asyncio.sleep(3)
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        await serve(
            [],
            [faulty()],
            reports=Reports(),
            requests_running=lambda: 0,
            stop=Stop(),
            shutdown_timeout_s=30,
        )
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)
