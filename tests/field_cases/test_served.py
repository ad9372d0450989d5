"""Who leaves on the last byte was served; what is no head is told at once; interim answers and early refusals (O-30).

decisions.md 37; RFC 9112 §2.2, §5.2, §6.1; RFC 9110 §15.2.
"""

import asyncio
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, TWO, Bench
from tests.field_cases.engine import Turn
from tests.field_cases.test_answers import OK, SERVED_ONCE, STREAM, Success, head
from tests.field_cases.test_leaving import leave
from tests.field_cases.test_streams import Tokens, ask_stream
from tests.field_cases.words import ANSWER, CHUNKED_HEAD, HEAD, LAST_CHUNK, STREAMS, chunk, says, whole_answer
from tests.house.client import CHAT, MESSAGES, ask, connected, error_of, hello
from tests.house.raw_engine import sized

pytestmark = pytest.mark.asyncio(loop_scope="session")

TELLS_PROMPTLY_S: Final = 5.0
"""Far below the time a request has, and far above what a busy machine takes."""


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("label", ["text/event-stream", "application/json", ""])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_client_that_leaves_on_the_end_mark_was_served(bench: Bench, path: str, label: str, how: str) -> None:
    """The engine has said all and does not end: only what it said tells that nothing is missing."""
    stream = STREAMS[path]

    async def script(turn: Turn) -> None:
        await turn.send(head(label), chunk(stream.opening + stream.piece), chunk(stream.closing))
        await turn.stay()

    bench.engine.begin(script)
    tokens, success = await Tokens(bench).begin(), await Success(bench).begin()
    async with connected(bench.http) as client:
        client.ask(path, {**BODIES[path], "stream": True})
        await client.until(b"\r\n\r\n")
        await client.body(len(stream.opening + stream.piece + stream.closing))
        leave(client, how)
        await bench.engine.all_left()
    assert await success.counted() == SERVED_ONCE
    assert await tokens.counted() == (4, 100)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("kind", ["a stream", "a body", "a body too long to hold"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_client_that_leaves_on_the_last_byte_of_a_length_was_served(
    bench: Bench, path: str, kind: str, how: str
) -> None:
    stream = STREAMS[path]
    body = {
        "a stream": stream.opening + stream.piece + stream.closing,
        "a body": ANSWER,
        "a body too long to hold": ANSWER.replace(b"hello", b"hello " * (3 << 19)),
    }[kind]
    kind_of = HEAD if kind == "a stream" else OK + b"Content-Type: application/json\r\n"
    bench.engine.begin(says(kind_of + b"Content-Length: %d\r\n\r\n" % len(body) + body))
    tokens, success = await Tokens(bench).begin(), await Success(bench).begin()
    async with connected(bench.http, reads_ahead_bytes=32 << 20) as client:
        client.ask(path, {**BODIES[path], "stream": kind == "a stream"})
        await client.until(body[-60:])
        leave(client, how)
    assert await success.counted() == SERVED_ONCE
    assert await tokens.counted() == (4, 100)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", STREAMS)
async def test_a_client_that_leaves_one_event_before_the_end_was_not(bench: Bench, path: str, how: str) -> None:
    stream = STREAMS[path]

    async def script(turn: Turn) -> None:
        await turn.send(CHUNKED_HEAD, chunk(stream.opening + stream.piece))
        await turn.stay()

    bench.engine.begin(script)
    success = await Success(bench).begin()
    async with connected(bench.http) as client:
        client.ask(path, {**BODIES[path], "stream": True})
        await client.until(b"\r\n\r\n")
        await client.body(len(stream.opening + stream.piece))
        leave(client, how)
        await bench.engine.all_left()
    _successes, failures, served, left = await success.counted()
    assert (failures, served, left) == (0, 0, 1)


NO_HEADS: Final = {
    "line feeds alone": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a line feed among others": b"HTTP/1.1 200 OK\r\nServer: x\nContent-Length: 2\r\n\r\nok",
    "a line feed at the end": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok",
    "a folded line": OK + b"X-A: b\r\n c\r\n",
    "transfer-encoding identity": OK + b"Transfer-Encoding: identity\r\n\r\nok",
    "a length beside chunked": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
    "a TLS alert": b"\x15\x03\x03\x00\x02\x02\x46",
    "an SSH banner": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an HTTP/2 preface": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00\x03\x00\x00\x00\x64" * 3,
    "another protocol": b"220 mail ready\r\n",
    "a status that is none": b"HTTP/1.1 OK",
    "no version of HTTP": b"HTTP/2 200\r\n",
    "a line without a colon": OK + b"Content-Length 2\r\n",
}
NO_CHUNKS: Final = {
    "no size": b"ok, here it is",
    "a size without its line end": b"2ok",
    "a size that line feeds end": b"2\nok\n",
    "JSON": ANSWER,
    "a chunk that goes on": b"2\r\nokay",
}


@pytest.mark.parametrize("name", NO_HEADS)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_what_can_be_no_head_is_told_at_once_while_the_engine_stays(bench: Bench, path: str, name: str) -> None:
    """On both replicas: 502 before the request's time is over, and the next request is served."""

    async def script(turn: Turn) -> None:
        await turn.send(NO_HEADS[name])
        await turn.stay()

    bench.begin(script)
    async with asyncio.timeout(TELLS_PROMPTLY_S):
        reply = await ask(bench.http, path, {**BODIES[path], "model": TWO})
    assert (reply.status, error_of(reply)["code"]) == (502, "backend_error")
    assert sum(len(bench.engines[engine].turns) for engine in ("a", "b")) == 2
    bench.begin(whole_answer)
    assert (await ask(bench.http, path, {**BODIES[path], "model": TWO})).status == 200


@pytest.mark.parametrize("name", NO_CHUNKS)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_can_be_no_chunk_is_told_at_once_while_the_engine_stays(
    bench: Bench, name: str, stream: bool
) -> None:
    async def script(turn: Turn) -> None:
        await turn.send(head("text/event-stream" if stream else "application/json"), NO_CHUNKS[name])
        await turn.stay()

    bench.engine.begin(script)
    async with asyncio.timeout(TELLS_PROMPTLY_S):
        reply = await ask(bench.http, CHAT, {**BODIES[CHAT], "stream": stream})
    if stream and name == "a chunk that goes on":
        # The client has had a byte of it.
        assert (reply.status, reply.whole) == (200, False)
    else:
        assert reply.status in (502, 503)


INTERIM: Final = {
    "103": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n",),
    "100 twice": (b"HTTP/1.1 100 Continue\r\n\r\n",) * 2,
    "102 three times and 103 with a length": (
        *(b"HTTP/1.1 102 Processing\r\n\r\n",) * 3,
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n",
    ),
}


@pytest.mark.parametrize("name", INTERIM)
@pytest.mark.parametrize("path", STREAMS)
async def test_o30_interim_answers_are_stepped_over_before_a_body_and_before_a_stream(
    bench: Bench, path: str, name: str
) -> None:
    stream = STREAMS[path]
    events = stream.opening + stream.piece + stream.closing
    for _ in range(2):
        bench.engine.begin(says(*INTERIM[name], *sized(ANSWER).pieces))
        reply = await ask(bench.http, path, BODIES[path])
        assert (reply.status, reply.body) == (200, ANSWER)
        bench.engine.begin(says(*INTERIM[name], CHUNKED_HEAD + chunk(events) + LAST_CHUNK))
        reply = await ask_stream(bench, path)
        assert (reply.status, reply.whole, reply.body) == (200, True, events)


REFUSED: Final = b'{"error":{"message":"that is too much","type":"SomeError"}}'


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_o30_an_engine_that_refuses_before_it_has_read_a_large_body_is_understood(
    bench: Bench, path: str
) -> None:
    """It has read the head and no more, answers, and closes; the next request is served."""
    engine = bench.engine
    refusal = b"".join(sized(REFUSED, "413 Content Too Large", extra="Connection: close\r\n").pieces)
    engine.refuses_at_head = refusal
    reply = await ask(bench.http, path, {**hello(str(BODIES[path]["model"]), max_tokens=5), "x": "y" * 6_000_000})
    assert (reply.status, error_of(reply)["message"]) == (413, "that is too much")
    engine.begin(whole_answer)
    reply = await ask(bench.http, path, BODIES[path])
    assert (reply.status, reply.body) == (200, ANSWER)


async def test_what_an_engine_says_behind_the_end_mark_goes_to_nobody(bench: Bench) -> None:
    """Bytes behind a whole answer end its connection, and the next answer is its own."""
    bench.engine.begin(says(CHUNKED_HEAD + chunk(STREAM) + LAST_CHUNK + b"HTTP/1.1 200 OK\r\n\r\n"))
    reply = await ask_stream(bench, CHAT)
    assert (reply.whole, reply.body) == (True, STREAM)
    bench.engine.begin(whole_answer)
    assert (await ask(bench.http, CHAT, BODIES[CHAT])).body == ANSWER
