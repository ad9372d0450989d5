"""What runs in the router, and when does it end?

One block owns everything that runs: what works on beside the requests as tasks, requests as led coroutines. Invariant:
when the block is left, by whichever way, all of it has ended.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Self

import structlog

from hivenet_router.router.led import Led

log = structlog.get_logger("router")


class _Over(Exception):
    """Ends the tasks of a block that has come to its end."""


class Tasks:
    """Owns all that runs: what fails ends everything, and everything ends with the block."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._loop = asyncio.get_running_loop()
        self._led: set[Led] = set()
        self._fault: asyncio.Future[None] = self._loop.create_future()
        self._none_left: asyncio.Future[None] | None = None

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run this as a task until it ends or the block does."""
        self._group.create_task(work)

    def lead(self, work: Coroutine[object, None, None]) -> None:
        """As `spawn`, but begin at once and go on at once; see `Led`."""
        led = Led(work, self._led_ended, self._loop)
        self._led.add(led)
        led.go_on()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.create_task(self._answer_for_led())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._group.__aexit__(kind, error, trace)
            return
        # A group waits for its tasks, unless its block fails: then it cancels them.
        try:
            await self._group.__aexit__(_Over, _Over(), None)
        except* _Over:
            pass

    async def _answer_for_led(self) -> None:
        """Stand in the group for all that is led: fail with the first that fails, and end when they have ended."""
        try:
            await self._fault
        finally:
            for led in tuple(self._led):
                led.cancel()
            while self._led:
                self._none_left = self._loop.create_future()
                await self._none_left

    def _led_ended(self, led: Led, error: BaseException | None) -> None:
        self._led.discard(led)
        if error is not None:
            if self._fault.done():
                log.error("failed_while_ending", exc_info=error)
            else:
                self._fault.set_exception(error)
        if not self._led and self._none_left is not None and not self._none_left.done():
            self._none_left.set_result(None)
