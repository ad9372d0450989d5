"""Turns: each source in turn, and the loop has its time in between."""

import asyncio
from collections.abc import Callable
from functools import partial

from hivenet_router.adapters.turns import Turns


async def test_sources_take_turns_and_each_keeps_its_order() -> None:
    turns, done, all_done = Turns(), list[str](), asyncio.Event()
    for source, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")):
        turns.add(source, partial(done.append, name))
    turns.add("c", all_done.set)
    turns.add("c", lambda: done.append("c2"))

    await all_done.wait()
    assert done == ["a1", "b1"]

    while len(done) < 6:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert done == ["a1", "b1", "a2", "b2", "c2", "a3"]


async def test_each_turn_is_a_callback_of_its_own() -> None:
    turns, done = Turns(), list[str]()
    turns.add("a", lambda: done.append("a1"))
    turns.add("a", lambda: done.append("a2"))
    asyncio.get_running_loop().call_soon(done.append, "something else")

    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert done == ["a1", "something else", "a2"]


async def test_after_a_slice_of_work_the_loop_has_a_rest() -> None:
    now = [0.0]
    turns, done, last = Turns(slice_s=0.001, rest_ratio=2, now=lambda: now[0]), list[str](), asyncio.Event()

    def works(name: str, seconds: float) -> Callable[[], None]:
        def turn() -> None:
            done.append(name)
            now[0] += seconds

        return turn

    turns.add("a", works("short", 0.0005))
    turns.add("a", works("to the end of the slice", 0.02))
    turns.add("a", last.set)
    asyncio.get_running_loop().call_later(0.02, done.append, "twenty milliseconds of something else")
    await last.wait()

    assert done == ["short", "to the end of the slice", "twenty milliseconds of something else"]


async def test_a_turn_that_fails_is_not_the_last() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    turns, last = Turns(), asyncio.Event()

    turns.add("a", lambda: [][0])
    turns.add("a", last.set)
    await last.wait()

    assert isinstance(told[0], IndexError)


async def test_closed_turns_do_nothing_more() -> None:
    turns, done = Turns(), list[str]()
    turns.add("a", lambda: done.append("never"))
    turns.close()

    await asyncio.sleep(0.01)

    assert done == []
