"""Which events are worth a line in the log, when strangers can make as many of them as they like?

Of what is turned away the first of a kind is told at once, those that follow are counted and told together once a
minute. What somebody looks into line by line is rationed instead: so many a second of a kind, with a count of the rest.
Invariant: what was told and what still waits to be told is all that was added, and the number of kinds told apart is
bounded; what is beyond it is told as one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hivenet_router.core.clock import Monotonic

TELL_EVERY_S: Final = 60.0
KINDS_MAX: Final = 256
MANY_CLIENTS: Final = "(many)"
MANY_REASONS: Final = "(various)"
LINES_PER_S_MAX: Final = 10
"""Lines of one kind that may be told within any one second. Source: observability.md §8, 40."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """What was not served: a request, or where the status is 0 a whole connection or a call of another kind."""

    listener: str
    client: str
    status: int
    reason: str
    event: str = "request_rejected"
    """The name of its line."""
    peer: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """To be told now: this rejection, and how often it came since it was last told."""

    rejection: Rejection
    times: int


@dataclass(slots=True)
class _Count:
    told_at: Monotonic
    waiting: int = 0


class Rejections:
    """Counts rejections between the times they are told."""

    def __init__(self) -> None:
        self._counts: dict[Rejection, _Count] = {}

    def add(self, rejection: Rejection, *, now: Monotonic) -> Told | None:
        """What to tell at once, if anything; the rest comes with `due`."""
        if rejection not in self._counts and len(self._counts) >= KINDS_MAX:
            rejection = _of_many(rejection)
            if rejection not in self._counts and len(self._counts) >= 2 * KINDS_MAX:
                # Whoever can word the reason could go on for ever.
                rejection = replace(rejection, reason=MANY_REASONS, path="")
        count = self._counts.get(rejection)
        if count is None:
            self._counts[rejection] = _Count(told_at=now)
            return Told(rejection, 1)
        count.waiting += 1
        return None

    def due(self, *, now: Monotonic) -> Sequence[Told]:
        """What has waited for its minute; a kind that was silent for as long is news again. Ask every few seconds."""
        told: list[Told] = []
        for rejection, count in list(self._counts.items()):
            if now - count.told_at < TELL_EVERY_S:
                continue
            if not count.waiting:
                del self._counts[rejection]
                continue
            told.append(Told(rejection, count.waiting))
            count.told_at, count.waiting = now, 0
        return told


def _of_many(rejection: Rejection) -> Rejection:
    if rejection.peer:
        return replace(rejection, client="", peer=MANY_CLIENTS)
    return replace(rejection, client=MANY_CLIENTS)


@dataclass(slots=True)
class _Ration:
    told_at: deque[Monotonic] = field(default_factory=lambda: deque(maxlen=LINES_PER_S_MAX))
    suppressed: int = 0

    def is_used_up(self, now: Monotonic) -> bool:
        return len(self.told_at) == LINES_PER_S_MAX and now - self.told_at[0] < 1.0


class Rations:
    """Lets through so many lines a second of each kind, and counts those it holds back."""

    def __init__(self) -> None:
        self._rations: dict[str, _Ration] = {}

    def take(self, kind: str, *, now: Monotonic) -> int | None:
        """How many were held back since the last one let through; None where this one is held back too."""
        if kind not in self._rations and len(self._rations) >= KINDS_MAX:
            kind = MANY_CLIENTS
        ration = self._rations.setdefault(kind, _Ration())
        if ration.is_used_up(now):
            ration.suppressed += 1
            return None
        ration.told_at.append(now)
        suppressed, ration.suppressed = ration.suppressed, 0
        return suppressed

    def due(self, *, now: Monotonic) -> Sequence[tuple[str, int]]:
        """The kinds that fell silent, each with how many were held back untold. Ask every few seconds."""
        due: list[tuple[str, int]] = []
        for kind, ration in list(self._rations.items()):
            if now - ration.told_at[-1] < 1.0:
                continue
            if ration.suppressed:
                due.append((kind, ration.suppressed))
            del self._rations[kind]
        return due
