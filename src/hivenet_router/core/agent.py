"""What does the router know about one agent?

What it declared, what it last reported, how much of it is taken, and whether it may be used. Only `Registry` changes an
`Agent`, since each change may move it in the order of its model; everyone else reads. Invariant: what is taken is never
negative, and a slot counts as taken until its lease gives it back, whatever happens to the registration meanwhile.
"""

from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import DeploymentId, ModelName, PeerId, ReplicaId
from hivenet_router.core.outcomes import Outcomes
from hivenet_router.wire.agent_protocol import EngineSnapshot, HardwareSnapshot, Heartbeat, Signals
from hivenet_router.wire.auth_messages import AgentMetadata

ORIGINAL_AGENT_STREAMS_MAX: Final = 64
"""Requests in flight that every original agent takes; above it some reset streams (wire.md §5.7)."""
OWN_AGENT_STREAMS_MAX: Final = 4096
"""Requests in flight that the link to an agent of our own kind takes, whatever the agent's capacity."""
LOAD_FRESH_S: Final = 10.0
"""A reported load that was not repeated for longer than this counts no more; agents repeat it twice a second."""


class SeriesIdentity(NamedTuple):
    """The labels of an agent's metric series besides its peer ID; when they change, the old series must go."""

    region: str
    engine: str
    model: ModelName
    capacity: int
    organization: str
    machine: str


def series_identity(metadata: AgentMetadata) -> SeriesIdentity:
    """The labels under which this agent is counted. Source: observability.md §1.3, label set R."""
    return SeriesIdentity(
        metadata.region,
        metadata.engine,
        ModelName(metadata.model),
        metadata.capacity,
        metadata.organization,
        metadata.machine,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """What an agent reports of its own load, from all routers and from this one.

    Source: several-routers.md S-109. In flight lasts until the body ends, a slot until the response headers.
    """

    inflight_total: int = 0
    slots_total: int = 0
    slots_here: int = 0

    @property
    def slots_elsewhere(self) -> int:
        """Slots that other routers hold on the agent."""
        return self.slots_total - self.slots_here if self.slots_total > self.slots_here else 0


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured(Generic[T]):
    """A snapshot as it was last reported, not looked into here, and when it came."""

    value: T
    received_at: Monotonic


@dataclass(frozen=True, slots=True)
class Report:
    """What a heartbeat or a routing signal carries; an absent part leaves the last one in force."""

    engine: EngineSnapshot | None = None
    hardware: HardwareSnapshot | None = None
    load: Load | None = None


def report_in(message: Heartbeat | Signals) -> Report:
    """What a message reports; an agent that counts neither requests nor slots reports no load."""
    counts_load = message.inflight_total is not None or message.slots_total is not None
    return Report(
        engine=message.backend_metrics,
        hardware=message.hardware,
        load=Load(message.inflight_total or 0, message.slots_total or 0, message.slots_here or 0)
        if counts_load
        else None,
    )


class Agent:
    """One registered agent. Changed by `Registry` only."""

    __slots__ = (
        "active_slots",
        "backend_healthy",
        "deployment_id",
        "engine",
        "filed_free_slots",
        "first_registered_at",
        "hardware",
        "is_original",
        "last_seen_at",
        "leaving",
        "linked",
        "load",
        "load_reported_at",
        "metadata",
        "outcomes",
        "peer",
        "process_healthy",
        "replica_id",
        "running_streams",
        "streams_max",
    )

    def __init__(self, peer: PeerId, metadata: AgentMetadata, outcomes: Outcomes, *, now: Monotonic) -> None:
        self.peer: Final = peer
        self.metadata = metadata
        self.deployment_id = DeploymentId("")
        self.replica_id = ReplicaId("")
        self.outcomes: Final = outcomes
        self.active_slots = 0
        self.running_streams = 0
        self.streams_max: int | None = None
        self.is_original = False
        self.filed_free_slots = 0
        """Its free slots when its pool last filed it, which is after every change to it."""
        self.load = Load()
        self.load_reported_at: Monotonic | None = None
        self.engine: Measured[EngineSnapshot] | None = None
        self.hardware: Measured[HardwareSnapshot] | None = None
        self.process_healthy = True
        self.backend_healthy = True
        self.leaving = False
        """Whether it said that it is about to end."""
        self.linked = False
        self.first_registered_at: Final = now
        self.last_seen_at = now

    @property
    def model(self) -> ModelName:
        """The model it serves."""
        return ModelName(self.metadata.model)

    @property
    def healthy(self) -> bool:
        """Whether its heartbeats come and call its backend healthy: what the `healthy` gauge shows."""
        return self.process_healthy and self.backend_healthy

    @property
    def routable(self) -> bool:
        """Whether requests may go to it: healthy, and linked to this router. Source: decisions.md 25."""
        return self.linked and self.process_healthy and self.backend_healthy

    @property
    def free_slots(self) -> int:
        """How many more requests it can be given now: 0 when unroutable, full, or at its transport's bound.

        Source: configuration.md §6.4, 6; several-routers.md S-110; wire.md §5.7.
        """
        if not self.routable:
            return 0
        free, load = self.metadata.capacity - self.active_slots, self.load
        if load.slots_total > 0:
            free -= load.slots_elsewhere
        if self.streams_max is not None:
            streams_free = self.streams_max - self.active_slots - self.running_streams
            if streams_free < free:
                free = streams_free
        return free if free > 0 else 0

    @property
    def capacity_utilization(self) -> float:
        """Slots held by this router over the declared capacity. Source: signals.md §3."""
        return self.active_slots / self.metadata.capacity
