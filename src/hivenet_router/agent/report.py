"""What does the agent tell its routers, and when has it something new to say?

The one place where messages are put together. Invariant: every session says the same about the backend, the samples and
the connected routers, and each session is woken when something changes that routers should hear at once. Sending is
`keep.py`'s, measuring the backend `probe.py`'s.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hivenet_router.wire.agent_protocol import (
    ROUTERS_MAX,
    EngineSnapshot,
    HardwareSnapshot,
    Heartbeat,
    Signals,
    SnapshotUnsendable,
    encode_heartbeat,
    encode_signals,
)


class Reports:
    """What is known for the next message; one object for all sessions.

    `hardware` and `engine` are the last samples, set by whoever takes them; None until there is one.
    """

    def __init__(self) -> None:
        self.hardware: HardwareSnapshot | None = None
        self.engine: EngineSnapshot | None = None
        self._backend_healthy = True
        self._leaving = False
        self._connected: dict[str, asyncio.Event] = {}

    @property
    def leaving(self) -> bool:
        """The agent is about to end and wants no more requests."""
        return self._leaving

    @property
    def connected_routers(self) -> tuple[str, ...]:
        """Peer IDs of the routers with a registered session, in order."""
        return tuple(sorted(self._connected))

    def backend_is(self, *, healthy: bool) -> None:
        """Take in the backend's state; routers hear of a change at once. Source: signals.md §9.1."""
        if healthy != self._backend_healthy:
            self._backend_healthy = healthy
            self._ring()

    def leave(self) -> None:
        """From now on say that the backend takes nothing. Source: wire.md §14 no. 21."""
        self._leaving = True
        self._ring()

    @contextmanager
    def connected(self, router_peer_id: str, news: asyncio.Event) -> Iterator[None]:
        """While the block runs the router counts as connected, and `news` is set when it should hear something."""
        self._connected[router_peer_id] = news
        self._ring(but=news)
        try:
            yield
        finally:
            del self._connected[router_peer_id]
            self._ring()

    def heartbeat(self, session_token: str) -> bytes:
        """The body of a heartbeat; samples that cannot be sent are left out, as a refusal would end the session."""
        message = Heartbeat(
            session_token=session_token,
            hardware=self.hardware,
            backend_metrics=self.engine,
            backend_healthy=self._backend_healthy and not self._leaving,
            connected_routers=self.connected_routers[:ROUTERS_MAX],
        )
        try:
            return encode_heartbeat(message)
        except SnapshotUnsendable:
            return encode_heartbeat(
                Heartbeat(
                    session_token=session_token,
                    backend_healthy=message.backend_healthy,
                    connected_routers=message.connected_routers,
                )
            )

    def signals(self, session_token: str) -> bytes | None:
        """The body of a routing signal; None while there is no sample that could be sent. Source: signals.md §1.6."""
        if self.hardware is None and self.engine is None:
            return None
        message = Signals(
            session_token=session_token,
            hardware=self.hardware,
            backend_metrics=self.engine,
            connected_routers=self.connected_routers[:ROUTERS_MAX],
        )
        try:
            return encode_signals(message)
        except SnapshotUnsendable:
            return None

    def _ring(self, *, but: asyncio.Event | None = None) -> None:
        for news in self._connected.values():
            if news is not but:
                news.set()
