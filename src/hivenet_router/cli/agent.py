"""`hivenet-agent`: reads its settings, builds the world, serves routers until it is told to stop.

The only place that knows which implementation stands behind what the agent needs. Exit codes: 0 after a signal, 1 when
the agent cannot run with what it was given, 2 when the command line cannot be understood.
"""

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from typing import Final
from urllib.parse import urlsplit

import structlog

from hivenet_router.adapters.clock import LoopClock
from hivenet_router.adapters.file_limit import raise_file_limit
from hivenet_router.adapters.grpc_client import (
    AuthenticationRefused,
    BootstrapFailed,
    RegistrationTooLong,
    RouterUnreachable,
    WrongSecret,
    authenticate,
)
from hivenet_router.adapters.identity_file import HeldIdentity, IdentityUnusable, load_or_create
from hivenet_router.adapters.log import set_up_logs
from hivenet_router.adapters.loop import run
from hivenet_router.adapters.plane import PlaneAdapter
from hivenet_router.agent.claims import Claims
from hivenet_router.agent.connect import RouterSession, Surroundings
from hivenet_router.agent.engines import FACES
from hivenet_router.agent.links import PlaneBackend, PlaneLinks
from hivenet_router.agent.probe import BackendWatch
from hivenet_router.agent.relay import Relay, host_of, key_fields, link_rules
from hivenet_router.agent.report import Reports
from hivenet_router.agent.sample import SAMPLE_WITHIN_S, EngineSampler
from hivenet_router.agent.serve import Stop, serve
from hivenet_router.agent.world import Admit, SessionFailed
from hivenet_router.config import AgentSettings, BackendUrl, Exit, Program, parse
from hivenet_router.core.file_shares import TooFewFiles, check_agent_files
from hivenet_router.names.protocol_ids import OWN_AGENT_VERSION_PREFIX
from hivenet_router.ports import CannotListen, Clock, Exchange, HttpServer, PlaneBroken
from hivenet_router.wire.auth_messages import AgentMetadata, AuthOutcome, AuthRequest
from hivenet_router.wire.jwt import mint_agent_token
from hivenet_router.wire.tls_identity import grpc_pin

log = structlog.get_logger("agent")

FAILED: Final = 1
BROKEN_ADVICE: Final = "a fault of this program: start it again, and report this line with what stands above it"
CONNECTIONS_PER_IP_MAX: Final = 8
"""Of those that others open to an agent with a listener. Source: wire.md §5.7."""
WELCOME_WITHIN_S: Final = 10.0
"""A peer that dials in and is not a router of a session by then is cut off."""
STREAMS_SERVED_MAX: Final = 4608
"""More than a router opens at once (4,096), so that none waits: streams that wait hold up the pings of their link."""
PROMPT_WINDOW_BYTES: Final = 2 * 1024 * 1024
"""Of a prompt so much can be under way at once: 40 MB/s over a link whose round trip is 50 ms."""
_HANGUP_ADVICE: Final = "settings are read at the start only; to change them, restart the agent"
_KEPT_CONNECTIONS_MIN: Final = 256


class CannotStart(Exception):
    """The agent cannot run with these settings here; the text names the setting and says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parsed = parse(Program.AGENT, sys.argv[1:] if argv is None else argv, os.environ)
    if isinstance(parsed, Exit):
        sys.stdout.write(parsed.stdout)
        sys.stderr.write(parsed.stderr)
        return parsed.code
    set_up_logs(parsed.log_level, parsed.log_levels_by_logger, parsed.log_format)
    for warning in parsed.warnings:
        log.warning("setting", advice=warning)
    try:
        check_agent_files(raise_file_limit(), capacity=parsed.capacity)
        with load_or_create(parsed.identity_path) as identity:
            run(_serve(parsed, identity))
    except (CannotStart, IdentityUnusable, TooFewFiles) as error:
        log.error("agent_cannot_start", why=str(error))  # noqa: TRY400  # a sentence for the operator, not a trace
        return FAILED
    except BaseExceptionGroup as group:
        broken = group.subgroup(PlaneBroken)
        if broken is None:
            log.exception("agent_failed")
        for fault in broken.exceptions if broken else ():
            log.error("agent_failed", why=str(fault), advice=BROKEN_ADVICE)  # noqa: TRY400
        return FAILED
    return 0


async def _serve(settings: AgentSettings, identity: HeldIdentity) -> None:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.signalled)
    loop.add_signal_handler(signal.SIGHUP, lambda: log.warning("hangup_ignored", advice=_HANGUP_ADVICE))
    structlog.contextvars.bind_contextvars(peer_id=identity.peer_id)
    if identity.warning:
        log.warning("setting", advice=identity.warning)
    agent = _Agent(settings, identity, LoopClock())
    try:
        await agent.listen()
        log.info(
            "agent_started",
            engine=settings.engine,
            backend=settings.backend_url,
            model=settings.model or "(the engine's first)",
            routers=",".join(map(str, settings.routers)),
        )
        await serve(
            agent.sessions,
            [agent.plane.until_broken(), agent.backend.run(), agent.relaying(), *agent.sampling()],
            reports=agent.reports,
            requests_running=agent.plane.live,
            stop=stop,
            shutdown_timeout_s=settings.shutdown_timeout_s,
        )
    finally:
        agent.plane.close()


class _Agent:
    """The parts of an agent, put together."""

    def __init__(self, settings: AgentSettings, identity: HeldIdentity, clock: Clock) -> None:
        self._settings = settings
        self.plane: Final = self._plane(identity)
        self.reports: Final = Reports(self.plane.live)
        self._own_kind: set[str] = set()
        # Without a listener nobody can be linked but routers that were dialled.
        claims = Claims() if settings.p2p_listen_port is None else Claims(self.plane.hear_only)
        url = settings.backend_url
        self._server = server = HttpServer(
            url.host, url.port, kept_connections_max=max(_KEPT_CONNECTIONS_MIN, settings.capacity)
        )
        self._relay = Relay(
            self.plane,
            server,
            settings,
            is_router=claims.__contains__,
            is_own_kind=self._own_kind.__contains__,
        )
        self.backend: Final = self._watch(self._engine_within(settings.probe_timeout_s))
        around = Surroundings(
            peer_id=identity.peer_id,
            metadata=_metadata(settings),
            deployment_id=settings.deployment_id,
            replica_id=settings.replica_id,
            signal_interval_s=settings.routing_signal_interval_s,
            backend=self.backend,
            reports=self.reports,
            claims=claims,
            links=PlaneLinks(self.plane),
            admit=_admission(settings, identity.peer_id, clock),
            resolve=_resolve,
            chance=random.random,
        )
        self.sessions: Final = tuple(RouterSession(target, around) for target in settings.routers)

    async def listen(self) -> None:
        """Open the listener, if the operator wants one.

        Raises: CannotStart.
        """
        port = self._settings.p2p_listen_port
        if port is None:
            return
        try:
            bound = await self.plane.listen_for_peers("", port)
        except CannotListen as error:
            raise CannotStart(f"--p2p-listen-port {port}: {error}") from error
        log.info("listening_for_peers", addresses=list(bound))

    async def relaying(self) -> None:
        """Serve what routers send, until cancelled."""
        await self._relay.run()

    def sampling(self) -> Sequence[Coroutine[None, None, None]]:
        """What samples the engine until cancelled; nothing for an engine without metrics."""
        settings = self._settings
        read = FACES[settings.engine].metrics_in
        if read is None:
            return ()
        backend = self._engine_within(SAMPLE_WITHIN_S)
        interval_s = settings.engine_sample_interval_s
        return (EngineSampler(read, backend, interval_s=interval_s, reports=self.reports).run(),)

    def _engine_within(self, within_s: float) -> PlaneBackend:
        url = self._settings.backend_url
        return PlaneBackend(
            self.plane,
            self._server,
            host=host_of(url),
            prefix=url.path_prefix,
            fields=key_fields(self._settings.backend_api_key),
            within_s=within_s,
        )

    # What the data plane tells; see `ports.PlaneListener`.

    def arrival(self, exchange: Exchange) -> None:
        """A router sent a request that waits for an answer."""
        self._relay.arrival(exchange)

    def link_up(self, peer_id: str, remote: str, dialed: bool) -> None:
        """A session knows of its link by having dialled it."""
        log.debug("link_up", other=peer_id, remote=remote, dialed=dialed)

    def link_down(self, peer_id: str, why: str) -> None:
        """The session with that router dials again."""
        self._own_kind.discard(peer_id)
        for session in self.sessions:
            session.link_lost(peer_id, why)

    def identified(self, peer_id: str, agent_version: str) -> None:
        """A router of our own kind judges refusals itself; one that has not said what it is counts as an original."""
        if agent_version.startswith(OWN_AGENT_VERSION_PREFIX):
            self._own_kind.add(peer_id)
        else:
            self._own_kind.discard(peer_id)
        log.debug("peer_identified", other=peer_id, agent_version=agent_version)

    def rejected(self, listener: str, client: str, status: int, why: str) -> None:
        """The data plane has answered already."""
        log.debug("request_rejected", listener=listener, client=client, status=status, why=why)

    def _plane(self, identity: HeldIdentity) -> PlaneAdapter:
        try:
            return PlaneAdapter(
                identity.content,
                link_rules(self._settings),
                self,
                conns_per_ip=CONNECTIONS_PER_IP_MAX,
                welcome_within_s=WELCOME_WITHIN_S,
                inbound_served=STREAMS_SERVED_MAX,
                inbound_window_bytes=PROMPT_WINDOW_BYTES,
            )
        except OSError as error:
            raise CannotStart(f"the data plane does not start: {error}") from error

    def _watch(self, backend: PlaneBackend) -> BackendWatch:
        settings = self._settings
        face = FACES[settings.engine]
        health, path = backend, ""
        if face.probe_path is None and settings.health_url is not None:
            health, path = self._health_backend(settings.health_url)
        return BackendWatch(
            face,
            health=health,
            health_path=path,
            models=backend,
            model=settings.model,
            interval_s=settings.hardware_sample_interval_s,
            timeout_s=settings.probe_timeout_s,
            times_heard=lambda: self.plane.times_heard(self._server),
            reports=self.reports,
        )

    def _health_backend(self, url: str) -> tuple[PlaneBackend, str]:
        parts = urlsplit(url)
        server = BackendUrl(parts.scheme, parts.hostname or "", parts.port or 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        settings = self._settings
        where = HttpServer(server.host, server.port, kept_connections_max=1)
        # The key is the engine's, and this page may be somebody else's.
        is_engine = (server.host, server.port) == (settings.backend_url.host, settings.backend_url.port)
        fields = key_fields(settings.backend_api_key if is_engine else None)
        within_s = settings.probe_timeout_s
        return PlaneBackend(self.plane, where, host=host_of(server), prefix="", fields=fields, within_s=within_s), path


def _metadata(settings: AgentSettings) -> AgentMetadata:
    return AgentMetadata(
        capacity=settings.capacity,
        version=settings.version,
        region=settings.region,
        tags=settings.tags,
        engine=settings.engine,
        organization=settings.organization,
        machine=settings.machine,
        hide_llm=settings.hide_llm,
        llm_pretty_name=settings.llm_pretty_name,
        llm_info=settings.llm_info,
        capability=settings.capability,
        gpu_model=settings.gpu_model,
    )


def _admission(settings: AgentSettings, peer_id: str, clock: Clock) -> Admit:
    secret = settings.jwt_secret.reveal()
    secrets = [secret] if settings.jwt_secret_previous is None else [secret, settings.jwt_secret_previous.reveal()]
    pins = [grpc_pin(each) for each in secrets]

    async def admit(target: str, metadata: AgentMetadata) -> AuthOutcome:
        token = mint_agent_token(secret, peer_id, now=clock.unix())
        try:
            return await authenticate(target, pins, AuthRequest(token, metadata))
        except BootstrapFailed as failed:
            raise SessionFailed(str(failed), _what_to_check(failed)) from failed

    return admit


def _what_to_check(failed: BootstrapFailed) -> str:
    match failed:
        case WrongSecret():
            return "--jwt-secret-file (or HIVENET_ROUTER_JWT_SECRET) must hold the same secret on both sides"
        case AuthenticationRefused():
            return "the router's reason names it: the secret, one of the two clocks, or what this agent announces"
        case RegistrationTooLong():
            return "shorten the texts of this agent: --llm-info first, then --llm-pretty-name, --capability and --tags"
        case RouterUnreachable():
            return "is the router up, and does --routers (or --router-grpc) name its gRPC port?"
        case _:
            return "do router and agent fit together? Look at the router's log"


async def _resolve(host: str, version: int) -> tuple[str, ...]:
    family = {4: socket.AF_INET, 6: socket.AF_INET6}.get(version, socket.AF_UNSPEC)
    found = await asyncio.get_running_loop().getaddrinfo(host, None, family=family, type=socket.SOCK_STREAM)
    # An address that holds only on one interface cannot be written as a multiaddr.
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found if "%" not in str(entry[4][0])))


if __name__ == "__main__":
    sys.exit(main())
