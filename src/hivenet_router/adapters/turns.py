"""Work that strangers cause, done in small turns: fair between sources, and a bounded part of the loop's time."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.001
"""So much work is done without a rest; the turn that goes beyond it is done to its end."""
REST_RATIO: Final = 2.0
"""The loop has twice that time for everything else: under attack this work takes a third of it."""

Turn = Callable[[], None]


class Turns:
    """Who works next: the sources one after the other, and each source's turns in their order.

    A source has at most one turn per connection waiting; whoever adds them bounds the connections.
    """

    def __init__(
        self, *, slice_s: float = SLICE_S, rest_ratio: float = REST_RATIO, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._now = now
        self._slice_s = slice_s
        self._rest_ratio = rest_ratio
        self._waiting: OrderedDict[str, deque[Turn]] = OrderedDict()
        self._spent_s = 0.0
        self._rests_until = 0.0
        self._next: asyncio.Handle | None = None

    def add(self, source: str, turn: Turn) -> None:
        """The turn is called once, later, on this loop; it must be short and raise nothing."""
        self._waiting.setdefault(source, deque()).append(turn)
        self._go_on()

    def close(self) -> None:
        """Forgets all turns."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _go_on(self) -> None:
        if self._next is None and self._waiting:
            loop = asyncio.get_running_loop()
            rest_s = self._rests_until - self._now()
            self._next = loop.call_later(rest_s, self._work) if rest_s > 0 else loop.call_soon(self._work)

    def _work(self) -> None:
        self._next = None
        source, turns = self._waiting.popitem(last=False)
        turn = turns.popleft()
        if turns:
            self._waiting[source] = turns
        began = self._now()
        try:
            turn()
        finally:
            now = self._now()
            self._spent_s += now - began
            if self._spent_s >= self._slice_s:
                self._rests_until = now + self._spent_s * self._rest_ratio
                self._spent_s = 0.0
            self._go_on()
