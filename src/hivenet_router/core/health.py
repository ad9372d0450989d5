"""Is an agent still there, and is its backend?

The router judges an agent by how long its heartbeats have stayed away; the agent judges its backend by the probes that
failed in a row. Both only decide: the pass that removes an agent is made in two parts with a recheck between, so that
a heartbeat which arrives while its history is being saved still rescues it. Probing and timing are left to others.
"""

from dataclasses import dataclass
from typing import Final

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.registry import Registry

PROBE_FAILURES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """After how many seconds without a heartbeat an agent is out of routing, and out of the registry."""

    unhealthy_after_s: float = 15.0
    remove_after_s: float = 30.0


def is_silent(agent: Agent, limits: SilenceLimits, *, now: Monotonic) -> bool:
    """Whether its heartbeats have stayed away too long to route to it. Strictly longer, as in the original."""
    return now - agent.last_seen_at > limits.unhealthy_after_s


def is_gone(agent: Agent, limits: SilenceLimits, *, now: Monotonic) -> bool:
    """Whether it was silent long enough to be removed. Strictly longer, as in the original."""
    return now - agent.last_seen_at > limits.remove_after_s


def monitor_pass(registry: Registry, limits: SilenceLimits, *, now: Monotonic) -> tuple[Agent, ...]:
    """Forget loads that were reported too long ago, take silent agents out of routing; those to be removed come back.

    The caller saves the history of each and then calls `remove_if_gone`.

    Source: signals.md §5.1, EX-5.1.
    """
    registry.forget_stale_loads(now=now)
    for agent in tuple(registry):
        if is_silent(agent, limits, now=now):
            registry.fell_silent(agent)
    return tuple(agent for agent in registry if is_gone(agent, limits, now=now))


def remove_if_gone(registry: Registry, agent: Agent, limits: SilenceLimits, *, now: Monotonic) -> bool:
    """Remove an agent that a pass found gone, unless a sign of life came since; whether it was removed."""
    if registry.agent(agent.peer) is not agent or not is_gone(agent, limits, now=now):
        return False
    registry.remove(agent.peer, now=now)
    return True


class BackendHealth:
    """An agent's view of its backend: three failed probes in a row make it unhealthy, one good probe healthy.

    Starts healthy, since an agent opens a session only after a good probe. Source: signals.md §1.5.
    """

    __slots__ = ("_failures_in_a_row", "_failures_max", "healthy")

    def __init__(self, failures_max: int = PROBE_FAILURES_MAX) -> None:
        self.healthy = True
        self._failures_in_a_row = 0
        self._failures_max: Final = failures_max

    def probed(self, *, ready: bool, is_at_work: bool = False) -> bool:
        """Book one probe; True when `healthy` changed by it, which the routers should hear of at once.

        `is_at_work`: it got no answer in time, but bytes of answers to requests came meanwhile. Such a backend is busy
        and not dead, so the probe is neither a success nor a failure. Source: decisions.md 38; field-cases.md O-25.
        """
        if is_at_work and not ready:
            return False
        was_healthy = self.healthy
        self._failures_in_a_row = 0 if ready else self._failures_in_a_row + 1
        self.healthy = ready or (was_healthy and self._failures_in_a_row < self._failures_max)
        return self.healthy != was_healthy
