"""The original router and agent as processes, for tests against them.

They are looked for in the folder that `ORIGINAL_DIR` names, as `router` and `agent`; without it the tests are skipped.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.house.client import Address
from tests.house.running import SECRET, free_port

_FOLDER: Final = os.environ.get("ORIGINAL_DIR", "")
needs_originals: Final = pytest.mark.skipif(
    not all((Path(_FOLDER or "/nonexistent") / name).is_file() for name in ("router", "agent")),
    reason="ORIGINAL_DIR names no folder with the original's router and agent",
)


@dataclass
class Original:
    """One of them, running; its output goes to a file."""

    process: "subprocess.Popen[bytes]"
    log_path: Path

    @property
    def said(self) -> str:
        """All it has said so far."""
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """End it without a chance to say anything."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def _original(name: str, folder: Path, flags: list[str]) -> Iterator[Original]:
    (folder / "secret.txt").write_text(SECRET)
    log_path = folder / f"original-{name}-{free_port()}.log"
    env = {
        **os.environ,
        "HIVENET_ROUTER_ALLOW_INSECURE_ADMIN": "true",
        "HIVENET_ROUTER_AUDIT_LOG_PATH": str(folder / "audit.jsonl"),
    }
    with log_path.open("wb") as output:
        process = subprocess.Popen(
            [str(Path(_FOLDER).absolute() / name), *flags, "--jwt-secret-file", "secret.txt"],
            cwd=folder,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    running = Original(process, log_path)
    try:
        yield running
    finally:
        running.kill()


@contextlib.contextmanager
def original_agent(folder: Path, grpc: Address, backend_url: str, *flags: str) -> Iterator[Original]:
    """An original agent of the router at this address."""
    argv = ["--engine", "vllm", "--backend-url", backend_url, "--router-grpc", f"{grpc[0]}:{grpc[1]}"]
    with _original("agent", folder, [*argv, "--identity-path", "original.key", *flags]) as running:
        yield running


@dataclass
class OriginalRouter:
    """An original router and its addresses."""

    original: Original
    http: Address
    grpc: Address


@contextlib.contextmanager
def original_router(folder: Path, *flags: str) -> Iterator[OriginalRouter]:
    """An original router."""
    http, grpc = free_port(), free_port()
    argv = ["--http-port", f"127.0.0.1:{http}", "--grpc-port", f"127.0.0.1:{grpc}"]
    argv += ["--metrics-port", f"127.0.0.1:{free_port()}", "--p2p-port", str(free_port()), "--disk-db-path", "db"]
    with _original("router", folder, [*argv, *flags]) as running:
        yield OriginalRouter(running, ("127.0.0.1", http), ("127.0.0.1", grpc))
