"""What has reached this engine, and how did each request end?

Counters for the inference paths, a bounded record of every request, and a way to wait for a count. Invariant: of the
requests seen, each is running or has ended in exactly one of finished, cancelled (the client left before the end) and
broken (a fault cut the answer). Times are seconds of the machine's monotonic clock, so that programs on one machine can
compare them.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

Outcome = Literal["running", "finished", "cancelled", "broken"]
CANCEL_TIMES_KEPT: Final = 1_000


@dataclass(slots=True)
class RecordedRequest:
    """One request as it came over the wire, and what became of it. `headers` keep spelling and order.

    `body_head` is the beginning of the body, as much as the options keep.
    """

    sequence: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body_bytes: int
    body_sha256: str
    body_head: bytes
    received_s: float
    connection: int
    reused: bool
    inference: bool
    outcome: Outcome = "running"
    status: int | None = None
    first_byte_s: float | None = None
    finished_s: float | None = None
    peer_closed_s: float | None = None
    sent_bytes: int = 0
    chunks: int = 0

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def as_json(self, *, bodies: bool = False) -> dict[str, object]:
        """The record as `/sim/requests` shows it."""
        shown: dict[str, object] = {
            "sequence": self.sequence,
            "method": self.method,
            "target": self.target,
            "path": self.path,
            "headers": [list(pair) for pair in self.headers],
            "body_bytes": self.body_bytes,
            "body_sha256": self.body_sha256,
            "connection": self.connection,
            "reused": self.reused,
            "outcome": self.outcome,
            "status": self.status,
            "received_s": self.received_s,
            "first_byte_s": self.first_byte_s,
            "finished_s": self.finished_s,
            "peer_closed_s": self.peer_closed_s,
            "sent_bytes": self.sent_bytes,
            "chunks": self.chunks,
        }
        if bodies:
            shown["body_head"] = self.body_head.decode("utf-8", "replace")
        return shown


@dataclass(frozen=True, slots=True)
class Stats:
    """The counters at one moment. Requests are those on inference paths; `incomplete` ones never came whole."""

    seen: int
    running: int
    finished: int
    cancelled: int
    broken: int
    incomplete: int
    last_seen_s: float | None
    last_finished_s: float | None
    last_cancelled_s: float | None
    cancelled_at_s: tuple[float, ...]
    received_bytes: int
    sent_bytes: int
    connections_open: int
    connections_opened: int


@dataclass(slots=True)
class Ledger:
    """The books of one simulator."""

    requests_kept: int
    kept_body_bytes_max: int
    received_bytes: int = 0
    sent_bytes: int = 0
    connections_open: int = 0
    connections_opened: int = 0
    incomplete: int = 0
    _sequence: int = 0
    _seen: int = 0
    _ended: dict[Outcome, int] = field(default_factory=lambda: {"finished": 0, "cancelled": 0, "broken": 0})
    _last_s: dict[str, float] = field(default_factory=dict)
    _cancelled_at_s: deque[float] = field(default_factory=lambda: deque(maxlen=CANCEL_TIMES_KEPT))
    _inference: deque[RecordedRequest] = field(default_factory=deque)
    _probes: deque[RecordedRequest] = field(default_factory=deque)
    _waiters: list[tuple[Callable[[Stats], bool], asyncio.Future[None]]] = field(default_factory=list)

    def open(
        self,
        *,
        method: str,
        target: str,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        connection: int,
        reused: bool,
        inference: bool,
        kept: bool = True,
    ) -> RecordedRequest:
        """Enter a request that has arrived whole; one that is not `kept` is only handed back."""
        self._sequence += kept
        record = RecordedRequest(
            sequence=self._sequence,
            method=method,
            target=target,
            headers=headers,
            body_bytes=len(body),
            body_sha256=hashlib.sha256(body).hexdigest(),
            body_head=body[: self.kept_body_bytes_max],
            received_s=time.monotonic(),
            connection=connection,
            reused=reused,
            inference=inference,
        )
        if not kept:
            return record
        # Probes have a ring of their own: a scrape every half second must not push the requests out.
        ring = self._inference if inference else self._probes
        ring.append(record)
        if len(ring) > self.requests_kept:
            ring.popleft()
        if inference:
            self._seen += 1
            self._last_s["seen"] = record.received_s
        self.notify()
        return record

    def close(self, record: RecordedRequest, outcome: Outcome, *, peer_closed_s: float | None = None) -> None:
        """Enter how a request ended; the first ending stands."""
        if record.outcome != "running":
            return
        record.outcome = outcome
        record.peer_closed_s = peer_closed_s
        record.finished_s = time.monotonic()
        if record.inference:
            self._ended[outcome] += 1
            ended_s = record.finished_s if peer_closed_s is None else peer_closed_s
            self._last_s[outcome] = ended_s
            if outcome == "cancelled":
                self._cancelled_at_s.append(ended_s)
        self.notify()

    def received(self, size_bytes: int) -> None:
        """Count bytes that came."""
        self.received_bytes += size_bytes
        self.notify()

    def sent(self, size_bytes: int) -> None:
        """Count bytes that were sent."""
        self.sent_bytes += size_bytes
        self.notify()

    def stats(self) -> Stats:
        """The counters now."""
        ended = self._ended
        return Stats(
            seen=self._seen,
            running=self._seen - sum(ended.values()),
            finished=ended["finished"],
            cancelled=ended["cancelled"],
            broken=ended["broken"],
            incomplete=self.incomplete,
            last_seen_s=self._last_s.get("seen"),
            last_finished_s=self._last_s.get("finished"),
            last_cancelled_s=self._last_s.get("cancelled"),
            cancelled_at_s=tuple(self._cancelled_at_s),
            received_bytes=self.received_bytes,
            sent_bytes=self.sent_bytes,
            connections_open=self.connections_open,
            connections_opened=self.connections_opened,
        )

    def requests(self, path: str | None = None) -> list[RecordedRequest]:
        """The kept requests, oldest first; those of one path if it is given."""
        kept = sorted((*self._inference, *self._probes), key=lambda record: record.sequence)
        return [record for record in kept if path is None or record.path == path]

    def notify(self) -> None:
        """Wake those whose condition now holds."""
        if not self._waiters:
            return
        now = self.stats()
        for condition, future in self._waiters:
            if not future.done() and condition(now):
                future.set_result(None)

    async def wait_for(self, condition: Callable[[Stats], bool], timeout_s: float) -> Stats:
        """The counters, as soon as `condition` holds for them.

        Raises: TimeoutError when it does not within `timeout_s`.
        """
        if not condition(self.stats()):
            entry = (condition, asyncio.get_running_loop().create_future())
            self._waiters.append(entry)
            try:
                async with asyncio.timeout(timeout_s):
                    await entry[1]
            finally:
                self._waiters.remove(entry)
        return self.stats()
