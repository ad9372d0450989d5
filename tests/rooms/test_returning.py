"""An agent that has lost its link is waited for, for a little, where nobody else can take a request."""

import asyncio

import pytest
from tests.core.making import MODEL, OTHER_MODEL, A, B, C, described
from tests.fakes.exchange import Answers, Fails
from tests.rooms.building import Rooms, refusal_of, turns

from hivenet_router.names.errors import ErrorCode
from hivenet_router.router.place import LINK_RETURN_WITHIN_S

CUT = Fails("reset", is_link_down=True, is_taken=True)


async def test_requests_of_a_lone_agent_wait_for_its_new_link_and_hold_nothing_meanwhile() -> None:
    rooms = Rooms(tries_per_step_max=1, capacity_waiters_max=1)
    agent = rooms.join(A, *[CUT] * 3, Answers(), capacity=3)
    walking = [rooms.walk(rooms.chat()) for _ in range(3)]
    # As the data plane tells it: that the link is gone before what failed by it.
    rooms.plane.scripts[A] = [Fails("reset", after_s=1.0, is_link_down=True, is_taken=True)] * 3 + [Answers()]
    await asyncio.sleep(1)
    rooms.registry.link_down(A)
    await turns()
    assert (agent.active_slots, rooms.placing.permits_free, rooms.placing.waiting) == (0, 50, 3)
    await asyncio.sleep(LINK_RETURN_WITHIN_S / 2)
    rooms.registry.link_up(A)
    assert await asyncio.gather(*walking) == [200] * 3
    assert rooms.recorder.link_resets == [(MODEL, "forward_failure")]
    assert (agent.outcomes.failures, agent.outcomes.consecutive_failures, rooms.recorder.failed) == (0, 0, [])
    assert rooms.is_at_rest


async def test_a_request_that_comes_while_the_link_is_gone_waits_for_it_too() -> None:
    rooms = Rooms()
    rooms.join(A)
    rooms.registry.link_down(A)
    waiting = rooms.walk(rooms.chat())
    await asyncio.sleep(1)
    rooms.registry.register(A, described(), now=rooms.clock.now())
    await turns()
    assert not waiting.done()
    rooms.registry.link_up(A)
    assert await waiting == 200
    assert rooms.is_at_rest


async def test_the_wait_is_short_and_begins_anew_when_the_agent_dials() -> None:
    rooms = Rooms()
    agent = rooms.join(A)
    began = rooms.clock.now()
    rooms.registry.link_down(A)
    first = rooms.place(rooms.chat())
    await asyncio.sleep(LINK_RETURN_WITHIN_S - 0.5)
    assert not first.done()
    rooms.placing.expect(agent)
    assert (await refusal_of(first)).code is ErrorCode.NO_AGENTS_AVAILABLE
    assert rooms.clock.now() - began == pytest.approx(2 * LINK_RETURN_WITHIN_S - 0.5)
    later = rooms.clock.now()
    assert (await refusal_of(rooms.place(rooms.chat()))).code is ErrorCode.NO_AGENTS_AVAILABLE
    assert rooms.clock.now() == later
    assert rooms.is_at_rest


async def test_who_was_cut_off_and_waited_in_vain_is_told_of_the_link() -> None:
    rooms = Rooms()
    rooms.join(A, CUT)
    walking = rooms.walk(exchange := rooms.chat())
    rooms.registry.link_down(A)
    rooms.registry.link_up(A)
    await turns()
    rooms.registry.link_down(A)
    assert await walking == 503
    assert exchange.answered is not None
    assert b"agent_disconnected" in exchange.answered.body or b"no_agents_available" in exchange.answered.body


async def test_nobody_waits_longer_than_to_its_deadline_or_for_a_client_that_left() -> None:
    rooms = Rooms()
    rooms.join(A)
    rooms.registry.link_down(A)
    began, gone = rooms.clock.now(), rooms.chat()
    leaving = rooms.walk(gone)
    late = rooms.place(rooms.chat(), within_s=0.5)
    await turns()
    gone.leave()
    assert await leaving == 499
    assert (await refusal_of(late)).code is ErrorCode.REQUEST_TIMEOUT
    assert rooms.clock.now() - began == pytest.approx(0.5)
    assert rooms.is_at_rest


async def test_nobody_waits_where_another_agent_can_serve_or_the_lost_one_could_not() -> None:
    rooms = Rooms()
    rooms.join(A)
    rooms.join(B, model=OTHER_MODEL)
    began = rooms.clock.now()
    rooms.registry.heartbeat(B, backend_healthy=True, leaving=True, now=began)
    for peer in (A, B):
        rooms.registry.link_down(peer)
    assert (await refusal_of(rooms.place(rooms.chat(), model=OTHER_MODEL))).code is ErrorCode.NO_AGENTS_AVAILABLE
    rooms.join(C)
    with await rooms.place(rooms.chat()) as placed:
        assert placed.agent.peer == C
    assert rooms.clock.now() == began


async def test_as_many_new_requests_wait_for_a_link_as_for_capacity() -> None:
    rooms = Rooms(capacity_waiters_max=1)
    rooms.join(A)
    rooms.registry.link_down(A)
    first = rooms.place(rooms.chat())
    await turns()
    assert (await refusal_of(rooms.place(rooms.chat()))).code is ErrorCode.NO_CAPACITY
    rooms.registry.link_up(A)
    with await first:
        pass
    assert rooms.is_at_rest
