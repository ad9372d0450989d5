"""A body that engines die of: how often is it carried out, and who is asked?"""

import asyncio

import pytest
from tests.core.making import A, B, C
from tests.fakes.exchange import Answers, Fails, FakeArrived, FakeDigest, FakeExchange
from tests.rooms.building import Rooms

from hivenet_router.core.deadly import REMEMBERED_S

DIES = Fails("status", status=503, fields=[(b"x-hivenet-taken", b"fresh")], is_taken=False)
DIES_KEPT = Fails("status", status=503, fields=[(b"x-hivenet-taken", b"kept")])
WORD = (b"x-hivenet-resend", b"never")


def chat(rooms: Rooms, body: bytes = b"deadly") -> FakeExchange:
    return rooms.plane.arrive(FakeArrived(digest=FakeDigest("m"), content=body))


async def tried(rooms: Rooms, body: bytes = b"deadly") -> tuple[int, list[object]]:
    """The status, and who was asked."""
    exchange = chat(rooms, body)
    status = await rooms.walk(exchange)
    assert rooms.is_at_rest
    return status, [attempt.to for attempt in exchange.forwards]


async def test_a_request_on_which_engines_die_goes_to_two_of_them_and_again_to_one() -> None:
    rooms = Rooms()
    for peer in (A, B, C):
        rooms.join(peer, DIES)
    assert await tried(rooms) == (503, [A, B])
    assert await tried(rooms) == (503, [C])
    assert await tried(rooms, b"other") == (503, [A, B])
    await asyncio.sleep(REMEMBERED_S)
    assert len((await tried(rooms))[1]) == 2


async def test_the_last_try_is_sent_once_by_every_hop() -> None:
    rooms = Rooms()
    rooms.join(A, DIES)
    rooms.join(B)
    exchange = chat(rooms)
    assert await rooms.walk(exchange) == 200
    first, last = (attempt.plan for attempt in exchange.forwards)
    assert (first.resend, WORD in first.set_fields) == ("unsent", False)
    assert (last.resend, WORD in last.set_fields) == ("never", True)


async def test_a_success_clears_the_memory_of_its_body() -> None:
    rooms = Rooms()
    rooms.join(A, DIES)
    rooms.join(B, Answers(), DIES)
    rooms.join(C)
    assert await tried(rooms) == (200, [A, B])
    # Nobody is known to have died of it, so that it has two tries again.
    assert (await tried(rooms))[0] == 200
    assert not rooms.house.remembering.is_in_use


async def test_an_engine_that_answers_badly_has_not_died() -> None:
    rooms = Rooms()
    for peer in (A, B, C):
        rooms.join(peer, Fails("status", status=500))
    assert len((await tried(rooms))[1]) == 3
    assert not rooms.house.remembering.is_in_use


@pytest.mark.parametrize("stale", [DIES_KEPT, Fails("reset", is_taken=True, is_stale=True)])
async def test_a_kept_connection_that_dies_under_a_request_is_made_good_by_the_same_agent_where_it_is_alone(
    stale: Fails,
) -> None:
    """O-09: without a try, and nobody is to blame."""
    rooms = Rooms(tries_per_step_max=1)
    agent = rooms.join(A, stale, Answers())
    assert await tried(rooms) == (200, [A, A])
    assert (agent.outcomes.failures, rooms.recorder.failed) == (0, [])


@pytest.mark.parametrize("stale", [DIES_KEPT, Fails("reset", is_taken=True, is_stale=True)])
async def test_or_by_another_agent_and_then_by_nobody_else(stale: Fails) -> None:
    rooms = Rooms()
    rooms.join(A, stale)
    rooms.join(B, DIES)
    rooms.join(C)
    assert await tried(rooms) == (503, [A, B])


@pytest.mark.parametrize("bytes_count", [10, 1 << 20])
async def test_bodies_are_told_apart_whatever_their_size(bytes_count: int) -> None:
    rooms = Rooms()
    rooms.join(A, DIES)
    rooms.join(B, DIES)
    deadly, other = b"x" * bytes_count, b"x" * (bytes_count - 1) + b"y"
    assert len((await tried(rooms, deadly))[1]) == 2
    assert len((await tried(rooms, other))[1]) == 2
    assert len((await tried(rooms, deadly))[1]) == 1
