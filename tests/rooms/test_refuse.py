"""The two envelopes, the headers of refusals, and the events that end a broken stream."""

import json
from collections.abc import Iterator

import pytest
from tests.fakes.exchange import REQUEST_ID, FakeArrived, FakeExchange

from hivenet_router.core.refusals import RefusalReason, reason
from hivenet_router.names.errors import Blame, ErrorCode
from hivenet_router.names.paths import Dialect
from hivenet_router.router.refuse import (
    SEQUENCE_MARK,
    Refusal,
    answer,
    break_events,
    dialect_of,
    edge_refusals,
    envelope,
    refuse,
    reply_fields,
)

CROWDED = reason(ErrorCode.NO_CAPACITY, "full", retry_after_s=1.0)


def fields_of(refusal: Refusal) -> dict[bytes, bytes]:
    return dict(reply_fields(refusal))


def test_the_envelope_of_the_openai_paths() -> None:
    assert envelope(CROWDED, Dialect.OPENAI, REQUEST_ID) == (
        b'{"error":{"code":"no_capacity","message":"full","source":"router","type":"server_error","param":null}}'
    )


def test_the_envelope_of_the_anthropic_paths() -> None:
    assert envelope(CROWDED, Dialect.ANTHROPIC, REQUEST_ID) == (
        b'{"type":"error","error":{"type":"overloaded_error","message":"full","code":"no_capacity","source":"router"},'
        b'"request_id":"0f8fad5b-d9cb-469f-a165-70867728950e"}'
    )


@pytest.mark.parametrize(
    ("status", "openai", "anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (403, "permission_error", "permission_error"),
        (404, "not_found_error", "not_found_error"),
        (408, "invalid_request_error", "invalid_request_error"),
        (413, "invalid_request_error", "request_too_large"),
        (418, "invalid_request_error", "invalid_request_error"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (502, "server_error", "api_error"),
        (503, "server_error", "overloaded_error"),
        (504, "server_error", "timeout_error"),
        (599, "server_error", "api_error"),
    ],
)
def test_the_type_follows_the_status(status: int, openai: str, anthropic: str) -> None:
    why = RefusalReason(ErrorCode.BACKEND_ERROR, status, "", Blame.BACKEND)
    assert json.loads(envelope(why, Dialect.OPENAI, ""))["error"]["type"] == openai
    assert json.loads(envelope(why, Dialect.ANTHROPIC, ""))["error"]["type"] == anthropic


def test_text_that_could_be_markup_is_escaped_and_what_cannot_be_sent_is_replaced() -> None:
    text = "<b>&模型\ud800"
    body = envelope(reason(ErrorCode.NOT_FOUND, text), Dialect.OPENAI, "")
    assert b"\\u003cb\\u003e\\u0026" in body
    assert json.loads(body)["error"]["message"] == "<b>&模型?"


@pytest.mark.parametrize(("seconds", "header"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (7.0, b"7"), (7.1, b"8")])
def test_retry_after_is_whole_seconds_and_at_least_one(seconds: float, header: bytes) -> None:
    assert fields_of(refuse(ErrorCode.QUEUE_FULL, "", retry_after_s=seconds))[b"retry-after"] == header


def test_a_refusal_without_a_time_to_wait_has_no_retry_after() -> None:
    assert reply_fields(refuse(ErrorCode.MODEL_NOT_FOUND, "")) == [(b"content-type", b"application/json")]


def test_a_401_says_how_to_authenticate() -> None:
    assert fields_of(refuse(ErrorCode.UNAUTHORIZED, ""))[b"www-authenticate"] == b'Bearer realm="hivenet-router"'


def test_headers_that_go_with_a_refusal_are_sent() -> None:
    refusal = Refusal(reason(ErrorCode.METHOD_NOT_ALLOWED, ""), [(b"allow", b"POST")])
    assert fields_of(refusal)[b"allow"] == b"POST"


def test_a_place_may_give_another_status_than_the_row_of_the_code() -> None:
    refusal = refuse(ErrorCode.REQUEST_INVALID, "too large", status=413)
    assert (refusal.reason.status, refusal.reason.source) == (413, Blame.ROUTER)


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages", Dialect.ANTHROPIC),
        ("/v1/messages/unknown", Dialect.ANTHROPIC),
        ("/v1/chat/completions", Dialect.OPENAI),
        ("/nowhere", Dialect.OPENAI),
    ],
)
def test_errors_speak_the_dialect_of_the_path_known_or_not(path: str, dialect: Dialect) -> None:
    assert dialect_of(path) is dialect


async def test_an_answer_carries_the_request_id_of_its_exchange() -> None:
    exchange = FakeExchange(FakeArrived(path="/v1/messages"))
    finished = await answer(exchange, Refusal(CROWDED), Dialect.ANTHROPIC)
    assert (finished.outcome, finished.status) == ("responded", 503)
    assert exchange.answered is not None
    assert json.loads(exchange.answered.body)["request_id"] == REQUEST_ID
    assert exchange.answered.field("Retry-After") == "1"


def test_what_the_framing_guard_refuses_has_the_envelope_too() -> None:
    assert [status for status, _ in edge_refusals()] == [400, 408, 431, 501, 505, 503]
    for status, body in edge_refusals():
        error = json.loads(body)["error"]
        assert error["code"] == ("queue_full" if status == 503 else "request_invalid")
        assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")


def events(stream: bytes) -> Iterator[tuple[str, str]]:
    """Name and data of each event, as the event-stream format reads them."""
    assert stream.endswith(b"\n\n")
    for event in stream.decode().removesuffix("\n\n").split("\n\n"):
        lines = [line.partition(": ") for line in event.split("\n")]
        names = [value for name, _, value in lines if name == "event"]
        yield (names or ["message"])[0], "\n".join(value for name, _, value in lines if name == "data")


def test_a_broken_openai_stream_ends_with_an_event_that_sdks_raise_on() -> None:
    codes = []
    for event in break_events(Dialect.OPENAI):
        [(name, data)] = events(event)
        error = json.loads(data)["error"]
        assert (name, error["type"], error["source"] in tuple(Blame)) == ("message", "server_error", True)
        codes.append(error["code"])
    assert codes == ["backend_error", "request_timeout", "request_timeout", "no_agents_available", "agent_disconnected"]


def test_a_broken_responses_stream_ends_with_an_event_of_its_own_api() -> None:
    """decisions.md 41."""
    codes = []
    for event in break_events(Dialect.RESPONSES):
        assert event.count(SEQUENCE_MARK) == 1
        [(name, data)] = events(event.replace(SEQUENCE_MARK, b"17"))
        said = json.loads(data)
        assert (name, list(said)) == ("error", ["type", "code", "message", "param", "sequence_number"])
        assert (said["type"], said["param"], said["sequence_number"]) == ("error", None, 17)
        assert said["message"]
        codes.append(said["code"])
    assert codes == ["backend_error", "request_timeout", "request_timeout", "no_agents_available", "agent_disconnected"]


def test_a_broken_anthropic_stream_ends_with_an_error_event() -> None:
    types = []
    for event in break_events(Dialect.ANTHROPIC):
        [(name, data)] = events(event)
        said = json.loads(data)
        assert (name, said["type"], set(said)) == ("error", "error", {"type", "error"})
        types.append(said["error"]["type"])
    assert types == ["api_error", "timeout_error", "timeout_error", "overloaded_error", "overloaded_error"]
