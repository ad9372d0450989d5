"""A recorder that only remembers, for tests that ask what a room reported."""

from collections import Counter

from hivenet_router.core.agent import Agent
from hivenet_router.core.changes import Change
from hivenet_router.core.clock import UnixTime
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.ports import Recorder, RequestEnd


class RecordingRecorder(Recorder):
    """Lists hold events in their order, counters hold what is true now."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.last_seen: dict[PeerId, UnixTime] = {}
        self.answered: list[tuple[PeerId, str]] = []
        """Peer and tenant of each answered attempt."""
        self.failed: list[tuple[PeerId, str]] = []
        """Peer and tenant of each failed attempt."""
        self.exhausted: list[tuple[ModelName, str]] = []
        """Model and tenant of each request that no step could serve."""
        self.ends: list[RequestEnd] = []
        self.waiting: dict[ModelName, int] = {}
        """How many requests of each model are parked now."""
        self.waits: list[tuple[ModelName, float]] = []
        self.streams_now: Counter[ModelName] = Counter()
        self.http_now: Counter[tuple[str, str]] = Counter()
        """Requests being served now, by method and route."""
        self.http_ends: list[tuple[str, str, int, float]] = []
        self.rejections: Counter[tuple[str, str]] = Counter()
        """How often each listener refused for each reason."""
        self.link_resets: list[tuple[ModelName, str]] = []

    @property
    def outcomes(self) -> list[str]:
        """How the requests ended, in their order."""
        return [end.outcome for end in self.ends]

    @property
    def at_rest(self) -> bool:
        """Whether every gauge is back at zero, as it must be when nothing runs."""
        return not any((*self.waiting.values(), *self.streams_now.values(), *self.http_now.values()))

    def registry_changed(self, change: Change) -> None:
        """Remember the change."""
        self.changes.append(change)

    def agent_seen(self, agent: Agent, *, at: UnixTime) -> None:
        """Remember the last time."""
        self.last_seen[agent.peer] = at

    def attempt_answered(self, agent: Agent, tenant: str) -> None:
        """Remember the attempt."""
        self.answered.append((agent.peer, tenant))

    def attempt_failed(self, agent: Agent, tenant: str) -> None:
        """Remember the attempt."""
        self.failed.append((agent.peer, tenant))

    def policy_exhausted(self, model: ModelName, tenant: str) -> None:
        """Remember the request."""
        self.exhausted.append((model, tenant))

    def request_ended(self, end: RequestEnd) -> None:
        """Remember the end."""
        self.ends.append(end)

    def parked(self, model: ModelName, waiting: int) -> None:
        """Remember how many wait now."""
        self.waiting[model] = waiting

    def waited(self, model: ModelName, seconds: float) -> None:
        """Remember the wait."""
        self.waits.append((model, seconds))

    def streams(self, model: ModelName, change: int) -> None:
        """Count in or out."""
        self.streams_now[model] += change

    def http_began(self, method: str, route: str) -> None:
        """Count in."""
        self.http_now[method, route] += 1

    def http_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count out and remember the end."""
        self.http_now[method, route] -= 1
        self.http_ends.append((method, route, status, seconds))

    def edge_rejected(self, listener: str, reason: str) -> None:
        """Count the refusal."""
        self.rejections[listener, reason] += 1

    def agent_link_reset(self, model: ModelName, reason: str) -> None:
        """Remember the reset."""
        self.link_resets.append((model, reason))
