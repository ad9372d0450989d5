"""Does an agent hang, or is it only slow?

One agent's requests without a byte of an answer, in the order in which they were sent. An agent from which nothing came
for half of a request's time may be at work on long ones, so only one request is given to another agent: the witness. If
that one gets its answer while the first agent is still silent, the first one hangs, and the others follow when their
half is over. Invariant: any answer of the agent ends what was thought of it; there is one witness at a time, and none
while no more requests wait than failures are left until the agent is suspect. Source: decisions.md 36.
"""

from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

from hivenet_router.core.clock import Monotonic

SUSPECT_SHARE_MAX_S: Final = 30.0
"""How long a request waits for the first byte of a suspect at most, before another agent takes it over."""


class Waiting(Protocol):
    """A request that was sent to an agent."""

    @property
    def since(self) -> Monotonic:
        """When it was sent."""
        ...

    @property
    def deadline(self) -> Monotonic:
        """When its time is over."""
        ...


W = TypeVar("W", bound=Waiting)


class Unanswered(Generic[W]):
    """The requests that wait for the first byte of one agent."""

    __slots__ = ("_answered_at", "_waiting", "_witness_until", "hangs")

    def __init__(self) -> None:
        # In the order of their sending.
        self._waiting: dict[W, None] = {}
        self._answered_at: Monotonic | None = None
        self._witness_until: Monotonic | None = None
        self.hangs = False
        """Whether another agent has answered what this one has not, and it is silent since."""

    def __len__(self) -> int:
        return len(self._waiting)

    def sent(self, request: W) -> None:
        """The agent was given a request."""
        self._waiting[request] = None

    def ended(self, request: W) -> None:
        """A request waits no longer, for whatever reason; a second time does nothing."""
        self._waiting.pop(request, None)

    def answered(self, *, now: Monotonic) -> None:
        """An answer of this agent has begun."""
        self._answered_at = now
        self._witness_until, self.hangs = None, False

    def witness_left(self, *, until: Monotonic) -> None:
        """A request was taken away as the witness; another agent has so long to answer it."""
        self._witness_until = until

    def witness_ended(self, *, is_answered: bool) -> bool:
        """What came of the witness; whether it is news that the agent hangs."""
        is_news = is_answered and self._witness_until is not None and not self.hangs
        self._witness_until = None
        self.hangs |= is_news
        return is_news

    def overdue(self, *, failures_left: int, now: Monotonic) -> Iterator[W]:
        """Those that another agent should take over now, who waits longest first.

        `failures_left`: after how many more failures in a row the agent is suspect, 0 when it is. Whoever is taken away
        is to be told with `witness_left` and `ended` before the next one is asked for.
        """
        for request in tuple(self._waiting):
            if not (self.hangs or (len(self._waiting) > failures_left and not self._has_witness(now))):
                return
            if self.due_at(request, is_suspect=not failures_left) <= now:
                yield request

    def next_due_at(self, *, is_suspect: bool) -> Monotonic | None:
        """When the first of those who wait is due, which may be over; None when nobody waits."""
        return min((self.due_at(request, is_suspect=is_suspect) for request in self._waiting), default=None)

    def due_at(self, request: W, *, is_suspect: bool) -> Monotonic:
        """When half of its time is over without a word of the agent: so much is left to another one."""
        share_s = (request.deadline - request.since) / 2
        since = request.since
        if self._answered_at is not None and self._answered_at > since:
            since = self._answered_at
        return Monotonic(since + (min(share_s, SUSPECT_SHARE_MAX_S) if is_suspect else share_s))

    def _has_witness(self, now: Monotonic) -> bool:
        return self._witness_until is not None and now < self._witness_until
