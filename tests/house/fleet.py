"""A router, agents and engine simulators as processes, which can be killed, stopped and started again.

Invariant: every process of a fleet is a child of this one and has ended when the fleet's block is left; a process that
is started again has the same name, address and identity as before. Who strikes what, and when, is `chaos.py`'s.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.house.client import MODEL, Address
from tests.house.page import page_of
from tests.house.running import free_port, until, until_so

MODULES: Final = {"router": "cli.router", "agent": "cli.agent", "sim": "sim.main"}
START_WITHIN_S: Final = 60.0
STOP_WITHIN_S: Final = 15.0
_RUN: Final = "import sys; from hivenet_router.{} import main; sys.exit(main())"
# On SIGUSR1 the router writes what only its inside shows; for it to be asked, nothing in its own code is needed.
_RUN_WATCHED: Final = """
import asyncio, gc, json, signal, sys
from hivenet_router.cli.router import main
def look(*_):
    gc.collect()
    kinds = {"PlacingRoom": [], "PlaneAdapter": [], "PlaneExchange": [], "Led": []}
    for thing in gc.get_objects():
        if type(thing).__name__ in kinds:
            kinds[type(thing).__name__].append(thing)
    (room,), (plane,) = kinds["PlacingRoom"], kinds["PlaneAdapter"]
    seen = {
        "tasks": len(asyncio.all_tasks()) + len(kinds["Led"]),
        "permits_free": room.permits_free,
        "requests_waiting": room.waiting,
        "exchanges_known": len(plane.exchanges()),
        "exchanges_alive": len(kinds["PlaneExchange"]),
        "requests_in_plane": plane.live(),
        "objects": len(gc.get_objects()),
    }
    with open("inside.tmp", "w") as file:
        json.dump(seen, file)
    import os
    os.replace("inside.tmp", "inside.json")
signal.signal(signal.SIGUSR1, look)
sys.exit(main())
"""


class Process:
    """One program of the fleet; its log is kept over all its lives."""

    def __init__(self, name: str, kind: str, folder: Path, secret: str, *flags: str) -> None:
        self.name = name
        self._argv = [sys.executable, "-c", _RUN_WATCHED if kind == "router" else _RUN.format(MODULES[kind]), *flags]
        self._folder = folder
        self._environment = {
            # Programs that are started again and again are not to be compiled each time.
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
            "HIVENET_ROUTER_JWT_SECRET": secret,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self.log_path: Final = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._log_from = 0

    def start(self) -> None:
        """Start it, for the first time or again."""
        with self.log_path.open("ab") as output:
            self._log_from = output.tell()
            self._process = subprocess.Popen(
                self._argv, cwd=self._folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        """Its process ID."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it does not run."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """End it without a chance to say anything."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let it stand still, with all its connections open."""
        self._is_stopped = True
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self._is_stopped and not self.has_ended:
            os.kill(self.pid, signal.SIGCONT)
        self._is_stopped = False

    async def end(self) -> int | None:
        """Ask it to end; its exit code, or None when it had to be killed."""
        assert self._process is not None
        self.resume()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            await until(lambda: self.has_ended, within_s=STOP_WITHIN_S)
        except TimeoutError:
            self.kill()
            return None
        return self._process.returncode

    def has_registered(self) -> bool:
        """Whether this agent has registered since it was last started, and can move."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_from)
            return not self._is_stopped and b'"registered"' in log.read()

    def state(self) -> str:
        """For a person: whether it runs, whether it has registered, and the last lines of its log."""
        running = "ended" if self.has_ended else "runs"
        registered = "has registered" if self.has_registered() else "has not registered"
        last = "\n  ".join(self.log_path.read_text(errors="replace").splitlines()[-8:])
        return f"{self.log_path.stem} {running}, {registered}; last words:\n  {last}"

    def events(self, *names: str) -> list[dict[str, object]]:
        """The log lines of these events; without names, all."""
        found = []
        for line in self.log_path.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if not names or record.get("msg") in names:
                    found.append(record)
        return found

    def troubles(self) -> list[str]:
        """Log lines that say that something is wrong with the program itself."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return [
            line[:2000] for line in lines if '"level": "error"' in line or "Traceback" in line or "panicked" in line
        ]

    def open_files(self) -> int:
        """How many file descriptors it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def rss_bytes(self) -> int:
        """How much memory it has resident."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    def cpu_s(self) -> float:
        """Processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def logged_at(record: dict[str, object]) -> float:
    """The Unix time of a log line."""
    return datetime.fromisoformat(str(record["ts"])).timestamp()


@dataclass
class Fleet:
    """A running router with its agents, and the engine of each agent."""

    folder: Path
    http: Address
    metrics: Address
    router: Process
    agents: list[Process]
    engines: list[Process]
    engine_ports: list[int]

    @property
    def processes(self) -> list[Process]:
        """All of them."""
        return [self.router, *self.agents, *self.engines]

    async def inside(self) -> dict[str, int]:
        """What the router's inside looks like now."""
        answer = self.folder / "inside.json"
        answer.unlink(missing_ok=True)
        os.kill(self.router.pid, signal.SIGUSR1)
        await until(answer.exists)
        seen: dict[str, int] = json.loads(answer.read_text())
        return seen

    async def all_serve(self) -> None:
        """Wait until every agent is served. Raises: TimeoutError, which says what became of each."""

        async def so() -> bool:
            # A router takes an agent that is starting again for healthy for a while, so each is asked too.
            # An engine that was just killed is missed by its agent only at the next look.
            have_engines = all([await self.engine_listens(number) for number in range(len(self.engines))])
            have_registered = all(agent.has_registered() for agent in self.agents)
            return have_engines and have_registered and await self.healthy() == len(self.agents)

        try:
            await until_so(so, within_s=START_WITHIN_S)
        except TimeoutError as error:
            states = "\n".join(agent.state() for agent in self.agents)
            raise TimeoutError(f"{await self.healthy():g} of {len(self.agents)} agents serve\n{states}") from error

    async def engine_listens(self, number: int) -> bool:
        """Whether this engine takes connections."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.engine_ports[number])
        except OSError:
            return False
        writer.transport.abort()
        return True

    async def healthy(self) -> float:
        """How many agents are registered and healthy, by the metrics page."""
        return (await page_of(self.metrics)).total("hivenet_routing_agent_healthy")


@dataclass(frozen=True, slots=True)
class Size:
    """How large a fleet is, and the router's time limits. Agents are told `p2p_announce_port`, where one is given."""

    agents: int = 3
    engines: int = 3
    capacity: int = 500
    request_timeout_s: float = 30.0
    stream_idle_timeout_s: float = 30.0
    p2p_port: int = 0
    p2p_announce_port: int = 0


@asynccontextmanager
async def fleet_in(folder: Path, size: Size) -> AsyncIterator[Fleet]:
    """A fleet whose agents are all served; nothing of it runs when the block is left."""
    secret = secrets.token_hex(32)
    http, metrics, grpc = (("127.0.0.1", free_port()) for _ in range(3))
    ports = [free_port() for _ in range(size.engines)]
    engines = [Process(f"engine-{n}", "sim", folder, secret, *_engine_flags(port)) for n, port in enumerate(ports)]
    router = Process("router", "router", folder, secret, *_router_flags(size, http, metrics, grpc))
    agents = [
        Process(f"agent-{n}", "agent", folder, secret, *_agent_flags(n, size.capacity, ports[n % size.engines], grpc))
        for n in range(size.agents)
    ]
    fleet = Fleet(folder, http, metrics, router, agents, engines, ports)
    try:
        for process in (router, *engines):
            process.start()
        await until(lambda: bool(router.events("router_started")) or router.has_ended, within_s=START_WITHIN_S)
        for process in agents:
            process.start()
        await fleet.all_serve()
        yield fleet
    finally:
        for process in fleet.processes:
            process.resume()
            if not process.has_ended:
                process.kill()


def _router_flags(size: Size, http: Address, metrics: Address, grpc: Address) -> list[str]:
    flags = {
        "--http-port": f"127.0.0.1:{http[1]}",
        "--metrics-port": f"127.0.0.1:{metrics[1]}",
        "--grpc-port": f"127.0.0.1:{grpc[1]}",
        "--p2p-port": size.p2p_port or free_port(),
        "--identity-path": "router.key",
        "--max-concurrent": 2000,
        "--queue-size": 4000,
        "--queue-depth": 2000,
        "--request-timeout": f"{size.request_timeout_s:g}s",
        "--stream-idle-timeout": f"{size.stream_idle_timeout_s:g}s",
        "--log-format": "json",
    }
    if size.p2p_announce_port:
        flags["--p2p-announce-addr"] = f"/ip4/127.0.0.1/tcp/{size.p2p_announce_port}"
    return [f"{name}={value}" for name, value in flags.items()]


def _engine_flags(port: int) -> list[str]:
    # All clients may come to one engine while the others are away, and none of them is to queue there.
    return [f"--listen=127.0.0.1:{port}", f"--model={MODEL}", "--concurrency=4000", "--kv-cache-tokens=4000000"]


def _agent_flags(number: int, capacity: int, engine_port: int, grpc: Address) -> list[str]:
    flags = {
        "--backend-url": f"http://127.0.0.1:{engine_port}",
        "--router-grpc": f"127.0.0.1:{grpc[1]}",
        "--identity-path": f"agent-{number}.key",
        "--capacity": capacity,
        "--machine": f"agent-{number}",
        "--log-format": "json",
    }
    return [f"{name}={value}" for name, value in flags.items()]
