"""What do the tests of the real SDKs talk to?

A router, an agent and an engine simulator as processes, once for a module, so that blocking clients work too.
Invariant: no client outlives its test, and faults that a test orders are used up by its own requests.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest
import pytest_asyncio
from tests.first_hour.programs import (
    MODEL,
    Running,
    agent_flags,
    engine_url,
    fetch,
    first_grpc,
    program,
    router_flags,
    until,
)
from tests.house.running import free_port

EMBEDDER = "embedder"


@dataclass(frozen=True)
class Engine:
    """The simulator's own side of the story."""

    url: str

    def stats(self) -> dict[str, dict[str, int]]:
        """Its counters."""
        found: dict[str, dict[str, int]] = json.loads(fetch(f"{self.url}/sim/stats")[1])
        return found

    def requests(self, path: str) -> list[dict[str, object]]:
        """What has come for this path, oldest first."""
        status, body = fetch(f"{self.url}/sim/requests?path={path}&bodies=1")
        assert status == 200, body
        document: object = json.loads(body)
        listed = document["requests"] if isinstance(document, dict) else document
        assert isinstance(listed, list)
        return listed

    def fail(self, fault: str, *, times: int) -> None:
        """Have the next requests meet this fault."""
        status, body = fetch(f"{self.url}/sim/faults", {"fault": fault, "count": times})
        assert status == 200, body

    def header(self, record: Mapping[str, object], name: str) -> list[str]:
        """The lines of this header in one of its records."""
        lines = record["headers"]
        assert isinstance(lines, list)
        return [value for key, value in lines if key.lower() == name]

    def until_seen(self, before: int) -> None:
        """Wait until one more request has come."""
        until(lambda: self.stats()["requests"]["seen"] == before + 1, "the request at the engine")

    def until_cancelled(self, before: int) -> None:
        """Wait until one more request is given up because its client left."""
        until(lambda: self.stats()["requests"]["cancelled"] == before + 1, "the end of the work at the engine")


@dataclass(frozen=True)
class Served:
    """Where clients ask, and what stands behind."""

    url: str
    engine: Engine
    router: Running
    agents: tuple[Running, ...]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A router with a chat model and an embedder behind it."""
    with ExitStack() as running:
        yield _house(running, tmp_path_factory.mktemp("house"))


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Served]:
    """A house of one test's own, which may end parts of it."""
    with ExitStack() as running:
        yield _house(running, tmp_path)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A router that waits for an answer for a moment only."""
    with ExitStack() as running:
        folder = tmp_path_factory.mktemp("hasty")
        yield _house(running, folder, "--request-timeout=700ms", "--stream-idle-timeout=700ms")


def _house(running: ExitStack, folder: Path, *router: str) -> Served:
    fast = ("--decode-tokens-per-s=0", "--prefill-tokens-per-s=0", "--output-tokens=8")
    listen = f"--listen=127.0.0.1:{free_port()}"
    sim = running.enter_context(program("sim", folder, listen, f"--model={MODEL}", f"--model={EMBEDDER}", *fast))
    engine = Engine(engine_url(sim))
    house = running.enter_context(program("router", folder, *router_flags(folder), *router))
    started = house.event("router_started")
    agents: list[Running] = []
    for model, capability in ((MODEL, "llm"), (EMBEDDER, "embedding")):
        own = folder / model
        own.mkdir()
        flags = [*agent_flags(own, first_grpc(started), engine.url), f"--model={model}", f"--capability={capability}"]
        agents.append(running.enter_context(program("agent", own, *flags, "--capacity=100")))
    until(lambda: len(house.events("agent_registered")) == 2, "both agents")
    return Served(f"http://{started['http']}", engine, house, tuple(agents))


@pytest.fixture
def openai_sync(served: Served) -> Iterator[openai.OpenAI]:
    """OpenAI's blocking client; it never tries again by itself."""
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="sk-k", http_client=http, max_retries=0) as client:
        yield client


@pytest_asyncio.fixture
async def openai_async(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's asynchronous client; it never tries again by itself."""
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="sk-k", http_client=http, max_retries=0) as made:
        yield made


@pytest.fixture
def anthropic_sync(served: Served) -> Iterator[anthropic.Anthropic]:
    """Anthropic's blocking client; it never tries again by itself."""
    http = anthropic.DefaultHttpxClient(trust_env=False)
    with anthropic.Anthropic(base_url=served.url, api_key="sk-k", http_client=http, max_retries=0) as client:
        yield client


@pytest_asyncio.fixture
async def anthropic_async(served: Served) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """Anthropic's asynchronous client; it never tries again by itself."""
    http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
    async with anthropic.AsyncAnthropic(base_url=served.url, api_key="sk-k", http_client=http, max_retries=0) as made:
        yield made


@pytest.fixture
def client_of() -> Iterator[Callable[[Served], openai.OpenAI]]:
    """Makes OpenAI's blocking client of a router."""
    with ExitStack() as made:

        def make(served: Served) -> openai.OpenAI:
            http = openai.DefaultHttpxClient(trust_env=False)
            client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="sk-k", http_client=http, max_retries=0)
            return made.enter_context(client)

        yield make


@pytest.fixture
def anthropic_of() -> Iterator[Callable[[Served], anthropic.Anthropic]]:
    """Makes Anthropic's blocking client of a router."""
    with ExitStack() as made:

        def make(served: Served) -> anthropic.Anthropic:
            http = anthropic.DefaultHttpxClient(trust_env=False)
            client = anthropic.Anthropic(base_url=served.url, api_key="sk-k", http_client=http, max_retries=0)
            return made.enter_context(client)

        yield make


@pytest.fixture
def anthropic_with_two_betas(served: Served) -> Iterator[anthropic.Anthropic]:
    """A client whose every request has two lines of `anthropic-beta`; the SDK itself would join them."""
    http = anthropic.DefaultHttpxClient(trust_env=False, event_hooks={"request": [_add_betas]})
    with anthropic.Anthropic(base_url=served.url, api_key="sk-k", http_client=http, max_retries=0) as client:
        yield client


def _add_betas(request: httpx2.Request) -> None:
    betas = [(b"anthropic-beta", b"one-2025-01-01"), (b"anthropic-beta", b"two-2025-02-02")]
    request.headers = httpx2.Headers([*request.headers.raw, *betas])
