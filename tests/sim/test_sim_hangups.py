"""Is a client that leaves noticed at once, and is its work given up?"""

import asyncio
import contextlib
import gc
import time
import tracemalloc
from dataclasses import replace

import pytest
from tests.raw_http import request_bytes
from tests.sim.sim_wire import CHAT, FAST, HELLO, Wire, connected, fetch

from hivenet_router.sim import Simulator
from hivenet_router.sim.engine import Job

pytestmark = pytest.mark.asyncio

STREAM = {**HELLO, "stream": True}
SLOW = replace(FAST, decode_tokens_per_s=100.0, output_tokens=(10_000, 10_000))
NOTICED_S = 1.0


def jobs() -> list[Job]:
    """All work that anything still holds."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Job)]


def leave(wire: Wire, how: str) -> None:
    if how == "fin":
        wire.leave()
    else:
        wire.abort()


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize(
    ("body", "x_sim"),
    [
        (STREAM, ""),
        (STREAM, "stall_after_chunks=2"),
        (STREAM, "stall_before_head=forever"),
        (HELLO, ""),
        (HELLO, "delay=30"),
    ],
)
async def test_a_client_that_leaves_is_counted_and_its_work_is_given_up(
    how: str, body: dict[str, object], x_sim: str
) -> None:
    async with Simulator(SLOW) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, dict(body), x_sim=x_sim)
        await sim.wait_for(lambda stats: stats.running == 1)
        left_s = time.monotonic()
        leave(wire, how)
        stats = await sim.wait_for(lambda stats: stats.cancelled == 1)
        assert (stats.running, sim.load.running, sim.load.kv_usage_ratio) == (0, 0, 0.0)
        assert stats.last_cancelled_s is not None
        assert 0 <= stats.last_cancelled_s - left_s < NOTICED_S
        record = sim.requests(CHAT)[0]
        assert (record.outcome, record.peer_closed_s) == ("cancelled", stats.last_cancelled_s)


async def test_with_one_place_the_next_in_the_queue_starts_when_a_client_leaves() -> None:
    async with (
        Simulator(replace(SLOW, concurrency=1)) as sim,
        connected(sim.url) as first,
        connected(sim.url) as second,
        connected(sim.url) as third,
    ):
        for wire in (first, second, third):
            wire.ask(CHAT, STREAM)
            await wire.until(b"\r\n\r\n")
        assert (sim.load.running, sim.load.waiting) == (1, 2)
        assert await second.silent_for(0.05)
        second.abort()
        await sim.wait_for(lambda stats: stats.cancelled == 1)
        assert (sim.load.running, sim.load.waiting) == (1, 1)
        first.leave()
        await third.until(b'"content":"')
        assert (sim.load.running, sim.load.waiting) == (1, 0)


async def test_a_full_queue_answers_503() -> None:
    async with (
        Simulator(replace(SLOW, concurrency=1, waiting_max=0)) as sim,
        connected(sim.url) as first,
        connected(sim.url) as second,
    ):
        first.ask(CHAT, STREAM)
        await first.until(b"\r\n\r\n")
        second.ask(CHAT, STREAM)
        reply = await second.reply()
    assert (reply.status, reply.header("retry-after")) == (503, "1")


async def test_the_body_of_a_request_is_not_kept_while_its_answer_lasts() -> None:
    body = {"model": "sim-model", "stream": True, "messages": [{"role": "user", "content": "x" * 4_000_000}]}
    data = request_bytes(CHAT, body)
    async with Simulator(SLOW) as sim, contextlib.AsyncExitStack() as stack:
        tracemalloc.start()
        try:
            for number in range(10):
                wire = await stack.enter_async_context(connected(sim.url))
                wire.send(data)
                await wire.until(b"\r\n\r\n")
                assert sim.stats.running == number + 1
            held_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert held_bytes < 8_000_000


async def test_a_client_that_leaves_a_long_stall_leaves_no_work_behind() -> None:
    async with Simulator(FAST) as sim:
        for body in (HELLO, STREAM) * 3:
            async with connected(sim.url) as wire:
                wire.ask(CHAT, dict(body), x_sim="stall_after_chunks=1,stall=1000000")
                await sim.wait_for(lambda stats: stats.running == 1)
                # Once this is answered the engine has moved, and the one before is silent.
                assert (await fetch(sim.url, CHAT, dict(HELLO))).status == 200
            await sim.wait_for(lambda stats: stats.running == 0)
    assert jobs() == []


async def test_a_request_that_never_came_whole_is_not_one() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.send(request_bytes(CHAT, dict(HELLO))[:-3])
        await sim.wait_for(lambda stats: stats.received_bytes > 0)
        wire.leave()
        stats = await sim.wait_for(lambda stats: stats.connections_open == 0)
        assert (stats.seen, stats.cancelled, stats.incomplete) == (0, 0, 1)


async def test_leaving_between_requests_cancels_nothing() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, dict(HELLO))
        await wire.reply()
        wire.leave()
        stats = await sim.wait_for(lambda stats: stats.connections_open == 0)
        assert (stats.finished, stats.cancelled, stats.incomplete) == (1, 0, 0)


async def test_a_client_that_reads_slowly_gets_all_and_holds_up_nobody() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as slow, connected(sim.url) as quick:
        slow.ask(CHAT, STREAM, x_sim="chunks=3000,chunk_bytes=4000")
        await sim.wait_for(lambda stats: stats.sent_bytes > 100_000)
        quick.ask(CHAT, STREAM)
        assert (await quick.reply()).data()[-1] == "[DONE]"
        assert sim.stats.running == 1
        reply = await slow.reply()
        assert len(reply.events()) == 3002


async def test_a_client_that_does_not_read_can_still_leave() -> None:
    async with Simulator(FAST) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, STREAM, x_sim="chunks=20000,chunk_bytes=4000")
        await sim.wait_for(lambda stats: stats.sent_bytes > 100_000)
        wire.abort()
        assert (await sim.wait_for(lambda stats: stats.cancelled == 1)).running == 0


async def test_stopping_breaks_off_what_runs() -> None:
    async with Simulator(SLOW) as sim, connected(sim.url) as wire:
        wire.ask(CHAT, STREAM)
        await wire.until(b"\r\n\r\n")
        await sim.__aexit__(None, None, None)
        assert (sim.stats.broken, sim.stats.cancelled) == (1, 0)
        assert (await wire.rest())[1] in ("fin", "reset")


async def test_a_hundred_streams_come_and_go_and_nothing_is_left() -> None:
    async def one(url: str, number: int) -> None:
        async with connected(url) as wire:
            leaves = number % 3 == 0
            wire.ask(CHAT, STREAM, x_sim="stall_after_chunks=1" if leaves else "chunks=5,interval_ms=5")
            if leaves:
                await wire.until(b"\r\n\r\n")
                wire.abort()
            else:
                assert (await wire.reply()).data()[-1] == "[DONE]"

    async with Simulator(replace(FAST, concurrency=20)) as sim:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(one(sim.url, number))
        stats = await sim.wait_for(lambda stats: stats.running == 0 and stats.connections_open == 0)
        assert (stats.seen, stats.finished, stats.cancelled) == (100, 66, 34)
        assert (sim.load.running, sim.load.waiting, sim.load.kv_usage_ratio) == (0, 0, 0.0)
