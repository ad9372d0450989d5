"""Which rejected connections are worth a line in the log, when strangers can make as many as they like?

The first of a kind is told at once, those that follow are counted and told together once a minute. A kind is a
listener, a client, a status and a reason. Invariant: what was told and what still waits to be told is all that was
added, and at most `KINDS_MAX` kinds are told apart; further clients are told as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hivenet_router.core.clock import Monotonic

TELL_EVERY_S: Final = 60.0
KINDS_MAX: Final = 256
MANY_CLIENTS: Final = "(many)"


@dataclass(frozen=True, slots=True)
class Rejection:
    """What was not served: a request, or a whole connection where the status is 0."""

    listener: str
    client: str
    status: int
    reason: str


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
            rejection = replace(rejection, client=MANY_CLIENTS)
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
