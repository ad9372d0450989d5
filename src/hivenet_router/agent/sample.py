"""What does the engine say about itself, and is that still true?

Its metrics page is read again and again, also while no router is connected, and `reports` always holds what is known.
Invariant: one page is asked for at a time; what could not be read anew for a while is unknown, and is sent as unknown,
because a router keeps what it heard last. What a page means is `wire/engine_metrics`'.
Source: signals.md §1.4.5, §9.1 ("Windowed latency", "Age"); configuration.md §13 item 20.
"""

import asyncio
from collections import deque
from typing import Final

import structlog

from hivenet_router.agent.report import Reports
from hivenet_router.agent.world import Backend
from hivenet_router.names.paths import METRICS
from hivenet_router.ports import RequestFailed
from hivenet_router.wire.agent_protocol import EngineSnapshot
from hivenet_router.wire.engine_metrics import PAGE_BYTES_MAX, Reader, Reading, snapshot

SAMPLE_WITHIN_S: Final = 5.0
"""Time for one page."""
MISSED_SAMPLES_MAX: Final = 5
"""So many intervals without a page, and at least so many seconds as below, and what was known counts no more."""
FRESH_AT_LEAST_S: Final = 10.0
NO_PAGE_AGAIN_S: Final = 30.0
"""An engine that says it has no such page is asked again so seldom at most; each question is a line in its log."""
_NO_PAGE: Final = frozenset({404, 405, 501})
WINDOW_S: Final = 60.0
"""How far back latencies look, where enough happened since."""
_KEPT_EVERY_S: Final = 5.0

log = structlog.get_logger("agent")


_SWITCHED_OFF: Final = (
    "policies cannot see this engine's load; SGLang needs --enable-metrics, llama.cpp's llama-server --metrics; "
    "llama-cpp-python has none"
)
_NOT_WELL: Final = "is the engine up? Until it answers with its metrics, policies cannot see its load"


class PageUnread(Exception):
    """The engine gave no page of use: what it did instead, and what a person should look at."""

    def __init__(self, why: str, check: str) -> None:
        super().__init__(why)
        self.why = why
        self.check = check


class NoPage(PageUnread):
    """The engine says that it has no such page."""


class EngineSampler:
    """Reads the engine's page for as long as `run` runs, and tells `reports`."""

    def __init__(self, read: Reader, backend: Backend, *, interval_s: float, reports: Reports) -> None:
        self._read = read
        self._backend = backend
        self._interval_s = interval_s
        self._fresh_s = max(FRESH_AT_LEAST_S, MISSED_SAMPLES_MAX * interval_s)
        self._reports = reports
        self._read_at: float | None = None
        self._earlier: deque[tuple[float, Reading]] = deque()
        self._told: set[str] = set()
        self._lacks_page = False

    async def run(self) -> None:
        """Sample until cancelled: at once, then at every interval; those that pass during a sample are left out."""
        loop = asyncio.get_running_loop()
        while True:
            begun_at = loop.time()
            await self._sample()
            took_s = loop.time() - begun_at
            interval_s = self._interval_s
            if self._lacks_page and self._read_at is None:
                interval_s = max(interval_s, NO_PAGE_AGAIN_S)
            await asyncio.sleep(interval_s - took_s % interval_s)

    async def _sample(self) -> None:
        try:
            reading = self._read(await self._page())
        except PageUnread as unread:
            self._lacks_page = isinstance(unread, NoPage)
            self._missed(unread, now=asyncio.get_running_loop().time())
            return
        self._lacks_page = False
        self._take(reading, now=asyncio.get_running_loop().time())
        if reading.is_empty:
            self._tell(PageUnread(f"the page at {METRICS} has no series of this engine", _SWITCHED_OFF))
        elif self._told:
            self._told.clear()
            log.info("engine_metrics_read")

    async def _page(self) -> bytes:
        try:
            async with asyncio.timeout(SAMPLE_WITHIN_S):
                reply = await self._backend.get(METRICS)
        except TimeoutError as error:
            raise PageUnread(f"GET {METRICS} got no answer within {SAMPLE_WITHIN_S:g} s", _NOT_WELL) from error
        except RequestFailed as error:
            raise PageUnread(f"GET {METRICS} failed: {error}", _NOT_WELL) from error
        if reply.status in _NO_PAGE:
            raise NoPage(f"GET {METRICS} answered {reply.status}", _SWITCHED_OFF)
        if reply.status != 200:
            raise PageUnread(f"GET {METRICS} answered {reply.status}", _NOT_WELL)
        if len(reply.body) > PAGE_BYTES_MAX:
            raise PageUnread(f"the page at {METRICS} is longer than {PAGE_BYTES_MAX} bytes", _SWITCHED_OFF)
        return reply.body

    def _take(self, reading: Reading, *, now: float) -> None:
        earlier = self._earlier
        while earlier and earlier[0][0] < now - WINDOW_S - _KEPT_EVERY_S:
            earlier.popleft()
        self._reports.engine = snapshot(reading, earlier[0][1] if earlier else None)
        self._read_at = now
        if not earlier or now - earlier[-1][0] >= _KEPT_EVERY_S:
            earlier.append((now, reading))

    def _missed(self, unread: PageUnread, *, now: float) -> None:
        self._tell(unread)
        if self._read_at is not None and now - self._read_at > self._fresh_s:
            self._read_at = None
            self._reports.engine = EngineSnapshot()

    def _tell(self, unread: PageUnread) -> None:
        # Once for each advice: an engine that was down may turn out to have no page when it is up.
        if unread.check not in self._told:
            self._told.add(unread.check)
            log.warning("engine_metrics_unread", why=unread.why, check=unread.check)
