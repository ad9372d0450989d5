"""What did the rounds show? Medians, as Markdown tables for people and as JSON for programs.

A ratio is the median of the rounds' ratios, each to `direct` of the same round; errors are added up, and a longest time
is the longest of all rounds.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from statistics import median

from bench.cases import Case
from bench.measure import Sample
from bench.peers import PEERS
from bench.rounds import Samples
from bench.tables import errors_text, table, time_text
from bench.targets import NAMES, Name

_LONGEST = ("max_us", "late_max_us")
_ROUTERS = NAMES[1:]


def typical(samples: Sequence[Sample]) -> Sample:
    """The median of each figure, the longest of longest times, and the sum of the errors."""
    figures: dict[str, float] = {}
    for field in fields(Sample):
        if field.name != "errors":
            values = [getattr(sample, field.name) for sample in samples]
            figures[field.name] = max(values) if field.name in _LONGEST else median(values)
    errors: Counter[str] = Counter()
    for sample in samples:
        errors.update(sample.errors or {})
    return Sample(**figures, errors=dict(errors))


def ratio(case: Case, name: Name, to: Name, samples: Samples) -> float | None:
    """Rate of one target ÷ that of another, or None where one of them was not measured.

    A peer that was left out has fewer rounds than the others: the first ones.
    """
    ours, theirs = samples.get((case.name, name)), samples.get((case.name, to))
    if not ours or not theirs or any(not sample.per_s for sample in theirs):
        return None
    return median(one.per_s / other.per_s for one, other in zip(ours, theirs, strict=False))


def added_p50_us(case: Case, name: Name, samples: Samples) -> float | None:
    """By how much a target's median time is above that of direct, or None where one was not measured."""
    ours, direct = samples.get((case.name, name)), samples.get((case.name, "direct"))
    return typical(ours).p50_us - typical(direct).p50_us if ours and direct else None


def as_json(cases: Sequence[Case], samples: Samples) -> dict[str, object]:
    """All rounds, and what is typical of them."""
    result: dict[str, object] = {}
    for case in cases:
        by_target: dict[str, object] = {}
        for name in NAMES:
            if found := samples.get((case.name, name)):
                by_target[name] = {
                    "typical": asdict(typical(found)),
                    "of_direct": ratio(case, name, "direct", samples),
                    "rounds": [asdict(sample) for sample in found],
                }
        result[case.name] = by_target
    return result


def as_markdown(cases: Sequence[Case], samples: Samples) -> str:
    """The tables of all that was measured: one for each load, and one for memory."""
    loads = [case for case in cases if case.counts != "connection"]
    parts = [_others(loads, samples)] if loads else []
    parts += [f"**{case.title}**\n\n{_load_table(case, samples)}" for case in loads]
    parts.append(_memory_table(cases, samples))
    return "\n\n".join(parts)


def left_out(given: Mapping[Name, object], reasons: Mapping[Name, str]) -> str:
    """A line for each peer that was not measured; empty when all were."""
    there = {peer.program for peer in PEERS if peer.name in given}
    missing = {peer.program: peer.variable for peer in PEERS if peer.program not in there}
    lines = []
    if missing:
        names = ", ".join(f"{program} ({variable})" for program, variable in missing.items())
        lines.append(f"Not measured, because no environment is given: {names}.")
    lines += [f"{name} is left out: {reason}" for name, reason in reasons.items()]
    return "\n\n".join(lines)


def _others(cases: Sequence[Case], samples: Samples) -> str:
    busy = [sample.others_cpus for case in cases for name in NAMES for sample in samples.get((case.name, name), [])]
    return (
        f"Other work kept {median(busy):.1f} CPUs busy while measuring (median; {max(busy):.1f} at most): the less, "
        "the more these figures mean."
    )


def _load_table(case: Case, samples: Samples) -> str:
    chunks = case.counts == "chunk"
    head = ["", f"{case.counts}s/s", "÷ direct", "p50", "p99", "added p50"]
    if chunks:
        head.append("first chunk p50 / p99")
    head += [f"CPU µs a {case.counts}, router + agents", "errors"]
    rows = []
    for name in NAMES:
        if not (found := samples.get((case.name, name))):
            continue
        sample, added = typical(found), added_p50_us(case, name, samples)
        of_direct = ratio(case, name, "direct", samples)
        row = [name, f"{sample.per_s:,.0f}", "-" if of_direct is None else f"{of_direct:.2f}"]
        row += [time_text(sample.p50_us), time_text(sample.p99_us)]
        row.append("-" if name == "direct" or added is None else time_text(added))
        if chunks:
            row.append(f"{time_text(sample.ttft_p50_us)} / {time_text(sample.ttft_p99_us)}")
        row += ["-" if name == "direct" else _both(sample.cpu_router_us, sample.cpu_agents_us, 1)]
        rows.append([*row, errors_text(sample.errors)])
    return table(head, rows)


def _memory_table(cases: Sequence[Case], samples: Samples) -> str:
    names = [name for name in _ROUTERS if any((case.name, name) in samples for case in cases)]
    rows = [["fresh", *(_fresh(cases, name, samples) for name in names)]]
    for case in cases:
        words = "with" if case.counts == "connection" else "after"
        text = _held if case.counts == "connection" else _after
        rows.append([f"{words} {case.title}", *(_one(case, name, samples, text) for name in names)])
    return table(("memory in MiB, router + agents", *names), rows)


def _fresh(cases: Sequence[Case], name: Name, samples: Samples) -> str:
    """Of the case with the fewest agents."""
    found = [case for case in cases if (case.name, name) in samples]
    fewest = min(found, key=lambda case: case.agents)
    sample = typical(samples[fewest.name, name])
    return _both(sample.fresh_router_mib, sample.fresh_agents_mib)


def _after(sample: Sample) -> str:
    return _both(sample.rss_router_mib, sample.rss_agents_mib)


def _held(sample: Sample) -> str:
    return f"{_after(sample)}, {sample.held_kib:.1f} KiB each"


def _one(case: Case, name: Name, samples: Samples, text: Callable[[Sample], str]) -> str:
    found = samples.get((case.name, name))
    return text(typical(found)) if found else "-"


def _both(router: float, agents: float, places: int = 0) -> str:
    """A peer has no agents."""
    return f"{router:,.{places}f} + {agents:,.{places}f}" if agents else f"{router:,.{places}f}"
