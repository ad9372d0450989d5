"""The bootstrap service on its socket: gRPC over TLS 1.3, for agents that hold the shared secret.

Invariant: what an unauthenticated peer can make this process hold is bounded: connections in all and per source, bytes
and seconds per connection. A connection is counted from the accept on, before its first byte. Anything that is not a
call of ours over TLS 1.3 and HTTP/2 is closed without a word, and reported once per source and minute. Who may have a
session is the caller's `authenticate`.
"""

import asyncio
import contextlib
import errno
import inspect
import logging
import os
import socket
import ssl
import tempfile
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from grpclib import GRPCError, Status
from grpclib.const import Cardinality
from grpclib.const import Handler as Method
from grpclib.encoding.base import CodecBase
from grpclib.protocol import H2Protocol
from grpclib.server import Handler, Server, Stream

from hivenet_router.adapters.listening import addresses_to_bind
from hivenet_router.names.protocol_ids import GRPC_ALPN, GRPC_AUTHENTICATE, GRPC_HEALTH_CHECK
from hivenet_router.wire.auth_messages import (
    AuthMessageInvalid,
    AuthOutcome,
    AuthRequest,
    Health,
    decode_request,
    encode_health,
    encode_outcome,
)
from hivenet_router.wire.tls_identity import GrpcIdentity

MESSAGE_BYTES_MAX: Final = 64 << 10
CONNECTION_BYTES_MAX: Final = 80 << 10
"""Decrypted bytes of one connection: its one message and HTTP/2's own frames."""
CONNECTION_LIFE_S: Final = 30.0
HANDSHAKE_S: Final = 10.0
CONNECTIONS_MAX: Final = 1024
CONNECTIONS_PER_SOURCE_MAX: Final = 256
"""Many agents may stand behind one address translator, and come back together after a restart."""
BACKLOG: Final = 128
ACCEPT_RETRY_S: Final = 0.2
REPORT_INTERVAL_S: Final = 60.0
REPORTED_SOURCES_MAX: Final = 1024
ANY_SOURCE: Final = "(any)"
_GAVE_UP: Final = "the other end gave up, as an agent does that has another --jwt-secret-file"
OUT_OF_FILES: Final = (
    "out of file descriptors, and each connection takes one; raise the limit of open files of this process "
    "(ulimit -n, LimitNOFILE=)"
)

Authenticate = Callable[[AuthRequest, str], Awaitable[AuthOutcome] | AuthOutcome]
"""Given a request and the source IP, the outcome to send."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the peers of the bootstrap service may use up; times in seconds."""

    message_bytes_max: int = MESSAGE_BYTES_MAX
    connection_bytes_max: int = CONNECTION_BYTES_MAX
    connection_life_s: float = CONNECTION_LIFE_S
    handshake_s: float = HANDSHAKE_S
    connections_max: int = CONNECTIONS_MAX
    connections_per_source_max: int = CONNECTIONS_PER_SOURCE_MAX


@dataclass(frozen=True, slots=True)
class Refused:
    """Connections from one source that were not served: the latest reason, and how many since the last report."""

    source: str
    reason: str
    times: int


OnRefused = Callable[[Refused], None]


async def serve_bootstrap(
    listen: tuple[str, int],
    identity: GrpcIdentity,
    authenticate: Authenticate,
    on_refused: OnRefused,
    *,
    bounds: Bounds | None = None,
) -> "BootstrapServer":
    """A server that listens on `listen` (host, port; port 0 takes a free one, an empty host every address).

    Raises: OSError that names host and port when they cannot be bound.
    Source: wire.md §4.1, §4.2, §14 no. 1 and 32; technical-notes.md, grpclib.
    """
    server = BootstrapServer(identity, authenticate, on_refused, bounds or Bounds())
    await server.start(*listen)
    return server


class BootstrapServer:
    """A running bootstrap service; made by `serve_bootstrap`, ended by `close`. It owns one task per connection."""

    def __init__(
        self, identity: GrpcIdentity, authenticate: Authenticate, on_refused: OnRefused, bounds: Bounds
    ) -> None:
        self._tls = server_context(identity)
        self._service = _Service(authenticate, bounds)
        self._bounds = bounds
        self._ledger = _RefusalLedger(on_refused)
        self._listeners: list[socket.socket] = []
        self._open: Counter[str] = Counter()
        self._accepting: list[asyncio.Task[None]] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Binds and listens; called once, by `serve_bootstrap`."""
        _quiet_grpclib()
        try:
            self._listeners = await _listen(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"the gRPC bootstrap cannot listen on {host or '*'}:{port}: {reason}") from error
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(listener)) for listener in self._listeners]

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of every listening socket."""
        return tuple(listener.getsockname()[:2] for listener in self._listeners)

    async def close(self) -> None:
        """Stops listening, cuts every connection and returns when nothing of this server runs any more."""
        await _cancel(self._accepting)
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        await _cancel(self._connections)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peername = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors, or the peer left already; neither ends the service.
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._refuse(ANY_SOURCE, OUT_OF_FILES)
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            self._arrive(accepted, str(peername[0]))

    def _arrive(self, accepted: socket.socket, source: str) -> None:
        if len(self._connections) >= self._bounds.connections_max:
            self._turn_away(accepted, source, "too many connections")
        elif self._open[source] >= self._bounds.connections_per_source_max:
            self._turn_away(accepted, source, "too many connections from this address")
        else:
            self._open[source] += 1
            task = asyncio.get_running_loop().create_task(self._serve(accepted, source))
            self._connections.add(task)
            task.add_done_callback(lambda done: self._leave(done, source))

    def _turn_away(self, accepted: socket.socket, source: str, reason: str) -> None:
        accepted.close()
        self._refuse(source, reason)

    def _leave(self, task: asyncio.Task[None], source: str) -> None:
        self._connections.discard(task)
        self._open[source] -= 1
        if self._open[source] <= 0:
            del self._open[source]

    def _refuse(self, source: str, reason: str) -> None:
        self._ledger.add(source, reason, now=asyncio.get_running_loop().time())

    async def _serve(self, accepted: socket.socket, source: str) -> None:
        """One connection from accept to end."""
        protocol = self._service.new_protocol()
        reason: str | None = None
        try:
            async with asyncio.timeout(self._bounds.connection_life_s):
                await self._handshake(accepted, protocol)
                await protocol.over.wait()
                reason = protocol.fault
        except TimeoutError:
            reason = f"open for {self._bounds.connection_life_s:g} s"
        except ssl.SSLError as error:
            reason = f"no TLS 1.3 handshake: {(error.reason or 'failed').lower().replace('_', ' ')}"
        except OSError as error:
            reason = f"no TLS 1.3 handshake: {str(error) or _GAVE_UP}"
        finally:
            protocol.cut()
            await protocol.calls_ended()
            accepted.close()
        if reason is not None:
            self._refuse(source, reason)

    async def _handshake(self, accepted: socket.socket, protocol: "_BoundedProtocol") -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=self._bounds.handshake_s
        )
        # A peer that leaves in the middle without an error looks like one that is done.
        if not protocol.began:
            raise ConnectionResetError


class _BoundedProtocol(H2Protocol):
    """grpclib's side of one connection, within bounds.

    When `over` is set the connection is at its end, and `fault` has the reason if that is worth a report.
    """

    def __init__(self, plain: H2Protocol, bytes_max: int) -> None:
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self.over = asyncio.Event()
        self.fault: str | None = None
        self._transport: asyncio.Transport | None = None
        self._bytes_left = bytes_max

    @property
    def began(self) -> bool:
        """Whether the handshake came to its end."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # TLS transports always are
        tls = cast("ssl.SSLObject", transport.get_extra_info("ssl_object"))
        if tls.selected_alpn_protocol() == GRPC_ALPN:
            super().connection_made(transport)
        else:
            self._end(f"no {GRPC_ALPN} in ALPN")

    def data_received(self, data: bytes) -> None:
        self._bytes_left -= len(data)
        if self.over.is_set():
            return
        if self._bytes_left < 0:
            self._end("sent more than one message may have")
            return
        try:
            super().data_received(data)
        # grpclib raises what comes to hand on frames it does not know; that ends this connection and nothing else.
        except Exception:
            self._end("not HTTP/2 as gRPC speaks it")
            return
        if self.connection.is_closing():
            self._end(None)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end(None)

    def cut(self) -> None:
        """Ends the connection now; the caller has its own reason, or none."""
        self._end(None)

    async def calls_ended(self) -> None:
        """Returns when no call of this connection runs any more."""
        if isinstance(self.handler, Handler):
            await self.handler.wait_closed()

    def _end(self, fault: str | None) -> None:
        if self.over.is_set():
            return
        self.fault = fault
        self.over.set()
        if hasattr(self, "processor"):
            self.processor.close(reason="connection over")
        if self._transport is not None:
            self._transport.abort()


class _Bytes(CodecBase):
    """Messages pass as their protobuf bytes; wire/auth_messages.py gives them their meaning."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: type[bytes]) -> bytes:
        return message

    def decode(self, data: bytes, message_type: type[bytes]) -> bytes:
        return data


class _Methods(dict[str, Method]):
    """The methods by path, one for every other path among them.

    grpclib's own answer to an unknown path lacks a content type, and clients then do not see UNIMPLEMENTED.
    """

    def get(self, path: str, default: object = None) -> Method:
        return super().get(path, Method(_unimplemented, Cardinality.UNARY_UNARY, bytes, bytes))


async def _unimplemented(stream: Stream[bytes, bytes]) -> None:
    raise GRPCError(Status.UNIMPLEMENTED, "unknown method")


class _Service:
    """The two methods, and grpclib's machinery behind them."""

    def __init__(self, authenticate: Authenticate, bounds: Bounds) -> None:
        self._authenticate = authenticate
        self._bounds = bounds
        self._grpc = Server([], codec=_Bytes())
        self._grpc._mapping = _Methods(
            {
                GRPC_AUTHENTICATE: Method(self.authenticate, Cardinality.UNARY_UNARY, bytes, bytes),
                GRPC_HEALTH_CHECK: Method(self.health_check, Cardinality.UNARY_UNARY, bytes, bytes),
            }
        )

    def new_protocol(self) -> _BoundedProtocol:
        return _BoundedProtocol(self._grpc._protocol_factory(), self._bounds.connection_bytes_max)

    async def authenticate(self, stream: Stream[bytes, bytes]) -> None:
        data = await self._message(stream)
        try:
            request = decode_request(data)
        except AuthMessageInvalid as error:
            raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error
        peername = stream.peer.addr()
        await stream.send_message(await self._answer(request, peername[0] if peername else "unknown"))

    async def _answer(self, request: AuthRequest, source: str) -> bytes:
        try:
            outcome = self._authenticate(request, source)
            if inspect.isawaitable(outcome):
                outcome = await outcome
            return encode_outcome(outcome)
        # A fault of ours: told to the loop's handler with its traceback, to the agent in one word.
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a bootstrap call failed", "exception": error}
            )
            raise GRPCError(Status.INTERNAL, "internal error") from error

    async def health_check(self, stream: Stream[bytes, bytes]) -> None:
        await self._message(stream)
        await stream.send_message(encode_health(Health(healthy=True, status="serving")))

    async def _message(self, stream: Stream[bytes, bytes]) -> bytes:
        data = await stream.recv_message()
        if data is None:
            raise GRPCError(Status.INVALID_ARGUMENT, "the call carries no message")
        if len(data) > self._bounds.message_bytes_max:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"a message has at most {self._bounds.message_bytes_max} bytes")
        return data


class _RefusalLedger:
    """Reports refusals at most once per source and minute, and remembers a bounded number of sources."""

    def __init__(self, report: OnRefused) -> None:
        self._report = report
        # Source -> (when last reported, refusals since), longest silent first.
        self._sources: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def add(self, source: str, reason: str, *, now: float) -> None:
        reported_at, times = self._sources.pop(source, (float("-inf"), 0))
        times += 1
        if now - reported_at >= REPORT_INTERVAL_S:
            self._report(Refused(source, reason, times))
            reported_at, times = now, 0
        self._sources[source] = (reported_at, times)
        if len(self._sources) > REPORTED_SOURCES_MAX:
            self._sources.popitem(last=False)


async def _listen(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of the host, all with one port."""
    listeners: list[socket.socket] = []
    try:
        for address in await addresses_to_bind(host):
            listeners.append(_listener(address, port))
            port = port or int(listeners[0].getsockname()[1])
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setblocking(False)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def server_context(identity: GrpcIdentity) -> ssl.SSLContext:
    """An ssl context that presents this identity, for TLS 1.3 and HTTP/2 only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([GRPC_ALPN])
    # Each agent comes once per session: resuming would save nothing.
    context.num_tickets = 0
    with _as_file(identity.key_pem + identity.certificate_pem) as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path that reads as `content` while the block runs: ssl loads keys from paths only.

    Memory where the system has it, so that the key never touches a disk; else a temporary file of mode 0600.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        memory = os.memfd_create("hivenet-router-grpc", os.MFD_CLOEXEC)
        try:
            os.write(memory, content)
            yield f"/proc/self/fd/{memory}"
        finally:
            os.close(memory)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _quiet_grpclib() -> None:
    """Keeps strangers from filling the log: grpclib prints a traceback for each malformed call."""
    for name in ("grpclib.server", "grpclib.protocol"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
