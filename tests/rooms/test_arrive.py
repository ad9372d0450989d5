"""Routes, methods, bodies, models and deadlines of what comes to the door."""

from typing import Final

import pytest
from tests.fakes.exchange import FakeArrived, FakeDigest, FakeExchange

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.refusals import RefusalReason
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import CHAT_COMPLETIONS, INFERENCE_PATHS, MESSAGES
from hivenet_router.ports import ClientGone
from hivenet_router.router.arrive import ToControl, ToInference, ToNowhere, ToPreflight, read, way_of
from hivenet_router.router.refuse import Refusal
from hivenet_router.router.stages import Request

NOW: Final = Monotonic(1000.0)


def nowhere(method: str, path: str) -> Refusal:
    way = way_of(method, path)
    assert isinstance(way, ToNowhere), way
    return way.refusal


def read_from(exchange: FakeExchange, path: str = CHAT_COMPLETIONS) -> Request:
    return read(exchange, INFERENCE_PATHS[path], request_timeout_s=60.0, now=NOW)


def refused(arrived: FakeArrived) -> RefusalReason:
    with pytest.raises(Refusal) as caught:
        read_from(FakeExchange(arrived))
    return caught.value.reason


@pytest.mark.parametrize("path", sorted(INFERENCE_PATHS))
@pytest.mark.parametrize("slash", ["", "/"])
def test_each_inference_path_is_reached_by_post_with_and_without_a_slash_behind_it(path: str, slash: str) -> None:
    assert way_of("POST", path + slash) == ToInference(INFERENCE_PATHS[path], path)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "TRACE", "PATCH", "post"])
def test_another_method_on_an_inference_path_is_405_and_says_which_is_allowed(method: str) -> None:
    refusal = nowhere(method, CHAT_COMPLETIONS)
    assert (refusal.reason.status, refusal.reason.code) == (405, ErrorCode.METHOD_NOT_ALLOWED)
    assert refusal.fields == [(b"allow", b"POST")]


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/health", "/health"),
        ("/health/", "/health"),
        ("/v1/models", "/v1/models"),
        ("/v1/models/", "/v1/models"),
        ("/v1/models/m", "/v1/models/*model"),
        ("/v1/models/org/name:7b", "/v1/models/*model"),
        ("/v1/models/org%2Fname%3A7b/", "/v1/models/*model"),
        ("/v1/models//", "/v1/models/*model"),
        ("/v1/models/..%2f", "/v1/models/*model"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_the_router_says_about_itself_is_read_by_get_and_head(method: str, path: str, route: str) -> None:
    assert way_of(method, path) == ToControl(route)


@pytest.mark.parametrize("method", ["POST", "TRACE", "DELETE"])
def test_nothing_is_written_to_what_is_only_read(method: str) -> None:
    refusal = nowhere(method, "/v1/models/m")
    assert (refusal.reason.status, refusal.fields) == (405, [(b"allow", b"GET, HEAD")])


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "*",
        "//v1/models",
        "/V1/models",
        "/v1",
        "/v1/modelsx",
        "/v1%2Fmodels",
        "/metrics",
        "/v1/chat/completions//",
        "/v1/../v1/chat/completions",
        "/v1/audio/speech",
        "/v1/load_lora_adapter",
        "example.org:443",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "CONNECT"])
def test_any_other_path_leads_nowhere(method: str, path: str) -> None:
    refusal = nowhere(method, path)
    assert (refusal.reason.status, refusal.reason.code) == (404, ErrorCode.NOT_FOUND)


@pytest.mark.parametrize("path", ["/health", "/v1/messages", "/nowhere", "*"])
def test_options_is_a_preflight_wherever_it_goes(path: str) -> None:
    assert way_of("OPTIONS", path) == ToPreflight()


def test_a_very_long_path_is_not_repeated_whole() -> None:
    assert len(nowhere("GET", "/" + "x" * 10_000).reason.message) < 200


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        ("too_large", 413, ErrorCode.REQUEST_INVALID),
        ("incomplete", 400, ErrorCode.REQUEST_INVALID),
        ("bad_chunk", 400, ErrorCode.REQUEST_INVALID),
        ("slow", 408, ErrorCode.REQUEST_TIMEOUT),
        ("overloaded", 503, ErrorCode.QUEUE_FULL),
        ("stopping", 503, ErrorCode.NO_AGENTS_AVAILABLE),
    ],
)
async def test_a_body_that_is_not_there_is_refused(problem: str, status: int, code: ErrorCode) -> None:
    why = refused(FakeArrived(problem=problem))
    assert (why.status, why.code) == (status, code)


async def test_a_body_that_cannot_be_read_is_refused_with_what_is_wrong_with_it() -> None:
    why = refused(FakeArrived(digest_error="line 1: a comma is missing"))
    assert (why.status, why.code) == (400, ErrorCode.REQUEST_INVALID)
    assert "line 1: a comma is missing" in why.message


@pytest.mark.parametrize("model", [None, ""])
async def test_a_body_without_a_model_is_refused(model: str | None) -> None:
    why = refused(FakeArrived(digest=FakeDigest(model)))
    assert (why.status, why.code) == (400, ErrorCode.REQUEST_INVALID)


@pytest.mark.parametrize(("model", "is_taken"), [("x" * 256, True), ("x" * 257, False), ("模" * 86, False)])
async def test_a_models_name_has_at_most_256_bytes(model: str, is_taken: bool) -> None:
    arrived = FakeArrived(digest=FakeDigest(model))
    if is_taken:
        assert read_from(FakeExchange(arrived)).model == model
    else:
        assert refused(arrived).status == 400


async def test_names_are_taken_byte_for_byte() -> None:
    assert read_from(FakeExchange(FakeArrived(digest=FakeDigest(" Org/Name:7b ")))).model == " Org/Name:7b "


@pytest.mark.parametrize(
    ("query", "target"),
    [
        ("", b"/v1/messages"),
        ("beta=true", b"/v1/messages?beta=true"),
        ("a=1&&b=%20&a=", b"/v1/messages?a=1&&b=%20&a="),
        ("rt=secret", b"/v1/messages"),
        ("beta=true&rt=secret&x=1&rt", b"/v1/messages?beta=true&x=1"),
        ("part=1&xrt=2", b"/v1/messages?part=1&xrt=2"),
    ],
)
async def test_the_query_goes_along_but_for_a_redirect_token(query: str, target: bytes) -> None:
    arrived = FakeArrived(path=MESSAGES + "/", query=query, digest=FakeDigest("m"))
    assert read_from(FakeExchange(arrived), MESSAGES).target == target


async def test_the_deadline_counts_from_the_arrival() -> None:
    assert read_from(FakeExchange(FakeArrived(digest=FakeDigest("m")))).deadline == NOW + 60.0


async def test_a_request_whose_client_has_left_already_is_not_read() -> None:
    exchange = FakeExchange(FakeArrived(digest=FakeDigest("m")))
    exchange.leave()
    with pytest.raises(ClientGone):
        read_from(exchange)
