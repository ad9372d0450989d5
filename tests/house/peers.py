"""Peers that a test plays itself: a stranger, or an agent that says exactly what the test wants it to say.

Each is a data plane with an identity of its own, which dials a running router. What it asks goes over a real link.
"""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.house.client import MODEL
from tests.house.running import SECRET, House, until

from hivenet_router._plane import Completed, new_identity
from hivenet_router.adapters.grpc_client import authenticate
from hivenet_router.adapters.plane import PlaneAdapter
from hivenet_router.ports import DoorRules, Exchange, Fields
from hivenet_router.wire.auth_messages import AgentMetadata, AuthOutcome, AuthRequest
from hivenet_router.wire.jwt import mint_agent_token
from hivenet_router.wire.tls_identity import grpc_pin

RULES = DoorRules("links", body_bytes_max=64 << 20, idle_within_s=None)
METADATA = AgentMetadata(model=MODEL, capacity=4, version="1", region="eu", engine="vllm", organization="o")


@dataclass
class Peer:
    """One peer; `arrivals` are the requests that came to it, `lost` why its links ended."""

    public_key: bytes
    plane: PlaneAdapter = field(init=False)
    arrivals: list[Exchange] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    router: str = ""
    on_arrival: Callable[[Exchange], None] | None = None

    @property
    def cid(self) -> str:
        """Its peer ID in the other spelling, as a CID: version 1, codec libp2p-key, base32."""
        multihash = bytes.fromhex("002408011220") + self.public_key
        return "b" + base64.b32encode(b"\x01\x72" + multihash).decode().lower().rstrip("=")

    @property
    def peer_id(self) -> str:
        """Its own peer ID."""
        return self.plane.peer_id

    async def dial(self, house: House) -> None:
        """Link to the router of the house."""
        assert house.router.addresses is not None
        self.router = house.router.plane.peer_id
        await self.plane.dial(self.router, house.router.addresses.libp2p, within_s=10.0)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        host: str = "router",
        fields: Fields | None = None,
        within_s: float = 20.0,
    ) -> Completed:
        """The router's answer with its headers. Raises: RequestFailed."""
        return await asked(self.plane, self.router, method, path, body, host=host, fields=fields, within_s=within_s)

    def arrival(self, exchange: Exchange) -> None:
        """See `ports.PlaneListener`."""
        self.arrivals.append(exchange)
        if self.on_arrival is not None:
            self.on_arrival(exchange)

    def link_up(self, peer_id: str, remote: str, dialed: bool) -> None:
        """See `ports.PlaneListener`."""
        self.linked.append(peer_id)

    def link_down(self, peer_id: str, why: str) -> None:
        """See `ports.PlaneListener`."""
        self.lost.append(why)

    def identified(self, peer_id: str, agent_version: str) -> None:
        """See `ports.PlaneListener`."""

    def rejected(self, listener: str, client: str, status: int, why: str) -> None:
        """See `ports.PlaneListener`."""


async def asked(
    plane: PlaneAdapter,
    to: str,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    host: str = "router",
    fields: Fields | None = None,
    within_s: float = 20.0,
) -> Completed:
    """The answer of another peer, with its headers. Raises: RequestFailed."""
    token, done = plane._call()
    place = plane.destination(to)
    plane._plane.request(token, place, method.encode(), path.encode(), host.encode(), fields or [], body, within_s)
    return await plane._outcome(token, done)


@asynccontextmanager
async def peer(house: House | None = None) -> AsyncIterator[Peer]:
    """A peer with a fresh identity; linked to the router of the house, if there is one."""
    identity = new_identity()
    made = Peer(identity[-32:])
    made.plane = PlaneAdapter(identity, RULES, made, conns_per_ip=8, inbound_served=1024)
    try:
        if house is not None:
            await made.dial(house)
        yield made
    finally:
        made.plane.close()


async def session_for(
    house: House, peer_id: str, metadata: AgentMetadata | None = METADATA, secret: str = SECRET
) -> AuthOutcome:
    """What the router says to an agent that authenticates. Raises: BootstrapFailed."""
    token = mint_agent_token(secret.encode(), peer_id, now=house.router._clock.unix())
    target = f"{house.grpc[0]}:{house.grpc[1]}"
    return await authenticate(target, [grpc_pin(secret.encode())], AuthRequest(token, metadata))


async def until_lost(made: Peer) -> None:
    """Wait until the router has ended the link."""
    await until(lambda: bool(made.lost))
