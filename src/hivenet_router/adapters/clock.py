"""What time is it? The running loop's clock for durations, the system's for what leaves the process.

Invariant: both are read here and nowhere else, so that a test with a virtual loop has virtual durations everywhere.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast

from hivenet_router.core.clock import Monotonic, UnixTime


class LoopClock:
    """The clock of a program; made inside its running loop. Fulfils `ports.Clock`."""

    __slots__ = ("now", "unix")

    now: Callable[[], Monotonic]
    """Seconds on the event loop's clock."""
    unix: Callable[[], UnixTime]
    """Seconds since 1970, UTC."""

    def __init__(self) -> None:
        # The clocks themselves: a request asks for the time often enough that a call around each would be seen.
        self.now = cast("Callable[[], Monotonic]", asyncio.get_running_loop().time)
        self.unix = cast("Callable[[], UnixTime]", time.time)
