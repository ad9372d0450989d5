"""Does an answer cost the same memory however long it is, and do its bytes stay right?"""

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import Coroutine
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.raw_http import at
from tests.sim.sim_wire import CHAT, FAST, HELLO, connected, fetch

from hivenet_router.sim import Simulator
from hivenet_router.sim.answers import Answer, decide
from hivenet_router.sim.asks import Ask, Tool
from hivenet_router.sim.engine import EngineCore, Job
from hivenet_router.sim.faults import NO_FAULT, Fault, parse_fault
from hivenet_router.sim.framing import BodyEncoder
from hivenet_router.sim.ledger import Ledger, RecordedRequest
from hivenet_router.sim.options import SimOptions
from hivenet_router.sim.outlet import Outlet
from hivenet_router.sim.pacer import Pacer
from hivenet_router.sim.shapes_anthropic import MessageShape
from hivenet_router.sim.shapes_openai import ChatShape, CompletionShape
from hivenet_router.sim.transfer import Shape, StreamTransfer, send_blocks

STREAM = {**HELLO, "stream": True}
LONGEST = "chunks=1000000,chunk_bytes=200"
UNREAD_BYTES_MAX = 32 << 20
"""What lies between two sockets when nobody reads; a long answer is many times that."""


def answer_of(
    words: str, *, text: str = "hi", echo: bool = False, choices: int = 1, tool: Tool | None = None
) -> Answer:
    ask = Ask(model="m", stream=False, prompt_tokens=1, user_text=text, choices=choices, tool=tool)
    return decide(ask, parse_fault(words), SimOptions(), echo=echo, serial=1, created=0)


def shapes_of(answer: Answer) -> list[Shape]:
    """The answer in each dialect."""
    chat = ChatShape(answer, include_usage=True, no_done=False)
    return [
        chat,
        CompletionShape(answer, include_usage=True, no_done=False),
        MessageShape(replace(answer, choices=1), no_done=False),
    ]


@given(
    words=st.sampled_from(["", "chunks=1", "chunks=5000", "chunks=60,chunk_bytes=3", "reasoning=3", "reasoning=64"]),
    text=st.text(max_size=60),
    echo=st.booleans(),
    choices=st.integers(1, 3),
    tool=st.none() | st.text(max_size=8).map(lambda name: Tool(name, {"required": [name]})),
)
def test_a_body_is_json_of_exactly_the_size_it_tells(
    words: str, text: str, echo: bool, choices: int, tool: Tool | None
) -> None:
    answer = answer_of(words, text=text, echo=echo, choices=choices, tool=tool)
    for shape in shapes_of(answer):
        body = shape.body()
        joined = b"".join(body.blocks())
        assert len(joined) == body.size_bytes
        assert json.loads(joined)["model"] == "m"
    chat = json.loads(b"".join(shapes_of(answer)[0].body().blocks()))
    assert [choice["index"] for choice in chat["choices"]] == list(range(choices))
    message = chat["choices"][-1]["message"]
    said = message["tool_calls"][0]["function"]["arguments"] if tool else message["content"]
    assert message.get("reasoning_content", "") + said == "".join(answer.pieces)


def test_a_tool_named_like_a_place_for_text_keeps_its_name() -> None:
    chat, _, message = shapes_of(answer_of("", tool=Tool('\0"input":{}', {})))
    called = json.loads(b"".join(chat.body().blocks()))["choices"][0]["message"]["tool_calls"][0]["function"]
    assert (called["name"], called["arguments"]) == ('\0"input":{}', "{}")
    block = json.loads(b"".join(message.body().blocks()))["content"][0]
    assert (block["name"], block["input"]) == ('\0"input":{}', {})


@pytest.mark.parametrize("dialect", [0, 1, 2])
def test_the_longest_answer_is_made_while_it_is_sent(dialect: int) -> None:
    tracemalloc.start()
    try:
        shape = shapes_of(answer_of(LONGEST, choices=128))[dialect]
        streamed = list(itertools.islice(shape.pieces(), 1000))
        body = shape.body()
        for block in itertools.islice(body.blocks(), 100):
            assert len(block) < 1 << 18
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(streamed) == 1000
    assert body.size_bytes > 200_000_000
    assert peak_bytes < 4 << 20


@pytest.mark.asyncio
@pytest.mark.parametrize("body", [HELLO, STREAM])
async def test_a_client_that_does_not_read_makes_nothing_grow(body: dict[str, object]) -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire, connected(sim.url) as quick:
        wire.ask(CHAT, dict(body), x_sim=LONGEST)
        await sim.wait_for(lambda stats: stats.sent_bytes > 100_000)
        for _ in range(20):
            quick.ask(CHAT, dict(HELLO))
            assert (await quick.reply()).status == 200
        assert sim.stats.running == 1
        assert sim.stats.sent_bytes < UNREAD_BYTES_MAX
        wire.leave()
        assert (await sim.wait_for(lambda stats: stats.cancelled == 1)).running == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(("word", "ending"), [("reset_after_bytes", "reset"), ("close_after_bytes", "fin")])
@pytest.mark.parametrize("body", [HELLO, STREAM])
async def test_a_cut_far_inside_a_long_answer_is_exact(word: str, ending: str, body: dict[str, object]) -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, dict(body), x_sim=f"{LONGEST},{word}=3000001")
        got, how = await wire.rest()
    assert (len(got), how) == (3_000_001, ending)


@pytest.mark.asyncio
@pytest.mark.parametrize("words", ["", "gzip", "http_chunk_bytes=70000", "gzip,http_chunk_bytes=700"])
async def test_a_long_buffered_answer_comes_whole(words: str) -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, CHAT, dict(HELLO), x_sim=f"chunks=20000,chunk_bytes=100,{words}")
    assert reply.whole
    assert len(str(at(reply.plain_json(), "choices", 0, "message", "content"))) == 2_000_000


@pytest.mark.asyncio
@pytest.mark.parametrize("words", ["http_chunk_bytes=50", "gzip,http_chunk_bytes=50"])
async def test_a_body_in_http_chunks_can_be_cut_short_too(words: str) -> None:
    async with Simulator(FAST) as sim:
        reply = await fetch(sim.url, CHAT, dict(HELLO), x_sim=f"truncate_body=10,{words}")
    assert (reply.whole, reply.ending) == (False, "fin")


class Sink(asyncio.Transport):
    """Takes all that is written; after `breaks_after` writes the connection is broken."""

    def __init__(self, breaks_after: int | None = None) -> None:
        super().__init__()
        self.written = 0
        self._breaks_after = breaks_after

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Count it."""
        self.written += 1

    def is_closing(self) -> bool:
        """Whether the connection is broken."""
        return self.written == self._breaks_after


def outlet_to(transport: Sink, fault: Fault = NO_FAULT) -> tuple[Outlet, RecordedRequest]:
    """The way there, for an answer that has begun."""
    ledger = Ledger(requests_kept=1, kept_body_bytes_max=1)
    record = ledger.open(method="POST", target=CHAT, headers=(), body=b"", connection=1, reused=False, inference=True)
    outlet = Outlet(transport, ledger)
    outlet.begin(record, fault)
    return outlet, record


async def five_turns_of(work: Coroutine[None, None, object]) -> None:
    """Let it run for five turns of the loop."""
    running = asyncio.create_task(work)
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def stream_to(transport: Sink) -> RecordedRequest:
    """Stream a long answer here for five turns of the loop; what has been sent by then."""
    outlet, record = outlet_to(transport)
    shape = shapes_of(answer_of("chunks=100000"))[0]
    encoder = BodyEncoder(chunked=True, zipped=False, fault=NO_FAULT)
    transfer = StreamTransfer(
        outlet=outlet, record=record, head=b"", encoder=encoder, shape=shape, fault=NO_FAULT, stamp=False, closes=False
    )
    pacer = Pacer(EngineCore(1, 1, 1_000_000))
    job = Job(prompt_tokens=1, output_tokens=100_000, prefill_s=lambda _: 0.0)
    await five_turns_of(transfer.run(pacer, job))
    return record


@pytest.mark.asyncio
async def test_a_client_that_takes_all_at_once_leaves_the_others_their_turns() -> None:
    assert 0 < (await stream_to(Sink())).chunks < 100_000


@pytest.mark.asyncio
async def test_a_long_body_leaves_the_others_their_turns_too() -> None:
    sink = Sink()
    outlet, record = outlet_to(sink)
    await five_turns_of(send_blocks(outlet, itertools.repeat(b"block", 100_000)))
    assert 0 < sink.written < 100
    assert record.sent_bytes == 5 * sink.written


def test_small_writes_are_given_up_where_they_would_only_pile_up() -> None:
    sink = Sink()
    outlet, record = outlet_to(sink, parse_fault("write_bytes=1"))
    outlet.write(b"small")
    assert sink.written == 5
    outlet.pause()
    outlet.write(b"x" * 100_000)
    assert (sink.written, record.sent_bytes) == (6, 100_005)


@pytest.mark.asyncio
async def test_nothing_more_is_made_for_a_connection_that_has_broken() -> None:
    sink = Sink(breaks_after=2)
    assert (await stream_to(sink)).chunks > 0
    assert sink.written == 2
