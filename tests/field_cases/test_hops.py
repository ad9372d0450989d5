"""O-10, A-03: what concerns one hop stays on it, and no bytes of one request become another's.

Credentials cross as the operator says. Calls to providers, which never carry the client's key, come with the provider
fall-back.
"""

import json
from pathlib import Path
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, SLASHED, TEST_MODEL, Bench, Seat, bench_in
from tests.field_cases.words import ANSWER, CHUNKED_HEAD, LAST_CHUNK, STREAMS, chunk, says, whole_answer
from tests.house.client import CHAT, MESSAGES, Connection, ask, connected, error_of, exchange, hello
from tests.house.raw_engine import sized
from tests.raw_http import Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENT_SAYS: Final = (
    ("Connection", "X-Foo, keep-alive"),
    ("X-Foo", "1"),
    ("TE", "trailers"),
    ("Proxy-Authorization", "x"),
    ("Proxy-Connection", "keep-alive"),
    ("Upgrade", "h2c"),
    ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
    ("Keep-Alive", "timeout=5"),
    ("Trailer", "X-T"),
    ("Cookie", "a=b"),
    ("X-Api-Key", "k"),
    ("Authorization", "Bearer k"),
    ("X-Bar", "two  words"),
)
HOPS: Final = {
    "connection",
    "x-foo",
    "te",
    "proxy-authorization",
    "proxy-connection",
    "upgrade",
    "http2-settings",
    "keep-alive",
    "trailer",
}
ENGINE_SAYS: Final = (
    ("Connection", "X-Secret, keep-alive"),
    ("X-Secret", "1"),
    ("Keep-Alive", "timeout=1"),
    ("Proxy-Authenticate", "Basic"),
    ("Proxy-Authentication-Info", "x"),
    ("Trailer", "X-T"),
    ("Upgrade", "h2c"),
    ("X-Engine", "kept"),
)
SITE: Final = (
    ("Set-Cookie", "a=1"),
    ("Set-Cookie", "b=2; Domain=example.org"),
    ("Strict-Transport-Security", "max-age=31536000; includeSubDomains"),
    ("Refresh", "0; url=http://evil.example/"),
    ("Alt-Svc", 'h2="evil.example:443"'),
    ("Clear-Site-Data", '"*"'),
    ("Access-Control-Allow-Origin", "http://evil.example"),
    ("Access-Control-Allow-Credentials", "true"),
    ("X-RateLimit-Remaining-Requests", "0"),
    ("X-RateLimit-Policy", "5"),
    ("RateLimit", "r=0"),
    ("X-Request-ID", "theirs"),
)
"""What an engine says of a whole site, or under names that are the router's."""


def lines(fields: tuple[tuple[str, str], ...]) -> bytes:
    """Header lines of a head."""
    return "".join(f"{name}: {value}\r\n" for name, value in fields).encode()


def post(path: str, body: bytes, *fields: tuple[str, str]) -> bytes:
    """A request with these fields."""
    length = ("Content-Length", str(len(body)))
    return f"POST {path} HTTP/1.1\r\nHost: evil.example\r\n".encode() + lines((*fields, length)) + b"\r\n" + body


def request_for(path: str, *fields: tuple[str, str], stream: bool = False) -> bytes:
    """A sound request for this path with these fields besides."""
    return post(path, json.dumps({**BODIES[path], **({"stream": True} if stream else {})}).encode(), *fields)


async def ask_raw(client: Connection, data: bytes) -> Reply:
    """Send exactly this, and read the answer."""
    client.send(data)
    return await client.reply()


def names(fields: list[tuple[str, str]]) -> set[str]:
    """Names, lower case."""
    return {name.lower() for name, _ in fields}


@pytest.mark.parametrize("path", BODIES)
async def test_o10_what_a_client_says_of_its_hop_never_reaches_the_engine(bench: Bench, path: str) -> None:
    async with connected(bench.http) as client:
        for _ in range(2):
            assert (await ask_raw(client, request_for(path, *CLIENT_SAYS))).status == 200
    for turn in bench.engine_of(path).turns:
        sent = [(name.lower(), value) for name, value in turn.request.headers]
        assert names(sent) & HOPS == set()
        assert {("cookie", "a=b"), ("x-bar", "two  words")} <= set(sent)
        assert [value for name, value in sent if name == "host"] == [f"127.0.0.1:{bench.engine_of(path).port}"]
        assert [name for name, _ in sent].count("content-length") == 1


@pytest.mark.parametrize("path", BODIES)
async def test_o10_what_an_engine_says_of_its_hop_never_reaches_the_client(bench: Bench, path: str) -> None:
    bench.begin(says(*sized(ANSWER, extra=lines((*ENGINE_SAYS, *SITE)).decode()).pieces))
    async with connected(bench.http) as client:
        for _ in range(2):
            reply = await ask_raw(client, request_for(path))
            assert (reply.status, reply.body) == (200, ANSWER)
            check_told(reply)


@pytest.mark.parametrize("path", STREAMS)
async def test_o10_a_stream_s_head_says_no_more_than_a_buffered_one_s(bench: Bench, path: str) -> None:
    stream = STREAMS[path]
    body = stream.piece + stream.closing
    head = CHUNKED_HEAD.removesuffix(b"\r\n") + lines((*ENGINE_SAYS, *SITE)) + b"\r\n"
    bench.begin(says(head + chunk(body) + LAST_CHUNK))
    async with connected(bench.http) as client:
        reply = await ask_raw(client, request_for(path, stream=True))
    assert (reply.status, reply.body) == (200, body)
    check_told(reply)


def check_told(reply: Reply) -> None:
    """Nothing of the engine's hop and nothing about the site is in this answer, and all else is."""
    told = [(name.lower(), value) for name, value in reply.headers]
    assert ("x-engine", "kept") in told
    assert not names(told) & {"x-secret", "keep-alive", "upgrade", "trailer", "proxy-authenticate"}
    assert not names(told) & {"proxy-authentication-info", "connection"}
    assert not names(told) & {"set-cookie", "strict-transport-security", "refresh", "alt-svc", "clear-site-data"}
    assert not names(told) & {"access-control-allow-credentials", "x-ratelimit-remaining-requests"}
    assert not names(told) & {"x-ratelimit-policy", "ratelimit"}
    assert [value for name, value in told if name == "access-control-allow-origin"] == ["*"]
    assert [value for name, value in told if name == "x-request-id"] != ["theirs"]
    assert len([name for name, _ in told if name == "x-request-id"]) == 1


async def test_o10_credentials_cross_only_where_the_operator_allows_it(bench: Bench, tmp_path: Path) -> None:
    """They do unless told otherwise."""

    async def crossing(on: Bench) -> set[str]:
        found = set()
        for path in (CHAT, MESSAGES):
            async with connected(on.http) as client:
                assert (await ask_raw(client, request_for(path, *CLIENT_SAYS))).status == 200
            found |= names(on.engine.turns[-1].request.headers) & {"authorization", "x-api-key"}
        return found

    assert await crossing(bench) == {"authorization", "x-api-key"}
    async with bench_in(tmp_path, [Seat("test", TEST_MODEL)], "--strip-client-authorization") as strict:
        assert await crossing(strict) == set()


BODY: Final = json.dumps(hello(TEST_MODEL)).encode()
POST: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
SMUGGLED: Final = post(CHAT, json.dumps(hello(SLASHED)).encode())
MALFORMED: Final[dict[str, tuple[bytes, set[int]]]] = {
    "a length beside chunked": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    "chunked beside a length": (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", {400}),
    "a length that covers what is smuggled": (
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (len(SMUGGLED) + 5),
        {400},
    ),
    "two lengths": (b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", {400}),
    "two equal lengths": (b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", {400}),
    "xchunked": (b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "chunked twice": (b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", {400}),
    "chunked in two lines": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    "chunked and then identity": (b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", {400}),
    "chunked with a vertical tab": (b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", {400}),
    "a length with a plus": (b"Content-Length: +5\r\n\r\nhello", {400}),
    "a negative length": (b"Content-Length: -1\r\n\r\nhello", {400}),
    "a list of lengths": (b"Content-Length: 5, 5\r\n\r\nhello", {400}),
    "a length in hex": (b"Content-Length: 0x5\r\n\r\nhello", {400}),
    "a blank before the colon": (b"Content-Length : 5\r\n\r\nhello", {400}),
    "a bare line feed": (b"X-A: b\nContent-Length: 5\r\n\r\nhello", {400}),
    "bare line feeds alone": (b"Content-Length: 5\n\nhello", {400}),
    "a folded line": (b"X-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello", {400}),
    "a folded length": (b"Content-Length:\r\n 5\r\n\r\nhello", {400}),
    "a nul in a value": (b"X-A: b\0c\r\nContent-Length: 5\r\n\r\nhello", {400}),
    "a nul in a name": (b"X-\0A: b\r\nContent-Length: 5\r\n\r\nhello", {400}),
    "two hosts": (b"Host: g\r\nContent-Length: 5\r\n\r\nhello", {400}),
    "a chunk size without end": (b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", {400}),
    "a longer chunk size without end": (b"Transfer-Encoding: chunked\r\n\r\n1" + b"0" * 20 + b"\r\nhello\r\n", {400}),
    "a negative chunk size": (b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", {400}),
    "a chunk longer than it says": (b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", {400}),
    "a chunk ended by a bare line feed": (b"Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n", {400}),
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("path", BODIES)
async def test_o10_a_malformed_request_is_refused_closed_and_hides_no_other(bench: Bench, path: str, name: str) -> None:
    fields, statuses = MALFORMED[name]
    answer = await exchange(bench.http, f"POST {path} HTTP/1.1\r\nHost: h\r\n".encode() + fields + SMUGGLED)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split(b" ")[1]) in statuses
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert {"code", "message", "source"} <= error.keys()
    assert (error["code"], error["source"]) == ("request_invalid", "router")
    assert all(engine.turns == [] for engine in bench.engines.values())


async def test_o10_a_request_without_host_is_refused(bench: Bench) -> None:
    answer = await exchange(
        bench.http, b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello" + SMUGGLED
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert all(engine.turns == [] for engine in bench.engines.values())


POISON: Final = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"p": 1}'
SPLIT: Final = {
    "more behind the answer": b"".join(sized(ANSWER).pieces) + POISON,
    "a length beside chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + POISON,
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n" + POISON,
    "more behind the last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + POISON,
    "a chunk longer than it says": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n"
    + POISON,
    "a bare line feed": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}" + POISON,
}


@pytest.mark.parametrize("name", SPLIT)
async def test_o10_bytes_of_one_answer_never_become_another_s(bench: Bench, name: str) -> None:
    """The other way round: an engine that says more than one answer to one question."""
    bench.begin(says(SPLIT[name]))
    assert (await ask(bench.http, CHAT, hello(TEST_MODEL))).status in (200, 502, 503)
    bench.begin(whole_answer)
    for path in (CHAT, MESSAGES, CHAT):
        reply = await ask(bench.http, path, hello(TEST_MODEL, max_tokens=5))
        assert (reply.status, reply.body) == (200, ANSWER)


@pytest.mark.parametrize("path", BODIES)
async def test_a03_many_headers_and_a_long_one_reach_the_engine(bench: Bench, path: str) -> None:
    many = [(f"X-{number}", "y") for number in range(500)]
    async with connected(bench.http) as client:
        assert (await ask_raw(client, request_for(path, *many))).status == 200
        assert (await ask_raw(client, request_for(path, ("X-Long", "y" * 70_000)))).status == 200
    first, second = bench.engine_of(path).turns
    assert {(name.lower(), value) for name, value in many} <= {
        (name.lower(), value) for name, value in first.request.headers
    }
    assert [value for name, value in second.request.headers if name.lower() == "x-long"] == ["y" * 70_000]


FIELDS_MAX: Final = 512
HEAD_BYTES_MAX: Final = 128 * 1024
"""The bounds that docs/http.md tells."""


async def status_of(bench: Bench, data: bytes) -> int:
    """The status of the answer to exactly this."""
    async with connected(bench.http) as client:
        reply = await ask_raw(client, data)
        if reply.status == 431:
            assert (error_of(reply)["code"], error_of(reply)["source"]) == ("request_invalid", "router")
        return reply.status


async def test_a03_the_bounds_on_a_head_are_as_documented_and_beyond_them_stands_431(bench: Bench) -> None:
    """Up to the bound a request reaches the engine, with what the router adds; one more is never a 400."""
    own = POST + b"Content-Length: %d\r\n" % len(BODY)
    for number, status in ((FIELDS_MAX, 200), (FIELDS_MAX + 1, 431), (2 * FIELDS_MAX, 431), (5000, 431)):
        rest = lines(tuple((f"X-{at}", "y") for at in range(number - 2)))
        assert await status_of(bench, own + rest + b"\r\n" + BODY) == status, number
    for size, status in ((HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431), (1_200_000, 431)):
        long = b"X-Long: " + b"y" * (size - len(own) - len(b"X-Long: \r\n\r\n"))
        assert await status_of(bench, own + long + b"\r\n\r\n" + BODY) == status, size
    assert len(bench.engine.turns) == 2
