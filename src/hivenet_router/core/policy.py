"""Which agent of a model may take a request in this step of a policy, and if none, why?

Each agent is put to the tests of `Hurdle` in that order and stops at its first failing one. The usual answer is found
without looking at every agent; they are counted one by one only when none can take the request, since then the counts
say whether waiting helps and what the client is told. Invariant: an agent is chosen exactly when it passes all tests.
Taking the slot, waiting and going on to the next step belong to the rooms.
"""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.pool import ModelPool
from hivenet_router.core.ranking import STRATEGIES, RankedAgent
from hivenet_router.core.refusals import RefusalReason, reason
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import Capability
from hivenet_router.wire.auth_messages import AgentMetadata

_NO_PEERS: Final[frozenset[PeerId]] = frozenset()


class Hurdle(IntEnum):
    """The tests in their order; the number and the name stand in the log line of an exhausted policy.

    Source: configuration.md §6.4.
    """

    MODEL_FILTER = 1
    HEALTH = 2
    CAPABILITY = 3
    MATCH = 4
    PREV_FAILURES = 5
    CAPACITY = 6
    EXCLUDE_IF = 7


@dataclass(frozen=True, slots=True)
class Match:
    """What an agent must have declared; an empty field accepts any. Comparisons are exact.

    Source: configuration.md §6.1.
    """

    region: str = ""
    engine: str = ""
    organization: str = ""
    machine: str = ""
    gpu_model: str = ""
    tags: frozenset[str] = frozenset()

    def accepts(self, metadata: AgentMetadata) -> bool:
        """Whether every field that is not empty is met, and every tag is among the agent's."""
        return (
            self.region in ("", metadata.region)
            and self.engine in ("", metadata.engine)
            and self.organization in ("", metadata.organization)
            and self.machine in ("", metadata.machine)
            and self.gpu_model in ("", metadata.gpu_model)
            and self.tags.issubset(metadata.tags)
        )


ANY_AGENT: Final = Match()


class Gate(Protocol):
    """One threshold on what an agent measures; an agent without the measure passes."""

    def excludes(self, agent: Agent) -> bool:
        """Whether the agent's value crosses the threshold."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """One step of a policy; `max_tries` 0 stands for the router's own limit."""

    name: str
    match: Match = ANY_AGENT
    gates: tuple[Gate, ...] = ()
    strategy: str = "least-loaded"
    max_tries: int = 0


BUILT_IN_STEP: Final = PolicyStep("routing_policy")
"""What is in force where no policy was written. Source: configuration.md §6.3."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The agent to try first; its slot is still to be taken."""

    agent: Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCandidate:
    """How many agents of the model failed which test, each counted once, at its first failing test."""

    unhealthy: int = 0
    wrong_capability: int = 0
    not_matching: int = 0
    failed_in_step: int = 0
    full: int = 0
    gated: int = 0
    offered: frozenset[str] = frozenset()
    """What the model is served as by any registered agent, healthy or not."""

    @property
    def registered(self) -> int:
        """All agents of the model."""
        return self.unhealthy + self.wrong_capability + self.not_matching + self.failed_in_step + self.full + self.gated

    @property
    def may_wait(self) -> bool:
        """Whether a freed slot would help: some agent passes every test but capacity, gates not asked.

        Source: configuration.md §6.4, "No candidate".
        """
        return self.full > 0

    @property
    def emptied_by(self) -> Hurdle:
        """The test at which the last agents fell out."""
        fallen = (
            (self.gated, Hurdle.EXCLUDE_IF),
            (self.full, Hurdle.CAPACITY),
            (self.failed_in_step, Hurdle.PREV_FAILURES),
            (self.not_matching, Hurdle.MATCH),
            (self.wrong_capability, Hurdle.CAPABILITY),
            (self.unhealthy, Hurdle.HEALTH),
        )
        return next((hurdle for count, hurdle in fallen if count), Hurdle.MODEL_FILTER)


def choose(
    step: PolicyStep,
    agents: ModelPool | None,
    capability: Capability,
    failed_in_step: Set[PeerId] = _NO_PEERS,
    busy_in_step: Set[PeerId] = _NO_PEERS,
    *,
    now: Monotonic,
) -> Agent | None:
    """The agent that this step tries first among a model's; None if none can take a request now.

    A suspect whose pause is over comes before all others, one request at a time, while another agent could take the
    request too.

    `busy_in_step` holds agents that turned this request away as full although we believed otherwise; they count as
    full, so that a request may wait for them.

    Source: configuration.md §6.4; signals.md §4; decisions.md 36.
    """
    if agents is None:
        return None
    out_of_step = failed_in_step | busy_in_step if busy_in_step else failed_in_step
    usable = _usable(step, agents.ranked(), capability, out_of_step)
    first = next(STRATEGIES[step.strategy](usable, now=now), None)
    if agents.suspects and first is not None and first.outcomes.suspicion is None:
        due = (ranked for ranked in agents.ranked_suspects() if _is_due(ranked[2], now))
        return next((agent for _, _, agent in _usable(step, due, capability, out_of_step)), first)
    return first


def _is_due(agent: Agent, now: Monotonic) -> bool:
    """Whether a suspect may be tried. A request that waits for its first byte there is a try already."""
    suspicion = agent.outcomes.suspicion
    return suspicion is not None and suspicion.is_due(now=now) and agent.active_slots == 0


def may_wait(
    step: PolicyStep,
    agents: ModelPool | None,
    capability: Capability,
    failed_in_step: Set[PeerId] = _NO_PEERS,
    busy_in_step: Set[PeerId] = _NO_PEERS,
) -> bool:
    """Whether, where `choose` found none, a freed slot would help; stops at the first agent that says so."""
    return agents is not None and any(
        _first_failing(step, agents, agent, capability, failed_in_step, busy_in_step) is Hurdle.CAPACITY
        for agent in agents
    )


def is_offered(agents: ModelPool | None, capability: Capability) -> bool:
    """Whether any agent of the model is registered for this, healthy or not; if not, no wait for anything helps."""
    return agents is not None and any(agent.metadata.capability == capability for agent in agents)


def evaluate(
    step: PolicyStep,
    agents: ModelPool | None,
    capability: Capability,
    failed_in_step: Set[PeerId] = _NO_PEERS,
    busy_in_step: Set[PeerId] = _NO_PEERS,
    *,
    now: Monotonic,
) -> Chosen | NoCandidate:
    """What `choose` finds, or the counts of why there is none, for the log and the refusal.

    Counting looks at every agent, so what merely waits again asks `choose` and `may_wait`.
    """
    first = choose(step, agents, capability, failed_in_step, busy_in_step, now=now)
    if first is not None:
        return Chosen(first)
    if agents is None:
        return NoCandidate()
    return _why_none(step, agents, capability, failed_in_step, busy_in_step)


def _usable(
    step: PolicyStep, with_free_slot: Iterable[RankedAgent], capability: Capability, out_of_step: Set[PeerId]
) -> Iterator[RankedAgent]:
    """Those of these agents, which have a free slot, that pass every other test, in the order in which they come."""
    match, gates = step.match, step.gates
    for ranked in with_free_slot:
        agent = ranked[2]
        metadata = agent.metadata
        if (
            metadata.capability == capability
            and agent.peer not in out_of_step
            and (match is ANY_AGENT or match.accepts(metadata))
            and not (gates and any(gate.excludes(agent) for gate in gates))
        ):
            yield ranked


def _why_none(
    step: PolicyStep,
    agents: ModelPool,
    capability: Capability,
    failed_in_step: Set[PeerId],
    busy_in_step: Set[PeerId],
) -> NoCandidate:
    fallen = [0] * (max(Hurdle) + 1)
    for agent in agents:
        fallen[_first_failing(step, agents, agent, capability, failed_in_step, busy_in_step)] += 1
    return NoCandidate(
        unhealthy=fallen[Hurdle.HEALTH],
        wrong_capability=fallen[Hurdle.CAPABILITY],
        not_matching=fallen[Hurdle.MATCH],
        failed_in_step=fallen[Hurdle.PREV_FAILURES],
        full=fallen[Hurdle.CAPACITY],
        gated=fallen[Hurdle.EXCLUDE_IF],
        offered=agents.capabilities(),
    )


def _first_failing(
    step: PolicyStep,
    agents: ModelPool,
    agent: Agent,
    capability: Capability,
    failed_in_step: Set[PeerId],
    busy_in_step: Set[PeerId],
) -> Hurdle:
    if agent.peer not in agents.routable:
        return Hurdle.HEALTH
    if agent.metadata.capability != capability:
        return Hurdle.CAPABILITY
    if step.match is not ANY_AGENT and not step.match.accepts(agent.metadata):
        return Hurdle.MATCH
    if agent.peer in failed_in_step:
        return Hurdle.PREV_FAILURES
    if agent.peer not in agents.with_free_slot or agent.peer in busy_in_step:
        return Hurdle.CAPACITY
    # Invariant: no agent passes them all here, or it would have been chosen, so the gates are what is left.
    return Hurdle.EXCLUDE_IF


def refusal_for(outcome: NoCandidate, model: ModelName, capability: Capability) -> RefusalReason:
    """What the client is told when the last step ended so and no agent was tried.

    Source: configuration.md §6.4, "all steps done"; http-api.md §15, 7 (a model of another capability) and 29.
    """
    if outcome.registered == 0:
        return reason(ErrorCode.MODEL_NOT_FOUND, f"no agent serves the model '{model}'")
    if capability not in outcome.offered:
        offered = " and ".join(sorted(outcome.offered))
        return reason(
            ErrorCode.REQUEST_INVALID,
            f"the model '{model}' is served for capability {offered}, but this path needs {capability}",
        )
    if outcome.may_wait:
        return reason(
            ErrorCode.NO_CAPACITY,
            f"every agent that may serve the model '{model}' is at its capacity; try again shortly",
        )
    if outcome.unhealthy == outcome.registered:
        return reason(ErrorCode.NO_AGENTS_AVAILABLE, f"no healthy agent serves the model '{model}' at the moment")
    return reason(
        ErrorCode.NO_AGENTS_AVAILABLE, f"no agent that may serve the model '{model}' is available at the moment"
    )
