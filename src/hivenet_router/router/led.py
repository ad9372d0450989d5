"""How does a coroutine go from one event to the next without a turn of the loop between them?

A task begins at the loop's next turn and goes on at the next turn after what it waited for; on an idle router these
turns are a good part of what Python adds to a request. A led coroutine begins at once, and where it waits for something
that is `Told` it goes on at once. What comes first is thereby done first: an end is booked before the next arrival
looks. Everything else it may wait for is waited for as by a task, since while it runs it is the current one: it can be
cancelled, and timeouts and groups work in it. It is not among `all_tasks()`, since its owner ends it, not the program's
runner. What libraries want of a task beyond that (anyio does) it does not have: give them a task of their own.
Invariant: no two steps are ever inside each other.
Source: the Python documentation, "Extending asyncio", for what a task of one's own must do.
"""

import asyncio
from asyncio.tasks import _enter_task, _leave_task  # documented for third-party tasks
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final, cast

from hivenet_router.ports import Told

_Future = asyncio.Future[Any]  # type: ignore[explicit-any]  # whatever the coroutine waits for


class Led:
    """A coroutine that is led to its end, once `go_on` was called for its first step.

    `on_end` hears when it is over, and of the error that it failed with; a cancellation is none.
    """

    __slots__ = ("_cancels", "_context", "_is_cancelled", "_is_over", "_loop", "_on_end", "_waits_for", "_work")

    def __init__(
        self,
        work: Coroutine[object, None, None],
        on_end: "Callable[[Led, BaseException | None], None]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._work: Final = work
        self._on_end: Final = on_end
        self._loop: Final = loop
        self._context: Final = copy_context()
        self._waits_for: _Future | None = None
        self._cancels = 0
        self._is_cancelled = False
        self._is_over = False

    def go_on(self, _: object = None) -> None:
        """Take the next step; to be called from outside for the first one only."""
        loop = self._loop
        try:
            _enter_task(loop, cast("asyncio.Task[None]", self))
        except RuntimeError:
            # Another task is in the middle of its step.
            loop.call_soon(self.go_on)
            return
        self._waits_for = None
        try:
            if self._is_cancelled:
                self._is_cancelled = False
                waits_for = self._context.run(self._work.throw, asyncio.CancelledError())
            else:
                waits_for = self._context.run(self._work.send, None)
        except (StopIteration, asyncio.CancelledError):
            self._end(None)
        except BaseException as error:
            self._end(error)
        else:
            self._wait_for(cast("_Future | None", waits_for))
        finally:
            _leave_task(loop, cast("asyncio.Task[None]", self))

    def _wait_for(self, future: _Future | None) -> None:
        if future is None:
            # A bare yield, as of `sleep(0)`.
            self._loop.call_soon(self.go_on)
            return
        # What a task does to tell a future that it was awaited, not just yielded.
        future._asyncio_future_blocking = False
        self._waits_for = future
        if isinstance(future, Told) and future.goes_on is None:
            future.goes_on = self.go_on
        else:
            future.add_done_callback(self.go_on)
        if self._is_cancelled and future.cancel():
            self._is_cancelled = False

    def _end(self, error: BaseException | None) -> None:
        self._is_over = True
        self._on_end(self, error)

    # What asyncio asks of a task

    def done(self) -> bool:
        """Whether it is over."""
        return self._is_over

    def cancel(self, msg: object = None) -> bool:
        """End it where it waits, with a CancelledError; it may clean up. False when it is over."""
        if self._is_over:
            return False
        self._cancels += 1
        if self._waits_for is None or not self._waits_for.cancel(msg):
            self._is_cancelled = True
        return True

    def cancelling(self) -> int:
        """How many cancellations were asked for and not taken back."""
        return self._cancels

    def uncancel(self) -> int:
        """Take one cancellation back; how many are left."""
        self._cancels = max(0, self._cancels - 1)
        if not self._cancels:
            # As since Python 3.13: one that has not reached it yet is taken back whole.
            self._is_cancelled = False
        return self._cancels
