"""Infinity, for embeddings and reranking: a health endpoint and OpenAI's list. Source: signals.md §1.4.1."""

from typing import Final

from hivenet_router.agent.engines.face import EngineFace, openai_models

FACE: Final = EngineFace(probe_path="/health", models_path="/v1/models", models_in=openai_models)
