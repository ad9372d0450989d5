"""`hivenet-router`: reads its settings, builds the world, serves until it is told to stop.

The only place that knows which implementation stands behind each port of the router.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hivenet_router.adapters.asgi import answer_with
from hivenet_router.adapters.clock import LoopClock
from hivenet_router.adapters.file_limit import raise_file_limit
from hivenet_router.adapters.grpc_server import CONNECTIONS_PER_SOURCE_MAX, Bounds, Refused, serve_bootstrap
from hivenet_router.adapters.identity_file import HeldIdentity, IdentityUnusable, load_or_create
from hivenet_router.adapters.listening import why_not
from hivenet_router.adapters.log import set_up_logs
from hivenet_router.adapters.loop import run
from hivenet_router.adapters.plane import PlaneAdapter
from hivenet_router.adapters.prometheus import CONTENT_TYPE, PrometheusRecorder
from hivenet_router.config import Exit, Program, RouterSettings, parse
from hivenet_router.core.agent import OWN_AGENT_STREAMS_MAX
from hivenet_router.core.file_shares import BOOTSTRAP_MAX, FileShares, TooFewFiles, of_one_address, router_shares
from hivenet_router.core.registry import Registry
from hivenet_router.names import paths
from hivenet_router.ports import (
    AnswerWith,
    BootstrapServer,
    CannotListen,
    DataPlane,
    DoorRules,
    PlaneBroken,
    PlaneListener,
    Recorder,
)
from hivenet_router.router.attend import REGISTER_WITHIN_S
from hivenet_router.router.control import control_app
from hivenet_router.router.pages import Press
from hivenet_router.router.serve import MANAGEMENT_STREAMS_MAX, Router, World, running, stopped_by_signal
from hivenet_router.wire.auth_messages import AuthOutcome, AuthRequest
from hivenet_router.wire.tls_identity import grpc_identity

log = structlog.get_logger("router")

FAILED: Final = 1
BROKEN_ADVICE: Final = "a fault of this program: start it again, and report this line with what stands above it"
AGENT_STREAMS_MAX: Final = OWN_AGENT_STREAMS_MAX
"""Requests on their way to one agent at once, whatever its capacity; each may hold 256 KiB of unread answer."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parsed = parse(Program.ROUTER, sys.argv[1:] if argv is None else argv, os.environ)
    if isinstance(parsed, Exit):
        sys.stdout.write(parsed.stdout)
        sys.stderr.write(parsed.stderr)
        return parsed.code
    set_up_logs(parsed.log_level, parsed.log_levels_by_logger, parsed.log_format)
    for warning in parsed.warnings:
        log.warning("setting", advice=warning)
    try:
        shares = router_shares(raise_file_limit())
        with load_or_create(parsed.identity_path) as identity:
            if identity.warning:
                log.warning("setting", advice=identity.warning)
            return run(_serve(parsed, identity, shares))
    except (IdentityUnusable, TooFewFiles) as error:
        log.error("router_cannot_start", why=str(error))  # noqa: TRY400  # a sentence for the operator, not a trace
        return FAILED


async def _serve(settings: RouterSettings, identity: HeldIdentity, shares: FileShares) -> int:
    try:
        async with running(settings, build_world(settings, identity.content, shares)) as router:
            _say_started(router)
            await stopped_by_signal(router)
    except ExceptionGroup as group:
        cannot_listen, broken = group.subgroup(CannotListen), group.subgroup(PlaneBroken)
        if cannot_listen is None and broken is None:
            raise
        for error in cannot_listen.exceptions if cannot_listen else ():
            log.error("router_cannot_start", why=str(error))  # noqa: TRY400
        for fault in broken.exceptions if broken else ():
            log.error("router_failed", why=str(fault), advice=BROKEN_ADVICE)  # noqa: TRY400
        return FAILED
    return 0


def build_world(settings: RouterSettings, identity: bytes, shares: FileShares) -> World:
    """The real world of a router with this key file."""
    clock = LoopClock()

    def open_plane(listener: PlaneListener, rules: DoorRules) -> DataPlane:
        per_ip = settings.p2p_connections_per_ip_max
        return PlaneAdapter(
            identity,
            rules,
            listener,
            conns_per_ip=per_ip,
            links_max=shares.links,
            welcome_within_s=REGISTER_WITHIN_S,
            inbound_served=MANAGEMENT_STREAMS_MAX,
            inbound_waiting=MANAGEMENT_STREAMS_MAX,
            streams_max=AGENT_STREAMS_MAX,
        )

    def recorder_for(registry: Registry) -> tuple[Recorder, AnswerWith]:
        recorder = PrometheusRecorder(registry, legacy_names=settings.legacy_metric_names, clock=clock)
        return recorder, answer_with(_metrics_app(recorder))

    return World(
        clock=clock,
        open_plane=open_plane,
        open_bootstrap=functools.partial(open_bootstrap, connections_max=shares.bootstrap),
        recorder_for=recorder_for,
        control_for=lambda registry: answer_with(control_app(registry, clock)),
        shares=shares,
    )


async def open_bootstrap(
    host: str,
    port: int,
    secret: bytes,
    authenticate: Callable[[AuthRequest, str], AuthOutcome],
    *,
    connections_max: int = BOOTSTRAP_MAX,
) -> BootstrapServer:
    """The gRPC service of this secret. Raises: CannotListen."""
    bounds = Bounds(
        connections_max=connections_max,
        connections_per_source_max=min(CONNECTIONS_PER_SOURCE_MAX, of_one_address(connections_max)),
    )
    try:
        return await serve_bootstrap((host, port), grpc_identity(secret), authenticate, _grpc_refused, bounds=bounds)
    except OSError as error:
        raise CannotListen(why_not(error)) from error


def _grpc_refused(refused: Refused) -> None:
    log.warning("grpc_refused", client=refused.source, why=refused.reason, times=refused.times)


def _metrics_app(recorder: PrometheusRecorder) -> Starlette:
    press = Press()

    async def page(_request: Request) -> Response:
        page = await press.page(paths.METRICS, recorder.page_in_pieces)
        return Response(page, headers={"content-type": CONTENT_TYPE})

    return Starlette(routes=[Route(paths.METRICS, page)])


def _say_started(router: Router) -> None:
    addresses = router.addresses
    if addresses is not None:
        log.info(
            "router_started",
            http=",".join(map(_joined, addresses.http)),
            metrics=",".join(map(_joined, addresses.metrics)),
            grpc=[_joined(address) for address in addresses.grpc],
            libp2p=list(addresses.libp2p),
            peer_id=router.plane.peer_id,
        )


def _joined(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


if __name__ == "__main__":
    sys.exit(main())
