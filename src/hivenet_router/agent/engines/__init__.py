"""Which engines does an agent know, and how does it talk to each? One file per engine, one row per engine here."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hivenet_router.agent.engines import custom, infinity, llamacpp, ollama, sglang, vllm
from hivenet_router.agent.engines.face import EngineFace, ModelsUnreadable
from hivenet_router.names.protocol_ids import Engine

__all__ = ["FACES", "EngineFace", "ModelsUnreadable"]

FACES: Final[Mapping[Engine, EngineFace]] = MappingProxyType(
    {
        Engine.VLLM: vllm.FACE,
        Engine.OLLAMA: ollama.FACE,
        Engine.SGLANG: sglang.FACE,
        Engine.LLAMACPP: llamacpp.FACE,
        Engine.INFINITY: infinity.FACE,
        Engine.CUSTOM: custom.FACE,
    }
)
