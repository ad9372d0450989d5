"""A clock that shows the virtual time of the running loop."""

import asyncio
from typing import Final

from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.ports import Clock

UNIX_START: Final = 1_764_000_000.0
"""The Unix time at the loop's zero."""


class VirtualClock(Clock):
    """Both clocks, driven by the loop."""

    def now(self) -> Monotonic:
        """Seconds on the loop's clock."""
        return Monotonic(asyncio.get_running_loop().time())

    def unix(self) -> UnixTime:
        """The same, since 1970."""
        return UnixTime(UNIX_START + asyncio.get_running_loop().time())
