"""`make run`: a simulator, a router and an agent on free ports of this machine, and one chat through all three.

Ends with exit code 0 after the answer (`--once`) or with Ctrl-C, and leaves nothing running. Whatever goes wrong is
said in a sentence, with the last lines of the program it went wrong in, and the exit code is 1.
"""

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
MODEL = "demo-model"
START_WITHIN_S = 30.0
PROMPT = "Say hello to whoever runs their own engines."


class Trouble(Exception):
    """Something went wrong; the text says what."""


@dataclass
class Program:
    """One of the three, with its output in a file."""

    name: str
    argv: list[str]
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        """Where its output goes."""
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """Start it in its folder."""
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                self.argv,
                cwd=self.folder,
                env={**os.environ, **self.env},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def lines(self) -> list[str]:
        """What it has said so far."""
        return self.output.read_text(errors="replace").splitlines()

    def check(self) -> None:
        """Raises: Trouble when it has ended."""
        if self.process is not None and self.process.poll() is not None:
            tail = "\n".join(f"    {line}" for line in self.lines()[-8:])
            raise Trouble(f"the {self.name} ended with exit code {self.process.returncode}; its last words:\n{tail}")

    def stop(self) -> None:
        """Ask it to stop, and make it where it does not."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_for(program: Program, what: str, others: list[Program], find: "Finder") -> dict[str, object]:
    """The first line of the program's output that `find` makes something of."""
    deadline = time.monotonic() + START_WITHIN_S
    while time.monotonic() < deadline:
        for other in others:
            other.check()
        for line in program.lines():
            found = find(line)
            if found is not None:
                return found
        time.sleep(0.05)
    tail = "\n".join(f"    {line}" for line in program.lines()[-8:])
    raise Trouble(f"the {program.name} did not say that {what} within {START_WITHIN_S:.0f} s; its last words:\n{tail}")


class Finder:
    """Finds one event in a program's JSON log."""

    def __init__(self, event: str) -> None:
        self._event = event

    def __call__(self, line: str) -> dict[str, object] | None:
        if f'"{self._event}"' not in line:
            return None
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and record.get("msg") == self._event:
                return record
        return None


class ReadyLine(Finder):
    """Finds the simulator's ready line."""

    def __init__(self) -> None:
        super().__init__("")

    def __call__(self, line: str) -> dict[str, object] | None:
        _, _, url = line.partition("listening on ")
        return {"url": url.strip()} if url else None


def chat(url: str) -> Iterator[str]:
    """The pieces of one streamed answer, as they come."""
    body = {"model": MODEL, "stream": True, "max_tokens": 24, "messages": [{"role": "user", "content": PROMPT}]}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            for raw in answer:
                line = raw.decode().strip()
                if line.startswith("data: {"):
                    delta = json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
                    yield str(delta.get("content") or "")
    except (urllib.error.URLError, OSError, ValueError, LookupError) as error:
        raise Trouble(f"the chat failed: {error}") from error


def say(text: str = "", end: str = "\n") -> None:
    """Print at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def demo(folder: Path, programs: list[Program], *, once: bool) -> None:
    """Start all, chat once, and stay until Ctrl-C unless `once`."""
    secret = folder / "secret.txt"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    simulator = Program("simulator", [str(BIN / "hivenet-sim"), "--listen", "127.0.0.1:0", "--model", MODEL], folder)
    router = Program(
        "router",
        [
            str(BIN / "hivenet-router"), "--http-port", "127.0.0.1:0", "--grpc-port", "127.0.0.1:0",
            "--metrics-port", "127.0.0.1:0", "--p2p-port", "0", "--jwt-secret-file", "secret.txt",
            "--identity-path", "router.key", "--disk-db-path", "store", "--log-format", "json",
        ],
        folder,
    )  # fmt: skip
    programs += [simulator, router]
    for program in programs:
        program.start()
    engine = wait_for(simulator, "it listens", programs, ReadyLine())["url"]
    started = wait_for(router, "it started", programs, Finder("router_started"))
    grpc = started["grpc"]
    grpc = grpc[0] if isinstance(grpc, list) else grpc
    agent = Program(
        "agent",
        [
            str(BIN / "hivenet-agent"), "--engine", "vllm", "--backend-url", str(engine), "--router-grpc", str(grpc),
            "--jwt-secret-file", "secret.txt", "--identity-path", "agent.key", "--log-format", "json",
        ],
        folder,
    )  # fmt: skip
    programs.append(agent)
    agent.start()
    wait_for(router, "the agent registered", programs, Finder("agent_registered"))
    url = f"http://{started['http']}"
    say(f"\n  engine simulator  {engine}\n  router            {url}   (metrics on http://{started['metrics']}/metrics)")
    say(f"  agent             dialled {grpc}, registered, serves {MODEL!r}\n\n> {PROMPT}\n< ", end="")
    for piece in chat(url):
        say(piece, end="")
    body = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "And now?"}]})
    say(f"\n\nTry next:\n\n  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n")
    if once:
        return
    say("Ctrl-C ends all three.")
    while True:
        for program in programs:
            program.check()
        time.sleep(0.5)


def main() -> int:
    """Run the demo; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="stop after the answer")
    once = parser.parse_args().once
    programs: list[Program] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="hivenet-") as folder:
        try:
            demo(Path(folder), programs, once=once)
        except Trouble as trouble:
            sys.stderr.write(f"\nhivenet-router: {trouble}\n")
            return 1
        except KeyboardInterrupt:
            say("\nStopping.")
        finally:
            for program in reversed(programs):
                program.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
