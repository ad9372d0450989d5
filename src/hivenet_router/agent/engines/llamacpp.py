"""llama.cpp's servers: as vLLM; a model's name is the alias it was started with. Source: signals.md §1.4.1.

`llama-server` has a health page, and metrics if it was told so. `llama-cpp-python[server]` has neither, answers one
request at a time, and lets its list of models wait for that one; unless told not to, it even cuts a stream short for
whoever asks meanwhile.
"""

from typing import Final

from hivenet_router.agent.engines.face import EngineFace, openai_models
from hivenet_router.wire.engine_metrics import llamacpp

FACE: Final = EngineFace(
    probe_path="/health",
    models_path="/v1/models",
    models_in=openai_models,
    metrics_in=llamacpp.read,
    serves_only_listed=True,
    can_lack_probe=True,
)
