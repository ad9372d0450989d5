"""llama.cpp's series, which it prints with `--metrics`. Source: signals.md §1.4.3, §9.1.

Its speed gauges are means since the last page, whoever asked for that, so the counters are read where they stand.
"""

from typing import Final

from hivenet_router.wire.agent_protocol import EngineSnapshot
from hivenet_router.wire.engine_metrics.reading import EngineSeries, reader, snapshot

SERIES: Final = EngineSeries(
    prefix=b"llamacpp:",
    kv_cache_ratio=(b"llamacpp:kv_cache_usage_ratio",),
    running=(b"llamacpp:requests_processing",),
    waiting=(b"llamacpp:requests_deferred",),
    ttft_s=(b"llamacpp:time_to_first_token_seconds",),
    itl_s=(b"llamacpp:time_per_output_token_seconds",),
    decode_tokens_per_s=(b"llamacpp:predicted_tokens_seconds",),
    prefill_tokens_per_s=(b"llamacpp:prompt_tokens_seconds",),
    decode=(b"llamacpp:tokens_predicted_seconds_total", b"llamacpp:tokens_predicted_total"),
    prefill=(b"llamacpp:prompt_seconds_total", b"llamacpp:prompt_tokens_total"),
)
read: Final = reader(SERIES)


def read_llamacpp(page: bytes) -> EngineSnapshot:
    """What one page of llama.cpp's says, since it started; whatever the page holds."""
    return snapshot(read(page))
