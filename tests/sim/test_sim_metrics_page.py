"""Does the metrics page say what was observed, in a form that parsers read?"""

from prometheus_client.parser import text_string_to_metric_families

from hivenet_router.sim.metrics_page import EngineMetrics, Histogram, Load, render


def test_the_page_is_read_by_the_usual_parser() -> None:
    metrics = EngineMetrics()
    metrics.ttft_s.observe(0.3)
    metrics.itl_s.observe(0.02, 4)
    metrics.finish("stop", prompt_tokens=12, generated_tokens=5)
    page = render(metrics, Load(running=2, waiting=1, kv_usage_ratio=0.25), model='a"b\\c')
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    assert {name: family.type for name, family in families.items()} == {
        "vllm:num_requests_running": "gauge",
        "vllm:num_requests_waiting": "gauge",
        "vllm:kv_cache_usage_perc": "gauge",
        "vllm:num_preemptions": "counter",
        "vllm:request_success": "counter",
        "vllm:time_to_first_token_seconds": "histogram",
        "vllm:inter_token_latency_seconds": "histogram",
        "vllm:request_prompt_tokens": "histogram",
        "vllm:request_generation_tokens": "histogram",
    }
    samples = {
        (sample.name, sample.labels.get("le") or sample.labels.get("finished_reason")): sample
        for family in families.values()
        for sample in family.samples
    }
    assert samples["vllm:num_requests_running", None].value == 2
    assert samples["vllm:num_requests_running", None].labels["model_name"] == 'a"b\\c'
    assert samples["vllm:kv_cache_usage_perc", None].value == 0.25
    assert samples["vllm:request_success_total", "stop"].value == 1
    assert samples["vllm:request_success_total", "abort"].value == 0
    assert samples["vllm:inter_token_latency_seconds_count", None].value == 4
    assert samples["vllm:time_to_first_token_seconds_bucket", "0.25"].value == 0
    assert samples["vllm:time_to_first_token_seconds_bucket", "0.5"].value == 1
    assert samples["vllm:request_prompt_tokens_bucket", "+Inf"].value == 1


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.0)
    histogram.observe(3.0)
    assert list(histogram.cumulative()) == [("1.0", 1), ("2.0", 1), ("+Inf", 2)]
