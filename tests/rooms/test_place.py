"""Places: permit and slot together, waits and what ends them. The full line is in `test_place_outside.py`."""

import asyncio
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from tests.core.making import MODEL, OTHER_MODEL, A, B, described
from tests.fakes.exchange import FakeExchange
from tests.rooms.building import Rooms, refusal_of, turns

from hivenet_router.core.agent import Load, Report
from hivenet_router.core.attempts import Attempts, TryAnother
from hivenet_router.core.attempts import Busy as TurnedAway
from hivenet_router.names.errors import ErrorCode
from hivenet_router.ports import ClientGone
from hivenet_router.router.place import Placed
from hivenet_router.router.refuse import Refusal


async def test_a_placed_request_holds_a_slot_and_a_permit_until_the_end_of_its_block() -> None:
    rooms = Rooms(forwards_max=2)
    agent = rooms.join(A)
    with await rooms.place(rooms.chat()) as placed:
        assert placed.agent is agent
        assert (agent.active_slots, rooms.placing.permits_free) == (1, 1)
    assert rooms.is_at_rest


async def test_a_stream_gives_slot_and_permit_back_at_its_headers_and_no_second_time_at_its_end() -> None:
    rooms = Rooms(forwards_max=1)
    agent = rooms.join(A)
    with await rooms.place(rooms.chat()) as placed:
        placed.headers_came()
        assert (agent.active_slots, agent.running_streams, rooms.placing.permits_free) == (0, 1, 1)
        with await rooms.place(rooms.chat()):
            pass
    assert rooms.is_at_rest


async def test_a_request_that_waits_for_a_slot_holds_no_permit() -> None:
    rooms = Rooms(forwards_max=2)
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        assert rooms.placing.permits_free == 1
        assert rooms.recorder.waiting[MODEL] == 1
        assert rooms.plane.eager
    # At once, not only when the woken task comes to run.
    assert rooms.recorder.waiting[MODEL] == 0
    with await waiting:
        pass
    assert rooms.is_at_rest


async def test_a_request_that_waits_for_a_permit_holds_no_slot() -> None:
    rooms = Rooms(forwards_max=1)
    agent = rooms.join(A, capacity=5)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        assert agent.active_slots == 1
        assert rooms.recorder.waiting[MODEL] == 0
    with await waiting:
        pass
    assert rooms.recorder.waits == []


async def test_waiting_requests_are_woken_in_the_order_of_their_arrival() -> None:
    rooms = Rooms()
    rooms.join(A)
    first = await rooms.place(rooms.chat())
    waiting = [rooms.place(rooms.chat()) for _ in range(3)]
    await turns()
    served = []
    with first:
        pass
    for _ in range(3):
        await turns()
        placed = next(task for task in waiting if task.done() and task not in served)
        served.append(placed)
        with placed.result():
            pass
    assert served == waiting


async def test_how_long_a_parked_request_waited_is_recorded() -> None:
    rooms = Rooms()
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await asyncio.sleep(7)
    with await waiting:
        pass
    [(model, seconds)] = rooms.recorder.waits
    assert model == MODEL
    assert seconds == pytest.approx(7.0)


async def test_one_that_comes_from_the_line_to_be_parked_is_counted_as_parked() -> None:
    rooms = Rooms(forwards_max=2)
    rooms.join(A)
    rooms.join(B, model=OTHER_MODEL)
    with await rooms.place(rooms.chat()):
        with await rooms.place(rooms.chat(), model=OTHER_MODEL):
            waiting = rooms.place(rooms.chat())
            await turns()
            assert rooms.recorder.waiting[MODEL] == 0
        assert rooms.recorder.waiting[MODEL] == 1
    with await waiting:
        pass


async def test_a_new_agent_serves_who_waits() -> None:
    rooms = Rooms()
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        newcomer = rooms.join(B)
        with await waiting as placed:
            assert placed.agent is newcomer


async def test_an_agent_that_registers_anew_with_more_capacity_serves_who_waits() -> None:
    rooms = Rooms()
    agent = rooms.join(A)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        rooms.join(A, capacity=2)
        with await waiting as placed:
            assert placed.agent is agent


async def test_an_agent_that_recovers_serves_who_waits() -> None:
    rooms = Rooms()
    rooms.join(A)
    well_again = rooms.join(B)
    rooms.registry.heartbeat(B, backend_healthy=False, now=rooms.clock.now())
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        rooms.registry.heartbeat(B, backend_healthy=True, now=rooms.clock.now())
        with await waiting as placed:
            assert placed.agent is well_again


async def test_an_agent_whose_link_returns_serves_who_waits() -> None:
    rooms = Rooms()
    rooms.join(A)
    back = rooms.join(B)
    rooms.registry.link_down(B)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        rooms.registry.link_up(B)
        with await waiting as placed:
            assert placed.agent is back


async def test_slots_that_other_routers_give_back_serve_who_waits() -> None:
    rooms = Rooms()
    agent = rooms.join(A)
    rooms.registry.signals(A, report=Report(load=Load(slots_total=1)), now=rooms.clock.now())
    waiting = rooms.place(rooms.chat())
    await turns()
    assert not waiting.done()
    rooms.registry.signals(A, report=Report(load=Load()), now=rooms.clock.now())
    with await waiting as placed:
        assert placed.agent is agent


async def test_who_waits_is_refused_when_the_last_agent_it_could_wait_for_goes() -> None:
    rooms = Rooms()
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        rooms.registry.remove(A, now=rooms.clock.now())
        assert (await refusal_of(waiting)).code is ErrorCode.MODEL_NOT_FOUND
    assert rooms.is_at_rest


async def test_who_was_told_that_the_last_agent_is_gone_asks_again_where_one_is_back_by_then() -> None:
    rooms = Rooms()
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        first, second = rooms.place(rooms.chat()), rooms.place(rooms.chat())
        await asyncio.sleep(2)
        # Both in one step, so that no task has run in between.
        rooms.registry.link_down(A)
        agent = rooms.join(A, capacity=2)
        with await first as placed:
            assert placed.agent is agent
            await turns()
            assert not second.done()
    with await second:
        pass
    assert [seconds for _, seconds in rooms.recorder.waits] == [pytest.approx(2.0)] * 2
    assert rooms.is_at_rest


async def test_who_asks_again_keeps_its_turn_and_waits_on_where_the_agent_is_back_but_full() -> None:
    rooms = Rooms()
    rooms.join(A)
    holder = await rooms.place(rooms.chat())
    first = rooms.place(rooms.chat())
    await turns()
    rooms.registry.link_down(A)
    rooms.registry.link_up(A)
    later = rooms.place(rooms.chat())
    await turns()
    assert not first.done()
    assert rooms.recorder.waiting[MODEL] == 2
    with holder:
        pass
    with await first:
        assert not later.done()
    with await later:
        pass
    assert rooms.is_at_rest


async def test_who_would_ask_again_after_its_deadline_is_told_that_it_is_too_late() -> None:
    rooms = Rooms()
    rooms.join(A)
    holder = await rooms.place(rooms.chat())
    late = rooms.place(rooms.chat(), within_s=5.0)
    await turns()

    def at_the_deadline() -> None:
        rooms.registry.link_down(A)
        rooms.join(A, capacity=2)

    asyncio.get_running_loop().call_at(rooms.clock.now() + 5.0, at_the_deadline)
    assert (await refusal_of(late)).code is ErrorCode.REQUEST_TIMEOUT
    with holder:
        pass
    assert rooms.is_at_rest


async def test_what_a_freed_slot_costs_does_not_grow_with_the_number_that_waits() -> None:
    few, many = await cost_of_a_freed_slot(waiters=10), await cost_of_a_freed_slot(waiters=300)
    # What else the interpreter does at such a moment is no matter; thirty times as many waiters are.
    assert many < 2 * few


async def cost_of_a_freed_slot(waiters: int) -> int:
    rooms = Rooms(capacity_waiters_max=waiters)
    rooms.join(A)
    holder = await rooms.place(rooms.chat())
    waiting = [rooms.place(rooms.chat()) for _ in range(waiters)]
    await turns()
    cost = calls_in(lambda: holder.__exit__(None, None, None))
    for task in waiting:
        with await task:
            pass
    assert rooms.is_at_rest
    return cost


def calls_in(act: Callable[[], object]) -> int:
    """How many functions are called by this; a measure of work that is the same on every machine."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


async def test_waiting_ends_at_the_deadline_with_504() -> None:
    rooms = Rooms()
    rooms.join(A)
    began = rooms.clock.now()
    with await rooms.place(rooms.chat()):
        why = await refusal_of(rooms.place(rooms.chat(), within_s=9.0))
    assert (why.code, why.status) == (ErrorCode.REQUEST_TIMEOUT, 504)
    assert rooms.clock.now() - began == pytest.approx(9.0)
    assert rooms.is_at_rest


async def test_a_request_whose_deadline_has_passed_gets_no_place_even_where_one_is_free() -> None:
    rooms = Rooms()
    agent = rooms.join(A)
    why = await refusal_of(rooms.place(rooms.chat(), within_s=0.0))
    assert why.code is ErrorCode.REQUEST_TIMEOUT
    assert agent.outcomes.lost_races == 0
    assert rooms.is_at_rest


async def test_a_client_that_leaves_stands_in_nobodys_way() -> None:
    rooms = Rooms()
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        leaving, staying = rooms.chat(), rooms.chat()
        left, stays = rooms.place(leaving), rooms.place(staying)
        await turns()
        leaving.leave()
        with pytest.raises(ClientGone):
            await left
    with await stays:
        pass
    assert rooms.is_at_rest


async def test_a_client_that_left_before_it_had_to_wait_does_not_wait() -> None:
    rooms = Rooms()
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        gone = rooms.chat()
        gone.leave()
        with pytest.raises(ClientGone):
            await rooms.place(gone)
    assert rooms.is_at_rest


def hang_up(exchange: FakeExchange, task: asyncio.Task[Placed]) -> None:
    exchange.leave()


def cancel(exchange: FakeExchange, task: asyncio.Task[Placed]) -> None:
    task.cancel()


@pytest.mark.parametrize("give_up", [hang_up, cancel])
async def test_a_place_given_in_the_moment_in_which_its_request_gives_up_is_handed_on(
    give_up: Callable[[FakeExchange, asyncio.Task[Placed]], None],
) -> None:
    rooms = Rooms()
    rooms.join(A)
    holder = await rooms.place(rooms.chat())
    gone, next_one = rooms.chat(), rooms.chat()
    giving_up, staying = rooms.place(gone), rooms.place(next_one)
    await turns()
    with holder:
        pass
    give_up(gone, giving_up)
    with pytest.raises((ClientGone, asyncio.CancelledError)):
        await giving_up
    with await staying:
        pass
    assert rooms.is_at_rest


async def test_a_place_given_at_the_very_deadline_is_handed_on() -> None:
    rooms = Rooms()
    rooms.join(A)
    holder = await rooms.place(rooms.chat())
    late, staying = rooms.place(rooms.chat(), within_s=5.0), rooms.place(rooms.chat())
    await turns()
    asyncio.get_running_loop().call_at(rooms.clock.now() + 5.0, lambda: holder.__exit__(None, None, None))
    why = await refusal_of(late)
    assert why.code is ErrorCode.REQUEST_TIMEOUT
    with await staying:
        pass
    assert rooms.is_at_rest


async def test_a_full_queue_of_the_model_refuses_at_once() -> None:
    rooms = Rooms(capacity_waiters_max=1)
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        waiting = rooms.place(rooms.chat())
        await turns()
        began = rooms.clock.now()
        why = await refusal_of(rooms.place(rooms.chat()))
        assert (why.code, why.status, why.retry_after_s) == (ErrorCode.NO_CAPACITY, 503, 1.0)
        assert rooms.clock.now() == began
    with await waiting:
        pass
    assert rooms.is_at_rest


async def test_waiters_of_another_model_are_not_counted() -> None:
    rooms = Rooms(capacity_waiters_max=1)
    rooms.join(A)
    rooms.join(B, model=OTHER_MODEL)
    with await rooms.place(rooms.chat()), await rooms.place(rooms.chat(), model=OTHER_MODEL):
        waiting = [rooms.place(rooms.chat(), model=model) for model in (MODEL, OTHER_MODEL)]
        await turns()
        assert rooms.recorder.waiting == {MODEL: 1, OTHER_MODEL: 1}
    for task in waiting:
        with await task:
            pass


async def test_a_retry_keeps_the_place_that_its_request_had() -> None:
    rooms = Rooms()
    rooms.join(A)
    exchange = rooms.chat()
    early = await rooms.place(exchange)
    with early:
        later = rooms.place(rooms.chat())
        await turns()
    with await later:
        last = rooms.place(rooms.chat())
        await turns()
        retry = asyncio.create_task(rooms.placing.place(rooms.admitted(exchange), Attempts(), earlier=early.number))
        await turns()
    with await retry:
        assert not last.done()
    with await last:
        pass


async def test_after_a_wait_an_agent_that_was_full_is_asked_again() -> None:
    rooms = Rooms(forwards_max=9)
    agent = rooms.join(A, capacity=3)
    verdict = Attempts().after(TurnedAway(), A)
    assert isinstance(verdict, TryAnother)
    with await rooms.place(rooms.chat()):
        asking = rooms.placing.place(rooms.admitted(rooms.chat()), verdict.attempts)
        waiting = asyncio.create_task(asking)
        await turns()
        assert not waiting.done()
    with await waiting as placed:
        assert placed.agent is agent
        assert placed.attempts.busy == frozenset()


async def test_an_agent_that_is_full_of_what_others_sent_it_is_asked_again_after_a_second() -> None:
    rooms = Rooms()
    rooms.join(A, capacity=3)
    verdict = Attempts().after(TurnedAway(), A)
    assert isinstance(verdict, TryAnother)
    began = rooms.clock.now()
    with await rooms.placing.place(rooms.admitted(rooms.chat()), verdict.attempts):
        assert rooms.clock.now() - began == pytest.approx(1.0)
    assert rooms.is_at_rest


async def test_when_the_router_stops_everybody_who_waits_is_told_so() -> None:
    rooms = Rooms(forwards_max=2, queue_requests_max=1)
    rooms.join(A)
    rooms.join(B, model=OTHER_MODEL)
    with await rooms.place(rooms.chat()):
        parked = rooms.place(rooms.chat())
        await turns()
        with await rooms.place(rooms.chat(), model=OTHER_MODEL):
            in_line, outside = rooms.place(rooms.chat()), rooms.place(rooms.chat())
            await turns()
            rooms.placing.close()
            for task in (parked, in_line, outside):
                why = await refusal_of(task)
                assert (why.code, why.status, why.retry_after_s) == (ErrorCode.NO_AGENTS_AVAILABLE, 503, 1.0)
    assert (await refusal_of(rooms.place(rooms.chat()))).code is ErrorCode.NO_AGENTS_AVAILABLE
    assert rooms.is_at_rest


async def test_why_there_is_no_place_is_told_with_the_test_that_left_no_agent() -> None:
    rooms = Rooms()
    with pytest.raises(Refusal) as unknown:
        await rooms.place(rooms.chat())
    rooms.join(A)
    rooms.registry.link_down(A)
    with pytest.raises(Refusal) as unhealthy:
        await rooms.place(rooms.chat())
    assert (unknown.value.reason.code, unknown.value.exhausted_by) == (ErrorCode.MODEL_NOT_FOUND, "1 model_filter")
    assert (unhealthy.value.reason.code, unhealthy.value.exhausted_by) == (ErrorCode.NO_AGENTS_AVAILABLE, "2 health")


async def test_an_agent_that_moved_to_another_model_is_asked_for_no_longer() -> None:
    rooms = Rooms()
    rooms.join(A)
    with await rooms.place(rooms.chat()):
        rooms.registry.register(A, described(1, model=OTHER_MODEL), now=rooms.clock.now())
        assert (await refusal_of(rooms.place(rooms.chat()))).code is ErrorCode.MODEL_NOT_FOUND
    assert rooms.is_at_rest
