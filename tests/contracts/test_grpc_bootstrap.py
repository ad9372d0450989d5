"""The bootstrap service on real sockets, on both event loops: who is served, who is cut, and that it lives on."""

import asyncio
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
from grpclib import GRPCError, Status
from grpclib.client import Channel
from grpclib.const import Cardinality
from tests.contracts.grpc_house import (
    CONFIG,
    INFO,
    LOOPS,
    SECRET,
    Run,
    answer,
    ends,
    house,
    raw_tls,
    request_with,
    running_on,
    until,
)

from hivenet_router.adapters.grpc_client import (
    AuthenticationRefused,
    RouterFault,
    RouterUnreachable,
    _PinnedChannel,
    authenticate,
    client_context,
    split_target,
)
from hivenet_router.adapters.grpc_server import (
    REPORT_INTERVAL_S,
    REPORTED_SOURCES_MAX,
    Bounds,
    Refused,
    _as_file,
    _RefusalLedger,
    serve_bootstrap,
)
from hivenet_router.core.bootstrap import acceptance
from hivenet_router.names.protocol_ids import GRPC_AUTHENTICATE, GRPC_HEALTH_CHECK, GRPC_SERVICE
from hivenet_router.wire.auth_messages import AuthOutcome, AuthRequest, Health, decode_health, encode_request
from hivenet_router.wire.tls_identity import grpc_identity, grpc_pin


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    yield from running_on(request.param)


async def call(target: str, path: str, message: bytes) -> bytes | None:
    host, port = split_target(target)
    channel = _PinnedChannel(target, host, port, [grpc_pin(SECRET)])
    try:
        async with channel.request(path, Cardinality.UNARY_UNARY, bytes, bytes, timeout=10) as stream:
            await stream.send_message(message, end=True)
            return await stream.recv_message()
    finally:
        channel.close()


def test_an_agent_with_the_secret_gets_its_session(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            outcome = await authenticate(here.target, [grpc_pin(SECRET)], request_with())

            assert outcome == acceptance("f" * 64, libp2p_info=INFO, config=CONFIG, router_id="r0")
            assert here.calls == [(request_with(), "127.0.0.1")]
            assert here.refused == []

    run(scene())


def test_an_awaited_answer_serves_as_well(run: Run) -> None:
    async def later(request: AuthRequest, _source: str) -> AuthOutcome:
        await asyncio.sleep(0)
        return answer(request)

    async def scene() -> None:
        server = await serve_bootstrap(("127.0.0.1", 0), grpc_identity(SECRET), later, lambda _: None)
        host, port = server.addresses[0]
        try:
            assert (await authenticate(f"{host}:{port}", [grpc_pin(SECRET)], request_with())).success
        finally:
            await server.close()

    run(scene())


def test_a_call_without_metadata_is_refused_and_the_router_lives_on(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            with pytest.raises(AuthenticationRefused) as caught:
                await authenticate(here.target, [grpc_pin(SECRET)], request_with(metadata=None))
            assert caught.value.message == "Invalid metadata: model is required"

            with pytest.raises(AuthenticationRefused, match="Authentication failed"):
                await authenticate(here.target, [grpc_pin(SECRET)], AuthRequest("", None))
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

    run(scene())


def test_the_health_check_is_answered(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            health = await call(here.target, GRPC_HEALTH_CHECK, b"")

            assert decode_health(health or b"") == Health(healthy=True, status="serving")

    run(scene())


def test_a_method_we_do_not_have_is_unimplemented(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            with pytest.raises(GRPCError) as caught:
                await call(here.target, f"/{GRPC_SERVICE}/Enrol", b"")

            assert caught.value.status is Status.UNIMPLEMENTED

    run(scene())


def test_bytes_that_are_no_request_are_an_invalid_argument(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            with pytest.raises(GRPCError) as caught:
                await call(here.target, GRPC_AUTHENTICATE, b"\xff\xff\xff")

            assert caught.value.status is Status.INVALID_ARGUMENT
            assert here.calls == []

    run(scene())


def test_a_call_without_a_message_is_an_invalid_argument(run: Run) -> None:
    async def say_nothing(channel: Channel) -> None:
        async with channel.request(GRPC_AUTHENTICATE, Cardinality.STREAM_UNARY, bytes, bytes) as stream:
            await stream.send_request()
            await stream.end()
            await stream.recv_message()

    async def scene() -> None:
        async with house() as here:
            host, port = split_target(here.target)
            channel = _PinnedChannel(here.target, host, port, [grpc_pin(SECRET)])
            with pytest.raises(GRPCError) as caught:
                await say_nothing(channel)
            channel.close()

            assert caught.value.status is Status.INVALID_ARGUMENT

    run(scene())


def test_frames_of_a_kind_that_grpclib_does_not_know_end_their_connection_only(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            reader, writer = await raw_tls(here.port, client_context())
            connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
            connection.initiate_connection()
            writer.write(connection.data_to_send() + b"\0\0\0\xee\0\0\0\0\0")
            await ends(reader)
            writer.close()
            await until(lambda: bool(here.refused))

            assert here.refused[0].reason == "not HTTP/2 as gRPC speaks it"
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

    run(scene())


def test_a_peer_that_leaves_before_or_in_the_handshake_costs_nothing(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            for words in (b"", b"\x16\x03\x01\x02\x00"):
                _, writer = await asyncio.open_connection("127.0.0.1", here.port)
                writer.write(words)
                await writer.drain()
                writer.transport.abort()
            await until(lambda: bool(here.refused) and not here.server._connections)

            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

    run(scene())


def test_a_fault_of_ours_is_an_error_to_the_agent_and_no_end_of_the_service(run: Run) -> None:
    def broken(request: AuthRequest) -> AuthOutcome:
        if request.metadata is None:
            raise RuntimeError("a fault of this test")
        return answer(request)

    async def scene() -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(repr(context["exception"])))
        async with house(reply=broken) as here:
            with pytest.raises(RouterFault, match="answered with INTERNAL: internal error"):
                await authenticate(here.target, [grpc_pin(SECRET)], request_with(metadata=None))
            assert told == ["RuntimeError('a fault of this test')"]
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

    run(scene())


def test_a_message_over_the_bound_is_refused_and_one_at_the_bound_is_read(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            fixed = len(encode_request(AuthRequest("x" * 10_000, None))) - 10_000
            with pytest.raises(AuthenticationRefused):
                await authenticate(here.target, [grpc_pin(SECRET)], AuthRequest("x" * ((16 << 10) - fixed), None))
            for too_long in ((16 << 10) + 1, 30_000, 10_000_000):
                with pytest.raises(GRPCError, match=f"at most 16384 bytes, and this one {too_long}") as caught:
                    await call(here.target, GRPC_AUTHENTICATE, bytes(too_long))
                assert caught.value.status is Status.RESOURCE_EXHAUSTED

    run(scene())


async def flood(port: int, declared_bytes: int) -> int:
    """Sends one message of the declared length, frame by frame as the server's windows allow; says how far it got."""
    reader, writer = await raw_tls(port, client_context())
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    connection.send_headers(
        1,
        [
            (":method", "POST"),
            (":scheme", "https"),
            (":path", GRPC_AUTHENTICATE),
            (":authority", "router"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ],
    )
    connection.send_data(1, struct.pack(">BI", 0, declared_bytes))
    writer.write(connection.data_to_send())
    sent, chunk = 0, bytes(16 << 10)
    try:
        while sent < declared_bytes:
            if connection.local_flow_control_window(1) >= len(chunk):
                connection.send_data(1, chunk)
                sent += len(chunk)
                writer.write(connection.data_to_send())
                await writer.drain()
            else:
                data = await reader.read(65536)
                if not data:
                    break
                connection.receive_data(data)
                writer.write(connection.data_to_send())
            if reader.at_eof():
                break
            await asyncio.sleep(0)
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return sent


def test_a_message_of_200_megabytes_is_cut_after_the_first_few_frames(run: Run) -> None:
    """What the sender gets rid of is what fits the bound and the sockets; the router holds no more than the bound."""

    async def scene() -> None:
        async with house() as here:
            sent = await flood(here.port, 200_000_000)
            await until(lambda: bool(here.refused))

            assert sent < 1_000_000
            assert here.refused == [Refused("127.0.0.1", "sent more than one message may have", 1)]
            assert here.calls == []
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

    run(scene())


def test_tls_1_2_is_refused_and_reported(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            context = client_context()
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await raw_tls(here.port, context)
            await until(lambda: bool(here.refused))

            assert here.refused[0].source == "127.0.0.1"
            assert here.refused[0].reason == "no TLS 1.3 handshake: unsupported protocol"

    run(scene())


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 64, b"SSH-2.0-x\r\n"])
def test_other_bytes_are_closed_without_an_answer_in_their_language_and_reported(run: Run, words: bytes) -> None:
    async def scene() -> None:
        async with house() as here:
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(words)
            said = await ends(reader)
            writer.close()
            await until(lambda: bool(here.refused))

            assert b"HTTP" not in said
            assert here.refused[0].reason.startswith("no TLS 1.3 handshake: ")

    run(scene())


def test_http_1_1_inside_tls_is_closed(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            reader, writer = await raw_tls(here.port, client_context())
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await ends(reader)
            writer.close()
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

    run(scene())


@pytest.mark.parametrize("protocols", [[], ["http/1.1"]])
def test_without_h2_in_alpn_the_handshake_completes_and_the_server_closes(run: Run, protocols: list[str]) -> None:
    async def scene() -> None:
        async with house() as here:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if protocols:
                context.set_alpn_protocols(protocols)
            reader, writer = await raw_tls(here.port, context)
            assert await ends(reader) == b""
            writer.close()
            await until(lambda: bool(here.refused))

            assert here.refused[0].reason == "no h2 in ALPN"

    run(scene())


def test_a_connection_that_says_nothing_is_cut_when_its_time_is_up(run: Run) -> None:
    async def scene() -> None:
        async with house(Bounds(connection_life_s=0.05)) as here:
            reader, writer = await raw_tls(here.port, client_context())
            await ends(reader)
            writer.close()
            await until(lambda: bool(here.refused))

            assert here.refused[0].reason == "open for 0.05 s"

    run(scene())


def test_a_handshake_that_does_not_come_is_cut(run: Run) -> None:
    async def scene() -> None:
        async with house(Bounds(handshake_s=0.05)) as here:
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            await ends(reader)
            writer.close()
            await until(lambda: bool(here.refused))

            assert here.refused[0].reason.startswith("no TLS 1.3 handshake")

    run(scene())


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (Bounds(connections_max=2), "too many connections: the oldest of the address with most gave way"),
        (Bounds(connections_per_source_max=2), "too many connections from this address: the oldest gave way"),
    ],
)
def test_connections_are_counted_from_the_accept_on_and_the_oldest_gives_way(
    run: Run, bounds: Bounds, reason: str
) -> None:
    async def scene() -> None:
        async with house(bounds) as here:
            silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(2)]
            await until(lambda: len(here.server._connections) == 2)
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

            assert await ends(silent[0][0]) == b""
            assert not silent[1][0].at_eof()
            assert here.refused == [Refused("127.0.0.1", reason, 1)]
            for _, each in silent:
                each.close()
            await until(lambda: not here.server._connections)

    run(scene())


def test_where_all_room_is_taken_the_address_with_most_connections_gives_way(run: Run) -> None:
    async def scene() -> None:
        async with house(Bounds(connections_max=3)) as here:
            many = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(2)]
            one = await asyncio.open_connection("127.0.0.1", here.port, local_addr=("127.0.0.2", 0))
            other = await asyncio.open_connection("127.0.0.1", here.port, local_addr=("127.0.0.3", 0))

            assert await ends(many[0][0]) == b""
            assert not any(reader.at_eof() for reader, _ in (many[1], one, other))
            assert [refused.source for refused in here.refused] == ["127.0.0.1"]
            for _, each in (*many, one, other):
                each.close()

    run(scene())


def test_close_cuts_what_is_open_and_leaves_nothing_running(run: Run) -> None:
    async def never(_request: AuthRequest, _source: str) -> AuthOutcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    started = asyncio.Event()

    async def scene() -> None:
        idle = asyncio.all_tasks()
        server = await serve_bootstrap(("127.0.0.1", 0), grpc_identity(SECRET), never, lambda _: None)
        host, port = server.addresses[0]
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(fails_with_closed(f"{host}:{port}"))
            await started.wait()
            await server.close()
            await calling
        assert asyncio.all_tasks() == idle
        assert server.addresses == ()
        await server.close()

    async def fails_with_closed(target: str) -> None:
        with pytest.raises(RouterUnreachable):
            await authenticate(target, [grpc_pin(SECRET)], request_with())

    run(scene())


def test_a_port_in_use_is_named(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{here.port}"):
                await serve_bootstrap(
                    ("127.0.0.1", here.port), grpc_identity(SECRET), lambda request, _: answer(request), lambda _: None
                )

    run(scene())


def test_an_address_that_is_not_of_this_machine_is_named(run: Run) -> None:
    async def scene() -> None:
        with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0"):
            await serve_bootstrap(
                ("192.0.2.1", 0), grpc_identity(SECRET), lambda request, _: answer(request), lambda _: None
            )

    run(scene())


def test_a_name_is_served_on_each_of_its_addresses(run: Run) -> None:
    async def scene() -> None:
        server = await serve_bootstrap(
            ("localhost", 0), grpc_identity(SECRET), lambda request, _: answer(request), lambda _: None
        )
        try:
            for host, port in server.addresses:
                assert (await authenticate(f"[{host}]:{port}", [grpc_pin(SECRET)], request_with())).success
            assert server.addresses
        finally:
            await server.close()

    run(scene())


def test_refusals_are_reported_once_per_source_and_minute_with_their_number() -> None:
    seen: list[Refused] = []
    ledger = _RefusalLedger(seen.append)

    for second in range(0, 61, 10):
        ledger.add("a", "r", now=float(second))
    ledger.add("b", "r", now=61.0)

    assert seen == [Refused("a", "r", 1), Refused("a", "r", 6), Refused("b", "r", 1)]
    assert REPORT_INTERVAL_S == 60


def test_the_ledger_of_refusals_does_not_grow_with_the_sources() -> None:
    ledger = _RefusalLedger(lambda _: None)

    for number in range(REPORTED_SOURCES_MAX * 2):
        ledger.add(str(number), "r", now=0.0)

    assert len(ledger._sources) == REPORTED_SOURCES_MAX


@pytest.mark.parametrize("memory", [True, False])
def test_the_key_is_readable_only_while_the_block_runs_and_only_by_us(
    monkeypatch: pytest.MonkeyPatch, memory: bool
) -> None:
    if not memory:
        monkeypatch.delattr("os.memfd_create", raising=False)

    with _as_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        assert memory or Path(path).stat().st_mode & 0o777 == 0o600

    assert not Path(path).is_file()
