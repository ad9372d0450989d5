"""Strangers at the bounds of all ports at once: agents keep their sessions, and every chat is served."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.client import Address
from tests.house.running import House, house_in, ordinary_requests, until
from tests.house.test_grpc_strangers import strangers_of_grpc
from tests.house.test_strangers import Strangers, comes_and_goes, floods, holds_bodies_back, sends_costly_bodies

IDLE_EACH: Final = 100
HALF_A_HEAD: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 1000\r\nX: " + b"y" * 8000


@contextlib.contextmanager
def idle_at(*ports: Address) -> Iterator[None]:
    """Connections to each of these that say nothing, and as many that stop within a head."""
    with contextlib.ExitStack() as held:
        for port in ports:
            for number in range(IDLE_EACH):
                connection = held.enter_context(socket.create_connection(port))
                if number % 2:
                    connection.sendall(HALF_A_HEAD)
        yield


async def test_strangers_at_every_port_at_once_take_nothing_from_agents_and_clients(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house:
        session = house.agents[0].agent.sessions[0]
        kept = session._kept
        strangers = Strangers(house.libp2p)
        try:
            with idle_at(house.http, house.metrics, house.grpc, house.libp2p):
                for act in (holds_bodies_back, sends_costly_bodies, floods, comes_and_goes):
                    strangers.begin(act)
                async with ordinary_requests(house) as statuses, strangers_of_grpc(house.grpc, of_a_shape=1):
                    await until(lambda: len(statuses) >= 200 and strangers.done >= 20)
                    assert (await house.page()).total("hivenet_routing_agent_healthy") == 1
                    await _one_more(house)
        finally:
            await strangers.end()
        assert set(statuses) == {200}
        assert session._kept is kept


async def _one_more(house: House) -> None:
    """Who comes in meanwhile is served too."""
    engine = await house.add_engine()
    await house.add_agent(engine.url)
