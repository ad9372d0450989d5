"""An engine that answers by a script, piece by piece, and keeps what came to it and how it ended.

For what an order of events must show: a script sends, waits for the test, resets, or stays until the other side leaves.
Invariant: every request it was asked is one `Turn`, and a turn whose other side ends the connection is broken off.
"""

import asyncio
import contextlib
import fcntl
import json
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from tests.house.raw_engine import RawRequest, Said, behind_head, probe_answer, serving, sized
from tests.house.running import WITHIN_S, free_port, until

Left = Literal["", "fin", "reset"]
_NOTHING = sized(b"{}", "404 Not Found")


@dataclass
class Turn:
    """One request at the engine, and its side of the connection while a script answers it."""

    request: RawRequest
    connection: int
    is_reused: bool
    writer: asyncio.StreamWriter
    left: Left = ""
    """How the other side ended the connection before the script had ended; empty where it did not."""
    is_finished: bool = False
    is_closed: bool = False

    async def send(self, *pieces: bytes) -> None:
        """Send each piece in a write of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def stay(self) -> None:
        """Say nothing more until the other side leaves."""
        await asyncio.get_running_loop().create_future()

    async def arrived(self) -> None:
        """Wait until all that was sent is at the other side, read or not, so that a reset loses nothing."""
        endpoint = self.writer.get_extra_info("socket")

        def is_empty() -> bool:
            unsent = fcntl.ioctl(endpoint.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
            return int.from_bytes(unsent, sys.byteorder) == 0

        await until(is_empty)

    def end(self, how: str) -> None:
        """End the connection with `fin` or `rst`."""
        self.is_closed = True
        end_connection(self.writer, how)


def end_connection(writer: asyncio.StreamWriter, how: str) -> None:
    """End a connection with `fin` or `rst`."""
    if how == "fin":
        writer.close()
        return
    endpoint = writer.get_extra_info("socket")
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


Script = Callable[[Turn], Awaitable[None]]


@dataclass
class Engine:
    """A running one. Each request is answered by the `script` of that moment."""

    model: str
    port: int
    script: Script
    idle_s: float | None = None
    """How long a connection may be idle before the engine closes it."""
    cut: Callable[[], str] | None = None
    """Asked when it has read the head of a request and no more: how to end the connection then, or empty: not yet."""
    refuses_at_head: bytes = b""
    """What it says to a request of which it reads no more than the head, before it ends the connection."""
    probes: list[RawRequest] = field(default_factory=list)
    probes_are_silent: bool = False
    tags: tuple[str, ...] = ()
    """What it lists as Ollama does, if it is one."""
    turns: list[Turn] = field(default_factory=list)
    idle_closed: int = 0
    connections: int = 0
    faults: list[str] = field(default_factory=list)
    """What went wrong in a script. Nothing may."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def begin(self, script: Script, *, idle_s: float | None = None) -> None:
        """Forget all that was, and answer so from now on."""
        self.script, self.idle_s = script, idle_s
        self.turns, self.faults, self.idle_closed = [], [], 0
        self.cut, self.refuses_at_head = None, b""

    def tags_of(self, request: RawRequest) -> Said | None:
        """Ollama's answer to a probe."""
        if not self.tags or not request.line.startswith("GET /api/tags "):
            return None
        return sized(json.dumps({"models": [{"name": tag} for tag in self.tags]}).encode())

    async def has_turns(self, number: int) -> None:
        """Wait until it has been asked that often. Raises: TimeoutError."""
        await until(lambda: len(self.turns) >= number)

    async def all_left(self) -> None:
        """Wait until nobody waits for any of its answers that are not finished. Raises: TimeoutError."""
        await until(lambda: all(turn.left or turn.is_finished for turn in self.turns))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        number, turns, already = self.connections, 0, b""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = already + await reader.readuntil(b"\r\n\r\n")
                if self.cut is not None and head.startswith(b"POST ") and (how := self.cut()):
                    end_connection(writer, how)
                    return
                if self.refuses_at_head and head.startswith(b"POST "):
                    writer.write(self.refuses_at_head)
                    writer.write_eof()
                    # It goes on taking bytes in, as a kernel does for a while; a reset would take the answer away.
                    while await reader.read(1 << 16):
                        pass
                    return
                request = await behind_head(reader, head)
                if not request.line.startswith("POST "):
                    self.probes.append(request)
                    if self.probes_are_silent:
                        await reader.read()
                        return
                    said = self.tags_of(request) or probe_answer(request, self.model) or _NOTHING
                    writer.write(b"".join(said.pieces))
                    already = b""
                    continue
                turn = Turn(request, number, turns > 0, writer)
                self.turns.append(turn)
                turns += 1
                next_byte = asyncio.ensure_future(reader.read(1))
                try:
                    await self._answer(turn, next_byte)
                    if not turn.is_finished or turn.is_closed:
                        return
                    already = await self._next(next_byte)
                    if not already:
                        return
                finally:
                    next_byte.cancel()

    async def _answer(self, turn: Turn, next_byte: asyncio.Future[bytes]) -> None:
        """Let the script run until it ends, or until the other side ends the connection."""

        async def run() -> None:
            await self.script(turn)

        script = asyncio.create_task(run())
        either: set[asyncio.Future[bytes] | asyncio.Task[None]] = {script, next_byte}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if script.done() and not isinstance(script.exception(), OSError):
            fault = script.exception()
            if fault is not None:
                self.faults.append(repr(fault))
            turn.is_finished = True
            return
        # A write can fail before the end of the connection has been read.
        await asyncio.wait({next_byte}, timeout=WITHIN_S)
        script.cancel()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await script
        turn.left = "reset" if isinstance(next_byte.exception(), OSError) else "fin"

    async def _next(self, next_byte: asyncio.Future[bytes]) -> bytes:
        """First byte of the next request; empty when there is none."""
        try:
            async with asyncio.timeout(self.idle_s):
                return await next_byte
        except TimeoutError:
            self.idle_closed += 1
            return b""


@asynccontextmanager
async def scripted_engine(model: str, script: Script) -> AsyncIterator[Engine]:
    """A running engine of this model."""
    engine = Engine(model, free_port(), script)
    async with serving(engine.port, engine.serve):
        yield engine
