"""Exchanges without bytes: what a client sends is a value, what an agent does is a script, time is the loop's.

The semantics are those of `adapters/plane.py`: exactly one end each, a command to an exchange that is over does
nothing, and until the first byte of an answer another attempt can be made.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from hivenet_router.ports import (
    Arrived,
    AttemptFailed,
    ClientGone,
    Destination,
    Exchange,
    FailureKind,
    Fields,
    Finished,
    ForwardPlan,
    Head,
    Told,
)

T = TypeVar("T")

REQUEST_ID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"


@dataclass(frozen=True)
class FakeDigest:
    """What a test says was read off a body."""

    model: str | None
    text_bytes: int = 0
    input_bytes: int = 0
    messages: int = 0


@dataclass(frozen=True)
class FakeUsage:
    """Tokens as a backend would report them."""

    prompt_tokens: int | None
    completion_tokens: int | None
    exact: bool = True
    output_bytes: int = 0


@dataclass(frozen=True)
class FakeHead:
    """The head of an attempt."""

    status: int
    seconds: float


@dataclass(frozen=True)
class FakeFinished:
    """How an exchange ended."""

    outcome: str
    status: int = 0
    usage: FakeUsage | None = None
    first_byte_s: float = 0.0
    head_s: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class Answers:
    """The agent answers 200: its headers after a while, the first byte a while later, the end after that.

    `outcome` is how the exchange then ends; a stream can break off. `read_for_s` is how long the client takes to read a
    buffered answer, which is a long one then.
    """

    head_after_s: float = 0.0
    first_byte_after_s: float = 0.0
    lasts_s: float = 0.0
    read_for_s: float = 0.0
    is_stream: bool = False
    usage: FakeUsage | None = None
    outcome: str = "answered"


@dataclass(frozen=True)
class Fails:
    """The attempt fails before the client has seen anything; with `head_after_s`, after its headers."""

    kind: FailureKind
    after_s: float = 0.0
    head_after_s: float | None = None
    is_stream: bool = False
    status: int = 0
    fields: Fields = field(default_factory=list)
    body: bytes = b""
    is_link_down: bool = False
    is_taken: bool = False
    is_stale: bool = False


Script = Answers | Fails


@dataclass(frozen=True)
class Forwarded:
    """One call of `forward`, as it was made."""

    to: Destination
    target: bytes
    plan: ForwardPlan
    within_s: float


@dataclass(frozen=True)
class Answered:
    """What the client was sent by `respond`."""

    status: int
    fields: Fields
    body: bytes

    def field(self, name: str) -> str | None:
        """First value of that header."""
        found = (value.decode() for key, value in self.fields if key.decode().lower() == name.lower())
        return next(found, None)


@dataclass(eq=False)
class FakeArrived(Arrived):
    """A request as it arrived. Made inside the loop, whose time it arrives at."""

    listener: str = "api"
    method: str = "POST"
    path: str = "/v1/chat/completions"
    query: str = ""
    client: str = "127.0.0.1"
    peer: str | None = None
    request_id: str = REQUEST_ID
    problem: str | None = None
    digest: FakeDigest | None = None
    digest_error: str | None = None
    is_standing: bool = False
    headers: Fields = field(default_factory=list)
    content: bytes = b""
    on_abort: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._arrived_at = asyncio.get_running_loop().time()

    @property
    def model(self) -> str | None:
        """The digest's."""
        return None if self.digest is None else self.digest.model

    @property
    def age_s(self) -> float:
        """Seconds of virtual time since it was made."""
        return asyncio.get_running_loop().time() - self._arrived_at

    @property
    def body_bytes(self) -> int:
        """Size of the content."""
        return len(self.content)

    def body(self) -> bytes:
        """The content."""
        return self.content

    def field(self, name: str) -> bytes | None:
        """First value of that header, whatever its case."""
        return next((value for key, value in self.headers if key.decode().lower() == name.lower()), None)

    def fields(self) -> Fields:
        """All headers."""
        return list(self.headers)

    def abort(self) -> bool:
        """End the exchange, if it is not over."""
        return self.on_abort()


class FakeExchange(Exchange):
    """One request, led by whoever calls it and ended by its script, its client or an abort."""

    def __init__(
        self,
        arrived: FakeArrived,
        script_for: Callable[[Destination], Script] = lambda to: Answers(),
        *,
        respond_takes_s: float = 0.0,
    ) -> None:
        self._arrived: Final = arrived
        self._script_for = script_for
        self._respond_takes_s = respond_takes_s
        self._over: asyncio.Future[FakeFinished] = asyncio.get_running_loop().create_future()
        self._news: Told[None] | None = None
        self._limit: asyncio.Timeout | None = None
        self._committed_status = 0
        self._first_byte_s = 0.0
        self._is_streaming = False
        self._head_s = 0.0
        self.forwards: list[Forwarded] = []
        self.answered: Answered | None = None
        arrived.on_abort = self._abort

    @property
    def arrived(self) -> FakeArrived:
        """The request."""
        return self._arrived

    @property
    def finished(self) -> FakeFinished | None:
        """How it ended, once it has."""
        return self._over.result() if self._over.done() else None

    def leave(self) -> None:
        """The client hangs up."""
        self._end("client_left")

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
        """See `ports.Exchange`."""
        if self._over.done():
            raise ClientGone
        self.forwards.append(Forwarded(to, target, plan, within_s))
        began = asyncio.get_running_loop().time()
        script = self._script_for(to)
        try:
            async with asyncio.timeout(within_s) as limit:
                self._limit = limit
                if isinstance(script, Fails):
                    return await self._fail(script, on_head, began)
                return await self._answer(script, on_head, on_reply, began, limit)
        except TimeoutError:
            raise AttemptFailed("timeout", "no answer within the time allowed") from None
        finally:
            self._limit = None

    def give_up(self) -> None:
        """See `ports.Exchange`."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def tried(self) -> Finished:
        """See `ports.Exchange`; here no rule stands."""
        raise AssertionError("no standing rule made this exchange")

    async def respond(self, status: int, fields: Fields, body: bytes) -> Finished:
        """See `ports.Exchange`."""
        if not self._over.done():
            self.answered = Answered(status, fields, body)
            self._committed_status = status
            if not await self._is_over_within(self._respond_takes_s):
                self._end("responded")
        return await self._over

    def call_off(self, status: int, fields: Fields, body: bytes) -> None:
        """See `ports.Exchange`."""
        if self._over.done():
            return
        if self._is_streaming:
            self._abort()
            return
        self.answered = Answered(status, fields, body)
        self._committed_status = status
        self._end("responded")

    async def until(self, something: asyncio.Future[T]) -> None:
        """See `ports.Exchange`."""
        try:
            await asyncio.wait((self._over, something), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not something.done():
                something.cancel()
        if self._over.done():
            raise ClientGone

    async def _fail(self, script: Fails, on_head: Callable[[Head], None], began: float) -> FakeFinished:
        if script.head_after_s is not None:
            if await self._is_over_within(script.head_after_s):
                return self._over.result()
            if script.is_stream:
                on_head(FakeHead(script.status or 200, self._since(began)))
        if await self._is_over_within(script.after_s):
            return self._over.result()
        raise AttemptFailed(
            script.kind,
            status=script.status,
            fields=script.fields,
            body=script.body,
            head_s=script.head_after_s or 0.0,
            is_link_down=script.is_link_down,
            is_taken=script.is_taken,
            is_stale=script.is_stale,
        )

    async def _answer(
        self,
        script: Answers,
        on_head: Callable[[Head], None],
        on_reply: Callable[[], None] | None,
        began: float,
        limit: asyncio.Timeout,
    ) -> FakeFinished:
        if await self._is_over_within(script.head_after_s):
            return self._over.result()
        head_s = max(self._since(began), 1e-6)
        if script.is_stream:
            on_head(FakeHead(200, head_s))
        waits = [script.first_byte_after_s, script.lasts_s]
        if not script.is_stream:
            # A buffered answer reaches the client as one.
            waits = [script.first_byte_after_s + script.lasts_s, script.read_for_s]
        if await self._is_over_within(waits[0]):
            return self._over.result()
        limit.reschedule(None)
        self._limit = None
        self._committed_status = 200
        self._head_s = head_s
        self._first_byte_s = max(self.arrived.age_s, 1e-6)
        self._is_streaming = script.is_stream
        if on_reply is not None and (script.is_stream or script.read_for_s):
            on_reply()
        if not await self._is_over_within(waits[1]):
            self._end(script.outcome, script.usage)
        return self._over.result()

    def _since(self, began: float) -> float:
        return asyncio.get_running_loop().time() - began

    async def _is_over_within(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        self._news = news = Told[None](loop=loop)
        timer = loop.call_later(seconds, self._tell)
        if self._over.done():
            self._tell()
        try:
            await news
        finally:
            timer.cancel()
        return self._over.done()

    def _tell(self) -> None:
        """As the data plane's events do: whoever is led goes on at once."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _abort(self) -> bool:
        return self._end("stream_aborted" if self._is_streaming else "aborted")

    def _end(self, outcome: str, usage: FakeUsage | None = None) -> bool:
        if self._over.done():
            return False
        self._over.set_result(FakeFinished(outcome, self._committed_status, usage, self._first_byte_s, self._head_s))
        self._tell()
        return True
