"""When may an agent that keeps failing be tried again?

After some failures in a row an agent is suspect. It is then left alone for a pause, tried by one request, and left
alone twice as long if that fails too, until a success ends it. Invariant: a pause grows only by the failure of a try
that began after it, so that what was at the agent when it became suspect lengthens nothing, however much that was.
What being suspect means for a choice is said in `policy.py` and `ranking.py`. Source: decisions.md 36.
"""

from typing import Final, Self

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.values import value

FIRST_PAUSE_S: Final = 10.0
PAUSE_MAX_S: Final = 120.0
JITTER: Final = 0.1
"""The part of a pause by which chance makes it longer or shorter."""


@value
class Suspicion:
    """How long a suspect agent is left alone, and whether it is being tried."""

    pause_s: float
    due_at: Monotonic
    is_tried: bool = False

    @classmethod
    def beginning(cls, *, now: Monotonic, chance: float) -> Self:
        """What an agent comes under that has failed too often, for a `chance` drawn from [0, 1)."""
        return cls(FIRST_PAUSE_S, _after(FIRST_PAUSE_S, now, chance))

    def is_due(self, *, now: Monotonic) -> bool:
        """Whether its pause is over."""
        return now >= self.due_at

    def after_try_began(self, *, now: Monotonic) -> "Suspicion":
        """A request was given to the agent. One that learns nothing is not followed by another before a pause."""
        return Suspicion(self.pause_s, Monotonic(now + self.pause_s), is_tried=True) if self.is_due(now=now) else self

    def after_failure(self, *, now: Monotonic, chance: float) -> "Suspicion":
        """One more attempt has failed."""
        if not (self.is_tried or self.is_due(now=now)):
            return self
        pause_s = min(PAUSE_MAX_S, 2 * self.pause_s)
        return Suspicion(pause_s, _after(pause_s, now, chance))


def _after(pause_s: float, now: Monotonic, chance: float) -> Monotonic:
    return Monotonic(now + pause_s * (1 - JITTER + 2 * JITTER * chance))
