"""Does each fault do on the wire what its word says?"""

import gzip
import json
import time
import zlib
from dataclasses import replace

import pytest
from tests.raw_http import Reply, at
from tests.sim.sim_wire import CHAT, FAST, HELLO, connected, fetch

from hivenet_router.sim import Simulator

pytestmark = pytest.mark.asyncio

STREAM = {**HELLO, "stream": True}


async def struck(x_sim: str, body: object = None, path: str = CHAT) -> Reply:
    """The answer to one request with these words."""
    async with Simulator(FAST) as sim:
        return await fetch(sim.url, path, dict(HELLO) if body is None else body, x_sim=x_sim)


def texts(reply: Reply) -> list[str]:
    """The pieces of text in a chat stream."""
    contents = [at(event, "choices", 0, "delta", "content") for event in reply.events()]
    return [content for content in contents if isinstance(content, str) and content]


async def test_status_and_retry_after() -> None:
    reply = await struck("status=429,retry_after=7")
    assert (reply.status, reply.header("retry-after")) == (429, "7")
    assert reply.json()["error"] == {
        "message": "simulated status 429",
        "type": "RateLimitError",
        "param": None,
        "code": 429,
    }


async def test_status_in_the_anthropic_dialect() -> None:
    reply = await struck("status=529", {**HELLO, "max_tokens": 1}, "/v1/messages")
    assert reply.json()["error"] == {"type": "overloaded_error", "message": "simulated status 529"}


async def test_a_body_of_ones_own_with_type_and_headers() -> None:
    reply = await struck(
        "body=a%2C b,content_type=text/plain; charset=utf-8,header=Set-Cookie:a=1,header=Set-Cookie:b=2"
    )
    assert (reply.status, reply.body, reply.header("content-type")) == (200, b"a, b", "text/plain; charset=utf-8")
    assert [value for name, value in reply.headers if name == "Set-Cookie"] == ["a=1", "b=2"]


async def test_raw_bytes_are_the_whole_answer() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, dict(HELLO), x_sim="raw=HTTP/1.1 200 OK%0d%0aX: %ff%0d%0a")
        assert await wire.rest() == (b"HTTP/1.1 200 OK\r\nX: \xff\r\n", "fin")


@pytest.mark.parametrize(("word", "ending"), [("reset_before_head", "reset"), ("close_before_head", "fin")])
async def test_nothing_comes_before_the_end(word: str, ending: str) -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, dict(HELLO), x_sim=word)
        assert await wire.rest() == (b"", ending)
        assert (await sim.wait_for(lambda stats: stats.broken == 1)).running == 0


@pytest.mark.parametrize(("word", "ending"), [("reset_after_bytes", "reset"), ("close_after_bytes", "fin")])
@pytest.mark.parametrize("size_bytes", [0, 1, 40, 300])
@pytest.mark.parametrize("stream", [False, True])
async def test_exactly_so_many_bytes_come_before_the_end(word: str, ending: str, size_bytes: int, stream: bool) -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, {**HELLO, "stream": stream}, x_sim=f"{word}={size_bytes}")
        got, how = await wire.rest()
    assert (len(got), how) == (size_bytes, ending)


@pytest.mark.parametrize(("word", "ending"), [("reset_after_chunks", "reset"), ("close_after_chunks", "fin")])
@pytest.mark.parametrize("count", [0, 3, 8])
async def test_so_many_chunks_come_before_the_end_and_no_terminator(word: str, ending: str, count: int) -> None:
    reply = await struck(f"{word}={count}", STREAM)
    assert (reply.ending, len(texts(reply)), reply.whole) == (ending, count, False)
    assert "[DONE]" not in reply.data()


async def test_a_cut_past_the_end_never_comes() -> None:
    assert (await struck("reset_after_chunks=9", STREAM)).data()[-1] == "[DONE]"


@pytest.mark.parametrize("count", [0, 3, 8])
async def test_a_stall_keeps_the_stream_open_and_silent(count: int) -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, STREAM, x_sim=f"stall_after_chunks={count}")
        await wire.until(b"\r\n\r\n")
        for _ in range(count + 1):
            await wire.until(b"}\n\n\r\n")
        assert await wire.silent_for(0.1)
        assert sim.load.running == 1


async def test_a_stall_may_end() -> None:
    reply = await struck("stall_after_chunks=3,stall=0.05", STREAM)
    assert (len(texts(reply)), reply.data()[-1]) == (8, "[DONE]")


async def test_a_buffered_answer_stalls_whole() -> None:
    assert (await struck("stall_after_chunks=3,stall=0.05")).status == 200
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, dict(HELLO), x_sim="stall_after_chunks=3")
        assert await wire.silent_for(0.1)


async def test_a_stall_before_the_head() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask("/health", x_sim="stall_before_head=0.1")
        assert await wire.silent_for(0.05)
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, STREAM, x_sim="stall_before_head=forever")
        assert await wire.silent_for(0.1)


async def test_a_delay_comes_behind_the_head_of_a_stream_unless_the_head_is_late() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, STREAM, x_sim="delay=0.1")
        await wire.until(b"\r\n\r\n")
        assert await wire.silent_for(0.05)
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, STREAM, x_sim="delay=0.1,late_head")
        assert await wire.silent_for(0.05)


async def test_a_delay_before_other_answers() -> None:
    for x_sim in ("delay=0.1", "delay=0.1,status=500"):
        started_s = time.monotonic()
        await struck(x_sim)
        assert time.monotonic() - started_s >= 0.1


async def test_the_end_mark_can_be_left_out() -> None:
    chat = await struck("no_done", STREAM)
    message = await struck("no_done", {**STREAM, "max_tokens": 2}, "/v1/messages")
    assert "[DONE]" not in chat.data()
    assert message.events()[-1]["type"] == "message_delta"
    assert chat.whole
    assert message.whole


async def test_usage_can_be_left_out_or_set() -> None:
    streamed = {**STREAM, "stream_options": {"include_usage": True}}
    assert "usage" not in (await struck("no_usage")).json()
    assert "usage" not in (await struck("no_usage", streamed)).events()[-1]
    assert (await struck("usage=4/100", streamed)).events()[-1]["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 100,
        "total_tokens": 104,
    }


async def test_chunks_and_their_size() -> None:
    reply = await struck("chunks=5,chunk_bytes=2000", STREAM)
    assert [len(text) for text in texts(reply)] == [2000] * 5


async def test_the_interval_between_chunks() -> None:
    started_s = time.monotonic()
    reply = await struck("chunks=6,interval_ms=20", STREAM)
    assert len(texts(reply)) == 6
    assert time.monotonic() - started_s >= 0.09


async def test_http_chunks_can_be_cut_anywhere() -> None:
    whole = await struck("", STREAM)
    reply = await struck("http_chunk_bytes=5", STREAM)
    assert {len(chunk) for chunk in reply.http_chunks} <= {1, 2, 3, 4, 5}
    assert texts(reply) == texts(whole)
    assert (await struck("http_chunk_bytes=7")).header("transfer-encoding") == "chunked"


async def test_writes_can_be_cut_anywhere() -> None:
    reply = await struck("write_bytes=1", STREAM)
    assert reply.data()[-1] == "[DONE]"


async def test_comments_stand_between_events() -> None:
    reply = await struck("comments", STREAM)
    assert reply.body.startswith(b": keep-alive\n\n")
    assert reply.body.count(b": keep-alive\n\n") == len(reply.data()) + 1


async def test_a_tool_can_be_called_by_word() -> None:
    tools = [{"type": "function", "function": {"name": "weather"}}]
    assert b'"tool_calls"' in (await struck("tool_call", {**HELLO, "tools": tools})).body


async def test_gzip_both_ways() -> None:
    buffered = await struck("gzip")
    streamed = await struck("gzip", STREAM)
    assert buffered.header("content-encoding") == streamed.header("content-encoding") == "gzip"
    assert json.loads(gzip.decompress(buffered.body))["object"] == "chat.completion"
    assert zlib.decompress(streamed.body, wbits=31).endswith(b"data: [DONE]\n\n")


async def test_a_body_shorter_than_it_claims() -> None:
    buffered = await struck("truncate_body=10")
    assert not buffered.whole
    assert int(buffered.header("content-length") or 0) == len(buffered.body) + 10
    assert not (await struck("truncate_body=10", STREAM)).whole


async def test_the_connection_can_be_closed_behind_an_answer() -> None:
    for body in (HELLO, STREAM):
        async with Simulator(FAST) as sim, connected(sim.url) as wire:
            wire.ask(CHAT, dict(body), x_sim="close_connection")
            reply = await wire.reply()
            assert (reply.status, reply.header("connection"), reply.whole) == (200, "close", True)
            assert await wire.rest() == (b"", "fin")
            assert sim.stats.finished == 1


async def test_only_reused_connections_are_struck() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, dict(HELLO), x_sim="reset_before_head,reused_only")
        assert (await wire.reply()).status == 200
        wire.ask(CHAT, dict(HELLO), x_sim="reset_before_head,reused_only")
        assert await wire.rest() == (b"", "reset")


async def test_probes_can_be_struck_too() -> None:
    assert (await struck("status=503", path="/health")).status == 503


async def test_words_that_are_not_understood_are_refused_with_what_is_wrong() -> None:
    reply = await struck("status=500,explode")
    assert reply.status == 400
    assert b"X-Sim: unknown word 'explode'" in reply.body


async def test_two_header_lines_are_one_list() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: a\r\nX-Sim: status=503\r\nX-Sim: retry_after=3\r\n\r\n")
        reply = await wire.reply()
    assert (reply.status, reply.header("retry-after")) == (503, "3")


async def test_the_error_rate_strikes_inference_only() -> None:
    async with Simulator(replace(FAST, error_rate=1.0, error_status=503)) as sim:
        assert (await fetch(sim.url, CHAT, dict(HELLO))).status == 503
        assert (await fetch(sim.url, "/health")).status == 200
