"""Which HTTP paths exist, towards clients and over the peer link?

Invariant: no path outside `INFERENCE_PATHS` ever reaches an agent; the table is a security boundary. Methods, bodies
and answers of the other paths are left to the apps that serve them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Capability(StrEnum):
    """What a backend can do; the word an agent registers with."""

    LLM = "llm"
    EMBEDDING = "embedding"
    RERANKER = "reranker"


class Dialect(StrEnum):
    """In whose shape errors and stream events are written on a path."""

    OPENAI = "openai"
    RESPONSES = "responses"
    """OpenAI's, but for the events of a stream. Source: decisions.md 41."""
    ANTHROPIC = "anthropic"


class Kind(StrEnum):
    """The word the sibling map uses for what a path asks of a model."""

    CHAT = "chat"
    EMBEDDING = "embedding"
    RERANK = "rerank"


@dataclass(frozen=True, slots=True)
class InferencePath:
    """One path that is forwarded to the same path on a backend."""

    path: str
    capability: Capability
    dialect: Dialect
    kind: Kind

    @property
    def generates(self) -> bool:
        """Whether a model writes the answer, so that its text is output."""
        return self.capability is Capability.LLM and self.path != COUNT_TOKENS


CHAT_COMPLETIONS: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
COUNT_TOKENS: Final = "/v1/messages/count_tokens"
EMBEDDINGS: Final = "/v1/embeddings"
RERANK: Final = "/v1/rerank"

INFERENCE_PATHS: Final[Mapping[str, InferencePath]] = MappingProxyType(
    {
        row.path: row
        for row in (
            InferencePath(CHAT_COMPLETIONS, Capability.LLM, Dialect.OPENAI, Kind.CHAT),
            InferencePath(COMPLETIONS, Capability.LLM, Dialect.OPENAI, Kind.CHAT),
            InferencePath(RESPONSES, Capability.LLM, Dialect.RESPONSES, Kind.CHAT),
            InferencePath(MESSAGES, Capability.LLM, Dialect.ANTHROPIC, Kind.CHAT),
            InferencePath(COUNT_TOKENS, Capability.LLM, Dialect.ANTHROPIC, Kind.CHAT),
            InferencePath(EMBEDDINGS, Capability.EMBEDDING, Dialect.OPENAI, Kind.EMBEDDING),
            InferencePath(RERANK, Capability.RERANKER, Dialect.OPENAI, Kind.RERANK),
        )
    }
)
"""The seven inference paths, all POST. Source: http-api.md §1.2, decisions.md 9."""

ANTHROPIC_PREFIX: Final = MESSAGES
"""Errors of any path that starts so have the Anthropic shape, unknown ones too. Source: http-api.md §15 item 27."""

HEALTH: Final = "/health"
READY: Final = "/ready"
MODELS: Final = "/v1/models"
OPENAPI: Final = "/openapi.json"
METRICS: Final = "/metrics"

ADMIN_PREFIX: Final = "/admin"
ADMIN_HEALTH: Final = "/admin/health"
ADMIN_ROUTING_TABLE: Final = "/admin/routing-table"
ADMIN_REGISTRATION_STREAM: Final = "/admin/registration-stream"
ADMIN_STORAGE: Final = "/admin/storage"
ADMIN_MODELS: Final = "/admin/models"
ADMIN_METRICS_RESET: Final = "/admin/metrics/reset"
ADMIN_POLICY: Final = "/admin/policy"
ADMIN_POLICY_MODELS: Final = "/admin/policy/models"
ADMIN_API_KEYS: Final = "/admin/api-keys"
ADMIN_API_KEYS_VERSION: Final = "/admin/api-keys/version"
ADMIN_API_KEYS_REPLACE: Final = "/admin/api-keys/replace"
ADMIN_SIBLING_MAP: Final = "/admin/sibling-map"

ROUTER_MOUNT: Final = "/hivenet_router/router/1.0.0"
"""What the router serves to agents over the peer link. Source: wire.md §6.2."""

INFERENCE_MOUNT: Final = "/hivenet_router/inference/1.0.0"
"""What an agent serves to routers over the peer link. Source: wire.md §6.2."""

REGISTER: Final = "/register"
HEARTBEAT: Final = "/heartbeat"
ROUTING_SIGNALS: Final = "/routing-signals"
"""With `REGISTER` and `HEARTBEAT` the three paths under `ROUTER_MOUNT`."""

PROTOCOL_MAP: Final = "/.well-known/libp2p/protocols"
"""Where both ends tell under which path each mount lives. Source: wire.md §6.3."""
