"""Which request is worked on when, and how many tokens has it by now?

Requests wait in one queue, first come first served. At most `concurrency` run, and one starts only while its tokens
fit into the KV cache (a request larger than the cache runs alone). A running request reads its prompt for a while and
then writes tokens at its own pace. If writing overfills the cache, the request that started last goes back to the head
of the queue and later reads prompt and text again. Invariants: `held_tokens` is the sum over running requests; a job
is in exactly one of waiting, running, ended. No clock, no loop: `now` (seconds of one monotonic clock) is an argument,
and `next_wake` says when to come back. Waking is the business of `pacer`.
"""

import enum
import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hivenet_router.sim.metrics_page import EngineMetrics, Load

# Alarms of jobs that have gone are cleared out when they are more than this, and more than half.
STALE_ALARMS_KEPT: Final = 64
# Tokens due within this time are written together: timers fire in whole milliseconds anyway.
TICK_SLACK_S: Final = 0.0005


class EngineFullError(Exception):
    """The waiting queue is at its bound; nothing was taken."""


class Phase(enum.Enum):
    """Where a job stands. HELD is running but told to go silent."""

    NEW = enum.auto()
    WAITING = enum.auto()
    PREFILL = enum.auto()
    DECODE = enum.auto()
    HELD = enum.auto()
    ENDED = enum.auto()


@dataclass(slots=True, eq=False)
class Job:
    """One request's work. `output_tokens` and `hold_at` count per choice; `step_s` is the least time between steps.

    `prefill_s` gives the seconds that reading so many tokens takes. `generated` is read by whoever sends the tokens.
    """

    prompt_tokens: int
    output_tokens: int
    prefill_s: Callable[[int], float]
    interval_s: float = 0.0
    choices: int = 1
    step_s: float = 0.0
    hold_at: int | None = None
    finish: str = "stop"
    generated: int = 0
    phase: Phase = Phase.NEW
    arrived_s: float = 0.0
    base_s: float = 0.0
    base_tokens: int = 0
    last_token_s: float = 0.0
    ticket: int = 0
    held_tokens: int = 0

    @property
    def is_ended(self) -> bool:
        """Whether the engine is through with it."""
        return self.phase is Phase.ENDED

    @property
    def is_held(self) -> bool:
        """Whether it has been told to go silent, and has."""
        return self.phase is Phase.HELD

    def footprint(self) -> int:
        """Tokens it needs in the cache as far as it has come."""
        return self.prompt_tokens + self.generated * self.choices


@dataclass(slots=True)
class EngineCore:
    """The queue, the batch and the cache of one engine."""

    concurrency: int
    waiting_max: int
    kv_cache_tokens: int
    metrics: EngineMetrics = field(default_factory=EngineMetrics)
    held_tokens: int = 0
    running: dict[int, Job] = field(default_factory=dict)
    waiting: deque[Job] = field(default_factory=deque)
    _alarms: list[tuple[float, int, int, Job]] = field(default_factory=list)
    _serial: int = 0

    def load(self) -> Load:
        """How full the engine is at this moment."""
        ratio = min(1.0, self.held_tokens / self.kv_cache_tokens)
        return Load(running=len(self.running), waiting=len(self.waiting), kv_usage_ratio=ratio)

    def submit(self, job: Job, *, now: float) -> None:
        """Take a new job; it starts at once if there is room.

        Raises: EngineFullError when it would have to wait and the queue is at its bound.
        """
        if len(self.waiting) >= self.waiting_max and not self._room_for(job):
            raise EngineFullError
        job.arrived_s = now
        job.phase = Phase.WAITING
        self.waiting.append(job)
        self._start_waiting(now)

    def withdraw(self, job: Job, *, now: float) -> None:
        """End a job that nobody wants any more; an ended one stays as it is."""
        if job.phase in (Phase.NEW, Phase.ENDED):
            return
        if job.phase is Phase.WAITING:
            self.waiting.remove(job)
        self._end(job, "abort", now)

    def resume(self, job: Job, *, now: float) -> None:
        """Let a held job go on from where it stands."""
        job.hold_at = None
        if job.phase is Phase.HELD:
            job.phase = Phase.DECODE
            job.base_s, job.base_tokens = now, job.generated
            self._alarm(job, now + job.interval_s)

    def next_wake(self) -> float | None:
        """When `tick` has something to do; None while nothing runs."""
        while self._alarms and self._alarms[0][2] != self._alarms[0][3].ticket:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def tick(self, *, now: float) -> list[Job]:
        """Bring every due job up to `now`; those that got tokens or ended come back, in order of due time."""
        moved: list[Job] = []
        while (due_s := self.next_wake()) is not None and due_s <= now + TICK_SLACK_S:
            job = heapq.heappop(self._alarms)[3]
            self._advance(job, now)
            moved.append(job)
        return moved

    def _advance(self, job: Job, now: float) -> None:
        job.ticket += 1
        first = job.phase is Phase.PREFILL
        if first:
            job.phase = Phase.DECODE
            job.base_s, job.base_tokens = now, min(job.generated + 1, job.output_tokens)
        total = job.output_tokens if job.hold_at is None else min(job.hold_at, job.output_tokens)
        fresh = max(0, min(self._tokens_due(job, now), total) - job.generated)
        if fresh:
            self._observe(job, fresh, now)
            job.generated += fresh
            if job.generated < job.output_tokens:
                self._grow(job, fresh * job.choices)
        if job.phase is not Phase.DECODE:
            return
        if job.hold_at is not None and job.generated >= job.hold_at:
            job.phase = Phase.HELD
        elif job.generated >= job.output_tokens:
            self._end(job, job.finish, now)
        else:
            self._alarm(job, self._next_step(job, now))

    def _tokens_due(self, job: Job, now: float) -> int:
        if job.interval_s <= 0.0:
            return job.output_tokens
        # Compared before it is rounded: an interval may be so short that no number of tokens is finite.
        passed = min((now + TICK_SLACK_S - job.base_s) / job.interval_s, float(job.output_tokens))
        return job.base_tokens + math.floor(passed)

    def _next_step(self, job: Job, now: float) -> float:
        """When the next token is due, or later if steps are coarse, but never after the last token."""
        next_s = job.base_s + (job.generated + 1 - job.base_tokens) * job.interval_s
        last_s = job.base_s + (job.output_tokens - job.base_tokens) * job.interval_s
        return min(max(next_s, now + job.step_s), last_s)

    def _observe(self, job: Job, fresh: int, now: float) -> None:
        later = fresh
        if job.generated == 0:
            self.metrics.ttft_s.observe(now - job.arrived_s)
            later -= 1
        if later:
            since_s = max(0.0, now - job.last_token_s) if job.generated else 0.0
            self.metrics.itl_s.observe(since_s / later, later)
        job.last_token_s = now

    def _grow(self, job: Job, tokens: int) -> None:
        job.held_tokens += tokens
        self.held_tokens += tokens
        while self.held_tokens > self.kv_cache_tokens and len(self.running) > 1:
            self._preempt(next(reversed(self.running.values())))

    def _preempt(self, job: Job) -> None:
        self._free(job)
        self.metrics.preemptions += 1
        job.phase = Phase.WAITING
        self.waiting.appendleft(job)

    def _room_for(self, job: Job) -> bool:
        if not self.running:
            return True
        fits = self.held_tokens + job.footprint() <= self.kv_cache_tokens
        return fits and len(self.running) < self.concurrency and not self.waiting

    def _start_waiting(self, now: float) -> None:
        while self.waiting and len(self.running) < self.concurrency:
            job = self.waiting[0]
            if self.running and self.held_tokens + job.footprint() > self.kv_cache_tokens:
                return
            self.waiting.popleft()
            self._serial += 1
            self.running[id(job)] = job
            job.held_tokens = job.footprint()
            self.held_tokens += job.held_tokens
            job.phase = Phase.PREFILL
            self._alarm(job, now + job.prefill_s(job.footprint()))

    def _alarm(self, job: Job, at_s: float) -> None:
        # A job has one alarm at a time, so what is more belongs to jobs that have gone or gone back.
        if len(self._alarms) > 2 * len(self.running) + STALE_ALARMS_KEPT:
            self._alarms = [alarm for alarm in self._alarms if alarm[2] == alarm[3].ticket]
            heapq.heapify(self._alarms)
        self._serial += 1
        heapq.heappush(self._alarms, (at_s, self._serial, job.ticket, job))

    def _free(self, job: Job) -> None:
        job.ticket += 1
        self.held_tokens -= job.held_tokens
        job.held_tokens = 0
        self.running.pop(id(job), None)

    def _end(self, job: Job, reason: str, now: float) -> None:
        self._free(job)
        job.phase = Phase.ENDED
        self.metrics.finish(reason, prompt_tokens=job.prompt_tokens, generated_tokens=job.generated * job.choices)
        self._start_waiting(now)
