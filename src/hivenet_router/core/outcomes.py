"""What has come of the requests sent to one agent?

Lifetime counts with the baseline that an earlier run left behind, the streak of failures since the last success, and
the smoothed round trip. Invariant: counts only grow until `reset`, and the streak is zero after a success. Which
failures are the agent's is decided in `attempts.py`; writing the counts to disk is an adapter's work.
"""

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.srtt import RoundTrip, after_sample
from hivenet_router.core.suspicion import Suspicion

RECENT_FAILURE_S: Final = 10.0
"""How long a failure puts an agent behind others: whatever the loads while it is its last word, and behind those of the
same load after a success. Source: decisions.md 2 and 36."""


class Mark(Enum):
    """What a failed attempt says about the agent it was sent to."""

    NONE = auto()
    """Nothing: the client asked for something impossible, or the agent was merely full."""
    CONNECTION = auto()
    """The way to it broke: a failed request, but no step of the streak."""
    APPLICATION = auto()
    """It answered badly or not in time: a failed request and one more step of the streak."""


@dataclass(frozen=True, slots=True)
class History:
    """The part of an agent's counts that outlives the process."""

    successes: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    disconnections: int = 0
    agent_failures: int = 0
    backend_failures: int = 0
    round_trip: RoundTrip | None = None


_NO_HISTORY: Final = History()


class Outcomes:
    """One agent's counts, streak and round trip; all of them survive a re-registration."""

    __slots__ = (
        "agent_failures",
        "backend_failures",
        "consecutive_failures",
        "disconnections",
        "failures",
        "input_tokens",
        "last_failure_at",
        "lost_races",
        "output_tokens",
        "round_trip",
        "successes",
        "suspicion",
        "unanswered_max",
    )

    def __init__(self, history: History = _NO_HISTORY) -> None:
        self._begin_with(history)

    def _begin_with(self, history: History) -> None:
        self.successes = history.successes
        self.failures = history.failures
        self.input_tokens = history.input_tokens
        self.output_tokens = history.output_tokens
        self.disconnections = history.disconnections
        self.agent_failures = history.agent_failures
        self.backend_failures = history.backend_failures
        self.round_trip = history.round_trip
        self.consecutive_failures = 0
        self.lost_races = 0
        self.last_failure_at: Monotonic | None = None
        self.suspicion: Suspicion | None = None
        """What it stands under after too many failures in a row; None while it is no suspect."""
        self.unanswered_max: float = inf
        """How many more failures in a row make it a suspect; so many unanswered requests are enough while it fails."""

    @property
    def success_rate(self) -> float | None:
        """Share of all requests that succeeded, 0 to 1; None before the first outcome.

        Source: signals.md §3.2; decisions.md 27 (a lifetime value).
        """
        outcomes = self.successes + self.failures
        return self.successes / outcomes if outcomes else None

    @property
    def srtt_s(self) -> float | None:
        """The smoothed round trip in seconds; None before the first sample and while it is zero.

        Source: signals.md §3, table of policy fields.
        """
        return self.round_trip.srtt_s if self.round_trip is not None and self.round_trip.srtt_s > 0 else None

    def succeeded(self, *, sample_s: float, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Count one good answer, whose headers took `sample_s` seconds."""
        self.successes += 1
        self.consecutive_failures = 0
        self.suspicion, self.unanswered_max = None, inf
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.round_trip = after_sample(self.round_trip, sample_s)

    def try_began(self, *, now: Monotonic) -> None:
        """A request was given to the agent."""
        if self.suspicion is not None:
            self.suspicion = self.suspicion.after_try_began(now=now)

    def failed(
        self, mark: Mark, *, sample_s: float = 0.0, now: Monotonic, suspect_after: int = 0, chance: float = 0.5
    ) -> None:
        """Count one failed attempt; `sample_s` is 0 when no answer came.

        After `suspect_after` failures in a row the agent is suspect (0: never), for a time that `chance` from [0, 1)
        spreads.

        Source: signals.md §3.1 (a failure without an answer is no sample), §3.2 (the streak); decisions.md 36.
        """
        if mark is Mark.NONE:
            return
        self.failures += 1
        self.last_failure_at = now
        if mark is Mark.APPLICATION:
            self.consecutive_failures += 1
            if suspect_after:
                self._suspect(suspect_after, now, chance)
        if sample_s > 0:
            self.round_trip = after_sample(self.round_trip, sample_s)

    def _suspect(self, suspect_after: int, now: Monotonic, chance: float) -> None:
        self.unanswered_max = max(0, suspect_after - self.consecutive_failures)
        if self.suspicion is not None:
            self.suspicion = self.suspicion.after_failure(now=now, chance=chance)
        elif self.unanswered_max == 0:
            self.suspicion = Suspicion.beginning(now=now, chance=chance)

    def history(self) -> History:
        """The counts as they are to be kept on disk."""
        return History(
            successes=self.successes,
            failures=self.failures,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            disconnections=self.disconnections,
            agent_failures=self.agent_failures,
            backend_failures=self.backend_failures,
            round_trip=self.round_trip,
        )

    def reset(self) -> None:
        """Forget everything, as an operator asked."""
        self._begin_with(_NO_HISTORY)
