"""Two agents, one of whose engines is bad behind a good health page. Real programs' parts, sockets on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.house.client import CHAT, ask, hello
from tests.house.raw_engine import RawEngine, RawRequest, Said, serving, sized
from tests.house.running import House, free_port, router_in, until_so

ANSWER = sized(
    b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}'
)
FAILS = sized(b'{"error":{"message":"out of order"}}', status="500 Internal Server Error")
HANGS = Said([b"too late"], pause_s=600.0)


class Pair:
    """Engines of which the one whose agent comes first can be made bad."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.engines: dict[str, RawEngine] = {}
        self.is_bad: Said | None = None

    @property
    def first(self) -> str:
        """The agent that comes first among idle ones."""
        return min(self.engines)

    @property
    def tries(self) -> int:
        """How many requests have come to the first agent's engine."""
        return len(self.engines[self.first].asked())

    async def add(self, folder: Path) -> None:
        """One more engine with its agent."""
        peers: list[str] = []

        def answer(_: RawRequest) -> Said:
            return self.is_bad if self.is_bad is not None and peers == [self.first] else ANSWER

        engine = RawEngine(free_port(), answer)
        await self.house.stack.enter_async_context(serving(engine.port, engine.serve))
        agent = await self.house.add_agent(engine.url)
        peers.append(agent.peer_id)
        self.engines[agent.peer_id] = engine

    async def ask(self) -> int:
        """The status of one small request."""
        return (await ask(self.house.http, CHAT, hello())).status

    async def is_suspect(self) -> float:
        """How many suspects there are, by the metrics page."""
        return (await self.house.page()).total("hivenet_routing_agent_suspect")


@asynccontextmanager
async def pair_in(folder: Path, *flags: str) -> AsyncIterator[Pair]:
    """A router with two agents."""
    async with router_in(folder, *flags) as house:
        pair = Pair(house)
        await pair.add(folder)
        await pair.add(folder)
        yield pair


async def test_of_forty_requests_at_most_a_twentieth_tries_an_engine_that_fails_at_once(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        assert await pair.ask() == 200
        assert pair.tries == 1
        pair.is_bad = FAILS
        assert [await pair.ask() for _ in range(40)] == [200] * 40
        assert pair.tries <= 1 + 3 + 2


async def test_an_engine_that_hangs_costs_three_of_many_clients_their_time(tmp_path: Path) -> None:
    """They come one after another."""
    async with pair_in(tmp_path, "--request-timeout=300ms") as pair:
        pair.is_bad = HANGS
        statuses = [await pair.ask() for _ in range(30)]
        assert statuses.count(504) <= 3
        assert statuses.count(200) >= 27


@pytest.mark.parametrize("clients", [4, 6, 12])
async def test_an_engine_that_hangs_costs_at_most_three_of_clients_that_come_at_once_their_time(
    tmp_path: Path, clients: int
) -> None:
    async with pair_in(tmp_path, "--request-timeout=2s") as pair:
        pair.is_bad = HANGS

        async def asking() -> list[int]:
            return [await pair.ask() for _ in range(8)]

        statuses = [status for some in await asyncio.gather(*(asking() for _ in range(clients))) for status in some]
        assert statuses.count(504) <= 3
        assert statuses.count(200) >= 8 * clients - 3


async def test_an_agent_is_suspect_for_all_to_see_until_it_is_alone_and_serves(tmp_path: Path) -> None:
    async with pair_in(tmp_path, "--suspect-after=1") as pair:
        pair.is_bad = FAILS
        with capture_logs() as logs:
            assert await pair.ask() == 200
            assert await pair.is_suspect() == 1
            for agent in pair.house.agents:
                if agent.peer_id != pair.first:
                    await agent.end()
            pair.is_bad = None

            async def is_served() -> bool:
                return await pair.ask() == 200 and pair.tries == 2

            await until_so(is_served)
            assert await pair.is_suspect() == 0
        told = [line["event"] for line in logs if "suspect" in str(line["event"])]
        assert told == ["agent_suspect", "agent_no_longer_suspect"]
