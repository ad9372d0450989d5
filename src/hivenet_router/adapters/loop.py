"""Which event loop do the programs run on?

uvloop where it can be imported, since it costs a third less per request; asyncio's own otherwise.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def run(main: Coroutine[None, None, T]) -> T:
    """Run the program's coroutine to its end and give what it returns."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
