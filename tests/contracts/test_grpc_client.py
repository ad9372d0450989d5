"""The agent's side of the bootstrap on real sockets, on both event loops: the pin, and what each failure is called."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from grpclib.client import Channel
from grpclib.const import Cardinality, Handler
from grpclib.server import Handler as ServerHandler
from grpclib.server import Server, Stream
from tests.contracts.grpc_house import LOOPS, OTHER, SECRET, Run, ends, house, request_with, running_on

from hivenet_router.adapters.grpc_client import (
    AuthenticationRefused,
    RouterFault,
    RouterUnreachable,
    WrongSecret,
    _Bytes,
    _PinnedChannel,
    authenticate,
    split_target,
)
from hivenet_router.adapters.grpc_server import server_context
from hivenet_router.names.protocol_ids import GRPC_AUTHENTICATE
from hivenet_router.wire import auth_pb2
from hivenet_router.wire.auth_messages import AuthOutcome, decode_outcome
from hivenet_router.wire.tls_identity import grpc_identity, grpc_pin


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    yield from running_on(request.param)


class Fixed:
    """A service that gives one answer, whatever it is asked."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    def __mapping__(self) -> dict[str, Handler]:
        return {GRPC_AUTHENTICATE: Handler(self._answer, Cardinality.UNARY_UNARY, bytes, bytes)}

    async def _answer(self, stream: Stream[bytes, bytes]) -> None:
        await stream.recv_message()
        await stream.send_message(self._reply)


@asynccontextmanager
async def foreign_router(reply: bytes) -> AsyncIterator[str]:
    """A router of someone else's make that holds the secret; gives its target."""
    server = Server([Fixed(reply)], codec=_Bytes())
    listener = socket.create_server(("127.0.0.1", 0))
    await server.start(sock=listener, ssl=server_context(grpc_identity(SECRET)))
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def decrypt_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> bytes:
    """Plays a TLS server that answers nothing, until the client is gone; gives every byte it sent inside."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    received = b""
    while True:
        try:
            data = await reader.read(65536)
        except OSError:
            return received
        if not data:
            return received
        incoming.write(data)
        try:
            tls.do_handshake()
            while more := tls.read(65536):
                received += more
        except ssl.SSLError:
            pass  # it wants more bytes, or the client has said goodbye
        writer.write(outgoing.read())


def test_during_a_rotation_either_pin_is_good(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            outcome = await authenticate(here.target, [grpc_pin(OTHER), grpc_pin(SECRET)], request_with())

            assert outcome.success

    run(scene())


def test_with_a_wrong_pin_not_a_byte_of_http2_reaches_the_router(run: Run) -> None:
    """The other side here only does TLS and keeps every byte that a client sends through it."""

    async def scene() -> None:
        received = bytearray()
        over = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.extend(await decrypt_all(reader, writer, server_context(grpc_identity(OTHER))))
            writer.close()
            over.set()

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(WrongSecret, match="holds another secret"):
                await authenticate(f"127.0.0.1:{port}", [grpc_pin(SECRET)], request_with())
            await over.wait()
            assert received == b""

            over.clear()
            with pytest.raises(RouterUnreachable):
                await authenticate(f"127.0.0.1:{port}", [grpc_pin(OTHER)], request_with(), timeout_s=0.2)
            await over.wait()
            assert received.startswith(b"PRI * HTTP/2.0")  # with the right pin the same setting does see bytes

    run(scene())


def test_a_wrong_pin_makes_no_call_at_our_router(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            with pytest.raises(WrongSecret):
                await authenticate(here.target, [grpc_pin(OTHER)], request_with())
            with pytest.raises(WrongSecret):
                await authenticate(here.target, [], request_with())

            assert here.calls == []

    run(scene())


def test_a_token_of_another_secret_is_refused_with_the_reason(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            with pytest.raises(AuthenticationRefused, match="signature does not match") as caught:
                await authenticate(here.target, [grpc_pin(SECRET)], request_with(secret=OTHER))

            assert caught.value.message.startswith("Authentication failed: invalid token: ")

    run(scene())


def test_a_name_that_is_none_is_unreachable(run: Run) -> None:
    async def scene() -> None:
        with pytest.raises(RouterUnreachable, match="is no host name"):
            await authenticate("a..b:50051", [grpc_pin(SECRET)], request_with())

    run(scene())


def test_an_address_where_nobody_listens_is_unreachable(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            target = here.target
        with pytest.raises(RouterUnreachable, match=f"router {target} cannot be reached"):
            await authenticate(target, [grpc_pin(SECRET)], request_with())

    run(scene())


def test_a_port_that_speaks_no_tls_is_named_as_such(run: Run) -> None:
    async def scene() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await reader.read(1)
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(RouterUnreachable, match="does not speak TLS"):
                await authenticate(f"127.0.0.1:{port}", [grpc_pin(SECRET)], request_with())

    run(scene())


def test_a_router_that_does_not_answer_is_given_up(run: Run) -> None:
    async def scene() -> None:
        async def sit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await ends(reader)
            writer.close()

        server = await asyncio.start_server(sit, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(RouterUnreachable, match=r"did not answer within 0\.05 s"):
                await authenticate(f"127.0.0.1:{port}", [grpc_pin(SECRET)], request_with(), timeout_s=0.05)

    run(scene())


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (auth_pb2.AuthResponse(success=True), "session token"),
        (auth_pb2.AuthResponse(success=True, session_token="t"), "where to connect"),
        (
            auth_pb2.AuthResponse(
                success=True, session_token="t", libp2p_info=auth_pb2.LibP2PInfo(addresses=["/ip4/127.0.0.1/tcp/1"])
            ),
            "configuration",
        ),
    ],
)
def test_an_acceptance_that_lacks_what_an_agent_needs_is_a_fault(
    run: Run, sent: auth_pb2.AuthResponse, says: str
) -> None:
    async def scene() -> None:
        async with foreign_router(sent.SerializeToString()) as target:
            with pytest.raises(RouterFault, match=says):
                await authenticate(target, [grpc_pin(SECRET)], request_with())

    run(scene())


@pytest.mark.parametrize(("answer_bytes", "error"), [(b"\xff\xff", RouterFault), (bytes(2 << 20), RouterUnreachable)])
def test_an_answer_that_is_no_message_or_too_long_is_a_fault(
    run: Run, answer_bytes: bytes, error: type[Exception]
) -> None:
    async def scene() -> None:
        async with foreign_router(answer_bytes) as target:
            with pytest.raises(error):
                await authenticate(target, [grpc_pin(SECRET)], request_with())

    run(scene())


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("localhost:50051", ("localhost", 50051)),
        ("[::1]:1", ("::1", 1)),
        ("dns:///router.example:443", ("router.example", 443)),
    ],
)
def test_a_target_is_host_and_port(target: str, parts: tuple[str, int]) -> None:
    assert split_target(target) == parts


@pytest.mark.parametrize(
    "target", ["", "router", ":50051", "router:", "router:http", "router:0", "router:65536", "::1:1"]
)
def test_a_target_that_is_not_host_and_port_is_refused(target: str) -> None:
    with pytest.raises(RouterUnreachable, match="is not an address of the form host:port"):
        split_target(target)


def test_the_private_names_of_grpclib_that_we_build_on_are_there(run: Run) -> None:
    """An upgrade that renames them must fail here, not by leaving the pin unchecked or the bounds off."""
    assert asyncio.iscoroutinefunction(Channel._create_connection)
    assert Channel.__connect__.__code__.co_names.count("_create_connection") == 1

    async def scene() -> None:
        channel = _PinnedChannel("t", "127.0.0.1", 1, [])
        plain = Channel._protocol_factory(channel)
        assert {"handler", "config", "h2_config"} <= vars(plain).keys()
        assert type(channel._protocol_factory()) is not type(plain)
        server = Server([])
        assert isinstance(server._mapping, dict)
        assert isinstance(server._protocol_factory().handler, ServerHandler)

    run(scene())


def test_a_message_passes_the_codec_unchanged() -> None:
    codec = _Bytes()

    assert codec.decode(codec.encode(b"x", bytes), bytes) == b"x"
    assert decode_outcome(b"") == AuthOutcome(success=False)
