"""Is there one complete, consistent row for every error code?"""

import pytest

from hivenet_router.names.errors import (
    ANTHROPIC_TYPE_BY_STATUS,
    ERROR_RULES,
    OPENAI_TYPE_BY_STATUS,
    Blame,
    ErrorCode,
)

STATUSES = {
    "request_invalid": 400,
    "invalid_parameter": 400,
    "context_length_exceeded": 400,
    "input_too_long": 400,
    "unauthorized": 401,
    "model_forbidden": 403,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "concurrency_limit_exceeded": 429,
    "token_limit_exceeded": 429,
    "no_agents_available": 503,
    "no_capacity": 503,
    "queue_full": 503,
    "request_timeout": 504,
    "backend_error": 502,
    "agent_disconnected": 503,
    "backend_unavailable": 503,
    "model_redirected": 307,
    "not_found": 404,
    "method_not_allowed": 405,
}


def test_the_codes_and_their_statuses_are_those_clients_know() -> None:
    assert {code.value: rule.status for code, rule in ERROR_RULES.items()} == STATUSES


def test_every_code_has_a_row() -> None:
    assert set(ERROR_RULES) == set(ErrorCode)


def test_only_the_end_of_an_attempt_is_worth_another_agent() -> None:
    assert {code for code, rule in ERROR_RULES.items() if rule.try_another_agent} == {
        ErrorCode.BACKEND_ERROR,
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.AGENT_DISCONNECTED,
    }


def test_the_backend_is_blamed_only_for_what_it_said() -> None:
    assert {code for code, rule in ERROR_RULES.items() if rule.source is Blame.BACKEND} == {
        ErrorCode.INVALID_PARAMETER,
        ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ErrorCode.BACKEND_ERROR,
        ErrorCode.BACKEND_UNAVAILABLE,
    }


def test_whoever_may_come_again_is_told_when() -> None:
    assert {code for code, rule in ERROR_RULES.items() if rule.retry_after_s is not None} == {
        code for code, rule in ERROR_RULES.items() if rule.status in (429, 503)
    }
    assert all(rule.retry_after_s is None or rule.retry_after_s >= 1 for rule in ERROR_RULES.values())


def test_both_dialects_know_the_same_statuses() -> None:
    assert set(OPENAI_TYPE_BY_STATUS) == set(ANTHROPIC_TYPE_BY_STATUS)


@pytest.mark.parametrize(
    ("status", "openai", "anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (403, "permission_error", "permission_error"),
        (404, "not_found_error", "not_found_error"),
        (413, "invalid_request_error", "request_too_large"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (502, "server_error", "api_error"),
        (503, "server_error", "overloaded_error"),
        (504, "server_error", "timeout_error"),
    ],
)
def test_types_follow_the_status(status: int, openai: str, anthropic: str) -> None:
    assert (OPENAI_TYPE_BY_STATUS[status], ANTHROPIC_TYPE_BY_STATUS[status]) == (openai, anthropic)


def test_a_rule_has_the_types_of_its_status() -> None:
    rule = ERROR_RULES[ErrorCode.NO_CAPACITY]
    assert (rule.openai_type, rule.anthropic_type) == ("server_error", "overloaded_error")
