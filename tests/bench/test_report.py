"""What the rounds are reduced to, and what the tables say of it."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bench.cases import CASES, chosen
from bench.figures.run import FIGURES, chosen_figures
from bench.measure import Sample
from bench.tables import time_text

from bench import report

if TYPE_CHECKING:
    from bench.rounds import Samples
    from bench.targets import Name

_UNARY = next(case for case in CASES if case.name == "unary-16")
_IDLE = next(case for case in CASES if case.name == "idle-1000")


def test_figures_are_medians_errors_are_sums_and_the_longest_time_is_the_longest() -> None:
    rounds = [
        Sample(p50_us=1, late_max_us=5, errors={"short": 2}),
        Sample(p50_us=9, late_max_us=50, errors={}),
        Sample(p50_us=2, late_max_us=7, errors={"short": 1, "stuck": 4}),
    ]
    typical = report.typical(rounds)
    assert (typical.p50_us, typical.late_max_us) == (2, 50)
    assert typical.errors == {"short": 3, "stuck": 4}


def test_a_peer_that_was_left_out_is_compared_in_the_rounds_it_had() -> None:
    samples: Samples = {
        (_UNARY.name, "direct"): [Sample(per_s=100), Sample(per_s=1_000), Sample(per_s=1_000)],
        (_UNARY.name, "litellm"): [Sample(per_s=50)],
    }
    assert report.ratio(_UNARY, "litellm", "direct", samples) == 0.5


def test_a_ratio_to_what_was_not_measured_or_stood_still_is_none() -> None:
    samples: Samples = {(_UNARY.name, "ours"): [Sample(per_s=50)], (_UNARY.name, "direct"): [Sample(per_s=0)]}
    assert report.ratio(_UNARY, "ours", "original", samples) is None
    assert report.ratio(_UNARY, "ours", "direct", samples) is None


def test_a_row_for_each_target_that_was_measured_with_its_errors() -> None:
    samples: Samples = {
        (_UNARY.name, "direct"): [Sample(per_s=1_000, p50_us=100)],
        (_UNARY.name, "ours"): [Sample(per_s=500, p50_us=350, cpu_router_us=60, cpu_agents_us=20, errors={})],
        (_UNARY.name, "litellm"): [Sample(per_s=10, p50_us=9_100, cpu_router_us=7_000, errors={"non_2xx": 1_200})],
    }
    text = report.as_markdown([_UNARY], samples)
    assert "| ours | 500 | 0.50 | 350 µs | 0 µs | 250 µs | 60.0 + 20.0 | 0 |" in text
    assert "| litellm | 10 | 0.01 | 9.1 ms | 0 µs | 9.0 ms | 7,000.0 | 1,200 non_2xx |" in text
    assert "vllm-router" not in text


def test_memory_is_told_fresh_with_idle_connections_and_after_loads() -> None:
    fresh = Sample(fresh_router_mib=60, fresh_agents_mib=57)
    samples: Samples = {
        (_IDLE.name, "ours"): [replace(fresh, rss_router_mib=64, rss_agents_mib=57, held_kib=3.25)],
        (_UNARY.name, "ours"): [replace(fresh, rss_router_mib=66, rss_agents_mib=58)],
        (_UNARY.name, "vllm-router"): [Sample(rss_router_mib=90, fresh_router_mib=78)],
    }
    text = report.as_markdown([_IDLE, _UNARY], samples)
    assert "| fresh | 60 + 57 | 78 |" in text
    assert "| with 1,000 idle connections | 64 + 57, 3.2 KiB each | - |" in text
    assert "| after unary, 16 clients, 4 KiB | 66 + 58 | 90 |" in text


def test_a_program_that_is_measured_with_any_policy_is_not_missing() -> None:
    given: dict[Name, object] = dict.fromkeys(("vllm-router round_robin", "sglang-router", "litellm"), "/somewhere")
    assert report.left_out(given, {}) == ""


def test_one_line_names_the_peers_without_an_environment_and_one_each_that_failed() -> None:
    given: dict[Name, object] = {"vllm-router": "/somewhere"}
    text = report.left_out(given, {"vllm-router": "it ended"})
    assert text.splitlines() == [
        "Not measured, because no environment is given: sglang-router (SGLANG_ROUTER_ENV), litellm (LITELLM_ENV).",
        "",
        "vllm-router is left out: it ended",
    ]


@pytest.mark.parametrize(
    ("time_us", "text"), [(74.4, "74 µs"), (-250, "-250 µs"), (1_250, "1.2 ms"), (2e6, "2,000.0 ms")]
)
def test_a_time_has_a_unit_in_which_it_reads_well(time_us: float, text: str) -> None:
    assert time_text(time_us) == text


def test_an_unknown_case_or_figure_is_told_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no case 'unary-17'; there are idle-1000, unary-1,"):
        chosen("unary-16, unary-17", everything=False)
    with pytest.raises(ValueError, match="no figure 'speed'; there are chunks,"):
        chosen_figures("speed")


def test_all_figures_or_those_named() -> None:
    assert chosen_figures("all") == list(FIGURES)
    assert chosen_figures("limits, memory") == ["limits", "memory"]
