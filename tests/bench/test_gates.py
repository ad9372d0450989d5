"""The gates in both readings: as set, and by the original."""

import pytest
from bench.cases import CASES, Case
from bench.gates import GATES, Gate, first_reading, second_reading
from bench.measure import Sample
from bench.reference import REFERENCE
from bench.rounds import Samples

from bench import gates

_BY_NAME = {case.name: case for case in CASES}


def _gate(case: str, what: str) -> Gate:
    return next(gate for gate in GATES if gate.case == case and gate.what == what)


def _second(gate: Gate, samples: Samples) -> gates.Reading | None:
    return second_reading(gate, list(CASES), samples)


def test_a_cpu_bound_grows_as_much_as_the_original_takes_more_here() -> None:
    gate = _gate("unary-64", "CPU µs per request, router")
    original = Sample(cpu_router_us=2 * REFERENCE["unary-64"].cpu_router_us)
    samples: Samples = {("unary-64", "ours"): [Sample(cpu_router_us=119)], ("unary-64", "original"): [original]}
    as_set, by_the_original = first_reading(gate, _BY_NAME["unary-64"], samples), _second(gate, samples)
    assert as_set == gates.Reading(60, 119, kept=False)
    assert by_the_original is not None
    assert by_the_original.limit == pytest.approx(120)
    assert by_the_original.kept


def test_the_agents_bound_is_carried_over_by_the_originals_agent() -> None:
    gate = _gate("unary-64", "CPU µs per request, agent")
    original = Sample(cpu_router_us=9999, cpu_agents_us=1.5 * REFERENCE["unary-64"].cpu_agents_us)
    reading = _second(gate, {("unary-64", "ours"): [Sample(cpu_agents_us=31)], ("unary-64", "original"): [original]})
    assert reading is not None
    assert reading.limit == pytest.approx(30)
    assert not reading.kept


def test_added_time_is_carried_over_by_what_the_original_adds_here() -> None:
    gate = _gate("unary-1", "added p50, µs")
    samples: Samples = {
        ("unary-1", "direct"): [Sample(p50_us=100)],
        ("unary-1", "ours"): [Sample(p50_us=500)],
        ("unary-1", "original"): [Sample(p50_us=100 + 2 * REFERENCE["unary-1"].added_p50_us)],
    }
    reading = _second(gate, samples)
    assert reading is not None
    assert reading.limit == pytest.approx(500)
    assert (reading.value, reading.kept) == (400, True)


def test_a_rate_against_direct_becomes_the_same_multiple_of_the_original() -> None:
    gate = _gate("unary-16", "rate ÷ direct")
    samples: Samples = {
        ("unary-16", "direct"): [Sample(per_s=120_000)],
        ("unary-16", "ours"): [Sample(per_s=7_000)],
        ("unary-16", "original"): [Sample(per_s=1_000)],
    }
    as_set, by_the_original = first_reading(gate, _BY_NAME["unary-16"], samples), _second(gate, samples)
    assert as_set is not None
    assert not as_set.kept
    assert by_the_original is not None
    assert by_the_original.limit == pytest.approx(0.30 * 44_624 / 2_050)
    assert (by_the_original.value, by_the_original.kept) == (7.0, True)


def test_an_original_that_fails_requests_is_no_measure() -> None:
    gate = _gate("unary-64", "CPU µs per request, router")
    failing = Sample(cpu_router_us=600, errors={"short": 1})
    samples: Samples = {("unary-64", "ours"): [Sample(cpu_router_us=60)], ("unary-64", "original"): [failing]}
    assert _second(gate, samples) is None


def test_without_the_original_there_is_one_reading() -> None:
    gate = _gate("unary-64", "CPU µs per request, router")
    samples: Samples = {("unary-64", "ours"): [Sample(cpu_router_us=60)]}
    assert _second(gate, samples) is None
    assert first_reading(gate, _BY_NAME["unary-64"], samples) == gates.Reading(60, 60, kept=True)


def test_where_the_original_fails_a_load_the_nearest_one_it_carries_is_the_measure() -> None:
    gate = _gate("streams-500", "CPU µs per chunk, router")
    assert REFERENCE["streams-500"].errors
    carried = Sample(cpu_router_us=3 * REFERENCE["streams-50"].cpu_router_us)
    samples: Samples = {
        ("streams-500", "ours"): [Sample(cpu_router_us=20)],
        ("streams-500", "original"): [Sample(cpu_router_us=1, errors={"short": 100})],
        ("streams-50", "original"): [carried],
    }
    reading = _second(gate, samples)
    assert reading is not None
    assert reading.limit == pytest.approx(39)
    assert reading.kept
    assert second_reading(gate, [_BY_NAME["streams-500"]], samples) is None


def test_every_gate_names_cases_that_exist_and_a_yardstick_that_the_original_carried() -> None:
    for gate in GATES:
        assert gate.case in _BY_NAME
        if gate.again:
            assert not REFERENCE[gate.by or gate.case].errors, gate


def test_ours_is_held_against_the_fastest_peer_with_any_policy() -> None:
    gate = _gate("unary-64", "rate ÷ the fastest Rust peer")
    samples: Samples = {
        ("unary-64", "ours"): [Sample(per_s=900)],
        ("unary-64", "sglang-router"): [Sample(per_s=500)],
        ("unary-64", "vllm-router"): [Sample(per_s=700)],
        ("unary-64", "vllm-router round_robin"): [Sample(per_s=1_000)],
    }
    reading = first_reading(gate, _BY_NAME["unary-64"], samples)
    assert reading is not None
    assert reading.value == pytest.approx(0.9)
    assert reading.kept


def test_the_table_shows_both_readings_beside_each_other() -> None:
    case: Case = _BY_NAME["unary-16"]
    samples: Samples = {
        ("unary-16", "direct"): [Sample(per_s=120_000)],
        ("unary-16", "ours"): [Sample(per_s=7_000)],
        ("unary-16", "original"): [Sample(per_s=1_000)],
    }
    assert (
        "rate ÷ direct | at least 0.3 | 0.06 | NO | at least 6.53 times the original | 7.00 | yes |"
        in gates.as_markdown([case], samples)
    )
    by_what = {str(found["what"]): found for found in gates.as_json([case], samples)}
    assert by_what["rate ÷ direct"]["as_set"] == {"limit": 0.30, "value": pytest.approx(7 / 120), "kept": False}
    assert by_what["rate ÷ original"]["by_the_original"] is None
