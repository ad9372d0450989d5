"""What happens when a program may open no more files, and when strangers make a noise?

A limit that is too low from the start is refused there, so these lower it later. Running out is an operator's business
and passes by itself: it must end nothing, and be said in measure.
"""

import contextlib
import http.client
import json
import re
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.first_hour.programs import (
    HELLO,
    WITHIN_S,
    Running,
    agent_flags,
    engine_url,
    fetch,
    first_grpc,
    program,
    router_flags,
    sim_flags,
    until,
)

OUT_OF_FILES = "out_of_file_descriptors"
FILES_MAX = 64


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """The URL of a simulator."""
    with program("sim", tmp_path, *sim_flags()) as sim:
        yield engine_url(sim)


@contextlib.contextmanager
def house(
    folder: Path, engine: str, *, router_files_max: int | None = None, agent_files_max: int | None = None
) -> Iterator[tuple[Running, Running]]:
    """A router and an agent that has registered; from then on they may open so many files."""
    with program("router", folder, *router_flags(folder)) as router:
        flags = agent_flags(folder, first_grpc(router.event("router_started")), engine)
        with program("agent", folder, *flags, "--capacity=200") as agent:
            router.event("agent_registered")
            for running, files_max in ((router, router_files_max), (agent, agent_files_max)):
                if files_max is not None:
                    limit_files(running, files_max)
            yield router, agent


def limit_files(running: Running, files_max: int) -> None:
    resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (files_max, files_max))


def address(router: Running, which: str) -> tuple[str, int]:
    host, _, port = str(router.event("router_started")[which]).rpartition(":")
    return host, int(port)


def rejected(router: Running, reason: str) -> float:
    """How many the metrics page counts for this reason."""
    host, port = address(router, "metrics")
    page = fetch(f"http://{host}:{port}/metrics")[1]
    counts = re.findall(rf'^hivenet_http_rejected_total{{[^}}]*reason="{reason}"[^}}]*}} (\S+)$', page, re.MULTILINE)
    return sum(map(float, counts))


def chat(router: Running) -> int:
    host, port = address(router, "http")
    return fetch(f"http://{host}:{port}/v1/chat/completions", HELLO)[0]


class KeptConnection(http.client.HTTPConnection):
    """A connection that was opened while there was room, and asked on later."""

    def asked(self, path: str, body: object = None) -> int:
        self.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = self.getresponse()
        answer.read()
        return answer.status


def lines_about(router: Running, reason: str) -> list[dict[str, object]]:
    return [line for line in router.events("request_rejected") if line["why"] == reason]


@pytest.mark.parametrize("which", ["http", "metrics"])
def test_a_router_out_of_files_says_so_once_and_goes_on_when_there_is_room(
    tmp_path: Path, engine: str, which: str
) -> None:
    with house(tmp_path, engine, router_files_max=FILES_MAX) as (router, _):
        client = KeptConnection(*address(router, "http"), timeout=WITHIN_S)
        assert client.asked("/health") == 200
        with contextlib.closing(client), contextlib.ExitStack() as held:
            for _ in range(FILES_MAX):
                held.enter_context(socket.create_connection(address(router, which), timeout=WITHIN_S))
            until(lambda: bool(lines_about(router, OUT_OF_FILES)), "a line about files")
            # One that has come in beyond the limit waits; many attempts to take it in fail meanwhile.
            late = held.enter_context(socket.create_connection(address(router, which), timeout=0.5))
            late.sendall(b"GET /health HTTP/1.1\r\nHost: router\r\n\r\n")
            with pytest.raises(TimeoutError):
                late.recv(1)
            assert client.asked("/v1/chat/completions", HELLO) == 200
            assert client.asked("/v1/models") == 200
        until(lambda: still_serves(router), "an answer after the connections were closed")
        assert rejected(router, OUT_OF_FILES) > 3
        (line,) = lines_about(router, OUT_OF_FILES)
        assert (line["level"], line["times"]) == ("warn", 1)
        assert "ulimit -n" in str(line["advice"])
        assert router.stop() == 0


def still_serves(router: Running) -> bool:
    try:
        return chat(router) == 200
    except OSError:
        return False


def test_a_router_out_of_files_goes_on_taking_agents_in_when_there_is_room(tmp_path: Path, engine: str) -> None:
    with program("router", tmp_path, *router_flags(tmp_path)) as router:
        grpc = first_grpc(router.event("router_started"))
        limit_files(router, FILES_MAX)
        host, _, port = grpc.rpartition(":")
        with contextlib.ExitStack() as held:
            for _ in range(FILES_MAX):
                held.enter_context(socket.create_connection((host, int(port)), timeout=WITHIN_S))
            until(lambda: any("ulimit -n" in str(line["why"]) for line in router.events("grpc_refused")), "a line")
        with program("agent", tmp_path, *agent_flags(tmp_path, grpc, engine)):
            router.event("agent_registered")
        assert len([line for line in router.events("grpc_refused") if "ulimit -n" in str(line["why"])]) == 1


def test_an_agent_out_of_files_fails_some_requests_and_serves_again_when_there_is_room(tmp_path: Path) -> None:
    slow = sim_flags("--decode-tokens-per-s=20", "--output-tokens=20")
    with (
        program("sim", tmp_path, *slow) as sim,
        house(tmp_path, engine_url(sim), agent_files_max=FILES_MAX) as (
            router,
            agent,
        ),
    ):
        with ThreadPoolExecutor(FILES_MAX + 16) as pool:
            statuses = list(pool.map(lambda _: chat(router), range(FILES_MAX + 16)))
        assert set(statuses) <= {200, 502, 503}
        assert statuses.count(200) > 0
        assert len(statuses) > statuses.count(200)
        assert "Too many open files" in agent.said
        until(lambda: still_serves(router), "an answer after the requests had ended")
        assert agent.stop() == 0


def test_a_program_may_open_as_many_files_as_the_system_lets_it(tmp_path: Path, engine: str) -> None:
    """Both programs raise the soft limit to the hard one, which is what the kernel shows of them."""
    with house(tmp_path, engine) as programs:
        for running in programs:
            limits = Path(f"/proc/{running.process.pid}/limits")
            if limits.exists():
                soft, hard = limits.read_text().partition("Max open files")[2].split()[:2]
                assert soft == hard or int(soft) >= 65_536


def test_a_flood_of_garbage_is_counted_and_not_written_down(tmp_path: Path, engine: str) -> None:
    attempts = 200
    with house(tmp_path, engine) as (router, _):
        for _ in range(attempts):
            with socket.create_connection(address(router, "http"), timeout=WITHIN_S) as stranger:
                stranger.sendall(b"\x16\x03\x01garbage\r\n\r\n")
                assert stranger.recv(64).startswith(b"HTTP/1.1 400 ")
        (line,) = router.events("request_rejected")
        assert (line["client"], line["status"], line["times"]) == ("127.0.0.1", 400, 1)
        assert rejected(router, str(line["why"])) == attempts
        assert chat(router) == 200


def test_a_flood_of_strangers_at_the_agents_door_is_counted_and_not_written_down(tmp_path: Path, engine: str) -> None:
    with house(tmp_path, engine) as (router, _):
        host, _, port = first_grpc(router.event("router_started")).rpartition(":")
        for _ in range(50):
            with socket.create_connection((host, int(port)), timeout=WITHIN_S) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(64):
                        pass
        assert len(router.events("grpc_refused")) == 1
