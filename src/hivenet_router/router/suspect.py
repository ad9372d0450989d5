"""Which agents have failed so often in a row that others come first, and who is told?

Books each failure with the router's setting and the dice, keeps the order of choice up to date, and says in the log
when an agent becomes suspect and when it is no longer. Invariant: an agent stands among its model's suspects exactly
while its outcomes say that it is one. When that is so, and for how long, is decided in `core/suspicion.py`.
Source: decisions.md 36.
"""

from collections.abc import Callable
from typing import Final

import structlog

from hivenet_router.core.agent import Agent
from hivenet_router.core.outcomes import Mark
from hivenet_router.core.registry import Registry
from hivenet_router.ports import Clock

log = structlog.get_logger("policy")


class SuspectingRoom:
    """Hears how attempts end. `suspect_after` failures in a row make a suspect, 0 never; `chance` draws from [0, 1)."""

    def __init__(self, registry: Registry, clock: Clock, *, suspect_after: int, chance: Callable[[], float]) -> None:
        self._registry: Final = registry
        self._clock: Final = clock
        self._suspect_after: Final = suspect_after
        self._chance: Final = chance

    def failed(self, agent: Agent, mark: Mark, *, sample_s: float) -> None:
        """Book a failed attempt at this agent; see `Outcomes.failed`."""
        outcomes, now = agent.outcomes, self._clock.now()
        was_suspect = outcomes.suspicion is not None
        outcomes.failed(mark, sample_s=sample_s, now=now, suspect_after=self._suspect_after, chance=self._chance())
        if outcomes.suspicion is not None and not was_suspect:
            self._registry.judged(agent)
            log.warning(
                "agent_suspect",
                peer_id=agent.peer,
                model=agent.model,
                failures=outcomes.consecutive_failures,
                pause_s=round(outcomes.suspicion.due_at - now, 1),
            )

    def succeeded(self, agent: Agent, *, sample_s: float, input_tokens: int, output_tokens: int) -> None:
        """Book a good answer of this agent; see `Outcomes.succeeded`."""
        was_suspect = agent.outcomes.suspicion is not None
        agent.outcomes.succeeded(sample_s=sample_s, input_tokens=input_tokens, output_tokens=output_tokens)
        if was_suspect:
            self._registry.judged(agent)
            log.info("agent_no_longer_suspect", peer_id=agent.peer, model=agent.model)
