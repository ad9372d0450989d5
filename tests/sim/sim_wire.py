"""How do tests speak to the simulator?

Over raw sockets, see `raw_http`. Invariant: every wait here ends, at the latest after `PATIENCE_S`. What is asserted is
each test's business.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from tests.raw_http import RawConnection, Reply

from hivenet_router.sim import SimOptions

PATIENCE_S: Final = 5.0
FAST: Final = SimOptions(decode_tokens_per_s=0, prefill_tokens_per_s=0, output_tokens=(8, 8))
CHAT: Final = "/v1/chat/completions"
HELLO: Final[Mapping[str, object]] = {"model": "sim-model", "messages": [{"role": "user", "content": "hi"}]}


class Wire(RawConnection):
    """One connection to the simulator."""

    async def silent_for(self, seconds: float) -> bool:
        """Whether nothing at all comes for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._reader.read(1)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Wire]:
    """A connection to the simulator at `url`."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer, patience_s=PATIENCE_S)
    finally:
        writer.transport.abort()


async def fetch(url: str, path: str, body: object = None, *, method: str | None = None, **headers: str) -> Reply:
    """One request on a connection of its own."""
    async with connected(url) as wire:
        wire.ask(path, body, method=method, **headers)
        return await wire.reply(bodiless=method == "HEAD")
