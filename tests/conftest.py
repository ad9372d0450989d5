"""What do all tests need around them?

A clean event loop policy, and property tests that do not depend on the machine's speed. With CI set they are the same
at every run, so that a change fails for its own faults only; without, each run explores anew and prints what it found.
"""

import asyncio
import inspect
import os

import pytest
from hypothesis import settings

settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("explore"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "explore")


@pytest.fixture(autouse=True)
def no_stray_loop(request: pytest.FixtureRequest) -> None:
    """A plugin asks for the current loop before plain tests too, and would have one made that nobody closes."""
    if not inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        asyncio.set_event_loop(None)
