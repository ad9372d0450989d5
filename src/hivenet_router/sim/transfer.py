"""How do tokens become the bytes of a running stream?

Each time the engine has moved, all tokens that are due go out in one write. A client that reads slowly holds back the
writing, not the engine: text is made when it is sent, so nothing piles up. Invariant: events leave whole and in order
up to the cut that a fault sets. The socket is `outlet`'s, the events are the shape's.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from hivenet_router.sim.bodies import Body
from hivenet_router.sim.engine import Job, Phase
from hivenet_router.sim.faults import Fault
from hivenet_router.sim.framing import BodyEncoder
from hivenet_router.sim.ledger import RecordedRequest
from hivenet_router.sim.outlet import CutReachedError, End, Outlet
from hivenet_router.sim.pacer import Pacer
from hivenet_router.sim.words import BLOCK_BYTES

PIECES_PER_WRITE_MAX: Final = 64
# A client that reads as fast as text is made gets so much at a time, so that the others have their turns.
WRITES_PER_TURN_MAX: Final = 16
COMMENT: Final = b": keep-alive\n\n"
_UNBORN: Final = frozenset({Phase.NEW, Phase.WAITING, Phase.PREFILL})


class Shape(Protocol):
    """An answer in one dialect. `total` is the number of its pieces."""

    total: int

    def body(self) -> Body:
        """The buffered form."""

    def opening(self) -> list[bytes]:
        """Events before the first piece."""

    def pieces(self) -> Iterator[bytes]:
        """The events with the pieces, made one by one."""

    def closing(self) -> list[bytes]:
        """Events after the last piece."""


async def send_blocks(outlet: Outlet, blocks: Iterable[bytes]) -> None:
    """Send a body of any length as fast as the client takes it, one block in memory at a time.

    Raises: CutReachedError once the answer may not go on.
    """
    for number, block in enumerate(blocks):
        if number:
            # A client that takes blocks as fast as they are made leaves the others their turns.
            await asyncio.sleep(0)
        outlet.write(block)
        await outlet.drained()


class StreamTransfer:
    """Sends one answer as a stream; `ended` says how the connection goes on."""

    def __init__(
        self,
        *,
        outlet: Outlet,
        record: RecordedRequest,
        head: bytes,
        encoder: BodyEncoder,
        shape: Shape,
        fault: Fault,
        stamp: bool,
        closes: bool,
    ) -> None:
        self._outlet, self._record, self._encoder, self._shape = outlet, record, encoder, shape
        self._fault, self._stamp, self._closes = fault, stamp, closes
        self._head = head
        self._opened = False
        self._closed = False
        self._sent = 0
        self._pieces = shape.pieces()
        self._stall: asyncio.TimerHandle | None = None
        self._next_turn: asyncio.Handle | None = None
        self._job: Job | None = None
        cuts = ((fault.reset_after_chunks, End.RESET), (fault.close_after_chunks, End.CUT))
        given = [(at, end) for at, end in cuts if at is not None and at <= shape.total]
        self._cut_at: int | None = None
        self._cut_end = End.KEEP
        if given:
            self._cut_at, self._cut_end = min(given, key=lambda cut: cut[0])
        self.ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    async def run(self, pacer: Pacer, job: Job) -> End:
        """Send the answer at the engine's pace.

        Raises: EngineFullError, before anything is sent.
        """
        self._job = job
        with pacer.running(job, lambda: self._advance(pacer)):
            self._outlet.on_room = lambda: self._advance(pacer)
            try:
                if not self._fault.late_head:
                    self._try_push(self._opening_bytes())
                return await self.ended
            finally:
                self._outlet.on_room = None
                for handle in (self._stall, self._next_turn):
                    if handle is not None:
                        handle.cancel()

    def _advance(self, pacer: Pacer) -> None:
        job = self._job
        if job is None or self.ended.done() or (not self._opened and job.phase in _UNBORN):
            return
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        writes = 0
        while not (self.ended.done() or self._closed or self._outlet.paused):
            if writes == WRITES_PER_TURN_MAX:
                self._next_turn = asyncio.get_running_loop().call_soon(self._advance, pacer)
                return
            data = self._next_write(job)
            if not data:
                break
            writes += 1
            self._try_push(data)
        if not self.ended.done():
            if self._closed:
                self.ended.set_result(self._whole_end())
            elif self._sent == self._cut_at and not self._outlet.paused:
                self.ended.set_result(self._cut_end)
        if job.phase is Phase.HELD and self._stall is None and self._fault.stall_s < math.inf:
            self._stall = asyncio.get_running_loop().call_later(self._fault.stall_s, pacer.resume, job)

    def _try_push(self, data: bytes) -> None:
        try:
            self._outlet.write(data)
        except CutReachedError as cut:
            if not self.ended.done():
                self.ended.set_result(cut.end)

    def _opening_bytes(self) -> bytes:
        """The head, once, with a comment behind it if comments are wanted."""
        head, self._head = self._head, b""
        return head + self._encoder.encode(COMMENT) if head and self._fault.comments else head

    def _next_write(self, job: Job) -> bytes:
        """All that is due, in one piece; empty if nothing is."""
        parts: list[bytes] = []
        total = self._shape.total
        if not self._opened:
            self._opened = True
            parts.append(self._opening_bytes())
            parts += [self._encoded(event) for event in self._shape.opening()]
        ready = min(job.generated * job.choices, total if self._cut_at is None else self._cut_at)
        size_bytes = 0
        for event in itertools.islice(self._pieces, min(ready - self._sent, PIECES_PER_WRITE_MAX)):
            parts.append(self._encoded(event))
            self._sent += 1
            size_bytes += len(parts[-1])
            if size_bytes >= BLOCK_BYTES:
                break
        self._record.chunks = self._sent
        if job.is_ended and self._sent == total and self._cut_at is None:
            parts += [self._encoded(event) for event in self._shape.closing()]
            parts.append(self._encoder.finish())
            self._closed = True
        return b"".join(parts)

    def _whole_end(self) -> End:
        if self._fault.truncate_body:
            return End.CUT
        return End.CLOSE if self._closes else End.KEEP

    def _encoded(self, event: bytes) -> bytes:
        if self._stamp and event.endswith(b"}"):
            event = b'%b,"sim_ns":%d}' % (event[:-1], time.time_ns())
        event += b"\n\n"
        return self._encoder.encode(COMMENT + event if self._fault.comments else event)
