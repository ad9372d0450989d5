"""How do tests speak to the running router?

Over raw sockets, so that half-sent bytes, FIN and RST are seen as they are. Invariant: every wait here ends, at the
latest after `PATIENCE_S`. What is asserted is each test's business.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from tests.sim.sim_wire import Reply, at, request_bytes

__all__ = ["Address", "Connection", "Reply", "ask", "at", "connected", "hello", "request_bytes"]

PATIENCE_S: Final = 30.0
CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
MODEL: Final = "m1"

Address = tuple[str, int]


def hello(model: str = MODEL, **members: object) -> dict[str, object]:
    """A small request body for any inference path."""
    body: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    return {**body, **members}


class Connection:
    """One connection to a listener of the router."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until what was sent is on its way."""
        async with asyncio.timeout(PATIENCE_S):
            await self._writer.drain()

    def ask(self, path: str, body: object = None, *, method: str | None = None, **headers: str) -> None:
        """Send a request; a keyword `x_sim` becomes the header `X-Sim`."""
        self.send(request_bytes(path, body, method=method, **headers))

    async def reply(self, *, bodiless: bool = False) -> Reply:
        """Read one answer to its end, or to where the connection broke."""
        async with asyncio.timeout(PATIENCE_S):
            status, headers = _head(await self._reader.readuntil(b"\r\n\r\n"))
            framing = {name.lower(): value for name, value in headers}
            if bodiless or status in (204, 304):
                return Reply(status, headers, b"")
            if framing.get("transfer-encoding") == "chunked":
                return await self._chunked(status, headers)
            if "content-length" not in framing:
                body, ending = await self.rest()
                return Reply(status, headers, body, ending)
            try:
                return Reply(status, headers, await self._reader.readexactly(int(framing["content-length"])))
            except asyncio.IncompleteReadError as short:
                return Reply(status, headers, short.partial, "fin", whole=False)

    async def _chunked(self, status: int, headers: list[tuple[str, str]]) -> Reply:
        chunks: list[bytes] = []
        ending = "kept"
        try:
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                chunks.append((await self._reader.readexactly(size + 2))[:-2])
            await self._reader.readexactly(2)
        except asyncio.IncompleteReadError as short:
            chunks.append(short.partial)
            ending = "fin"
        except ConnectionResetError:
            ending = "reset"
        return Reply(status, headers, b"".join(chunks), ending, chunks, whole=ending == "kept")

    async def until(self, mark: bytes) -> bytes:
        """Read up to and with `mark`."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readuntil(mark)

    async def rest(self) -> tuple[bytes, str]:
        """All bytes to the end of the connection, and whether it was `fin` or `reset`."""
        got = b""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while data := await self._reader.read(65536):
                    got += data
            except ConnectionResetError:
                return got, "reset"
        return got, "fin"

    def fin(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    def leave(self) -> None:
        """Close with FIN."""
        self._writer.close()

    def abort(self) -> None:
        """Close with RST."""
        endpoint = self._writer.get_extra_info("socket")
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _head(head: bytes) -> tuple[int, list[tuple[str, str]]]:
    lines = head.decode("latin-1").split("\r\n")
    return int(lines[0].split(" ")[1]), [
        (name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:-2])
    ]


@asynccontextmanager
async def connected(address: Address, *, reads_ahead_bytes: int = 8 << 20) -> AsyncIterator[Connection]:
    """A connection to this listener; cut with the block."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*address, limit=reads_ahead_bytes)
    try:
        yield Connection(reader, writer)
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
