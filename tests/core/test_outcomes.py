"""An agent's counts, streak and round trip."""

import pytest
from tests.core.making import START, at

from hivenet_router.core.outcomes import History, Mark, Outcomes
from hivenet_router.core.srtt import RoundTrip


def test_the_success_rate_counts_what_an_earlier_run_left() -> None:
    """EX-3.8: 1000 good and 100 bad, then one good."""
    outcomes = Outcomes(History(successes=1000, failures=100))
    outcomes.succeeded(sample_s=0.1)
    assert outcomes.success_rate == pytest.approx(1001 / 1101)


def test_the_success_rate_is_the_share_of_good_outcomes() -> None:
    """EX-3.9."""
    outcomes = Outcomes()
    for _ in range(3):
        outcomes.succeeded(sample_s=0.1)
    outcomes.failed(Mark.APPLICATION, now=START)
    assert outcomes.success_rate == 0.75


def test_a_new_agent_has_no_success_rate_and_no_round_trip() -> None:
    """EX-3.10: absent, not zero."""
    assert Outcomes().success_rate is None
    assert Outcomes().srtt_s is None


def test_a_warm_start_goes_on_from_the_kept_round_trip() -> None:
    """EX-3.6 with the seed's rule: 42/5 ms, then 10 ms, gives 38 ms."""
    outcomes = Outcomes(History(round_trip=RoundTrip(0.042, 0.005)))
    outcomes.succeeded(sample_s=0.01)
    assert outcomes.srtt_s == pytest.approx(0.038)


def test_a_round_trip_of_zero_is_absent_for_gates() -> None:
    """EX-3.7."""
    outcomes = Outcomes()
    outcomes.succeeded(sample_s=0.0)
    assert outcomes.srtt_s is None
    outcomes.succeeded(sample_s=0.008)
    assert outcomes.srtt_s == pytest.approx(0.001)


def test_a_failure_without_an_answer_is_no_sample() -> None:
    outcomes = Outcomes()
    outcomes.failed(Mark.APPLICATION, now=START)
    assert outcomes.round_trip is None
    outcomes.failed(Mark.APPLICATION, sample_s=0.2, now=START)
    assert outcomes.round_trip == RoundTrip(0.2, 0.1)


def test_a_success_ends_the_streak() -> None:
    outcomes = Outcomes()
    outcomes.failed(Mark.APPLICATION, now=START)
    outcomes.failed(Mark.APPLICATION, now=START)
    assert outcomes.consecutive_failures == 2
    outcomes.succeeded(sample_s=0.1, input_tokens=7, output_tokens=3)
    assert (outcomes.consecutive_failures, outcomes.input_tokens, outcomes.output_tokens) == (0, 7, 3)


def test_a_broken_connection_is_a_failure_but_no_step_of_the_streak() -> None:
    """signals.md §3.2, Differences: the streak counts application-level failures."""
    outcomes = Outcomes()
    outcomes.failed(Mark.CONNECTION, now=START)
    assert (outcomes.failures, outcomes.consecutive_failures, outcomes.last_failure_at) == (1, 0, START)


def test_what_is_not_the_agents_fault_leaves_no_trace() -> None:
    outcomes = Outcomes()
    outcomes.failed(Mark.NONE, sample_s=0.3, now=START)
    assert outcomes.history() == History()
    assert outcomes.last_failure_at is None


def test_the_history_goes_to_disk_and_back_unchanged() -> None:
    history = History(1, 2, 3, 4, 5, 6, 7, RoundTrip(0.1, 0.05))
    assert Outcomes(history).history() == history


def test_a_reset_forgets_everything() -> None:
    outcomes = Outcomes(History(successes=5))
    outcomes.failed(Mark.APPLICATION, now=at(1))
    outcomes.lost_races = 2
    outcomes.reset()
    assert outcomes.history() == History()
    assert (outcomes.consecutive_failures, outcomes.lost_races, outcomes.last_failure_at) == (0, 0, None)
