"""The whole house on loopback: a router, agents and engine simulators, as a person would run them.

Router and agents are the real programs' own parts, put together by the programs' own code, in this process; `Program`
runs one as a process of its own, for what only a process shows. Invariant: when a block is left nothing of it runs.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.house.client import CHAT, MODEL, Address, ask, hello
from tests.house.page import Page, page_of

from hivenet_router.adapters.clock import LoopClock
from hivenet_router.adapters.file_limit import raise_file_limit
from hivenet_router.adapters.identity_file import load_or_create
from hivenet_router.agent.serve import Stop, serve
from hivenet_router.cli.agent import _Agent
from hivenet_router.cli.router import build_world
from hivenet_router.config import AgentSettings, Exit, RouterSettings, parse
from hivenet_router.config import Program as Which
from hivenet_router.core.file_shares import router_shares
from hivenet_router.ports import Clock
from hivenet_router.router.door import API
from hivenet_router.router.serve import Router, running
from hivenet_router.sim import SimOptions, Simulator

SECRET: Final = "the-secret-of-this-house-0123456789abcdef"
FAST: Final = SimOptions(models=(MODEL,), decode_tokens_per_s=0, prefill_tokens_per_s=0, output_tokens=(8, 8))
WITHIN_S: Final = 30.0
"""How long a test waits for something that must come; no measure of how fast it should."""
_LOWEST: Final = 20_000
_PORTS: Final = 12_000
_ports: Final = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """A port of this machine that nobody has, below those that outgoing connections take."""
    while True:
        port = _LOWEST + next(_ports) % _PORTS
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                tried.bind(("127.0.0.1", port))
                return port


async def until(holds: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
    """Wait until it holds. Raises: TimeoutError."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110  (what is awaited is state inside the programs, which sets no event)
            await asyncio.sleep(0.01)


async def until_so(holds: Callable[[], Awaitable[bool]], *, within_s: float = WITHIN_S) -> None:
    """Ask again and again until it holds. Raises: TimeoutError."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110  (as above)
            await asyncio.sleep(0.02)


async def rests(metrics: Address) -> None:
    """Wait until no gauge of running work on this page says that anything runs. Raises: AssertionError."""

    async def at_rest() -> bool:
        return not (await page_of(metrics)).busy()

    try:
        await until_so(at_rest, within_s=10.0)
    except TimeoutError:
        raise AssertionError(f"still running: {(await page_of(metrics)).busy()}") from None


@dataclass
class RunningAgent:
    """One agent of the house."""

    agent: _Agent
    peer_id: str
    task: "asyncio.Task[None]"
    stop: Stop

    async def end(self) -> None:
        """End it at once, as if its process were killed."""
        self.task.cancel()
        await asyncio.wait([self.task])
        self.agent.plane.close()


@dataclass
class House:
    """A running router and what stands behind it."""

    router: Router
    folder: Path
    stack: AsyncExitStack
    engines: list[Simulator] = field(default_factory=list)
    agents: list[RunningAgent] = field(default_factory=list)

    @property
    def engine(self) -> Simulator:
        """The only engine."""
        (only,) = self.engines
        return only

    @property
    def http(self) -> Address:
        """Where clients ask."""
        assert self.router.addresses is not None
        return self.router.addresses.http[0]

    @property
    def metrics(self) -> Address:
        """Where the metrics page is."""
        assert self.router.addresses is not None
        return self.router.addresses.metrics[0]

    @property
    def grpc(self) -> Address:
        """Where agents authenticate."""
        assert self.router.addresses is not None
        return self.router.addresses.grpc[0]

    @property
    def libp2p(self) -> Address:
        """Where peers are accepted."""
        assert self.router.addresses is not None
        parts = self.router.addresses.libp2p[0].split("/")
        return parts[2], int(parts[4])

    def requests_there(self) -> list[str]:
        """The IDs of the clients' requests that are in the router now."""
        return [each.arrived.request_id for each in self.router.plane.exchanges() if each.arrived.listener == API]

    async def page(self) -> Page:
        """The metrics page now."""
        return await page_of(self.metrics)

    async def rests(self) -> None:
        """Wait until no gauge of running work says that anything runs. Raises: AssertionError."""
        await rests(self.metrics)

    async def add_engine(self, options: SimOptions = FAST) -> Simulator:
        """One more engine."""
        engine = await self.stack.enter_async_context(Simulator(options))
        self.engines.append(engine)
        return engine

    async def add_agent(self, backend_url: str, *flags: str, registered: bool = True) -> RunningAgent:
        """One more agent, in front of that backend; registered when this returns, unless told not to wait."""
        identity_path = self.folder / f"agent-{len(self.agents)}.key"
        agent = await self.stack.enter_async_context(agent_of(identity_path, self.grpc, backend_url, *flags))
        self.agents.append(agent)
        if registered:
            await until(lambda: agent.agent.sessions[0].is_registered)
            await until(lambda: self.is_routable(agent.peer_id))
        return agent

    def is_routable(self, peer_id: str) -> bool:
        """Whether the router would send requests to this agent."""
        return any(agent.peer == peer_id and agent.routable for agent in self.router.registry)


def router_settings(folder: Path, *flags: str) -> RouterSettings:
    """Settings of a router with ports of its own in this folder."""
    ports = {"--http-port": "127.0.0.1:{}", "--grpc-port": "127.0.0.1:{}", "--metrics-port": "127.0.0.1:{}"}
    argv = [f"{flag}={where.format(free_port())}" for flag, where in ports.items()]
    argv += [f"--p2p-port={free_port()}", f"--identity-path={folder / 'router.key'}", "--heartbeat-interval=1s"]
    parsed = parse(Which.ROUTER, [*argv, *flags], {"HIVENET_ROUTER_JWT_SECRET": SECRET})
    assert isinstance(parsed, RouterSettings), parsed.stderr if isinstance(parsed, Exit) else parsed
    return parsed


def agent_settings(identity_path: Path, grpc: Address, backend_url: str, *flags: str) -> AgentSettings:
    """Settings of an agent of the router at this address."""
    argv = [
        f"--backend-url={backend_url}",
        f"--router-grpc={grpc[0]}:{grpc[1]}",
        f"--identity-path={identity_path}",
        "--hardware-sample-interval=200ms",
        "--capacity=50",
    ]
    parsed = parse(Which.AGENT, [*argv, *flags], {"HIVENET_ROUTER_JWT_SECRET": SECRET})
    assert isinstance(parsed, AgentSettings), parsed.stderr if isinstance(parsed, Exit) else parsed
    return parsed


@asynccontextmanager
async def router_in(folder: Path, *flags: str, clock: Clock | None = None) -> AsyncIterator[House]:
    """A running router without agents; with a clock of the test's, if it has one."""
    shares = router_shares(raise_file_limit())
    settings = router_settings(folder, *flags)
    with load_or_create(settings.identity_path) as identity:
        world = build_world(settings, identity.content, shares)
        world = world if clock is None else replace(world, clock=clock)
        async with running(settings, world) as router, AsyncExitStack() as stack:
            yield House(router, folder, stack)


@asynccontextmanager
async def ordinary_requests(house: House) -> AsyncIterator[list[int]]:
    """Requests one after another beside the block, and the proof at its end that none of them was lost."""
    statuses: list[int] = []
    enough = asyncio.Event()

    async def ask_on() -> None:
        while not enough.is_set():
            reply = await ask(house.http, CHAT, hello(stream=len(statuses) % 2 == 0))
            statuses.append(reply.status if reply.whole else 0)

    asking = asyncio.create_task(ask_on())
    try:
        await until(lambda: len(statuses) >= 2)
        yield statuses
        seen = len(statuses)
        await until(lambda: len(statuses) >= seen + 2)
        assert set(statuses) == {200}
    finally:
        enough.set()
        await asking


@asynccontextmanager
async def house_in(
    folder: Path,
    *,
    engines: Sequence[SimOptions] = (FAST,),
    router: Sequence[str] = (),
    agent: Sequence[str] = (),
) -> AsyncIterator[House]:
    """A running router, and an agent for each of these engines."""
    async with router_in(folder, *router) as house:
        for options in engines:
            engine = await house.add_engine(options)
            await house.add_agent(engine.url, *agent)
        yield house


@asynccontextmanager
async def agent_of(identity_path: Path, grpc: Address, backend_url: str, *flags: str) -> AsyncIterator[RunningAgent]:
    """An agent of the router whose gRPC port this is."""
    settings = agent_settings(identity_path, grpc, backend_url, *flags)
    with load_or_create(settings.identity_path) as identity:
        agent, stop = _Agent(settings, identity, LoopClock()), Stop()
        task = asyncio.create_task(
            serve(
                agent.sessions,
                [agent.backend.run(), agent.relaying()],
                reports=agent.reports,
                requests_running=agent.plane.live,
                stop=stop,
                shutdown_timeout_s=settings.shutdown_timeout_s,
            )
        )
        running_agent = RunningAgent(agent, identity.peer_id, task, stop)
        try:
            yield running_agent
        finally:
            if not task.done():
                await running_agent.end()


class Program:
    """One of the programs as a process; its log goes to a file in the folder."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *flags: str,
        module: str | None = None,
        secret: str = SECRET,
        before: str = "",
    ) -> None:
        self.log_path = folder / f"{name}.{next(_ports)}.log"
        module = module or {"router": "cli.router", "agent": "cli.agent", "sim": "sim.main"}[name]
        log_flags = () if name == "sim" else ("--log-format=json",)
        code = f"{before}\nimport sys; from hivenet_router.{module} import main; sys.exit(main())"
        with self.log_path.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *log_flags, *flags],
                cwd=folder,
                env={**os.environ, "HIVENET_ROUTER_JWT_SECRET": secret, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        """All it has said so far."""
        return self.log_path.read_text(errors="replace")

    def events(self, name: str) -> list[dict[str, object]]:
        """The log lines of this event so far."""
        lines = [line for line in self.said.splitlines() if line.startswith("{")]
        return [record for record in map(json.loads, lines) if record.get("msg") == name]

    async def has_said(self, event: str) -> dict[str, object]:
        """The first log line of this event, waited for."""

        def said_or_dead() -> bool:
            return bool(self.events(event)) or self.process.poll() is not None

        await until(said_or_dead)
        assert self.events(event), f"it ended without {event}: {self.said}"
        return self.events(event)[0]

    async def ended(self) -> int:
        """Its exit code, waited for."""
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode

    def kill(self) -> None:
        """End it without a chance to say anything."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def program(name: str, folder: Path, *flags: str, secret: str = SECRET, before: str = "") -> Iterator[Program]:
    """A program that runs until the block ends at the latest; `before` is code that runs ahead of it."""
    started = Program(name, folder, *flags, secret=secret, before=before)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill()
