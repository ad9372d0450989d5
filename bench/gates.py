"""Is it fast enough? What this project has set itself, checked against what was measured.

A rate is held against `direct` and the original of the same run, never against a number a second. The bounds against
`direct` were set with an engine and a load generator that took more of the machine than these do, so that direct was
slower; they are kept as they were set. A gate whose case was not measured is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bench.cases import Case
from bench.measure import Sample
from bench.report import ratio, typical
from bench.rounds import Samples
from bench.targets import Name

Value = Callable[[Case, Samples], float | None]


@dataclass(frozen=True, slots=True)
class Gate:
    """One figure with its bound."""

    case: str
    what: str
    bound: Literal["at least", "at most"]
    limit: float
    value: Value


def _rate_to(name: Name) -> Value:
    return lambda case, samples: ratio(case, "ours", name, samples)


def _ours(figure: Callable[[Sample], float]) -> Value:
    def value(case: Case, samples: Samples) -> float | None:
        found = samples.get((case.name, "ours"))
        return figure(typical(found)) if found else None

    return value


def _added_us(figure: Callable[[Sample], float]) -> Value:
    def value(case: Case, samples: Samples) -> float | None:
        ours, direct = samples.get((case.name, "ours")), samples.get((case.name, "direct"))
        return figure(typical(ours)) - figure(typical(direct)) if ours and direct else None

    return value


_ADDED_P50: Final = _added_us(lambda sample: sample.p50_us)
_P99: Final = _ours(lambda sample: sample.p99_us)
_CPU_ROUTER: Final = _ours(lambda sample: sample.cpu_router_us)
_CPU_AGENTS: Final = _ours(lambda sample: sample.cpu_agents_us)
_ROUTER_MIB: Final = _ours(lambda sample: sample.rss_router_mib)

GATES: Final = (
    Gate("unary-1", "added p50, µs", "at most", 250, _ADDED_P50),
    Gate("unary-16", "rate ÷ direct", "at least", 0.30, _rate_to("direct")),
    Gate("unary-16", "rate ÷ original", "at least", 6, _rate_to("original")),
    Gate("unary-64", "rate ÷ direct", "at least", 0.38, _rate_to("direct")),
    Gate("unary-64", "CPU µs per request, router", "at most", 60, _CPU_ROUTER),
    Gate("unary-64", "CPU µs per request, agent", "at most", 20, _CPU_AGENTS),
    Gate("unary-64", "router, MiB", "at most", 100, _ROUTER_MIB),
    Gate("unary-16-256k", "rate ÷ direct", "at least", 0.35, _rate_to("direct")),
    Gate("streams-50", "added p50, µs", "at most", 400, _ADDED_P50),
    Gate("streams-200", "added p50, µs", "at most", 400, _ADDED_P50),
    Gate("streams-500", "added p50, µs", "at most", 400, _ADDED_P50),
    Gate("streams-500", "p99, µs", "at most", 5000, _P99),
    Gate("streams-500", "CPU µs per chunk, router", "at most", 13, _CPU_ROUTER),
    Gate("streams-500", "CPU µs per chunk, agents", "at most", 10, _CPU_AGENTS),
    Gate("saturation-16", "rate ÷ direct", "at least", 0.40, _rate_to("direct")),
    Gate("saturation-16", "rate ÷ original", "at least", 1.5, _rate_to("original")),
    Gate("idle-1000", "KiB per connection", "at most", 10, _ours(lambda sample: sample.held_kib)),
    Gate("idle-1000", "router, MiB", "at most", 100, _ROUTER_MIB),
)


def as_markdown(cases: Sequence[Case], samples: Samples) -> str:
    """A table of the gates that could be checked."""
    by_name = {case.name: case for case in cases}
    lines = ["| gate | bound | measured | |", "|---|---|---|---|"]
    for gate in GATES:
        case = by_name.get(gate.case)
        value = gate.value(case, samples) if case else None
        if case is None or value is None:
            continue
        kept = value >= gate.limit if gate.bound == "at least" else value <= gate.limit
        measured = f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"
        lines.append(
            f"| {case.title}: {gate.what} | {gate.bound} {gate.limit:g} | {measured} | {'yes' if kept else 'NO'} |"
        )
    return "\n".join(lines)
