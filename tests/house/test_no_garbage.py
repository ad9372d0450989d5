"""What a request held is free when the request is over, without the garbage collector's help.

The collector runs seldom, and a request holds its body: what waits for it would fill the room for bodies.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.house.client import CHAT, MESSAGES, ask, connected, hello
from tests.house.running import House, house_in, until_so

from hivenet_router.adapters.plane import PlaneExchange

CAPACITY = 2
ROUTER = ("--request-timeout=1s", "--queue-depth=2")
TIMES = 5

Ask = Callable[[House, str], Awaitable[set[int]]]


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Two agents of one model, so that there is somebody to try next."""
    async with house_in(tmp_path, router=ROUTER, agent=(f"--capacity={CAPACITY}",)) as house:
        await house.add_agent(house.engines[0].url, f"--capacity={CAPACITY}")
        yield house


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def runs(house: House, requests: int) -> Callable[[], Awaitable[bool]]:
    async def so_many() -> bool:
        return house.engine.load.running == requests

    return so_many


async def none_is_left() -> bool:
    return not [thing for thing in gc.get_objects() if type(thing) is PlaneExchange]


def faulty(fault: str, *, stream: bool = False) -> Ask:
    async def asked(house: House, path: str) -> set[int]:
        return {(await ask(house.http, path, hello(max_tokens=5, stream=stream), x_sim=fault)).status}

    return asked


async def unknown(house: House, path: str) -> set[int]:
    return {(await ask(house.http, path, hello("nobody", max_tokens=5))).status}


async def unreadable(house: House, path: str) -> set[int]:
    async with connected(house.http) as client:
        client.send(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n{{".encode())
        return {(await client.reply()).status}


async def crowd(house: House, path: str) -> set[int]:
    """Some are served at once, some wait, some are refused."""
    asking = [ask(house.http, path, hello(max_tokens=5), x_sim="late_head,delay=0.2") for _ in range(20)]
    return {reply.status for reply in await asyncio.gather(*asking)}


async def left(house: House, path: str) -> set[int]:
    """The engine is asked, and the client leaves."""
    async with connected(house.http) as client:
        client.ask(path, hello(max_tokens=5), x_sim="late_head,delay=60")
        await until_so(runs(house, 1))
    await until_so(runs(house, 0))
    return set()


WAYS: dict[str, tuple[Ask, set[int]]] = {
    "served": (faulty("chunks=2"), {200}),
    "streamed": (faulty("chunks=2", stream=True), {200}),
    "unknown model": (unknown, {404}),
    "bad JSON": (unreadable, {400}),
    "refused by the engine": (faulty("status=400"), {400}),
    "failed everywhere": (faulty("status=500"), {502}),
    "reset everywhere": (faulty("reset_before_head"), {503}),
    "too slow": (faulty("late_head,delay=60"), {504}),
    "crowded": (crowd, {200, 503}),
    "left": (left, set()),
}


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_of_a_request_waits_for_the_garbage_collector(house: House, way: str, path: str) -> None:
    asked, statuses = WAYS[way]
    with collector_off():
        for _ in range(1 if way == "too slow" else TIMES):
            assert await asked(house, path) == statuses
        # Agents' messages come all the time: it takes a moment with none under way.
        await until_so(none_is_left, within_s=10.0)
