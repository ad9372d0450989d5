"""What the field cases are tried on: the programs as processes, and a scripted engine behind each agent.

One router; agents for a model of four places, for one whose name has a slash and a colon, for one with a name beyond
ASCII, two agents of one model, and one agent for each other capability. Invariant: nothing of a bench runs when its
block is left.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.field_cases.engine import Engine, Script, Turn, scripted_engine
from tests.field_cases.words import whole_answer
from tests.house.client import Address, hello
from tests.house.page import Page, page_of
from tests.house.running import Program, free_port, program, rests, until_so

TEST_MODEL: Final = "test-model"
SLASHED: Final = "org/name:7b"
TWO: Final = "two"
BEYOND_ASCII: Final = "模型"
EMBEDDER: Final = "embedder"
RERANKER: Final = "reranker"
CAPACITY: Final = 4

EMBEDDINGS: Final = "/v1/embeddings"
RERANK: Final = "/v1/rerank"
BODIES: Final[dict[str, dict[str, object]]] = {
    "/v1/chat/completions": hello(TEST_MODEL),
    "/v1/completions": {"model": TEST_MODEL, "prompt": "hi"},
    "/v1/responses": {"model": TEST_MODEL, "input": "hi"},
    "/v1/messages": hello(TEST_MODEL, max_tokens=5),
    "/v1/messages/count_tokens": hello(TEST_MODEL),
    EMBEDDINGS: {"model": EMBEDDER, "input": "hi"},
    RERANK: {"model": RERANKER, "query": "hi", "documents": ["a"]},
}
"""A sound request for each inference path."""


@dataclass(frozen=True)
class Seat:
    """An agent of a bench: its name there, its model, and its flags."""

    name: str
    model: str
    flags: tuple[str, ...] = ()


SEATS: Final = (
    Seat("test", TEST_MODEL, (f"--capacity={CAPACITY}",)),
    Seat("slashed", SLASHED),
    Seat("a", TWO, (f"--capacity={CAPACITY}",)),
    Seat("b", TWO, (f"--capacity={CAPACITY}",)),
    Seat("beyond", BEYOND_ASCII),
    Seat("embedder", EMBEDDER, ("--capability=embedding", f"--capacity={CAPACITY}")),
    Seat("reranker", RERANKER, ("--capability=reranker", f"--capacity={CAPACITY}")),
)


@dataclass
class Bench:
    """A running router, its agents, and the engine of each by the agent's name."""

    http: Address
    metrics: Address
    router: Program
    engines: dict[str, Engine] = field(default_factory=dict)
    agents: dict[str, Program] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        """The engine of the model that most cases ask for."""
        return self.engines["test"]

    def engine_of(self, path: str) -> Engine:
        """The engine that is asked on this path by `BODIES`."""
        return self.engines[{EMBEDDINGS: "embedder", RERANK: "reranker"}.get(path, "test")]

    def begin(self, script: Script) -> None:
        """Let all engines forget what was, and answer so from now on."""
        for engine in self.engines.values():
            engine.begin(script)

    async def page(self) -> Page:
        """The router's metrics page now."""
        return await page_of(self.metrics)

    async def failed_attempts(self) -> float:
        """Attempts that have failed on any agent so far."""
        return (await self.page()).total("hivenet_agent_requests_failed_total")

    async def active_requests(self) -> float:
        """Slots that requests hold on agents."""
        return (await self.page()).total("hivenet_agent_active_requests")

    async def rests(self) -> None:
        """Wait until nothing runs. Raises: AssertionError."""
        await rests(self.metrics)

    def pair(self, first: Script, second: Script, *, cuts: str = "") -> "Pair":
        """Let whichever engine of the two of one model is asked first answer so, and the other one so.

        With `cuts`, the first one ends its connection like that when it has read no more than the request's head.
        """
        pair = Pair((self.engines["a"], self.engines["b"]))
        for engine in pair.engines:
            engine.begin(pair.script_of(engine, first, second))
            if cuts:
                engine.cut = pair.cut_of(engine, cuts)
        return pair


@dataclass
class Pair:
    """Two engines of one model. Which is asked first is the router's affair, and told here afterwards."""

    engines: tuple[Engine, Engine]
    asked: list[Engine] = field(default_factory=list)
    """Each time that one was asked."""

    @property
    def first(self) -> Engine:
        """The one that was asked first."""
        return self.asked[0]

    @property
    def second(self) -> Engine:
        """The one that was not asked first, if it was asked at all."""
        return next(engine for engine in self.engines if engine is not self.first)

    def script_of(self, engine: Engine, first: Script, second: Script) -> Script:
        """The script of one of the two."""

        async def script(turn: Turn) -> None:
            self.asked.append(engine)
            await (first if engine is self.first else second)(turn)

        return script

    def cut_of(self, engine: Engine, how: str) -> Callable[[], str]:
        """What makes one of the two end its connection, if it is the first one asked."""

        def cut() -> str:
            self.asked.append(engine)
            return how if engine is self.first else ""

        return cut


@asynccontextmanager
async def bench_in(
    folder: Path, seats: Sequence[Seat], *router_flags: str, tags: tuple[str, ...] = ()
) -> AsyncIterator[Bench]:
    """A bench with these agents, all of them served when this begins; with `tags` each engine is an Ollama too."""
    http, metrics, grpc = (("127.0.0.1", free_port()) for _ in range(3))
    ports = [f"--http-port=127.0.0.1:{http[1]}", f"--metrics-port=127.0.0.1:{metrics[1]}"]
    ports += [f"--grpc-port=127.0.0.1:{grpc[1]}", f"--p2p-port={free_port()}"]
    async with AsyncExitStack() as stack:
        router = stack.enter_context(program("router", folder, *ports, *router_flags))
        bench = Bench(http, metrics, router)
        for seat in seats:
            engine = await stack.enter_async_context(scripted_engine(seat.model, whole_answer))
            engine.tags = tags
            bench.engines[seat.name] = engine
        await router.has_said("router_started")
        for seat in seats:
            flags = [f"--backend-url={bench.engines[seat.name].url}", f"--router-grpc={grpc[0]}:{grpc[1]}"]
            flags += [f"--identity-path={seat.name}.key", f"--model={seat.model}", *seat.flags]
            bench.agents[seat.name] = stack.enter_context(program("agent", folder, *flags))
        await asyncio.gather(*(agent.has_said("registered") for agent in bench.agents.values()))

        async def all_healthy() -> bool:
            return (await bench.page()).total("hivenet_routing_agent_healthy") == len(seats)

        await until_so(all_healthy)
        yield bench
