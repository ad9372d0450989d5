"""How does the router start, what runs beside the requests, and how does it stop?

One task group owns everything. Start: identity, data plane, listeners in the order in which others need them, so that
nobody is told of an address before it is known. Stop: no new work, what runs may end, then everything is closed.
Source: configuration.md §9.1, §13 items 8 and 9; decisions.md 12, 33; wire.md §4.2.
"""

import asyncio
import contextlib
import random
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from hivenet_router.config.settings import RouterSettings
from hivenet_router.core.changes import (
    CapacityFreed,
    Change,
    HealthCause,
    HealthChanged,
    LinkLost,
    LinkReturned,
    Registered,
    Removed,
)
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.file_shares import METRICS_MAX, FileShares, of_one_address
from hivenet_router.core.health import SilenceLimits, monitor_pass, remove_if_gone
from hivenet_router.core.registry import Registry
from hivenet_router.core.sessions import SWEEP_INTERVAL_S, SessionStore
from hivenet_router.names import paths
from hivenet_router.ports import (
    AnswerWith,
    BootstrapServer,
    CannotListen,
    Clock,
    DataPlane,
    DoorRules,
    Exchange,
    OpenBootstrap,
    PlaneListener,
    Recorder,
)
from hivenet_router.router import arrive, door
from hivenet_router.router.attend import AttendingRoom, has_left
from hivenet_router.router.bootstrap import BootstrapRoom
from hivenet_router.router.door import Door
from hivenet_router.router.forward import ForwardLimits, ForwardRoom
from hivenet_router.router.hand_over import HandingOverRoom
from hivenet_router.router.place import PlacingRoom
from hivenet_router.router.refuse import STOPPING, call_off, edge_refusals
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.router.remember import RememberingRoom
from hivenet_router.router.settle import SettlingRoom
from hivenet_router.router.suspect import SuspectingRoom
from hivenet_router.router.tasks import Tasks
from hivenet_router.router.walk import House
from hivenet_router.wire.agent_protocol import BODY_BYTES_MAX
from hivenet_router.wire.auth_messages import LibP2PInfo, RouterConfig, router_config
from hivenet_router.wire.jwt import subject_of

log = structlog.get_logger("router")

MANAGEMENT_STREAMS_MAX: Final = 32
"""Streams of one peer that are served at once; what an agent opens towards the router is short."""
HANGUP_ADVICE: Final = "settings are read at the start only; to change them, restart the router"
SECOND_SIGNAL: Final = "a second signal came: the program ends at once"
_STOOD_STILL_S: Final = 2.0
_REJECTIONS_EVERY_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.05
_LAST_WORDS_WITHIN_S: Final = 1.0
_NO_LIMIT: Final = 0


@dataclass(frozen=True, slots=True)
class World:
    """What the router stands on; `cli/` chooses each.

    `open_plane` starts a data plane that tells the listener, under these rules for what peers send. `recorder_for`
    makes the recorder of a registry and what shows its page. `shares`: how many connections each listener may have.
    """

    clock: Clock
    open_plane: Callable[[PlaneListener, DoorRules], DataPlane]
    open_bootstrap: OpenBootstrap
    recorder_for: Callable[[Registry], tuple[Recorder, AnswerWith]]
    control_for: Callable[[Registry], AnswerWith]
    shares: FileShares


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the running router is reached; ports as they were really bound."""

    http: tuple[tuple[str, int], ...]
    metrics: tuple[tuple[str, int], ...]
    grpc: tuple[tuple[str, int], ...]
    libp2p: tuple[str, ...]


class Router:
    """One running router; made by `running`. Hears what the data plane and the registry tell."""

    def __init__(self, settings: RouterSettings, world: World, tasks: Tasks) -> None:
        self._settings = settings
        self._clock = clock = world.clock
        self._tasks = tasks
        self._open_bootstrap = world.open_bootstrap
        self._shares: Final = world.shares
        self._bootstrap: BootstrapServer | None = None
        self.addresses: Addresses | None = None
        self.registry: Final = Registry(self._changed)
        recorder, metrics = world.recorder_for(self.registry)
        self.recorder: Final = recorder
        self.rejections: Final = RejectionRoom(clock, recorder)
        self.plane: Final = world.open_plane(self, PEER_RULES)
        self.sessions: Final = SessionStore(lambda: secrets.token_hex(32), ttl_s=settings.session_ttl_s)
        self.placing: Final = PlacingRoom(
            self.registry,
            clock,
            recorder,
            forwards_max=settings.forwards_max,
            queue_requests_max=settings.queue_requests_max,
            enqueue_timeout_s=settings.enqueue_timeout_s,
            capacity_waiters_max=settings.capacity_waiters_max,
            on_waiting=self.plane.set_eager,
        )
        self.attending: Final = AttendingRoom(
            self.registry, self.sessions, clock, recorder, self.rejections, welcome=self.plane.welcome
        )
        suspecting = SuspectingRoom(self.registry, clock, suspect_after=settings.suspect_after, chance=random.random)
        handing_over = HandingOverRoom(self.placing, clock, suspect_after=settings.suspect_after)
        self.settling: Final = SettlingRoom(clock, recorder, self.rejections, suspecting)
        house = House(
            placing=self.placing,
            forwarding=ForwardRoom(clock, recorder, handing_over, _forward_limits(settings)),
            settling=self.settling,
            remembering=RememberingRoom(clock),
            rejections=self.rejections,
            clock=clock,
            recorder=recorder,
            named=self.registry.named,
            request_timeout_s=settings.request_timeout_s,
            tries_per_step_max=settings.tries_per_step_max,
        )
        self.door: Final = Door(tasks.lead, house, world.control_for(self.registry), self.attending, metrics)

    async def open(self) -> Addresses:
        """Bind everything; what agents are told about comes last.

        Raises: CannotListen.
        """
        settings, plane = self._settings, self.plane
        with _given_by("--p2p-listen-addr and --p2p-port"):
            bound = await plane.listen_for_peers(settings.p2p_listen_ip, settings.p2p_listen_port)
        with _given_by("--http-port"):
            rules = api_rules(settings, self._shares.clients)
            http = await plane.listen_http(settings.http_listen.host, settings.http_listen.port, rules)
        with _given_by("--metrics-port"):
            at = settings.metrics_listen
            metrics = await plane.listen_http(at.host, at.port, METRICS_RULES)
        info = self._libp2p_info(bound)
        told = _told_to_agents(settings)
        room = BootstrapRoom(
            self.sessions, self._clock, self._agent_secrets(), told, lambda: info, self.rejections, self._expect_dial
        )
        with _given_by("--grpc-port"):
            self._bootstrap = await self._open_bootstrap(
                settings.grpc_listen.host, settings.grpc_listen.port, settings.jwt_secret.reveal(), room.authenticate
            )
        self.addresses = Addresses(tuple(http), tuple(metrics), tuple(self._bootstrap.addresses), info.addresses)
        return self.addresses

    def start_background(self) -> None:
        """Begin what runs beside the requests."""
        self._tasks.spawn(self.plane.until_broken())
        self._tasks.spawn(self._monitor())
        self._tasks.spawn(every(SWEEP_INTERVAL_S, lambda: self.sessions.sweep(now=self._clock.now())))
        self._tasks.spawn(every(_REJECTIONS_EVERY_S, self.rejections.tell_due))
        self._tasks.spawn(every(_REJECTIONS_EVERY_S, self.settling.tell_due))

    async def drain(self) -> None:
        """Take no new work and wait until what runs has ended, within the time allowed.

        New requests are still answered, with a refusal, and so is `/health`; only then do the doors close. What runs
        for too long is ended, a stream with an error event. Source: decisions.md 33; http-api.md §15 item 16.
        """
        settings, plane = self._settings, self.plane
        await asyncio.sleep(settings.drain_delay_s)
        self.placing.close()
        running = plane.exchanges()
        await _until(
            lambda: all(exchange.finished is not None for exchange in running), within_s=settings.shutdown_timeout_s
        )
        self.tell_cut(f"--shutdown-timeout of {settings.shutdown_timeout_s:g} s is over")
        plane.close_doors()
        for exchange in plane.exchanges():
            call_off(exchange, STOPPING)
        await _until(lambda: not plane.live(), within_s=_LAST_WORDS_WITHIN_S)

    def tell_cut(self, why: str) -> None:
        """Say how many clients are about to lose an answer for this reason, if any are."""
        running = (each for each in self.plane.exchanges() if each.finished is None)
        if cut := sum(exchange.arrived.listener == door.API for exchange in running):
            log.warning("requests_cut", requests=cut, why=why)

    async def close(self) -> None:
        """Close everything at once."""
        try:
            if self._bootstrap is not None:
                await self._bootstrap.close()
        finally:
            self.plane.close()

    # What is told

    def arrival(self, exchange: Exchange) -> None:
        """See `ports.PlaneListener`."""
        self.door.arrival(exchange)

    def link_up(self, peer_id: str, remote: str, dialed: bool) -> None:
        """See `ports.PlaneListener`."""
        self.attending.link_up(peer_id, remote, dialed)

    def link_down(self, peer_id: str, why: str) -> None:
        """See `ports.PlaneListener`."""
        self.attending.link_down(peer_id, why)

    def identified(self, peer_id: str, agent_version: str) -> None:
        """See `ports.PlaneListener`."""
        self.attending.identified(peer_id, agent_version)

    def rejected(self, listener: str, client: str, status: int, why: str) -> None:
        """See `ports.PlaneListener`."""
        self.rejections.rejected(listener, client, status, why)

    def _changed(self, change: Change) -> None:
        # Every request that ends tells of this one, and nobody else wants to know.
        if isinstance(change, CapacityFreed):
            self.placing.slot_freed(change.model)
            return
        self.recorder.registry_changed(change)
        match change:
            case LinkLost(agent):
                self.placing.expect(agent)
                self.placing.revisit(agent.model)
            case Registered(agent) | Removed(agent) | LinkReturned(agent) | HealthChanged(agent):
                self.placing.revisit(agent.model)
        if (
            isinstance(change, Registered)
            and change.previous is not None
            and change.previous.model != change.agent.model
        ):
            self.placing.revisit(change.previous.model)
        if isinstance(change, HealthChanged):
            _tell_health(change)

    def _expect_dial(self, subject: str) -> None:
        for agent in self.registry:
            if not agent.linked and subject_of(agent.peer) == subject:
                self.placing.expect(agent)

    async def _monitor(self) -> None:
        settings = self._settings
        limits = SilenceLimits(settings.unhealthy_after_s, settings.remove_after_s)

        last_look = judges_from = self._clock.now()

        def look() -> None:
            nonlocal last_look, judges_from
            stood_still_s = self._clock.now() - last_look - settings.health_check_interval_s
            last_look = self._clock.now()
            if stood_still_s > _STOOD_STILL_S:
                # It is the router that was away: what the agents sent meanwhile is about to be read.
                log.warning("router_stood_still", seconds=round(stood_still_s, 1))
                judges_from = Monotonic(last_look + settings.unhealthy_after_s)
            if last_look < judges_from:
                return
            for agent in monitor_pass(self.registry, limits, now=self._clock.now()):
                if remove_if_gone(self.registry, agent, limits, now=self._clock.now()):
                    say = log.info if has_left(agent) else log.warning
                    say("agent_removed", peer_id=agent.peer, model=agent.model, silent_s=settings.remove_after_s)
                    self.sessions.forget(agent.peer)
                    self.plane.close_peer(agent.peer)
                    self.plane.forget(agent.peer)

        await every(settings.health_check_interval_s, look)

    def _libp2p_info(self, bound: Sequence[str]) -> LibP2PInfo:
        announced = self._settings.p2p_announce_multiaddr
        addresses = [announced] if announced else bound
        peer_id = self.plane.peer_id
        return LibP2PInfo(peer_id, tuple(f"{address.split('/p2p/')[0]}/p2p/{peer_id}" for address in addresses))

    def _agent_secrets(self) -> list[bytes]:
        previous = self._settings.jwt_secret_previous
        return [self._settings.jwt_secret.reveal(), *([previous.reveal()] if previous is not None else [])]


def _tell_health(change: HealthChanged) -> None:
    agent = change.agent
    if change.cause is HealthCause.LEAVING:
        log.info("agent_leaving", peer_id=agent.peer, model=agent.model)
    else:
        log.info("agent_health", peer_id=agent.peer, healthy=agent.healthy, cause=change.cause.name)


async def _until(is_so: Callable[[], bool], *, within_s: float) -> None:
    """Wait until this is so, or for that long. Asks again and again: what is asked about has no time to tell."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY_S)


async def every(seconds: float, act: Callable[[], object]) -> None:
    """Do something again and again, for ever."""
    while True:
        await asyncio.sleep(seconds)
        act()


@contextlib.asynccontextmanager
async def running(settings: RouterSettings, world: World) -> AsyncIterator[Router]:
    """A router that listens and serves until the block ends; then it is closed, not drained.

    Raises: an exception group, with a CannotListen in it where an address could not be bound.
    """
    async with Tasks() as tasks:
        router = Router(settings, world, tasks)
        try:
            await router.open()
            router.start_background()
            yield router
        finally:
            await router.close()


PEER_RULES: Final = DoorRules(
    door.PEERS, body_bytes_max=BODY_BYTES_MAX, bodies_bytes_max=128 << 20, idle_within_s=None, body_within_s=30.0
)
"""What agents send is short and comes at once; their streams stay open as long as their link."""
METRICS_RULES: Final = DoorRules(
    door.METRICS,
    body_bytes_max=64 << 10,
    bodies_bytes_max=1 << 20,
    connections_max=METRICS_MAX,
    connections_per_address_max=of_one_address(METRICS_MAX),
    refusals=edge_refusals(),
    bodies_wanted=[],
)


def api_rules(settings: RouterSettings, connections_max: int) -> DoorRules:
    """The rules of the API listener."""
    return DoorRules(
        door.API,
        connections_max=connections_max,
        connections_per_address_max=of_one_address(connections_max),
        body_bytes_max=settings.request_body_bytes_max or _NO_LIMIT,
        body_within_s=settings.request_timeout_s,
        standing_fields=door.STANDING_FIELDS,
        refusals=edge_refusals(),
        digests_bodies=True,
        tells_request_id=True,
        second_id_prefix=paths.ANTHROPIC_PREFIX.encode(),
        bodies_wanted=arrive.BODIES_WANTED,
    )


@contextlib.contextmanager
def _given_by(flags: str) -> Iterator[None]:
    """Whoever cannot have an address is told which options to change."""
    try:
        yield
    except CannotListen as error:
        raise CannotListen(f"{flags}: {error}") from error


def _forward_limits(settings: RouterSettings) -> ForwardLimits:
    return ForwardLimits(
        stream_idle_s=settings.stream_idle_timeout_s,
        stream_total_s=settings.stream_timeout_s,
        buffered_bytes_max=settings.buffered_response_bytes_max,
        strips_authorization=settings.strip_client_authorization,
        holds_slot_for_stream=settings.hold_slot_for_stream,
    )


def _told_to_agents(settings: RouterSettings) -> RouterConfig:
    return router_config(
        heartbeat_interval_s=settings.heartbeat_interval_s,
        session_ttl_s=settings.session_ttl_s,
        request_bytes_max=settings.request_body_bytes_max or 0,
    )


async def stopped_by_signal(router: Router) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the wait at once."""
    loop, stop, again = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (again if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    loop.add_signal_handler(signal.SIGHUP, lambda: log.warning("hangup_ignored", advice=HANGUP_ADVICE))
    await stop.wait()
    log.info("router_draining", running=router.plane.live())
    async with asyncio.TaskGroup() as group:
        draining, hurried = ways = group.create_task(router.drain()), group.create_task(_when(again))
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        if hurried.done() and not draining.done():
            router.tell_cut(SECOND_SIGNAL)
        for way in ways:
            way.cancel()
    log.info("router_stopped")


async def _when(event: asyncio.Event) -> None:
    await event.wait()
