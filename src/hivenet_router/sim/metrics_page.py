"""What does the engine's `/metrics` page say?

Series carry the names and labels that vLLM gives them, one label set per page as vLLM has (the first served model), so
that an agent reads this page as it reads a real engine's. Invariant: histograms are cumulative and never decrease.
When something is observed is the engine's business.

Source: signals.md §1.4.3.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

TTFT_BUCKETS_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS_S: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
TOKEN_BUCKETS: Final = tuple(float(digit * 10**power) for power in range(7) for digit in (1, 2, 5))
FINISH_REASONS: Final = ("stop", "length", "abort")


class Histogram:
    """A cumulative histogram over fixed upper bounds, with sum and count."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`, `times` over."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times
        self.count += times

    def cumulative(self) -> Iterable[tuple[str, int]]:
        """Pairs of upper bound as text and the count at or below it; `+Inf` last."""
        total = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            yield ("+Inf" if bound is None else repr(bound)), total


@dataclass(slots=True)
class EngineMetrics:
    """What the engine has seen since it started."""

    ttft_s: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS_S))
    itl_s: Histogram = field(default_factory=lambda: Histogram(ITL_BUCKETS_S))
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BUCKETS))
    generation_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BUCKETS))
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0))
    preemptions: int = 0

    def finish(self, reason: str, *, prompt_tokens: int, generated_tokens: int) -> None:
        """Count one request that ended, for whatever reason."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
        self.prompt_tokens.observe(prompt_tokens)
        self.generation_tokens.observe(generated_tokens)


@dataclass(frozen=True, slots=True)
class Load:
    """The engine at one moment. `kv_usage_ratio` is 0 to 1."""

    running: int
    waiting: int
    kv_usage_ratio: float


def render(metrics: EngineMetrics, load: Load, *, model: str) -> bytes:
    """The page in the Prometheus text format."""
    labels = f'engine="0",model_name="{_escaped(model)}"'
    lines: list[str] = []
    gauges = (
        ("vllm:num_requests_running", "Requests now in the running batch.", float(load.running)),
        ("vllm:num_requests_waiting", "Requests that wait for a place in the batch.", float(load.waiting)),
        ("vllm:kv_cache_usage_perc", "Part of the KV cache in use; 1 is all of it.", load.kv_usage_ratio),
    )
    for name, text, value in gauges:
        lines += [*_head(name, "gauge", text), f"{name}{{{labels}}} {value!r}"]
    name = "vllm:num_preemptions_total"
    preempted = float(metrics.preemptions)
    lines += [*_head(name, "counter", "Requests put back for want of cache."), f"{name}{{{labels}}} {preempted!r}"]
    name = "vllm:request_success_total"
    lines += _head(name, "counter", "Requests that ended, by reason.")
    for reason, count in metrics.finished.items():
        lines.append(f'{name}{{{labels},finished_reason="{reason}"}} {float(count)!r}')
    histograms = (
        ("vllm:time_to_first_token_seconds", "Seconds from arrival to the first token.", metrics.ttft_s),
        ("vllm:inter_token_latency_seconds", "Seconds from one token to the next.", metrics.itl_s),
        ("vllm:request_prompt_tokens", "Tokens of the prompt of each ended request.", metrics.prompt_tokens),
        ("vllm:request_generation_tokens", "Tokens written for each ended request.", metrics.generation_tokens),
    )
    for name, text, histogram in histograms:
        lines += _head(name, "histogram", text)
        lines += [f'{name}_bucket{{{labels},le="{bound}"}} {float(n)!r}' for bound, n in histogram.cumulative()]
        lines.append(f"{name}_count{{{labels}}} {float(histogram.count)!r}")
        lines.append(f"{name}_sum{{{labels}}} {histogram.sum!r}")
    return ("\n".join(lines) + "\n").encode()


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
