"""vLLM's series. One per engine core with data parallelism, told apart by `engine`. Source: signals.md §1.4.3, §9.1."""

from typing import Final

from hivenet_router.wire.agent_protocol import EngineSnapshot
from hivenet_router.wire.engine_metrics.reading import EngineSeries, reader, snapshot

SERIES: Final = EngineSeries(
    prefix=b"vllm:",
    kv_cache_ratio=(b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc"),
    running=(b"vllm:num_requests_running",),
    waiting=(b"vllm:num_requests_waiting",),
    preemptions=(b"vllm:num_preemptions_total",),
    ttft_s=(b"vllm:time_to_first_token_seconds",),
    itl_s=(b"vllm:inter_token_latency_seconds", b"vllm:time_per_output_token_seconds"),
    prompt_tokens=(b"vllm:request_prompt_tokens",),
    generation_tokens=(b"vllm:request_generation_tokens",),
    finished=(b"vllm:request_success_total",),
    sends_histograms=True,
)
read: Final = reader(SERIES)


def read_vllm(page: bytes) -> EngineSnapshot:
    """What one page of vLLM's says, since it started; whatever the page holds."""
    return snapshot(read(page))
