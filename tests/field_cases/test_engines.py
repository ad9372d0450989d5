"""O-09, O-18, A-14, A-16: what an engine does to its connections, and what the client then has of it.

A request is asked again only while the client has had no byte of an answer: on a fresh connection to the same engine
where a kept one was dead, on the other agent where the first one failed. What is executed twice is seen at the engines.
"""

import asyncio
import hashlib
import json
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, EMBEDDINGS, RERANK, TWO, Bench, Pair
from tests.field_cases.engine import Engine, Turn
from tests.field_cases.test_streams import Tokens
from tests.field_cases.words import (
    ANSWER,
    CHUNKED_HEAD,
    LAST_CHUNK,
    RESPONSES,
    STREAMS,
    chunk,
    event,
    says,
    streams,
    whole_answer,
)
from tests.house.client import CHAT, MESSAGES, ask, connected, error_of, hello
from tests.house.raw_engine import sized
from tests.raw_http import Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def either_answer(turn: Turn) -> None:
    """A stream where one was asked for, else a buffered answer."""
    stream = STREAMS.get(turn.request.path)
    if stream is not None and json.loads(turn.request.body).get("stream"):
        await streams(stream.opening + stream.piece + stream.closing)(turn)
    else:
        await whole_answer(turn)


def times_asked(engine: Engine) -> Counter[str]:
    """How often the engine was asked each request."""
    return Counter(turn.request.header("x-request-id") for turn in engine.turns)


def bodies(number: int) -> Sequence[tuple[str, dict[str, object]]]:
    """So many requests, buffered and streamed, on the paths of one engine in turn."""
    kinds = [(path, body) for path, body in BODIES.items() if path not in (EMBEDDINGS, RERANK)]
    kinds += [(path, {**BODIES[path], "stream": True}) for path in STREAMS]
    return [kinds[at % len(kinds)] for at in range(number)]


IDLE_S: Final = 0.015
"""The engine's limit; the case has 300 ms, which only takes longer."""


async def test_o09_an_idle_connection_that_is_closed_as_it_is_used_again_loses_no_request(bench: Bench) -> None:
    """The pauses are about as long as the engine keeps a connection, so that its FIN and a request cross."""
    engine, chance = bench.engine, random.Random(9)
    engine.begin(either_answer, idle_s=IDLE_S)
    failed_before = await bench.failed_attempts()
    statuses = []
    async with connected(bench.http) as client:
        for path, body in bodies(200):
            await asyncio.sleep(IDLE_S * (0.96 + 0.08 * chance.random()))
            client.ask(path, body)
            statuses.append((await client.reply()).status)
    assert statuses == [200] * 200
    assert [turn.is_finished for turn in engine.turns] == [True] * 200
    assert engine.idle_closed > 10
    assert await bench.failed_attempts() == failed_before


@pytest.mark.parametrize("closes", [True, False])
async def test_o09_an_engine_that_says_it_closes_is_asked_on_another_connection(bench: Bench, closes: bool) -> None:
    """Also where it says so and does not close: what it said counts."""
    said = []

    async def every_third(turn: Turn) -> None:
        if len(bench.engine.turns) % 3:
            await turn.send(*sized(ANSWER).pieces)
            return
        said.append(turn.connection)
        await turn.send(*sized(ANSWER, extra="Connection: close\r\n").pieces)
        if closes:
            turn.end("fin")

    bench.engine.begin(every_third)
    failed_before = await bench.failed_attempts()
    for path, body in bodies(100):
        assert (await ask(bench.http, path, body)).status == 200
    assert len(bench.engine.turns) == 100
    assert len(set(said)) == len(said) == 33
    assert await bench.failed_attempts() == failed_before


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_o09_a_kept_connection_that_dies_before_a_byte_is_replaced_by_a_fresh_one(bench: Bench, how: str) -> None:
    """The request has been read. It is sent once more to the same engine, no attempt counts as failed, and there is no
    other agent that could have served it."""
    dead = []

    async def dies_if_kept(turn: Turn) -> None:
        if turn.is_reused:
            dead.append(turn.request.header("x-request-id"))
            turn.end(how)
        else:
            await either_answer(turn)

    bench.engine.begin(dies_if_kept)
    failed_before = await bench.failed_attempts()
    for path, body in bodies(100):
        assert (await ask(bench.http, path, body)).status == 200
    assert len(dead) > 40
    asked = times_asked(bench.engine)
    assert {request_id: number for request_id, number in asked.items() if number > 1} == dict.fromkeys(dead, 2)
    assert len(asked) == 100
    assert await bench.failed_attempts() == failed_before


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_o09_a_fresh_connection_that_dies_too_is_the_end(bench: Bench, path: str, how: str) -> None:
    async def dies(turn: Turn) -> None:
        turn.end(how)

    assert (await ask(bench.http, path, BODIES[path])).status == 200
    bench.engine.begin(dies)
    reply = await ask(bench.http, path, BODIES[path])
    assert (reply.status, error_of(reply)["code"]) == (503, "backend_unavailable")
    assert [turn.is_reused for turn in bench.engine.turns] == [True, False]


PARTS: Final = {
    "a byte": b"H",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
    "a head": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    "a stream's head": CHUNKED_HEAD,
    "a stream's blanks": CHUNKED_HEAD + chunk(b"\n\r\n "),
}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_o09_after_a_byte_of_an_answer_the_engine_is_never_asked_twice(
    bench: Bench, path: str, part: str, how: str
) -> None:
    """It is executing the request, or has done so. The only agent there is has failed, and that is told."""

    async def dies_in_the_answer(turn: Turn) -> None:
        await turn.send(PARTS[part])
        await turn.arrived()
        turn.end(how)

    assert (await ask(bench.http, path, BODIES[path])).status == 200
    bench.engine.begin(dies_in_the_answer)
    reply = await ask(bench.http, path, BODIES[path])
    assert (reply.status, error_of(reply)["code"]) in ((502, "backend_error"), (503, "backend_unavailable"))
    assert [turn.is_reused for turn in bench.engine.turns] == [True]


async def breaks_after(bench: Bench, path: str, how: str, *pieces: bytes) -> tuple[bytes, str, Pair]:
    """A stream whose engine ends the connection when the client has had these pieces.

    Gives the body that the client had, how its connection ended, and the engines.
    """
    had = asyncio.Event()

    async def breaks(turn: Turn) -> None:
        await turn.send(CHUNKED_HEAD, *(chunk(piece) for piece in pieces))
        await had.wait()
        turn.end(how)

    pair = bench.pair(breaks, either_answer)
    async with connected(bench.http) as client:
        client.ask(path, {**BODIES[path], "model": TWO, "stream": True})
        await client.until(b"\r\n\r\n")
        got = b"".join([await client.body(len(piece)) for piece in pieces])
        had.set()
        rest, ending = await client.rest()
    return got + rest, ending, pair


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", STREAMS)
async def test_o18_a_stream_that_breaks_after_data_ends_with_an_error_event_and_is_not_begun_again(
    bench: Bench, path: str, how: str
) -> None:
    piece = STREAMS[path].piece
    got, ending, pair = await breaks_after(bench, path, how, piece, piece, piece)
    assert pair.asked == [pair.first]
    assert got.count(piece) == 3
    assert STREAMS[path].error in got.rpartition(piece)[2]
    assert b"backend_error" in got.rpartition(piece)[2]
    assert not got.endswith(LAST_CHUNK)
    assert ending in ("fin", "reset")


async def test_the_error_event_of_a_responses_stream_has_the_number_behind_the_last_one(bench: Bench) -> None:
    """decisions.md 41."""
    pieces = [event("x", {"type": "x", "sequence_number": number}) for number in (7, 8)]
    got, _ending, _pair = await breaks_after(bench, RESPONSES, "rst", *pieces)
    assert b'"sequence_number":9}\n\n' in got.rpartition(pieces[-1])[2]


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("comment", [b": ping\n\n", b'event: ping\ndata: {"type":"ping"}\n\n', b":"])
@pytest.mark.parametrize("path", STREAMS)
async def test_o18_a_comment_that_the_client_has_had_is_as_good_as_data(
    bench: Bench, path: str, comment: bytes, how: str
) -> None:
    got, _ending, pair = await breaks_after(bench, path, how, comment)
    assert pair.asked == [pair.first]
    assert STREAMS[path].error in got
    assert not got.endswith(LAST_CHUNK)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("part", [b"", *PARTS.values()], ids=["nothing", *PARTS])
@pytest.mark.parametrize("path", STREAMS)
async def test_o18_while_the_client_has_had_no_byte_the_other_agent_serves(
    bench: Bench, path: str, part: bytes, how: str
) -> None:
    """Whole, and without a trace of the first one."""

    async def breaks(turn: Turn) -> None:
        await turn.send(part)
        await turn.arrived()
        turn.end(how)

    pair = bench.pair(breaks, either_answer)
    stream = STREAMS[path]
    reply = await ask(bench.http, path, {**BODIES[path], "model": TWO, "stream": True})
    assert (reply.status, reply.whole) == (200, True)
    assert reply.body == stream.opening + stream.piece + stream.closing
    assert len(pair.second.turns) == 1


LONG: Final = 9 << 20
"""Longer than what the router reads whole before it passes it on."""


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_o18_a_buffered_answer_too_long_to_hold_is_not_begun_again_either(bench: Bench, how: str) -> None:
    had = asyncio.Event()

    async def breaks(turn: Turn) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (2 * LONG)
        await turn.send(head, b"{" + b" " * LONG)
        await had.wait()
        turn.end(how)

    pair = bench.pair(breaks, either_answer)
    async with connected(bench.http) as client:
        client.ask(CHAT, hello(TWO))
        head = await client.until(b"\r\n\r\n")
        had.set()
        rest, _ending = await client.rest()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert not rest.endswith(LAST_CHUNK)
    assert len(rest) < 2 * LONG
    assert pair.asked == [pair.first]


def large_body(path: str, size: int) -> bytes:
    """A request of about so many bytes, which nobody could guess."""
    text = random.Random(size).randbytes(size // 2).hex()
    return json.dumps({**BODIES[path], "model": TWO, "messages": [{"role": "user", "content": text}]}).encode()


async def ask_chunked(bench: Bench, path: str, body: bytes) -> Reply:
    """Send this body in chunks of odd sizes."""
    async with connected(bench.http) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for at in range(0, len(body), 65_537):
            client.send(chunk(body[at : at + 65_537]))
        client.send(LAST_CHUNK)
        return await client.reply()


SIZES: Final = (130_000, 200_000, 1_200_000, 5_000_000)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("closes", ["behind the head", "behind the body", "behind half a head of its own"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a14_the_second_agent_gets_a_large_body_byte_for_byte(
    bench: Bench, path: str, size: int, closes: str, how: str
) -> None:
    """Sent with its length on one path and in chunks on the other; either way the engine gets a length."""

    async def breaks(turn: Turn) -> None:
        if closes == "behind half a head of its own":
            await turn.send(PARTS["half a head"])
            await turn.arrived()
        turn.end(how)

    pair = bench.pair(breaks, whole_answer, cuts=how if closes == "behind the head" else "")
    body = large_body(path, size)
    reply = await (ask(bench.http, path, body) if path == CHAT else ask_chunked(bench, path, body))
    assert (reply.status, reply.body) == (200, ANSWER)
    (turn,) = pair.second.turns
    assert hashlib.sha256(turn.request.body).hexdigest() == hashlib.sha256(body).hexdigest()
    assert [value for name, value in turn.request.headers if name.lower() == "content-length"] == [str(len(body))]


NOT_JSON: Final = {
    "logprobs of minus infinity": (
        b'{"choices":[{"message":{"content":"hello"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}',
        "application/json",
    ),
    "not a number": (b'{"choices":[{"message":{"content":"hello"},"score":NaN}]}', "application/json"),
    "plain text": (b"hello, here is an answer", "text/plain; charset=utf-8"),
    "plain text that calls itself JSON": (b"hello, here is an answer", "application/json"),
    "half a document": (b'{"choices":[{"message":{"content":"hello', "application/json"),
    "a page": (b"<html>hello</html>", "text/html"),
    "bytes": (b"\xff\xfe\x00\x01hello", "application/octet-stream"),
}


@pytest.mark.parametrize("name", NOT_JSON)
@pytest.mark.parametrize("path", BODIES)
async def test_a16_a_buffered_answer_that_is_no_strict_json_is_relayed_as_it_is_and_counted(
    bench: Bench, path: str, name: str
) -> None:
    """No agent is to blame and none is asked again; where a model wrote the answer, its tokens are estimated."""
    body, content_type = NOT_JSON[name]
    engine = bench.engine_of(path)
    engine.begin(says(*sized(body, content_type=content_type).pieces))
    failed_before, tokens = await bench.failed_attempts(), await Tokens(bench).begin()
    reply = await ask(bench.http, path, BODIES[path], x_request_id=str(uuid.uuid4()))
    assert (reply.status, reply.body, reply.header("content-type")) == (200, body, content_type)
    assert len(engine.turns) == 1
    if path in STREAMS:
        assert (await tokens.counted())[1] > 0
    await bench.rests()
    assert await bench.failed_attempts() == failed_before


async def test_a16_neither_replica_is_blamed_for_such_answers(bench: Bench) -> None:
    failed_before = await bench.failed_attempts()
    for body, content_type in NOT_JSON.values():
        for name in ("a", "b"):
            bench.engines[name].begin(says(*sized(body, content_type=content_type).pieces))
        for path in (CHAT, MESSAGES):
            reply = await ask(bench.http, path, {**BODIES[path], "model": TWO})
            assert (reply.status, reply.body) == (200, body)
        assert sum(len(bench.engines[name].turns) for name in ("a", "b")) == 2
    assert await bench.failed_attempts() == failed_before


USED: Final = b'"prompt_tokens":4,"completion_tokens":100,"total_tokens":104'


@pytest.mark.parametrize("told", ["1000000000000000000", "18446744073709551615", "1e18", "-5", "1.5", "9" * 40, '"7"'])
async def test_a_number_of_tokens_that_cannot_be_does_not_reach_the_counters(bench: Bench, told: str) -> None:
    """The answer is relayed as it is; what it took is estimated from what was seen of it, a few bytes."""
    body = ANSWER.replace(USED, f'"prompt_tokens":{told},"completion_tokens":{told}'.encode())
    bench.begin(says(*sized(body).pieces))
    tokens = await Tokens(bench).begin()
    reply = await ask(bench.http, CHAT, BODIES[CHAT])
    assert (reply.status, reply.body) == (200, body)
    assert told.encode() in body
    prompt, output = await tokens.counted()
    assert 0 < prompt < 100
    assert 0 < output < 100
