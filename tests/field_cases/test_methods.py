"""O-15: what browsers, probes and old clients ask with.

A preflight needs no key; that it stays so is tried again with keys, which the router does not have yet.
"""

import json
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, TEST_MODEL, Bench
from tests.field_cases.engine import Turn
from tests.field_cases.words import ANSWER, CHUNKED_HEAD, STREAMS, chunk, streams
from tests.house.client import CHAT, MESSAGES, Connection, ask, connected, error_of, exchange
from tests.raw_http import Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

READ_PATHS: Final = ("/health", "/v1/models", f"/v1/models/{TEST_MODEL}")
PATHS: Final = (*READ_PATHS, *BODIES)
ASKED: Final = "authorization,content-type,x-api-key,anthropic-version,anthropic-beta,x-stainless-os"


async def tell(client: Connection, method: str, target: str, *fields: str, version: str = "1.1") -> Reply:
    """Ask without a body, with these header lines."""
    lines = "".join(f"{line}\r\n" for line in fields)
    client.send(f"{method} {target} HTTP/{version}\r\nHost: h\r\n{lines}\r\n".encode())
    return await client.reply(bodiless=method == "HEAD")


def words(value: str | None) -> set[str]:
    """The words of a comma-separated header value, lower case."""
    return {word.strip().lower() for word in (value or "").split(",")}


@pytest.mark.parametrize("path", [*PATHS, "/nowhere", "*"])
async def test_o15_a_preflight_is_answered_without_a_key_and_may_send_all_it_asks_for(bench: Bench, path: str) -> None:
    async with connected(bench.http) as client:
        reply = await tell(
            client,
            "OPTIONS",
            path,
            "Origin: https://ui.example",
            "Access-Control-Request-Method: POST",
            f"Access-Control-Request-Headers: {ASKED}",
        )
        assert (reply.status, reply.body) == (204, b"")
        assert words(ASKED) <= words(reply.header("access-control-allow-headers"))
        assert {"get", "post", "head", "options"} <= words(reply.header("access-control-allow-methods"))
        assert reply.header("access-control-allow-origin") == "*"
        assert {"content-length", "transfer-encoding"} & {name.lower() for name, _ in reply.headers} == set()
        assert (await tell(client, "GET", "/health")).status == 200
    assert all(engine.turns == [] for engine in bench.engines.values())


@pytest.mark.parametrize("path", [*READ_PATHS, "/v1/models/nobody-s", "/nowhere", CHAT])
async def test_o15_head_says_what_get_says_without_the_body(bench: Bench, path: str) -> None:
    """The next answer on the connection follows at once, so that no byte of a body can have come."""
    async with connected(bench.http) as client:
        got, head = await tell(client, "GET", path), await tell(client, "HEAD", path)
        again = await tell(client, "GET", path)
    assert head.status == got.status == again.status

    def told(reply: Reply) -> list[tuple[str, str]]:
        return [(name.lower(), value) for name, value in reply.headers if "request-id" not in name.lower()]

    if got.status != 405:
        assert told(head) == told(got)
    assert again.body == got.body


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "BREW"])
@pytest.mark.parametrize("path", BODIES)
async def test_o15_a_wrong_method_on_a_path_that_takes_post_is_405_with_allow(
    bench: Bench, path: str, method: str
) -> None:
    async with connected(bench.http) as client:
        for target in (path, f"{path}/"):
            reply = await tell(client, method, target, "Authorization: Bearer do-not-echo")
            check_not_allowed(reply, method, target, {"post"})
    assert all(engine.turns == [] for engine in bench.engines.values())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "BREW"])
@pytest.mark.parametrize("path", READ_PATHS)
async def test_o15_a_wrong_method_on_a_path_that_is_read_is_405_with_allow(
    bench: Bench, path: str, method: str
) -> None:
    async with connected(bench.http) as client:
        reply = await tell(client, method, path, "Authorization: Bearer do-not-echo")
        check_not_allowed(reply, method, path, {"get", "head"})


def check_not_allowed(reply: Reply, method: str, path: str, allowed: set[str]) -> None:
    """It is told in the dialect of its path, and repeats nothing that was sent."""
    assert reply.status == 405
    assert words(reply.header("allow")) == allowed
    assert reply.header("content-type") == "application/json"
    if method != "HEAD":
        assert (error_of(reply)["code"], error_of(reply)["source"]) == ("method_not_allowed", "router")
        assert reply.json().get("type") == ("error" if path.startswith(MESSAGES) else None)
    assert b"do-not-echo" not in reply.body


@pytest.mark.parametrize("method", ["GET", "POST", "TRACE", "DELETE"])
@pytest.mark.parametrize(
    "target",
    ["/", "/nowhere", "/v1", "//v1/models", "/v1/messages/nowhere", "/v1/audio/speech", "/v1/load_lora_adapter"],
)
async def test_o15_an_unknown_path_is_404_in_the_envelope(bench: Bench, target: str, method: str) -> None:
    async with connected(bench.http) as client:
        reply = await tell(client, method, target)
        assert (reply.status, error_of(reply)["code"], error_of(reply)["source"]) == (404, "not_found", "router")
        assert reply.json().get("type") == ("error" if target.startswith(MESSAGES) else None)
        assert (await tell(client, "GET", "/health")).status == 200
    assert all(engine.turns == [] for engine in bench.engines.values())


async def test_o15_connect_to_an_authority_is_no_tunnel(bench: Bench) -> None:
    answer = await exchange(bench.http, b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\nConnection: close\r\n\r\n")
    assert answer.split(b" ")[1] in (b"404", b"405")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["source"] == "router"


@pytest.mark.parametrize("path", BODIES)
async def test_o15_one_slash_behind_a_path_is_as_good_as_none(bench: Bench, path: str) -> None:
    reply = await ask(bench.http, f"{path}/", BODIES[path])
    assert (reply.status, reply.body) == (200, ANSWER)
    assert bench.engine_of(path).turns[-1].request.path == path
    assert (await ask(bench.http, f"{path}//", BODIES[path])).status == 404


@pytest.mark.parametrize("scheme", ["http", "HTTP", "https"])
async def test_o15_a_target_in_absolute_form_is_read_by_its_path(bench: Bench, scheme: str) -> None:
    async with connected(bench.http) as client:
        assert (await tell(client, "GET", f"{scheme}://elsewhere.example/health?x=1")).status == 200
        body = json.dumps(BODIES[CHAT]).encode()
        head = f"POST {scheme}://elsewhere.example{CHAT} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
        client.send(head.encode() + body)
        assert (await client.reply()).status == 200
    assert bench.engine.turns[-1].request.line == f"POST {CHAT} HTTP/1.1"


async def test_o15_a_query_does_not_hide_a_path(bench: Bench) -> None:
    async with connected(bench.http) as client:
        assert (await tell(client, "GET", "/health?x=1")).json() == {"status": "ok"}
        assert (await tell(client, "GET", "/v1/models?limit=1000")).status == 200
        assert (await tell(client, "HEAD", "/health?")).status == 200


async def test_o15_a_header_of_more_than_a_megabyte_is_431_and_can_be_read(bench: Bench) -> None:
    for target in ("GET /health", f"POST {CHAT}"):
        async with connected(bench.http) as client:
            client.send(f"{target} HTTP/1.1\r\nHost: h\r\nX-Long: {'y' * 1_200_000}\r\n\r\n".encode())
            await client.drain()
            reply = await client.reply()
            assert (reply.status, error_of(reply)["code"]) == (431, "request_invalid")
            assert (await client.rest()) == (b"", "fin")


def old(path: str, *, stream: bool, keeps: bool) -> bytes:
    """A request of an HTTP/1.0 client."""
    body = json.dumps({**BODIES[path], "stream": stream}).encode()
    keep = "Connection: keep-alive\r\n" if keeps else ""
    return f"POST {path} HTTP/1.0\r\n{keep}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("path", STREAMS)
async def test_o15_an_http_1_0_client_gets_a_length_and_keeps_its_connection_if_it_asks_to(
    bench: Bench, path: str
) -> None:
    async with connected(bench.http) as client:
        for _ in range(2):
            client.send(old(path, stream=False, keeps=True))
            reply = await client.reply()
            assert (reply.status, reply.body) == (200, ANSWER)
            assert (reply.header("transfer-encoding"), reply.header("connection")) == (None, "keep-alive")
        client.send(old(path, stream=False, keeps=False))
        reply = await client.reply()
        assert (reply.status, reply.body, reply.header("transfer-encoding")) == (200, ANSWER, None)
        assert (await client.rest()) == (b"", "fin")


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("path", STREAMS)
async def test_o15_an_http_1_0_client_gets_a_stream_without_chunks_that_ends_with_the_connection(
    bench: Bench, path: str, keeps: bool
) -> None:
    body = STREAMS[path].opening + STREAMS[path].piece + STREAMS[path].closing
    bench.begin(streams(body))
    async with connected(bench.http) as client:
        client.send(old(path, stream=True, keeps=keeps))
        reply = await client.reply()
    assert (reply.status, reply.ending, reply.body) == (200, "fin", body)
    assert {"transfer-encoding", "content-length"} & {name.lower() for name, _ in reply.headers} == set()
    assert reply.header("connection") == "close"


@pytest.mark.parametrize("path", STREAMS)
async def test_o15_an_http_1_0_client_is_told_that_its_stream_broke_off(bench: Bench, path: str) -> None:
    """The end of the connection tells nothing there, so the error event has to."""

    async def breaks(turn: Turn) -> None:
        await turn.send(CHUNKED_HEAD, chunk(STREAMS[path].piece))
        await turn.arrived()
        turn.end("rst")

    bench.begin(breaks)
    async with connected(bench.http) as client:
        client.send(old(path, stream=True, keeps=False))
        reply = await client.reply()
    assert reply.body.startswith(STREAMS[path].piece)
    assert STREAMS[path].error in reply.body


async def test_o15_probes_of_an_http_1_0_client_are_answered_and_closed(bench: Bench) -> None:
    for method in ("GET", "HEAD"):
        answer = await exchange(bench.http, f"{method} /health HTTP/1.0\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split(b" ")[1] == b"200"
        assert b"transfer-encoding" not in head.lower()
        assert body == (b'{"status":"ok"}' if method == "GET" else b"")
