"""O-01, O-02, A-13: clients that leave, and requests whose time is over, take nothing with them.

Seen from outside: at the engine, in the router's gauge of running requests, and by whoever asks next. Engines here go
on for ever, so that an end can only come from the client. What a stream that was left costs its key, and what it held
of a model's occupancy, is tried with keys and policies, which the router does not have yet.
"""

import asyncio
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.field_cases.bench import BODIES, CAPACITY, EMBEDDER, RERANKER, TEST_MODEL, Bench, Seat, bench_in
from tests.field_cases.engine import Turn
from tests.field_cases.words import CHUNKED_HEAD, STREAMS, chunk, silence, whole_answer
from tests.house.client import CHAT, MESSAGES, Connection, ask, connected, error_of, hello
from tests.house.running import until_so

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROUNDS = 13
"""Of each of the four ways, so that there are fifty in all."""


def leave(connection: Connection, how: str) -> None:
    """Leave with `fin` or with `rst`."""
    if how == "fin":
        connection.leave()
    else:
        connection.abort()


async def endless(turn: Turn) -> None:
    """A chunk every few milliseconds, until nobody reads any more."""
    stream = STREAMS[turn.request.path]
    await turn.send(CHUNKED_HEAD, chunk(stream.opening))
    while True:
        await turn.send(chunk(stream.piece))
        await asyncio.sleep(0.02)


async def read_pieces(connection: Connection, path: str, number: int) -> None:
    """Read so many pieces of a stream."""
    await connection.until(b"\r\n\r\n")
    for _ in range(number):
        await connection.until(STREAMS[path].piece)


async def leaves_streams_behind(bench: Bench, path: str, how: str) -> None:
    """Two clients that leave in the middle of their streams, and a third that comes then."""
    engine = bench.engine
    engine.begin(endless)
    async with connected(bench.http) as one, connected(bench.http) as other:
        for client in (one, other):
            client.ask(path, {**BODIES[path], "stream": True})
        for client in (one, other):
            await read_pieces(client, path, 3)
        assert (await bench.page()).total("hivenet_streams_in_progress") == 2
        for client in (one, other):
            leave(client, how)
        await engine.all_left()
        assert len(engine.turns) == 2
    await bench.rests()
    engine.begin(whole_answer)
    assert (await ask(bench.http, path, BODIES[path])).status == 200


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_o01_streams_that_are_left_again_and_again_never_fill_the_agent(
    bench: Bench, path: str, how: str
) -> None:
    for _ in range(ROUNDS):
        await leaves_streams_behind(bench, path, how)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses"])
async def test_o01_the_other_streams_are_given_back_alike(bench: Bench, path: str, how: str) -> None:
    await leaves_streams_behind(bench, path, how)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", STREAMS)
async def test_o01_a_stream_that_is_left_before_its_first_byte_gives_its_slot_back(
    bench: Bench, path: str, how: str
) -> None:
    async def head_only(turn: Turn) -> None:
        await turn.send(CHUNKED_HEAD)
        await turn.stay()

    for script in (silence, head_only):
        bench.begin(script)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(bench.http)) for _ in range(CAPACITY)]
            for client in clients:
                client.ask(path, {**BODIES[path], "stream": True})
            await bench.engine.has_turns(CAPACITY)
            for client in clients:
                leave(client, how)
            await bench.engine.all_left()
        bench.begin(whole_answer)
        assert (await ask(bench.http, path, BODIES[path])).status == 200
        await bench.rests()


async def test_o01_where_streams_hold_their_slots_those_that_are_left_give_them_back(tmp_path: Path) -> None:
    """Each round fills an agent of two places, so the third request of a round tells whether both are free."""
    seat = Seat("test", TEST_MODEL, ("--capacity=2",))
    async with bench_in(tmp_path, [seat], "--hold-slot-for-stream", "--queue-depth=0") as bench:
        for path in (CHAT, MESSAGES):
            for how in ("fin", "rst"):
                for _ in range(5):
                    await leaves_streams_behind(bench, path, how)
        bench.engine.begin(endless)
        async with connected(bench.http) as one, connected(bench.http) as other:
            for client in (one, other):
                client.ask(CHAT, hello(TEST_MODEL, stream=True))
                await read_pieces(client, CHAT, 1)
            assert await bench.active_requests() == 2
            assert (await ask(bench.http, CHAT, hello(TEST_MODEL))).status == 503


async def test_o01_requests_whose_time_is_over_give_their_slots_back_and_the_engine_hears_of_it(
    tmp_path: Path,
) -> None:
    """The time limit is a second here. Every place of every agent runs into it, and the next request is served."""
    waiting = [(path, body) for path, body in BODIES.items()]
    waiting += [(path, {**BODIES[path], "stream": True}) for path in STREAMS]
    seats = [
        Seat("test", TEST_MODEL, (f"--capacity={len(waiting) - 2}",)),
        Seat("embedder", EMBEDDER, ("--capability=embedding", "--capacity=1")),
        Seat("reranker", RERANKER, ("--capability=reranker", "--capacity=1")),
    ]
    async with bench_in(tmp_path, seats, "--request-timeout=1s") as bench:
        bench.begin(silence)
        replies = await asyncio.gather(*(ask(bench.http, path, body) for path, body in waiting))
        assert {(reply.status, error_of(reply)["code"]) for reply in replies} == {(504, "request_timeout")}
        for engine in bench.engines.values():
            await engine.all_left()
        assert sum(len(engine.turns) for engine in bench.engines.values()) == len(waiting)
        await bench.rests()
        bench.begin(whole_answer)
        for path, body in BODIES.items():
            assert (await ask(bench.http, path, body)).status == 200


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", BODIES)
async def test_o02_buffered_requests_that_are_left_end_at_the_engine_and_the_next_one_runs(
    bench: Bench, path: str, how: str
) -> None:
    """Ten ask and leave. The agent has four places, so six of them only ever wait in line, and leave first: it is no
    matter of luck that they never reach the engine."""
    engine = bench.engine_of(path)
    engine.begin(silence)
    async with AsyncExitStack() as stack:
        clients = {str(uuid.uuid4()): await stack.enter_async_context(connected(bench.http)) for _ in range(10)}
        for request_id, client in clients.items():
            client.ask(path, {**BODIES[path], "max_tokens": 4000}, x_request_id=request_id)

        async def all_have_come() -> bool:
            return (await bench.page()).total("http_server_active_requests", route=path) == len(clients)

        await until_so(all_have_come)
        await engine.has_turns(CAPACITY)
        assert await bench.active_requests() == CAPACITY
        running = [turn.request.header("x-request-id") for turn in engine.turns]
        for request_id in sorted(clients, key=lambda request_id: request_id in running):
            leave(clients[request_id], how)
        await engine.all_left()
        engine.script = whole_answer
        assert (await ask(bench.http, path, BODIES[path])).status == 200
    await bench.rests()
    assert [turn.is_finished for turn in engine.turns] == [False] * CAPACITY + [True]


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_o02_an_answer_that_is_left_half_way_ends_at_the_engine(bench: Bench, how: str) -> None:
    async def half(turn: Turn) -> None:
        await turn.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        await turn.stay()

    for path in (CHAT, MESSAGES):
        bench.begin(half)
        async with connected(bench.http) as client:
            client.ask(path, BODIES[path])
            await bench.engine.has_turns(1)
            leave(client, how)
            await bench.engine.all_left()


LARGE = 30
LARGE_BYTES = 5 << 20


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a13_thirty_large_streams_that_are_left_at_once_hold_nobody_up(bench: Bench, how: str) -> None:
    """Others are served while the answers are under way, unread, and in the moment in which all are thrown away."""
    pieces = [chunk(STREAMS[CHAT].piece * 1000)] * (LARGE_BYTES // len(STREAMS[CHAT].piece) // 1000 + 1)

    async def large(turn: Turn) -> None:
        await turn.send(CHUNKED_HEAD, *pieces)
        await turn.stay()

    bench.begin(large)
    async with AsyncExitStack() as stack:
        entering = stack.enter_async_context
        clients = [await entering(connected(bench.http, reads_ahead_bytes=1 << 16)) for _ in range(LARGE)]
        for client in clients:
            client.ask(CHAT, hello(TEST_MODEL, stream=True))
        for client in clients:
            await client.until(b"\r\n\r\n")
        assert (await ask(bench.http, "/health")).status == 200
        for client in clients:
            leave(client, how)
            assert (await ask(bench.http, "/health")).status == 200
        await bench.engine.all_left()
    assert len(bench.engine.turns) == LARGE
    bench.begin(whole_answer)
    assert (await ask(bench.http, CHAT, hello(TEST_MODEL))).status == 200
