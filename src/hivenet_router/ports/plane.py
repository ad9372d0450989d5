"""What moves the bytes, and what does it tell?"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hivenet_router.ports.exchange import Destination, Exchange, Fields, ForwardPlan, HttpServer
from hivenet_router.wire.auth_messages import AuthOutcome, AuthRequest


class RequestFailed(Exception):
    """A request or dial of our own came to nothing; the text says why."""


class CannotListen(Exception):
    """An address could not be bound; the text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request of our own."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class DoorRules:
    """A listener's rules, in bytes and seconds; a body limit of 0 means none.

    A listener with `connections_max`, or `connections_per_address_max` of one address, closes whoever has waited
    longest for its client; where each has a request running, the newcomer gets a 503. `bodies_bytes_max` is for all
    bodies together. `bodies_wanted`: the methods and paths whose body decides on the answer; who asks before it sends
    that of any other is answered at once. None: all of them.
    """

    name: str
    body_bytes_max: int
    bodies_bytes_max: int = 1 << 30
    head_within_s: float = 10.0
    body_within_s: float = 60.0
    idle_within_s: float | None = 120.0
    write_within_s: float = 60.0
    connections_max: int = 16_384
    connections_per_address_max: int = 12_288
    standing_fields: Fields = field(default_factory=list)
    refusals: list[tuple[int, bytes]] = field(default_factory=list)
    digests_bodies: bool = False
    tells_request_id: bool = False
    second_id_prefix: bytes = b""
    bodies_wanted: list[tuple[bytes, bytes]] | None = None


class PlaneBroken(Exception):
    """A part of the data plane that nothing works without has failed; the text is a sentence for the operator."""


class PlaneListener(Protocol):
    """Who hears what the data plane tells. Nothing here waits."""

    def arrival(self, exchange: Exchange) -> None:
        """A request arrived and waits for somebody to lead it on."""
        ...

    def link_up(self, peer_id: str, remote: str, dialed: bool) -> None:
        """A peer is linked, or its link was replaced."""
        ...

    def link_down(self, peer_id: str, why: str) -> None:
        """A peer's last link is gone."""
        ...

    def identified(self, peer_id: str, agent_version: str) -> None:
        """A peer said what it is."""
        ...

    def rejected(self, listener: str, client: str, status: int, why: str) -> None:
        """A connection or request was refused before it became an arrival; status 0: closed without an answer."""
        ...


class DataPlane(Protocol):
    """Moves the bytes."""

    @property
    def peer_id(self) -> str:
        """Our own libp2p identity."""
        ...

    async def listen_http(self, host: str, port: int, rules: DoorRules) -> Sequence[tuple[str, int]]:
        """Serve HTTP on every address of the host; those that were bound, never none. Raises: CannotListen."""
        ...

    async def listen_for_peers(self, host: str, port: int) -> Sequence[str]:
        """Listen for links on every address of the host; the multiaddrs as bound. Raises: CannotListen."""
        ...

    async def dial(self, peer_id: str, addresses: Sequence[str], *, within_s: float) -> None:
        """Link to a peer. Raises: RequestFailed."""
        ...

    async def request(
        self, to: Destination, method: str, path: str, *, host: str, fields: Fields, body: bytes, within_s: float
    ) -> Reply:
        """Send a request of our own; its answer, whatever the status. Raises: RequestFailed."""
        ...

    def times_heard(self, server: HttpServer) -> int:
        """How often bytes of answers to forwarded requests have come from this server; never goes back."""
        ...

    def add_standing(self, prefix: bytes, to: Destination, plan: ForwardPlan, *, cut: int, within_s: float) -> None:
        """What peers send under this prefix goes there at once, `cut` bytes of the path taken off; only failures
        become arrivals. `within_s` bounds the time to the first byte."""
        ...

    def hear_only(self, peers: Collection[str]) -> None:
        """From now on these peers are welcome and the bodies of their requests read, and nobody else's; until then
        everybody's are read."""
        ...

    def welcome(self, peer_id: str) -> None:
        """The peer has proved who it is: the bounds of strangers hold for it no longer, also when it comes back."""
        ...

    async def until_broken(self) -> None:
        """Wait until the plane is of no use any more, for ever while all is well. Raises: PlaneBroken."""
        ...

    def live(self) -> int:
        """Requests being served now, on all listeners."""
        ...

    def exchanges(self) -> Sequence[Exchange]:
        """Those of them that became arrivals."""
        ...

    def set_eager(self, eager: bool) -> None:
        """While eager, also what usually waits for company is told at once."""
        ...

    def close_peer(self, peer_id: str) -> None:
        """End a peer's links."""
        ...

    def forget(self, peer_id: str) -> None:
        """The peer is gone for good; should it come back, it is a stranger."""
        ...

    def close_doors(self) -> None:
        """No new connection and no further request on the HTTP listeners."""
        ...

    def close(self) -> None:
        """End everything at once."""
        ...


class BootstrapServer(Protocol):
    """A running gRPC service."""

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Where it listens."""
        ...

    async def close(self) -> None:
        """Stop it and cut its connections."""
        ...


OpenBootstrap = Callable[
    [str, int, bytes, Callable[[AuthRequest, str], AuthOutcome]],
    Awaitable[BootstrapServer],
]
"""Serves `Authenticate` at (host, port) under the identity of this secret. Raises: CannotListen."""
