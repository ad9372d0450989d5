"""Requests and an agent that hangs or fails at once, through all rooms, in virtual time."""

import asyncio

from structlog.testing import capture_logs
from tests.core.making import A, B
from tests.fakes.exchange import Answers, Fails
from tests.rooms.building import TIMEOUT_S, Rooms, turns

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
        assert exchange.forwards[1].within_s == TIMEOUT_S / 2
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


async def crowd_at(rooms: Rooms, number: int) -> list["asyncio.Task[int]"]:
    """Twice as many requests at once, so that each of two agents has this many."""
    tasks = [rooms.walk(rooms.chat()) for _ in range(2 * number)]
    await turns()
    return tasks


async def test_of_many_at_a_hanging_engine_one_asks_another_first_and_then_all_do() -> None:
    rooms = Rooms()
    agent = rooms.join(A, *[HANGS] * 6, capacity=20)
    rooms.join(B, capacity=20)
    began = rooms.clock.now()
    with capture_logs() as logs:
        tasks = await crowd_at(rooms, 6)
        assert [await task for task in tasks] == [200] * 12
    assert rooms.clock.now() - began < TIMEOUT_S
    assert agent.outcomes.failures == 6
    told = [(line["event"], line.get("waiting")) for line in logs if line["log_level"] == "warning"]
    assert told == [("agent_hangs", 5), ("agent_suspect", None)]
    assert rooms.is_at_rest


async def test_three_at_a_hanging_engine_wait_out_their_time() -> None:
    """So that an engine at long work is not robbed of it."""
    rooms = Rooms()
    rooms.join(A, *[HANGS] * 3, capacity=20)
    rooms.join(B, capacity=20)
    tasks = await crowd_at(rooms, 3)
    assert sorted([await task for task in tasks]) == [200] * 3 + [504] * 3
    assert rooms.is_at_rest


async def test_an_engine_at_long_work_loses_one_request_and_no_more() -> None:
    """The witness takes as long elsewhere, so it proves nothing, and the first answer ends the matter."""
    rooms = Rooms()
    long = Answers(first_byte_after_s=TIMEOUT_S * 0.6)
    agent = rooms.join(A, *[long] * 6, capacity=20)
    rooms.join(B, *[Answers()] * 6, Answers(first_byte_after_s=TIMEOUT_S * 0.4), capacity=20)
    exchanges = [rooms.chat() for _ in range(12)]
    assert [await task for task in [rooms.walk(exchange) for exchange in exchanges]] == [200] * 12
    moved = [exchange for exchange in exchanges if len(exchange.forwards) > 1]
    assert [[attempt.to for attempt in exchange.forwards] for exchange in moved] == [[A, B]]
    assert (agent.outcomes.failures, agent.outcomes.suspicion) == (1, None)


async def test_an_engine_that_sends_heads_and_no_tokens_hangs_too() -> None:
    rooms = Rooms()
    rooms.join(A, *[Answers(first_byte_after_s=TIMEOUT_S * 2, is_stream=True)] * 6, capacity=20)
    rooms.join(B, capacity=20)
    assert [await task for task in await crowd_at(rooms, 6)] == [200] * 12
    assert rooms.is_at_rest


async def test_nobody_is_taken_away_while_nobody_else_has_room_and_then_as_many_as_have() -> None:
    rooms = Rooms()
    rooms.join(A, *[HANGS] * 6, capacity=6)
    rooms.join(B, *[Answers(first_byte_after_s=TIMEOUT_S * 0.7)] * 2, Answers(), capacity=2)
    exchanges = [rooms.chat() for _ in range(8)]
    tasks = [rooms.walk(exchange) for exchange in exchanges]
    await asyncio.sleep(TIMEOUT_S * 0.69)
    assert [len(exchange.forwards) for exchange in exchanges] == [1] * 8
    assert [await task for task in tasks] == [200] * 8
    assert rooms.is_at_rest


async def test_without_suspicion_nobody_is_taken_away() -> None:
    rooms = Rooms(suspect_after=0)
    rooms.join(A, *[HANGS] * 6, capacity=20)
    rooms.join(B, capacity=20)
    assert sorted([await task for task in await crowd_at(rooms, 6)]) == [200] * 6 + [504] * 6


async def test_a_request_that_an_engine_has_died_of_is_taken_away_from_nobody() -> None:
    """It would be carried out a third time."""
    rooms = Rooms()
    dies = Fails("status", status=503, fields=[(b"x-hivenet-taken", b"fresh")])
    rooms.join(A, dies, *[HANGS] * 4, capacity=20)
    rooms.join(B, dies, Answers(first_byte_after_s=1.0), capacity=20)
    assert await rooms.walk(rooms.chat()) == 503
    await asyncio.sleep(10.0)
    exchanges = [rooms.chat() for _ in range(8)]
    statuses = [await task for task in [rooms.walk(exchange) for exchange in exchanges]]
    assert sorted(statuses) == [200] * 4 + [504] * 4
    assert [len(exchange.forwards) for exchange in exchanges] == [1] * 8
