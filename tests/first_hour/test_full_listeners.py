"""What becomes of clients, agents and Prometheus when somebody takes all the connections there are?

Whoever has been idle longest makes room, a running request never does, and each listener has a part of its own.
"""

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.first_hour.programs import (
    HELLO,
    WITHIN_S,
    agent_flags,
    engine_url,
    fetch,
    first_grpc,
    program,
    router_flags,
    sim_flags,
)

from hivenet_router.adapters.file_limit import raise_file_limit
from hivenet_router.core.file_shares import FILES_MIN, METRICS_MAX

CLIENTS = 100


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """The URL of a simulator that takes a second for an answer."""
    with program("sim", tmp_path, *sim_flags("--decode-tokens-per-s=20", "--output-tokens=20")) as sim:
        yield engine_url(sim)


def silent(stack: contextlib.ExitStack, address: str, connections: int) -> None:
    """Open so many connections and say nothing on them."""
    host, _, port = address.rpartition(":")
    for _ in range(connections):
        stack.enter_context(socket.create_connection((host, int(port)), timeout=WITHIN_S))


def test_a_router_that_may_open_too_few_files_does_not_start_and_says_what_to_do(tmp_path: Path) -> None:
    with program("router", tmp_path, *router_flags(tmp_path), files_max=FILES_MIN - 1) as router:
        assert router.ended() == 1
        assert "raise the limit" in str(router.event("router_cannot_start")["why"])


def test_an_agent_that_may_open_too_few_files_for_its_capacity_does_not_start(tmp_path: Path, engine: str) -> None:
    flags = [*agent_flags(tmp_path, "127.0.0.1:1", engine), "--capacity=200"]
    with program("agent", tmp_path, *flags, files_max=256) as agent:
        assert agent.ended() == 1
        assert "--capacity 200" in str(agent.event("agent_cannot_start")["why"])


def test_with_few_files_silent_strangers_keep_nobody_out_and_end_no_request(tmp_path: Path, engine: str) -> None:
    raise_file_limit()
    with program("router", tmp_path, *router_flags(tmp_path), files_max=FILES_MIN) as router:
        started = router.event("router_started")
        api, metrics, grpc = str(started["http"]), str(started["metrics"]), first_grpc(started)
        chat, page = f"http://{api}/v1/chat/completions", f"http://{metrics}/metrics"
        with contextlib.ExitStack() as strangers, ThreadPoolExecutor(CLIENTS) as clients:
            silent(strangers, api, FILES_MIN)
            silent(strangers, metrics, 2 * METRICS_MAX)
            with program("agent", tmp_path, *agent_flags(tmp_path, grpc, engine), "--capacity=200"):
                router.event("agent_registered")
                asked = [clients.submit(fetch, chat, HELLO) for _ in range(CLIENTS)]
                # While they wait for their answers others come, and take nothing from them.
                silent(strangers, api, FILES_MIN)
                assert fetch(page)[0] == 200
                assert [answer.result()[0] for answer in asked] == [200] * CLIENTS
                assert fetch(chat, HELLO)[0] == 200
        assert router.stop() == 0
        assert "out_of_file_descriptors" not in router.said
