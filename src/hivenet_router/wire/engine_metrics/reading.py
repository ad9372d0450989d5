"""What does one page of an engine say, in words that are the same for all engines?

An `EngineSeries` is a table row: under which names an engine prints what. `reader` turns it into a function from a page
to a `Reading`, `snapshot` turns a reading, and one from before, into what routers are told. Invariant: what a page does
not say is None, never zero, and every snapshot can be sent.
Source: signals.md §1.4.3, §1.4.4, §9.1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from hivenet_router.wire.agent_protocol import FINISH_REASONS_MAX, TEXT_CHARS_MAX, EngineSnapshot, Histogram
from hivenet_router.wire.engine_metrics.derive import (
    Cumulative,
    added,
    average,
    finite,
    histogram,
    quantile,
    recent,
    total,
    whole,
)
from hivenet_router.wire.engine_metrics.text import Series, label_reader, series_in

P90: Final = 0.9

Names: TypeAlias = tuple[bytes, ...]
"""Names that engines of different age give to the same thing; the first that stands on the page is read."""
_NO_SERIES: Final[Series] = {}
_NOTHING: Final = Cumulative()
_REASON: Final = label_reader(b"finished_reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSeries:
    """One engine's names. Each begins with `prefix`; a histogram's is without `_bucket`, `_sum` and `_count`.

    `prefill` and `decode` are pairs of counters, of seconds and of the tokens made in them, for engines that have no
    histogram of the time per token. Where a gauge is printed once in all and again for each value of `part_label`, only
    the series in which that label is empty counts.
    """

    prefix: bytes
    kv_cache_ratio: Names = ()
    running: Names = ()
    waiting: Names = ()
    preemptions: Names = ()
    ttft_s: Names = ()
    itl_s: Names = ()
    prompt_tokens: Names = ()
    generation_tokens: Names = ()
    finished: Names = ()
    decode_tokens_per_s: Names = ()
    prefill_tokens_per_s: Names = ()
    decode: tuple[bytes, bytes] | None = None
    prefill: tuple[bytes, bytes] | None = None
    part_label: bytes = b""
    sends_histograms: bool = False

    def wanted(self) -> frozenset[bytes]:
        """All names that are looked for on a page."""
        plain = (self.kv_cache_ratio, self.running, self.waiting, self.preemptions, self.finished)
        names = {name for group in (*plain, self.decode_tokens_per_s, self.prefill_tokens_per_s) for name in group}
        for group in (self.ttft_s, self.itl_s, self.prompt_tokens, self.generation_tokens):
            names.update(name + suffix for name in group for suffix in (b"_bucket", b"_sum", b"_count"))
        return frozenset(names.union(self.decode or (), self.prefill or ()))


@dataclass(frozen=True, slots=True)
class Reading:
    """One page, with the parts of the engine added up. Times in seconds, the cache as a ratio."""

    kv_cache_ratio: float | None
    running: float | None
    waiting: float | None
    preemptions: float | None
    ttft_s: Cumulative
    itl_s: Cumulative
    prompt_tokens: Cumulative
    generation_tokens: Cumulative
    finished: Mapping[str, int] | None
    decode_tokens_per_s: float | None
    prefill_tokens_per_s: float | None
    decode: Cumulative
    prefill: Cumulative
    sends_histograms: bool
    is_empty: bool
    """Whether the page had none of the engine's series."""


Reader: TypeAlias = Callable[[bytes], Reading]
"""Reads a page, whatever it holds."""


def reader(series: EngineSeries) -> Reader:
    """The reader of an engine with these names."""
    wanted = series.wanted()
    part = label_reader(series.part_label) if series.part_label else _no_part

    def read(page: bytes) -> Reading:
        return _reading(series, series_in(page, prefix=series.prefix, names=wanted), part)

    return read


def _no_part(labels: bytes) -> str | None:
    """The label of an engine that prints nothing twice."""
    return None


def _reading(series: EngineSeries, found: Mapping[bytes, Series], part: Callable[[bytes], str | None]) -> Reading:
    def gauge(names: Names) -> Series:
        return {labels: value for labels, value in _first(found, names).items() if not part(labels)}

    return Reading(
        # The fullest part is the one that makes requests wait.
        kv_cache_ratio=max(gauge(series.kv_cache_ratio).values(), default=None),
        running=total(gauge(series.running).values()),
        waiting=total(gauge(series.waiting).values()),
        preemptions=total(_first(found, series.preemptions).values()),
        ttft_s=_histogram(found, series.ttft_s),
        itl_s=_histogram(found, series.itl_s),
        prompt_tokens=_histogram(found, series.prompt_tokens),
        generation_tokens=_histogram(found, series.generation_tokens),
        finished=_finished(_first(found, series.finished)),
        decode_tokens_per_s=total(gauge(series.decode_tokens_per_s).values()),
        prefill_tokens_per_s=total(gauge(series.prefill_tokens_per_s).values()),
        decode=_pair(found, series.decode),
        prefill=_pair(found, series.prefill),
        sends_histograms=series.sends_histograms,
        is_empty=not found,
    )


def _first(found: Mapping[bytes, Series], names: Names) -> Series:
    return next((found[name] for name in names if name in found), _NO_SERIES)


def _histogram(found: Mapping[bytes, Series], names: Names) -> Cumulative:
    for name in names:
        parts = [found.get(name + suffix, _NO_SERIES) for suffix in (b"_bucket", b"_sum", b"_count")]
        if any(parts):
            return added(*parts)
    return _NOTHING


def _pair(found: Mapping[bytes, Series], names: tuple[bytes, bytes] | None) -> Cumulative:
    if names is None:
        return _NOTHING
    seconds, tokens = (total(found.get(name, _NO_SERIES).values()) for name in names)
    return Cumulative((), seconds, tokens)


def _finished(series: Series) -> Mapping[str, int] | None:
    if not series:
        return None
    by_reason: dict[str, float] = {}
    for labels, value in series.items():
        reason = _REASON(labels)
        if reason is not None and value >= 0 and len(reason) <= TEXT_CHARS_MAX:
            by_reason[reason] = by_reason.get(reason, 0.0) + value
    counts = {reason: whole(value) for reason, value in sorted(by_reason.items())[:FINISH_REASONS_MAX]}
    return {reason: count for reason, count in counts.items() if count is not None}


def snapshot(reading: Reading, earlier: Reading | None = None) -> EngineSnapshot:
    """What routers are told; latencies and speeds are those since `earlier` where enough happened since.

    Histograms are sent whole, as the engine's counters.
    """
    ttft_s = recent(reading.ttft_s, earlier.ttft_s if earlier else None)
    itl_s = recent(reading.itl_s, earlier.itl_s if earlier else None)
    decode = recent(reading.decode, earlier.decode if earlier else None)
    prefill = recent(reading.prefill, earlier.prefill if earlier else None)
    avg_itl_s, decode_tokens_per_s, prefill_tokens_per_s = average(itl_s), _speed(decode), _speed(prefill)

    def sent(whole_histogram: Cumulative) -> Histogram | None:
        return histogram(whole_histogram) if reading.sends_histograms else None

    return EngineSnapshot(
        kv_cache_utilization=reading.kv_cache_ratio,
        running_requests=reading.running,
        waiting_requests=reading.waiting,
        preemptions_total=reading.preemptions,
        avg_ttft_seconds=average(ttft_s),
        p90_ttft_seconds=quantile(ttft_s.buckets, P90),
        avg_itl_seconds=average(decode) if avg_itl_s is None else avg_itl_s,
        p90_itl_seconds=quantile(itl_s.buckets, P90),
        predicted_tokens_per_second=reading.decode_tokens_per_s if decode_tokens_per_s is None else decode_tokens_per_s,
        prompt_tokens_per_second=reading.prefill_tokens_per_s if prefill_tokens_per_s is None else prefill_tokens_per_s,
        ttft_histogram=sent(reading.ttft_s),
        itl_histogram=sent(reading.itl_s),
        prompt_tokens_histogram=sent(reading.prompt_tokens),
        generation_tokens_histogram=sent(reading.generation_tokens),
        finish_reason_counts=None if reading.finished is None else dict(reading.finished),
    )


def _speed(pair: Cumulative) -> float | None:
    """Tokens in a second of work, of a pair of counters."""
    if pair.sum is None or pair.count is None or pair.sum <= 0 or pair.count < 0:
        return None
    return finite(pair.count / pair.sum)
