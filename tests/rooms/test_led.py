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
        first.set_result("first")
        assert seen == ["begun", "first"]
        second.set_result("second")
        assert seen == ["begun", "first", "second"]

    await leading.do(all_of_it)
    assert leading.ends == [None]


async def test_what_was_told_before_it_asked_is_there() -> None:
    leading, early, seen = Leading(), told(), list[str]()
    early.set_result("early")

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
        other.set_result("now")
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
    what.set_result("it")
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


async def test_a_group_in_it_ends_when_a_child_fails() -> None:
    leading, seen = Leading(), list[str]()

    async def fails() -> None:
        await asyncio.sleep(1.0)
        raise ValueError("the child's")

    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                await asyncio.sleep(60)
        except* ValueError:
            seen.append("ended")

    await leading.begin(work())
    await asyncio.sleep(2.0)
    assert (seen, leading.ends) == (["ended"], [None])


async def test_of_two_that_wait_for_the_same_both_hear_of_it() -> None:
    leading, what, seen = Leading(), told(), list[str]()

    async def work(name: str) -> None:
        seen.append(name + await what)

    await leading.begin(work("first "))
    await leading.begin(work("second "))
    await leading.do(lambda: what.set_result("heard"))
    await turns()
    assert sorted(seen) == ["first heard", "second heard"]


async def test_an_error_is_told_at_once_too() -> None:
    leading, what, seen = Leading(), told(), list[str]()

    async def work() -> None:
        try:
            await what
        except ValueError as error:
            seen.append(str(error))

    def all_of_it() -> None:
        leading.led(work()).go_on()
        what.set_exception(ValueError("no"))
        assert seen == ["no"]

    await leading.do(all_of_it)


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


async def test_a_cancellation_that_is_taken_back_in_time_is_none() -> None:
    leading, what, seen = Leading(), told(), list[str]()

    async def work() -> None:
        led = asyncio.current_task()
        assert led is not None
        led.cancel()
        led.uncancel()
        seen.append(await what)

    await leading.begin(work())
    await leading.do(lambda: what.set_result("went on"))
    assert (seen, leading.ends) == (["went on"], [None])


async def test_what_comes_in_the_moment_of_the_cancellation_is_not_lost_on_the_way() -> None:
    leading, what, seen = Leading(), told(), list[str]()

    async def work() -> None:
        seen.append(await what)

    led = await leading.begin(work())

    def both() -> None:
        led.cancel()
        with pytest.raises(asyncio.InvalidStateError):
            what.set_result("too late")

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
    await leading.do(lambda: wait.set_result(""))
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


class Ending:
    """A block with one led coroutine that takes a second to clean up, and perhaps one that fails at that."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def slow(self) -> None:
        try:
            await told()
        finally:
            await asyncio.sleep(1.0)
            self.seen.append("clean")

    async def broken(self) -> None:
        try:
            await told()
        finally:
            raise OSError("a fault in the cleanup")

    async def background(self) -> None:
        await asyncio.sleep(1.0)
        raise ValueError("the background's")

    async def block(self, *, with_background: bool = False, with_broken: bool = True, lasts_s: float = 1.0) -> None:
        async with Tasks() as tasks:
            tasks.lead(self.slow())
            if with_broken:
                tasks.lead(self.broken())
            if with_background:
                tasks.spawn(self.background())
            await asyncio.sleep(lasts_s)


async def test_what_fails_while_the_block_ends_keeps_nobody_from_ending() -> None:
    ending = Ending()
    await ending.block()
    assert ending.seen == ["clean"]


async def test_what_ended_the_block_is_what_is_raised() -> None:
    ending = Ending()
    with pytest.raises(ExceptionGroup) as caught:
        await ending.block(with_background=True, lasts_s=60.0)
    assert ending.seen == ["clean"]
    assert [type(error) for error in caught.value.exceptions] == [ValueError]


async def test_a_block_that_is_cancelled_twice_has_ended_all_the_same() -> None:
    ending = Ending()
    block = asyncio.create_task(ending.block(with_broken=False, lasts_s=60.0))
    await asyncio.sleep(0.5)
    block.cancel()
    await asyncio.sleep(0.5)
    block.cancel()
    await asyncio.wait([block])
    assert ending.seen == ["clean"]
    assert block.cancelled()
