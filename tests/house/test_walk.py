"""The walk through the running house: every path, buffered and streamed, and what is answered without an agent."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.house.client import CHAT, MESSAGES, MODEL, ask, connected, error_of, hello
from tests.house.running import House, house_in, router_in
from tests.raw_http import Reply, at

from hivenet_router.names.paths import INFERENCE_PATHS
from hivenet_router.sim import RecordedRequest, SimOptions

EMBEDDER, RERANKER = "embedder", "org/reranker:7b"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A router with a model of each capability, two agents for the first."""
    async with house_in(tmp_path_factory.mktemp("house")) as house:
        for model, capability in ((EMBEDDER, "embedding"), (RERANKER, "reranker")):
            engine = await house.add_engine(SimOptions(models=(model,)))
            await house.add_agent(engine.url, f"--capability={capability}")
        await house.add_agent(house.engines[0].url)
        yield house
        await house.rests()


def last(house: House, path: str) -> RecordedRequest:
    """What an engine was last asked on this path."""
    asked = [record for engine in house.engines for record in engine.requests(path)]
    return max(asked, key=lambda record: record.received_s)


BODIES: dict[str, dict[str, object]] = {
    CHAT: hello(),
    "/v1/completions": {"model": MODEL, "prompt": "hi"},
    MESSAGES: hello(max_tokens=5),
    "/v1/messages/count_tokens": hello(),
    "/v1/embeddings": {"model": EMBEDDER, "input": "x"},
    "/v1/rerank": {"model": RERANKER, "query": "x", "documents": ["x", "y"]},
}


@pytest.mark.parametrize("path", BODIES)
async def test_each_path_is_answered_by_the_engine_with_the_bytes_it_wrote(house: House, path: str) -> None:
    reply = await ask(house.http, path, BODIES[path])
    assert reply.status == 200
    assert reply.header("content-type") == "application/json"
    assert "error" not in reply.json()
    served = last(house, path)
    assert json.loads(served.body_head) == BODIES[path]
    assert (served.outcome, served.target) == ("finished", path)


@pytest.mark.parametrize(
    ("path", "end"), [(CHAT, "data: [DONE]\n\n"), ("/v1/completions", "data: [DONE]\n\n"), (MESSAGES, "message_stop")]
)
async def test_a_stream_comes_whole_and_the_connection_lives_on(house: House, path: str, end: str) -> None:
    async with connected(house.http) as connection:
        for _ in range(2):
            connection.ask(path, {**BODIES[path], "stream": True})
            reply = await connection.reply()
            assert (reply.status, reply.ending) == (200, "kept")
            assert end in reply.body.decode()[-80:]
            assert (reply.header("content-type") or "").startswith("text/event-stream")
            assert reply.header("cache-control") == "no-cache"
            assert reply.header("x-accel-buffering") == "no"
            assert len(reply.events()) > 2


def anthropic_error(reply: Reply) -> tuple[object, object, object]:
    document = reply.json()
    return document["type"], at(document, "error", "type"), at(document, "error", "code")


async def test_refusals_have_the_shape_of_the_client_s_dialect(house: House) -> None:
    openai = await ask(house.http, CHAT, hello("nobody's"))
    assert openai.status == 404
    assert openai.json() == {
        "error": {
            "code": "model_not_found",
            "message": error_of(openai)["message"],
            "source": "router",
            "type": "not_found_error",
            "param": None,
        }
    }
    anthropic = await ask(house.http, MESSAGES, hello("nobody's"))
    assert anthropic.status == 404
    assert anthropic_error(anthropic) == ("error", "not_found_error", "model_not_found")
    assert anthropic.json()["request_id"] == anthropic.header("request-id") == anthropic.header("x-request-id")


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_an_engine_s_complaint_keeps_its_words_in_both_dialects(house: House, path: str) -> None:
    reply = await ask(house.http, path, hello(max_tokens=5), x_sim="status=400,body=bad%20temperature")
    assert reply.status == 400
    error = error_of(reply)
    assert (error["code"], error["source"], error["type"]) == ("invalid_parameter", "backend", "invalid_request_error")
    assert "bad temperature" in str(error["message"])


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/embeddings"])
async def test_the_request_id_of_the_client_reaches_the_engine_and_comes_back(house: House, path: str) -> None:
    mine = str(uuid.uuid4()).upper()
    reply = await ask(house.http, path, BODIES[path], x_request_id=mine)
    assert [value for name, value in reply.headers if name.lower() == "x-request-id"] == [mine]
    assert [value for name, value in last(house, path).headers if name.lower() == "x-request-id"] == [mine]


@pytest.mark.parametrize("given", ["", "not-a-uuid", "x" * 5000, "urn:uuid:0af76519-16cd-43dd-8448-eb211c80319c"])
async def test_a_request_id_that_is_none_is_replaced_everywhere(house: House, given: str) -> None:
    reply = await ask(house.http, CHAT, hello(), x_request_id=given)
    (mine,) = [value for name, value in reply.headers if name.lower() == "x-request-id"]
    assert str(uuid.UUID(mine)) == mine
    assert dict(last(house, CHAT).headers)["x-request-id"] == mine


async def test_models_are_listed_sorted_once_and_found_however_their_names_are_written(house: House) -> None:
    listing = (await ask(house.http, "/v1/models")).json()
    assert [at(model, "id") for model in listing["data"]] == sorted([MODEL, EMBEDDER, RERANKER])  # type: ignore[attr-defined]  # a list
    assert at(listing, "data", 1, "agents", "total") == 2
    for name in (RERANKER, "org%2Freranker:7b", "org%2freranker%3A7b", f"{RERANKER}/"):
        found = await ask(house.http, f"/v1/models/{name}")
        assert (found.status, found.json()["id"]) == (200, RERANKER), name
    for name in ("org/other", RERANKER.upper(), f"{RERANKER}%20", "..%2f", "%E6%A8%A1"):
        missing = await ask(house.http, f"/v1/models/{name}")
        assert (missing.status, error_of(missing)["code"]) == (404, "model_not_found"), name


async def test_a_model_s_name_counts_to_the_letter(house: House) -> None:
    for name in (MODEL.upper(), f"{MODEL} ", f" {MODEL}", "模型"):
        reply = await ask(house.http, CHAT, hello(name))
        assert (reply.status, error_of(reply)["code"]) == (404, "model_not_found"), name
    reply = await ask(house.http, "/v1/rerank", BODIES["/v1/rerank"])
    assert reply.status == 200


async def test_a_model_of_another_capability_is_named_as_what_it_is(house: House) -> None:
    reply = await ask(house.http, CHAT, hello(EMBEDDER))
    assert (reply.status, error_of(reply)["code"]) == (400, "request_invalid")
    assert "embedding" in str(error_of(reply)["message"])


async def test_health_head_and_query_and_slash(house: House) -> None:
    for path in ("/health", "/health?x=1", "/health/"):
        reply = await ask(house.http, path)
        assert (reply.status, reply.json()) == (200, {"status": "ok"}), path
    for path in ("/health", "/v1/models", f"/v1/models/{MODEL}"):
        got = await ask(house.http, path)
        head = await ask(house.http, path, method="HEAD")
        assert (head.status, head.header("content-length")) == (200, str(len(got.body))), path
    assert (await ask(house.http, f"{CHAT}/", hello())).status == 200


@pytest.mark.parametrize("path", [*BODIES, "/health", "/v1/models", "/nowhere"])
async def test_a_browser_s_preflight_is_allowed_what_it_asks_for(house: House, path: str) -> None:
    asked = "authorization,content-type,x-api-key,anthropic-version,anthropic-beta,x-stainless-os"
    reply = await ask(house.http, path, method="OPTIONS", access_control_request_headers=asked)
    assert reply.status == 204
    assert reply.header("access-control-allow-headers") == asked
    assert reply.header("access-control-allow-origin") == "*"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("DELETE", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("TRACE", MESSAGES, "POST"),
        ("POST", "/health", "GET, HEAD"),
        ("PUT", "/v1/models", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_the_right_one(house: House, method: str, path: str, allowed: str) -> None:
    reply = await ask(house.http, path, method=method)
    assert (reply.status, reply.header("allow")) == (405, allowed)
    if method != "HEAD":
        assert error_of(reply)["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "//v1/models",
        "/V1/models",
        "/v1/audio/speech",
        "/v1/load_lora_adapter",
        "/metrics",
        "/v1/messages/x",
    ],
)
async def test_what_is_nowhere_is_404_in_the_envelope_and_reaches_no_engine(house: House, path: str) -> None:
    seen = [engine.stats.seen for engine in house.engines]
    reply = await ask(house.http, path, hello())
    assert (reply.status, error_of(reply)["code"]) == (404, "not_found")
    assert reply.header("x-request-id")
    assert [engine.stats.seen for engine in house.engines] == seen


async def test_http_1_0_gets_no_chunked_coding(house: House) -> None:
    body = json.dumps(hello(stream=True)).encode()
    async with connected(house.http) as connection:
        connection.send(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (CHAT.encode(), len(body), body))
        answer, ending = await connection.rest()
    head, _, content = answer.partition(b"\r\n\r\n")
    assert (ending, b"transfer-encoding" in head.lower()) == ("fin", False)
    assert content.endswith(b"data: [DONE]\n\n")


async def test_an_absolute_target_and_a_pipelined_row_of_requests_are_served_in_order(house: House) -> None:
    async with connected(house.http) as connection:
        connection.ask("http://somewhere.example/health")
        connection.ask(CHAT, hello())
        connection.ask("/v1/models")
        statuses = [(await connection.reply()).status for _ in range(3)]
    assert statuses == [200, 200, 200]


async def test_a_client_that_expects_a_go_ahead_gets_it_and_the_engine_never_hears_of_it(house: House) -> None:
    body = json.dumps(hello()).encode()
    async with connected(house.http) as connection:
        connection.ask(CHAT, method="POST", expect="100-continue", content_length=str(len(body)))
        assert await connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(body)
        assert (await connection.reply()).status == 200
    assert "expect" not in {name.lower() for name, _ in last(house, CHAT).headers}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/v1/unknown", 404), ("PUT", CHAT, 405), ("POST", "/health", 405), ("GET", "/health", 200)],
)
async def test_a_client_that_expects_a_go_ahead_is_answered_at_once_where_its_body_is_not_wanted(
    house: House, method: str, path: str, status: int
) -> None:
    """RFC 9110 §10.1.1: no 100 where the answer is known already."""
    async with connected(house.http) as connection:
        connection.ask(path, method=method, expect="100-continue", content_length="50")
        reply = await connection.reply()
    assert (reply.status, reply.header("connection")) == (status, "close")


async def test_the_metrics_listener_wants_no_body_at_all(house: House) -> None:
    async with connected(house.metrics) as connection:
        connection.ask("/metrics", method="POST", expect="100-continue", content_length="50")
        assert (await connection.reply()).status == 405


@pytest.mark.parametrize("path", [f"{path}{slash}" for path in INFERENCE_PATHS for slash in ("", "/")])
async def test_every_inference_path_gives_the_go_ahead(house: House, path: str) -> None:
    async with connected(house.http) as connection:
        connection.ask(path, method="POST", expect="100-continue", content_length="2")
        assert await connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(b"{}")
        assert (await connection.reply()).status == 400


async def test_query_and_repeated_headers_reach_the_engine(house: House) -> None:
    lines = (
        "POST /v1/messages?beta=true&rt=secret&x=%2F HTTP/1.1\r\nHost: h\r\nanthropic-beta: one\r\n"
        "anthropic-beta: two\r\nanthropic-version: 2023-06-01\r\nx-api-key: k\r\n"
    )
    body = json.dumps(hello(max_tokens=5)).encode()
    async with connected(house.http) as connection:
        connection.send(f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert (await connection.reply()).status == 200
    record = last(house, MESSAGES)
    assert record.target == "/v1/messages?beta=true&x=%2F"
    assert [value for name, value in record.headers if name.lower() == "anthropic-beta"] == ["one", "two"]
    assert dict(record.headers)["x-api-key"] == "k"


async def test_without_agents_nothing_is_served_and_the_router_is_well(tmp_path: Path) -> None:
    async with router_in(tmp_path) as house:
        replies = await asyncio.gather(
            ask(house.http, "/health"), ask(house.http, "/v1/models"), ask(house.http, CHAT, hello())
        )
        assert [reply.status for reply in replies] == [200, 200, 404]
        assert replies[1].json()["data"] == []
        await house.rests()
