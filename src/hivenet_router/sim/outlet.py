"""How do bytes leave a connection, and how does it end?

The raw socket is owned here: whole answers, pieces of any size, an end by FIN or by RST after exactly so many bytes.
Invariant: of one answer no byte leaves past its cut. What the bytes say is decided in `exchange` and `transfer`.
"""

import asyncio
import enum
import fcntl
import socket
import struct
import termios
import time
from typing import Final, Protocol

from hivenet_router.sim.faults import Fault
from hivenet_router.sim.ledger import Ledger, RecordedRequest

# Before a reset the peer gets this long to take what was written; a reset throws the rest away.
DELIVERY_WAIT_S: Final = 0.5
DELIVERY_POLL_S: Final = 0.001


class OnRoom(Protocol):
    """Called when a full buffer has drained."""

    def __call__(self) -> None:
        """Go on writing."""


class End(enum.Enum):
    """What becomes of the connection. CUT is a FIN in the middle of an answer."""

    KEEP = enum.auto()
    CLOSE = enum.auto()
    CUT = enum.auto()
    RESET = enum.auto()


class CutReachedError(Exception):
    """The answer has reached the byte at which it is to break."""

    def __init__(self, end: End) -> None:
        super().__init__(end.name)
        self.end = end


class Outlet:
    """The writing side of one connection. `on_room` is called when a full buffer has drained."""

    def __init__(self, transport: asyncio.Transport, ledger: Ledger) -> None:
        self._transport = transport
        self._ledger = ledger
        self._record: RecordedRequest | None = None
        self._fault = Fault()
        self._cut_bytes: int | None = None
        self._cut_end = End.KEEP
        self._room: asyncio.Future[None] | None = None
        self.on_room: OnRoom | None = None
        self._is_full = False

    def begin(self, record: RecordedRequest, fault: Fault) -> None:
        """What is written from here on is the answer to `record`."""
        self._record = record
        self._fault = fault
        cuts = ((fault.reset_after_bytes, End.RESET), (fault.close_after_bytes, End.CUT))
        given = [(size, end) for size, end in cuts if size is not None]
        self._cut_bytes, self._cut_end = min(given, key=lambda cut: cut[0]) if given else (None, End.KEEP)

    def write(self, data: bytes) -> None:
        """Send bytes of the answer.

        Raises: CutReachedError once the answer may not go on; what was allowed has been sent.
        """
        record = self._record
        assert record is not None  # an answer is begun before it is written
        cut = self._cut_bytes is not None and record.sent_bytes + len(data) >= self._cut_bytes
        if cut:
            data = data[: (self._cut_bytes or 0) - record.sent_bytes]
        if data and record.first_byte_s is None:
            record.first_byte_s = time.monotonic()
        self._hand_over(data)
        record.sent_bytes += len(data)
        self._ledger.sent(len(data))
        if cut:
            raise CutReachedError(self._cut_end)

    def _hand_over(self, data: bytes) -> None:
        step, at = self._fault.write_bytes, 0
        # Behind a full buffer small writes would become one anyway, and each would cost many times its size till then.
        while step is not None and at + step < len(data) and not self.paused:
            self._transport.write(data[at : at + step])
            at += step
        self._transport.write(data[at:])

    def write_aside(self, data: bytes) -> None:
        """Send bytes that belong to no answer (100 Continue, the answer to what is no request)."""
        self._transport.write(data)
        self._ledger.sent(len(data))

    @property
    def paused(self) -> bool:
        """Whether writers hold back: the buffer is full, or the connection has broken and nobody has been told yet."""
        return self._is_full or self._transport.is_closing()

    def pause(self) -> None:
        """The buffer is full: writers hold back."""
        self._is_full = True

    def resume(self) -> None:
        """The buffer has room again."""
        self._is_full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self.on_room is not None:
            self.on_room()

    async def drained(self) -> None:
        """Return when the buffer has room."""
        while self._is_full:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def finish(self, end: End) -> None:
        """End the connection as asked; KEEP leaves it open."""
        if end is End.RESET:
            await self._reset()
        elif end is not End.KEEP:
            self._transport.close()

    async def _reset(self) -> None:
        await self._delivered()
        endpoint = self._transport.get_extra_info("socket")
        if endpoint is not None:
            # Closing a socket that lingers for 0 seconds sends RST instead of FIN.
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def _delivered(self) -> None:
        """Wait, for a bounded time, until the peer's machine has taken all that was written."""
        endpoint = self._transport.get_extra_info("socket")
        deadline_s = time.monotonic() + DELIVERY_WAIT_S
        while time.monotonic() < deadline_s and not self._transport.is_closing():
            if self._transport.get_write_buffer_size() == 0 and (
                endpoint is None or _unacknowledged_bytes(endpoint) == 0
            ):
                return
            await asyncio.sleep(DELIVERY_POLL_S)


def _unacknowledged_bytes(endpoint: socket.socket) -> int:
    """Bytes in the kernel's send queue; 0 where the system does not tell."""
    try:
        answer = fcntl.ioctl(endpoint.fileno(), termios.TIOCOUTQ, b"\0" * 4)
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])
