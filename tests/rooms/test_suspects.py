"""Requests and an agent that hangs or fails at once, through all rooms, in virtual time."""

import asyncio

from structlog.testing import capture_logs
from tests.core.making import A, B
from tests.fakes.exchange import Answers, Fails
from tests.rooms.building import TIMEOUT_S, Rooms

HANGS = Fails("timeout", after_s=TIMEOUT_S)
FAILS = Fails("status", status=500)


async def suspect_in(rooms: Rooms) -> None:
    """Let `A` fail until it is suspect."""
    rooms.join(A, FAILS, FAILS, FAILS, HANGS, Answers(), capacity=9)
    rooms.join(B, capacity=9)
    for _ in range(3):
        assert await rooms.walk(rooms.chat()) == 200
        await asyncio.sleep(10.0)
    [agent] = [agent for agent in rooms.registry if agent.peer == A]
    assert agent.outcomes.suspicion is not None


async def test_a_request_that_tries_a_suspect_in_vain_is_taken_over_by_another_agent() -> None:
    rooms = Rooms()
    with capture_logs() as logs:
        await suspect_in(rooms)
        exchange = rooms.chat()
        assert await rooms.walk(exchange) == 200
        assert [attempt.to for attempt in exchange.forwards] == [A, B]
        assert exchange.forwards[0].within_s == TIMEOUT_S / 2
        await asyncio.sleep(10.0)
        for _ in range(20):
            assert await rooms.walk(rooms.chat()) == 200
            await asyncio.sleep(1.0)
    assert [line["event"] for line in logs if "suspect" in line["event"]] == [
        "agent_suspect",
        "agent_no_longer_suspect",
    ]
    assert rooms.is_at_rest


async def test_a_suspect_without_others_has_the_whole_time_of_a_request() -> None:
    rooms = Rooms()
    await suspect_in(rooms)
    rooms.registry.remove(B, now=rooms.clock.now())
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 504
    assert exchange.forwards[0].within_s == TIMEOUT_S
    assert await rooms.walk(rooms.chat()) == 200


async def test_a_request_that_has_one_try_gives_a_suspect_its_whole_time() -> None:
    """Nobody could take it over."""
    rooms = Rooms(tries_per_step_max=1)
    rooms.join(A, FAILS, FAILS, FAILS, Answers(), capacity=9)
    rooms.join(B, capacity=9)
    for _ in range(3):
        assert await rooms.walk(rooms.chat()) == 502
        await asyncio.sleep(10.0)
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 200
    assert [(attempt.to, attempt.within_s) for attempt in exchange.forwards] == [(A, TIMEOUT_S)]


async def test_of_forty_requests_one_tries_an_engine_that_fails_at_once() -> None:
    rooms = Rooms()
    rooms.join(A, *[FAILS] * 40, capacity=9)
    rooms.join(B, capacity=9)
    first = []
    for _ in range(40):
        exchange = rooms.chat()
        assert await rooms.walk(exchange) == 200
        first.append(exchange.forwards[0].to)
        await asyncio.sleep(0.2)
    assert first.count(A) == 1
