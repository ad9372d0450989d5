"""O-08, O-17: a stream reaches the client byte for byte and event by event, and its usage is read on the way.

That an event leaves at once is seen by its order: the engine sends the next one only when the client has the last. What
a stream costs its key is tried with keys, which the router does not have yet; here its tokens are read off the agent's
counters.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, Bench
from tests.field_cases.engine import Turn
from tests.field_cases.words import (
    CHUNKED_HEAD,
    COMPLETIONS,
    DONE,
    HEAD,
    LAST_CHUNK,
    MESSAGE_START,
    MESSAGE_STOP,
    RESPONSES,
    STREAMS,
    block_delta,
    chunk,
    delta,
    event,
    says,
    streams,
    text_completion,
)
from tests.house.client import CHAT, MESSAGES, ask, connected
from tests.house.running import until_so
from tests.raw_http import Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALIVE: Final = b": keep-alive\n\n"
PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
WORDS: Final = "你好🌍"
WORDED: Final = {
    CHAT: delta(content=WORDS),
    COMPLETIONS: text_completion(WORDS),
    RESPONSES: event("response.output_text.delta", {"type": "response.output_text.delta", "delta": WORDS}),
    MESSAGES: block_delta(type="text_delta", text=WORDS),
}
LARGE: Final = "y" * (2 << 20)


def body_of(path: str, *inside: bytes) -> bytes:
    """A whole stream of this path with these events in the middle, and a usage of 4 tokens in and 100 out."""
    stream = STREAMS[path]
    return b"".join((stream.opening, *inside, stream.piece, stream.closing))


def split_by_a_comment(one: bytes) -> bytes:
    """The event with a comment line before its last one, which is no part of it."""
    return b": x\n" + one.removesuffix(b"\n") + b": inside\n\n"


INSIDES: Final[dict[str, Callable[[str], bytes]]] = {
    "nothing": lambda path: b"",
    "comments between and inside": lambda path: ALIVE + split_by_a_comment(STREAMS[path].piece) + ALIVE,
    "pings": lambda path: PING,
    "other fields": lambda path: b"retry: 1000\n\nid: 7\n: x\n\n",
    "empty data": lambda path: b"data:\n\ndata: \n\n",
    "a thousand events": lambda path: STREAMS[path].piece * 1000,
    "an event of two megabytes": lambda path: WORDED[path].replace(WORDS.encode(), LARGE.encode()),
}
"""What stands in the middle of a stream, in the words of its path."""


class Tokens:
    """What the router has counted since the block began."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._before = (0.0, 0.0)

    async def _now(self) -> tuple[float, float]:
        page = await self._bench.page()
        return page.total("hivenet_agent_input_tokens_total"), page.total("hivenet_agent_output_tokens_total")

    async def begin(self) -> "Tokens":
        """Count from now on."""
        self._before = await self._now()
        return self

    async def counted(self) -> tuple[float, float]:
        """Tokens in and out, once any have come. Raises: TimeoutError."""

        async def have_come() -> bool:
            return (await self._now())[1] > self._before[1]

        await until_so(have_come)
        now = await self._now()
        return now[0] - self._before[0], now[1] - self._before[1]


async def ask_stream(bench: Bench, path: str) -> Reply:
    """Ask for a stream on this path."""
    return await ask(bench.http, path, {**BODIES[path], "stream": True})


def same(got: bytes, sent: bytes) -> None:
    """What came is what was sent. Compared by hash, so that a difference of megabytes is not printed."""
    assert (len(got), hashlib.sha256(got).hexdigest()) == (len(sent), hashlib.sha256(sent).hexdigest())


@pytest.mark.parametrize("path", STREAMS)
async def test_o08_characters_and_comments_cut_at_every_byte_come_as_they_were(bench: Bench, path: str) -> None:
    """Each byte in a segment of its own, once in chunks of one byte and once as chunks cut anywhere."""
    body = ALIVE + body_of(path, ALIVE, WORDED[path], split_by_a_comment(WORDED[path]), PING, b"data:\n\n") + ALIVE
    for framed in (
        [chunk(body[at : at + 1]) for at in range(len(body))],
        [bytes([byte]) for byte in chunk(body)],
    ):
        tokens = await Tokens(bench).begin()
        bench.engine.begin(says(CHUNKED_HEAD, *framed, LAST_CHUNK))
        reply = await ask_stream(bench, path)
        assert (reply.status, reply.whole) == (200, True)
        same(reply.body, body)
        assert WORDS in reply.body.decode()
        assert await tokens.counted() == (4, 100)


@pytest.mark.parametrize("name", INSIDES)
@pytest.mark.parametrize("path", STREAMS)
async def test_o08_whatever_stands_between_events_passes_and_the_usage_is_read(
    bench: Bench, path: str, name: str
) -> None:
    """Everything in one segment, as far as a segment goes."""
    body = body_of(path, INSIDES[name](path))
    tokens = await Tokens(bench).begin()
    bench.engine.begin(streams(body))
    reply = await ask_stream(bench, path)
    assert (reply.status, reply.whole) == (200, True)
    same(reply.body, body)
    assert await tokens.counted() == (4, 100)


@pytest.mark.parametrize("path", STREAMS)
async def test_o08_line_ends_of_every_kind_pass(bench: Bench, path: str) -> None:
    for line_end in (b"\r\n", b"\r"):
        body = body_of(path, WORDED[path]).replace(b"\n", line_end)
        tokens = await Tokens(bench).begin()
        bench.engine.begin(streams(body))
        same((await ask_stream(bench, path)).body, body)
        assert await tokens.counted() == (4, 100)


@pytest.mark.parametrize("path", STREAMS)
async def test_o08_a_stream_is_the_same_with_a_length_or_ended_by_the_connection(bench: Bench, path: str) -> None:
    body = body_of(path, WORDED[path])

    async def until_close(turn: Turn) -> None:
        await turn.send(HEAD + b"\r\n" + body)
        turn.end("fin")

    for script in (says(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body), until_close):
        tokens = await Tokens(bench).begin()
        bench.engine.begin(script)
        reply = await ask_stream(bench, path)
        assert (reply.status, reply.whole) == (200, True)
        same(reply.body, body)
        assert await tokens.counted() == (4, 100)


async def one_by_one(bench: Bench, path: str, events: Sequence[bytes]) -> Reply:
    """The stream of these events, each sent only when the client has had the one before."""
    seen = asyncio.Semaphore(1)

    async def script(turn: Turn) -> None:
        await turn.send(CHUNKED_HEAD)
        for one in events:
            await seen.acquire()
            await turn.send(chunk(one))
        await turn.send(LAST_CHUNK)

    bench.engine.begin(script)
    async with connected(bench.http) as client:
        client.ask(path, {**BODIES[path], "stream": True})
        head = await client.until(b"\r\n\r\n")
        got = b""
        for one in events:
            got += await client.body(len(one))
            seen.release()
        rest = await client.until(LAST_CHUNK)
    assert head.startswith(b"HTTP/1.1 200 ")
    assert rest == LAST_CHUNK
    return Reply(200, [], got)


@pytest.mark.parametrize("path", STREAMS)
async def test_o08_each_event_comment_and_ping_leaves_as_it_arrives(bench: Bench, path: str) -> None:
    stream = STREAMS[path]
    events = [ALIVE, stream.opening, ALIVE, PING, *[stream.piece] * 20, b"data:\n\n", WORDED[path], stream.closing]
    same((await one_by_one(bench, path, events)).body, b"".join(events))


TOOL_PIECES: Final = 300


async def test_o17_three_hundred_pieces_of_a_tool_s_input_come_one_by_one(bench: Bench) -> None:
    start = event(
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f"}},
    )
    pieces = [block_delta(type="input_json_delta", partial_json=f'"{number}",') for number in range(TOOL_PIECES)]
    events = [MESSAGE_START, start, *pieces, STREAMS[MESSAGES].closing]
    tokens = await Tokens(bench).begin()
    reply = await one_by_one(bench, MESSAGES, events)
    same(reply.body, b"".join(events))
    assert reply.body.count(b"event: message_start") == 1
    assert await tokens.counted() == (4, 100)


def tool_call(index: int, arguments: str) -> bytes:
    """A chat event with a piece of one tool call and nothing else."""
    return delta(tool_calls=[{"index": index, "function": {"arguments": arguments}}])


CUT_INSIDE: Final = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\u4f60"}}]}}]}\n\n'
)
LITERALS: Final = (
    b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"logprob":-inf}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"logprob":NaN}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"c"},"logprobs":{"content":[{"logprob":-Infinity}]}}]}\n\n'
)
OUTPUTS: Final[dict[str, tuple[str, list[bytes]]]] = {
    "two interleaved tool calls, cut inside an escape": (
        CHAT,
        [tool_call(0, '{"a":"\\u4f'), tool_call(1, '{"b":'), tool_call(0, '60"}'), tool_call(1, "1}")],
    ),
    "an event cut inside an escape of its own": (
        CHAT,
        [CUT_INSIDE[:-12], CUT_INSIDE[-12:]],
    ),
    "tool calls alone": (CHAT, [tool_call(0, "{}"), tool_call(0, " ")]),
    "reasoning": (CHAT, [delta(reasoning_content="hm"), delta(reasoning_content="so")]),
    "a refusal": (CHAT, [delta(refusal="I will not")]),
    "logprobs that are no numbers": (CHAT, [LITERALS]),
    "text": (COMPLETIONS, [text_completion("hello there")]),
    "a tool's input": (MESSAGES, [MESSAGE_START, block_delta(type="input_json_delta", partial_json='{"a":1}')]),
    "thinking": (MESSAGES, [MESSAGE_START, block_delta(type="thinking_delta", thinking="hm, so")]),
    "a function's arguments": (
        RESPONSES,
        [
            event(
                "response.function_call_arguments.delta",
                {"type": "response.function_call_arguments.delta", "delta": '{"a":1}'},
            )
        ],
    ),
}
"""Streams of which every piece is output, but that say nothing of usage."""
WITHOUT_USAGE: Final = {
    CHAT: DONE,
    COMPLETIONS: DONE,
    MESSAGES: MESSAGE_STOP,
    RESPONSES: event("response.completed", {"type": "response.completed", "response": {}}),
}


@pytest.mark.parametrize("name", OUTPUTS)
async def test_o17_output_of_every_kind_passes_as_it_is_and_is_counted_without_a_usage_event(
    bench: Bench, name: str
) -> None:
    path, pieces = OUTPUTS[name]
    events = [*pieces, WITHOUT_USAGE[path]]
    tokens = await Tokens(bench).begin()
    same((await one_by_one(bench, path, events)).body, b"".join(events))
    assert (await tokens.counted())[1] > 0


@pytest.mark.parametrize("name", OUTPUTS)
async def test_o17_usage_that_follows_output_of_any_kind_is_read(bench: Bench, name: str) -> None:
    """Numbers that JSON does not have break nothing that comes after them."""
    path, pieces = OUTPUTS[name]
    events = [*pieces, STREAMS[path].closing]
    tokens = await Tokens(bench).begin()
    same((await one_by_one(bench, path, events)).body, b"".join(events))
    assert (await tokens.counted())[1] == 100
