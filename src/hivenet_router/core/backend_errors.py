"""Whose fault is an answer other than 200, and may another agent do better?

The router judges what came back through an agent, from status and body, alike on every path; only for an original
router an agent puts what its backend said on the chat path into the form that such a router reads. Both share one idea
of when a prompt did not fit, so the code a client sees does not depend on which engine served it. Invariant: a fault of
the request is never retried and never held against an agent. Bodies are read in `error_bodies.py`; the row of each code
in `names/errors.py` says whether a retry is worth it.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from hivenet_router.core.clock import UnixTime
from hivenet_router.core.error_bodies import ErrorBody, bounded, raw_text, read_error_body
from hivenet_router.core.refusals import RefusalReason
from hivenet_router.names.errors import ERROR_RULES, Blame, ErrorCode

RETRY_AFTER_MAX_S: Final = 3600.0

_CONTEXT_WORDS: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_INVALID_WORDS: Final = frozenset({"invalid_request_error", "invalid_parameter"})
_OVERLOADED: Final = frozenset({429, 503, 529})
# These say something about the moment, not about the request.
_BUSY: Final = frozenset({408, 425, 429})
_CREDENTIALS: Final = frozenset({401, 403})
_KEY_WANTED: Final = "the backend wants a key that its operator has to give the agent (--backend-api-key-file)"
_UNSUPPORTED: Final = 501
_STATUS_KEPT: Final = frozenset({400, 401, 403, 404, 413, _UNSUPPORTED})
_CODES_OF_AGENTS: Final = frozenset(
    {
        ErrorCode.REQUEST_INVALID,
        ErrorCode.INVALID_PARAMETER,
        ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ErrorCode.TOKEN_LIMIT_EXCEEDED,
        ErrorCode.BACKEND_ERROR,
        ErrorCode.BACKEND_UNAVAILABLE,
    }
)
# Phrases of vLLM, SGLang, llama.cpp and Anthropic that no other complaint contains.
_PROMPT_TOO_LONG: Final = re.compile(
    r"maximum context length|context (?:length|window|size) (?:was |is |has been )?exceeded"
    r"|exceeds? the (?:available |maximum |model'?s )*context|longer than the model'?s context"
    r"|longer than the maximum model length|prompt is too long",
    re.IGNORECASE,
)
# What an original agent says where its engine could be reached and then was gone.
_BROKE_OFF: Final = re.compile(r"backend unreachable: .*(?:: EOF|connection reset by peer)$", re.DOTALL)
# FastAPI's complaint about a member of the body, where an engine puts it into a 500 (llama-cpp-python does).
_MEMBER_REFUSED: Final = re.compile(r"\{'type': '\w+', 'loc': \('body'")


@dataclass(frozen=True, slots=True)
class BackendFailure:
    """An agent's answer other than 200, with what the client would be told about it."""

    reason: RefusalReason
    is_operators: bool = False
    """The engine's key is missing or wrong: a matter of how it was set up, and no agent's failure."""

    @property
    def retryable(self) -> bool:
        """Whether another agent may do better."""
        return not self.is_operators and ERROR_RULES[self.reason.code].try_another_agent

    @property
    def counts_against_agent(self) -> bool:
        """Whether the agent is to blame: exactly when another one may do better."""
        return self.retryable


def classify(
    status: int,
    content_type: str,
    body: bytes,
    *,
    retry_after_s: float | None = None,
    had_clients_credentials: bool = False,
) -> BackendFailure:
    """What an answer other than 200 means, whether the agent wrote it or passed it on from its backend.

    `body` may be cut at 64 KiB. `retry_after_s` is kept where the backend is merely overloaded. Credentials that were
    refused are the client's fault only where it sent some and they went along (`had_clients_credentials`); else
    they are the operator's, who is told so with the engine's words. The message has at most 512 bytes, never JSON.

    Source: decisions.md 40; http-api.md §6.1, §6.2 and §15, 6 and 7; wire.md §8.5 and §14, 8; field-cases.md O-13,
    O-21, O-22.
    """
    said = read_error_body(body)
    message = _message(status, content_type, said)
    is_operators = status in _CREDENTIALS and not had_clients_credentials
    code, source = _code_and_source(status, message, said, is_operators=is_operators)
    is_operators = is_operators and code is ErrorCode.BACKEND_ERROR
    if is_operators:
        message = bounded(f"{_KEY_WANTED}: {message}")
    rule = ERROR_RULES[code]
    keeps_wait = retry_after_s is not None and code is ErrorCode.BACKEND_UNAVAILABLE
    keeps_status = code is ErrorCode.INVALID_PARAMETER and status in _STATUS_KEPT
    return BackendFailure(
        RefusalReason(
            code,
            status if keeps_status else rule.status,
            message,
            source or rule.source,
            retry_after_s if keeps_wait else rule.retry_after_s,
        ),
        is_operators,
    )


def _code_and_source(
    status: int, message: str, said: ErrorBody, *, is_operators: bool
) -> tuple[ErrorCode, Blame | None]:
    if _prompt_too_long(message, said):
        return ErrorCode.CONTEXT_LENGTH_EXCEEDED, None
    if said.code in _CODES_OF_AGENTS and said.source in tuple(Blame):
        return ErrorCode(said.code), Blame(said.source)
    # An original may leave the source empty; a limit that is used up is so at every agent.
    if status == ERROR_RULES[ErrorCode.TOKEN_LIMIT_EXCEEDED].status and said.code == ErrorCode.TOKEN_LIMIT_EXCEEDED:
        return ErrorCode.TOKEN_LIMIT_EXCEEDED, None
    if status in _OVERLOADED:
        return ErrorCode.BACKEND_UNAVAILABLE, None
    if status in _BUSY or is_operators:
        return ErrorCode.BACKEND_ERROR, None
    if status in (400, 422) and _speaks_of_context(message):
        return ErrorCode.CONTEXT_LENGTH_EXCEEDED, None
    if 400 <= status < 500 or status == _UNSUPPORTED or _complains(message, said):
        return ErrorCode.INVALID_PARAMETER, None
    return ErrorCode.BACKEND_ERROR, None


def _message(status: int, content_type: str, said: ErrorBody) -> str:
    # A proxy's page tells a client nothing; JSON that is only called one does.
    is_page = "html" in content_type.lower() and not said.is_json
    words = "" if is_page else said.message
    return words or f"the backend answered with HTTP status {status}"


def _prompt_too_long(message: str, said: ErrorBody) -> bool:
    return bool(said.words & _CONTEXT_WORDS) or _PROMPT_TOO_LONG.search(message) is not None


def _complains(message: str, said: ErrorBody) -> bool:
    """Whether it is about the request, whatever the status."""
    return bool(said.words & _INVALID_WORDS) or _MEMBER_REFUSED.search(message) is not None


def _speaks_of_context(text: str) -> bool:
    lowered = text.lower()
    return "context" in lowered and any(word in lowered for word in ("length", "window", "token"))


def tells_of_death(failure: BackendFailure) -> bool:
    """Whether an original agent says that its engine took the request and broke off; it has no field for that.

    Source: vectors/wire-agent-responses.json (messages of Go's HTTP client).
    """
    said = failure.reason
    return said.code is ErrorCode.BACKEND_UNAVAILABLE and _BROKE_OFF.match(said.message) is not None


class ChatRefusal(NamedTuple):
    """What an agent answers on the chat path instead of its backend's error."""

    code: ErrorCode
    status: int
    message: str


def chat_refusal(status: int, body: bytes) -> ChatRefusal:
    """An agent's answer to an original router for a backend's answer other than 200 on the chat path.

    Differs from the original in one point: an engine that reports a prompt too long with a status other than 400 is
    understood too.

    Source: wire.md §8.4, table "Chat mapping"; field-cases.md O-13.
    """
    said = read_error_body(body)
    message = said.plain_message or raw_text(body)
    code = _chat_code(status, message, body, said)
    return ChatRefusal(code, ERROR_RULES[code].status, message)


def _chat_code(status: int, message: str, body: bytes, said: ErrorBody) -> ErrorCode:
    if _prompt_too_long(message, said):
        return ErrorCode.CONTEXT_LENGTH_EXCEEDED
    if _complains(message, said):
        return ErrorCode.INVALID_PARAMETER
    if status in (400, 422):
        about_context = _speaks_of_context(body.decode(errors="replace"))
        return ErrorCode.CONTEXT_LENGTH_EXCEEDED if about_context else ErrorCode.INVALID_PARAMETER
    if status in (429, 503):
        return ErrorCode.BACKEND_UNAVAILABLE
    return ErrorCode.BACKEND_ERROR


def agent_error_body(code: ErrorCode, message: str, source: Blame) -> bytes:
    """The JSON an agent answers with, byte for byte as the original writes it.

    Source: wire.md §8.4, "Error body"; vectors/wire-agent-responses.json, `error_escaping`.
    """
    sendable = message.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    error = {"error": {"code": code, "message": sendable, "source": source}}
    text = json.dumps(error, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def retry_after_s(value: str, *, now: UnixTime) -> float | None:
    """Seconds that a `Retry-After` header asks to wait, between 0 and an hour; None if it cannot be read.

    Source: RFC 9110 §10.2.3 (seconds, or a date in the preferred form).
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), RETRY_AFTER_MAX_S)
    try:
        moment = datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    return min(max(0.0, moment.timestamp() - now), RETRY_AFTER_MAX_S)
