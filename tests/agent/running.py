"""An agent with fake routers and a fake engine, running in the background of a test."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.fakes.agent_world import FakeEngine, FakeNetwork, FakeRouter, peer_id

from hivenet_router.agent.claims import Claims
from hivenet_router.agent.connect import RouterSession, Surroundings
from hivenet_router.agent.engines import FACES
from hivenet_router.agent.probe import BackendWatch
from hivenet_router.agent.report import Reports
from hivenet_router.agent.serve import Stop, serve
from hivenet_router.config import HostPort
from hivenet_router.names.protocol_ids import Engine
from hivenet_router.wire.auth_messages import AgentMetadata

AGENT = peer_id(100)
METADATA = AgentMetadata(capacity=2, version="1", region="eu", engine="vllm", organization="o")


@dataclass
class RunningAgent:
    """The parts a test looks at or turns; `running` is what the data plane would count."""

    network: FakeNetwork
    engine: FakeEngine
    watch: BackendWatch
    reports: Reports
    claims: Claims
    sessions: tuple[RouterSession, ...]
    stop: Stop
    running: list[int]
    done: "asyncio.Task[None] | None" = None

    @property
    def session(self) -> RouterSession:
        return self.sessions[0]

    def link_down(self, router: FakeRouter, why: str = "the peer closed the connection") -> None:
        for session in self.sessions:
            session.link_lost(router.peer_id, why)


@asynccontextmanager
async def agent_of(
    routers: dict[str, FakeRouter],
    *,
    engine: FakeEngine | None = None,
    targets: tuple[str, ...] | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    model: str | None = None,
    shutdown_timeout_s: float = 30.0,
    signal_interval_s: float = 0.5,
) -> AsyncIterator[RunningAgent]:
    """The agent of these routers, each under its address; ended with the block, if it has not ended by then."""
    engine = engine or FakeEngine()
    network = FakeNetwork(routers, names)
    running = [0]
    reports, claims, stop = Reports(lambda: running[0]), Claims(), Stop()
    watch = BackendWatch(
        FACES[Engine.VLLM],
        health=engine,
        health_path="",
        models=engine,
        model=model,
        interval_s=2.0,
        timeout_s=5.0,
        times_heard=lambda: engine.times_heard,
        reports=reports,
    )
    around = Surroundings(
        peer_id=AGENT,
        metadata=METADATA,
        deployment_id="d",
        replica_id="r",
        signal_interval_s=signal_interval_s,
        backend=watch,
        reports=reports,
        claims=claims,
        links=network,
        admit=network.admit,
        resolve=network.resolve,
        chance=lambda: 0.0,
    )
    sessions = tuple(RouterSession(_target(text), around) for text in targets or tuple(routers))
    agent = RunningAgent(network, engine, watch, reports, claims, sessions, stop, running)
    agent.done = asyncio.create_task(
        serve(
            sessions,
            [watch.run()],
            reports=reports,
            requests_running=lambda: running[0],
            stop=stop,
            shutdown_timeout_s=shutdown_timeout_s,
        )
    )
    try:
        yield agent
    finally:
        agent.done.cancel()
        await asyncio.wait([agent.done])


def _target(text: str) -> HostPort:
    host, _, port = text.rpartition(":")
    return HostPort(host, int(port))
