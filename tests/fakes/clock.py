"""A clock that shows the virtual time of the running loop."""

import asyncio
from typing import Final

from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.ports import Clock

UNIX_START: Final = 1_764_000_000.0
"""The Unix time at the loop's zero."""


class VirtualClock(Clock):
    """Both clocks, driven by the loop."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def jump(self, seconds: float) -> None:
        """Let time pass in which nothing ran."""
        self._ahead_s += seconds

    def now(self) -> Monotonic:
        """Seconds on the loop's clock."""
        return Monotonic(self._ahead_s + asyncio.get_running_loop().time())

    def unix(self) -> UnixTime:
        """The same, since 1970."""
        return UnixTime(UNIX_START + self._ahead_s + asyncio.get_running_loop().time())
