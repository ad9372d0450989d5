"""What is measured: the engine itself, our router with agents, the original with agents, and peers without.

All stand before the same engine at the same time. Ours and the original get the same limits, so that neither queues or
refuses where the other does not. Invariant: a target that is handed out has answered a chat.
"""

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from bench.programs import PORTS, Program, Programs, Trouble, rss_mib

Name = Literal[
    "direct",
    "ours",
    "original",
    "sglang-router",
    "sglang-router round_robin",
    "vllm-router",
    "vllm-router round_robin",
    "vllm-router consistent_hash",
    "litellm",
]
NAMES: Final[tuple[Name, ...]] = get_args(Name)
MODEL: Final = "bench-model"


class Counts(msgspec.Struct, frozen=True):
    """Chats of an engine: how many are with it, how many were at one time at `most`, and how many came in `all`."""

    now: int
    most: int
    all: int


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine."""

    address: str
    program: Program

    @property
    def url(self) -> str:
        """Where an agent finds it."""
        return f"http://{self.address}"

    def counts(self) -> Counts:
        """What it has counted since this was asked last.

        Raises: Trouble when it does not say.
        """
        try:
            with _opener().open(f"{self.url}/bench/counts", timeout=10) as answer:
                return msgspec.json.decode(answer.read(), type=Counts)
        except (OSError, msgspec.MsgspecError) as error:
            raise Trouble(f"the engine does not say what it counted: {error}") from error


@dataclass(frozen=True, slots=True)
class Limits:
    """What a router and its agents let through; `more` are further options of our router."""

    capacity: int = 400
    max_concurrent: int = 1000
    queue_size: int = 2000
    queue_depth: int = 2000
    more: tuple[str, ...] = ()

    def options(self, dash: str) -> list[str]:
        """The router's options, each name after `dash`."""
        pairs = (
            ("max-concurrent", self.max_concurrent),
            ("queue-size", self.queue_size),
            ("queue-depth", self.queue_depth),
        )
        return [word for name, value in pairs for word in (f"{dash}{name}", str(value))]


@dataclass(frozen=True, slots=True)
class Target:
    """Where load is sent, and which processes carry it; `delays` are those that stand for distance.

    `fresh_mib` is the memory of router and agents before any load.
    """

    name: Name
    address: str
    engine: Engine
    router: Program | None = None
    agents: tuple[Program, ...] = ()
    delays: tuple[Program, ...] = ()
    fresh_mib: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the programs of a run are; `original` is None when it is not measured.

    `peers` are the Python environments of those that are.
    """

    engine: Path
    load: Path
    delay: Path
    router: Path
    agent: Path
    original: Path | None
    peers: Mapping[Name, Path] = field(default_factory=dict)
    ports: range = PORTS


def start_engine(programs: Programs, tools: Tools, name: str = "engine") -> Engine:
    """An engine that has answered a chat.

    Raises: Trouble when it does not come up.
    """
    address = f"127.0.0.1:{programs.free_port()}"
    engine = programs.start(name, [str(tools.engine), "--listen", address, "--model", MODEL])
    programs.wait("the engine answers a chat", lambda: answers(address), engine)
    return Engine(address, engine)


def start_far_engine(programs: Programs, tools: Tools, engine: Engine, round_trip_ms: int) -> Target:
    """The engine itself, as far away as our router's agents are.

    Raises: Trouble when the delay does not come up.
    """
    port = programs.free_port()
    delay = start_delay(programs, tools, port, engine.address, round_trip_ms, "delay before the engine")
    address = f"127.0.0.1:{port}"
    programs.wait("the engine answers a chat from afar", lambda: answers(address), delay)
    return Target("direct", address, engine, delays=(delay,))


def start_ours(
    programs: Programs, tools: Tools, engines: Sequence[Engine], limits: Limits, round_trip_ms: int = 0
) -> Target:
    """Our router, with an agent before each of `engines` and that many ms to the agents and back.

    Raises: Trouble when one does not come up.
    """
    http, grpc, metrics = (f"127.0.0.1:{programs.free_port()}" for _ in range(3))
    p2p, near = programs.free_port(), programs.free_port()
    secret = _secret(programs)
    far = ["--p2p-announce-addr", f"/ip4/127.0.0.1/tcp/{near}"] if round_trip_ms else []
    router = programs.start(
        "router",
        [
            str(tools.router), "--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics,
            "--p2p-port", str(p2p), "--jwt-secret-file", secret, "--identity-path", "router.key",
            "--log-format", "json",
            *limits.options("--"), *limits.more, *far,
        ],
    )  # fmt: skip
    programs.wait("the router started", lambda: '"router_started"' in router.said(), router)
    delays: tuple[Program, ...] = ()
    if round_trip_ms:
        delays = (start_delay(programs, tools, near, f"127.0.0.1:{p2p}", round_trip_ms, "delay before the router"),)
    behind = tuple(
        programs.start(
            f"agent {number}",
            [
                str(tools.agent), "--engine", "vllm", "--backend-url", engine.url, "--router-grpc", grpc,
                "--jwt-secret-file", secret, "--identity-path", "agent.key", "--capacity", str(limits.capacity),
                "--log-format", "json",
            ],
        )
        for number, engine in enumerate(engines, 1)
    )  # fmt: skip
    _wait_registered(programs, router, '"agent_registered"', len(engines))
    programs.wait("the router answers a chat", lambda: answers(http), router)
    return Target("ours", http, engines[0], router, behind, delays, (rss_mib([router]), rss_mib(behind)))


def start_original(programs: Programs, folder: Path, engines: Sequence[Engine], limits: Limits) -> Target:
    """The original's router, with one of its agents before each of `engines`.

    Raises: Trouble when one does not come up.
    """
    http, grpc, metrics = (f"127.0.0.1:{programs.free_port()}" for _ in range(3))
    p2p = str(programs.free_port())
    secret = _secret(programs)
    router = programs.start(
        "original router",
        [
            str(folder / "router"), "-http-port", http, "-grpc-port", grpc, "-metrics-port", metrics,
            "-p2p-port", p2p, "-p2p-listen-addr", "127.0.0.1", "-jwt-secret-file", secret,
            "-disk-db-path", "store", *limits.options("-"),
        ],
        {"HIVENET_ROUTER_ALLOW_INSECURE_ADMIN": "true", "HIVENET_ROUTER_AUDIT_LOG_PATH": "audit.jsonl"},
    )  # fmt: skip
    programs.wait("the original router answers", lambda: is_up(http), router)
    behind = tuple(
        programs.start(
            f"original agent {number}",
            [
                str(folder / "agent"), "-engine", "vllm", "-backend-url", engine.url, "-router-grpc", grpc,
                "-router-p2p", f"/ip4/127.0.0.1/tcp/{p2p}", "-jwt-secret-file", secret,
                "-identity-path", "agent.key", "-capacity", str(limits.capacity),
            ],
        )
        for number, engine in enumerate(engines, 1)
    )  # fmt: skip
    _wait_registered(programs, router, "Agent registered", len(engines))
    programs.wait("the original router answers a chat", lambda: answers(http), router)
    return Target("original", http, engines[0], router, behind, (), (rss_mib([router]), rss_mib(behind)))


def start_delay(programs: Programs, tools: Tools, port: int, target: str, round_trip_ms: int, name: str) -> Program:
    """What passes connections on over a distance."""
    delay_us = str(round_trip_ms * 1000 // 2)
    argv = [str(tools.delay), "--listen", f"127.0.0.1:{port}", "--target", target, "--delay-us", delay_us]
    return programs.start(name, argv)


def answers(address: str) -> bool:
    """True when a chat sent there is answered with 200."""
    body = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    return _status(f"http://{address}/v1/chat/completions", json.dumps(body).encode()) == 200


def is_up(address: str) -> bool:
    """True when `/health` there is answered with 200."""
    return _status(f"http://{address}/health", None) == 200


def _wait_registered(programs: Programs, router: Program, words: str, agents: int) -> None:
    programs.wait(f"{agents} agents registered", lambda: router.said().count(words) >= agents, router)


def _secret(programs: Programs) -> str:
    path = programs.folder / "secret.txt"
    if not path.exists():
        path.write_text(secrets.token_hex(32))
    return str(path)


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _status(url: str, body: bytes | None) -> int:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with _opener().open(request, timeout=10) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
