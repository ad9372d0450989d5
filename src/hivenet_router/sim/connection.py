"""How does one connection live?

Requests are answered one after the other; reading goes on meanwhile, so that a client that leaves is noticed at once,
in silence too. Invariant: when the peer closes (FIN or RST), whatever was being done for it is cancelled within the
same turn of the loop, and the moment is written down. Judging bytes is the business of `reader`, answering that of
`exchange`.
"""

import asyncio
import logging
import time
from typing import Final

from hivenet_router.sim.exchange import Exchange, is_inference
from hivenet_router.sim.fault_board import CONTROL_PREFIX
from hivenet_router.sim.framing import head_bytes
from hivenet_router.sim.house import House
from hivenet_router.sim.outlet import End, Outlet
from hivenet_router.sim.reader import Request, RequestReader, RequestRefusedError
from hivenet_router.sim.shapes_openai import error_body

log = logging.getLogger(__name__)

# Requests sent ahead are kept up to here; past it reading stops until the answer is out.
PIPELINED_BYTES_MAX: Final = 1024 * 1024
# After a refusal the client gets this long to read it while the rest of its bytes are thrown away.
LINGER_S: Final = 1.0


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._reader = RequestReader(body_bytes_max=house.options.body_bytes_max)
        self._arrived: asyncio.Future[Request | RequestRefusedError] | None = None
        self._next: Request | RequestRefusedError | None = None
        self._busy = False
        self._deaf = False
        self._served = 0
        self._number = 0
        self._hung_up_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        assert isinstance(transport, asyncio.Transport)  # the server makes only such
        self._transport = transport
        self._outlet = Outlet(transport, self._house.ledger)
        ledger = self._house.ledger
        ledger.connections_open += 1
        ledger.connections_opened += 1
        self._number = ledger.connections_opened
        self._house.transports.add(transport)
        self._task = self._house.spawn(self._converse())

    def data_received(self, data: bytes) -> None:
        """Take bytes; a request that becomes whole is handed to the conversation."""
        self._house.ledger.received(len(data))
        if self._deaf:
            return
        self._reader.feed(data)
        if not self._busy and self._next is None:
            self._look_for_request()
        elif self._reader.waiting_bytes() > PIPELINED_BYTES_MAX:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer sent FIN: it has left, and the transport closes."""
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over, by FIN, by RST or by us."""
        self._house.ledger.connections_open -= 1
        self._house.transports.discard(self._transport)
        self._leave()
        self._house.ledger.notify()

    def pause_writing(self) -> None:
        """The peer reads slowly."""
        self._outlet.pause()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._outlet.resume()

    def _leave(self) -> None:
        if self._hung_up_s is None:
            self._hung_up_s = time.monotonic()
            if self._task is not None:
                self._task.cancel()

    def _look_for_request(self) -> None:
        try:
            found: Request | RequestRefusedError | None = self._reader.poll()
        except RequestRefusedError as refused:
            found = refused
            self._deaf = True
        if found is None:
            if permission := self._reader.continue_bytes():
                self._outlet.write_aside(permission)
            return
        self._next = found
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(found)

    async def _converse(self) -> None:
        try:
            while await self._serve_one():
                pass
        except Exception:
            # A mistake of ours must not take the other connections with it.
            log.exception("connection_failed")
        finally:
            if not (self._busy or self._deaf) and self._next is None and self._reader.midway:
                self._house.ledger.incomplete += 1
            self._transport.close()

    async def _serve_one(self) -> bool:
        """Answer the next request; False when the connection is to end."""
        try:
            async with asyncio.timeout(self._house.options.idle_timeout_s or None):
                request = await self._take()
        except TimeoutError:
            return False
        if isinstance(request, RequestRefusedError):
            await self._refuse(request)
            return False
        self._busy = True
        end = await self._answer(request)
        await self._outlet.finish(end)
        if end is not End.KEEP or not self._reader.next_cycle():
            return False
        self._busy = False
        self._transport.resume_reading()
        self._look_for_request()
        return True

    async def _take(self) -> Request | RequestRefusedError:
        if self._next is None:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        found, self._next = self._next, None
        assert found is not None  # the future is set only beside it
        return found

    async def _answer(self, request: Request) -> End:
        ledger = self._house.ledger
        record = ledger.open(
            method=request.method,
            target=request.target,
            headers=request.headers,
            body=request.body,
            connection=self._number,
            reused=self._served > 0,
            inference=is_inference(request),
            kept=not request.path.startswith(CONTROL_PREFIX),
        )
        self._served += 1
        try:
            end = await Exchange(self._house, self._outlet, request, record).run()
            await self._outlet.drained()
        except asyncio.CancelledError:
            left = self._hung_up_s is not None and not self._house.stopping
            ledger.close(record, "cancelled" if left else "broken", peer_closed_s=self._hung_up_s)
            raise
        except Exception:
            ledger.close(record, "broken")
            raise
        ledger.close(record, "finished" if end in (End.KEEP, End.CLOSE) else "broken")
        return end

    async def _refuse(self, refused: RequestRefusedError) -> None:
        """Answer what is no request so that the client can read it: FIN behind it, no RST while bytes still come."""
        self._house.ledger.incomplete += 1
        body = error_body(refused.status, str(refused))
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close")]
        self._outlet.write_aside(head_bytes(refused.status, headers) + body)
        self._transport.write_eof()
        await asyncio.sleep(LINGER_S)
