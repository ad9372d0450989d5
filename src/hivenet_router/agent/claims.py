"""Which session has which router?

A router is recognised by its peer ID, whatever address led to it. Invariant: no two sessions have one router at a time,
so its registry never sees two sessions of this agent fight over one entry. Source: several-routers.md S-106.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class Taken(Exception):
    """Another session has this router; `by` is the address it was reached under."""

    def __init__(self, peer_id: str, by: str) -> None:
        super().__init__(f"the router is already reached under {by}")
        self.peer_id = peer_id
        self.by = by


def _nobody_asks(routers: Collection[str]) -> None:
    """What hears of them where it does not matter who they are."""


class Claims:
    """The routers this agent has dialled, or is about to; `on_change` hears of all of them, at the start and when one
    comes or goes, before anything is sent to it."""

    def __init__(self, on_change: Callable[[Collection[str]], None] = _nobody_asks) -> None:
        self._by_peer: dict[str, tuple[str, asyncio.Event]] = {}
        self._on_change = on_change
        on_change(())

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._by_peer

    @contextmanager
    def claim(self, peer_id: str, target: str) -> Iterator[None]:
        """Have the router for as long as the block runs.

        Raises: Taken.
        """
        holder = self._by_peer.get(peer_id)
        if holder is not None:
            raise Taken(peer_id, holder[0])
        released = asyncio.Event()
        self._by_peer[peer_id] = (target, released)
        self._on_change(self._by_peer.keys())
        try:
            yield
        finally:
            del self._by_peer[peer_id]
            self._on_change(self._by_peer.keys())
            released.set()

    async def until_free(self, peer_id: str) -> None:
        """Wait until no session has the router."""
        while (holder := self._by_peer.get(peer_id)) is not None:
            await holder[1].wait()
