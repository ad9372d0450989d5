"""RFC 6298 both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.srtt import RoundTrip, after_sample


def near(srtt_s: float, rttvar_s: float, estimate: RoundTrip) -> bool:
    """Whether an estimate is this one but for rounding."""
    return estimate.srtt_s == pytest.approx(srtt_s) and estimate.rttvar_s == pytest.approx(rttvar_s)


def smoothed(*samples_s: float) -> RoundTrip:
    """The estimate after these samples; at least one."""
    known = None
    for sample_s in samples_s:
        known = after_sample(known, sample_s)
    assert known is not None
    return known


def test_the_first_sample_stands_alone() -> None:
    assert smoothed(0.1) == RoundTrip(0.1, 0.05)


def test_each_later_sample_moves_the_mean_by_an_eighth_both_ways() -> None:
    """decisions.md 27: 100, 60, 120 ms give 100, 95, 98.125 (EX-3.3 with the seed's rule)."""
    assert near(0.095, 0.0475, smoothed(0.1, 0.06))
    assert near(0.098125, 0.041875, smoothed(0.1, 0.06, 0.12))


def test_one_slow_reply_moves_a_known_agent_as_in_the_original() -> None:
    """EX-3.5: from (200, 50) a sample of 5000 ms gives (800, 1237.5)."""
    assert near(0.8, 1.2375, after_sample(RoundTrip(0.2, 0.05), 5.0))


def test_a_first_sample_of_nothing_does_not_stop_the_next_one() -> None:
    """EX-3.7 with the seed's rule: upwards both rules agree."""
    assert near(0.001, 0.002, smoothed(0.0, 0.008))


def test_a_clock_that_steps_back_counts_as_no_time() -> None:
    assert smoothed(-3.0) == RoundTrip(0.0, 0.0)


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=50))
def test_the_mean_stays_between_the_smallest_and_the_largest_sample(samples_s: list[float]) -> None:
    estimate = smoothed(*samples_s)
    assert min(samples_s) - 1e-6 <= estimate.srtt_s <= max(samples_s) + 1e-6
    assert estimate.rttvar_s >= 0
