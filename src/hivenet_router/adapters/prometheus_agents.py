"""What does the metrics page say about each agent?

Everything here is read from the registry when the page is asked for, gauges and counts alike, so it cannot drift from
what routing sees: an agent's series exist from its registration on, at zero, and change their labels with it. Only the
last sign of life is told by events, since the registry keeps it on another clock. Invariant: a removed agent's gauges
are gone at once, its counts stay for `COUNTS_KEPT_S`, and at most `DEPARTED_MAX` of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from hivenet_router.adapters.prometheus_series import Block, label_text, labels_text, sample_line
from hivenet_router.core.agent import Agent, series_identity
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.core.ids import PeerId
from hivenet_router.core.outcomes import Outcomes
from hivenet_router.core.registry import COUNTS_KEPT_S, DEPARTED_MAX, Registry
from hivenet_router.names import metrics
from hivenet_router.names.metrics import Metric
from hivenet_router.wire.auth_messages import AgentMetadata

_MS: Final = 1000.0
T = TypeVar("T")


def _srtt_ms(agent: Agent) -> float:
    trip = agent.outcomes.round_trip
    return trip.srtt_s * _MS if trip is not None else 0


def _rttvar_ms(agent: Agent) -> float:
    trip = agent.outcomes.round_trip
    return trip.rttvar_s * _MS if trip is not None else 0


_OF_REGISTRATION: Final[tuple[tuple[Metric, Callable[[Agent], float]], ...]] = (
    (metrics.ROUTING_AGENT_INFO, lambda agent: 1),
    (metrics.ROUTING_AGENT_HEALTHY, lambda agent: int(agent.healthy)),
    (metrics.ROUTING_AGENT_SUSPECT, lambda agent: int(agent.outcomes.suspicion is not None)),
)
_OF_AGENT: Final[tuple[tuple[Metric, Callable[[Agent], float]], ...]] = (
    (metrics.AGENT_SUCCESS_RATE, lambda agent: agent.outcomes.success_rate or 0),
    (metrics.AGENT_CAPACITY_UTILIZATION, lambda agent: agent.capacity_utilization),
    (metrics.AGENT_SRTT_MS, _srtt_ms),
    (metrics.AGENT_RTTVAR_MS, _rttvar_ms),
    (metrics.AGENT_ACTIVE_REQUESTS, lambda agent: agent.active_slots),
)
_OF_OUTCOMES: Final[tuple[tuple[Metric, Callable[[Outcomes], int]], ...]] = (
    (metrics.AGENT_REQUESTS_SUCCESS, lambda outcomes: outcomes.successes),
    (metrics.AGENT_REQUESTS_FAILED, lambda outcomes: outcomes.failures),
    (metrics.AGENT_INPUT_TOKENS, lambda outcomes: outcomes.input_tokens),
    (metrics.AGENT_OUTPUT_TOKENS, lambda outcomes: outcomes.output_tokens),
    (metrics.AGENT_REJECTED_REQUESTS, lambda outcomes: outcomes.lost_races),
    (metrics.AGENT_DISCONNECTIONS, lambda outcomes: outcomes.disconnections),
    (metrics.AGENT_FAILURE, lambda outcomes: outcomes.agent_failures),
    (metrics.MODEL_BACKEND_FAILURE, lambda outcomes: outcomes.backend_failures),
)

READ_FROM_REGISTRY: Final[frozenset[Metric]] = frozenset(
    {
        metrics.ROUTING_AGENT_LAST_SEEN,
        *(metric for metric, _ in _OF_REGISTRATION),
        *(metric for metric, _ in _OF_AGENT),
        *(metric for metric, _ in _OF_OUTCOMES),
    }
)
"""The rows this module fills; every other row lives from events."""


@dataclass(frozen=True, slots=True)
class _Labelled:
    """An agent and the label texts it has while its metadata are these."""

    agent: Agent
    metadata: AgentMetadata
    as_registered: str
    as_agent: str


@dataclass(frozen=True, slots=True)
class _Departed:
    """What stays of a removed agent. A request that still ends on it is counted here."""

    labels: str
    outcomes: Outcomes
    until: Monotonic


def _labelled(agent: Agent) -> _Labelled:
    identity = series_identity(agent.metadata)
    named = {name: label_text(str(value)) for name, value in identity._asdict().items()}
    named["peer_id"] = label_text(agent.peer)
    registered, plain = metrics.REGISTRATION_LABELS, metrics.AGENT_LABELS
    return _Labelled(
        agent,
        agent.metadata,
        labels_text(registered, [named[name] for name in registered]),
        labels_text(plain, [named[name] for name in plain]),
    )


class AgentSeries:
    """The agents as the page shows them, the recently removed included."""

    def __init__(self, registry: Registry, on_overflow: Callable[[str, int], None], *, label_sets_max: int) -> None:
        self._registry: Final = registry
        self._on_overflow: Final = on_overflow
        self._label_sets_max: Final = label_sets_max
        self._labelled: Final[dict[PeerId, _Labelled]] = {}
        self._last_seen: Final[dict[PeerId, UnixTime]] = {}
        self._departed: Final[dict[PeerId, _Departed]] = {}

    def seen(self, agent: Agent, *, at: UnixTime) -> None:
        """Keep when the agent last gave a sign of life, unless it has left meanwhile."""
        if self._registry.agent(agent.peer) is agent:
            self._last_seen[agent.peer] = at

    def registered(self, agent: Agent, *, at: UnixTime) -> None:
        """The agent's own series take the place of what was kept of it."""
        self._labels_of(agent)
        self._departed.pop(agent.peer, None)
        self._last_seen[agent.peer] = at

    def removed(self, agent: Agent, *, now: Monotonic) -> list[PeerId]:
        """Keep the agent's counts for a while; who had to be forgotten for it."""
        labels = self._labels_of(agent).as_agent
        del self._labelled[agent.peer]
        self._last_seen.pop(agent.peer, None)
        self._departed.pop(agent.peer, None)
        self._departed[agent.peer] = _Departed(labels, agent.outcomes, Monotonic(now + COUNTS_KEPT_S))
        return self.forget_departed(now=now)

    def forget_departed(self, *, now: Monotonic) -> list[PeerId]:
        """Drop the counts that were kept long enough, and the oldest where there are too many; whose they were."""
        forgotten: list[PeerId] = []
        for peer, departed in self._departed.items():
            is_one_too_many = len(self._departed) - len(forgotten) > DEPARTED_MAX
            if departed.until > now and not is_one_too_many:
                break
            forgotten.append(peer)
        for peer in forgotten:
            del self._departed[peer]
        return forgotten

    def remembers(self, peer: PeerId) -> bool:
        """Whether the page has anything on this peer."""
        return peer in self._departed or self._registry.agent(peer) is not None

    def blocks(self) -> list[Block]:
        """The families of those who are there now; figures are read with the lines.

        Agents beyond the bound of label sets are left off and counted, since a gauge of nobody says nothing.
        """
        everyone = [self._labels_of(agent) for agent in self._registry]
        shown = everyone[: self._label_sets_max]
        departed = tuple(self._departed.values())[: self._label_sets_max - len(shown)]
        left_off = len(everyone) - len(shown)
        if left_off:
            for metric in READ_FROM_REGISTRY:
                self._on_overflow(metric.name, left_off)
        return list(_blocks(shown, departed, self._last_seen.copy()))

    def _labels_of(self, agent: Agent) -> _Labelled:
        known = self._labelled.get(agent.peer)
        if known is None or known.agent is not agent or known.metadata is not agent.metadata:
            known = self._labelled[agent.peer] = _labelled(agent)
        return known


def _blocks(
    agents: list[_Labelled], departed: tuple[_Departed, ...], last_seen: dict[PeerId, UnixTime]
) -> Iterator[Block]:
    registered = [(one.as_registered, one.agent) for one in agents]
    seen = [each for each in registered if each[1].peer in last_seen]
    yield _block(metrics.ROUTING_AGENT_LAST_SEEN, lambda agent: int(last_seen[agent.peer] * _MS), seen)
    for metric, read in _OF_REGISTRATION:
        yield _block(metric, read, registered)
    plain = [(one.as_agent, one.agent) for one in agents]
    for metric, read in _OF_AGENT:
        yield _block(metric, read, plain)
    outcomes = [(one.as_agent, one.agent.outcomes) for one in agents]
    outcomes += [(one.labels, one.outcomes) for one in departed]
    for metric, count in _OF_OUTCOMES:
        yield _block(metric, count, outcomes)


def _block(metric: Metric, read: Callable[[T], float], labelled: Sequence[tuple[str, T]]) -> Block:
    lines = (sample_line(metric.name, labels, read(one)) for labels, one in labelled)
    return Block(metric.name, metric.kind, metric.help, lines)
