"""What is one request, from its arrival to its end, and what can be done with it?"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")

Fields = list[tuple[bytes, bytes]]
"""Header fields in the order in which they stand."""

Resend = Literal["whole", "unsent", "never"]
"""What may be sent a second time, on a fresh connection, when a kept one breaks under it: also what went out whole;
only what did not; nothing, and no kept connection is used in the first place."""

FailureKind = Literal["no_link", "busy", "connect", "reset", "timeout", "malformed", "status", "truncated"]


class ClientGone(Exception):
    """The client left, or the exchange was aborted, while a room waited for something."""


class AttemptFailed(Exception):
    """An attempt failed and the client has seen nothing of it.

    `status` is 0 where no answer came, `head_s` the seconds to the response head or 0. `body` holds at most 64 KiB.
    `is_link_down`: the very link that it went out on has ended. `is_taken`: it went out whole, and the other side died
    before its answer was whole, so it may have been carried out; `is_stale`: that was on a kept connection, and not a
    byte came.
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
        is_taken: bool = False,
        is_stale: bool = False,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.status = status
        self.fields = fields or []
        self.body = body
        self.head_s = head_s
        self.is_link_down = is_link_down
        self.is_taken = is_taken
        self.is_stale = is_stale

    def field(self, name: str) -> str:
        """First value of that header of the answer, whatever its case; empty where there is none."""
        wanted = name.encode().lower()
        return next((value.decode("latin-1") for field, value in self.fields if field.lower() == wanted), "")


class Digest(Protocol):
    """What was read off a JSON body that every reader understands alike."""

    @property
    def model(self) -> str | None:
        """The value of `model`; None where it is absent or null."""
        ...

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of the prompt's text."""
        ...

    @property
    def input_bytes(self) -> int:
        """UTF-8 bytes of what stands in place of messages: `prompt`, `input`."""
        ...

    @property
    def messages(self) -> int:
        """How many messages the prompt has."""
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

    @property
    def exact(self) -> bool:
        """Whether the counts cover the whole output."""
        ...

    @property
    def output_bytes(self) -> int:
        """UTF-8 bytes of output that were seen, of every kind: text, reasoning, tool arguments."""
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
        """Why the body is not there.

        `too_large`, `incomplete`, `bad_chunk`, `slow`, `overloaded`, `unasked` or `stopping`.
        """
        ...

    @property
    def is_standing(self) -> bool:
        """A standing rule has forwarded it already, and that failed; `Exchange.tried` says how."""
        ...

    @property
    def age_s(self) -> float:
        """Seconds since it arrived."""
        ...

    @property
    def model(self) -> str | None:
        """The digest's, for whoever needs no more of it."""
        ...

    @property
    def digest(self) -> Digest | None:
        """What was read off the body; None where nothing was, or could be."""
        ...

    @property
    def digest_error(self) -> str | None:
        """Why the body could not be read, in words for its sender."""
        ...

    @property
    def body_bytes(self) -> int:
        """Size of the body."""
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
    """The head of an event stream. Of a buffered answer nothing is told before its end."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def seconds(self) -> float:
        """Time from the attempt's start."""
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
    def head_s(self) -> float:
        """From the attempt's start to the head of the agent's answer; 0 where the client was given none."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the body that went to the client."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What the backend said it used, and what was seen of its output; None where the answer could not be read."""
        ...

    @property
    def first_byte_s(self) -> float:
        """When the first body byte went to the client."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ForwardPlan:
    """How to forward: the part that is the same for many requests. Made once and passed again and again.

    `drop_fields` of the request and `drop_reply_fields` of the answer (one that ends with a dash: all that begin
    so) stay here; both are in lower case. `set_fields`
    replace the client's, `default_fields` stand in where the client sent none or none that passes.
    `idle_s` bounds the silence inside a stream, `total_s` a whole stream. `needs_end_mark`: an event stream without its
    dialect's end mark counts as broken off. `break_events` end a stream that the backend lost, that was silent or
    running for too long, that the router ends, or that the agent's link took with it. In them `sequence_mark` stands
    for the number that follows the stream's last `sequence_number`.
    A field of the request that is named `resend_name` and holds one of the words overrules `resend`; it ends here. A
    peer of our own kind knows that name, so for one that says nothing it is `unsent`.
    """

    host: bytes
    path_prefix: bytes = b""
    drop_fields: tuple[bytes, ...] = ()
    set_fields: tuple[tuple[bytes, bytes], ...] = ()
    default_fields: tuple[tuple[bytes, bytes], ...] = ()
    drop_reply_fields: tuple[bytes, ...] = ()
    stream_fields: tuple[tuple[bytes, bytes], ...] = ()
    request_id_name: bytes = b""
    resend: Resend = "whole"
    resend_name: bytes = b""
    idle_s: float = 60.0
    total_s: float | None = None
    buffered_bytes_max: int = 8 * 1024 * 1024
    relay_any_status: bool = False
    meter: bool = True
    needs_end_mark: bool = False
    break_events: tuple[bytes, bytes, bytes, bytes, bytes] = (b"", b"", b"", b"", b"")
    sequence_mark: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class HttpServer:
    """A plain HTTP server to forward to, and how many connections to it are kept, for how long."""

    host: str
    port: int
    kept_connections_max: int = 256
    kept_for_s: float = 30.0


Destination = str | HttpServer
"""An agent by its peer ID, or a server."""


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
        on_reply: Callable[[], None] | None = None,
        reply_fields: Sequence[tuple[bytes, bytes]] = (),
        body: bytes | None = None,
    ) -> Finished:
        """Make one attempt and wait for its end; `on_head` hears when the head of a stream came.

        `on_reply` hears when the client begins to be sent a stream, or an answer so long that it may take its time.

        `within_s` bounds the time to the first byte of a stream, or to the end of a buffered answer.
        Raises: AttemptFailed while another attempt can still be made; ClientGone when the exchange was over already.
        """
        ...

    def give_up(self) -> None:
        """Let the attempt that runs fail as one that took too long, unless the first byte of its answer is there."""
        ...

    async def tried(self) -> Finished:
        """What came of the attempt that a standing rule made.

        Raises: AttemptFailed.
        """
        ...

    async def respond(self, status: int, fields: Fields, body: bytes) -> Finished:
        """Answer it and wait until the client has the answer, or has left."""
        ...

    def call_off(self, status: int, fields: Fields, body: bytes) -> None:
        """Answer with this unless an answer has begun; a running stream ends with its error event."""
        ...

    async def until(self, something: asyncio.Future[T]) -> None:
        """Wait for something else, unless the client leaves first.

        Raises: ClientGone; `something` is cancelled then.
        """
        ...


AnswerWith = Callable[[Exchange, str], Awaitable[Finished]]
"""Lets an app answer an exchange under that path."""
