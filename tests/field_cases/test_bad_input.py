"""O-12: what cannot be read is the client's fault and said so; what an engine may judge reaches it as it came.

Numbers that would overrun a key's limit are tried with keys, which the router does not have yet.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, CAPACITY, EMBEDDINGS, RERANK, TEST_MODEL, Bench
from tests.field_cases.words import ANSWER, chunk
from tests.house.client import CHAT, MESSAGES, ask, connected, error_of, hello
from tests.raw_http import Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

LLM_PATHS: Final = [path for path in BODIES if path not in (EMBEDDINGS, RERANK)]


def with_members(path: str, members: str) -> bytes:
    """A request for the model of this path that has these members besides its name."""
    return f'{{"model":{json.dumps(BODIES[path]["model"])},{members}}}'.encode()


def sound(path: str) -> bytes:
    """A request with which nothing is wrong."""
    return json.dumps(BODIES[path]).encode()


DEEP: Final = 200_000
UNREADABLE: Final[dict[str, Callable[[str], bytes]]] = {
    "nothing": lambda path: b"",
    "blanks": lambda path: b" \r\n ",
    "half": lambda path: b"{",
    "an array": lambda path: b"[]",
    "a string": lambda path: b'"x"',
    "null": lambda path: b"null",
    "a literal that is no JSON": lambda path: b"NaN",
    "such a literal inside": lambda path: with_members(path, '"max_tokens":NaN'),
    "a number out of range": lambda path: b"1e999",
    "such a number inside": lambda path: with_members(path, '"temperature":1e999'),
    "bytes behind": lambda path: sound(path) + b"x",
    "a second document": lambda path: sound(path) * 2,
    "a byte order mark": lambda path: b"\xef\xbb\xbf" + sound(path),
    "invalid utf-8": lambda path: with_members(path, '"x":"?"').replace(b"?", b"\xff\xfe"),
    "a character cut short": lambda path: with_members(path, '"x":"?"').replace(b"?", b"\xe4\xbd"),
    "half a surrogate": lambda path: with_members(path, '"x":"\\ud800"'),
    "surrogates the wrong way round": lambda path: with_members(path, '"x":"\\udc00\\ud800"'),
    "half a surrogate as a name": lambda path: with_members(path, '"\\ud800":1'),
    "nine thousand levels": lambda path: with_members(path, '"x":' + "[" * 9000 + "]" * 9000),
    "two hundred thousand levels": lambda path: with_members(path, '"x":' + "[" * DEEP + "]" * DEEP),
    "as many levels of objects": lambda path: with_members(path, '"x":' + '{"a":' * DEEP + "1" + "}" * DEEP),
    "as many levels that never end": lambda path: with_members(path, '"x":' + "[" * DEEP),
    "a key twice": lambda path: with_members(path, '"model":"other"'),
    "tokens in words": lambda path: with_members(path, '"max_tokens":"10"'),
    "half a token": lambda path: with_members(path, '"max_tokens":1.5'),
    "tokens beyond all bounds": lambda path: with_members(path, '"max_tokens":1e30'),
    "tokens beyond 63 bits": lambda path: with_members(path, f'"max_tokens":{2**63}'),
    "a stream in words": lambda path: with_members(path, '"stream":"true"'),
    "no model": lambda path: b"{}",
    "an empty model": lambda path: b'{"model":""}',
    "a number for a model": lambda path: b'{"model":5}',
    "a list for a model": lambda path: b'{"model":["a"]}',
    "a name of 257 bytes": lambda path: b'{"model":"%b"}' % (b"x" * 257),
    "a name of 86 characters and 258 bytes": lambda path: f'{{"model":"{"模" * 86}"}}'.encode(),
}


def check_refused(reply: Reply, path: str, status: int = 400) -> None:
    """It is told in the dialect of its path that the request was at fault."""
    assert (reply.status, error_of(reply)["code"], error_of(reply)["source"]) == (status, "request_invalid", "router")
    assert error_of(reply)["message"]
    assert reply.json().get("type") == ("error" if path.startswith(MESSAGES) else None)


@pytest.mark.parametrize("name", UNREADABLE)
async def test_o12_a_body_that_cannot_be_read_is_400_on_every_path_and_reaches_no_engine(
    bench: Bench, name: str
) -> None:
    for path in BODIES:
        check_refused(await ask(bench.http, path, UNREADABLE[name](path)), path)
    assert all(engine.turns == [] for engine in bench.engines.values())


@pytest.mark.parametrize("name", ["two hundred thousand levels", "as many levels of objects", "half", "invalid utf-8"])
async def test_o12_twenty_at_once_are_refused_alike_and_cost_the_router_little(bench: Bench, name: str) -> None:
    process = Path(f"/proc/{bench.router.process.pid}")
    # From now on the most is counted anew.
    (process / "clear_refs").write_text("5")
    before = memory_most_bytes(process)
    for path in (CHAT, MESSAGES):
        body = UNREADABLE[name](path)
        for reply in await asyncio.gather(*(ask(bench.http, path, body) for _ in range(20))):
            check_refused(reply, path)
    assert memory_most_bytes(process) - before < 50 << 20
    assert (await ask(bench.http, CHAT, hello(TEST_MODEL))).status == 200


def memory_most_bytes(process: Path) -> int:
    """The most memory that this process has had resident."""
    lines = (process / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


TO_THE_ENGINE: Final = {
    "no messages": '"x":1',
    "messages of null": '"messages":null',
    "messages as an object": '"messages":{}',
    "a message of null": '"messages":[null]',
    "content of null": '"messages":[{"role":"assistant","content":null}]',
    "a number as content": '"messages":[{"role":"user","content":5}]',
    "an object as content": '"messages":[{"role":"user","content":{}}]',
    "an image that is a string": '"messages":[{"role":"user","content":[{"type":"image_url","image_url":"str"}]}]',
    "a text that is a number": '"messages":[{"role":"user","content":[{"type":"text","text":5}]}]',
    "tool messages": '"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function",'
    '"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t","content":"1"}]',
    "no tokens": '"max_tokens":0',
    "less than no tokens": '"max_tokens":-1',
    "whole tokens with a fraction": '"max_tokens":10.0',
    "two to the 62nd tokens": f'"max_tokens":{2**62}',
    "two to the 63rd tokens less one": f'"max_tokens":{2**63 - 1}',
    "a temperature in words": '"temperature":"hot"',
    "very many choices": '"n":100000',
    "a hundred levels": '"x":' + "[" * 100 + "]" * 100,
    "characters of all kinds": '"x":"\\ud83c\\udf0d 你好\\u0000"',
}
"""Odd, but JSON. What is not the router's to read is the engine's to judge."""


@pytest.mark.parametrize("name", TO_THE_ENGINE)
async def test_o12_what_the_engine_owns_reaches_it_byte_for_byte(bench: Bench, name: str) -> None:
    for path in LLM_PATHS:
        body = with_members(path, TO_THE_ENGINE[name])
        reply = await ask(bench.http, path, body)
        assert (reply.status, reply.body) == (200, ANSWER)
        assert bench.engine.turns[-1].request.body == body


@pytest.mark.parametrize("model", [" test-model", "test-model ", "Test-Model", "test-model\\u0000", "x" * 256])
async def test_o12_a_name_that_is_not_quite_a_model_s_is_not_found(bench: Bench, model: str) -> None:
    for path in BODIES:
        reply = await ask(bench.http, path, f'{{"model":"{model}","messages":[]}}'.encode())
        assert (reply.status, error_of(reply)["code"]) == (404, "model_not_found")
    assert all(engine.turns == [] for engine in bench.engines.values())


BODY_BYTES_MAX: Final = 10 << 20


def body_of(size: int) -> bytes:
    """A sound request of exactly this many bytes."""
    rest = with_members(CHAT, '"x":""')
    return rest.replace(b'"x":""', b'"x":"%b"' % (b"y" * (size - len(rest))))


def framed(path: str, body: bytes, *, in_chunks: bool) -> bytes:
    """The request with its length, or in chunks."""
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\n".encode()
    if not in_chunks:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    pieces = b"".join(chunk(body[at : at + (1 << 20)]) for at in range(0, len(body), 1 << 20))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_o12_a_large_body_passes_up_to_the_bound_and_beyond_it_the_client_reads_413(
    bench: Bench, path: str, in_chunks: bool
) -> None:
    """The client sends all of it before it reads, which a reset would spoil."""
    for size in (BODY_BYTES_MAX * 99 // 100, BODY_BYTES_MAX):
        body = body_of(size)
        async with connected(bench.http) as client:
            client.send(framed(path, body, in_chunks=in_chunks))
            assert (await client.reply()).status == 200
        assert len(bench.engine.turns[-1].request.body) == size
        assert hashlib.sha256(bench.engine.turns[-1].request.body).digest() == hashlib.sha256(body).digest()
    asked = len(bench.engine.turns)
    for size in (BODY_BYTES_MAX + 1, BODY_BYTES_MAX * 101 // 100, BODY_BYTES_MAX * 105 // 100):
        async with connected(bench.http) as client:
            client.send(framed(path, body_of(size), in_chunks=in_chunks))
            await client.drain()
            reply = await client.reply()
            check_refused(reply, path, 413)
            assert (await client.rest()) == (b"", "fin")
    assert len(bench.engine.turns) == asked


async def test_o12_twenty_bodies_beyond_the_bound_at_once_are_all_answered(bench: Bench) -> None:
    data = framed(CHAT, body_of(BODY_BYTES_MAX * 101 // 100), in_chunks=False)

    async def send_all() -> int:
        async with connected(bench.http) as client:
            client.send(data)
            await client.drain()
            return (await client.reply()).status

    assert await asyncio.gather(*(send_all() for _ in range(20))) == [413] * 20


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_o12_a_body_that_ends_before_its_end_is_400(bench: Bench, path: str, in_chunks: bool) -> None:
    data = framed(path, sound(path), in_chunks=in_chunks)
    for cut in (len(data) - 1, len(data) - 20):
        async with connected(bench.http) as client:
            client.send(data[:cut])
            client.fin()
            check_refused(await client.reply(), path)
    assert all(engine.turns == [] for engine in bench.engines.values())


async def test_o12_after_all_that_the_agent_has_all_its_places(bench: Bench) -> None:
    replies = await asyncio.gather(*(ask(bench.http, CHAT, hello(TEST_MODEL)) for _ in range(2 * CAPACITY)))
    assert [reply.status for reply in replies] == [200] * 2 * CAPACITY
