"""A bootstrap service on loopback with the real token check, and what its tests share."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvloop

from hivenet_router.adapters.grpc_server import BootstrapServer, Bounds, Refused, serve_bootstrap
from hivenet_router.core.bootstrap import Welcome, acceptance, judge
from hivenet_router.wire.auth_messages import AgentMetadata, AuthOutcome, AuthRequest, LibP2PInfo, router_config
from hivenet_router.wire.jwt import TokenRefused, mint_agent_token, verify_agent_token
from hivenet_router.wire.tls_identity import grpc_identity

Run = Callable[[Coroutine[object, object, None]], None]

SECRET = b"the shared secret of this test, 32+"
OTHER = b"another secret, as long as the first"
NOW = 1_700_000_000.0
PEER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
METADATA = AgentMetadata(model="m", capacity=2, version="1", region="eu", engine="vllm", organization="o")
INFO = LibP2PInfo(PEER, (f"/ip4/127.0.0.1/tcp/9000/p2p/{PEER}",))
CONFIG = router_config(heartbeat_interval_s=5, session_ttl_s=3600, request_bytes_max=1 << 20)


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def running_on(loop: str) -> Iterator[Run]:
    """The body of a fixture: what runs a coroutine to its end, within 20 s, on one of the loops we support."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:

        def bounded(scene: Coroutine[object, object, None]) -> None:
            runner.run(asyncio.wait_for(scene, 20))

        yield bounded


@dataclass
class House:
    """A running service and what it was asked."""

    server: BootstrapServer
    calls: list[tuple[AuthRequest, str]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)

    @property
    def target(self) -> str:
        host, port = self.server.addresses[0]
        return f"{host}:{port}"

    @property
    def port(self) -> int:
        return self.server.addresses[0][1]


def answer(request: AuthRequest) -> AuthOutcome:
    """What a router answers, with the real token check and the real judge."""
    try:
        outcome = judge(request, verify_agent_token([SECRET], request.credentials, now=NOW))
    except TokenRefused as refused:
        outcome = judge(request, refused)
    if isinstance(outcome, Welcome):
        return acceptance("f" * 64, libp2p_info=INFO, config=CONFIG, router_id="r0")
    return outcome


@asynccontextmanager
async def house(
    bounds: Bounds | None = None, reply: Callable[[AuthRequest], AuthOutcome] = answer
) -> AsyncIterator[House]:
    calls: list[tuple[AuthRequest, str]] = []
    refused: list[Refused] = []

    def take(request: AuthRequest, source: str) -> AuthOutcome:
        calls.append((request, source))
        return reply(request)

    server = await serve_bootstrap(("127.0.0.1", 0), grpc_identity(SECRET), take, refused.append, bounds=bounds)
    try:
        yield House(server, calls, refused)
    finally:
        await server.close()


def request_with(metadata: AgentMetadata | None = METADATA, secret: bytes = SECRET) -> AuthRequest:
    return AuthRequest(mint_agent_token(secret, PEER, now=NOW), metadata)


async def raw_tls(port: int, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=context)


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Whatever still comes until the server closes."""
    try:
        return await reader.read()
    except OSError:
        return b""


async def until(holds: Callable[[], bool]) -> None:
    """Lets the loop run until it holds; the test's own time limit ends a wait in vain."""
    while not holds():  # noqa: ASYNC110  (what is awaited is state inside the service, which sets no event)
        await asyncio.sleep(0)
