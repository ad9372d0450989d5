"""How do the data plane's events reach the rooms, and how do their commands reach it?

The one module that knows `_plane`. It drains the event queue on the loop and hands each event to the exchange, the call
or the listener it belongs to. Invariant: everything here runs on the loop's thread, so nobody needs a lock, and an
exchange is known from its arrival to its `Finished` and no longer.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import fields
from typing import Final, TypeVar

import structlog

from hivenet_router import _plane
from hivenet_router._plane import Answered, DoorSpec, Failed, Finished, ForwardSpec, Head, Peer, Plane, Upstream
from hivenet_router.adapters.listening import addresses_to_bind, why_not
from hivenet_router.ports import (
    AttemptFailed,
    CannotListen,
    ClientGone,
    Destination,
    DoorRules,
    Fields,
    ForwardPlan,
    HttpServer,
    PlaneBroken,
    PlaneListener,
    Reply,
    RequestFailed,
    Told,
)

T = TypeVar("T")

log = structlog.get_logger("router")

_Event = Failed | Answered | Finished
_COMMANDS_TOGETHER_MAX: Final = 8
# The arrival of a request comes with the end of the one before it.
_EVENTS_OF_ONE: Final = 2


class PlaneExchange:
    """One request on this side of the boundary, from its arrival to its end."""

    __slots__ = ("_attempts", "_on_head", "_on_reply", "_plane", "_standing", "_waiting", "arrived", "finished")

    def __init__(self, arrived: _plane.Arrived, plane: "PlaneAdapter") -> None:
        self.arrived: Final = arrived
        self.finished: Finished | None = None
        self._attempts = 0
        self._plane = plane
        self._waiting: Told[_Event] | None = None
        self._on_head: Callable[[Head], None] | None = None
        self._on_reply: Callable[[], None] | None = None
        self._standing = self._begin_waiting() if arrived.is_standing else None

    def forward(
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
    ) -> Coroutine[object, None, Finished]:
        """See `ports.Exchange`."""
        plane = self._plane
        destination, spec = plane.destination(to), plane.spec(plan)
        self._attempts += 1
        if not self.arrived.forward(self._attempts, destination, target, spec, within_s, reply_fields, body):
            # It is over, and how it ended is on its way here.
            return self._gone()
        plane.ring_soon()
        self._on_head, self._on_reply = on_head, on_reply
        return self._outcome(self._begin_waiting())

    async def _gone(self) -> Finished:
        await self._end()
        raise ClientGone

    def give_up(self) -> None:
        """See `ports.Exchange`."""
        self.arrived.give_up(self._attempts)

    async def tried(self) -> Finished:
        """See `ports.Exchange`."""
        # Invariant: the wait began with the arrival, before its failure could be told.
        assert self._standing is not None
        return await self._outcome(self._standing)

    async def _outcome(self, waiting: "Told[_Event]") -> Finished:
        try:
            event = await waiting
        finally:
            self._waiting = self._on_head = None
        if isinstance(event, Finished):
            return event
        if isinstance(event, Failed):
            raise _attempt_failed(event)
        return await self._release()

    async def respond(self, status: int, fields: Fields, body: bytes) -> Finished:
        """See `ports.Exchange`."""
        self.arrived.respond(status, fields, body)
        self._plane.ring_soon()
        return await self._end()

    def call_off(self, status: int, fields: Fields, body: bytes) -> None:
        """See `ports.Exchange`."""
        # A running stream knows no answer of ours, and what is over knows neither.
        self.arrived.respond(status, fields, body)
        self.arrived.abort()
        self._plane.ring_soon()

    async def until(self, something: "asyncio.Future[T]") -> None:
        """See `ports.Exchange`."""
        gone = self._begin_waiting()
        try:
            await asyncio.wait((gone, something), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting = None
            if not something.done():
                something.cancel()
        if self.finished is not None:
            raise ClientGone

    async def _release(self) -> Finished:
        self.arrived.release()
        self._plane.ring_soon()
        return await self._end()

    async def _end(self) -> Finished:
        while self.finished is None:
            await self._begin_waiting()
        self._waiting = None
        return self.finished

    def _begin_waiting(self) -> "Told[_Event]":
        waiting: Told[_Event] = Told(loop=self._plane.loop)
        self._waiting = waiting
        if self.finished is not None:
            waiting.set_result(self.finished)
        return waiting

    def headers_came(self, head: Head) -> None:
        """Called by the plane's pump."""
        if self._on_head is not None:
            self._on_head(head)

    def reply_starts(self) -> None:
        """Called by the plane's pump."""
        if self._on_reply is not None:
            self._on_reply()

    def came_to(self, event: _Event) -> None:
        """Called by the plane's pump."""
        if isinstance(event, Finished):
            self.finished, self._on_reply = event, None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(event)


class PlaneAdapter:
    """The data plane as `ports.DataPlane`."""

    def __init__(
        self,
        identity: bytes,
        peer_rules: DoorRules,
        listener: PlaneListener,
        *,
        conns_per_ip: int,
        links_max: int = 4096,
        welcome_within_s: float | None = None,
        inbound_served: int,
        inbound_waiting: int = 384,
        inbound_window_bytes: int = 256 * 1024,
        streams_max: int = 1024,
    ) -> None:
        self._plane: Final = Plane(
            identity,
            _door(peer_rules),
            conns_per_ip=conns_per_ip,
            links_max=links_max,
            welcome_within_s=welcome_within_s,
            inbound_served=inbound_served,
            inbound_waiting=inbound_waiting,
            inbound_window_bytes=inbound_window_bytes,
            streams_max=streams_max,
        )
        self.loop: Final = asyncio.get_running_loop()
        self._listener = listener
        self._exchanges: dict[int, PlaneExchange] = {}
        self._calls: dict[int, asyncio.Future[_plane.Completed]] = {}
        self._broken: asyncio.Future[str] = self.loop.create_future()
        self._last_token = 0
        self._commands_waiting = 0
        self._is_busy = False
        self._is_pumping = False
        self._destinations: dict[Destination, Peer | Upstream] = {}
        self._specs: dict[ForwardPlan, ForwardSpec] = {}
        self._handlers: Final = {
            _plane.Arrived: self._arrived,
            _plane.Head: self._head,
            _plane.Started: self._started,
            _plane.Answered: self._came_to,
            _plane.Failed: self._failed,
            _plane.Finished: self._finished,
            _plane.PeerUp: self._peer_up,
            _plane.PeerDown: self._peer_down,
            _plane.PeerIdentified: self._peer_identified,
            _plane.Rejected: self._rejected,
            _plane.Broken: self._broke,
            _plane.Completed: self._completed,
        }
        self.loop.add_reader(self._plane.fileno(), self._pump)

    # Listening and linking

    @property
    def peer_id(self) -> str:
        """See `ports.DataPlane`."""
        return self._plane.peer_id

    async def listen_http(self, host: str, port: int, rules: DoorRules) -> Sequence[tuple[str, int]]:
        """See `ports.DataPlane`."""
        try:
            hosts = await addresses_to_bind(host)
            return self._plane.listen_http(list(hosts), port, _door(rules))
        except (OSError, ValueError) as error:
            raise _cannot_listen(rules.name, host, port, error) from error

    async def listen_for_peers(self, host: str, port: int) -> Sequence[str]:
        """See `ports.DataPlane`."""
        bound: list[str] = []
        try:
            for ip in await addresses_to_bind(host):
                address = f"/{'ip6' if ':' in ip else 'ip4'}/{ip}/tcp/{port}"
                bound += await asyncio.to_thread(self._plane.listen_peers, address)
                # Where any port will do, it is the same one on every address.
                port = port or int(bound[0].split("/")[4])
        except (OSError, ValueError) as error:
            raise _cannot_listen("peers", host, port, error) from error
        return bound

    async def dial(self, peer_id: str, addresses: Sequence[str], *, within_s: float) -> None:
        """See `ports.DataPlane`."""
        token, done = self._call()
        self._plane.dial(token, peer_id, list(addresses), within_s)
        await self._outcome(token, done)

    async def request(
        self, to: Destination, method: str, path: str, *, host: str, fields: Fields, body: bytes, within_s: float
    ) -> Reply:
        """See `ports.DataPlane`."""
        token, done = self._call()
        place = self.destination(to)
        self._plane.request(token, place, method.encode(), path.encode(), host.encode(), fields, body, within_s)
        completed = await self._outcome(token, done)
        return Reply(completed.status, completed.body())

    def times_heard(self, server: HttpServer) -> int:
        """See `ports.DataPlane`."""
        upstream = self.destination(server)
        return upstream.times_heard if isinstance(upstream, Upstream) else 0

    def add_standing(self, prefix: bytes, to: Destination, plan: ForwardPlan, *, cut: int, within_s: float) -> None:
        """See `ports.DataPlane`."""
        self._plane.add_standing(prefix, self.destination(to), self.spec(plan), cut=cut, within_s=within_s)

    def hear_only(self, peers: Collection[str]) -> None:
        """See `ports.DataPlane`."""
        self._plane.hear_only(list(peers))

    def welcome(self, peer_id: str) -> None:
        """See `ports.DataPlane`."""
        self._plane.welcome(peer_id)

    def close_peer(self, peer_id: str) -> None:
        """See `ports.DataPlane`."""
        self._plane.close_peer(peer_id)

    def forget(self, peer_id: str) -> None:
        """See `ports.DataPlane`."""
        self._destinations.pop(peer_id, None)
        self._plane.unwelcome(peer_id)

    # What runs

    async def until_broken(self) -> None:
        """See `ports.DataPlane`."""
        raise PlaneBroken(await asyncio.shield(self._broken))

    def live(self) -> int:
        """See `ports.DataPlane`."""
        return self._plane.live()

    def exchanges(self) -> Sequence[PlaneExchange]:
        """See `ports.DataPlane`."""
        return tuple(self._exchanges.values())

    def set_eager(self, eager: bool) -> None:
        """See `ports.DataPlane`."""
        self._plane.set_eager(eager)

    def close_doors(self) -> None:
        """See `ports.DataPlane`."""
        self._plane.close_doors()

    def close(self) -> None:
        """See `ports.DataPlane`; blocks for the moment that takes."""
        self.loop.remove_reader(self._plane.fileno())
        self._plane.shutdown()
        for done in self._calls.values():
            done.cancel()

    def destination(self, to: Destination) -> Peer | Upstream:
        """The plane's own name for a destination; made once."""
        known = self._destinations.get(to)
        if known is None:
            known = self._destinations[to] = self._made(to)
        return known

    def _made(self, to: Destination) -> Peer | Upstream:
        if isinstance(to, HttpServer):
            return self._plane.upstream(to.host, to.port, idle_max=to.kept_connections_max, age_max_s=to.kept_for_s)
        return self._plane.peer(to)

    def spec(self, plan: ForwardPlan) -> ForwardSpec:
        """The plane's own form of a plan; made once."""
        spec = self._specs.get(plan)
        if spec is None:
            spec = self._specs[plan] = _spec(plan)
        return spec

    # Commands

    def ring_soon(self) -> None:
        """Have the commands that many events lead to carried out together.

        Each ring wakes the plane's thread, and what several commands send leaves together. One that comes alone, or has
        enough company, is not kept waiting.
        """
        self._commands_waiting += 1
        if not self._is_busy or self._commands_waiting >= _COMMANDS_TOGETHER_MAX:
            self._ring()
        elif self._commands_waiting == 1 and not self._is_pumping:
            self.loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._commands_waiting = 0
        self._plane.ring()

    # Events

    def _pump(self) -> None:
        events = self._plane.drain()
        self._is_busy = len(events) > _EVENTS_OF_ONE
        self._is_pumping = True
        try:
            # In their order: whoever asks next, or looks at the metrics, finds what is over settled.
            for event in events:
                try:
                    self._handlers[type(event)](event)  # type: ignore[operator]  # each stands under its own type
                except Exception:
                    # One event that nobody can take must not cost those behind it.
                    log.exception("event_lost", kind=type(event).__name__)
        finally:
            self._is_pumping = False
            if self._commands_waiting:
                self._ring()

    def _arrived(self, event: _plane.Arrived) -> None:
        exchange = PlaneExchange(event, self)
        self._exchanges[event.handle] = exchange
        self._listener.arrival(exchange)

    def _head(self, event: _plane.Head) -> None:
        exchange = self._exchanges.get(event.handle)
        if exchange is not None:
            exchange.headers_came(event)

    def _started(self, event: _plane.Started) -> None:
        exchange = self._exchanges.get(event.handle)
        if exchange is not None:
            exchange.reply_starts()

    def _failed(self, event: _plane.Failed) -> None:
        # Whoever tries again must not be sent the same dead way, and the link's own event may be behind this one.
        if event.unlinked is not None:
            self._listener.link_down(event.unlinked, event.detail)
        self._came_to(event)

    def _came_to(self, event: _plane.Failed | _plane.Answered) -> None:
        exchange = self._exchanges.get(event.handle)
        if exchange is not None:
            exchange.came_to(event)

    def _finished(self, event: _plane.Finished) -> None:
        exchange = self._exchanges.pop(event.handle, None)
        if exchange is not None:
            exchange.came_to(event)

    def _peer_up(self, event: _plane.PeerUp) -> None:
        self._listener.link_up(event.peer, event.remote, event.dialed)

    def _peer_down(self, event: _plane.PeerDown) -> None:
        self._listener.link_down(event.peer, event.reason)

    def _peer_identified(self, event: _plane.PeerIdentified) -> None:
        self._listener.identified(event.peer, event.agent_version)

    def _rejected(self, event: _plane.Rejected) -> None:
        self._listener.rejected(event.listener, event.client, event.status, event.reason)

    def _broke(self, event: _plane.Broken) -> None:
        if not self._broken.done():
            self._broken.set_result(event.why)

    def _completed(self, event: _plane.Completed) -> None:
        done = self._calls.get(event.token)
        if done is not None and not done.done():
            done.set_result(event)

    # Calls of our own

    def _call(self) -> "tuple[int, asyncio.Future[_plane.Completed]]":
        self._last_token += 1
        done: asyncio.Future[_plane.Completed] = self.loop.create_future()
        self._calls[self._last_token] = done
        return self._last_token, done

    async def _outcome(self, token: int, done: "asyncio.Future[_plane.Completed]") -> _plane.Completed:
        try:
            completed = await done
        finally:
            self._calls.pop(token, None)
        if completed.error is not None:
            raise RequestFailed(completed.error)
        return completed


def _cannot_listen(what: str, host: str, port: int, error: Exception) -> CannotListen:
    shown = f"[{host}]" if ":" in host else host or "*"
    return CannotListen(f"cannot listen for {what} on {shown}:{port}: {why_not(error)}")


def _attempt_failed(event: Failed) -> AttemptFailed:
    return AttemptFailed(
        event.kind,
        event.detail,
        status=event.status,
        fields=event.fields(),
        body=event.body(),
        head_s=event.head_s,
        is_link_down=event.is_link_down,
        is_taken=event.is_taken,
        is_stale=event.is_stale,
    )


def _door(rules: DoorRules) -> DoorSpec:
    return DoorSpec(**_values_of(rules))  # type: ignore[arg-type]  # under the same names


def _spec(plan: ForwardPlan) -> ForwardSpec:
    return ForwardSpec(**_values_of(plan))  # type: ignore[arg-type]  # under the same names


def _values_of(rules: DoorRules | ForwardPlan) -> dict[str, object]:
    """Its fields by name: the plane's own forms take them under the same names."""
    return {field.name: getattr(rules, field.name) for field in fields(rules)}
