"""What does the agent tell its routers, and when has it something new to say?

The one place where messages are put together. Invariant: every session says the same about the backend, the samples,
the connected routers and the requests in flight, and each session is woken when something changes that routers should
hear at once. Sending is `keep.py`'s, measuring the backend `probe.py`'s and `sample.py`'s.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

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

_Report = TypeVar("_Report", Heartbeat, Signals)


class Reports:
    """What is known for the next message; one object for all sessions.

    `hardware` and `engine` are the last samples, set by whoever takes them; None until there is one.
    `requests_running` counts the requests of all routers whose answers have not ended; without it none are reported.
    """

    def __init__(self, requests_running: Callable[[], int] | None = None) -> None:
        self._requests_running = requests_running
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
    def is_busy(self) -> bool:
        """Whether a request runs now, as far as they are counted."""
        return self._requests_running is not None and self._requests_running() > 0

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
            leaving=self._leaving,
        )
        message = self._with_load(message)
        try:
            return encode_heartbeat(message)
        except SnapshotUnsendable:
            return encode_heartbeat(_without_samples(message))

    def signals(self, session_token: str) -> bytes | None:
        """The body of a routing signal; None while there is neither a sample that can be sent nor a count of requests.

        Source: signals.md §1.6; several-routers.md S-109.
        """
        message = self._with_load(
            Signals(session_token=session_token, hardware=self.hardware, backend_metrics=self.engine)
        )
        if _has_samples(message):
            try:
                return encode_signals(message)
            except SnapshotUnsendable:
                message = _without_samples(message)
        return None if message.inflight_total is None else encode_signals(message)

    def _with_load(self, message: _Report) -> _Report:
        inflight = None if self._requests_running is None else self._requests_running()
        return msgspec.structs.replace(
            message,
            connected_routers=self.connected_routers[:ROUTERS_MAX],
            inflight_total=inflight,
            # The data plane does not say whose the requests are; where there is one router, they are its own.
            inflight_here=inflight if len(self._connected) == 1 else None,
        )

    def _ring(self, *, but: asyncio.Event | None = None) -> None:
        for news in self._connected.values():
            if news is not but:
                news.set()


def _has_samples(message: Signals) -> bool:
    return message.hardware is not None or message.backend_metrics is not None


def _without_samples(message: _Report) -> _Report:
    return msgspec.structs.replace(message, hardware=None, backend_metrics=None)
