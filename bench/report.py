"""What did the rounds show? Medians, as a Markdown table for people and as JSON for programs.

A ratio is the median of the rounds' ratios, each to `direct` of the same round; errors are added up.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from statistics import median

from bench.cases import Case
from bench.measure import Sample
from bench.rounds import Samples
from bench.targets import Name

_ALL: tuple[Name, ...] = ("direct", "ours", "original")
_ROUTERS: tuple[Name, ...] = ("ours", "original")


def typical(samples: Sequence[Sample]) -> Sample:
    """The median of each figure, and the sum of the errors."""
    figures = {
        field.name: median(getattr(sample, field.name) for sample in samples)
        for field in fields(Sample)
        if field.name != "errors"
    }
    errors: Counter[str] = Counter()
    for sample in samples:
        errors.update(sample.errors or {})
    return Sample(**figures, errors=dict(errors))


def ratio(case: Case, name: Name, to: Name, samples: Samples) -> float | None:
    """Rate of one target ÷ that of another, or None where one of them was not measured."""
    ours, theirs = samples.get((case.name, name)), samples.get((case.name, to))
    if not ours or not theirs or any(not sample.per_s for sample in theirs):
        return None
    return median(one.per_s / other.per_s for one, other in zip(ours, theirs, strict=True))


def as_json(cases: Sequence[Case], samples: Samples) -> dict[str, object]:
    """All rounds, and what is typical of them."""
    result: dict[str, object] = {}
    for case in cases:
        by_target: dict[str, object] = {}
        for name in _ALL:
            if found := samples.get((case.name, name)):
                by_target[name] = {
                    "typical": asdict(typical(found)),
                    "of_direct": ratio(case, name, "direct", samples),
                    "rounds": [asdict(sample) for sample in found],
                }
        result[case.name] = by_target
    return result


def as_markdown(cases: Sequence[Case], samples: Samples) -> str:
    """The tables of all that was measured."""
    loads = [case for case in cases if case.counts != "connection"]
    idle = [case for case in cases if case.counts == "connection"]
    parts = [_others(loads, samples), _load_table(loads, samples)] if loads else []
    if streams := [case for case in loads if case.counts == "chunk"]:
        parts.append(_first_chunk_table(streams, samples))
    parts.append(_memory_table(loads, idle, samples))
    return "\n\n".join(parts)


def _others(cases: Sequence[Case], samples: Samples) -> str:
    busy = [sample.others_cpus for case in cases for name in _ALL for sample in samples.get((case.name, name), [])]
    return (
        f"Other work kept {median(busy):.1f} CPUs busy while measuring (median; {max(busy):.1f} at most): the less, "
        "the more these figures mean."
    )


def _load_table(cases: Sequence[Case], samples: Samples) -> str:
    head = "case", "direct", "ours (÷ direct)", "original (÷ direct)", "p50 / p99", "CPU µs router + agent", "errors"
    rows = []
    for case in cases:
        cells = [case.title]
        cells += [_rate(case, name, samples) for name in _ALL]
        cells.append(_each(case, _ALL, samples, lambda s: f"{_time(s.p50_us)} / {_time(s.p99_us)}"))
        cells.append(_each(case, _ROUTERS, samples, lambda s: f"{s.cpu_router_us:.1f} + {s.cpu_agents_us:.1f}"))
        cells.append(_each(case, _ALL, samples, _errors))
        rows.append(cells)
    return _table(head, rows)


def _first_chunk_table(cases: Sequence[Case], samples: Samples) -> str:
    rows = []
    for case in cases:
        times = [
            _one(case, name, samples, lambda s: f"{_time(s.ttft_p50_us)} / {_time(s.ttft_p99_us)}") for name in _ALL
        ]
        rows.append([case.title, *times])
    return _table(("time to first chunk, p50 / p99", *_ALL), rows)


def _memory_table(loads: Sequence[Case], idle: Sequence[Case], samples: Samples) -> str:
    rows = []
    for case in loads:
        cells = [
            _one(case, name, samples, lambda s: f"{s.rss_router_mib:.0f} + {s.rss_agents_mib:.0f}") for name in _ROUTERS
        ]
        rows.append([f"after {case.title}", *cells])
    for case in idle:
        cells = [
            _one(
                case,
                name,
                samples,
                lambda s: f"{s.rss_router_mib:.0f} + {s.rss_agents_mib:.0f}, {s.held_kib:.1f} KiB each",
            )
            for name in _ROUTERS
        ]
        rows.append([f"with {case.title}", *cells])
    return _table(("memory in MiB, router + agents", *_ROUTERS), rows)


def _rate(case: Case, name: Name, samples: Samples) -> str:
    found = samples.get((case.name, name))
    if not found:
        return "-"
    rate = f"{typical(found).per_s:,.0f}/s"
    of_direct = ratio(case, name, "direct", samples)
    return rate if name == "direct" or of_direct is None else f"{rate} ({of_direct:.2f})"


def _one(case: Case, name: Name, samples: Samples, text: Callable[[Sample], str]) -> str:
    found = samples.get((case.name, name))
    return text(typical(found)) if found else "-"


def _each(case: Case, names: Sequence[Name], samples: Samples, text: Callable[[Sample], str]) -> str:
    return "; ".join(_one(case, name, samples, text) for name in names if samples.get((case.name, name)))


def _errors(sample: Sample) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in (sample.errors or {}).items()) or "0"


def _time(time_us: float) -> str:
    return f"{time_us:.0f} µs" if time_us < 1000 else f"{time_us / 1000:.1f} ms"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
