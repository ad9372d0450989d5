"""O-23, O-26, O-27: a 200 is an answer when its body is one, and is streamed and metered whatever its label and size.

That an event leaves at once is seen by its order: the engine sends the next one only when the client has the last.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, EMBEDDER, EMBEDDINGS, TWO, Bench
from tests.field_cases.engine import Script, Turn
from tests.field_cases.test_streams import Tokens, ask_stream, same
from tests.field_cases.words import ANSWER, DONE, LAST_CHUNK, STREAMS, chunk, delta, says, whole_answer
from tests.house.client import CHAT, ask, connected, error_of, hello
from tests.house.raw_engine import sized

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVENTS: Final = 8
PAUSE_S: Final = 0.2
LABELS: Final = (
    "text/event-stream; charset=utf-8",
    "application/json",
    "text/plain",
    "",
    "application/octet-stream",
)
OK: Final = b"HTTP/1.1 200 OK\r\n"


def head(label: str, framing: str = "Transfer-Encoding: chunked\r\n") -> bytes:
    """The head of a 200 with this label, which may be none."""
    kind = f"Content-Type: {label}\r\n" if label else ""
    return OK + f"{kind}{framing}\r\n".encode()


def eight(path: str) -> Sequence[bytes]:
    """So many events of a stream of this path, the end mark with the last."""
    stream = STREAMS[path]
    return (stream.opening, *[stream.piece] * (EVENTS - 2), stream.closing)


class Success:
    """What has been counted of an agent since the block began: its successes, its failures, and what clients were."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._before: tuple[float, ...] = ()

    async def _now(self) -> tuple[float, ...]:
        page = await self._bench.page()
        return (
            page.total("hivenet_agent_requests_success_total"),
            page.total("hivenet_agent_requests_failed_total"),
            page.total("hivenet_requests_total", outcome="served"),
            page.total("hivenet_requests_total", outcome="client_gone"),
        )

    async def begin(self) -> "Success":
        """Count from now on."""
        self._before = await self._now()
        return self

    async def counted(self) -> tuple[float, ...]:
        """Successes and failures of agents, requests served and left, once nothing runs."""
        await self._bench.rests()
        return tuple(now - before for now, before in zip(await self._now(), self._before, strict=True))


SERVED_ONCE: Final = (1, 0, 1, 0)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("path", STREAMS)
async def test_o23_each_event_leaves_as_it_arrives_whatever_the_stream_is_called(
    bench: Bench, path: str, label: str
) -> None:
    """(a) to (f): the engine goes on when the client has the event, and not before a pause is over."""
    events = eight(path)
    has_had = asyncio.Semaphore(1)

    async def script(turn: Turn) -> None:
        await turn.send(head(label))
        for one in events:
            await has_had.acquire()
            await asyncio.sleep(PAUSE_S)
            await turn.send(chunk(one))
        await turn.send(LAST_CHUNK)

    bench.engine.begin(script)
    tokens, success = await Tokens(bench).begin(), await Success(bench).begin()
    got = b""
    async with connected(bench.http) as client:
        client.ask(path, {**BODIES[path], "stream": True})
        told = await client.until(b"\r\n\r\n")
        for one in events:
            got += await client.body(len(one))
            has_had.release()
        assert await client.until(LAST_CHUNK) == LAST_CHUNK
    same(got, b"".join(events))
    lines = told.decode().split("\r\n")
    assert lines[0].startswith("HTTP/1.1 200 ")
    kinds = [line.partition(": ")[2] for line in lines if line.lower().startswith("content-type:")]
    assert kinds == ([label] if label else [])
    assert await tokens.counted() == (4, 100)
    assert await success.counted() == SERVED_ONCE


@pytest.mark.parametrize("label", LABELS[1:])
@pytest.mark.parametrize("path", STREAMS)
async def test_o23_events_without_a_blank_between_label_and_length_are_metered_however_they_end(
    bench: Bench, path: str, label: str
) -> None:
    """With a length, and ended by the connection."""
    body = b"".join(eight(path))

    async def until_close(turn: Turn) -> None:
        await turn.send(head(label, "Connection: close\r\n") + body)
        turn.end("fin")

    for script in (says(head(label, f"Content-Length: {len(body)}\r\n") + body), until_close):
        bench.engine.begin(script)
        tokens = await Tokens(bench).begin()
        reply = await ask_stream(bench, path)
        assert (reply.status, reply.whole, reply.header("content-type") or "") == (200, True, label)
        same(reply.body, body)
        assert await tokens.counted() == (4, 100)


@pytest.mark.parametrize("label", ["application/json", "text/plain", ""])
@pytest.mark.parametrize("path", STREAMS)
async def test_o23_one_json_body_though_a_stream_was_asked_for_is_passed_as_it_is(
    bench: Bench, path: str, label: str
) -> None:
    half = len(ANSWER) // 2

    async def until_close(turn: Turn) -> None:
        await turn.send(head(label, "Connection: close\r\n") + ANSWER[:half], ANSWER[half:])
        turn.end("fin")

    for script in (
        says(head(label, f"Content-Length: {len(ANSWER)}\r\n") + ANSWER),
        says(head(label), chunk(ANSWER[:half]), chunk(ANSWER[half:]) + LAST_CHUNK),
        until_close,
    ):
        bench.engine.begin(script)
        tokens, success = await Tokens(bench).begin(), await Success(bench).begin()
        reply = await ask_stream(bench, path)
        assert (reply.status, reply.whole, reply.header("content-type") or "") == (200, True, label)
        assert reply.body == ANSWER
        assert await tokens.counted() == (4, 100)
        assert await success.counted() == SERVED_ONCE


MIB: Final = 1 << 20
SIZES: Final = (1 * MIB, 9 * MIB)


def embeddings(size: int) -> bytes:
    """An answer of about so many bytes that says what it took at its end."""
    vector = "0.015625," * (size // len("0.015625,"))
    usage = '"usage":{"prompt_tokens":700,"total_tokens":700}'
    return f'{{"object":"list","data":[{{"index":0,"embedding":[{vector}0]}}],"model":"{EMBEDDER}",{usage}}}'.encode()


@pytest.mark.parametrize("size", SIZES)
async def test_o26_embeddings_of_any_size_come_as_they_are_and_are_counted(bench: Bench, size: int) -> None:
    body = embeddings(size)
    for script in (
        says(*sized(body).pieces),
        says(
            head("application/json"), *(chunk(body[at : at + 65_000]) for at in range(0, len(body), 65_000)), LAST_CHUNK
        ),
    ):
        bench.begin(script)
        success, before = await Success(bench).begin(), await bench.page()
        reply = await ask(bench.http, EMBEDDINGS, BODIES[EMBEDDINGS])
        assert (reply.status, reply.whole) == (200, True)
        same(reply.body, body)
        assert await success.counted() == SERVED_ONCE
        now = await bench.page()
        for name, more in (("hivenet_agent_input_tokens_total", 700), ("hivenet_agent_output_tokens_total", 0)):
            assert now.total(name) - before.total(name) == more


def with_logprobs(size: int, *, is_usage_first: bool) -> bytes:
    """A chat of about so many bytes, most of them logprobs."""
    one = '{"token":"a \\" b","logprob":-0.25,"bytes":[97],"top_logprobs":[]}'
    logprobs = ",".join([one] * (size // len(one)))
    choices = f'"choices":[{{"index":0,"message":{{"content":"hello"}},"logprobs":{{"content":[{logprobs}]}}}}]'
    usage = '"usage":{"prompt_tokens":33,"completion_tokens":44,"total_tokens":77}'
    return f"{{{','.join([usage, choices] if is_usage_first else [choices, usage])}}}".encode()


@pytest.mark.parametrize("is_usage_first", [False, True])
@pytest.mark.parametrize("size", SIZES)
async def test_o26_a_chat_with_long_logprobs_is_counted_by_its_usage_wherever_that_stands(
    bench: Bench, size: int, is_usage_first: bool
) -> None:
    body = with_logprobs(size, is_usage_first=is_usage_first)
    bench.begin(says(*sized(body).pieces))
    tokens, success = await Tokens(bench).begin(), await Success(bench).begin()
    reply = await ask(bench.http, CHAT, BODIES[CHAT])
    assert (reply.status, reply.whole) == (200, True)
    same(reply.body, body)
    assert await success.counted() == SERVED_ONCE
    assert await tokens.counted() == (33, 44)


UNSIZED_HEADS: Final = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n",
    "close": head("application/json", "Connection: close\r\n"),
    "HTTP/1.0 without a label": b"HTTP/1.0 200 OK\r\n\r\n",
}
TOLD: Final = ANSWER.replace(b"hello", "你好, and what it takes to have more than sixty bytes".encode())
CUTS: Final = {
    "after 60 bytes": TOLD[:60],
    "one byte short": TOLD[:-1],
    "inside a character": TOLD[: TOLD.index("好".encode()) + 1],
    "without a byte": b"",
}


def closes(data: bytes, how: str = "fin") -> Script:
    """A script that sends this, all of it on the other side, and ends the connection."""

    async def script(turn: Turn) -> None:
        await turn.send(data)
        await turn.arrived()
        turn.end(how)

    return script


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("unsized", UNSIZED_HEADS)
@pytest.mark.parametrize("stream", [False, True])
async def test_o27_json_that_is_cut_where_only_the_close_tells_its_end_is_no_answer(
    bench: Bench, unsized: str, cut: str, how: str, stream: bool
) -> None:
    """(a) to (c)."""
    bench.begin(closes(UNSIZED_HEADS[unsized] + CUTS[cut], how))
    success = await Success(bench).begin()
    reply = await ask(bench.http, CHAT, {**BODIES[CHAT], "stream": stream})
    assert reply.status in (502, 503)
    assert error_of(reply)["code"] in ("backend_error", "backend_unavailable")
    successes, failures, served, left = await success.counted()
    assert (successes, served, left) == (0, 0, 0)
    assert failures > 0


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("unsized", UNSIZED_HEADS)
async def test_o27_the_other_replica_answers_where_the_first_one_cut_its_answer(
    bench: Bench, unsized: str, cut: str
) -> None:
    """(d)."""
    pair = bench.pair(closes(UNSIZED_HEADS[unsized] + CUTS[cut]), whole_answer)
    reply = await ask(bench.http, CHAT, hello(TWO))
    assert (reply.status, reply.body) == (200, ANSWER)
    assert pair.asked == [pair.first, pair.second]


STREAM: Final = delta(content="hello") + STREAMS[CHAT].closing
WHOLE: Final = {
    "whole, then close": (UNSIZED_HEADS["close"] + TOLD, "fin", TOLD),
    "whole by HTTP/1.0, then close": (UNSIZED_HEADS["HTTP/1.0"] + TOLD, "fin", TOLD),
    "whole without a label, then close": (UNSIZED_HEADS["HTTP/1.0 without a label"] + TOLD, "fin", TOLD),
    "whole, then reset": (UNSIZED_HEADS["close"] + TOLD, "rst", TOLD),
    "whole by its length, then reset": (b"".join(sized(TOLD).pieces), "rst", TOLD),
    "whole in chunks, then reset": (head("application/json") + chunk(TOLD) + LAST_CHUNK, "rst", TOLD),
    "a stream without a length, then reset": (
        head("text/event-stream", "Connection: close\r\n") + STREAM,
        "rst",
        STREAM,
    ),
    "a stream of another label, then reset": (head("", "Connection: close\r\n") + STREAM, "rst", STREAM),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_o27_what_was_whole_before_the_connection_ended_is_an_answer(bench: Bench, name: str) -> None:
    """(e) to (h)."""
    data, how, body = WHOLE[name]
    bench.begin(closes(data, how))
    tokens, success = await Tokens(bench).begin(), await Success(bench).begin()
    reply = await ask(bench.http, CHAT, {**BODIES[CHAT], "stream": body is STREAM})
    assert (reply.status, reply.whole) == (200, True)
    assert reply.body == body
    assert len(bench.engine.turns) == 1
    assert await tokens.counted() == (4, 100)
    assert await success.counted() == SERVED_ONCE


@pytest.mark.parametrize("number", ["17", "-0.5e3", "true", "null", '"a text"', "[]"])
async def test_o27_any_json_value_that_is_whole_is_an_answer(bench: Bench, number: str) -> None:
    """Where nothing but the close tells its end."""
    bench.begin(closes(UNSIZED_HEADS["close"] + number.encode()))
    reply = await ask(bench.http, CHAT, BODIES[CHAT])
    assert (reply.status, reply.body) == (200, number.encode())


@pytest.mark.parametrize("text", ["tru", "-", '"a text', "[] []", "1.", '"a" "b"'])
async def test_o27_a_value_that_is_not_whole_is_none(bench: Bench, text: str) -> None:
    bench.begin(closes(UNSIZED_HEADS["close"] + text.encode()))
    assert (await ask(bench.http, CHAT, BODIES[CHAT])).status in (502, 503)


EMPTY: Final = {
    "a length of nothing": head("application/json", "Content-Length: 0\r\n"),
    "no chunk": head("application/json") + LAST_CHUNK,
    "blanks": head("application/json", "Content-Length: 4\r\n") + b" \r\n\t",
    "blanks in chunks": head("application/json") + chunk(b"\n") * 3 + LAST_CHUNK,
    "nothing, without a label": head("", "Content-Length: 0\r\n"),
    "a stream of nothing": head("text/event-stream") + LAST_CHUNK,
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("path", STREAMS)
async def test_a_200_without_any_byte_of_a_body_is_no_answer(bench: Bench, path: str, name: str, stream: bool) -> None:
    """decisions.md 39: the other replica answers, and where there is none the client hears of it."""
    request = {**BODIES[path], "stream": stream}
    pair = bench.pair(says(EMPTY[name]), whole_answer)
    reply = await ask(bench.http, path, {**request, "model": TWO})
    assert (reply.status, reply.body) == (200, ANSWER)
    assert pair.asked == [pair.first, pair.second]
    bench.engine.begin(says(EMPTY[name]))
    assert (await ask(bench.http, path, request)).status in (502, 503)
    assert len(bench.engine.turns) == 1


async def test_a_chat_without_a_length_that_is_one_done_is_no_json_and_passes(bench: Bench) -> None:
    """A stream that holds nothing but its end mark has ended as a stream does."""
    bench.begin(says(head("text/event-stream") + chunk(DONE) + LAST_CHUNK))
    reply = await ask_stream(bench, CHAT)
    assert (reply.status, reply.body) == (200, DONE)
    assert json.loads(bench.engine.turns[0].request.body)["stream"] is True
