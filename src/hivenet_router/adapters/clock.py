"""What time is it? The running loop's clock for durations, the system's for what leaves the process.

Invariant: both are read here and nowhere else, so that a test with a virtual loop has virtual durations everywhere.
"""

import asyncio
import time

from hivenet_router.core.clock import Monotonic, UnixTime


class LoopClock:
    """The clock of a program; made inside its running loop. Fulfils `ports.Clock`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> Monotonic:
        """Seconds on the event loop's clock."""
        return Monotonic(self._loop.time())

    def unix(self) -> UnixTime:
        """Seconds since 1970, UTC."""
        return UnixTime(time.time())
