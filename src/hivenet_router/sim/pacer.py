"""When does the engine wake, and who is told of new tokens?

One timer for all requests: it is set to the engine's next due moment, and one firing serves every request due by then,
so that five hundred streams cost one timer, not five hundred tasks. Invariant: whoever listens to a job hears of every
step until the job leaves, and never after. What is due is decided in `engine`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hivenet_router.sim.engine import EngineCore, Job


class Pacer:
    """Drives an `EngineCore` on the running event loop."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[int, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._ticking = False

    @contextmanager
    def running(self, job: Job, on_progress: Callable[[], None]) -> Iterator[None]:
        """The job is the engine's for as long as this block lasts; leaving early withdraws it.

        Raises: EngineFullError when the queue is at its bound.
        """
        self.core.submit(job, now=self._loop.time())
        self._listeners[id(job)] = on_progress
        try:
            self._rearm()
            yield
        finally:
            del self._listeners[id(job)]
            self.core.withdraw(job, now=self._loop.time())
            self._rearm()

    def resume(self, job: Job) -> None:
        """Let a held job go on."""
        self.core.resume(job, now=self._loop.time())
        self._rearm()

    def close(self) -> None:
        """Stop the timer; jobs make no further progress."""
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        self._ticking = True
        try:
            for job in self.core.tick(now=self._loop.time()):
                listener = self._listeners.get(id(job))
                if listener is not None:
                    listener()
        finally:
            # Whatever one listener does, the engine goes on for the others.
            self._ticking = False
            self._rearm()

    def _rearm(self) -> None:
        if self._ticking:
            return
        wake_s = self.core.next_wake()
        if self._timer is not None:
            if wake_s == self._timer_s:
                return
            self._timer.cancel()
            self._timer = None
        if wake_s is not None:
            self._timer_s = wake_s
            self._timer = self._loop.call_at(wake_s, self._fire)
