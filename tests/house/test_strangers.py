"""Strangers at all bounds of the libp2p port at once: agents keep their sessions, and every chat is served."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from bench.raw_peer import DATA, PING, SYN, UPDATE, RawPeer, frame
from structlog.testing import capture_logs
from tests.house.client import CHAT, ask, hello
from tests.house.peers import peer, session_for
from tests.house.running import House, free_port, house_in, ordinary_requests, until
from tests.house.test_bad_input_peers import HEARTBEAT, REGISTER, message

BACK_WITHIN_S: Final = 5.0
"""A known agent is back by then, whatever strangers do: the promise itself."""
UNFINISHED: Final = (
    f"POST {HEARTBEAT} HTTP/1.1\r\nHost: router\r\nContent-Length: 8192\r\n\r\n".encode()
    + b'{"session_token":null,"x":['
)
TOO_LONG: Final = (
    f"POST {HEARTBEAT} HTTP/1.1\r\nHost: router\r\nContent-Length: 1048576\r\n\r\n".encode() + b"[" * 60_000
)
COSTLY: Final = b'{"session_token":null,"x":[' + b"{}," * 2700 + b"{}]}"


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with house_in(tmp_path) as house:
        yield house
        assert house.agents[0].agent.sessions[0].is_registered


class Strangers:
    """Threads that do one thing each, again and again, until the block ends."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._enough = threading.Event()
        self._threads: list[threading.Thread] = []
        self.done = 0

    def begin(self, act: Callable[[RawPeer], None]) -> None:
        """Connect and do this, for ever."""

        def go_on() -> None:
            while not self._enough.is_set():
                with contextlib.suppress(OSError), contextlib.closing(RawPeer(self._address, within_s=2.0)) as made:
                    act(made)
                self.done += 1

        self._threads.append(threading.Thread(target=go_on))
        self._threads[-1].start()

    async def end(self) -> None:
        """Wait until all have stopped."""
        self._enough.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)


def holds_bodies_back(made: RawPeer) -> None:
    """Two bodies that never end, and four more streams with what is too long."""
    for stream in (1, 3):
        made.request(stream, UNFINISHED)
    for stream in (5, 7, 9, 11):
        made.request(stream, TOO_LONG)
    made.is_cut_off()


def sends_costly_bodies(made: RawPeer) -> None:
    """The JSON that takes longest to read, one after the other."""
    for stream in range(1, 200, 2):
        made.request(
            stream, f"POST {HEARTBEAT} HTTP/1.1\r\nHost: r\r\nContent-Length: {len(COSTLY)}\r\n\r\n".encode() + COSTLY
        )
        made.receive()


def floods(made: RawPeer) -> None:
    """Frames that carry nothing, as fast as they go."""
    for _ in range(200):
        made.send(frame(PING, SYN, 0, 7) * 5000)
        made.send(frame(UPDATE, 0, 1, 0) * 5000)


def comes_and_goes(made: RawPeer) -> None:
    """A handshake, and nothing after it."""


async def test_strangers_at_all_bounds_at_once_take_nothing_from_agents(house: House) -> None:
    strangers = Strangers(house.libp2p)
    silent = [socket.create_connection(house.libp2p) for _ in range(300)]
    try:
        for act in (holds_bodies_back, sends_costly_bodies, floods, comes_and_goes):
            for _ in range(2):
                strangers.begin(act)
        async with ordinary_requests(house) as statuses:
            await until(lambda: len(statuses) >= 200 and strangers.done >= 40)
            engine = await house.add_engine()
            await house.add_agent(engine.url)
    finally:
        await strangers.end()
        for connection in silent:
            connection.close()


async def test_an_agent_that_loses_its_link_among_strangers_is_back_within_five_seconds(house: House) -> None:
    agent = house.agents[0]
    idle: list[RawPeer] = []
    strangers = Strangers(house.libp2p)
    try:
        idle += [await asyncio.to_thread(RawPeer, house.libp2p) for _ in range(64)]
        strangers.begin(comes_and_goes)
        house.router.plane.close_peer(agent.peer_id)
        await until(lambda: not house.is_routable(agent.peer_id))
        await until(lambda: house.is_routable(agent.peer_id), within_s=BACK_WITHIN_S)
        assert (await ask(house.http, CHAT, hello())).status == 200
    finally:
        await strangers.end()
        for made in idle:
            made.close()


FLOODS: Final = {
    "pings": frame(PING, SYN, 0, 7),
    "updates of no stream": frame(UPDATE, 0, 1, 1),
    "empty frames": frame(DATA, 0, 1, 0),
    "new streams": frame(UPDATE, SYN, 1, 0),
}


@pytest.mark.parametrize("what", FLOODS)
async def test_a_flood_of_frames_ends_its_connection(house: House, what: str) -> None:
    made = await asyncio.to_thread(RawPeer, house.libp2p)
    with contextlib.closing(made):
        async with ordinary_requests(house):
            with contextlib.suppress(OSError):
                for _ in range(50):
                    await asyncio.to_thread(made.send, FLOODS[what] * 5000)
            assert await asyncio.to_thread(made.is_cut_off)


async def test_a_peer_that_has_registered_sends_what_a_stranger_may_not(house: House) -> None:
    async with peer(house) as agent:
        token = (await session_for(house, agent.peer_id)).session_token
        long = message(token, padding="x" * 100_000)
        assert (await agent.ask("POST", HEARTBEAT, long)).status == 401
        assert (await agent.ask("POST", REGISTER, message(token, peer_id=agent.peer_id))).status == 200
        for _ in range(3):
            got = await asyncio.gather(*(agent.ask("POST", HEARTBEAT, long) for _ in range(8)))
            assert {answer.status for answer in got} == {200}
        await agent.ask("POST", HEARTBEAT, message(token, backend_healthy=False))


async def test_an_agent_that_listens_cuts_off_who_is_no_router_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    async with house_in(tmp_path, agent=(f"--p2p-listen-port={port}",)) as house:
        await house.agents[0].agent.listen()
        made = await asyncio.to_thread(RawPeer, ("127.0.0.1", port))
        with contextlib.closing(made), capture_logs():
            made.request(1, UNFINISHED)
            assert await asyncio.to_thread(made.is_cut_off)
        assert (await ask(house.http, CHAT, hello())).status == 200
