"""One permit, held, and a line that is full: who comes now waits outside it for a moment."""

import asyncio

import pytest
from tests.core.making import MODEL, A
from tests.rooms.building import Rooms, refusal_of, turns

from hivenet_router.core.attempts import Attempts
from hivenet_router.core.ids import ModelName
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import CHAT_COMPLETIONS, EMBEDDINGS
from hivenet_router.ports import ClientGone


async def test_a_request_waits_outside_for_the_enqueue_timeout_and_is_then_told_that_the_queue_is_full() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=1, enqueue_timeout_s=5.0)
    rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        in_line = rooms.place(rooms.chat())
        await turns()
        began = rooms.clock.now()
        why = await refusal_of(rooms.place(rooms.chat()))
        assert (why.code, why.status, why.retry_after_s) == (ErrorCode.QUEUE_FULL, 503, 1.0)
        assert rooms.clock.now() - began == pytest.approx(5.0)
    with await in_line:
        pass
    assert rooms.is_at_rest


async def test_it_waits_no_longer_than_to_its_deadline() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=0, enqueue_timeout_s=5.0)
    rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        began = rooms.clock.now()
        why = await refusal_of(rooms.place(rooms.chat(), within_s=2.0))
        assert why.code is ErrorCode.QUEUE_FULL
        assert rooms.clock.now() - began == pytest.approx(2.0)
    assert rooms.is_at_rest


async def test_without_an_enqueue_timeout_it_is_refused_at_once() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=0, enqueue_timeout_s=0.0)
    rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        began = rooms.clock.now()
        assert (await refusal_of(rooms.place(rooms.chat()))).code is ErrorCode.QUEUE_FULL
        assert rooms.clock.now() == began
    assert rooms.is_at_rest


@pytest.mark.parametrize("queue_requests_max", [0, 9])
@pytest.mark.parametrize(
    ("model", "path", "told"),
    [
        ("unknown", CHAT_COMPLETIONS, (ErrorCode.MODEL_NOT_FOUND, 404)),
        (MODEL, EMBEDDINGS, (ErrorCode.REQUEST_INVALID, 400)),
    ],
)
async def test_what_nobody_serves_is_refused_at_once_however_many_wait(
    queue_requests_max: int, model: str, path: str, told: tuple[ErrorCode, int]
) -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=queue_requests_max)
    rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        others = [rooms.place(rooms.chat()) for _ in range(3)]
        await turns()
        began = rooms.clock.now()
        why = await refusal_of(rooms.place(rooms.chat(model, path=path), model=ModelName(model)))
        assert (why.code, why.status) == told
        assert rooms.clock.now() == began
    for other in others:
        with await other:
            pass
    assert rooms.is_at_rest


async def test_where_the_agents_are_only_ill_a_request_may_stand_in_the_line() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=1)
    agent = rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        rooms.registry.link_down(A)
        in_line = rooms.place(rooms.chat())
        await turns()
        assert not in_line.done()
        rooms.join(A, capacity=9)
    with await in_line as placed:
        assert placed.agent.peer == agent.peer
    assert rooms.is_at_rest


async def test_who_comes_in_from_outside_has_the_whole_time_to_the_deadline() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=1, enqueue_timeout_s=5.0)
    rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        leaving = rooms.chat()
        in_line = rooms.place(leaving)
        outside = rooms.place(rooms.chat())
        await asyncio.sleep(4)
        leaving.leave()
        with pytest.raises(ClientGone):
            await in_line
        await asyncio.sleep(40)
        assert not outside.done()
    with await outside:
        pass
    assert rooms.is_at_rest


async def test_they_come_in_in_the_order_of_their_arrival_and_nobody_overtakes_them() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=1)
    rooms.join(A, capacity=9)
    served: list[int] = []

    async def go(number: int) -> None:
        with await rooms.place(rooms.chat()):
            served.append(number)
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(go(number))
        await asyncio.sleep(0.15)
        group.create_task(go(4))
    assert served == [0, 1, 2, 3, 4]
    assert rooms.is_at_rest


async def test_who_leaves_outside_makes_room_for_the_next() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=0)
    rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        leaving = rooms.chat()
        left, stays = rooms.place(leaving), rooms.place(rooms.chat())
        await turns()
        leaving.leave()
        with pytest.raises(ClientGone):
            await left
    with await stays:
        pass
    assert rooms.is_at_rest


async def test_a_place_that_comes_free_as_the_first_outside_gives_up_goes_to_the_second() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=0, enqueue_timeout_s=5.0)
    rooms.join(A, capacity=9)
    holder = await rooms.place(rooms.chat())
    late = rooms.place(rooms.chat())
    await asyncio.sleep(1)
    staying = rooms.place(rooms.chat())
    await turns()
    asyncio.get_running_loop().call_at(rooms.clock.now() + 4.0, lambda: holder.__exit__(None, None, None))
    assert (await refusal_of(late)).code is ErrorCode.QUEUE_FULL
    with await staying:
        pass
    assert rooms.is_at_rest


async def test_one_whose_time_is_over_in_the_moment_in_which_the_line_has_room_is_not_let_in() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=1, enqueue_timeout_s=5.0)
    rooms.join(A, capacity=9)
    with await rooms.place(rooms.chat()):
        in_line, late = rooms.place(rooms.chat(), within_s=5.0), rooms.place(rooms.chat())
        await asyncio.sleep(1)
        staying = rooms.place(rooms.chat())
        assert (await refusal_of(in_line)).code is ErrorCode.REQUEST_TIMEOUT
        assert (await refusal_of(late)).code is ErrorCode.QUEUE_FULL
        await asyncio.sleep(10)
        assert not staying.done()
    with await staying:
        pass
    assert rooms.is_at_rest


async def test_a_retry_is_in_the_line_even_where_it_is_full() -> None:
    rooms = Rooms(forwards_max=1, queue_requests_max=1)
    rooms.join(A, capacity=9)
    again = rooms.chat()
    first = await rooms.place(again)
    others = [rooms.place(rooms.chat()) for _ in range(3)]
    await turns()
    with first:
        pass
    retry = asyncio.create_task(rooms.placing.place(rooms.admitted(again), Attempts(), earlier=first.number))
    await turns()
    with await others[0]:
        assert not retry.done()
    with await retry:
        assert not others[1].done()
    for task in others[1:]:
        with await task:
            pass
    assert rooms.is_at_rest
