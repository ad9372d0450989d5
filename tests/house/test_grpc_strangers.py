"""Strangers at the bounds of the bootstrap port: agents keep their sessions, new ones come in, requests are served."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest_asyncio
from bench.work.grpc import shapes
from tests.house.client import Address
from tests.house.running import House, house_in, ordinary_requests, until

from hivenet_router.adapters.grpc_client import client_context
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId

STRANGERS_OF_A_SHAPE = 4


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with house_in(tmp_path, router=("--heartbeat-interval", "1s")) as house:
        yield house
        await house.rests()


async def test_agents_keep_their_sessions_and_new_ones_come_in_while_strangers_send_all_they_may(house: House) -> None:
    session = house.agents[0].agent.sessions[0]
    kept = session._kept
    async with ordinary_requests(house) as statuses, strangers_of_grpc(house.grpc):
        engine = await house.add_engine()
        newcomer = (await house.add_agent(engine.url)).agent.sessions[0]
        kept_by_newcomer = newcomer._kept
        for _ in range(2):
            seen = {agent.peer: agent.last_seen_at for agent in house.router.registry}
            await until(partial(_all_seen_since, house, seen))
        asked = len(statuses)

    assert asked
    assert set(statuses) == {200}
    assert newcomer._kept is kept_by_newcomer
    assert session._kept is kept


def _all_seen_since(house: House, seen: dict[PeerId, Monotonic]) -> bool:
    return all(agent.last_seen_at > seen[agent.peer] for agent in house.router.registry)


@contextlib.asynccontextmanager
async def strangers_of_grpc(grpc: Address, *, of_a_shape: int = STRANGERS_OF_A_SHAPE) -> AsyncIterator[None]:
    """While the block runs, so many send each shape again and again."""

    async def send_on(data: bytes) -> None:
        while True:
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(2):
                    reader, writer = await asyncio.open_connection(*grpc, ssl=client_context())
                    try:
                        writer.write(data)
                        await reader.read()
                    finally:
                        writer.transport.abort()
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(send_on(data)) for data in shapes().values() for _ in range(of_a_shape)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
