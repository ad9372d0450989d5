"""Averages, quantiles, histograms and windows over an engine's counters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.wire.agent_protocol import BUCKETS_MAX, Bucket, Histogram
from hivenet_router.wire.engine_metrics.derive import (
    WINDOW_OBSERVATIONS_MIN,
    Cumulative,
    added,
    average,
    histogram,
    quantile,
    recent,
    total,
)

INF = math.inf


@pytest.mark.parametrize(
    ("buckets", "p90"),
    [
        ([(0.1, 0), (0.5, 5), (1, 10), (INF, 10)], 0.9),
        ([(0.1, 10), (0.5, 10), (INF, 10)], 0.09),
        ([(0.1, 1), (0.5, 5), (INF, 10)], 0.5),
        ([(0.1, 9), (0.5, 9), (1, 10), (INF, 10)], 0.1),
        ([(0.1, 0), (INF, 0)], None),
        ([(INF, 10)], None),
        ([(0.1, 5), (0.5, 10)], 0.42),
        ([(0.1, 0), (0.2, 0), (INF, 5)], 0.2),
        ([], None),
    ],
)
def test_the_quantiles_of_the_examples(buckets: list[tuple[float, float]], p90: float | None) -> None:
    """signals.md EX-1.3a to h."""
    assert quantile(buckets, 0.9) == (None if p90 is None else pytest.approx(p90))


def test_an_empty_bucket_at_the_rank_gives_its_lower_end() -> None:
    assert quantile([(0.1, 0), (0.5, 0), (INF, 0.0001)], 0.0) == 0.0


def test_the_average_is_the_sum_over_the_count() -> None:
    """signals.md EX-1.3i."""
    assert average(Cumulative((), 3.0, 10.0)) == 0.3
    assert average(Cumulative((), 3.0, 0.0)) is None
    assert average(Cumulative((), None, 10.0)) is None
    assert average(Cumulative((), 3.0, None)) is None
    assert average(Cumulative((), 1e308, 1e-300)) is None


def test_a_histogram_is_sent_without_the_bucket_to_infinity() -> None:
    """signals.md EX-1.4."""
    sent = histogram(Cumulative(((0.1, 1.0), (0.5, 2.0), (INF, 3.0)), 1.5, 3.0))
    assert sent == Histogram((Bucket(0.1, 1), Bucket(0.5, 2)), 1.5, 3)


@pytest.mark.parametrize(
    "unsent",
    [
        Cumulative((), 1.0, 3.0),
        Cumulative(((0.1, 1.0),), 1.0, None),
        Cumulative(((0.1, 0.0),), 0.0, 0.0),
        Cumulative(((0.1, -1.0),), 1.0, 3.0),
        Cumulative(((0.1, 1e19),), 1.0, 3.0),
        Cumulative(((0.1, 1.0),), 1.0, -3.0),
        Cumulative(tuple((float(n), 1.0) for n in range(BUCKETS_MAX + 1)), 1.0, 3.0),
    ],
)
def test_a_histogram_that_is_empty_or_that_no_router_takes_is_not_sent(unsent: Cumulative) -> None:
    assert histogram(unsent) is None


def test_a_missing_sum_is_sent_as_zero_and_counts_lose_their_fractions() -> None:
    assert histogram(Cumulative(((0.1, 1.9),), None, 3.9)) == Histogram((Bucket(0.1, 1),), 0.0, 3)


def test_parts_are_added_bound_by_bound_before_anything_is_derived() -> None:
    """signals.md EX-9.1: p90 of the two ranks together is 0.85."""
    buckets = {b'r="0",le="1"': 10.0, b'r="0",le="0.1"': 8.0, b'r="1",le="0.1"': 0.0, b'r="1",le="1.0"': 10.0}
    together = added(buckets, {b'r="0"': 1.0, b'r="1"': 2.0}, {b'r="0"': 10.0, b'r="1"': 10.0})
    assert together == Cumulative(((0.1, 8.0), (1.0, 20.0)), 3.0, 20.0)
    assert quantile(together.buckets, 0.9) == pytest.approx(0.85)


def test_a_bucket_without_a_bound_is_left_out() -> None:
    assert added({b"": 1.0, b'le="x"': 2.0, b'le="1"': 3.0}, {}, {}) == Cumulative(((1.0, 3.0),))


def test_a_sum_past_all_bounds_is_unknown() -> None:
    assert total([1e308, 1e308]) is None
    assert total([1e308, 1e308, -1e308, -1e308]) is None
    assert total([]) is None
    assert added({b'a="1",le="1"': 1e308, b'a="2",le="1"': 1e308}, {}, {}) == Cumulative()


THEN = Cumulative(((0.1, 100.0), (0.5, 190.0), (1.0, 200.0)), 50.0, 200.0)
NOW = Cumulative(((0.1, 110.0), (0.5, 230.0), (1.0, 250.0)), 80.0, 250.0)


def test_latency_is_that_of_late_where_enough_happened() -> None:
    """signals.md EX-9.2."""
    window = recent(NOW, THEN)
    assert quantile(NOW.buckets, 0.9) == pytest.approx(0.483, abs=0.001)
    assert quantile(window.buckets, 0.9) == pytest.approx(0.75)
    assert average(window) == pytest.approx(0.6)


@pytest.mark.parametrize(
    "earlier",
    [
        None,
        Cumulative(),
        Cumulative(THEN.buckets, THEN.sum, NOW.count),
        Cumulative(THEN.buckets, THEN.sum, 250.0 - WINDOW_OBSERVATIONS_MIN + 1),
        Cumulative(THEN.buckets, None, THEN.count),
        Cumulative(THEN.buckets, 81.0, THEN.count),
        Cumulative(THEN.buckets[:2], THEN.sum, THEN.count),
        Cumulative(((0.1, 111.0), *THEN.buckets[1:]), THEN.sum, THEN.count),
        Cumulative(THEN.buckets, THEN.sum, 1000.0),
    ],
)
def test_too_little_or_an_engine_that_began_anew_leaves_all_there_is(earlier: Cumulative | None) -> None:
    assert recent(NOW, earlier) is NOW


def test_just_enough_is_enough() -> None:
    pair = Cumulative((), 5.0, float(WINDOW_OBSERVATIONS_MIN))
    assert recent(pair, Cumulative((), 0.0, 0.0)) == pair
    assert recent(Cumulative((), 9.0, 30.0), Cumulative((), 8.0, 10.0)) == Cumulative((), 1.0, 20.0)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(FLOATS | st.just(INF), FLOATS), max_size=8, unique_by=lambda bucket: bucket[0]),
    st.none() | FLOATS,
    st.none() | FLOATS,
    st.floats(0.01, 1.0),
)
def test_whatever_the_counters_say_results_are_finite(
    buckets: list[tuple[float, float]], of_all: float | None, count: float | None, q: float
) -> None:
    counters = Cumulative(tuple(sorted(buckets)), of_all, count)
    for result in (average(counters), quantile(counters.buckets, q)):
        assert result is None or math.isfinite(result)
    histogram(counters)
    assert recent(counters, counters) is counters


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.floats(0.01, 1.0))
def test_a_quantile_lies_within_the_bounds(increments: list[int], q: float) -> None:
    counts = [sum(increments[: n + 1]) for n in range(len(increments))]
    buckets = [(float(n + 1), float(count)) for n, count in enumerate(counts)]
    found = quantile([*buckets, (INF, float(counts[-1]))], q)
    assert (found is None) == (counts[-1] == 0)
    assert found is None or 0.0 <= found <= len(increments)
