"""Which error codes exist, and what does each one mean for status, blame and retry?

Invariant: one row per code, and nothing else decides these facts. Who writes the body, in which dialect's shape, and
with which headers is left to the room that refuses; who raises a code is left to the rooms and the core.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ErrorCode(StrEnum):
    """The value of `error.code` in an answer; also what the audit record holds.

    Source: http-api.md §7.2; the last two are the envelope for unknown paths and methods, §15 item 27.
    """

    REQUEST_INVALID = "request_invalid"
    INVALID_PARAMETER = "invalid_parameter"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    INPUT_TOO_LONG = "input_too_long"
    UNAUTHORIZED = "unauthorized"
    MODEL_FORBIDDEN = "model_forbidden"
    MODEL_NOT_FOUND = "model_not_found"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    CONCURRENCY_LIMIT_EXCEEDED = "concurrency_limit_exceeded"
    TOKEN_LIMIT_EXCEEDED = "token_limit_exceeded"
    NO_AGENTS_AVAILABLE = "no_agents_available"
    NO_CAPACITY = "no_capacity"
    QUEUE_FULL = "queue_full"
    REQUEST_TIMEOUT = "request_timeout"
    BACKEND_ERROR = "backend_error"
    BACKEND_UNAVAILABLE = "backend_unavailable"
    AGENT_DISCONNECTED = "agent_disconnected"
    MODEL_REDIRECTED = "model_redirected"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"


class Blame(StrEnum):
    """The value of `error.source`: who found the fault, this router or the backend behind an agent."""

    ROUTER = "router"
    BACKEND = "backend"


OPENAI_TYPE_BY_STATUS: Final[Mapping[int, str]] = MappingProxyType(
    {
        307: "invalid_request_error",
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        413: "invalid_request_error",
        415: "invalid_request_error",
        429: "rate_limit_error",
        500: "server_error",
        502: "server_error",
        503: "server_error",
        504: "server_error",
    }
)
"""`error.type` of the OpenAI envelope for each status a refusal can carry. Source: http-api.md §15 item 23."""

ANTHROPIC_TYPE_BY_STATUS: Final[Mapping[int, str]] = MappingProxyType(
    {
        307: "invalid_request_error",
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        413: "request_too_large",
        415: "invalid_request_error",
        429: "rate_limit_error",
        500: "api_error",
        502: "api_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
)
"""`error.type` of the Anthropic envelope for each status a refusal can carry. Source: http-api.md §15 item 23."""


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What follows from a code: default HTTP status, who is at fault, whether another agent may be tried, and
    when the client may come again.

    A refusal may carry another status than the default (`request_invalid` is 400, 404 or 413 by place, a fault of our
    own storage is `backend_error` with 500); its types then follow that status by the two tables above.
    """

    status: int
    source: Blame
    try_another_agent: bool
    openai_type: str
    anthropic_type: str
    retry_after_s: float | None
    """What a client is told to wait where the refusal itself knows no better."""


def _rule(
    status: int, source: Blame = Blame.ROUTER, *, try_another_agent: bool = False, retry_after_s: float | None = None
) -> ErrorRule:
    types = OPENAI_TYPE_BY_STATUS[status], ANTHROPIC_TYPE_BY_STATUS[status]
    return ErrorRule(status, source, try_another_agent, *types, retry_after_s)


_SHORTLY_S: Final = 1.0
_AN_AGENT_S: Final = 5.0
"""A backend that is down is asked, and an agent asks to come back, about this often."""


ERROR_RULES: Final[Mapping[ErrorCode, ErrorRule]] = MappingProxyType(
    {
        ErrorCode.REQUEST_INVALID: _rule(400),
        ErrorCode.INVALID_PARAMETER: _rule(400, Blame.BACKEND),
        ErrorCode.CONTEXT_LENGTH_EXCEEDED: _rule(400, Blame.BACKEND),
        ErrorCode.INPUT_TOO_LONG: _rule(400),
        ErrorCode.UNAUTHORIZED: _rule(401),
        ErrorCode.MODEL_FORBIDDEN: _rule(403),
        ErrorCode.MODEL_NOT_FOUND: _rule(404),
        ErrorCode.RATE_LIMIT_EXCEEDED: _rule(429, retry_after_s=_SHORTLY_S),
        ErrorCode.CONCURRENCY_LIMIT_EXCEEDED: _rule(429, retry_after_s=_SHORTLY_S),
        ErrorCode.TOKEN_LIMIT_EXCEEDED: _rule(429, retry_after_s=_SHORTLY_S),
        ErrorCode.NO_AGENTS_AVAILABLE: _rule(503, retry_after_s=_AN_AGENT_S),
        ErrorCode.NO_CAPACITY: _rule(503, retry_after_s=_SHORTLY_S),
        ErrorCode.QUEUE_FULL: _rule(503, retry_after_s=_SHORTLY_S),
        ErrorCode.REQUEST_TIMEOUT: _rule(504),
        ErrorCode.BACKEND_ERROR: _rule(502, Blame.BACKEND, try_another_agent=True),
        ErrorCode.BACKEND_UNAVAILABLE: _rule(503, Blame.BACKEND, try_another_agent=True, retry_after_s=_SHORTLY_S),
        ErrorCode.AGENT_DISCONNECTED: _rule(503, try_another_agent=True, retry_after_s=_SHORTLY_S),
        ErrorCode.MODEL_REDIRECTED: _rule(307),
        ErrorCode.NOT_FOUND: _rule(404),
        ErrorCode.METHOD_NOT_ALLOWED: _rule(405),
    }
)
"""The row of each code. Only what ends an attempt on an agent is worth another agent; what an agent reports under any
other retryable name is `backend_error`. Source: http-api.md §7.2, configuration.md §6.5; a time to retry after on every
429 and 503: expectations.md §2, 6."""

UNKNOWN_CODE_STATUS: Final = 500
"""Status of an answer whose code is in no row. Source: http-api.md §7.2, last line."""
