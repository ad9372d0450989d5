"""What counts what happens, and by which clock?"""

from typing import Protocol

from hivenet_router.core.agent import Agent
from hivenet_router.core.changes import Change
from hivenet_router.core.clock import Monotonic, UnixTime
from hivenet_router.core.ids import ModelName
from hivenet_router.core.values import value


class Clock(Protocol):
    """Both times. Durations and deadlines use the first, what leaves the process the second."""

    def now(self) -> Monotonic:
        """Seconds on the event loop's clock."""
        ...

    def unix(self) -> UnixTime:
        """Seconds since 1970, UTC."""
        ...


@value
class RequestEnd:
    """How one inference request ended, for whoever counts. `agent` is None where none served it.

    `outcome` is `served`, `stream_cut`, `client_gone` or the error code of the refusal. Durations are seconds from
    arrival; `first_byte_s` is 0 where the client got no body byte.
    """

    model: ModelName
    outcome: str
    status: int
    agent: Agent | None
    tenant: str
    first_byte_s: float
    duration_s: float
    input_tokens: int
    output_tokens: int
    was_routed: bool
    """A policy step chose an agent at least once."""


class Recorder(Protocol):
    """Counts what happens. No method waits or raises."""

    def registry_changed(self, change: Change) -> None:
        """Something changed in the registry."""
        ...

    def agent_seen(self, agent: Agent, *, at: UnixTime) -> None:
        """The agent registered or sent a heartbeat, one that reports a sick backend included."""
        ...

    def attempt_answered(self, agent: Agent, tenant: str) -> None:
        """Headers of an answer worth passing on came from the agent."""
        ...

    def attempt_failed(self, agent: Agent, tenant: str) -> None:
        """An attempt on the agent failed."""
        ...

    def policy_exhausted(self, model: ModelName, tenant: str) -> None:
        """No step of the policy could serve the request."""
        ...

    def request_ended(self, end: RequestEnd) -> None:
        """An inference request ended; called exactly once for each."""
        ...

    def parked(self, model: ModelName, waiting: int) -> None:
        """So many requests now wait for capacity of the model."""
        ...

    def waited(self, model: ModelName, seconds: float) -> None:
        """A parked request was woken by a slot."""
        ...

    def streams(self, model: ModelName, change: int) -> None:
        """A streamed answer began (+1) or ended (-1)."""
        ...

    def http_began(self, method: str, route: str) -> None:
        """A request to the API listener began."""
        ...

    def http_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """It ended; status 499 where the client left first."""
        ...

    def edge_rejected(self, listener: str, reason: str) -> None:
        """A connection or request was refused before it became a request."""
        ...

    def agent_link_reset(self, model: ModelName, reason: str) -> None:
        """A forward failed because the agent's link was dead."""
        ...
