"""How do tests speak to the running router?

Over raw sockets, see `raw_http`. Invariant: every wait here ends, at the latest after `PATIENCE_S`. What is asserted is
each test's business.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from tests.raw_http import RawConnection, Reply

PATIENCE_S: Final = 30.0
CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
MODEL: Final = "m1"

Address = tuple[str, int]


def hello(model: str = MODEL, **members: object) -> dict[str, object]:
    """A small request body for any inference path."""
    body: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    return {**body, **members}


class Connection(RawConnection):
    """One connection to a listener of the router."""

    async def drain(self) -> None:
        """Wait until what was sent is on its way."""
        async with asyncio.timeout(self._patience_s):
            await self._writer.drain()

    async def body(self, number: int) -> bytes:
        """So many bytes of a body in chunks, or a few more, in whatever chunks they come."""
        got = b""
        while len(got) < number:
            size = int(await self.until(b"\r\n"), 16)
            async with asyncio.timeout(self._patience_s):
                got += (await self._reader.readexactly(size + 2))[:size]
        return got

    def fin(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()


@asynccontextmanager
async def connected(address: Address, *, reads_ahead_bytes: int = 8 << 20) -> AsyncIterator[Connection]:
    """A connection to this listener; cut with the block."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*address, limit=reads_ahead_bytes)
    try:
        yield Connection(reader, writer, patience_s=PATIENCE_S)
    finally:
        writer.transport.abort()


async def ask(address: Address, path: str, body: object = None, *, method: str | None = None, **headers: str) -> Reply:
    """One request on a connection of its own."""
    async with connected(address) as connection:
        connection.ask(path, body, method=method, **headers)
        return await connection.reply(bodiless=method == "HEAD")


async def exchange(address: Address, data: bytes, *, fin: bool = False) -> bytes:
    """Send exactly these bytes on a connection of their own; all that comes back until the other side ends it."""
    async with connected(address) as connection:
        connection.send(data)
        if fin:
            connection.fin()
        return (await connection.rest())[0]


def error_of(reply: Reply) -> Mapping[str, object]:
    """The `error` member of an error answer."""
    error = json.loads(reply.body)["error"]
    assert isinstance(error, dict)
    return error
