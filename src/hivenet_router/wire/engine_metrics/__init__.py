"""What do inference engines say about themselves on their `/metrics` pages? One file per engine, one reader each."""

from hivenet_router.wire.engine_metrics.llamacpp import read_llamacpp
from hivenet_router.wire.engine_metrics.reading import Reader, Reading, snapshot
from hivenet_router.wire.engine_metrics.sglang import read_sglang
from hivenet_router.wire.engine_metrics.text import PAGE_BYTES_MAX
from hivenet_router.wire.engine_metrics.vllm import read_vllm

__all__ = ["PAGE_BYTES_MAX", "Reader", "Reading", "read_llamacpp", "read_sglang", "read_vllm", "snapshot"]
