"""What do the rooms need from the world outside, and in which words?

Protocols, and the plain values that cross them. Each has an adapter that does the I/O and an honest fake in the tests;
`cli/` decides which is used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from hivenet_router.core.agent import Agent
from hivenet_router.core.changes import Change
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.core.ids import ModelName
from hivenet_router.wire.auth_messages import AuthOutcome, AuthRequest

T = TypeVar("T")

Fields = list[tuple[bytes, bytes]]
"""Header fields in the order in which they stand."""

FailureKind = Literal["no_link", "busy", "connect", "reset", "timeout", "malformed", "status", "truncated"]


class ClientGone(Exception):
    """The client left, or the exchange was aborted, while a room waited for something."""


class RequestFailed(Exception):
    """A request or dial of our own came to nothing; the text says why."""


class CannotListen(Exception):
    """An address could not be bound; the text says which, why, and what to do."""


class AttemptFailed(Exception):
    """An attempt failed and the client has seen nothing of it.

    `status` is 0 where no answer came, `head_s` the seconds to the response head or 0. `body` holds at most 64 KiB.
    """

    def __init__(
        self,
        kind: FailureKind,
        detail: str = "",
        *,
        status: int = 0,
        fields: Fields | None = None,
        body: bytes = b"",
        head_s: float = 0.0,
        is_link_down: bool = False,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.status = status
        self.fields = fields or []
        self.body = body
        self.head_s = head_s
        self.is_link_down = is_link_down

    def field(self, name: str) -> str:
        """First value of that header of the answer, whatever its case; empty where there is none."""
        wanted = name.encode().lower()
        return next((value.decode("latin-1") for field, value in self.fields if field.lower() == wanted), "")


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request of our own."""

    status: int
    body: bytes


class Digest(Protocol):
    """What was read off a JSON body that every reader understands alike."""

    @property
    def model(self) -> str | None:
        """The value of `model`; None where it is absent or null."""
        ...


class Usage(Protocol):
    """Tokens by the backend's own count, where it gave one."""

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt."""
        ...

    @property
    def completion_tokens(self) -> int | None:
        """Tokens of the output."""
        ...


class Arrived(Protocol):
    """A request as it arrived, whole."""

    @property
    def listener(self) -> str:
        """Name of the listener it came through."""
        ...

    @property
    def method(self) -> str:
        """As it was sent."""
        ...

    @property
    def path(self) -> str:
        """Undecoded, without query."""
        ...

    @property
    def query(self) -> str:
        """Behind the first question mark."""
        ...

    @property
    def client(self) -> str:
        """IP address of the sender, or the address of its end of the link."""
        ...

    @property
    def peer(self) -> str | None:
        """Peer ID of a sender on a link."""
        ...

    @property
    def request_id(self) -> str:
        """The client's own UUID, or one that was made for it."""
        ...

    @property
    def problem(self) -> str | None:
        """Why the body is not there: `too_large`, `incomplete`, `bad_chunk` or `slow`."""
        ...

    @property
    def age_s(self) -> float:
        """Seconds since it arrived."""
        ...

    @property
    def digest(self) -> Digest | None:
        """What was read off the body; None where nothing was, or could be."""
        ...

    @property
    def digest_error(self) -> str | None:
        """Why the body could not be read, in words for its sender."""
        ...

    def body(self) -> bytes:
        """A copy of the body."""
        ...

    def field(self, name: str) -> bytes | None:
        """First value of that header, whatever its case."""
        ...

    def fields(self) -> Fields:
        """All headers."""
        ...

    def abort(self) -> bool:
        """Close its connection; a running stream ends with its error event."""
        ...


class Head(Protocol):
    """The response headers of an attempt."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def seconds(self) -> float:
        """Time from the attempt's start."""
        ...

    @property
    def is_stream(self) -> bool:
        """Whether an event stream follows."""
        ...


class Finished(Protocol):
    """An exchange that is over. Times are seconds from its arrival, 0 where there was no body byte."""

    @property
    def outcome(self) -> str:
        """`answered`, `responded`, `client_left`, `aborted`, or why a stream broke off."""
        ...

    @property
    def status(self) -> int:
        """Status of the answer, 0 where there was none."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What the backend said it used."""
        ...

    @property
    def first_byte_s(self) -> float:
        """When the first body byte went to the client."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ForwardPlan:
    """How to forward: the part that is the same for many requests. Made once and passed again and again.

    `set_fields` replace the client's, `default_fields` stand in where the client sent none or none that passes.
    `idle_s` bounds the silence inside a stream, `total_s` a whole stream. `needs_end_mark`: an event stream without its
    dialect's end mark counts as broken off. `break_events` end a stream that the backend lost, that was silent or
    running for too long, or that the router ends.
    """

    host: bytes
    path_prefix: bytes = b""
    drop_fields: tuple[bytes, ...] = ()
    set_fields: tuple[tuple[bytes, bytes], ...] = ()
    default_fields: tuple[tuple[bytes, bytes], ...] = ()
    stream_fields: tuple[tuple[bytes, bytes], ...] = ()
    request_id_name: bytes = b""
    idle_s: float = 60.0
    total_s: float | None = None
    buffered_bytes_max: int = 8 * 1024 * 1024
    relay_any_status: bool = False
    meter: bool = True
    needs_end_mark: bool = False
    break_events: tuple[bytes, bytes, bytes, bytes] = (b"", b"", b"", b"")


@dataclass(frozen=True, slots=True, eq=False)
class HttpServer:
    """A plain HTTP server to forward to, and how many connections to it are kept, for how long."""

    host: str
    port: int
    kept_connections_max: int = 256
    kept_for_s: float = 30.0


Destination = str | HttpServer
"""An agent by its peer ID, or a server."""


@dataclass(frozen=True, slots=True)
class DoorRules:
    """A listener's rules, in bytes and seconds; a body limit of 0 means none."""

    name: str
    body_bytes_max: int
    head_within_s: float = 10.0
    body_within_s: float = 60.0
    idle_within_s: float | None = 120.0
    write_within_s: float = 60.0
    connections_max: int = 16_384
    standing_fields: Fields = field(default_factory=list)
    refusals: list[tuple[int, bytes]] = field(default_factory=list)
    digests_bodies: bool = False
    tells_request_id: bool = False
    second_id_prefix: bytes = b""


class Exchange(Protocol):
    """One request from its arrival to its end."""

    @property
    def arrived(self) -> Arrived:
        """The request."""
        ...

    @property
    def finished(self) -> Finished | None:
        """How it ended, once it has."""
        ...

    async def forward(
        self,
        to: Destination,
        target: bytes,
        plan: ForwardPlan,
        *,
        within_s: float,
        on_head: Callable[[Head], None],
        reply_fields: Sequence[tuple[bytes, bytes]] = (),
        body: bytes | None = None,
    ) -> Finished:
        """Make one attempt and wait for its end; `on_head` hears when its headers came.

        `within_s` bounds the time to the first byte of a stream, or to the end of a buffered answer.
        Raises: AttemptFailed while another attempt can still be made; ClientGone when the exchange was over already.
        """
        ...

    async def respond(self, status: int, fields: Fields, body: bytes) -> Finished:
        """Answer it and wait until the client has the answer, or has left."""
        ...

    async def until(self, something: "asyncio.Future[T]") -> None:
        """Wait for something else, unless the client leaves first.

        Raises: ClientGone; `something` is cancelled then.
        """
        ...


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

    def listen_http(self, host: str, port: int, rules: DoorRules) -> tuple[str, int]:
        """Serve HTTP there; the address as bound. Raises: CannotListen."""
        ...

    async def listen_for_peers(self, address: str) -> Sequence[str]:
        """Listen for links on that multiaddr; the multiaddrs as bound. Raises: CannotListen."""
        ...

    async def dial(self, peer_id: str, addresses: Sequence[str], *, within_s: float) -> None:
        """Link to a peer. Raises: RequestFailed."""
        ...

    async def request(
        self, to: Destination, method: str, path: str, *, host: str, fields: Fields, body: bytes, within_s: float
    ) -> Reply:
        """Send a request of our own; its answer, whatever the status. Raises: RequestFailed."""
        ...

    def add_standing(self, prefix: bytes, to: Destination, plan: ForwardPlan, *, cut: int) -> None:
        """What peers send under this prefix goes there at once, `cut` bytes of the path taken off; only failures
        become arrivals."""
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
        """The peer is gone for good."""
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

AnswerWith = Callable[[Exchange, str], Awaitable[Finished]]
"""Lets an app answer an exchange under that path."""


class Clock(Protocol):
    """Both times. Durations and deadlines use the first, what leaves the process the second."""

    def now(self) -> Monotonic:
        """Seconds on the event loop's clock."""
        ...

    def unix(self) -> UnixTime:
        """Seconds since 1970, UTC."""
        ...


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """How one inference request ended, for whoever counts. `agent` is None where none served it.

    `outcome` is `served`, `stream_cut`, `client_gone` or the error code of the refusal. Durations are seconds from
    arrival; `first_byte_s` is 0 where the client got no body byte.
    """

    model: ModelName
    outcome: str
    status: int
    agent: Agent | None
    tenant: str
    first_byte_s: float
    duration_s: float
    input_tokens: int
    output_tokens: int
    was_routed: bool
    """A policy step chose an agent at least once."""


class Recorder(Protocol):
    """Counts what happens. No method waits or raises."""

    def registry_changed(self, change: Change) -> None:
        """Something changed in the registry."""
        ...

    def agent_seen(self, agent: Agent, *, at: UnixTime) -> None:
        """The agent registered or sent a good heartbeat."""
        ...

    def attempt_answered(self, agent: Agent, tenant: str) -> None:
        """Headers of an answer worth passing on came from the agent."""
        ...

    def attempt_failed(self, agent: Agent, tenant: str) -> None:
        """An attempt on the agent failed."""
        ...

    def policy_exhausted(self, model: ModelName, tenant: str) -> None:
        """No step of the policy could serve the request."""
        ...

    def request_ended(self, end: RequestEnd) -> None:
        """An inference request ended; called exactly once for each."""
        ...

    def parked(self, model: ModelName, waiting: int) -> None:
        """So many requests now wait for capacity of the model."""
        ...

    def waited(self, model: ModelName, seconds: float) -> None:
        """A parked request was woken by a slot."""
        ...

    def streams(self, model: ModelName, change: int) -> None:
        """A streamed answer began (+1) or ended (-1)."""
        ...

    def http_began(self, method: str, route: str) -> None:
        """A request to the API listener began."""
        ...

    def http_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """It ended; status 499 where the client left first."""
        ...

    def edge_rejected(self, listener: str, reason: str) -> None:
        """A connection or request was refused before it became a request."""
        ...

    def agent_link_reset(self, model: ModelName, reason: str) -> None:
        """A forward failed because the agent's link was dead."""
        ...
