"""Which request bodies have engines just died of?

A body that an engine took whole before it died without an answer is remembered for a minute, by its size and hash, and
meanwhile tried once only. Invariant: at most `REMEMBERED_MAX` of them; the oldest goes first. What is no body of a
remembered size need not be hashed, so that the usual request pays nothing.
"""

from collections import Counter
from typing import Final

from hivenet_router.core.clock import Monotonic

REMEMBERED_S: Final = 60.0
REMEMBERED_MAX: Final = 1_000


class DeadlyBodies:
    """The bodies that engines died of lately."""

    __slots__ = ("_sizes", "_until")

    def __init__(self) -> None:
        # In the order of their last death, and so of their end.
        self._until: dict[tuple[int, bytes], Monotonic] = {}
        self._sizes: Counter[int] = Counter()

    def __len__(self) -> int:
        """How many are remembered, those included whose minute is over and that nobody asked about since."""
        return len(self._until)

    def may_hold(self, size: int, *, now: Monotonic) -> bool:
        """Whether any body of so many bytes is remembered, so that it is worth hashing one."""
        self._forget_old(now=now)
        return size in self._sizes

    def holds(self, size: int, digest: bytes, *, now: Monotonic) -> bool:
        """Whether an engine died of this body within the last minute."""
        self._forget_old(now=now)
        return (size, digest) in self._until

    def died_of(self, size: int, digest: bytes, *, now: Monotonic) -> None:
        """An engine took it whole and died without a byte of an answer."""
        self.served(size, digest)
        if len(self._until) >= REMEMBERED_MAX:
            self.served(*next(iter(self._until)))
        self._until[size, digest] = Monotonic(now + REMEMBERED_S)
        self._sizes[size] += 1

    def served(self, size: int, digest: bytes) -> None:
        """It was answered, so it was not the body."""
        if self._until.pop((size, digest), None) is not None:
            self._sizes[size] -= 1
            if not self._sizes[size]:
                del self._sizes[size]

    def _forget_old(self, *, now: Monotonic) -> None:
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now:
                return
            self.served(*oldest)
