"""SGLang's series, which it prints with `--enable-metrics`. Source: signals.md §1.4.3, §9.1.

With priority scheduling it prints a queue in all under an empty `priority`, and each priority beside it.
"""

from typing import Final

from hivenet_router.wire.agent_protocol import EngineSnapshot
from hivenet_router.wire.engine_metrics.reading import EngineSeries, reader, snapshot

SERIES: Final = EngineSeries(
    prefix=b"sglang:",
    kv_cache_ratio=(b"sglang:token_usage",),
    running=(b"sglang:num_running_reqs",),
    waiting=(b"sglang:num_queue_reqs",),
    preemptions=(b"sglang:num_retracted_requests_total",),
    ttft_s=(b"sglang:time_to_first_token_seconds",),
    itl_s=(b"sglang:inter_token_latency_seconds", b"sglang:time_per_output_token_seconds"),
    decode_tokens_per_s=(b"sglang:gen_throughput",),
    part_label=b"priority",
)
read: Final = reader(SERIES)


def read_sglang(page: bytes) -> EngineSnapshot:
    """What one page of SGLang's says, since it started; whatever the page holds."""
    return snapshot(read(page))
