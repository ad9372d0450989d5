"""What is measured: the engine itself, our router with agents, and the original with agents.

All three stand before the same engine at the same time. Ours and the original get the same limits, so that neither
queues or refuses where the other does not. Invariant: a target that is handed out has answered a chat.
"""

import json
import secrets
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.programs import Program, Programs

Name = Literal["direct", "ours", "original"]
MODEL: Final = "bench-model"
_CAPACITY: Final = "400"
_LIMITS: Final = ("max-concurrent", "1000"), ("queue-size", "2000"), ("queue-depth", "2000")


@dataclass(frozen=True, slots=True)
class Target:
    """Where load is sent, and which processes carry it."""

    name: Name
    address: str
    engine: Program
    router: Program | None = None
    agents: tuple[Program, ...] = ()


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the programs of a run are; `original` is None when it is not measured."""

    engine: Path
    load: Path
    router: Path
    agent: Path
    original: Path | None


def start_all(programs: Programs, tools: Tools, agents: tuple[int, int]) -> list[Target]:
    """The engine, and each target before it: our router and the original, each with its number of `agents`.

    Raises: Trouble when one does not come up.
    """
    address = f"127.0.0.1:{programs.free_port()}"
    engine = programs.start("engine", [str(tools.engine), "--listen", address, "--model", MODEL])
    programs.wait("the engine answers a chat", lambda: _answers(address), engine)
    engine_url = f"http://{address}"
    targets = [Target("direct", address, engine), _start_ours(programs, tools, engine, engine_url, agents[0])]
    if tools.original is not None:
        targets.append(_start_original(programs, tools.original, engine, engine_url, agents[1]))
    return targets


def _start_ours(programs: Programs, tools: Tools, engine: Program, engine_url: str, agents: int) -> Target:
    http, grpc, metrics = (f"127.0.0.1:{programs.free_port()}" for _ in range(3))
    secret = _secret(programs)
    limits = [word for name, value in _LIMITS for word in (f"--{name}", value)]
    router = programs.start(
        "router",
        [
            str(tools.router), "--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics,
            "--p2p-port", str(programs.free_port()), "--jwt-secret-file", secret, "--identity-path", "router.key",
            "--disk-db-path", "store", "--audit-log-path", "audit.jsonl", "--log-format", "json", *limits,
        ],
    )  # fmt: skip
    programs.wait("the router started", lambda: '"router_started"' in router.said(), router)
    behind = tuple(
        programs.start(
            f"agent {number}",
            [
                str(tools.agent), "--engine", "vllm", "--backend-url", engine_url, "--router-grpc", grpc,
                "--jwt-secret-file", secret, "--identity-path", "agent.key", "--capacity", _CAPACITY,
                "--log-format", "json",
            ],
        )
        for number in range(1, agents + 1)
    )  # fmt: skip
    _wait_registered(programs, router, '"agent_registered"', agents)
    programs.wait("the router answers a chat", lambda: _answers(http), router)
    return Target("ours", http, engine, router, behind)


def _start_original(programs: Programs, folder: Path, engine: Program, engine_url: str, agents: int) -> Target:
    http, grpc, metrics = (f"127.0.0.1:{programs.free_port()}" for _ in range(3))
    p2p = str(programs.free_port())
    secret = _secret(programs)
    limits = [word for name, value in _LIMITS for word in (f"-{name}", value)]
    router = programs.start(
        "original router",
        [
            str(folder / "router"), "-http-port", http, "-grpc-port", grpc, "-metrics-port", metrics,
            "-p2p-port", p2p, "-p2p-listen-addr", "127.0.0.1", "-jwt-secret-file", secret,
            "-disk-db-path", "store", *limits,
        ],
        {"HIVENET_ROUTER_ALLOW_INSECURE_ADMIN": "true", "HIVENET_ROUTER_AUDIT_LOG_PATH": "audit.jsonl"},
    )  # fmt: skip
    programs.wait("the original router answers", lambda: _is_up(http), router)
    behind = tuple(
        programs.start(
            f"original agent {number}",
            [
                str(folder / "agent"), "-engine", "vllm", "-backend-url", engine_url, "-router-grpc", grpc,
                "-router-p2p", f"/ip4/127.0.0.1/tcp/{p2p}", "-jwt-secret-file", secret,
                "-identity-path", "agent.key", "-capacity", _CAPACITY,
            ],
        )
        for number in range(1, agents + 1)
    )  # fmt: skip
    _wait_registered(programs, router, "Agent registered", agents)
    programs.wait("the original router answers a chat", lambda: _answers(http), router)
    return Target("original", http, engine, router, behind)


def _wait_registered(programs: Programs, router: Program, words: str, agents: int) -> None:
    programs.wait(f"{agents} agents registered", lambda: router.said().count(words) >= agents, router)


def _secret(programs: Programs) -> str:
    path = programs.folder / "secret.txt"
    if not path.exists():
        path.write_text(secrets.token_hex(32))
    return str(path)


def _answers(address: str) -> bool:
    """True when a chat sent there is answered with 200."""
    body = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    return _status(f"http://{address}/v1/chat/completions", json.dumps(body).encode()) == 200


def _is_up(address: str) -> bool:
    return _status(f"http://{address}/health", None) == 200


def _status(url: str, body: bytes | None) -> int:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
