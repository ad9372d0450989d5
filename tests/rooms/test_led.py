"""A led coroutine goes on at once where it may, and is a task in everything else."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar

import pytest
from tests.rooms.building import turns

from hivenet_router.ports import Told
from hivenet_router.router.led import Led
from hivenet_router.router.tasks import Tasks

WHOSE: ContextVar[str] = ContextVar("WHOSE", default="nobody")


class Leading:
    """Leads coroutines as the loop's callbacks do, where no task is in the middle; keeps how they ended."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ends: list[BaseException | None] = []

    async def do(self, act: Callable[[], object]) -> None:
        done = self.loop.create_future()

        def in_the_loop() -> None:
            act()
            done.set_result(None)

        self.loop.call_soon(in_the_loop)
        await done

    def led(self, work: Coroutine[object, None, None]) -> Led:
        return Led(work, lambda led, error: self.ends.append(error), self.loop)

    async def begin(self, work: Coroutine[object, None, None]) -> Led:
        led = self.led(work)
        await self.do(led.go_on)
        return led


def told() -> Told[str]:
    return Told(loop=asyncio.get_running_loop())


async def test_it_begins_at_once_and_goes_on_within_the_telling() -> None:
    leading, first, second, seen = Leading(), told(), told(), list[str]()

    async def work() -> None:
        seen.append("begun")
        seen.append(await first)
        seen.append(await second)

    def all_of_it() -> None:
        leading.led(work()).go_on()
        assert seen == ["begun"]
        first.tell("first")
        assert seen == ["begun", "first"]
        second.tell("second")
        assert seen == ["begun", "first", "second"]

    await leading.do(all_of_it)
    assert leading.ends == [None]


async def test_what_was_told_before_it_asked_is_there() -> None:
    leading, early, seen = Leading(), told(), list[str]()
    early.tell("early")

    async def work() -> None:
        seen.append(await early)

    await leading.begin(work())
    assert (seen, leading.ends) == (["early"], [None])


async def test_no_step_is_taken_inside_another_task_or_another_step() -> None:
    leading, other, steps = Leading(), told(), list[str]()

    async def waits() -> None:
        await other
        steps.append("waiter")

    async def tells() -> None:
        other.tell("now")
        steps.append("teller")

    await leading.begin(waits())
    await leading.begin(tells())
    await turns()
    assert steps == ["teller", "waiter"]

    async def plain() -> None:
        steps.append("plain")

    leading.led(plain()).go_on()
    assert "plain" not in steps
    await turns()
    assert steps[-1] == "plain"


async def test_a_told_is_an_ordinary_future_to_a_task() -> None:
    what = told()

    async def work() -> str:
        return await what

    task = asyncio.create_task(work())
    await turns()
    what.tell("it")
    assert not task.done()
    assert await task == "it"


async def test_whatever_else_it_waits_for_is_waited_for_as_by_a_task() -> None:
    leading, seen = Leading(), list[object]()

    async def nested() -> str:
        await asyncio.sleep(1.0)
        return "nested"

    async def work() -> None:
        me = asyncio.current_task()
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            child = group.create_task(nested())
        seen.append(child.result())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.sleep(5.0)
        failing = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1.0, failing.set_exception, ValueError("told so"))
        with pytest.raises(ValueError, match="told so"):
            await failing
        seen.append(asyncio.current_task() is me)

    began = leading.loop.time()
    led = await leading.begin(work())
    await asyncio.sleep(4.0)
    assert (seen, leading.ends, led.cancelling()) == (["nested", True], [None], 0)
    assert leading.loop.time() - began == pytest.approx(4.0)


@pytest.mark.parametrize("wait", ["told", "future", "sleep", "nothing"])
async def test_a_cancelled_one_cleans_up_and_ends_without_an_error(wait: str) -> None:
    leading, seen = Leading(), list[str]()

    async def work() -> None:
        try:
            match wait:
                case "told":
                    await told()
                case "future":
                    await leading.loop.create_future()
                case "sleep":
                    await asyncio.sleep(60)
                case _:
                    while True:  # noqa: ASYNC110
                        await asyncio.sleep(0)
        finally:
            await asyncio.sleep(1.0)
            seen.append("clean")

    led = await leading.begin(work())
    assert led.cancel()
    assert not leading.ends
    await asyncio.sleep(2.0)
    assert (seen, leading.ends) == (["clean"], [None])
    assert not led.cancel()


async def test_two_cancellations_are_two() -> None:
    leading, seen = Leading(), list[str]()

    async def work() -> None:
        for name in ("first", "second"):
            try:
                await told()
            except asyncio.CancelledError:
                seen.append(name)

    led = await leading.begin(work())
    led.cancel()
    await turns()
    assert (seen, leading.ends) == (["first"], [])
    led.cancel()
    await turns()
    assert (seen, leading.ends, led.cancelling()) == (["first", "second"], [None], 2)
    assert (led.uncancel(), led.uncancel(), led.uncancel()) == (1, 0, 0)


async def test_what_comes_in_the_moment_of_the_cancellation_is_not_lost_on_the_way() -> None:
    leading, what, seen = Leading(), told(), list[str]()

    async def work() -> None:
        seen.append(await what)

    led = await leading.begin(work())

    def both() -> None:
        led.cancel()
        with pytest.raises(asyncio.InvalidStateError):
            what.tell("too late")

    await leading.do(both)
    await turns()
    assert (seen, leading.ends) == ([], [None])


async def test_its_context_is_its_own() -> None:
    leading, wait, seen = Leading(), told(), list[str]()

    async def work(name: str) -> None:
        seen.append(WHOSE.get())
        WHOSE.set(name)
        await wait if name == "first" else None
        seen.append(WHOSE.get())

    await leading.begin(work("first"))
    await leading.begin(work("second"))
    await leading.do(lambda: wait.tell(""))
    assert seen == ["nobody", "nobody", "second", "first"]
    assert WHOSE.get() == "nobody"


async def test_those_that_run_end_with_their_block() -> None:
    seen = list[str]()

    async def work() -> None:
        try:
            await told()
        finally:
            await asyncio.sleep(1.0)
            seen.append("clean")

    async with Tasks() as tasks:
        tasks.lead(work())
        await turns()
    assert seen == ["clean"]


async def test_one_that_fails_ends_its_block() -> None:
    async def fails() -> None:
        await asyncio.sleep(1.0)
        raise ValueError("a fault of ours")

    async def leads() -> None:
        async with Tasks() as tasks:
            tasks.lead(fails())
            await asyncio.sleep(60)

    with pytest.raises(ExceptionGroup) as caught:
        await leads()
    assert caught.value.subgroup(ValueError) is not None
