"""Does the engine keep its queue, its pace and its cache, in whatever order requests come and go?"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hivenet_router.sim.engine import STALE_ALARMS_KEPT, EngineCore, EngineFullError, Job, Phase


def job(
    prompt_tokens: int = 10,
    output_tokens: int = 4,
    *,
    prefill_s: float = 0.0,
    interval_s: float = 1.0,
    choices: int = 1,
    step_s: float = 0.0,
    hold_at: int | None = None,
) -> Job:
    return Job(
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        prefill_s=lambda _tokens: prefill_s,
        interval_s=interval_s,
        choices=choices,
        step_s=step_s,
        hold_at=hold_at,
    )


def core(*, concurrency: int = 8, waiting_max: int = 8, kv_cache_tokens: int = 1_000) -> EngineCore:
    return EngineCore(concurrency, waiting_max, kv_cache_tokens)


def test_the_first_token_comes_after_the_prompt_is_read() -> None:
    engine, work = core(), job(prefill_s=2.0)
    engine.submit(work, now=10.0)
    assert engine.next_wake() == 12.0
    assert engine.tick(now=11.0) == []
    assert engine.tick(now=12.0) == [work]
    assert work.generated == 1
    assert engine.metrics.ttft_s.sum == 2.0


def test_tokens_come_one_an_interval() -> None:
    engine, work = core(), job()
    engine.submit(work, now=0.0)
    seen = []
    for second in range(4):
        engine.tick(now=float(second))
        seen.append(work.generated)
    assert seen == [1, 2, 3, 4]
    assert work.is_ended
    assert engine.metrics.itl_s.sum == 3.0


def test_a_late_tick_brings_all_tokens_that_are_due() -> None:
    engine, work = core(), job(output_tokens=10)
    engine.submit(work, now=0.0)
    engine.tick(now=0.0)
    engine.tick(now=5.0)
    assert work.generated == 6
    assert engine.next_wake() == 6.0


def test_without_a_rate_all_comes_at_once() -> None:
    engine, work = core(), job(output_tokens=500, interval_s=0.0)
    engine.submit(work, now=0.0)
    engine.tick(now=0.0)
    assert (work.generated, work.phase) == (500, Phase.ENDED)


def test_an_interval_too_short_to_count_tokens_by_brings_all_of_them() -> None:
    engine, work = core(), job(output_tokens=500, interval_s=5e-324)
    engine.submit(work, now=0.0)
    engine.tick(now=0.0)
    engine.tick(now=1.0)
    assert (work.generated, work.phase) == (500, Phase.ENDED)


def test_work_that_is_given_up_long_before_its_time_leaves_nothing_behind() -> None:
    engine = core()
    for number in range(10_000):
        work = job(prefill_s=1e6)
        engine.submit(work, now=float(number))
        engine.withdraw(work, now=float(number))
    assert len(engine._alarms) <= STALE_ALARMS_KEPT + 1


def test_clearing_out_old_alarms_forgets_nobody() -> None:
    engine, kept = core(), job(prefill_s=5.0, output_tokens=1)
    engine.submit(kept, now=0.0)
    for _ in range(500):
        work = job(prefill_s=1e6)
        engine.submit(work, now=0.0)
        engine.withdraw(work, now=0.0)
    assert engine.next_wake() == 5.0
    assert engine.tick(now=5.0) == [kept]


def test_coarse_steps_do_not_delay_the_end() -> None:
    engine, work = core(), job(output_tokens=4, step_s=100.0)
    engine.submit(work, now=0.0)
    engine.tick(now=0.0)
    assert engine.next_wake() == 3.0


def test_with_one_place_requests_are_served_in_order() -> None:
    engine, works = core(concurrency=1), [job(output_tokens=1) for _ in range(3)]
    for work in works:
        engine.submit(work, now=0.0)
    assert (engine.load().running, engine.load().waiting) == (1, 2)
    assert engine.tick(now=0.0) == works


def test_a_waiting_request_that_leaves_is_never_worked_on() -> None:
    engine, first, second, third = core(concurrency=1), job(), job(), job()
    for work in (first, second, third):
        engine.submit(work, now=0.0)
    engine.withdraw(second, now=0.1)
    engine.withdraw(first, now=0.2)
    assert list(engine.running.values()) == [third]
    assert second.generated == 0
    assert engine.metrics.finished["abort"] == 2


def test_a_full_queue_refuses() -> None:
    engine = core(concurrency=1, waiting_max=1)
    engine.submit(job(), now=0.0)
    engine.submit(job(), now=0.0)
    with pytest.raises(EngineFullError):
        engine.submit(job(), now=0.0)


def test_a_prompt_waits_until_it_fits_into_the_cache() -> None:
    engine, first, second = core(kv_cache_tokens=100), job(60), job(60)
    engine.submit(first, now=0.0)
    engine.submit(second, now=0.0)
    assert engine.load().kv_usage_ratio == 0.6
    assert list(engine.waiting) == [second]
    engine.withdraw(first, now=1.0)
    assert list(engine.running.values()) == [second]


def test_a_prompt_larger_than_the_cache_runs_alone() -> None:
    engine, huge = core(kv_cache_tokens=100), job(500)
    engine.submit(huge, now=0.0)
    assert huge.phase is Phase.PREFILL
    assert engine.load().kv_usage_ratio == 1.0


def test_an_overfull_cache_puts_the_youngest_back() -> None:
    engine = core(kv_cache_tokens=24)
    old, young = job(10, 10), job(10, 10)
    engine.submit(old, now=0.0)
    engine.submit(young, now=0.0)
    for second in range(3):
        engine.tick(now=float(second))
    assert young.phase is Phase.WAITING
    assert engine.metrics.preemptions == 1
    written = young.generated
    for second in range(3, 40):
        engine.tick(now=float(second))
    assert old.is_ended
    assert young.is_ended
    assert young.generated == 10 > written


def test_a_held_job_stays_silent_until_it_is_resumed() -> None:
    engine, work = core(), job(hold_at=2)
    engine.submit(work, now=0.0)
    for second in range(5):
        engine.tick(now=float(second))
    assert (work.generated, work.phase, engine.next_wake()) == (2, Phase.HELD, None)
    engine.resume(work, now=10.0)
    for later_s in (11.0, 12.0):
        engine.tick(now=later_s)
    assert work.is_ended


@pytest.mark.parametrize("hold_at", [0, 4])
def test_a_job_can_be_held_before_its_first_and_after_its_last_token(hold_at: int) -> None:
    engine, work = core(), job(output_tokens=4, interval_s=0.0, hold_at=hold_at)
    engine.submit(work, now=0.0)
    engine.tick(now=0.0)
    assert (work.generated, work.phase) == (hold_at, Phase.HELD)
    engine.resume(work, now=1.0)
    engine.tick(now=1.0)
    assert (work.generated, work.phase) == (4, Phase.ENDED)


def test_every_choice_takes_room_in_the_cache() -> None:
    engine, work = core(), job(10, 4, choices=3)
    engine.submit(work, now=0.0)
    engine.tick(now=0.0)
    engine.tick(now=1.0)
    assert engine.held_tokens == 16


def test_a_job_without_output_ends_with_its_prompt() -> None:
    engine, work = core(), job(output_tokens=0)
    engine.submit(work, now=0.0)
    engine.tick(now=0.0)
    assert work.is_ended
    assert engine.metrics.ttft_s.count == 0


class EngineMachine(RuleBasedStateMachine):
    """In whatever order requests arrive, leave and stall, the books hold and everything ends."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = core(concurrency=3, waiting_max=5, kv_cache_tokens=60)
        self.now = 0.0
        self.taken: list[Job] = []

    @rule(
        prompt=st.integers(1, 80),
        output=st.integers(0, 20),
        interval_s=st.sampled_from([0.0, 0.5, 1.0]),
        hold_at=st.none() | st.integers(0, 5),
    )
    def arrive(self, prompt: int, output: int, interval_s: float, hold_at: int | None) -> None:
        work = job(prompt, output, prefill_s=0.3, interval_s=interval_s, hold_at=hold_at)
        try:
            self.engine.submit(work, now=self.now)
            self.taken.append(work)
        except EngineFullError:
            # A preempted job goes back into the queue even when that is full.
            assert len(self.engine.waiting) >= 5

    @rule(step_s=st.sampled_from([0.1, 1.0, 7.0]))
    def pass_time(self, step_s: float) -> None:
        self.now += step_s
        self.engine.tick(now=self.now)

    @rule(pick=st.integers(0, 50))
    def leave(self, pick: int) -> None:
        if self.taken:
            self.engine.withdraw(self.taken[pick % len(self.taken)], now=self.now)

    @rule(pick=st.integers(0, 50))
    def resume(self, pick: int) -> None:
        if self.taken:
            self.engine.resume(self.taken[pick % len(self.taken)], now=self.now)

    @invariant()
    def books_agree(self) -> None:
        running = list(self.engine.running.values())
        assert self.engine.held_tokens == sum(work.held_tokens for work in running)
        assert len(running) <= 3
        assert self.engine.held_tokens <= 60 or len(running) == 1
        ended = sum(self.engine.metrics.finished.values())
        assert len(self.taken) == len(running) + len(self.engine.waiting) + ended

    def teardown(self) -> None:
        for _ in range(10_000):
            wake_s = self.engine.next_wake()
            if wake_s is None:
                break
            self.now = max(self.now, wake_s)
            self.engine.tick(now=self.now)
        for work in self.taken:
            self.engine.withdraw(work, now=self.now)
        assert (self.engine.held_tokens, len(self.engine.running), len(self.engine.waiting)) == (0, 0, 0)


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
