"""The bootstrap service on its socket: gRPC over TLS 1.3, for agents that hold the shared secret.

Invariant: what an unauthenticated peer can make this process hold or do is bounded: connections in all and per source,
bytes, frames and seconds per connection, and the loop's time for all together (`Turns`). A connection is counted from
the accept on, before its first byte; when there are too many, the oldest gives way. Anything that is not a call of ours
over TLS 1.3 and HTTP/2 is closed without a word, and reported once per source and minute. Who may have a session is the
caller's `authenticate`.
"""

import asyncio
import contextlib
import errno
import inspect
import ipaddress
import logging
import os
import socket
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grpclib import GRPCError, Status
from grpclib.const import Cardinality
from grpclib.const import Handler as Method
from grpclib.encoding.base import CodecBase
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream

from hivenet_router.adapters.grpc_connection import CONNECTION_BYTES_MAX, GrpcConnection
from hivenet_router.adapters.listening import addresses_to_bind
from hivenet_router.adapters.turns import Turns
from hivenet_router.names.protocol_ids import GRPC_ALPN, GRPC_AUTHENTICATE, GRPC_HEALTH_CHECK
from hivenet_router.wire.auth_messages import (
    REQUEST_BYTES_MAX,
    AuthMessageInvalid,
    AuthOutcome,
    AuthRequest,
    Health,
    decode_request,
    encode_health,
    encode_outcome,
)
from hivenet_router.wire.tls_identity import GrpcIdentity

CONNECTION_LIFE_S: Final = 30.0
HANDSHAKE_S: Final = 10.0
CONNECTIONS_MAX: Final = 1024
CONNECTIONS_PER_SOURCE_MAX: Final = 256
"""Many agents may stand behind one address translator, and come back together after a restart."""
BACKLOG: Final = 128
ACCEPTS_PER_TURN: Final = 8
_MESSAGE_HEAD_BYTES: Final = 5
"""gRPC's own: whether the message is compressed, and its length."""
ACCEPT_RETRY_S: Final = 0.2
REPORT_INTERVAL_S: Final = 60.0
REPORTED_SOURCES_MAX: Final = 1024
TALKATIVE_LOGGERS: Final = ("grpclib.server", "grpclib.protocol")
ANY_SOURCE: Final = "(any)"
OUT_OF_FILES: Final = (
    "out of file descriptors, and each connection takes one; raise the limit of open files of this process "
    "(ulimit -n, LimitNOFILE=)"
)

Authenticate = Callable[[AuthRequest, str], Awaitable[AuthOutcome] | AuthOutcome]
"""Given a request and the source IP, the outcome to send."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the peers of the bootstrap service may use up; times in seconds."""

    message_bytes_max: int = REQUEST_BYTES_MAX
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
        self._turns = Turns()
        # By source, the oldest first.
        self._open: dict[str, dict[GrpcConnection, None]] = {}
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Binds and listens; called once, by `serve_bootstrap`."""
        quiet_grpclib()
        try:
            self._listeners = await _listen(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            # Of the same kind, as what to do depends on it.
            told = f"the gRPC bootstrap cannot listen on {host or '*'}:{port}: {reason}"
            raise type(error)(error.errno, told) from error
        for listener in self._listeners:
            self._await_arrivals(listener)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of every listening socket."""
        return tuple(listener.getsockname()[:2] for listener in self._listeners)

    async def close(self) -> None:
        """Stops listening, cuts every connection and returns when nothing of this server runs any more."""
        loop = asyncio.get_running_loop()
        self._turns.close()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners = []
        for connections in list(self._open.values()):
            for connection in list(connections):
                connection.cut()
        if self._connections:
            await asyncio.wait(self._connections)

    def _await_arrivals(self, listener: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listener, self._arrivals, listener)

    def _arrivals(self, listener: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(listener)
        self._turns.add(ANY_SOURCE, lambda: self._accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        """Takes the next few who wait; the rest has another turn, behind those who are here already."""
        if listener not in self._listeners:
            return
        try:
            for _ in range(ACCEPTS_PER_TURN):
                accepted, peername = listener.accept()
                self._arrive(accepted, str(peername[0]))
        except BlockingIOError:
            pass
        except OSError as error:
            # Out of descriptors, or the peer left already; neither ends the service.
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._refuse(ANY_SOURCE, OUT_OF_FILES)
            asyncio.get_running_loop().call_later(ACCEPT_RETRY_S, self._retry_accept, listener)
            return
        self._await_arrivals(listener)

    def _retry_accept(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._await_arrivals(listener)

    def _arrive(self, accepted: socket.socket, source: str) -> None:
        """Room for who comes: the oldest connection gives way, which of all is the least likely to be an agent's."""
        network = network_of(source)
        here = self._open.get(network, {})
        if len(here) >= self._bounds.connections_per_source_max:
            _cut_oldest(here, "too many connections from this address: the oldest gave way")
        elif len(self._connections) >= self._bounds.connections_max:
            most = max(self._open.values(), key=len, default=here)
            _cut_oldest(most, "too many connections: the oldest of the address with most gave way")
        connection = GrpcConnection(
            accepted,
            (source, network),
            self._tls,
            self._service.new_protocol,
            self._turns,
            self._bounds.connection_bytes_max,
        )
        self._open.setdefault(network, {})[connection] = None
        task = asyncio.get_running_loop().create_task(self._serve(connection, source))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    def _leave(self, connection: GrpcConnection, network: str) -> None:
        here = self._open.get(network, {})
        here.pop(connection, None)
        if not here:
            self._open.pop(network, None)

    def _refuse(self, source: str, reason: str) -> None:
        self._ledger.add(source, reason, now=asyncio.get_running_loop().time())

    async def _serve(self, connection: GrpcConnection, source: str) -> None:
        """One connection from accept to end."""
        try:
            async with asyncio.timeout(self._bounds.connection_life_s):
                try:
                    async with asyncio.timeout(self._bounds.handshake_s):
                        await connection.settled.wait()
                except TimeoutError:
                    connection.cut(f"no TLS 1.3 handshake within {self._bounds.handshake_s:g} s")
                await connection.over.wait()
        except TimeoutError:
            connection.cut(f"open for {self._bounds.connection_life_s:g} s")
        finally:
            connection.cut()
            self._leave(connection, network_of(source))
            await connection.calls_ended()
        if connection.fault is not None:
            self._refuse(source, connection.fault)


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

    def new_protocol(self) -> H2Protocol:
        return self._grpc._protocol_factory()

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
        """The one message of a call, refused by its length before its bytes have come."""
        head = await _bytes_of(stream, _MESSAGE_HEAD_BYTES)
        if len(head) < _MESSAGE_HEAD_BYTES:
            raise GRPCError(Status.INVALID_ARGUMENT, "the call carries no message")
        if head[0]:
            raise GRPCError(Status.UNIMPLEMENTED, "messages are not compressed here")
        length = int.from_bytes(head[1:])
        if length > self._bounds.message_bytes_max:
            raise GRPCError(
                Status.RESOURCE_EXHAUSTED,
                f"a message has at most {self._bounds.message_bytes_max} bytes, and this one {length}: "
                "what the agent says about itself is too long",
            )
        return await _bytes_of(stream, length)


async def _bytes_of(stream: Stream[bytes, bytes], length: int) -> bytes:
    try:
        return await stream._stream.recv_data(length)
    # grpclib's own way to say that the call ended before.
    except AssertionError as error:
        raise GRPCError(Status.INVALID_ARGUMENT, "the call's message is cut short") from error


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


def _cut_oldest(connections: dict[GrpcConnection, None], why: str) -> None:
    # There may be none: those that were cut just now count until their tasks have ended.
    if oldest := next(iter(connections), None):
        del connections[oldest]
        oldest.cut(why)


def network_of(source: str) -> str:
    """By what connections are counted and take turns: an IPv4 address, or the /64 that one IPv6 host may use freely."""
    if ":" not in source:
        return source
    return str(ipaddress.ip_network((source.partition("%")[0], 64), strict=False))


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


def quiet_grpclib() -> None:
    """Keeps strangers from filling the log: grpclib prints a traceback for each malformed call.

    What an operator has asked to hear of it stands.
    """
    if logging.getLogger("grpclib").level == logging.NOTSET:
        for name in TALKATIVE_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
