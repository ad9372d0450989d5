"""A cable between two programs that a test can pull out and put back in.

Forwards bytes between a port of its own and another one. Invariant: `cut` ends what runs over it at once and with RST,
as a dead host's kernel or a firewall would, and nothing passes until `mend`. `freeze` leaves what runs over it open,
and takes its bytes without passing them on.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.house.client import Address
from tests.house.running import free_port


class Cable:
    """One cable; `address` is this end."""

    def __init__(self, address: Address, target: Address) -> None:
        self.address = address
        self.taken = 0
        self._target = target
        self._is_whole = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._frozen: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Pull it out."""
        self._is_whole = False
        for writer in self._writers:
            endpoint = writer.get_extra_info("socket")
            if endpoint is not None and endpoint.fileno() >= 0:
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._writers.clear()

    def freeze(self) -> None:
        """From here on, swallow what is sent over the connections of this moment; new ones work."""
        self._frozen |= self._writers

    def mend(self) -> None:
        """Put it back in."""
        self._is_whole = True

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._is_whole:
                return
            self.taken += 1
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, there_writer}
            await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def end(self) -> None:
        """Let go of everything."""
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if writer not in self._frozen:
                    writer.write(data)
                    await writer.drain()
        if writer not in self._frozen:
            writer.transport.abort()


@asynccontextmanager
async def cable_to(target: Address, *, port: int | None = None) -> AsyncIterator[Cable]:
    """A cable to this address."""
    address = ("127.0.0.1", port or free_port())
    cable = Cable(address, target)
    server = await asyncio.start_server(cable.accept, *address)
    try:
        yield cable
    finally:
        server.close()
        await cable.end()
