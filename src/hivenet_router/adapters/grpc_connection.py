"""One connection of the bootstrap port: TLS and HTTP/2 in turns of a few KiB, within bounds.

Invariant: what one turn can cost is bounded before the costly part sees a byte: ciphertext by the read, frames and
header bytes by `FrameBudget`, a header list by hpack's own bound. grpclib sees an ordinary transport.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Final, cast

from grpclib.protocol import Connection, EventsProcessor, H2Protocol
from grpclib.server import Handler
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from hpack import Decoder, HPACKDecodingError

from hivenet_router.adapters.turns import Turns
from hivenet_router.names.protocol_ids import GRPC_ALPN
from hivenet_router.wire.http2_frames import FrameBudget, TooMuchHttp2

READ_BYTES: Final = 4 << 10
"""Ciphertext of one turn: at most 186 records of a byte each."""
READS_MAX: Final = 256
CONNECTION_BYTES_MAX: Final = 48 << 10
"""Of one connection as they come: the handshake, its one message and HTTP/2's own frames."""
STREAMS_MAX: Final = 2
HEADER_LIST_BYTES_MAX: Final = 8 << 10
WINDOW_BYTES: Final = 32 << 10
TABLE_SIZE_UPDATES_MAX: Final = 2
"""In one header block (RFC 7541 §4.2)."""
_GAVE_UP: Final = "the other end gave up, as an agent does that has another --jwt-secret-file"
_NO_HANDSHAKE: Final = "no TLS 1.3 handshake"


class GrpcConnection:
    """A connection from its accept on: cut when `over` is set, with `fault` if that is worth a report.

    `settled` is set when the handshake is done, or the connection over. `source` is the other end's address, and the
    network whose turns are this connection's.
    """

    def __init__(
        self,
        accepted: socket,
        source: tuple[str, str],
        context: ssl.SSLContext,
        new_protocol: Callable[[], H2Protocol],
        turns: Turns,
        bytes_max: int,
    ) -> None:
        self.over = asyncio.Event()
        self.settled = asyncio.Event()
        self.fault: str | None = None
        self._loop = asyncio.get_running_loop()
        self._socket = accepted
        self._secured = False
        self._source, self._network = source
        self._context = context
        self._turns = turns
        self._bytes_left = bytes_max
        self._reads_left = READS_MAX
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Made at the first byte: one that never speaks costs a socket and nothing else.
        self._tls: ssl.SSLObject | None = None
        self._unsent = b""
        # grpclib keeps what it has made until that is closed, so it makes nothing for who has no handshake.
        self._new_protocol = new_protocol
        self._protocol: Protocol | None = None
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # the peer may have left already
            accepted.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._await_bytes()

    def cut(self, fault: str | None = None) -> None:
        """Ends the connection now; the first end decides on the fault."""
        if self.over.is_set():
            return
        self.fault = fault
        self.over.set()
        self.settled.set()
        if self._protocol is not None:
            self._protocol.end()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()

    async def calls_ended(self) -> None:
        """Returns when no call of this connection runs any more."""
        if self._protocol is not None and isinstance(self._protocol.handler, Handler):
            await self._protocol.handler.wait_closed()

    def peername(self) -> object:
        """Address and port of the other end."""
        return (self._source, 0)

    def write(self, data: bytes) -> None:
        """Sends decrypted bytes."""
        if self._tls is not None and not self.over.is_set():
            self._tls.write(data)
            self._flush()

    def _await_bytes(self) -> None:
        self._loop.add_reader(self._socket, self._readable)

    def _readable(self) -> None:
        self._loop.remove_reader(self._socket)
        self._turns.add(self._network, self._turn)

    def _turn(self) -> None:
        if self.over.is_set():
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            self._await_bytes()
            return
        except OSError as error:
            self.cut(self._unsecured(str(error)))
            return
        if data:
            self._take(data)
        else:
            self.cut(self._unsecured(_GAVE_UP))
        if not self.over.is_set():
            self._await_bytes()

    def _take(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        self._reads_left -= 1
        if self._bytes_left < 0:
            self.cut("sent more than one message may have")
            return
        if self._reads_left < 0:
            self.cut("sent its bytes in more pieces than a network makes of them")
            return
        self._incoming.write(data)
        try:
            self._decrypt()
        except ssl.SSLError as error:
            self._flush()
            self.cut(self._unsecured((error.reason or "failed").lower().replace("_", " ")))

    def _decrypt(self) -> None:
        if self._tls is None:
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        if not self._secured:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                return
            self._begin(self._tls)
        plain, ended = _all_of(self._tls)
        if plain and self._protocol is not None and not self.over.is_set():
            self._feed(self._protocol, plain)
        self._flush()
        if ended:
            self.cut()

    def _begin(self, tls: ssl.SSLObject) -> None:
        self._secured = True
        self.settled.set()
        if tls.selected_alpn_protocol() == GRPC_ALPN:
            self._protocol = Protocol(self._new_protocol())
            self._protocol.connection_made(_Transport(self))
        else:
            self._flush()
            self.cut(f"no {GRPC_ALPN} in ALPN")

    def _feed(self, protocol: "Protocol", plain: bytes) -> None:
        try:
            protocol.data_received(plain)
        except TooMuchHttp2 as error:
            self.cut(str(error))
        # grpclib raises what comes to hand on frames it does not know; that ends this connection and nothing else.
        except Exception:
            self.cut("not HTTP/2 as gRPC speaks it")

    def _flush(self) -> None:
        if self.over.is_set():
            return
        self._unsent += self._outgoing.read()
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :] if self._unsent else b""
        except BlockingIOError:
            pass
        except OSError as error:
            self.cut(self._unsecured(str(error)))
            return
        if self._unsent:
            self._loop.add_writer(self._socket, self._flush)
        else:
            self._loop.remove_writer(self._socket)

    def _unsecured(self, why: str) -> str | None:
        """A peer that leaves when it has what it came for is no fault."""
        return None if self._secured else f"{_NO_HANDSHAKE}: {why or _GAVE_UP}"


def _all_of(tls: ssl.SSLObject) -> tuple[bytes, bool]:
    """What can be decrypted now, and whether the peer said that it is done."""
    pieces: list[bytes] = []
    try:
        while piece := tls.read(READ_BYTES):
            pieces.append(piece)
    except ssl.SSLWantReadError:
        return b"".join(pieces), False
    except ssl.SSLZeroReturnError:
        pass
    return b"".join(pieces), True


class Protocol(H2Protocol):
    """grpclib's side of one connection, within bounds."""

    def __init__(self, plain: H2Protocol) -> None:
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self._budget = FrameBudget()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        h2 = H2Connection(config=self.h2_config)
        h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES_MAX,
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            },
        )
        h2.decoder = _Decoder(HEADER_LIST_BYTES_MAX)
        h2.initiate_connection()
        self.connection = Connection(h2, cast("asyncio.Transport", transport), config=self.config)
        self.connection.flush()
        self.processor = EventsProcessor(self.handler, self.connection)

    def data_received(self, data: bytes) -> None:
        self._budget.spend(data)
        super().data_received(data)

    def end(self) -> None:
        """Ends all calls."""
        self.processor.close(reason="connection over")


class _Decoder(Decoder):
    """hpack's, with a bound on the one thing in a header block that counts towards no size."""

    def decode(self, data: bytes, raw: bool = False) -> "list[object]":  # type: ignore[override]
        self._updates_left = TABLE_SIZE_UPDATES_MAX
        return super().decode(data, raw)  # type: ignore[return-value]

    def _update_encoding_context(self, data: bytes | memoryview) -> int:
        self._updates_left -= 1
        if self._updates_left < 0:
            raise HPACKDecodingError(f"more than {TABLE_SIZE_UPDATES_MAX} table size updates in one block")
        return super()._update_encoding_context(data)


class _Transport(asyncio.Transport):
    """What grpclib writes to."""

    def __init__(self, connection: GrpcConnection) -> None:
        super().__init__({"peername": connection.peername()})
        self._connection = connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.write(bytes(data))

    def is_closing(self) -> bool:
        return self._connection.over.is_set()

    def close(self) -> None:
        self._connection.cut()

    def abort(self) -> None:
        self._connection.cut()
