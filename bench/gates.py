"""Is it fast enough? What this project has set itself, checked against what was measured, in two readings.

The first holds every figure against the bound as it was set. The second asks what that bound comes to on this machine,
by what the original takes here and took in the reference run:

- CPU and added time: the bound, times what the original takes here ÷ what it took there.
- A rate against direct: how fast direct is depends on the engine and the load generator, and these are not those of the
  reference run. There, direct was so many times the original; the bound as a multiple of the original is the same
  demand, without engine and load generator in it.

A gate whose case was not measured is left out, and a second reading where the original was not measured, or failed some
requests here or there. Rates against the original and memory mean the same on any machine and have one reading.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bench.cases import Case
from bench.measure import Sample
from bench.reference import REFERENCE, Reference
from bench.report import added_p50_us, ratio, typical
from bench.rounds import Samples
from bench.tables import number_text, table
from bench.targets import Name

RUST_PEERS: Final[tuple[Name, ...]] = (
    "sglang-router",
    "sglang-router round_robin",
    "vllm-router",
    "vllm-router round_robin",
    "vllm-router consistent_hash",
)
"""With each policy that they are measured with: the fastest of all is the one to hold ours against."""

Value = Callable[[Case, Samples], float | None]
Again = Literal["", "CPU of the router", "CPU of the agents", "added p50", "multiple of the original"]
"""By what a bound is carried over to this machine."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One figure with its bound; `by` names the case in which the original is the measure, where it is another one."""

    case: str
    what: str
    bound: Literal["at least", "at most"]
    limit: float
    value: Value
    again: Again = ""
    by: str = ""

    def keeps(self, value: float, limit: float) -> bool:
        """True when the value is on the right side."""
        return value >= limit if self.bound == "at least" else value <= limit


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure against one bound."""

    limit: float
    value: float
    kept: bool


def _rate_to(name: Name) -> Value:
    return lambda case, samples: ratio(case, "ours", name, samples)


def _rate_to_best_peer(case: Case, samples: Samples) -> float | None:
    ratios = [ratio(case, "ours", name, samples) for name in RUST_PEERS]
    return min((value for value in ratios if value is not None), default=None)


def _ours(figure: Callable[[Sample], float]) -> Value:
    def value(case: Case, samples: Samples) -> float | None:
        found = samples.get((case.name, "ours"))
        return figure(typical(found)) if found else None

    return value


def _added(case: Case, samples: Samples) -> float | None:
    return added_p50_us(case, "ours", samples)


_P50_MS: Final = _ours(lambda sample: sample.p50_us / 1000)
_P99: Final = _ours(lambda sample: sample.p99_us)
_CPU_ROUTER: Final = _ours(lambda sample: sample.cpu_router_us)
_CPU_AGENTS: Final = _ours(lambda sample: sample.cpu_agents_us)
_ROUTER_MIB: Final = _ours(lambda sample: sample.rss_router_mib)
_RATE: Final = _ours(lambda sample: sample.per_s)

GATES: Final = (
    Gate("unary-1", "added p50, µs", "at most", 250, _added, "added p50"),
    Gate("unary-16", "rate ÷ direct", "at least", 0.30, _rate_to("direct"), "multiple of the original"),
    Gate("unary-16", "rate ÷ original", "at least", 6, _rate_to("original")),
    Gate("unary-64", "rate ÷ direct", "at least", 0.38, _rate_to("direct"), "multiple of the original"),
    # "Level", where less than a tenth is noise.
    Gate("unary-64", "rate ÷ the fastest Rust peer", "at least", 0.9, _rate_to_best_peer),
    Gate("unary-64", "CPU µs per request, router", "at most", 60, _CPU_ROUTER, "CPU of the router"),
    Gate("unary-64", "CPU µs per request, agent", "at most", 20, _CPU_AGENTS, "CPU of the agents"),
    Gate("unary-64", "router, MiB", "at most", 100, _ROUTER_MIB),
    Gate("unary-16-256k", "rate ÷ direct", "at least", 0.35, _rate_to("direct"), "multiple of the original"),
    Gate("streams-50", "added p50, µs", "at most", 400, _added, "added p50"),
    # The original fails some of 200 streams and more, so the load that it carries is the measure.
    Gate("streams-200", "added p50, µs", "at most", 400, _added, "added p50", by="streams-50"),
    Gate("streams-500", "added p50, µs", "at most", 400, _added, "added p50", by="streams-50"),
    Gate("streams-500", "p99, µs", "at most", 5000, _P99),
    Gate("streams-500", "CPU µs per chunk, router", "at most", 13, _CPU_ROUTER, "CPU of the router", by="streams-50"),
    Gate("streams-500", "CPU µs per chunk, agents", "at most", 10, _CPU_AGENTS, "CPU of the agents", by="streams-50"),
    Gate("streams-500", "router, MiB", "at most", 100, _ROUTER_MIB),
    Gate("saturation-16", "rate ÷ direct", "at least", 0.40, _rate_to("direct"), "multiple of the original"),
    Gate("saturation-16", "rate ÷ original", "at least", 1.5, _rate_to("original")),
    Gate("idle-1000", "KiB per connection", "at most", 10, _ours(lambda sample: sample.held_kib)),
    Gate("idle-1000", "router, MiB", "at most", 100, _ROUTER_MIB),
    Gate("rtt50-unary-64", "requests/s", "at least", 1100, _RATE),
    Gate("rtt50-1m", "p50, ms", "at most", 80, _P50_MS),
)


def first_reading(gate: Gate, case: Case, samples: Samples) -> Reading | None:
    """Against the bound as it was set; None where it was not measured."""
    value = gate.value(case, samples)
    return None if value is None else Reading(gate.limit, value, gate.keeps(value, gate.limit))


def second_reading(gate: Gate, cases: Sequence[Case], samples: Samples) -> Reading | None:
    """Against what the bound comes to on this machine by the original; None where it cannot tell."""
    by_name = {case.name: case for case in cases}
    case, yardstick = by_name.get(gate.case), by_name.get(gate.by or gate.case)
    if not gate.again or case is None or yardstick is None:
        return None
    reference = REFERENCE[yardstick.name]
    original = samples.get((yardstick.name, "original"))
    if reference.errors or not original or typical(original).errors:
        return None
    if gate.again == "multiple of the original":
        limit = gate.limit * reference.direct_in_originals()
        value = ratio(case, "ours", "original", samples)
    else:
        limit = gate.limit * _times(gate.again, yardstick, reference, samples)
        value = gate.value(case, samples)
    return None if value is None else Reading(limit, value, gate.keeps(value, limit))


def _times(again: Again, case: Case, reference: Reference, samples: Samples) -> float:
    """What the original takes here ÷ what it took in the reference run."""
    sample = typical(samples[case.name, "original"])
    if again == "CPU of the router":
        return sample.cpu_router_us / reference.cpu_router_us
    if again == "CPU of the agents":
        return sample.cpu_agents_us / reference.cpu_agents_us
    return (added_p50_us(case, "original", samples) or 0.0) / reference.added_p50_us


def as_markdown(cases: Sequence[Case], samples: Samples) -> str:
    """A table of the gates that could be checked, with both readings beside each other."""
    by_name = {case.name: case for case in cases}
    rows = []
    for gate in GATES:
        case = by_name.get(gate.case)
        first = first_reading(gate, case, samples) if case else None
        if case is None or first is None:
            continue
        second = second_reading(gate, cases, samples)
        again = ["-", "-", "-"] if second is None else _cells(gate, second, times=gate.again.startswith("multiple"))
        rows.append([f"{case.title}: {gate.what}", *_cells(gate, first), *again])
    head = ("gate", "bound", "measured", "kept", "bound by the original", "measured", "kept")
    parts = [table(head, rows), _how_this_machine_compares(by_name, samples)]
    return "\n\n".join(part for part in parts if part)


def as_json(cases: Sequence[Case], samples: Samples) -> list[dict[str, object]]:
    """The same for programs: both readings, a missing one as null."""
    by_name = {case.name: case for case in cases}
    found: list[dict[str, object]] = []
    for gate in GATES:
        case = by_name.get(gate.case)
        first = first_reading(gate, case, samples) if case else None
        if first is not None:
            readings = {"as_set": first, "by_the_original": second_reading(gate, cases, samples)}
            found.append({"case": gate.case, "what": gate.what, "bound": gate.bound, **_plain(readings)})
    return found


def _plain(readings: dict[str, Reading | None]) -> dict[str, object]:
    return {
        name: reading and {"limit": reading.limit, "value": reading.value, "kept": reading.kept}
        for name, reading in readings.items()
    }


def _cells(gate: Gate, reading: Reading, *, times: bool = False) -> list[str]:
    unit = " times the original" if times else ""
    limit = f"{reading.limit:,.0f}" if reading.limit >= 100 else f"{reading.limit:.3g}"
    return [f"{gate.bound} {limit}{unit}", number_text(reading.value), "yes" if reading.kept else "NO"]


def _how_this_machine_compares(by_name: dict[str, Case], samples: Samples) -> str:
    case, original = by_name.get("unary-64"), samples.get(("unary-64", "original"))
    if case is None or not original:
        return ""
    here, there = typical(original), REFERENCE[case.name]
    return (
        f"A small request at 64 clients takes the original's router and agent {here.cpu_router_us:.0f} + "
        f"{here.cpu_agents_us:.0f} µs of CPU here; in the reference run it took {there.cpu_router_us:.0f} + "
        f"{there.cpu_agents_us:.0f} µs."
    )
