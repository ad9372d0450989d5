"""How do tests run the programs as an operator does?

Each as a process of its own, in a folder of its own, with no setting of the tester's environment. Invariant: every wait
ends, at the latest after `WITHIN_S`, and no process outlives the block that started it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.house.running import free_port

SECRET: Final = "the-secret-of-the-first-hour-0123456789abcdef"
MODEL: Final = "m1"
WITHIN_S: Final = 30.0
"""How long a test waits for something that must come; no measure of how fast it should."""
HELLO: Final = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
_LOOK_EVERY_S: Final = 0.02
_MODULES: Final = {"router": "cli.router", "agent": "cli.agent", "sim": "sim.main"}


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds; `what` says what was waited for. Raises: AssertionError."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come within {WITHIN_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)


class Running:
    """One program as a process. `files_max` is the number of files it may have open, however hard it tries."""

    def __init__(
        self, name: str, folder: Path, *flags: str, env: Mapping[str, str] | None = None, files_max: int | None = None
    ) -> None:
        self._output = folder / f"{name}.{time.monotonic_ns()}.log"
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files_max}, {files_max})); "
        start = f"import sys; from hivenet_router.{_MODULES[name]} import main; sys.exit(main())"
        with self._output.open("wb") as output:
            self.process: Final = subprocess.Popen(
                [sys.executable, "-c", (limit if files_max else "") + start, *flags],
                cwd=folder,
                env={**_plain_environment(), **({} if env is None else env)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        """All it has said so far."""
        return self._output.read_text(errors="replace")

    def until_said(self, words: str) -> str:
        """The first line with these words, waited for."""
        until(lambda: words in self.said or self.process.poll() is not None, f"{words!r} in the log")
        found = [line for line in self.said.splitlines() if words in line]
        assert found, f"it ended without saying {words!r}: {self.said}"
        return found[0]

    def events(self, name: str) -> list[dict[str, object]]:
        """The lines of this event so far; the program must log as JSON."""
        lines = [line for line in self.said.splitlines() if line.startswith("{")]
        return [record for record in map(json.loads, lines) if record.get("msg") == name]

    def event(self, name: str) -> dict[str, object]:
        """The first line of this event, waited for; the program must log as JSON."""
        self.until_said(f'"msg": "{name}"')
        return self.events(name)[0]

    def ended(self) -> int:
        """Its exit code, waited for."""
        return self.process.wait(WITHIN_S)

    def stop(self) -> int:
        """Ask it to end, as a service manager does; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def end(self) -> None:
        """Make it end if it has not."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def program(
    name: str, folder: Path, *flags: str, env: Mapping[str, str] | None = None, files_max: int | None = None
) -> Iterator[Running]:
    """A program that runs until the block ends at the latest."""
    running = Running(name, folder, *flags, env=env, files_max=files_max)
    try:
        yield running
    finally:
        running.end()


def _plain_environment() -> dict[str, str]:
    ours = ("HIVENET_", "GOLOG_", "OTEL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path)}


def secret_file(folder: Path, secret: str = SECRET) -> Path:
    """A file with the secret, as openssl would leave it, for this user only."""
    path = folder / "secret.txt"
    path.touch(mode=0o600)
    path.write_text(f"{secret}\n")
    return path


def router_flags(folder: Path, *, json_log: bool = True, grpc_host: str = "127.0.0.1") -> list[str]:
    """A router's flags, with ports of its own on loopback."""
    return [
        f"--http-port=127.0.0.1:{free_port()}",
        f"--grpc-port={grpc_host}:{free_port()}",
        f"--metrics-port=127.0.0.1:{free_port()}",
        f"--p2p-port={free_port()}",
        f"--jwt-secret-file={secret_file(folder)}",
        "--identity-path=router.key",
        *(["--log-format=json"] if json_log else []),
    ]


def agent_flags(folder: Path, grpc: object, backend_url: str, *, json_log: bool = True) -> list[str]:
    """An agent's flags for the router at this address."""
    return [
        f"--router-grpc={grpc}",
        f"--backend-url={backend_url}",
        f"--jwt-secret-file={secret_file(folder)}",
        "--identity-path=agent.key",
        "--hardware-sample-interval=200ms",
        *(["--log-format=json"] if json_log else []),
    ]


def first_grpc(started: Mapping[str, object]) -> str:
    """The gRPC address in a router's first line."""
    addresses = started["grpc"]
    assert isinstance(addresses, list)
    return str(addresses[0])


def engine_url(sim: Running) -> str:
    """Where the simulator listens, waited for."""
    return sim.until_said("listening on ").partition("listening on ")[2].strip()


def sim_flags(*more: str) -> list[str]:
    """A simulator's flags: a port of its own, and no time lost."""
    fast = ("--decode-tokens-per-s=0", "--prefill-tokens-per-s=0", "--output-tokens=8")
    return [f"--listen=127.0.0.1:{free_port()}", f"--model={MODEL}", *fast, *more]


def fetch(url: str, body: object = None) -> tuple[int, str]:
    """Status and body of one request to a server on loopback; POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=WITHIN_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()
