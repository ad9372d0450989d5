"""One page of each engine, and what routers are told of it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.sim.metrics_page import EngineMetrics, Load, render
from hivenet_router.wire.agent_protocol import (
    FINISH_REASONS_MAX,
    Bucket,
    EngineSnapshot,
    Histogram,
    Signals,
    decode_engine,
    encode_signals,
)
from hivenet_router.wire.engine_metrics import llamacpp, read_llamacpp, read_sglang, read_vllm, sglang, snapshot, vllm

UPDATES = json.loads((Path(__file__).parents[1] / "vectors" / "wire-agent-updates.json").read_text("utf-8"))
READERS = [read_vllm, read_sglang, read_llamacpp]


def page(*lines: str) -> bytes:
    return "\n".join(lines).encode()


VLLM_PAGE = page(
    "# TYPE vllm:num_requests_running gauge",
    'vllm:num_requests_running{model_name="m"} 2.0',
    'vllm:num_requests_waiting{model_name="m"} 1.0',
    'vllm:kv_cache_usage_perc{model_name="m"} 0.25',
    'vllm:num_preemptions_total{model_name="m"} 3.0',
    'vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 5.0',
    'vllm:time_to_first_token_seconds_bucket{le="1.0",model_name="m"} 9.0',
    'vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10.0',
    'vllm:time_to_first_token_seconds_count{model_name="m"} 10.0',
    'vllm:time_to_first_token_seconds_sum{model_name="m"} 4.5',
    'vllm:inter_token_latency_seconds_bucket{le="0.01",model_name="m"} 50.0',
    'vllm:inter_token_latency_seconds_bucket{le="+Inf",model_name="m"} 100.0',
    'vllm:inter_token_latency_seconds_count{model_name="m"} 100.0',
    'vllm:inter_token_latency_seconds_sum{model_name="m"} 1.5',
    'vllm:request_prompt_tokens_bucket{le="100.0",model_name="m"} 7.0',
    'vllm:request_prompt_tokens_bucket{le="+Inf",model_name="m"} 10.0',
    'vllm:request_prompt_tokens_count{model_name="m"} 10.0',
    'vllm:request_prompt_tokens_sum{model_name="m"} 1000.0',
    'vllm:request_generation_tokens_bucket{le="100.0",model_name="m"} 8.0',
    'vllm:request_generation_tokens_bucket{le="+Inf",model_name="m"} 10.0',
    'vllm:request_generation_tokens_count{model_name="m"} 10.0',
    'vllm:request_generation_tokens_sum{model_name="m"} 700.0',
    'vllm:request_success_total{finished_reason="stop",model_name="m"} 8.0',
    'vllm:request_success_total{finished_reason="length",model_name="m"} 2.0',
)


def test_vllm_s_page_gives_what_the_original_sent_of_it() -> None:
    """The recorded heartbeat of the original agent, and the series behind it."""
    recorded = next(case for case in UPDATES["recorded"] if case["name"] == "heartbeat")["json"]["backend_metrics"]
    assert read_vllm(VLLM_PAGE) == decode_engine(json.dumps(recorded).encode())


def test_the_simulator_s_page_is_read_in_full() -> None:
    metrics = EngineMetrics(preemptions=4)
    for number in range(100):
        metrics.ttft_s.observe(0.3)
        metrics.itl_s.observe(0.02, 10)
        metrics.finish("stop" if number % 4 else "length", prompt_tokens=150, generated_tokens=11)
    read = read_vllm(render(metrics, Load(running=3, waiting=2, kv_usage_ratio=0.5), model='a"} b\\c\nd'))
    assert (read.running_requests, read.waiting_requests, read.kv_cache_utilization) == (3.0, 2.0, 0.5)
    assert read.preemptions_total == 4.0
    assert read.avg_ttft_seconds == pytest.approx(0.3)
    assert read.p90_ttft_seconds == pytest.approx(0.475)
    assert read.avg_itl_seconds == pytest.approx(0.02)
    assert read.p90_itl_seconds == pytest.approx(0.0235)
    assert read.finish_reason_counts == {"abort": 0, "length": 25, "stop": 75}
    histograms = (read.ttft_histogram, read.itl_histogram, read.prompt_tokens_histogram)
    assert [each.count for each in (*histograms, read.generation_tokens_histogram) if each] == [100, 1000, 100, 100]
    assert (read.predicted_tokens_per_second, read.prompt_tokens_per_second) == (None, None)


def test_the_parts_of_one_engine_are_put_together() -> None:
    """signals.md EX-9.1: counts are added, the fullest cache counts, quantiles are of all parts."""
    read = read_vllm(
        page(
            'vllm:num_requests_running{engine="0"} 4',
            'vllm:num_requests_running{engine="1"} 6',
            'vllm:kv_cache_usage_perc{engine="0"} 0.3',
            'vllm:kv_cache_usage_perc{engine="1"} 0.9',
            'vllm:request_success_total{engine="0",finished_reason="stop"} 5',
            'vllm:request_success_total{engine="1",finished_reason="stop"} 9',
            'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 8',
            'vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0"} 10',
            'vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"} 0',
            'vllm:time_to_first_token_seconds_bucket{engine="1",le="1.0"} 10',
            'vllm:time_to_first_token_seconds_count{engine="0"} 10',
            'vllm:time_to_first_token_seconds_count{engine="1"} 10',
        )
    )
    assert (read.running_requests, read.kv_cache_utilization, read.finish_reason_counts) == (10.0, 0.9, {"stop": 14})
    assert read.p90_ttft_seconds == pytest.approx(0.85)
    assert read.ttft_histogram == Histogram((Bucket(0.1, 8), Bucket(1.0, 20)), 0.0, 20)


def test_older_names_are_read_where_the_newer_are_absent() -> None:
    itl = "vllm:time_per_output_token_seconds"
    old = ("vllm:gpu_cache_usage_perc 0.5", f"{itl}_sum 2", f"{itl}_count 4")
    assert read_vllm(page(*old)) == EngineSnapshot(kv_cache_utilization=0.5, avg_itl_seconds=0.5)
    new = ("vllm:kv_cache_usage_perc 0.75", "vllm:inter_token_latency_seconds_sum 1")
    both = read_vllm(page(*old, *new, "vllm:inter_token_latency_seconds_count 4"))
    assert both == EngineSnapshot(kv_cache_utilization=0.75, avg_itl_seconds=0.25)


def test_finish_reasons_that_cannot_be_sent_are_left_out() -> None:
    line = 'vllm:request_success_total{finished_reason="%s"} %s'
    lines = [line % ("a", -1), line % ("b", 2.9), line % ("c", 1e30), "vllm:request_success_total 5"]
    assert read_vllm(page(*lines)).finish_reason_counts == {"b": 2}
    many = read_vllm(page(*(line % (number, 1) for number in range(FINISH_REASONS_MAX + 9)))).finish_reason_counts
    assert many is not None
    assert len(many) == FINISH_REASONS_MAX


def test_sglang_s_page() -> None:
    read = read_sglang(
        page(
            'sglang:token_usage{model_name="m",tp_rank="0"} 0.28',
            'sglang:num_running_reqs{model_name="m",tp_rank="0"} 161.0',
            'sglang:num_queue_reqs{model_name="m",tp_rank="0"} 7.0',
            'sglang:num_retracted_reqs{model_name="m",tp_rank="0"} 99.0',
            'sglang:num_retracted_requests_total{model_name="m",tp_rank="0"} 5.0',
            'sglang:gen_throughput{model_name="m",tp_rank="0"} 86.5',
            'sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 5',
            'sglang:time_to_first_token_seconds_bucket{le="0.5",model_name="m"} 10',
            'sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10',
            'sglang:time_to_first_token_seconds_sum{model_name="m"} 3',
            'sglang:time_to_first_token_seconds_count{model_name="m"} 10',
            'sglang:inter_token_latency_seconds_sum{model_name="m"} 3',
            'sglang:inter_token_latency_seconds_count{model_name="m"} 100',
        )
    )
    assert read.p90_ttft_seconds == pytest.approx(0.42)
    assert read == EngineSnapshot(
        kv_cache_utilization=0.28,
        running_requests=161.0,
        waiting_requests=7.0,
        preemptions_total=5.0,
        avg_ttft_seconds=0.3,
        p90_ttft_seconds=read.p90_ttft_seconds,
        avg_itl_seconds=0.03,
        predicted_tokens_per_second=86.5,
    )


def test_sglang_s_queues_by_priority_are_not_added_to_their_own_total() -> None:
    lines = ('{priority="",dp_rank="0"} 5', '{priority="0",dp_rank="0"} 3', '{priority="1",dp_rank="0"} 2')
    read = read_sglang(
        page(*(f"sglang:num_queue_reqs{line}" for line in lines), 'sglang:num_queue_reqs{dp_rank="1"} 4')
    )
    assert read.waiting_requests == 9.0


LLAMACPP_GAUGES = (
    "llamacpp:kv_cache_usage_ratio 0.5",
    "llamacpp:requests_processing 2",
    "llamacpp:requests_deferred 1",
    "llamacpp:predicted_tokens_seconds 51.5",
    "llamacpp:prompt_tokens_seconds 2000",
)


def test_llamacpp_s_page() -> None:
    assert read_llamacpp(page(*LLAMACPP_GAUGES)) == EngineSnapshot(
        kv_cache_utilization=0.5,
        running_requests=2.0,
        waiting_requests=1.0,
        predicted_tokens_per_second=51.5,
        prompt_tokens_per_second=2000.0,
    )


def llamacpp_page(tokens: int, seconds: float) -> bytes:
    counters = (
        f"llamacpp:tokens_predicted_total {tokens}",
        f"llamacpp:tokens_predicted_seconds_total {seconds}",
        "llamacpp:prompt_tokens_total 600",
        "llamacpp:prompt_seconds_total 2",
    )
    return page(*LLAMACPP_GAUGES, *counters)


def test_llamacpp_s_speeds_come_from_its_counters_as_any_scrape_resets_its_gauges() -> None:
    """signals.md §9.1, "Series aliases"."""
    then, now = llamacpp.read(llamacpp_page(100, 2.0)), llamacpp.read(llamacpp_page(200, 7.0))
    first = snapshot(then)
    assert (first.predicted_tokens_per_second, first.prompt_tokens_per_second) == (50.0, 300.0)
    assert first.avg_itl_seconds == 0.02
    later = snapshot(now, then)
    assert (later.predicted_tokens_per_second, later.prompt_tokens_per_second) == (20.0, 300.0)
    assert later.avg_itl_seconds == 0.05
    assert snapshot(llamacpp.read(llamacpp_page(0, 0.0))).predicted_tokens_per_second == 51.5


def test_latencies_look_back_to_an_earlier_page_and_histograms_do_not() -> None:
    """signals.md EX-9.2."""

    def at(*counts: int) -> bytes:
        bounds = zip(("0.1", "0.5", "1.0"), counts, strict=True)
        name = "vllm:time_to_first_token_seconds"
        buckets = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in bounds]
        return page(*buckets, f"{name}_sum {counts[-1] / 2}", f"{name}_count {counts[-1]}")

    told = snapshot(vllm.read(at(110, 230, 250)), vllm.read(at(100, 190, 200)))
    assert told.p90_ttft_seconds == pytest.approx(0.75)
    assert told.ttft_histogram is not None
    assert told.ttft_histogram.count == 250


def test_a_page_without_the_engine_s_series_says_nothing() -> None:
    assert read_vllm(b"# nothing\nsglang:num_running_reqs 3\n") == EngineSnapshot()
    assert vllm.read(b"").is_empty
    assert not sglang.read(b"sglang:num_running_reqs 0").is_empty
    assert vllm.read(b"vllm:num_requests_running NaN\nvllm:no_such_thing 1").is_empty


_TEXTS = st.text(max_size=8) | st.sampled_from(["+Inf", "0.1", "5", "NaN", "-1", "1e300", "-1e308", "1e308", "1e999"])
_NAMES = st.sampled_from(sorted(vllm.SERIES.wanted() | sglang.SERIES.wanted() | llamacpp.SERIES.wanted()))
_LINES = st.builds(
    lambda name, le, reason, value: (
        b'%b{le="%b",finished_reason="%b"} %b' % (name, le.encode(), reason.encode(), value.encode())
    ),
    _NAMES,
    _TEXTS,
    _TEXTS,
    _TEXTS,
)


@given(st.lists(_LINES | st.binary(max_size=40), max_size=30).map(b"\n".join), st.data())
def test_whatever_the_page_holds_the_snapshot_can_be_sent(raw: bytes, data: st.DataObject) -> None:
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    for read in READERS:
        encode_signals(Signals(session_token="t", backend_metrics=read(cut)))
    for engine in (vllm, sglang, llamacpp):
        encode_signals(Signals(session_token="t", backend_metrics=snapshot(engine.read(raw), engine.read(cut))))
