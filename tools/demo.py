"""`make run`: an engine, a router and an agent on free ports of this machine, and one chat through all three.

The engine is the simulator, or a real model with `make run-llm`.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.engines import BIN, LLM_VENV, Engine, Trouble, real_model, simulator

START_WITHIN_S = 60.0
PROMPT = "Say hello to whoever runs their own engines."


@dataclass
class Program:
    """One of the three, with its output in a file. `env` is its whole environment, by default ours."""

    name: str
    argv: list[str]
    folder: Path
    env: Mapping[str, str] | None = None
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
                env=os.environ if self.env is None else self.env,
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


def wait_for(program: Program, what: str, others: list[Program], find: "Finder") -> Mapping[str, object]:
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


Finder = Callable[[str], Mapping[str, object] | None]
"""What a line of a program's output tells, if it is the one looked for."""


def event(name: str) -> Finder:
    """Finds one event in a program's JSON log."""

    def find(line: str) -> Mapping[str, object] | None:
        if f'"{name}"' not in line:
            return None
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and record.get("msg") == name:
                return record
        return None

    return find


def ready_line(engine: Engine) -> Finder:
    """Finds the URL in the line that the engine is ready with."""

    def find(line: str) -> Mapping[str, object] | None:
        found = engine.ready.search(line)
        return None if found is None else {"url": found[1]}

    return find


def chat(url: str, engine: Engine) -> Iterator[str]:
    """The pieces of one streamed answer, as they come."""
    said = [{"role": "user", "content": PROMPT}]
    body = {"model": engine.model, "stream": True, "max_tokens": engine.answer_tokens, "messages": said, **engine.extra}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            for raw in answer:
                line = raw.decode().strip()
                if line.startswith('data: {"error"'):
                    raise Trouble(f"the chat failed: {line.removeprefix('data: ')}")
                if line.startswith("data: {"):
                    delta = json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
                    yield str(delta.get("content") or "")
    except (urllib.error.URLError, OSError, ValueError, LookupError) as error:
        raise Trouble(f"the chat failed: {error}") from error


def say(text: str = "", end: str = "\n") -> None:
    """Print at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


@dataclass(frozen=True)
class House:
    """Where each of the three is found."""

    engine: str
    router: str
    grpc: str
    metrics: str


def start(folder: Path, programs: list[Program], engine: Engine) -> House:
    """Start all three and wait for them; what has been started is in `programs`, also when this fails.

    Raises: Trouble.
    """
    secret = folder / "secret.txt"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    behind = Program("engine", engine.argv, folder, engine.env)
    router = Program(
        "router",
        [
            str(BIN / "hivenet-router"), "--http-port", "127.0.0.1:0", "--grpc-port", "127.0.0.1:0",
            "--metrics-port", "127.0.0.1:0", "--p2p-port", "0", "--jwt-secret-file", "secret.txt",
            "--identity-path", "router.key", "--log-format", "json", *engine.router,
        ],
        folder,
    )  # fmt: skip
    for program in (behind, router):
        program.start()
        programs.append(program)
    url = str(wait_for(behind, "it listens", programs, ready_line(engine))["url"])
    started = wait_for(router, "it started", programs, event("router_started"))
    listed = started["grpc"]
    grpc = str(listed[0] if isinstance(listed, list) else listed)
    agent = Program(
        "agent",
        [
            str(BIN / "hivenet-agent"), "--backend-url", url, "--router-grpc", grpc, "--jwt-secret-file", "secret.txt",
            "--identity-path", "agent.key", "--log-format", "json", *engine.agent,
        ],
        folder,
    )  # fmt: skip
    agent.start()
    programs.append(agent)
    wait_for(router, "the agent registered", programs, event("agent_registered"))
    return House(url, f"http://{started['http']}", grpc, f"http://{started['metrics']}/metrics")


def demo(folder: Path, programs: list[Program], engine: Engine, *, once: bool) -> None:
    """Start all, chat once, and stay until Ctrl-C unless `once`.

    Raises: Trouble.
    """
    house = start(folder, programs, engine)
    url = house.router
    say(f"\n  {engine.title:<18}{house.engine}\n  {'router':<18}{url}   (metrics on {house.metrics})")
    say(f"  {'agent':<18}dialled {house.grpc}, registered, serves {engine.model!r}\n\n> {PROMPT}\n< ", end="")
    for piece in chat(url, engine):
        say(piece, end="")
    body = json.dumps({"model": engine.model, "stream": True, "messages": [{"role": "user", "content": "And now?"}]})
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
    parser.add_argument("--engine", choices=("simulator", "llama.cpp"), default="simulator", help="what answers")
    parser.add_argument("--llm-venv", type=Path, default=LLM_VENV, help="where llama.cpp and its model are installed")
    given = parser.parse_args()
    programs: list[Program] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="hivenet-") as folder:
        try:
            engine = simulator() if given.engine == "simulator" else real_model(given.llm_venv.absolute())
            demo(Path(folder), programs, engine, once=given.once)
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
