"""What an error answer means. Cases with a name are those of the recorded vectors, with the original's answer where the
two programs agree and ours where http-api.md §15 changes it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.backend_errors import (
    ChatRefusal,
    agent_error_body,
    chat_refusal,
    classify,
    retry_after_s,
)
from hivenet_router.core.clock import UnixTime
from hivenet_router.names.errors import Blame, ErrorCode

CONTEXT, INVALID = ErrorCode.CONTEXT_LENGTH_EXCEEDED, ErrorCode.INVALID_PARAMETER
ERROR, UNAVAILABLE = ErrorCode.BACKEND_ERROR, ErrorCode.BACKEND_UNAVAILABLE

CHAT_CASES = [
    ("openai-context-type", 400, '{"error":{"message":"m","type":"context_length_exceeded"}}', CONTEXT, "m"),
    ("openai-invalid-type", 400, '{"error":{"message":"m","type":"invalid_request_error"}}', INVALID, "m"),
    ("flat-context-type", 400, '{"message":"m","type":"context_length_exceeded","code":400}', CONTEXT, "m"),
    ("flat-badrequest-context-words", 400, '{"message":"the Context Length is 32","code":400}', CONTEXT, None),
    ("flat-badrequest-other", 400, '{"message":"m","type":"BadRequestError"}', INVALID, "m"),
    ("fastapi-422", 422, '{"detail":[{"msg":"m"}]}', INVALID, '{"detail":[{"msg":"m"}]}'),
    ("type-wins-over-status", 500, '{"error":{"message":"m","type":"invalid_request_error"}}', INVALID, "m"),
    ("text-400", 400, "plain text bad", INVALID, "plain text bad"),
    ("text-400-context-window", 400, "the context window is full", CONTEXT, "the context window is full"),
    ("empty-400", 400, "", INVALID, ""),
    ("401", 401, '{"error":"Unauthorized"}', ERROR, '{"error":"Unauthorized"}'),
    ("404", 404, '{"error":{"message":"m","type":"NotFoundError"}}', ERROR, "m"),
    ("413", 413, "too big", ERROR, "too big"),
    ("429", 429, '{"error":{"message":"m"}}', UNAVAILABLE, "m"),
    ("500", 500, "boom", ERROR, "boom"),
    ("503", 503, "boom", UNAVAILABLE, "boom"),
    ("529", 529, "overloaded", ERROR, "overloaded"),
    ("201", 201, '{"id":"x"}', ERROR, '{"id":"x"}'),
    ("router-shaped-token-limit", 400, '{"error":{"code":"token_limit_exceeded","message":"m"}}', INVALID, "m"),
]
"""Named as in vectors/http/06-backend-errors.json; None: the message is not looked at."""


@pytest.mark.parametrize(
    ("status", "body", "code", "message"), [case[1:] for case in CHAT_CASES], ids=[case[0] for case in CHAT_CASES]
)
def test_an_agent_answers_on_the_chat_path_as_the_original(
    status: int, body: str, code: ErrorCode, message: str | None
) -> None:
    """wire.md §8.4."""
    answered = {CONTEXT: 400, INVALID: 400, ERROR: 502, UNAVAILABLE: 503}[code]
    said = chat_refusal(status, body.encode())
    assert said == ChatRefusal(code, answered, said.message if message is None else message)


def test_a_long_text_is_cut_for_the_chat_path_and_a_long_message_is_not() -> None:
    assert chat_refusal(400, b"x" * 600).message == "x" * 512
    assert chat_refusal(400, json.dumps({"message": "x" * 600}).encode()).message == "x" * 600


PROMPT_TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "prompt is too long: 200001 tokens > 200000 maximum",
    "context length exceeded",
]


@pytest.mark.parametrize("message", PROMPT_TOO_LONG)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_prompt_too_long_is_the_requests_fault_whatever_the_status(message: str, status: int) -> None:
    """field-cases.md O-13 (b): engines that answer 500 for it must not lose their router."""
    body = json.dumps({"error": {"message": message, "type": "InternalServerError", "code": status}}).encode()
    failure = classify(status, "application/json", body)
    assert (failure.reason.code, failure.reason.status) == (CONTEXT, 400)
    assert not failure.retryable
    assert not failure.counts_against_agent
    assert chat_refusal(status, body).code is CONTEXT


@pytest.mark.parametrize("lead", ["1 validation error:\n  ", "["])
def test_a_member_that_fastapi_refuses_is_the_requests_fault_also_within_a_500(lead: str) -> None:
    """As llama-cpp-python answers, with new and old FastAPI."""
    message = lead + "{'type': 'float_parsing', 'loc': ('body', 'temperature'), 'msg': 'Input should be a number'}"
    body = json.dumps({"error": {"message": message, "type": "internal_server_error", "code": None}}).encode()
    failure = classify(500, "application/json", body)
    assert (failure.reason.code, failure.reason.status, failure.retryable) == (INVALID, 400, False)
    assert chat_refusal(500, body) == ChatRefusal(INVALID, 400, message)


def test_an_engine_that_crashed_over_a_cuda_context_is_still_broken() -> None:
    body = b'{"error":{"message":"CUDA error: context is destroyed at token 17","type":"InternalServerError"}}'
    assert classify(500, "application/json", body).reason.code is ERROR


@pytest.mark.parametrize(
    ("status", "body", "code", "answered"),
    [
        # Anthropic, OpenAI with numeric and text codes, FastAPI: http-api.md §15, 6
        (400, '{"type":"error","error":{"type":"invalid_request_error","message":"m"}}', INVALID, 400),
        (404, '{"type":"error","error":{"type":"not_found_error","message":"m"}}', INVALID, 404),
        (413, '{"type":"error","error":{"type":"request_too_large","message":"m"}}', INVALID, 413),
        (400, '{"error":{"message":"m","type":"BadRequestError","param":null,"code":400}}', INVALID, 400),
        (400, '{"error":{"message":"m","type":"x","code":"context_length_exceeded"}}', CONTEXT, 400),
        (400, '{"error":{"message":"m","type":"exceed_context_size_error","code":400}}', CONTEXT, 400),
        (400, '{"error":{"message":"m","code":"some_code"}}', INVALID, 400),
        (404, '{"detail":"m"}', INVALID, 404),
        (422, '{"detail":"m"}', INVALID, 400),
        (422, '{"detail":"m, the context has no token left"}', CONTEXT, 400),
        (409, "m", INVALID, 400),
        (402, "m", INVALID, 400),
        (405, "m", INVALID, 400),
        (407, "m", INVALID, 400),
        (415, "m", INVALID, 400),
        (451, "m", INVALID, 400),
        (501, '{"error":{"message":"m","type":"not_supported_error"}}', INVALID, 501),
        (404, "m: no context with this token", INVALID, 404),
        (500, '{"error":{"message":"m","type":"invalid_request_error"}}', INVALID, 400),
    ],
)
def test_a_fault_of_the_request_is_neither_retried_nor_held_against_the_agent(
    status: int, body: str, code: ErrorCode, answered: int
) -> None:
    failure = classify(status, "application/json", body.encode(), retry_after_s=5.0)
    said = failure.reason
    assert (said.code, said.status, said.source, said.retry_after_s) == (code, answered, Blame.BACKEND, None)
    assert said.message.startswith("m")
    assert (failure.retryable, failure.counts_against_agent) == (False, False)


@pytest.mark.parametrize(
    ("status", "body", "code", "answered"),
    [
        (429, '{"type":"error","error":{"type":"rate_limit_error","message":"m"}}', UNAVAILABLE, 503),
        (503, '{"error":{"message":"m"}}', UNAVAILABLE, 503),
        (529, '{"type":"error","error":{"type":"overloaded_error","message":"m"}}', UNAVAILABLE, 503),
        (429, '{"error":{"message":"m","type":"invalid_request_error"}}', UNAVAILABLE, 503),
        (408, "m", ERROR, 502),
        (425, "m", ERROR, 502),
        (500, "m", ERROR, 502),
        (502, '{"detail":"m"}', ERROR, 502),
        (307, "m", ERROR, 502),
        (201, "m", ERROR, 502),
    ],
)
def test_a_fault_of_the_backend_is_worth_another_agent(status: int, body: str, code: ErrorCode, answered: int) -> None:
    failure = classify(status, "text/plain", body.encode())
    assert (failure.reason.code, failure.reason.status, failure.reason.message) == (code, answered, "m")
    assert (failure.retryable, failure.counts_against_agent) == (True, True)


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_are_refused_are_the_clients_fault_where_they_were_its_own(status: int) -> None:
    """decisions.md 40."""
    own = classify(status, "application/json", b'{"error":"m"}', had_clients_credentials=True)
    assert (own.reason.code, own.reason.status, own.reason.message) == (INVALID, status, "m")
    assert (own.retryable, own.counts_against_agent) == (False, False)
    operators = classify(status, "application/json", b'{"error":"m"}')
    assert (operators.reason.code, operators.reason.status) == (ERROR, 502)
    assert operators.reason.message.endswith("(--backend-api-key-file): m")
    assert (operators.retryable, operators.counts_against_agent) == (False, False)


@pytest.mark.parametrize("source", ["", "router", "backend"])
def test_a_token_limit_that_an_agent_reports_is_final(source: str) -> None:
    """wire.md §8.5."""
    body = json.dumps({"error": {"code": "token_limit_exceeded", "message": "m", "source": source}}).encode()
    failure = classify(429, "application/json", body)
    assert (failure.reason.code, failure.reason.status) == (ErrorCode.TOKEN_LIMIT_EXCEEDED, 429)
    assert (failure.retryable, failure.counts_against_agent) == (False, False)


def test_an_overloaded_backend_may_say_when_to_come_back() -> None:
    assert classify(429, "", b"", retry_after_s=7.0).reason.retry_after_s == 7.0
    assert classify(500, "", b"", retry_after_s=7.0).reason.retry_after_s is None


@pytest.mark.parametrize(
    ("code", "source", "answered"),
    [
        (ErrorCode.REQUEST_INVALID, Blame.ROUTER, 400),
        (INVALID, Blame.BACKEND, 400),
        (ErrorCode.TOKEN_LIMIT_EXCEEDED, Blame.ROUTER, 429),
        (CONTEXT, Blame.BACKEND, 400),
        (ERROR, Blame.BACKEND, 502),
        (UNAVAILABLE, Blame.BACKEND, 503),
    ],
)
def test_an_agents_own_envelope_is_taken_at_its_word(code: ErrorCode, source: Blame, answered: int) -> None:
    said = classify(answered, "application/json", agent_error_body(code, "why", source)).reason
    assert (said.code, said.source, said.status, said.message) == (code, source, answered, "why")


@pytest.mark.parametrize(
    "error", [{"code": "no_capacity", "source": "router"}, {"code": "backend_error", "source": "me"}]
)
def test_a_backend_cannot_speak_as_the_router(error: dict[str, str]) -> None:
    """signals.md §9.2: the original takes any text in `error.code` for its own code."""
    body = json.dumps({"error": {**error, "message": "m"}}).encode()
    assert classify(400, "application/json", body).reason.code is INVALID


def test_a_prompt_too_long_is_found_in_an_original_agents_envelope() -> None:
    """O-13 (b) through an original agent, which answers 502 for the engine's 500."""
    body = agent_error_body(ERROR, "This model's maximum context length is 8192 tokens", Blame.BACKEND)
    assert classify(502, "application/json", body).reason.code is CONTEXT


@pytest.mark.parametrize(
    ("content_type", "body"), [("text/html; charset=utf-8", b"<html>502</html>"), ("", b""), ("", b" \n")]
)
def test_a_body_that_tells_nothing_is_replaced_by_the_status(content_type: str, body: bytes) -> None:
    assert classify(502, content_type, body).reason.message == "the backend answered with HTTP status 502"


def test_a_readable_message_stands_whatever_the_content_type_claims() -> None:
    assert classify(502, "text/html", b'{"message":"m"}').reason.message == "m"


def test_an_agents_error_body_is_written_as_the_original_writes_it() -> None:
    """vectors/wire-agent-responses.json, `error_escaping`."""
    assert agent_error_body(ERROR, 'a<b>&\u2028"q"', Blame.BACKEND) == (
        b'{"error":{"code":"backend_error","message":"a\\u003cb\\u003e\\u0026\\u2028\\"q\\"","source":"backend"}}'
    )


def test_half_a_surrogate_pair_does_not_stop_an_error_from_being_written() -> None:
    assert json.loads(agent_error_body(ERROR, "a\ud800", Blame.BACKEND))["error"]["message"] == "a\ufffd"


NOW = UnixTime(1_700_000_000.0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("99999999999999999999", 3600.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0.0),
        ("Tue, 14 Nov 2028 22:13:10 GMT", 3600.0),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
    ],
)
def test_a_time_to_come_back_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after_s(value, now=NOW) == seconds


@given(st.integers(100, 599), st.text(max_size=30), st.binary(max_size=300))
def test_any_answer_is_classified_within_the_bounds(status: int, content_type: str, body: bytes) -> None:
    failure = classify(status, content_type, body)
    assert 0 < len(failure.reason.message.encode()) <= 512
    assert failure.reason.status in {400, 404, 413, 429, 501, 502, 503}
    assert failure.retryable == failure.counts_against_agent
    assert failure.retryable == (failure.reason.status in {502, 503} and not failure.is_operators)
    assert chat_refusal(status, body).status in {400, 502, 503}
