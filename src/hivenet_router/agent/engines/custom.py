"""Any other engine: the operator names its health URL and its model. Source: signals.md §1.4.1."""

from typing import Final

from hivenet_router.agent.engines.face import EngineFace, openai_models

FACE: Final = EngineFace(probe_path=None, models_path=None, models_in=openai_models)
