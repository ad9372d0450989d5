"""Whatever is said to the HTTP ports is answered or cut, told once, and costs nobody else anything."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from tests.house.client import CHAT, MESSAGES, Address, ask, connected, error_of, exchange, hello
from tests.house.running import House, house_in, ordinary_requests, until, until_so
from tests.raw_http import at

from hivenet_router.core.file_shares import METRICS_MAX

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """One house for all that is said to it, and ordinary requests beside it from the first to the last."""
    async with house_in(tmp_path_factory.mktemp("house")) as house:
        async with ordinary_requests(house):
            yield house
        await house.rests()


BODY: Final = json.dumps(hello()).encode()
POST: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n"
SMUGGLED: Final = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"

HEADS: Final[dict[str, tuple[bytes, set[int]]]] = {
    "no http at all": (b"XYZ\r\n\r\n", {400}),
    "zeros": (b"\0" * 64 + b"\r\n\r\n", {400}),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 64 + b"\r\n\r\n", {400}),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
    "a version to come": (b"GET /health HTTP/3.0\r\nHost: h\r\n\r\n", {400, 505}),
    "no version": (b"GET /health\r\n\r\n", {400}),
    "length and chunked": (
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        {400},
    ),
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + SMUGGLED, {400}),
    "a length with a plus": (POST + b"Content-Length: +5\r\n\r\nhello", {400}),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\nhello", {400}),
    "an endless length": (POST + b"Content-Length: 99999999999999999999999\r\n\r\nhello", {400, 413}),
    "an unknown coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "chunked twice": (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "chunked not last": (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", {400, 501}),
    "a blank before the colon": (b"GET /health HTTP/1.1\r\nHost : h\r\n\r\n", {400}),
    "bare line feeds": (b"GET /health HTTP/1.1\nHost: h\n\n", {400}),
    "a bare line feed in the head": (b"GET /health HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", {400}),
    "a folded line": (b"GET /health HTTP/1.1\r\nHost: h\r\nX: y\r\n z\r\n\r\n", {400}),
    "a nul in a value": (b"GET /health HTTP/1.1\r\nHost: h\r\nX: y\0z\r\n\r\n", {400}),
    "a return in a value": (b"GET /health HTTP/1.1\r\nHost: h\r\nX: y\rz\r\n\r\n", {400}),
    "a control in a token": (b"GET /health HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\x01b\r\n\r\n", {400}),
    "a target beyond ascii": (b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", {400}),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", {400}),
    "two hosts": (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", {400}),
    "a head of a megabyte": (b"GET /health HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 1_200_000 + b"\r\n\r\n", {431}),
    "a name of a megabyte": (b"GET /health HTTP/1.1\r\nHost: h\r\n" + b"y" * 1_200_000, {431, 400}),
    "a target of a megabyte": (b"GET /" + b"y" * 1_200_000, {400, 414, 431}),
}


def listeners(house: House) -> tuple[Address, Address]:
    return house.http, house.metrics


async def rejections(house: House, listener: str) -> float:
    return (await house.page()).total("hivenet_http_rejected_total", listener=listener)


@pytest.mark.parametrize("name", HEADS)
async def test_a_malformed_head_is_refused_counted_and_the_connection_closed(house: House, name: str) -> None:
    data, statuses = HEADS[name]
    for listener, address in (("api", house.http), ("metrics", house.metrics)):
        before = await rejections(house, listener)
        answer = await exchange(address, data)
        assert int(answer.split(b" ", 2)[1]) in statuses, answer
        assert answer.count(b"HTTP/1.1 ") == 1
        if listener == "api" and b" 505 " not in answer:
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_invalid"

        async def counted(listener: str = listener, before: float = before) -> bool:
            return await rejections(house, listener) == before + 1

        await until_so(counted)
    assert not house.engine.requests(MESSAGES)


async def test_what_one_client_does_wrong_again_and_again_is_told_once(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house:
        with capture_logs() as logs:
            for _ in range(50):
                await exchange(house.http, b"XYZ\r\n\r\n")
            await until(lambda: any(line["event"] == "request_rejected" for line in logs))
        told = [line for line in logs if line["event"] == "request_rejected"]
        assert len(told) == 1
        assert told[0]["client"] == "127.0.0.1"


CHUNKS: Final = {
    "a size without end": b"FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "a size in words": b"five\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": b"3\r\nhello\r\n0\r\n\r\n",
    "bare line feeds": b"5\nhello\n0\n\n",
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "a return in a trailer": b"0\r\nX: y\r\r",
    "a request behind a return in a trailer": b"0\r\nX: y\r" + SMUGGLED.replace(b"\r\n", b"\r") + b"\r\n\r\n",
    "a trailer of a blank": b"0\r\n \r\n\r\n",
    "a nul in a trailer": b"0\r\nX: y\0z\r\n\r\n",
    "a trailer without a colon": b"0\r\nX\r\n\r\n",
    "a blank before the colon of a trailer": b"0\r\nX : y\r\n\r\n",
    "a length in the trailers": b"0\r\nContent-Length: 5\r\n\r\n",
    "a length in the trailers, written with an underline": b"0\r\nContent_Length: 5\r\n\r\n",
}


@pytest.mark.parametrize("name", CHUNKS)
async def test_malformed_chunks_are_the_client_s_fault_and_end_the_connection(house: House, name: str) -> None:
    answer = await exchange(house.http, POST + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS[name] + SMUGGLED)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert not house.engine.requests(MESSAGES)


BODIES: Final[dict[str, bytes]] = {
    "nothing": b"",
    "half": b"{",
    "an array": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "not a number": b"NaN",
    "not a number inside": b'{"model":"m1","max_tokens":NaN}',
    "a number out of range": b'{"model":"m1","temperature":1e999}',
    "bytes behind": BODY + b"x",
    "a second document": BODY + BODY,
    "a byte order mark": b"\xef\xbb\xbf" + BODY,
    "utf-16": BODY.decode().encode("utf-16"),
    "invalid utf-8": b'{"model":"m1","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "half a surrogate": b'{"model":"m1","user":"\\ud800"}',
    "a key twice": b'{"model":"m1","model":"m2"}',
    "a key twice, written differently": b'{"model":"m1","mod\\u0065l":"m2"}',
    "a key of ours in capitals": b'{"model":"m1","Stream":true}',
    "a key of ours with a long s": '{"model":"m1","\u017ftream":true}'.encode(),
    "a key of ours with an escaped long s": b'{"model":"m1","\\u017ftream":true}',
    "a key of ours with the sign of kelvin": '{"model":"m1","max_to\u212aens":5}'.encode(),
    "no model": b"{}",
    "an empty model": b'{"model":""}',
    "a number for a model": b'{"model":5}',
    "a list for a model": b'{"model":["m1"]}',
    "a name of 257 bytes": b'{"model":"' + b"x" * 257 + b'"}',
    "nine thousand levels": b'{"model":"m1","x":' + b"[" * 9000 + b"]" * 9000 + b"}",
    "two hundred thousand levels": b'{"model":"m1","x":' + b'{"a":' * 200_000,
    "a control character": b'{"model":"m1","x":"\x01"}',
    "a comma too many": b'{"model":"m1",}',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_cannot_be_read_is_400_in_both_dialects_and_reaches_no_engine(
    house: House, name: str
) -> None:
    """O-12."""
    for path in (CHAT, MESSAGES):
        reply = await ask(house.http, path, BODIES[name])
        assert (reply.status, error_of(reply)["code"]) == (400, "request_invalid")
        assert reply.json().get("type") == ("error" if path == MESSAGES else None)
        assert all(record.body_head != BODIES[name] for record in house.engine.requests(path))


@pytest.mark.parametrize("value", ["10.0", "0", "-1", '"10"', "1e30", "4611686018427387904", "9223372036854775808"])
async def test_a_strange_number_of_tokens_is_the_engine_s_to_judge_or_400(house: House, value: str) -> None:
    reply = await ask(house.http, CHAT, b'{"model":"m1","messages":[],"max_tokens":%b}' % value.encode())
    assert reply.status in (200, 400)


@pytest.mark.parametrize("content", ["null", "5", "{}", '[{"type":"image_url","image_url":"s"}]', '[{"text":5}]'])
async def test_a_strange_content_is_the_engine_s_to_judge_or_400(house: House, content: str) -> None:
    for messages in (f'[{{"role":"user","content":{content}}}]', "null", "{}", "[null]"):
        body = f'{{"model":"m1","messages":{messages},"temperature":"hot","n":100000}}'
        assert (await ask(house.http, CHAT, body.encode())).status in (200, 400)


async def test_a_body_over_the_bound_is_413_and_the_client_can_read_it(house: House) -> None:
    size = (10 << 20) + 1
    for path in (CHAT, MESSAGES):
        async with connected(house.http) as sized, connected(house.http) as chunked:
            sized.send(b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (path.encode(), size))
            sized.send(b"x" * size)
            chunked.send(b"POST %b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode())
            chunked.send(b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size))
            for connection in (sized, chunked):
                reply = await connection.reply()
                assert (reply.status, error_of(reply)["code"]) == (413, "request_invalid")
                kind = "request_too_large" if path == MESSAGES else "invalid_request_error"
                assert at(reply.json(), "error", "type") == kind


async def test_a_body_that_ends_too_soon_is_400(house: House) -> None:
    answer = await exchange(house.http, POST + b"Content-Length: 500\r\n\r\n" + BODY, fin=True)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n", 200),
        (b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n", 200),
        (b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (POST + b"Content-Length: 3\r\n\r\n{]}", 400),
    ],
)
async def test_what_nobody_works_for_is_told_to_a_client_that_has_closed_its_side(
    house: House, request_bytes: bytes, status: int
) -> None:
    for _ in range(20):
        answer = await exchange(house.http, request_bytes, fin=True)
        assert answer.startswith(b"HTTP/1.1 %d " % status)


async def test_garbage_behind_a_request_costs_the_garbage_only(house: House) -> None:
    for listener, path in ((house.http, b"/health"), (house.metrics, b"/metrics")):
        answer = await exchange(listener, b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n\x01\x02garbage\r\n\r\n" % path)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1 400 ") == 1


async def test_many_headers_and_a_long_one_are_fine(house: House) -> None:
    """A-03: the bound is 128 KiB for the whole head."""
    many = "".join(f"X-{number}: y\r\n" for number in range(400)).encode()
    for extra in (many, b"X-Long: " + b"y" * 70_000 + b"\r\n"):
        async with connected(house.http) as connection:
            connection.send(POST + extra + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            assert (await connection.reply()).status == 200


@pytest.mark.parametrize("token", [b"caf\xe9", "模型".encode(), b"x" * 5000, b""])
async def test_a_strange_token_does_no_harm(house: House, token: bytes) -> None:
    """A-15."""
    async with connected(house.http) as connection:
        connection.send(POST + b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n" % (token, len(BODY)) + BODY)
        assert (await connection.reply()).status in (200, 400, 401)


@pytest.mark.parametrize("target", [b"*", b"h:80", b"//x", b"/%00", b"/%zz", b"http://", b"/v1/models/" + b"a" * 9000])
@pytest.mark.parametrize("method", [b"GET", b"CONNECT", b"BREW", b"x" * 300])
async def test_a_strange_target_or_method_is_an_answer_below_500(house: House, method: bytes, target: bytes) -> None:
    for listener in listeners(house):
        answer = await exchange(listener, method + b" " + target + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert 200 <= int(answer.split(b" ", 2)[1]) < 500, answer


async def test_the_metrics_port_serves_its_page_and_nothing_else(house: House) -> None:
    for path in ("/", "/health", CHAT, "/metrics/x", "/v1/models"):
        assert (await ask(house.metrics, path)).status == 404, path
    for method in ("GET", "HEAD"):
        assert (await ask(house.metrics, "/metrics", method=method)).status == 200, method


async def test_who_is_too_slow_is_cut_and_nobody_waits_for_him(tmp_path: Path) -> None:
    async with house_in(tmp_path, router=("--request-timeout=2s",)) as house, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(connected(house.http)) for _ in range(200)]
        for number, connection in enumerate(slow):
            if number % 4:
                connection.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nX-Slow:")
        half = await stack.enter_async_context(connected(house.http))
        half.send(POST + b"Content-Length: 500\r\n\r\n{")
        page = await stack.enter_async_context(connected(house.metrics))
        page.send(b"GET /metrics HT")
        async with ordinary_requests(house):
            reply = await half.reply()
            assert (reply.status, error_of(reply)["code"]) == (408, "request_timeout")

            async def drip() -> None:
                for connection in slow:
                    connection.send(b"y")

            await drip()
            answers = await asyncio.gather(*(connection.rest() for connection in (*slow[1::4], page)))
            assert {answer[:12] for answer, _ in answers} <= {b"HTTP/1.1 408", b""}

            async def counted() -> bool:
                return (await house.page()).total("hivenet_http_rejected_total") >= 50

            await until_so(counted)
        await house.rests()


async def test_silent_connections_keep_nobody_from_the_metrics(house: House) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(2 * METRICS_MAX):
            await stack.enter_async_context(connected(house.metrics))
        assert (await ask(house.metrics, "/metrics")).status == 200
        assert (await ask(house.http, "/health")).status == 200


async def test_requests_half_sent_keep_nobody_from_the_metrics(house: House) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(2 * METRICS_MAX):
            half = await stack.enter_async_context(connected(house.metrics))
            half.send(b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhal")
        assert (await ask(house.metrics, "/metrics")).status == 200
