"""What the engine wrote is what the client reads, byte for byte, and each hop keeps its own headers to itself."""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

import pytest
import pytest_asyncio
from tests.house.client import CHAT, MESSAGES, MODEL, ask, connected, hello
from tests.house.raw_engine import Said, raw_engine
from tests.house.raw_engine import sized as raw_sized
from tests.house.running import FAST, House, house_in, router_in

from hivenet_router.sim import SimOptions


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with house_in(tmp_path) as house:
        yield house
        await house.rests()


def chunk(text: str) -> str:
    return f'data: {{"id":"x","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}\n\n'


DONE: Final = "data: [DONE]\n\n"
USAGE: Final = 'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":100,"total_tokens":104}}\n\n'
STREAMS: Final = {
    "characters of several bytes": chunk("你好🌍") * 3 + USAGE + DONE,
    "comments": ": keep-alive\n\n" + chunk("a") + ": x\n\n" + 'data: {"choices":\n: inside\ndata: []}\n\n' + DONE,
    "pings": 'event: ping\ndata: {"type":"ping"}\n\n' + chunk("a") + USAGE + DONE,
    "other fields": f"retry: 1000\nid: 7\n{chunk('a')}data:\n\n{USAGE}{DONE}",
    "carriage returns": chunk("a").replace("\n", "\r\n") + chunk("b").replace("\n", "\r") + DONE,
    "numbers that JSON does not have": 'data: {"choices":[{"logprobs":-Infinity,"x":NaN}]}\n\n' + USAGE + DONE,
    "a thousand events": chunk("z") * 1000 + USAGE + DONE,
    "words after the end mark": chunk("a") + DONE + ": bye\n\n",
}


def stream_answer(body: bytes) -> str:
    """The fault that makes an engine write this event stream."""
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return f"raw={quote_from_bytes(head + framed)}"


@pytest.mark.parametrize("cut", ["", ",write_bytes=1", ",write_bytes=7"])
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_is_the_same_however_it_is_cut(house: House, name: str, cut: str) -> None:
    """O-08."""
    body = STREAMS[name].encode()
    if cut == ",write_bytes=1" and len(body) > 4000:
        cut = ",write_bytes=300"
    house.engine.set_fault(stream_answer(body) + cut)
    reply = await ask(house.http, CHAT, hello(stream=True))
    assert (reply.status, reply.whole) == (200, True)
    assert hashlib.sha256(reply.body).hexdigest() == hashlib.sha256(body).hexdigest()
    if USAGE in STREAMS[name]:
        page = await house.page()
        assert page.total("hivenet_agent_output_tokens_total") == 100
        assert page.total("hivenet_agent_input_tokens_total") == 4


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_events_go_on_as_they_come_and_not_when_the_answer_is_whole(house: House, path: str) -> None:
    async with connected(house.http) as connection:
        connection.ask(path, hello(stream=True, max_tokens=5), x_sim="stall_after_chunks=2")
        await connection.until(b"\n\n")
        assert house.engine.load.running == 1
        connection.abort()


async def test_an_event_of_two_megabytes_comes_whole_and_its_usage_is_read(tmp_path: Path) -> None:
    body = (chunk("y" * (2 << 20)) + USAGE + DONE).encode()
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with router_in(tmp_path) as house, raw_engine(lambda _: Said([head, framed])) as engine:
        await house.add_agent(engine.url)
        reply = await ask(house.http, CHAT, hello(stream=True))
        assert (reply.status, reply.whole, reply.body == body) == (200, True, True)
        assert (await house.page()).total("hivenet_agent_output_tokens_total") == 100
        await house.rests()


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_comments_and_small_writes_of_the_simulator_come_whole(house: House, path: str) -> None:
    reply = await ask(house.http, path, hello(stream=True, max_tokens=20), x_sim="comments,write_bytes=3,reasoning=5")
    assert reply.whole
    assert reply.body.count(b": keep-alive\n\n") > 10
    assert reply.body.rstrip().endswith(b"[DONE]" if path == CHAT else b'{"type":"message_stop"}')


@pytest.mark.parametrize("size", [1, 1000, 300_000, 9_000_000])
async def test_a_buffered_answer_of_any_size_comes_as_it_is(tmp_path: Path, size: int) -> None:
    body = random.Random(size).randbytes(size)
    async with (
        router_in(tmp_path) as house,
        raw_engine(lambda _: raw_sized(body, content_type="application/octet-stream")) as engine,
    ):
        await house.add_agent(engine.url)
        reply = await ask(house.http, CHAT, hello())
        assert (reply.status, reply.whole, reply.body == body) == (200, True, True)
        assert reply.header("content-type") == "application/octet-stream"
        await house.rests()


async def test_a_request_body_reaches_the_engine_as_it_came_sized_or_chunked(house: House) -> None:
    content = '"\\u4f60 你好🌍 \\/"'
    body = f'{{ "model" : "m1",\t"messages":[{{"role":"user","content":{content}}}], "x":1e40, "y":-0.0 }}\n'.encode()
    await ask(house.http, CHAT, body)
    pieces = b"".join(b"%x;ext=1\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body)))
    async with connected(house.http) as connection:
        connection.send(b"POST %b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT.encode())
        connection.send(pieces + b"0\r\nX-Trailer: 1\r\n\r\n")
        assert (await connection.reply()).status == 200
    records = house.engine.requests(CHAT)
    assert [record.body_head for record in records] == [body, body]
    for record in records:
        names = [name.lower() for name, _ in record.headers]
        assert ("transfer-encoding" in names, "x-trailer" in names, names.count("content-length")) == (False, False, 1)


@pytest.mark.parametrize("variant", ["idle", "close", "reused"])
async def test_connections_that_the_engine_closes_as_they_are_used_again_lose_no_request(
    tmp_path: Path, variant: str
) -> None:
    """O-09."""
    options = replace(FAST, idle_timeout_s=0.05) if variant == "idle" else FAST
    async with house_in(tmp_path, engines=(options,)) as house:
        if variant == "close":
            house.engine.set_fault("close_connection", probability=0.33)
        if variant == "reused":
            house.engine.set_fault("reset_before_head,reused_only", probability=0.5)
        chance = random.Random(9)
        statuses: list[int] = []

        async def row() -> None:
            for _ in range(50):
                # The pause is the case: it is about as long as the engine keeps a connection.
                await asyncio.sleep(0.045 + chance.random() * 0.01 if variant == "idle" else 0)
                statuses.append((await ask(house.http, CHAT, hello())).status)

        await asyncio.gather(*(row() for _ in range(4)))
        assert statuses == [200] * 200
        assert house.engine.stats.finished == 200
        page = await house.page()
        assert page.total("hivenet_agent_requests_failed_total") == 0
        await house.rests()


async def test_connections_to_the_engine_are_kept_and_used_again(house: House) -> None:
    for _ in range(50):
        assert (await ask(house.http, CHAT, hello())).status == 200
    assert len({record.connection for record in house.engine.requests(CHAT)}) == 1


HOPS: Final = ("connection", "x-foo", "te", "proxy-authorization", "upgrade", "keep-alive", "expect")


async def test_headers_of_one_hop_cross_neither_way(house: House) -> None:
    """O-10."""
    body = json.dumps(hello()).encode()
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        "Host: evil.example",
        "Connection: X-Foo, keep-alive",
        "X-Foo: 1",
        "TE: trailers",
        "Proxy-Authorization: x",
        "Upgrade: h2c",
        "Keep-Alive: timeout=5",
        "Accept-Encoding: gzip",
        "Cookie: a=b",
        "X-Api-Key: k",
        "Authorization: Bearer k",
        "X-Bar: two  words",
        f"Content-Length: {len(body)}",
    )
    house.engine.set_fault(
        "header=Connection:X-Secret,header=X-Secret:1,header=Keep-Alive:timeout=1,header=Set-Cookie:a=1,"
        "header=Set-Cookie:b=2,header=X-Request-Id:theirs,header=Access-Control-Allow-Origin:theirs"
    )
    async with connected(house.http) as connection:
        connection.send(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        reply = await connection.reply()
        assert reply.status == 200
    sent = [(name.lower(), value) for name, value in house.engine.requests(CHAT)[0].headers]
    assert not {name for name, _ in sent} & set(HOPS)
    assert {("cookie", "a=b"), ("x-api-key", "k"), ("authorization", "Bearer k"), ("x-bar", "two  words")} <= set(sent)
    assert [value for name, value in sent if name == "host"] == [f"127.0.0.1:{house.engine.port}"]
    assert [value for name, value in sent if name == "accept-encoding"] == ["identity"]
    got = [(name.lower(), value) for name, value in reply.headers]
    assert not {name for name, _ in got} & {"x-secret", "keep-alive", "proxy-authenticate", "upgrade"}
    assert "set-cookie" not in dict(got)
    assert [value for name, value in got if name == "access-control-allow-origin"] == ["*"]
    assert "theirs" not in dict(got).values()


async def test_credentials_stay_with_the_router_where_the_operator_says_so(tmp_path: Path) -> None:
    async with house_in(tmp_path, router=("--strip-client-authorization",)) as house:
        await ask(house.http, CHAT, hello(), authorization="Bearer k", x_api_key="k", cookie="a=b")
        names = {name.lower() for name, _ in house.engine.requests(CHAT)[0].headers}
        assert (names & {"authorization", "x-api-key"}, "cookie" in names) == (set(), True)


async def test_an_engine_that_compresses_unasked_is_passed_on_with_its_coding(house: House) -> None:
    for stream in (False, True):
        reply = await ask(house.http, CHAT, hello(stream=stream), x_sim="gzip")
        assert (reply.status, reply.header("content-encoding")) == (200, "gzip")
        assert reply.body.startswith(b"\x1f\x8b")


async def test_redirects_of_an_engine_are_not_followed(tmp_path: Path) -> None:
    other = SimOptions(models=(MODEL,))
    async with house_in(tmp_path) as house:
        elsewhere = await house.add_engine(other)
        house.engines[0].set_fault(f"status=307,header=Location:{elsewhere.url}/v1/messages")
        for path in (CHAT, MESSAGES):
            assert (await ask(house.http, path, hello(max_tokens=5))).status == 502
        assert elsewhere.stats.seen == 0
