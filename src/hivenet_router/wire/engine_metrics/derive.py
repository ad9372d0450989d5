"""What follows from an engine's counters: sums over its parts, averages, quantiles, what happened lately?

Invariant: what comes back is finite, and a histogram that comes back is one that a router takes. Engines that run in
several parts print one series for each; histograms and counts of the parts are added before anything is derived.
Source: signals.md §1.4.4, §9.1 ("Replicated series", "Windowed latency").
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hivenet_router.wire.agent_protocol import BUCKETS_MAX, Bucket, Histogram
from hivenet_router.wire.engine_metrics.text import Series, bound_in

WINDOW_OBSERVATIONS_MIN: Final = 20
"""Fewer recent observations say less than all of them."""
_COUNT_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cumulative:
    """Observations since the engine started: how many were at most each bound (ascending), their sum, their number.

    A pair of counters is one too, without buckets.
    """

    buckets: tuple[tuple[float, float], ...] = ()
    sum: float | None = None
    count: float | None = None


def total(values: Iterable[float]) -> float | None:
    """The sum; None of nothing, or past all bounds."""
    summands = tuple(values)
    return finite(sum(summands)) if summands else None


def finite(value: float) -> float | None:
    """The value, if it is a number that can be sent."""
    return value if math.isfinite(value) else None


def added(buckets: Series, sums: Series, counts: Series) -> Cumulative:
    """The histogram of all parts together; buckets are added where their bounds are the same."""
    parts: dict[float, float] = {}
    for labels, value in buckets.items():
        bound = bound_in(labels)
        if bound is not None:
            parts[bound] = parts.get(bound, 0.0) + value
    together = tuple((bound, value) for bound, value in sorted(parts.items()) if math.isfinite(value))
    return Cumulative(together, total(sums.values()), total(counts.values()))


def average(of: Cumulative) -> float | None:
    """The mean of the observations; None when there are none."""
    if of.sum is None or of.count is None or of.count <= 0:
        return None
    return finite(of.sum / of.count)


def quantile(buckets: Sequence[tuple[float, float]], q: float) -> float | None:
    """The value that a share `q` of the observations does not exceed, taken as evenly spread within a bucket.

    Beyond the last finite bound that bound comes back; None without observations or without a finite bound.
    Source: signals.md §1.4.4.
    """
    if not buckets or buckets[-1][1] <= 0:
        return None
    rank = q * buckets[-1][1]
    below, below_count = 0.0, 0.0
    highest: float | None = None
    for bound, count in buckets:
        if math.isinf(bound):
            break
        if count >= rank:
            if count == below_count:
                return below
            return finite(below + (bound - below) * (rank - below_count) / (count - below_count))
        below, below_count = bound, count
        highest = bound
    return highest


def recent(latest: Cumulative, earlier: Cumulative | None) -> Cumulative:
    """What was observed between two readings; all of `latest` where that is too little, or the engine began anew."""
    if earlier is None or latest.count is None or earlier.count is None:
        return latest
    if latest.count - earlier.count < WINDOW_OBSERVATIONS_MIN or latest.sum is None or earlier.sum is None:
        return latest
    if [bound for bound, _ in latest.buckets] != [bound for bound, _ in earlier.buckets]:
        return latest
    differences = tuple(
        (bound, now - then) for (bound, now), (_, then) in zip(latest.buckets, earlier.buckets, strict=True)
    )
    if latest.sum < earlier.sum or any(difference < 0 for _, difference in differences):
        return latest
    return Cumulative(differences, latest.sum - earlier.sum, latest.count - earlier.count)


def whole(value: float) -> int | None:
    """A count without its fraction; None when it is negative or too large to be sent."""
    return int(value) if 0 <= value <= _COUNT_MAX else None


def histogram(of: Cumulative) -> Histogram | None:
    """The histogram as it is sent, without the bucket to infinity; None when it is empty or cannot be sent."""
    if not of.buckets or of.count is None or len(of.buckets) > BUCKETS_MAX:
        return None
    count = whole(of.count)
    buckets: list[Bucket] = []
    for bound, value in of.buckets:
        within = whole(value)
        if within is None:
            return None
        if math.isfinite(bound):
            buckets.append(Bucket(bound, within))
    return Histogram(tuple(buckets), of.sum or 0.0, count) if count else None
