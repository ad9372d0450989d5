"""Did an engine die of this very body a moment ago?

Keeps what `core/deadly.py` remembers, and knows how bodies are told apart. Hashing is for the few that need it: a body
that an engine died of, and one of the same size while that is remembered.
Source: field-cases.md O-09.
"""

import asyncio
import hashlib
from typing import Final, NamedTuple

from hivenet_router.core.deadly import DeadlyBodies
from hivenet_router.ports import Arrived, Clock

_HASHED_AT_ONCE_BYTES_MAX: Final = 256 << 10


class BodyKey(NamedTuple):
    """What tells one body from another."""

    size: int
    digest: bytes


class RememberingRoom:
    """Remembers the bodies that engines died of."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bodies: Final = DeadlyBodies()

    @property
    def is_in_use(self) -> bool:
        """Whether anything is remembered, so that it is worth asking."""
        return len(self._bodies) > 0

    async def recall(self, arrived: Arrived) -> BodyKey | None:
        """The key of a body that an engine died of within the last minute; None of any other."""
        if not self._bodies.may_hold(arrived.body_bytes, now=self._clock.now()):
            return None
        key = await _key_of(arrived)
        return key if self._bodies.holds(*key, now=self._clock.now()) else None

    async def died(self, arrived: Arrived) -> BodyKey:
        """An engine took this body whole and died."""
        key = await _key_of(arrived)
        self._bodies.died_of(*key, now=self._clock.now())
        return key

    def served(self, key: BodyKey) -> None:
        """A body that was remembered has been answered."""
        self._bodies.served(*key)


async def _key_of(arrived: Arrived) -> BodyKey:
    body = arrived.body()
    # Others have their turn while a long one is hashed.
    digest = await asyncio.to_thread(_digest, body) if len(body) > _HASHED_AT_ONCE_BYTES_MAX else _digest(body)
    return BodyKey(len(body), digest)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
