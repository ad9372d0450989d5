"""The agent as a process: exit codes, what it prints, and signals, on loopback and without a router."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hivenet_router.adapters.grpc_client import (
    AuthenticationRefused,
    RegistrationTooLong,
    RouterUnreachable,
    WrongSecret,
)
from hivenet_router.cli.agent import _what_to_check

SECRET = "the-secret-of-this-test-0123456789abcdef"


class Process:
    """A running agent; `line` waits for the next log line that holds a word."""

    def __init__(self, folder: Path, *flags: str, secret: str = SECRET) -> None:
        environ = {**os.environ, "HIVENET_ROUTER_JWT_SECRET": secret}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hivenet_router.cli.agent", "--log-format=nocolor", *flags],
            cwd=folder,
            env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""

    def line(self, word: str) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said += line
            if word in line:
                return line
        raise AssertionError(f"{word} was never said, but: {self.said}")

    def signal(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        out, err = self._process.communicate(timeout=60)
        self.said += out + err
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator["list[Process]"]:
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()


@pytest.fixture
def engine() -> Iterator[int]:
    """The port of an HTTP server that is healthy and lists one model."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"data":[{"id":"m1"}]}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def dead_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_help_is_printed_and_nothing_started(tmp_path: Path, agents: list[Process]) -> None:
    agents.append(Process(tmp_path, "--help"))
    assert agents[0].ended() == 0
    assert "--backend-url" in agents[0].said
    assert not os.listdir(tmp_path)


def test_a_flag_that_is_none_exits_2(tmp_path: Path, agents: list[Process]) -> None:
    agents.append(Process(tmp_path, "--no-such-flag"))
    assert agents[0].ended() == 2
    assert "--no-such-flag" in agents[0].said


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--backend-url=https://127.0.0.1",), "--backend-url"),
        (("--engine=custom", "--model=m", "--health-url=https://127.0.0.1/x"), "--health-url"),
    ],
)
def test_a_backend_behind_tls_is_refused_with_what_to_do(
    tmp_path: Path, agents: list[Process], flags: tuple[str, ...], named: str
) -> None:
    agents.append(Process(tmp_path, *flags))
    assert agents[0].ended() == 1
    assert named in agents[0].said
    assert "use http://" in agents[0].said
    assert "Traceback" not in agents[0].said


def test_a_corrupt_identity_exits_1_and_names_the_option(tmp_path: Path, agents: list[Process]) -> None:
    (tmp_path / "agent_identity.key").write_bytes(b"")
    agents.append(Process(tmp_path))
    assert agents[0].ended() == 1
    assert "--identity-path agent_identity.key" in agents[0].said
    assert "Traceback" not in agents[0].said


def test_a_second_agent_on_one_identity_exits_1_and_the_first_goes_on(tmp_path: Path, agents: list[Process]) -> None:
    agents.append(Process(tmp_path, f"--backend-url=http://127.0.0.1:{dead_port()}"))
    agents[0].line("agent_started")
    agents.append(Process(tmp_path, f"--backend-url=http://127.0.0.1:{dead_port()}"))
    assert agents[1].ended() == 1
    assert "another process runs with this identity" in agents[1].said
    agents[0].signal()
    assert agents[0].ended() == 0


def test_a_port_that_is_taken_exits_1_and_names_the_option(tmp_path: Path, agents: list[Process]) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        agents.append(Process(tmp_path, f"--p2p-listen-port={taken.getsockname()[1]}"))
        assert agents[0].ended() == 1
    assert "--p2p-listen-port" in agents[0].said
    assert "Traceback" not in agents[0].said


def test_sigterm_while_the_backend_is_down_exits_0(tmp_path: Path, agents: list[Process]) -> None:
    agents.append(Process(tmp_path, f"--backend-url=http://127.0.0.1:{dead_port()}"))
    told = agents[0].line("backend_not_ready")
    assert "Connection refused" in told
    assert "--backend-url" in told
    agents[0].signal()
    assert agents[0].ended() == 0


def test_sigterm_between_tries_exits_0_and_every_line_has_the_peer_id(
    tmp_path: Path, agents: list[Process], engine: int
) -> None:
    router = f"127.0.0.1:{dead_port()}"
    agents.append(Process(tmp_path, f"--backend-url=http://127.0.0.1:{engine}", f"--router-grpc={router}"))
    told = agents[0].line("no_session")
    assert f"router={router}" in told
    assert "Connection refused" in told
    assert "--routers" in told
    agents[0].signal()
    assert agents[0].ended() == 0
    started = next(line for line in agents[0].said.splitlines() if "agent_started" in line)
    assert "engine=vllm" in started
    assert all("peer_id=12D3KooW" in line for line in agents[0].said.splitlines())
    assert SECRET not in agents[0].said


def test_what_a_failed_authentication_leaves_to_check_is_named() -> None:
    assert "--jwt-secret-file" in _what_to_check(WrongSecret("x"))
    assert "--routers" in _what_to_check(RouterUnreachable("x"))
    assert "--llm-info" in _what_to_check(RegistrationTooLong("x"))
    assert "clock" in _what_to_check(AuthenticationRefused("r:1", "its 'iat' lies in the future"))
