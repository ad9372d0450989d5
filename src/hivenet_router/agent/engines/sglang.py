"""SGLang: a health endpoint, OpenAI's list of models, and metrics if it was told so. Source: signals.md §1.4.1."""

from typing import Final

from hivenet_router.agent.engines.face import EngineFace, openai_models
from hivenet_router.wire.engine_metrics import sglang

FACE: Final = EngineFace(
    probe_path="/health",
    models_path="/v1/models",
    models_in=openai_models,
    metrics_in=sglang.read,
    serves_only_listed=True,
)
