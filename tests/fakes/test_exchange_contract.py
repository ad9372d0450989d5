"""What every exchange does, the fake one and the real one over loopback sockets: the rooms rely on it."""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import pytest
from tests.fakes.exchange import Answers, Fails, FakeArrived, FakeExchange, Script

from hivenet_router._plane import new_identity
from hivenet_router.adapters.plane import PlaneAdapter
from hivenet_router.ports import (
    AttemptFailed,
    ClientGone,
    DoorRules,
    Exchange,
    Finished,
    ForwardPlan,
    Head,
    HttpServer,
)

PLAN: Final = ForwardPlan(host=b"backend")
HANGS: Final = Answers(head_after_s=30.0)
STREAMS_ON: Final = Answers(is_stream=True, lasts_s=30.0)
LOOPBACK: Final = "127.0.0.1"


class Bench(Protocol):
    """One exchange that has arrived, its client, and a backend that does what it is told."""

    exchange: Exchange
    destination: HttpServer
    script: Script

    def leave(self) -> None:
        """The client hangs up."""
        ...


class FakeBench:
    """All of it made up."""

    def __init__(self) -> None:
        self.script: Script = Answers()
        self.destination = HttpServer(LOOPBACK, 1)
        self.fake = FakeExchange(FakeArrived(), lambda to: self.script)
        self.exchange: Exchange = self.fake

    def leave(self) -> None:
        """See `Bench`."""
        self.fake.leave()


class RealBench:
    """All of it real; hears what the data plane tells."""

    def __init__(self) -> None:
        self.script: Script = Answers()
        self.arrivals: asyncio.Queue[Exchange] = asyncio.Queue()
        self.refused: list[str] = []
        self._closing = asyncio.Event()
        self._serving: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Start a backend and a data plane, and send a request."""
        self.destination = HttpServer(LOOPBACK, a_port())
        self.backend = await asyncio.start_server(self._serve, LOOPBACK, self.destination.port)
        rules = DoorRules("peers", body_bytes_max=1024)
        self.plane = PlaneAdapter(new_identity(), rules, self, conns_per_ip=8, inbound_served=8)
        ((_, port),) = await self.plane.listen_http(LOOPBACK, a_port(), DoorRules("api", body_bytes_max=1024))
        _, self._client = await asyncio.open_connection(LOOPBACK, port)
        self._client.write(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        self.exchange: Exchange = await self.arrivals.get()

    async def close(self) -> None:
        """End all of it."""
        self._closing.set()
        self._client.close()
        self.plane.close()
        self.backend.close()
        while self._serving:
            for writer in self._serving:
                writer.close()
            await asyncio.sleep(0.01)

    def leave(self) -> None:
        """See `Bench`."""
        self._client.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while not self._closing.is_set():
                await reader.readuntil(b"{}")
                if isinstance(self.script, Fails):
                    writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 4\r\n\r\noops" % self.script.status)
                else:
                    await self._answer(writer, self.script)
        writer.close()
        self._serving.remove(writer)

    async def _answer(self, writer: asyncio.StreamWriter, script: Answers) -> None:
        await self._pause(script.head_after_s)
        if not script.is_stream:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
            await self._pause(script.first_byte_after_s + script.lasts_s)
            writer.write(b"{}")
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await self._pause(script.first_byte_after_s)
        writer.write(b"9\r\ndata: 1\n\n\r\n")
        await self._pause(script.lasts_s)
        writer.write(b"0\r\n\r\n")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)

    def arrival(self, exchange: Exchange) -> None:
        """See `ports.PlaneListener`."""
        self.arrivals.put_nowait(exchange)

    def link_up(self, peer_id: str, remote: str, dialed: bool) -> None:
        """Nobody links here."""

    def link_down(self, peer_id: str, why: str) -> None:
        """Nobody links here."""

    def identified(self, peer_id: str, agent_version: str) -> None:
        """Nobody links here."""

    def rejected(self, listener: str, client: str, status: int, why: str) -> None:
        """Remember why."""
        self.refused.append(why)


def a_port() -> int:
    """A port that nobody listens on, outside the range from which clients take theirs."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


@pytest.fixture(params=["fake", "real"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    if request.param == "fake":
        yield FakeBench()
        return
    real = RealBench()
    await real.open()
    yield real
    await real.close()


def nobody_hears(head: Head) -> None:
    pass


async def forward(bench: Bench, *, on_head: Callable[[Head], None] = nobody_hears, within_s: float = 10.0) -> Finished:
    return await bench.exchange.forward(bench.destination, b"/x", PLAN, within_s=within_s, on_head=on_head)


async def begun(bench: Bench) -> "asyncio.Task[Finished]":
    """A forward that is under way."""
    task = asyncio.create_task(forward(bench))
    await asyncio.sleep(0.1)
    return task


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_stream_is_heard_of_at_its_head_and_a_buffered_answer_at_its_end(bench: Bench, is_stream: bool) -> None:
    bench.script = Answers(head_after_s=0.01, lasts_s=0.01, is_stream=is_stream)
    heads: list[Head] = []
    finished = await forward(bench, on_head=heads.append)
    assert [(head.status, head.seconds > 0) for head in heads] == ([(200, True)] if is_stream else [])
    assert finished.head_s > 0
    assert (finished.outcome, finished.status) == ("answered", 200)
    assert finished.first_byte_s > 0
    assert bench.exchange.finished is finished


async def test_after_a_failure_another_attempt_can_be_made(bench: Bench) -> None:
    bench.script = Fails("status", status=500, body=b"oops", head_after_s=0.01)
    with pytest.raises(AttemptFailed) as caught:
        await forward(bench)
    assert (caught.value.kind, caught.value.status, caught.value.body) == ("status", 500, b"oops")
    assert caught.value.head_s > 0
    assert bench.exchange.finished is None
    bench.script = Answers()
    assert (await forward(bench)).outcome == "answered"


async def test_an_attempt_that_takes_too_long_fails_and_the_exchange_goes_on(bench: Bench) -> None:
    bench.script = HANGS
    with pytest.raises(AttemptFailed) as caught:
        await forward(bench, within_s=0.05)
    assert (caught.value.kind, bench.exchange.finished) == ("timeout", None)


async def test_an_answer_of_our_own_ends_the_exchange(bench: Bench) -> None:
    finished = await bench.exchange.respond(404, [(b"x", b"y")], b"no")
    assert (finished.outcome, finished.status) == ("responded", 404)
    assert await bench.exchange.respond(200, [], b"too late") is finished


async def test_a_client_that_leaves_during_an_attempt_ends_it(bench: Bench) -> None:
    bench.script = HANGS
    task = await begun(bench)
    bench.leave()
    finished = await task
    assert (finished.outcome, finished.status, finished.first_byte_s) == ("client_left", 0, 0.0)


async def test_a_client_that_leaves_in_the_middle_of_a_stream_had_a_part_of_it(bench: Bench) -> None:
    bench.script = STREAMS_ON
    task = await begun(bench)
    bench.leave()
    finished = await task
    assert (finished.outcome, finished.status) == ("client_left", 200)
    assert finished.first_byte_s > 0


@pytest.mark.parametrize(
    ("script", "outcome", "status"), [(HANGS, "responded", 503), (STREAMS_ON, "stream_aborted", 200)]
)
async def test_what_is_called_off_is_answered_unless_it_has_an_answer(
    bench: Bench, script: Script, outcome: str, status: int
) -> None:
    bench.script = script
    task = await begun(bench)
    bench.exchange.call_off(503, [(b"x", b"y")], b"no")
    finished = await task
    assert (finished.outcome, finished.status) == (outcome, status)
    bench.exchange.call_off(503, [], b"again")
    assert bench.exchange.finished is finished


@pytest.mark.parametrize(("script", "outcome"), [(HANGS, "aborted"), (STREAMS_ON, "stream_aborted")])
async def test_an_abort_ends_what_runs(bench: Bench, script: Script, outcome: str) -> None:
    bench.script = script
    task = await begun(bench)
    assert bench.exchange.arrived.abort()
    assert (await task).outcome == outcome
    assert not bench.exchange.arrived.abort()


async def test_no_attempt_is_made_for_a_client_that_has_left_and_how_it_ended_is_known(bench: Bench) -> None:
    bench.leave()
    bench.script = Fails("status", status=500)
    # On sockets the news takes a moment, in which an attempt merely fails.
    while bench.exchange.finished is None:
        with contextlib.suppress(AttemptFailed, ClientGone):
            await forward(bench)
    finished = bench.exchange.finished
    assert finished is not None
    assert (finished.outcome, finished.first_byte_s) == ("client_left", 0.0)
    with pytest.raises(ClientGone):
        await forward(bench)
    assert await bench.exchange.respond(503, [], b"") is finished


async def test_an_attempt_that_is_faster_than_the_news_of_the_end_waits_for_it(bench: Bench) -> None:
    bench.leave()
    await asyncio.sleep(0)
    # The data plane has seen the client go, and the loop has had no time to hear of it.
    time.sleep(0.2)  # noqa: ASYNC251
    with pytest.raises(ClientGone):
        await forward(bench)
    assert bench.exchange.finished is not None


async def test_a_wait_for_something_else_ends_with_it(bench: Bench) -> None:
    something: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, something.set_result, 7)
    await bench.exchange.until(something)
    assert something.result() == 7
    assert (await forward(bench)).outcome == "answered"


async def test_a_wait_for_something_else_ends_when_the_client_leaves(bench: Bench) -> None:
    something: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, bench.leave)
    with pytest.raises(ClientGone):
        await bench.exchange.until(something)
    assert something.cancelled()
    again: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with pytest.raises(ClientGone):
        await bench.exchange.until(again)


async def test_a_wait_that_is_cancelled_cancels_what_was_waited_for(bench: Bench) -> None:
    something: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await bench.exchange.until(something)
    assert something.cancelled()
    assert bench.exchange.finished is None
