"""Whatever is said to the libp2p and the gRPC port is answered or cut, and ordinary requests go on beside it."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from tests.contracts.grpc_house import ends, raw_tls
from tests.house.client import CHAT, Address, ask, connected, hello
from tests.house.peers import Peer, asked, peer, session_for, until_lost
from tests.house.running import SECRET, House, free_port, house_in, ordinary_requests, router_in, until

from hivenet_router.adapters.clock import LoopClock
from hivenet_router.adapters.grpc_client import AuthenticationRefused, WrongSecret, authenticate, client_context
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.names.paths import INFERENCE_MOUNT, ROUTER_MOUNT
from hivenet_router.ports import RequestFailed
from hivenet_router.sim import SimOptions
from hivenet_router.wire.auth_messages import AuthRequest
from hivenet_router.wire.jwt import mint_agent_token
from hivenet_router.wire.tls_identity import grpc_pin

REGISTER: Final = f"{ROUTER_MOUNT}/register"
HEARTBEAT: Final = f"{ROUTER_MOUNT}/heartbeat"
SIGNALS: Final = f"{ROUTER_MOUNT}/routing-signals"


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with house_in(tmp_path) as house:
        async with ordinary_requests(house):
            yield house
        await house.rests()
        assert house.agents[0].agent.sessions[0].is_registered


class ShiftedClock:
    """A clock that a test can put forward."""

    def __init__(self) -> None:
        self._loop_clock = LoopClock()
        self.ahead_s = 0.0

    def now(self) -> Monotonic:
        """Seconds, and what the test put on top."""
        return Monotonic(self._loop_clock.now() + self.ahead_s)

    def unix(self) -> UnixTime:
        """Seconds, and what the test put on top."""
        return UnixTime(self._loop_clock.unix() + self.ahead_s)


# Raw bytes


GARBAGE: Final = {
    "http": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "zeros": b"\0" * 4096,
    "a negotiation of something else": b"\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n\x0a/plain/1\n",
    "an endless token": b"\xff\xff\xff\xff\x7f" + b"x" * 100_000,
    "noise that is none": b"\x13/multistream/1.0.0\n\x07/noise\n" + b"\x00\x20" + b"\xff" * 32 + b"\x00\x05hello",
    "a noise frame of 64 KiB": b"\x13/multistream/1.0.0\n\x07/noise\n" + b"\xff\xff" + b"\xff" * 65535,
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_bytes_that_are_no_libp2p_end_their_connection_only(house: House, name: str) -> None:
    async with connected(house.libp2p) as connection:
        connection.send(GARBAGE[name])
        connection.fin()
        said, ending = await connection.rest()
    assert ending in ("fin", "reset")
    assert b"HTTP/1.1 200" not in said


async def test_a_tls_hello_to_the_libp2p_port_fails(house: House) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.open_connection(*house.libp2p, ssl=context, ssl_handshake_timeout=20)


async def test_connections_that_say_nothing_do_not_keep_agents_out(house: House) -> None:
    silent = [socket.create_connection(house.libp2p) for _ in range(100)]
    try:
        engine = await house.add_engine()
        await house.add_agent(engine.url)
    finally:
        for connection in silent:
            connection.close()


# A peer without a session


def message(token: str = "f" * 64, **members: object) -> bytes:
    return json.dumps({"session_token": token, **members}).encode()


async def test_a_stranger_is_told_no_everywhere(house: House) -> None:
    async with peer(house) as stranger:
        asked: dict[tuple[str, str, bytes], tuple[int, bytes]] = {
            ("POST", REGISTER, message(peer_id=stranger.peer_id)): (401, b"invalid or expired session token\n"),
            ("POST", REGISTER, message("", peer_id=stranger.peer_id)): (401, b"invalid or expired session token\n"),
            ("POST", HEARTBEAT, message()): (401, b"invalid or expired session token\n"),
            ("POST", SIGNALS, message()): (401, b"invalid or expired session token\n"),
            ("POST", REGISTER, b"garbage"): (400, b"invalid request body\n"),
            ("POST", HEARTBEAT, b"\xff" * 100): (400, b"invalid request body\n"),
            # Of what is longer only the token is looked at, and what is too long for a stranger not at all.
            ("POST", HEARTBEAT, b"\xff" * 1000): (401, b"invalid or expired session token\n"),
            ("POST", SIGNALS, b"[" * 100_000): (401, b"invalid or expired session token\n"),
            ("POST", HEARTBEAT, b"x" * (2 << 20)): (401, b"invalid or expired session token\n"),
            ("POST", REGISTER, b"x" * (2 << 20)): (413, b"request body too large\n"),
            ("POST", f"{INFERENCE_MOUNT}{CHAT}", b"{}"): (404, b"404 page not found\n"),
            ("POST", CHAT, json.dumps(hello()).encode()): (404, b"404 page not found\n"),
            ("GET", "/metrics", b""): (404, b"404 page not found\n"),
            ("GET", "/health", b""): (404, b"404 page not found\n"),
            ("POST", f"{ROUTER_MOUNT}/../register", b"{}"): (404, b"404 page not found\n"),
        }
        for (method, path, body), expected in asked.items():
            got = await stranger.ask(method, path, body)
            assert (got.status, got.body()) == expected, (method, path)
        assert len(list(house.router.registry)) == 1


async def test_a_token_of_another_peer_is_of_no_use(house: House) -> None:
    async with peer(house) as owner, peer(house) as thief:
        token = (await session_for(house, owner.peer_id)).session_token
        for as_whom in (thief.peer_id, owner.peer_id):
            got = await thief.ask("POST", REGISTER, message(token, peer_id=as_whom))
            assert (got.status, got.body()) in (
                (403, b"peer ID mismatch\n"),
                (401, b"invalid or expired session token\n"),
            )
        assert (await owner.ask("POST", REGISTER, message(token, peer_id=owner.peer_id))).status == 200
        for path in (HEARTBEAT, SIGNALS):
            assert (await thief.ask("POST", path, message(token))).status == 401
            assert (await owner.ask("POST", path, message(token))).status == 200
        assert {agent.peer for agent in house.router.registry} == {house.agents[0].peer_id, owner.peer_id}
        # It is no agent to send requests to: that it does not answer is not what this test is about.
        await owner.ask("POST", HEARTBEAT, message(token, backend_healthy=False))


async def test_a_stranger_with_a_thousand_requests_is_held_to_his_share(house: House) -> None:
    async with peer(house) as stranger:
        answers = await asyncio.gather(
            *(stranger.ask("POST", HEARTBEAT, message(), within_s=2.0) for _ in range(1000)), return_exceptions=True
        )
        assert all(isinstance(answer, RequestFailed) or answer.status == 401 for answer in answers)  # type: ignore[union-attr]  # nothing else is raised
        assert any(not isinstance(answer, BaseException) for answer in answers)


async def test_who_does_not_register_in_time_is_cut_off_and_that_is_told_once(tmp_path: Path) -> None:
    async with router_in(tmp_path) as house, peer(house) as stranger, peer(house) as agent:
        token = (await session_for(house, agent.peer_id)).session_token
        assert (await agent.ask("POST", REGISTER, message(token, peer_id=agent.peer_id))).status == 200
        with capture_logs() as logs:
            await stranger.ask("POST", HEARTBEAT, message())
            await until_lost(stranger)
        assert (await agent.ask("POST", HEARTBEAT, message(token))).status == 200
        told = [line for line in logs if line.get("why") == "not_registered_in_time"]
        assert (len(told), agent.lost) == (1, [])


async def test_an_expired_session_is_refused_and_the_agent_is_let_in_with_a_new_one(tmp_path: Path) -> None:
    clock = ShiftedClock()
    flags = ("--session-ttl=400s", "--remove-after=2h")
    async with router_in(tmp_path, *flags, clock=clock) as house, peer(house) as agent:
        token = (await session_for(house, agent.peer_id)).session_token
        assert (await agent.ask("POST", REGISTER, message(token, peer_id=agent.peer_id))).status == 200
        clock.ahead_s = 401.0
        for path in (HEARTBEAT, SIGNALS, REGISTER):
            got = await agent.ask("POST", path, message(token, peer_id=agent.peer_id))
            assert (got.status, got.body()) == (401, b"invalid or expired session token\n"), path
        again = (await session_for(house, agent.peer_id)).session_token
        assert (await agent.ask("POST", REGISTER, message(again, peer_id=agent.peer_id))).status == 200
        assert (await agent.ask("POST", HEARTBEAT, message(again))).status == 200


async def test_an_agent_that_speaks_nonsense_instead_of_answers_costs_its_own_requests_only(house: House) -> None:
    """A registered agent whose answers are cut, while another one of the same model serves."""

    def drop(made: Peer) -> None:
        made.arrivals[-1].arrived.abort()

    async with peer(house) as agent:
        agent.on_arrival = lambda _: drop(agent)
        token = (await session_for(house, agent.peer_id)).session_token
        assert (await agent.ask("POST", REGISTER, message(token, peer_id=agent.peer_id))).status == 200
        await until(lambda: house.is_routable(agent.peer_id))
        replies = await asyncio.gather(*(ask(house.http, CHAT, hello()) for _ in range(40)))
        assert {reply.status for reply in replies} == {200}
        assert agent.arrivals
        await agent.ask("POST", HEARTBEAT, message(token, backend_healthy=False))


# gRPC


async def test_grpc_without_metadata_or_with_another_secret_is_refused_with_a_reason(house: House) -> None:
    someone = house.agents[0].peer_id
    with pytest.raises(AuthenticationRefused, match="model is required"):
        await session_for(house, someone, None)
    with pytest.raises(WrongSecret):
        await session_for(house, someone, secret="another secret, as long as the first one")
    forged = mint_agent_token(b"another secret, as long as the first one", someone, now=LoopClock().unix())
    target = f"{house.grpc[0]}:{house.grpc[1]}"
    with capture_logs() as logs, pytest.raises(AuthenticationRefused, match="Authentication failed"):
        await authenticate(target, [grpc_pin(SECRET.encode())], AuthRequest(forged, None))
    assert [line["event"] for line in logs if line["event"] == "agent_refused"] == ["agent_refused"]
    assert not any(forged in str(line) or SECRET in str(line) for line in logs)


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
async def test_plain_bytes_to_the_grpc_port_are_closed_and_told_once(house: House, words: bytes) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            async with connected(house.grpc) as connection:
                connection.send(words)
                said, _ = await connection.rest()
            assert not said.startswith(b"HTTP/")
        await until(lambda: any(line["event"] == "grpc_refused" for line in logs))
    assert len([line for line in logs if line["event"] == "grpc_refused"]) == 1


async def test_tls_of_the_wrong_kind_is_refused(house: House) -> None:
    old = client_context()
    old.maximum_version = old.minimum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, OSError)):
        await raw_tls(house.grpc[1], old)
    http11 = client_context()
    http11.set_alpn_protocols(["http/1.1"])
    reader, writer = await raw_tls(house.grpc[1], http11)
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert await ends(reader) == b""
    writer.close()


async def test_http_2_that_is_no_grpc_and_two_hundred_megabytes_of_it_are_cut(house: House) -> None:
    reader, writer = await raw_tls(house.grpc[1], client_context())
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
    block = b"\x00\x40\x00\x00\x00\x00\x00\x00\x01" + b"x" * 16384
    sent = 0
    try:
        async with asyncio.timeout(20):
            for _ in range(200 * 64):
                writer.write(block)
                await writer.drain()
                sent += len(block)
                if reader.at_eof():
                    break
    except OSError:
        pass
    await ends(reader)
    writer.transport.abort()
    assert sent < 20 << 20


def address_of(house: House, port: str) -> Address:
    return {"http": house.http, "metrics": house.metrics, "grpc": house.grpc, "libp2p": house.libp2p}[port]


@pytest.mark.parametrize("port", ["http", "metrics", "grpc", "libp2p"])
async def test_a_flood_of_connections_that_come_and_go_is_survived(house: House, port: str) -> None:
    async def come_and_go(number: int) -> None:
        async with connected(address_of(house, port)) as connection:
            if number % 2:
                connection.send(b"\x13/multistream/1.0.0\n" if port == "libp2p" else b"G")
            connection.abort()

    for first in range(0, 500, 50):
        await asyncio.gather(*(come_and_go(number) for number in range(first, first + 50)))


async def test_an_agent_with_a_listener_serves_its_router_and_reads_no_strangers_body(house: House) -> None:
    """The flag alone: what would listen on every address of this machine is opened on loopback by the test."""
    engine = await house.add_engine(SimOptions(models=("listening",)))
    agent = (await house.add_agent(engine.url, "--p2p-listen-port=0")).agent
    assert (await ask(house.http, CHAT, hello("listening"))).status == 200
    addresses = await agent.plane.listen_for_peers("127.0.0.1", free_port())
    async with peer() as stranger:
        await stranger.plane.dial(agent.plane.peer_id, addresses, within_s=10.0)
        body = json.dumps(hello("listening", x="y" * (4 << 20))).encode()
        path = f"{INFERENCE_MOUNT}{CHAT}"
        refused = await asked(stranger.plane, agent.plane.peer_id, "POST", path, body, host="agent")
    assert refused.status == 403
    # Only what has not been read to its end makes the stream useless.
    assert refused.field("connection") == b"close"
    assert len(engine.requests(CHAT)) == 1
