"""The figures: what journals, counts and samples are reduced to."""

from pathlib import Path

import pytest
from bench.cases import CASES
from bench.figures.limits import RULES, Counted, is_exact
from bench.figures.loads import FIRST_TOKEN, reduce_cpu, reduce_first_token, reduce_late
from bench.figures.memory import reduce_memory
from bench.figures.recovery import reduce_recovery
from bench.load import Held, Request, read_journal
from bench.measure import Sample
from bench.rounds import Samples

_MS = 1_000_000
_KILLED = 1_000 * _MS
_STREAMS = next(case for case in CASES if case.name == "streams-200")


def _request(sent_ms: float, took_ms: float, status: int = 200, first_ms: float | None = None) -> Request:
    waited_ms = took_ms if first_ms is None else first_ms
    sent_ns = round(sent_ms * _MS)
    return Request(sent_ns, sent_ns + round(waited_ms * _MS), sent_ns + round(took_ms * _MS), status)


def test_a_kill_that_nobody_notices_is_over_when_those_that_waited_have_their_answers() -> None:
    recovery = reduce_recovery([_request(900, 20), _request(990, 25), _request(1_001, 20)], _KILLED)
    assert recovery.first_ms == pytest.approx(21)
    assert recovery.all_ms == pytest.approx(15)
    assert (recovery.failed, recovery.late, recovery.under_way) == ({}, 0, 1)


def test_the_last_failure_ends_the_recovery() -> None:
    requests = [_request(900, 20), _request(990, 30, 0), _request(1_010, 40, 502), _request(1_040, 20)]
    recovery = reduce_recovery(requests, _KILLED)
    assert recovery.all_ms == pytest.approx(50)
    assert recovery.failed == {0: 1, 502: 1}
    assert recovery.served_after == 1


def test_an_answer_that_comes_much_later_than_any_before_is_not_yet_recovered_from() -> None:
    requests = [_request(900, 20), _request(1_005, 121), _request(1_100, 119), _request(1_010, 119)]
    recovery = reduce_recovery(requests, _KILLED)
    assert recovery.late == 1
    assert recovery.all_ms == pytest.approx(126)
    assert recovery.latest_ms == pytest.approx(121)


def test_a_stream_is_served_from_its_first_chunk_and_its_length_is_not_waiting() -> None:
    requests = [_request(0, 500, first_ms=5), _request(900, 1_000, first_ms=5), _request(1_002, 900, first_ms=6)]
    recovery = reduce_recovery(requests, _KILLED)
    assert recovery.first_ms == pytest.approx(8)
    assert (recovery.all_ms, recovery.late) == (0, 0)
    assert recovery.latest_ms == pytest.approx(6)


def test_a_load_that_is_never_served_again_says_so() -> None:
    recovery = reduce_recovery([_request(900, 20), _request(1_010, 20, 503)], _KILLED)
    assert recovery.first_ms is None
    assert recovery.served_after == 0


def test_a_journal_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.txt"
    path.write_text("1 2 3 200\n4 5 6 0\n")
    assert read_journal(path) == [Request(1, 2, 3, 200), Request(4, 5, 6, 0)]


def test_a_limit_is_exact_when_every_count_is_what_the_rule_says() -> None:
    burst = next(rule for rule in RULES if rule.burst and rule.limits.queue_depth == 10)
    exact = Counted(offered=50, answered=14, refused=36, broken=0, most=4, reached_engines=14)
    assert is_exact(burst, exact)
    assert not is_exact(burst, Counted(50, 15, 35, 0, 4, 15))
    assert not is_exact(burst, Counted(50, 13, 37, 0, 4, 13))
    assert not is_exact(burst, Counted(50, 14, 36, 0, 5, 14))
    assert not is_exact(burst, Counted(50, 14, 36, 0, 3, 14))
    assert not is_exact(burst, Counted(50, 14, 35, 1, 4, 14))
    assert not is_exact(burst, Counted(50, 14, 36, 0, 4, 15))


def test_without_a_burst_every_request_is_answered() -> None:
    steady = next(rule for rule in RULES if not rule.burst)
    assert is_exact(steady, Counted(777, 777, 0, 0, steady.most, 777))
    assert not is_exact(steady, Counted(777, 776, 1, 0, steady.most, 776))


def test_a_burst_admits_what_is_forwarded_and_what_may_wait() -> None:
    for rule in RULES:
        if rule.burst:
            waiting = rule.limits.queue_size if rule.most == rule.limits.max_concurrent else rule.limits.queue_depth
            assert rule.admitted == rule.most + waiting


def test_memory_per_stream_is_what_came_on_top_divided_by_those_that_were_open() -> None:
    figure = reduce_memory({"ours": Held(2_000, (60.0, 110.0, 100.0), (50.0, 75.0, 75.0))})
    assert figure.rows == [["ours", "2,000", "25.6", "12.8", "60 → 110 → 100"]]
    assert figure.values[0]["router_kib_each"] == pytest.approx(25.6)


def _streams() -> Samples:
    return {
        (_STREAMS.name, "direct"): [Sample(late_p50_us=1, late_p99_us=400, late_max_us=900)],
        (_STREAMS.name, "ours"): [
            Sample(late_p50_us=5, late_p99_us=700, late_max_us=3_000, cpu_router_us=12, cpu_agents_us=9),
        ],
    }


def test_time_between_chunks_is_told_for_direct_too() -> None:
    figure = reduce_late([_STREAMS], _streams())
    assert [row[1:3] for row in figure.rows] == [
        ["direct", "1 µs / 400 µs / 900 µs"],
        ["ours", "5 µs / 700 µs / 3.0 ms"],
    ]
    assert figure.values[1]["late_us"] == {"p50": 5, "p99": 700, "max": 3_000}


def test_cpu_per_chunk_is_that_of_router_and_agents() -> None:
    assert reduce_cpu([_STREAMS], _streams()).rows == [[_STREAMS.title, "ours", "12.0", "9.0", "21.0"]]


def test_time_to_the_first_token_is_what_lies_above_direct() -> None:
    case = FIRST_TOKEN[0]
    samples: Samples = {
        (case.name, "direct"): [Sample(ttft_p50_us=200, ttft_p99_us=300)],
        (case.name, "ours"): [Sample(ttft_p50_us=2_700, ttft_p99_us=4_300)],
    }
    figure = reduce_first_token([case], samples)
    assert figure.rows[0][3] == "-"
    assert figure.rows[1][3] == "2.5 ms / 4.0 ms"
    assert "| 1 client | ours | 2.7 ms / 4.3 ms | 2.5 ms / 4.0 ms | 0 |" in figure.as_markdown()
