"""The data plane: moves requests and answers; decides nothing.

Events go up in batches (`Plane.drain` after `Plane.fileno` became readable), commands go down on the `Arrived` they
concern. Of each `Arrived` exactly one `Finished` follows, as the last event with its handle. Until `Started` the
client has seen nothing, so a `Failed` attempt can be followed by another `forward`.

Orders of one attempt: (`Head`)? `Failed`; `Answered`; `Head` `Started` `Finished`; `Finished`.
Header names and values are bytes. Nothing here blocks, except where it says so. Everything may be called from any
thread, but belongs on the event loop's.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

__all__ = [
    "Answered",
    "Arrived",
    "Broken",
    "Completed",
    "Digest",
    "DoorSpec",
    "Failed",
    "Finished",
    "ForwardSpec",
    "Head",
    "Peer",
    "PeerDown",
    "PeerIdentified",
    "PeerUp",
    "Plane",
    "Rejected",
    "Started",
    "Upstream",
    "Usage",
    "digest_of",
    "is_debug_build",
    "new_identity",
    "parse_peer_id",
    "peer_id_of",
]

is_debug_build: bool

_Fields: TypeAlias = list[tuple[bytes, bytes]]
_Problem: TypeAlias = Literal["too_large", "incomplete", "bad_chunk", "slow", "overloaded", "unasked", "stopping"]
_FailureKind: TypeAlias = Literal["no_link", "busy", "connect", "reset", "timeout", "malformed", "status", "truncated"]
_Outcome: TypeAlias = Literal[
    "answered",
    "responded",
    "client_left",
    "aborted",
    "backend_lost",
    "stream_idle",
    "stream_overtime",
    "stream_aborted",
    "link_lost",
]

@final
class Peer:
    """An agent as a destination: its newest live link, whichever that is when a request goes out."""

@final
class Upstream:
    """A plain HTTP server as a destination, with the connections kept to it."""

    @property
    def times_heard(self) -> int:
        """How often bytes of answers to forwarded requests have come from it; never goes back."""

@final
class ForwardSpec:
    """How to forward: the part that is the same for many requests."""

    def __new__(
        cls,
        *,
        host: bytes,
        path_prefix: bytes = ...,
        drop_fields: list[bytes] = ...,
        set_fields: _Fields = ...,
        default_fields: _Fields = ...,
        drop_reply_fields: list[bytes] = ...,
        stream_fields: _Fields = ...,
        request_id_name: bytes = ...,
        resend: Literal["whole", "unsent", "never"] = "whole",
        resend_name: bytes = ...,
        idle_s: float,
        total_s: float | None = None,
        buffered_bytes_max: int,
        judge: bool = False,
        relay_any_status: bool = False,
        meter: bool = True,
        needs_end_mark: bool = False,
        break_events: tuple[bytes, bytes, bytes, bytes, bytes] | None = None,
        sequence_mark: bytes = ...,
    ) -> ForwardSpec:
        """`idle_s` bounds the silence inside a stream, `total_s` a whole stream. With `judge` a buffered answer waits
        for `release`. `needs_end_mark`: an event stream that ends without its dialect's end mark counts as broken.
        `break_events` are sent where a stream breaks off: backend lost, idle, overtime, aborted, link lost.
        `sequence_mark` stands in them for the number that follows the stream's last `sequence_number`.
        `drop_fields` of the request and `drop_reply_fields` of the answer stay here; both are in lower case.
        `set_fields` replace the client's, `default_fields` stand in where the client's are absent or dropped. Here and
        in all other lists, fields that frame a body or name the hop (`Content-Length`, `Connection`, ...) are ignored.
        `resend`: what goes out once more, on a fresh connection, when a kept one breaks under it before a byte came:
        also what had gone out whole, only what had not, or nothing (then no kept one is used). A field of the request
        named `resend_name` overrules it and ends here; where a peer of our own kind sends none, it is `unsent`.

        Raises: ValueError for a header field, host or path prefix that would break the head.
        """

@final
class DoorSpec:
    """A listener's rules. Limits are in bytes and seconds; a body limit of 0 means none, an idle time of None too.

    `bodies_bytes_max` bounds the request bodies of this listener together; each counts until its exchange is over and
    its `Arrived` is gone.

    A listener with `connections_max`, or `connections_per_address_max` of one address, closes whoever has waited
    longest for its client; where every one has a request running, the newcomer gets a 503.

    `idle_within_s` is 120 where nothing is said. `bodies_wanted` names methods and paths: who sends `Expect` for any
    other gets no `100 Continue`, and its request comes without its body, as `unasked`.
    """

    def __new__(
        cls,
        name: str,
        *,
        body_bytes_max: int,
        bodies_bytes_max: int = 1_073_741_824,
        head_within_s: float = 10.0,
        body_within_s: float = 60.0,
        idle_within_s: float | None = ...,
        write_within_s: float = 60.0,
        connections_max: int = 16_384,
        connections_per_address_max: int = 12_288,
        standing_fields: _Fields = ...,
        refusals: list[tuple[int, bytes]] = ...,
        digests_bodies: bool = False,
        tells_request_id: bool = False,
        second_id_prefix: bytes = ...,
        bodies_wanted: list[tuple[bytes, bytes]] | None = None,
    ) -> DoorSpec: ...

@final
class Digest:
    """What was read off a JSON body that every reader understands alike."""

    @property
    def model(self) -> str | None: ...
    @property
    def stream(self) -> bool: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def max_completion_tokens(self) -> int | None: ...
    @property
    def n(self) -> int | None: ...
    @property
    def text_bytes(self) -> int: ...
    @property
    def input_bytes(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def images(self) -> int: ...

@final
class Usage:
    """Tokens by the backend's own count where it gave one; `exact` when that covers the output."""

    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def completion_tokens(self) -> int | None: ...
    @property
    def cache_tokens(self) -> int: ...
    @property
    def exact(self) -> bool: ...
    @property
    def output_bytes(self) -> int: ...

@final
class Arrived:
    """A request, whole, that waits for a command; also where its commands go.

    A command is False when the exchange is over already.
    """

    @property
    def handle(self) -> int: ...
    @property
    def listener(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str:
        """Undecoded, without query."""
    @property
    def query(self) -> str: ...
    @property
    def client(self) -> str: ...
    @property
    def peer(self) -> str | None:
        """Peer ID of the agent or router that sent it over its link."""
    @property
    def request_id(self) -> str: ...
    @property
    def problem(self) -> _Problem | None:
        """Why the body is not there; `overloaded`: the plane holds as many bytes of bodies as it may."""
    @property
    def is_standing(self) -> bool:
        """A standing rule has forwarded it, and that failed: the `Failed` comes right after."""
    @property
    def age_s(self) -> float: ...
    @property
    def body_bytes(self) -> int: ...
    def body(self) -> bytes: ...
    def field(self, name: str) -> bytes | None:
        """First value of that header, whatever its case."""
    def fields(self) -> _Fields: ...
    @property
    def model(self) -> str | None:
        """The digest's."""
    @property
    def digest(self) -> Digest | None: ...
    @property
    def digest_error(self) -> str | None: ...
    def respond(self, status: int, fields: _Fields, body: bytes) -> bool:
        """Takes effect at the next `Plane.ring`, as `forward` and `release` do; `give_up` and `abort` do at once.

        Raises: ValueError for a status outside 200 to 599, or a header field that would break the head.
        """
    def forward(
        self,
        attempt: int,
        to: Peer | Upstream,
        path: bytes,
        spec: ForwardSpec,
        within_s: float,
        reply_fields: Sequence[tuple[bytes, bytes]] = ...,
        body: bytes | None = None,
    ) -> bool:
        """Raises: ValueError for a path with a blank or control character, or a field that would break the head."""
    def give_up(self, attempt: int) -> bool:
        """End this attempt as one that took too long, unless an answer to it has begun."""
    def release(self) -> bool: ...
    def abort(self) -> bool: ...

@final
class Head:
    """The head of an event stream came, `seconds` after its attempt began. Of a buffered answer `Finished` tells."""

    @property
    def handle(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def seconds(self) -> float: ...

@final
class Started:
    """The first byte of a streamed answer is on its way, `seconds` after the request arrived."""

    @property
    def handle(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def seconds(self) -> float: ...

@final
class Answered:
    """A buffered answer is whole and waits for `release`, or for another command."""

    @property
    def handle(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def usage(self) -> Usage | None: ...
    def fields(self) -> _Fields: ...
    def body(self) -> bytes: ...

@final
class Failed:
    """An attempt failed and the client has seen nothing of it."""

    @property
    def handle(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def kind(self) -> _FailureKind: ...
    @property
    def status(self) -> int: ...
    @property
    def detail(self) -> str: ...
    @property
    def head_s(self) -> float: ...
    @property
    def is_link_down(self) -> bool:
        """The very link that the request went out on has ended, or there was none."""
    @property
    def unlinked(self) -> str | None:
        """The agent, where it has no live link at all; its `PeerDown` may still be on its way."""
    @property
    def is_taken(self) -> bool:
        """It went out whole and the other side died before its answer was whole: it may have been carried out."""
    @property
    def is_stale(self) -> bool:
        """That was on a kept connection, and not a byte of an answer came."""
    def field(self, name: str) -> bytes | None: ...
    def fields(self) -> _Fields: ...
    def body(self) -> bytes:
        """At most 64 KiB of it."""

@final
class Finished:
    """The exchange is over. Times are seconds from its arrival, 0 where there was no body byte."""

    @property
    def handle(self) -> int: ...
    @property
    def outcome(self) -> _Outcome: ...
    @property
    def status(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def head_s(self) -> float:
        """From the attempt's start to the head of the answer that the client was given; 0 for one made by command."""
    @property
    def bytes(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def usage(self) -> Usage | None: ...
    @property
    def first_byte_s(self) -> float: ...
    @property
    def last_byte_s(self) -> float: ...

@final
class PeerUp:
    @property
    def peer(self) -> str: ...
    @property
    def remote(self) -> str: ...
    @property
    def dialed(self) -> bool: ...

@final
class PeerDown:
    """The last connection of a peer is gone."""

    @property
    def peer(self) -> str: ...
    @property
    def reason(self) -> str: ...

@final
class PeerIdentified:
    @property
    def peer(self) -> str: ...
    @property
    def agent_version(self) -> str: ...

@final
class Rejected:
    """A connection or request was refused before anybody was asked; status 0: closed without an answer."""

    @property
    def listener(self) -> str: ...
    @property
    def client(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def reason(self) -> str: ...

@final
class Broken:
    """A part without which the plane is of no use has panicked; nothing can be relied on from here on."""

    @property
    def why(self) -> str: ...

@final
class Completed:
    """The end of a `request` or a `dial`; `error` says why it came to nothing."""

    @property
    def token(self) -> int: ...
    @property
    def error(self) -> str | None: ...
    @property
    def status(self) -> int: ...
    def field(self, name: str) -> bytes | None: ...
    def body(self) -> bytes: ...

_Event: TypeAlias = (
    Arrived
    | Head
    | Started
    | Answered
    | Failed
    | Finished
    | PeerUp
    | PeerDown
    | PeerIdentified
    | Rejected
    | Broken
    | Completed
)

@final
class Plane:
    """One data plane with its own thread and its own libp2p identity."""

    def __new__(
        cls,
        identity: bytes,
        peer_door: DoorSpec,
        *,
        conns_per_ip: int,
        links_max: int = 4096,
        welcome_within_s: float | None = None,
        inbound_served: int = 1024,
        inbound_waiting: int = 384,
        inbound_window_bytes: int = 262_144,
        streams_max: int = 1024,
        pool_idle_max: int = 256,
        pool_age_max_s: float = 30.0,
    ) -> Plane:
        """Starts the thread; `identity` is the 68-byte key file. Of the streams a peer has open, `inbound_served` are
        served at once and `inbound_waiting` more may wait; one more is reset. Each may hold `inbound_window_bytes`
        unread from its start (256 KiB at least), as long as all together hold no more beyond 256 KiB each
        than 256 such streams do. With `welcome_within_s` a peer that dials in and has not been welcomed gets
        eight streams, two of them served, 16 KiB unread on each, bodies of 8 KiB, and that time.

        Raises: OSError when it cannot start.
        """
    @property
    def peer_id(self) -> str: ...
    def fileno(self) -> int: ...
    def drain(self) -> list[_Event]: ...
    def ring(self) -> None:
        """Has the commands given so far carried out."""
    def set_eager(self, eager: bool) -> None:
        """While eager, events that usually wait for company wake the loop at once."""
    def listen_http(self, hosts: list[str], port: int, door: DoorSpec) -> list[tuple[str, int]]:
        """Listens on all of these under the bounds of one door, with one port, also where it is 0.

        Raises: OSError when one cannot be bound; ValueError when one is no IP address.
        """
    def listen_peers(self, address: str) -> list[str]:
        """Multiaddrs bound; blocks until then. Raises: OSError, ValueError."""
    def upstream(self, host: str, port: int, *, idle_max: int = 256, age_max_s: float = 30.0) -> Upstream: ...
    @staticmethod
    def peer(peer_id: str) -> Peer:
        """Raises: ValueError."""
    def add_standing(
        self, prefix: bytes, to: Peer | Upstream, spec: ForwardSpec, *, cut: int | None = None, within_s: float = 120.0
    ) -> None:
        """What peers send under this prefix goes there at once, `cut` bytes of the path taken off (else the prefix);
        only failures come up. `within_s` is the time to the first byte. A path with a `.` or `..` segment, encoded or
        not, goes nowhere: its attempt fails as `malformed`."""
    def hear_only(self, peers: list[str]) -> None:
        """From now on only these peers are welcome and their request bodies read; other peers' requests with one come
        as `unasked`.
        Raises: ValueError."""
    def welcome(self, peer_id: str) -> None:
        """The peer is no stranger any more, also when it comes back. Raises: ValueError."""
    def unwelcome(self, peer_id: str) -> None:
        """Its next connection is a stranger's, if one that is known. Raises: ValueError."""
    def live(self) -> int:
        """Requests being served now, on all listeners."""
    def dial(self, token: int, peer_id: str, addresses: list[str], within_s: float) -> None: ...
    def request(
        self,
        token: int,
        to: Peer | Upstream,
        method: bytes,
        path: bytes,
        host: bytes,
        fields: _Fields,
        body: bytes,
        within_s: float,
    ) -> None:
        """Raises: ValueError for a method, path, host or header field that would break the head."""
    def close_peer(self, peer_id: str) -> None: ...
    def close_doors(self) -> None:
        """No new connection and no further request on the HTTP listeners; what runs goes on."""
    def shutdown(self) -> None:
        """Ends everything at once; blocks until the thread has ended."""

def digest_of(body: bytes) -> Digest:
    """What is read off a body, as of every arrival's. Raises: ValueError that says what is wrong with it."""

def new_identity() -> bytes:
    """A new key file of 68 bytes."""

def peer_id_of(identity: bytes) -> str:
    """Raises: ValueError."""

def parse_peer_id(text: str) -> str:
    """The base58 form of a peer ID given as base58 or CIDv1. Raises: ValueError."""
