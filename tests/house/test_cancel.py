"""Who leaves, or runs out of time: the engine hears of it at once, and nothing stays behind in the router."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from tests.house.client import CHAT, MESSAGES, MODEL, Connection, ask, connected, error_of, hello
from tests.house.running import House, house_in, until

from hivenet_router.sim import SimOptions

NOTICED_WITHIN_S: Final = 2.0
"""The promise is one second; a busy machine is given one more."""


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with house_in(tmp_path) as house:
        yield house
        await house.rests()


def leave(connection: Connection, how: str) -> None:
    if how == "fin":
        connection.leave()
    else:
        connection.abort()


PHASES: Final = {
    "streaming": (True, "chunks=2000,interval_ms=20"),
    "silent stream": (True, "stall_after_chunks=2"),
    "stream without a head": (True, "late_head,delay=60"),
    "buffered": (False, "delay=60"),
    "buffered half way": (False, "chunks=2000,interval_ms=20"),
    "before the head": (False, "stall_before_head=forever"),
}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_client_that_leaves_is_noticed_by_the_engine_at_once(
    house: House, path: str, phase: str, how: str
) -> None:
    is_stream, fault = PHASES[phase]
    async with connected(house.http) as connection:
        connection.ask(path, hello(stream=is_stream, max_tokens=2000), x_sim=fault)
        await house.engine.wait_for(lambda stats: stats.running == 1)
        if is_stream and "late" not in fault:
            await connection.until(b"\r\n\r\n")
            await connection.until(b"\n\n")
        leave(connection, how)
        await house.engine.wait_for(lambda stats: stats.cancelled == 1, timeout_s=NOTICED_WITHIN_S)
    await house.rests()
    assert house.engine.load.running == 0
    page = await house.page()
    assert page.total("hivenet_requests_total", outcome="client_gone") == 1
    assert page.total("hivenet_agent_requests_failed_total") == 0


async def test_a_row_of_clients_that_leave_never_fills_the_agent(tmp_path: Path) -> None:
    """O-01, O-02: ten rounds of more clients than the agent has places, all gone, and the next is served at once."""
    async with house_in(tmp_path, agent=("--capacity=4",)) as house:
        for round_number in range(10):
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(connected(house.http)) for _ in range(10)]
                for number, client in enumerate(clients):
                    client.ask(CHAT, hello(max_tokens=4000, stream=number % 2 == 0), x_sim="late_head,delay=60")
                await until(lambda: house.engine.load.running == 4)
                # Who is reset before it was accepted never arrived.
                await until(lambda: len(house.requests_there()) == 10)
                for number, client in enumerate(clients):
                    leave(client, "fin" if number % 3 else "rst")
                await until(lambda: house.engine.load.running == 0, within_s=NOTICED_WITHIN_S)
            assert (await ask(house.http, CHAT, hello())).status == 200
            assert house.engine.stats.finished == round_number + 1
        await house.rests()
        # Those that only waited in line never got to the engine.
        assert house.engine.stats.cancelled == 40
        assert (await house.page()).total("hivenet_requests_total", outcome="client_gone") == 100


async def test_the_deadline_ends_its_own_request_only(tmp_path: Path) -> None:
    async with house_in(tmp_path, router=("--request-timeout=1s",)) as house:
        async with connected(house.http) as other:
            other.ask(CHAT, hello(stream=True), x_sim="chunks=150,interval_ms=20")
            await other.until(b"\r\n\r\n")
            slow = [
                ask(house.http, path, hello(stream=stream, max_tokens=5), x_sim="late_head,delay=60")
                for path in (CHAT, MESSAGES)
                for stream in (False, True)
            ]
            replies = await asyncio.gather(*slow)
            assert [(reply.status, error_of(reply)["code"]) for reply in replies] == [(504, "request_timeout")] * 4
            assert error_of(replies[2])["type"] == "timeout_error"
            await house.engine.wait_for(lambda stats: stats.cancelled == 4, timeout_s=NOTICED_WITHIN_S)
            rest = await other.until(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert rest.count(b"data: {") > 100
        await house.rests()
        assert house.agents[0].agent.sessions[0].is_registered
        assert (await house.page()).total("hivenet_agent_connection_resets_total") == 0


async def test_a_stream_longer_than_the_deadline_comes_whole(tmp_path: Path) -> None:
    async with house_in(tmp_path, router=("--request-timeout=1s",)) as house:
        reply = await ask(house.http, CHAT, hello(stream=True), x_sim="chunks=80,interval_ms=20")
        assert (reply.status, reply.whole) == (200, True)
        assert reply.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("flag", "code"), [("--stream-idle-timeout=500ms", "request_timeout"), ("--stream-timeout=1s", "request_timeout")]
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_stream_that_is_silent_or_running_for_too_long_ends_with_an_error_event(
    tmp_path: Path, flag: str, code: str, path: str
) -> None:
    fault = "stall_after_chunks=3" if "idle" in flag else "chunks=5000,interval_ms=20"
    async with house_in(tmp_path, router=(flag,)) as house:
        reply = await ask(house.http, path, hello(stream=True, max_tokens=5000), x_sim=fault)
        assert (reply.status, reply.whole) == (200, False)
        last = reply.body.rstrip(b"\n").rpartition(b"\n\n")[2]
        assert last.startswith(b"event: error\ndata: {" if path == MESSAGES else b'data: {"error":{')
        assert code.encode() in last
        await house.engine.wait_for(lambda stats: stats.cancelled == 1, timeout_s=NOTICED_WITHIN_S)
        await house.rests()


async def test_a_client_that_stops_reading_holds_back_only_itself(tmp_path: Path) -> None:
    """A-13: many large answers thrown away, and the router is there for others."""
    large = SimOptions(models=(MODEL,), decode_tokens_per_s=0, prefill_tokens_per_s=0)
    async with house_in(tmp_path, engines=(large,)) as house, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(house.http)) for _ in range(30)]
        for client in clients:
            client.ask(CHAT, hello(stream=True), x_sim="chunks=500,chunk_bytes=10000")
        for client in clients:
            await client.until(b"\r\n\r\n")
        assert (await ask(house.http, CHAT, hello())).status == 200
        for client in clients:
            client.abort()
        for _ in range(20):
            assert (await ask(house.http, "/health")).status == 200
        await house.rests()


async def test_a_client_that_half_closes_gets_its_answer_or_counts_as_left(house: House) -> None:
    async with connected(house.http) as connection:
        connection.ask(CHAT, hello())
        connection.fin()
        rest, ending = await connection.rest()
    assert ending in ("fin", "reset")
    assert rest == b"" or rest.startswith(b"HTTP/1.1 200 ")


async def test_a_router_that_stops_answers_who_has_not_sent_its_whole_body(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house, connected(house.http) as connection:
        connection.send(f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n".encode() + b'{"model":')
        await until(lambda: house.router.plane.live() == 1)
        draining = asyncio.create_task(house.router.drain())
        reply = await connection.reply()
        await draining
        assert (reply.status, error_of(reply)["code"]) == (503, "no_agents_available")
        assert reply.header("retry-after") == "1"
