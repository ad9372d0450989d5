"""A registry with a recorder on its changes, and what a small house would report to it."""

from collections.abc import Callable
from typing import Final

from tests.core.making import MODEL, START, described

from hivenet_router.adapters.prometheus import PrometheusRecorder
from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.core.ids import DeploymentId, ModelName, PeerId
from hivenet_router.core.registry import Registry
from hivenet_router.ports import Recorder, RequestEnd
from hivenet_router.wire.auth_messages import AgentMetadata

NOW_UNIX: Final = UnixTime(1_764_000_000.25)
CHAT: Final = "/v1/chat/completions"


class SetClock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> Monotonic:
        return Monotonic(START + self.seconds)

    def unix(self) -> UnixTime:
        return UnixTime(NOW_UNIX + self.seconds)


class Scene:
    """A registry whose changes reach a recorder, and the recorder's page."""

    def __init__(
        self,
        *,
        legacy_names: bool = True,
        label_sets_max: int = 10_000,
        is_configured: Callable[[ModelName], bool] = lambda model: False,
    ) -> None:
        self.clock = SetClock()
        self.registry = Registry(lambda change: self.recorder.registry_changed(change))
        self.recorder = PrometheusRecorder(
            self.registry,
            legacy_names=legacy_names,
            clock=self.clock,
            is_configured=is_configured,
            label_sets_max=label_sets_max,
        )

    def join(self, peer: PeerId, metadata: AgentMetadata | None = None, deployment: str = "") -> Agent:
        self.registry.link_up(peer)
        registered = self.registry.register(
            peer, metadata or described(), DeploymentId(deployment), now=self.clock.now()
        )
        self.recorder.agent_seen(registered.agent, at=self.clock.unix())
        return registered.agent

    def shown(self) -> dict[str, float]:
        """Every sample of the page, by name and labels."""
        lines = self.recorder.page().decode().splitlines()
        samples = [line.rpartition(" ") for line in lines if not line.startswith(("#", "process_"))]
        assert len({name for name, _, _ in samples}) == len(samples)
        return {name: float(value) for name, _, value in samples}

    def shown_of(self, text: str) -> dict[str, float]:
        return {name: value for name, value in self.shown().items() if text in name}


def ended(
    agent: Agent | None = None,
    outcome: str = "served",
    status: int = 200,
    *,
    model: ModelName = MODEL,
    was_routed: bool = True,
    first_byte_s: float = 0.7,
) -> RequestEnd:
    return RequestEnd(
        model=model,
        outcome=outcome,
        status=status,
        agent=agent,
        tenant="acme",
        first_byte_s=first_byte_s,
        duration_s=1.5,
        input_tokens=12 if agent else 0,
        output_tokens=34 if agent else 0,
        was_routed=was_routed,
    )


def play(recorder: Recorder, agent: Agent) -> None:
    """One served stream after a failed attempt and a wait, one request that nobody could serve, one turned away."""
    recorder.http_began("POST", CHAT)
    recorder.attempt_failed(agent, "acme")
    recorder.parked(MODEL, 1)
    recorder.parked(MODEL, 0)
    recorder.waited(MODEL, 0.03)
    recorder.attempt_answered(agent, "acme")
    recorder.streams(MODEL, +1)
    recorder.streams(MODEL, -1)
    recorder.request_ended(ended(agent))
    recorder.http_ended("POST", CHAT, 200, 1.5)
    recorder.http_began("POST", CHAT)
    recorder.policy_exhausted(MODEL, "acme")
    recorder.request_ended(ended(None, "no_capacity", 503, was_routed=False, first_byte_s=0.0))
    recorder.http_ended("POST", CHAT, 503, 5.0)
    recorder.edge_rejected("api", "malformed")
    recorder.agent_link_reset(MODEL, "forward_failure")
