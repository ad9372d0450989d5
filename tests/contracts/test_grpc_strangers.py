"""The bootstrap port under strangers: what they send is cut at its bound, and agents are served beside them."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from bench.work.grpc import call, frame, headers, shapes
from hpack.table import HeaderTable
from tests.contracts.grpc_house import LOOPS, SECRET, Run, ends, house, raw_tls, request_with, running_on, until

from hivenet_router.adapters.grpc_client import RegistrationTooLong, authenticate, client_context
from hivenet_router.adapters.grpc_connection import READS_MAX
from hivenet_router.adapters.grpc_server import Bounds, network_of
from hivenet_router.names.protocol_ids import GRPC_HEALTH_CHECK
from hivenet_router.wire.auth_messages import AgentMetadata
from hivenet_router.wire.http2_frames import DATA, FRAMES_MAX, HEADERS, PING, PRIORITY, SETTINGS, WINDOW_UPDATE
from hivenet_router.wire.tls_identity import grpc_pin

START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS)
NO_HTTP2 = "not HTTP/2 as gRPC speaks it"
CUT = {
    "references to one entry, 38 blocks": "sent more than 4 HEADERS frames",
    "references to one entry, four blocks within the list": None,
    "references to one entry, a block of 8 KiB": None,
    "references to a long entry": None,
    "empty literals": None,
    "one Huffman value": None,
    "table size updates": None,
    "CONTINUATION without end": "sent more than 4 CONTINUATION frames",
    "8,800 empty SETTINGS": "sent more than 8 SETTINGS frames",
    "4,600 PINGs": "sent more than 16 PING frames",
    "WINDOW_UPDATEs": "sent more than 32 WINDOW_UPDATE frames",
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    yield from running_on(request.param)


async def said_to(port: int, data: bytes) -> bytes:
    reader, writer = await raw_tls(port, client_context())
    writer.write(data)
    answer = await ends(reader)
    writer.transport.abort()
    return answer


@pytest.mark.parametrize("shape", CUT)
def test_costly_input_ends_its_connection_and_agents_are_served_beside_it(run: Run, shape: str) -> None:
    async def scene() -> None:
        async with house() as here:
            async with asyncio.TaskGroup() as group:
                for _ in range(40):
                    group.create_task(said_to(here.port, shapes()[shape]))
                assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

            await until(lambda: not here.server._connections)
            assert [refused.reason for refused in here.refused] == ([CUT[shape]] if CUT[shape] else [])

    run(scene())


def test_at_most_so_many_header_fields_are_decoded_for_one_connection(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    plain = HeaderTable.get_by_index

    def counted(table: HeaderTable, index: int) -> tuple[bytes, bytes]:
        decoded.append(index)
        return plain(table, index)

    monkeypatch.setattr(HeaderTable, "get_by_index", counted)

    async def scene() -> None:
        async with house() as here:
            await said_to(here.port, shapes()["references to one entry, 38 blocks"])
            assert len(decoded) < 300

    run(scene())


def test_a_connection_with_some_of_every_frame_is_answered(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            reader, writer = await raw_tls(here.port, client_context())
            around = (
                frame(SETTINGS) * (FRAMES_MAX[SETTINGS] - 1)
                + frame(PING, bytes(8)) * FRAMES_MAX[PING]
                + frame(WINDOW_UPDATE, b"\0\0\0\1") * FRAMES_MAX[WINDOW_UPDATE]
                + frame(PRIORITY, bytes(3) + b"\x05\0", stream=9) * FRAMES_MAX[PRIORITY]
            )
            writer.write(START + around + call(b"", GRPC_HEALTH_CHECK))
            said = b""
            while b"serving" not in said:
                more = await reader.read(4096)
                assert more, said
                said += more
            writer.transport.abort()

    run(scene())


def test_a_message_may_come_in_as_many_frames_as_the_bound_says(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            head = headers(call(b"", GRPC_HEALTH_CHECK)[9:].split(frame(DATA, bytes(5), flags=1, stream=1))[0])
            for frames, answered in ((FRAMES_MAX[DATA], True), (FRAMES_MAX[DATA] + 1, False)):
                body = [b"\0" + (frames - 1).to_bytes(4), *[b"x"] * (frames - 1)]
                parts = [frame(DATA, part, flags=at == frames - 1, stream=1) for at, part in enumerate(body)]
                reader, writer = await raw_tls(here.port, client_context())
                writer.write(START + head + b"".join(parts))
                said = b""
                while b"serving" not in said and (more := await reader.read(4096)):
                    said += more
                assert (b"serving" in said) is answered
                writer.transport.abort()

    run(scene())


def test_more_streams_at_once_than_an_agent_has_end_the_connection(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            started = call(b"", GRPC_HEALTH_CHECK)[: -len(frame(DATA, bytes(5)))]
            blocks = [frame(HEADERS, started[9:], flags=4, stream=stream) for stream in (1, 3, 5)]
            assert b"serving" not in await said_to(here.port, START + b"".join(blocks))
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success

    run(scene())


def test_bytes_in_many_small_pieces_end_the_connection(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            reader, writer = await raw_tls(here.port, client_context())
            ended = asyncio.create_task(ends(reader))
            for byte in START + frame(DATA, bytes(READS_MAX * 2), stream=1):
                if ended.done():
                    break
                writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            await ended
            writer.transport.abort()
            await until(lambda: bool(here.refused))

            assert "pieces" in here.refused[0].reason

    run(scene())


def test_three_hundred_silent_connections_do_not_delay_an_agent_of_their_address(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(300)]
            outcome = await authenticate(here.target, [grpc_pin(SECRET)], request_with(), timeout_s=5)
            assert outcome.success
            for _, writer in silent:
                writer.transport.abort()

    run(scene())


@pytest.mark.parametrize(
    ("source", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_connections_are_counted_by_what_one_host_may_use_freely(source: str, network: str) -> None:
    assert network_of(source) == network


def test_connections_that_arrive_and_are_cut_in_one_burst_leave_the_port_listening(run: Run) -> None:
    async def scene() -> None:
        async with house(Bounds(connections_max=1)) as here:
            burst = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(50)]
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success
            for each in burst:
                each.close()

    run(scene())


def test_who_never_had_a_handshake_leaves_nothing_behind(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            for _ in range(50):
                _, writer = await asyncio.open_connection("127.0.0.1", here.port)
                writer.transport.abort()
            assert (await authenticate(here.target, [grpc_pin(SECRET)], request_with())).success
            await until(lambda: not here.server._connections)

            assert len(here.server._service._grpc._handlers) == 1
            assert here.server._open == {}

    run(scene())


def test_an_agent_with_too_much_to_say_is_told_so_before_it_sends_anything(run: Run) -> None:
    async def scene() -> None:
        async with house() as here:
            metadata = AgentMetadata(model="m", llm_info="x" * (16 << 10))
            with pytest.raises(RegistrationTooLong, match="a router reads at most 16384"):
                await authenticate(here.target, [grpc_pin(SECRET)], request_with(metadata))
            assert not here.server._connections

    run(scene())
