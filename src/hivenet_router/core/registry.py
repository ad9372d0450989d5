"""Which agents are there, in what state, and who of them serves a model?

The one place that changes agents, so that the order of each model's agents always agrees with their loads. Redirect,
hold, quota and sync ask it the same questions as routing does. Invariant: an agent is in exactly one model's pool, and
every change is told to the one listener after everything is consistent again, so the listener may call back in.
Sessions, tokens and connections are others' business: the registry only hears that a peer has a link or has none.
"""

from collections.abc import Callable, Iterator
from typing import Final

from hivenet_router.core.agent import LOAD_FRESH_S, Agent, Load, Measured, Report, series_identity
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
from hivenet_router.core.ids import DeploymentId, ModelName, PeerId, ReplicaId
from hivenet_router.core.outcomes import History, Outcomes
from hivenet_router.core.pool import ModelPool
from hivenet_router.core.slots import Slot, Stage
from hivenet_router.names.protocol_ids import OLLAMA_DEFAULT_TAG, Engine
from hivenet_router.wire.auth_messages import AgentMetadata

COUNTS_KEPT_S: Final = 600.0
"""How long an agent's counts outlive it; one that returns by then goes on counting. Source: decisions.md 29."""
DEPARTED_MAX: Final = 1_000
"""Of how many removed agents the counts are kept."""

_NO_DEPLOYMENT: Final = DeploymentId("")
_NO_REPLICA: Final = ReplicaId("")
_NO_HISTORY: Final = History()
_NO_REPORT: Final = Report()


def _nobody_listens(change: Change) -> None:
    """The listener of a registry that was built without one."""


class Registry:
    """All registered agents, by peer and by model."""

    __slots__ = ("_agents", "_departed", "_links", "_on_change", "_pools")

    def __init__(self, on_change: Callable[[Change], None] = _nobody_listens) -> None:
        self._agents: dict[PeerId, Agent] = {}
        self._pools: dict[ModelName, ModelPool] = {}
        self._links: dict[PeerId, set[int]] = {}
        # The counts of those who were removed, and until when they are kept; in the order of their removal.
        self._departed: dict[PeerId, tuple[Outcomes, Monotonic]] = {}
        self._on_change = on_change

    # Asking

    def __len__(self) -> int:
        return len(self._agents)

    def __iter__(self) -> Iterator[Agent]:
        """All agents, in the order of their first registration."""
        return iter(self._agents.values())

    def agent(self, peer: PeerId) -> Agent | None:
        """The agent of this peer, if registered."""
        return self._agents.get(peer)

    def pool(self, model: ModelName) -> ModelPool | None:
        """The agents of a model as routing sees them; None when no agent is registered for it."""
        return self._pools.get(model)

    def named(self, model: ModelName) -> ModelName:
        """The name under which this model is registered: Ollama's go with and without the tag that goes without saying.

        A name with that tag is another one where anything but Ollama serves the model, since the body keeps it.
        Source: field-cases.md O-24.
        """
        if model in self._pools or not model.endswith(OLLAMA_DEFAULT_TAG):
            return model
        plain = ModelName(model.removesuffix(OLLAMA_DEFAULT_TAG))
        agents = self._pools.get(plain, ())
        is_ollamas = bool(agents) and all(agent.metadata.engine == Engine.OLLAMA for agent in agents)
        return plain if is_ollamas else model

    def models(self) -> tuple[ModelName, ...]:
        """Every model that at least one registered agent serves, sorted by name."""
        return tuple(sorted(self._pools))

    def agents_of(self, model: ModelName) -> tuple[Agent, ...]:
        """All agents registered for a model, in peer-ID order."""
        return tuple(self._pools.get(model, ()))

    def healthy_agents_of(self, model: ModelName) -> tuple[Agent, ...]:
        """The agents of a model that may be routed to, full ones included, in peer-ID order."""
        return tuple(agent for agent in self._pools.get(model, ()) if agent.routable)

    def replicas_of(self, model: ModelName) -> int:
        """How many agents of a model may be routed to; costs the same for one and for a thousand."""
        pool = self._pools.get(model)
        return 0 if pool is None else len(pool.routable)

    def is_linked(self, peer: PeerId) -> bool:
        """Whether a peer, registered or not, has a live connection."""
        return peer in self._links

    # What agents do

    def register(
        self,
        peer: PeerId,
        metadata: AgentMetadata,
        deployment_id: DeploymentId = _NO_DEPLOYMENT,
        replica_id: ReplicaId = _NO_REPLICA,
        *,
        streams_max: int | None = None,
        is_original: bool = False,
        history: History = _NO_HISTORY,
        now: Monotonic,
    ) -> Registered:
        """Take in an agent, or renew one in place, and say what it was before.

        A known peer keeps its slots, streams, counts, round trip and the last known health of its backend, and moves to
        another model whole. One that was removed lately goes on with its counts; `history` counts for any other new
        peer. `streams_max` and `is_original` are as for
        `identified`. `metadata` must have passed `core.bootstrap.judge`, so that its capacity is positive.

        Source: signals.md §5 and §9.2; wire.md §14, 15 and 34.
        """
        agent = self._agents.get(peer)
        if agent is None:
            previous, free_before = None, 0
            outcomes = self._counts_of(peer, now=now) or Outcomes(history)
            agent = self._agents[peer] = Agent(peer, metadata, outcomes, now=now)
            agent.linked = peer in self._links
        else:
            previous, free_before = series_identity(agent.metadata), agent.filed_free_slots
        changes_pool = previous is None or previous.model != metadata.model
        if previous is not None and changes_pool:
            self._leave_pool(agent)
            free_before = 0
        was_healthy = agent.healthy
        agent.metadata = metadata
        agent.deployment_id, agent.replica_id = deployment_id, replica_id
        agent.streams_max, agent.is_original = streams_max, is_original
        agent.process_healthy = True
        agent.last_seen_at = now
        free_slots = self._enter_pool(agent) if changes_pool else self._file(agent)
        registered = Registered(agent, previous)
        self._on_change(registered)
        if agent.healthy != was_healthy:
            self._on_change(HealthChanged(agent, HealthCause.HEARTBEAT))
        self._tell_if_freed(agent, free_before, free_slots)
        return registered

    def heartbeat(
        self,
        peer: PeerId,
        *,
        backend_healthy: bool,
        leaving: bool = False,
        report: Report = _NO_REPORT,
        now: Monotonic,
    ) -> bool:
        """Book a sign of life with what it reports; False when the peer is not registered.

        An agent that leaves takes nothing more either, but nothing is wrong with its backend.
        Source: signals.md §1.6 and §5.1.
        """
        agent = self._agents.get(peer)
        if agent is None:
            return False
        free_before = agent.filed_free_slots
        was_healthy, process_was_healthy = agent.healthy, agent.process_healthy
        if agent.backend_healthy and not backend_healthy and not leaving:
            agent.outcomes.backend_failures += 1
        agent.process_healthy, agent.backend_healthy, agent.leaving = True, backend_healthy and not leaving, leaving
        agent.last_seen_at = now
        free_slots = self._take_report(agent, report, now=now)
        if agent.healthy != was_healthy:
            cause = HealthCause.BACKEND if process_was_healthy else HealthCause.HEARTBEAT
            cause = HealthCause.LEAVING if leaving else cause
            self._on_change(HealthChanged(agent, cause))
        self._tell_if_freed(agent, free_before, free_slots)
        return True

    def signals(self, peer: PeerId, *, report: Report, now: Monotonic) -> bool:
        """Keep newer reports; health and the last sign of life stay. False when the peer is not registered.

        Source: signals.md §1.6, `/routing-signals`.
        """
        agent = self._agents.get(peer)
        if agent is None:
            return False
        free_before = agent.filed_free_slots
        self._tell_if_freed(agent, free_before, self._take_report(agent, report, now=now))
        return True

    def identified(self, peer: PeerId, *, is_original: bool, streams_max: int | None) -> None:
        """What kind of agent this is, now that it is known, and how much its link bears in flight (None: no bound).

        Source: wire.md §5.7 and §8.7.
        """
        agent = self._agents.get(peer)
        if agent is None:
            return
        agent.is_original = is_original
        if agent.streams_max != streams_max:
            free_before = agent.filed_free_slots
            agent.streams_max = streams_max
            self._tell_if_freed(agent, free_before, self._file(agent))

    def judged(self, agent: Agent) -> None:
        """It has become suspect, or is no longer. One that was removed meanwhile is nobody's business any more."""
        if self._agents.get(agent.peer) is agent:
            self._pools[agent.model].judge(agent)

    # What happens to agents

    def link_up(self, peer: PeerId, connection: int = 0) -> None:
        """A connection of this peer is live; a registered agent needs no more than that to be usable again.

        May come before the peer registers. A caller that reports each connection tells them apart by `connection`; one
        that reports only the first and the last leaves it out.

        Source: decisions.md 25; wire.md §5.8 and §13.
        """
        connections = self._links.setdefault(peer, set())
        connections.add(connection)
        agent = self._agents.get(peer)
        if agent is None or agent.linked:
            return
        agent.linked = True
        free_slots = self._file(agent)
        self._on_change(LinkReturned(agent))
        self._tell_if_freed(agent, 0, free_slots)

    def link_down(self, peer: PeerId, connection: int = 0) -> None:
        """A connection of this peer is gone; with the last one its agent is out of routing at once.

        Source: decisions.md 25; wire.md §14, 18.
        """
        connections = self._links.get(peer)
        if connections is None:
            return
        connections.discard(connection)
        if connections:
            return
        del self._links[peer]
        agent = self._agents.get(peer)
        if agent is None:
            return
        agent.linked = False
        self._file(agent)
        self._on_change(LinkLost(agent))

    def fell_silent(self, agent: Agent) -> bool:
        """Take an agent out of routing whose heartbeats stay away; False when it already was.

        Counts an agent failure only if it was healthy until now. Source: signals.md §5.1 and EX-5.3.
        """
        if not agent.process_healthy:
            return False
        was_healthy = agent.healthy
        agent.process_healthy = False
        self._file(agent)
        if was_healthy:
            agent.outcomes.agent_failures += 1
            self._on_change(HealthChanged(agent, HealthCause.SILENCE))
        return True

    def forget_stale_loads(self, *, now: Monotonic) -> None:
        """Judge agents by our own counts again whose reported loads were not repeated; see `LOAD_FRESH_S`.

        Source: signals.md §9.1 ("Age"); several-routers.md S-108.
        """
        for agent in tuple(self._agents.values()):
            if agent.load_reported_at is not None and now - agent.load_reported_at > LOAD_FRESH_S:
                free_before = agent.filed_free_slots
                agent.load, agent.load_reported_at = Load(), None
                # What the last change set off may have removed the agent.
                if self._agents.get(agent.peer) is agent:
                    self._tell_if_freed(agent, free_before, self._file(agent))

    def remove(self, peer: PeerId, *, now: Monotonic) -> Agent | None:
        """Forget an agent, and after `COUNTS_KEPT_S` its counts; what it was, or None when it was not registered.

        Leases on it stay valid and end without effect. Source: signals.md §5.1; decisions.md 29.
        """
        agent = self._agents.pop(peer, None)
        if agent is None:
            return None
        agent.outcomes.disconnections += 1
        self._forget_departed(now=now)
        self._departed[peer] = agent.outcomes, Monotonic(now + COUNTS_KEPT_S)
        self._leave_pool(agent)
        self._on_change(Removed(agent))
        return agent

    # Slots

    def take_slot(self, agent: Agent) -> Slot | None:
        """A place on this agent, or None when another request was faster or the agent is gone.

        Source: configuration.md §6.4, 9; signals.md §4.
        """
        if self._agents.get(agent.peer) is not agent or agent.filed_free_slots == 0:
            agent.outcomes.lost_races += 1
            return None
        agent.active_slots += 1
        self._pools[agent.model].rank(agent)
        return Slot(agent, self)

    def slot_moved(self, agent: Agent, before: Stage, after: Stage) -> None:
        """Book a slot's step; called by `Slot` only."""
        if before is Stage.HELD:
            agent.active_slots -= 1
        else:
            agent.running_streams -= 1
        if after is Stage.STREAMING:
            agent.running_streams += 1
        if self._agents.get(agent.peer) is agent:
            free_before, pool = agent.filed_free_slots, self._pools[agent.model]
            if pool.rank(agent) > free_before:
                self._on_change(pool.freed)

    # Within

    def _counts_of(self, peer: PeerId, *, now: Monotonic) -> Outcomes | None:
        outcomes, until = self._departed.pop(peer, (None, now))
        return outcomes if until > now else None

    def _forget_departed(self, *, now: Monotonic) -> None:
        while self._departed:
            oldest = next(iter(self._departed))
            if self._departed[oldest][1] > now and len(self._departed) < DEPARTED_MAX:
                return
            del self._departed[oldest]

    def _take_report(self, agent: Agent, report: Report, *, now: Monotonic) -> int:
        if report.engine is not None:
            agent.engine = Measured(report.engine, now)
        if report.hardware is not None:
            agent.hardware = Measured(report.hardware, now)
        if report.load is not None:
            agent.load, agent.load_reported_at = report.load, now
        return self._file(agent)

    def _file(self, agent: Agent) -> int:
        return self._pools[agent.model].file(agent)

    def _enter_pool(self, agent: Agent) -> int:
        pool = self._pools.get(agent.model)
        if pool is None:
            pool = self._pools[agent.model] = ModelPool(agent.model)
        return pool.add(agent)

    def _leave_pool(self, agent: Agent) -> None:
        pool = self._pools[agent.model]
        pool.discard(agent)
        if not pool:
            del self._pools[agent.model]

    def _tell_if_freed(self, agent: Agent, free_before: int, free_slots: int) -> None:
        if free_slots > free_before:
            self._on_change(CapacityFreed(agent.model))
