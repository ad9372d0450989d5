"""Programs of a run: what fails is told with its last words, and nothing stays running."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import PEERS, start_peer
from bench.programs import Program, Programs, Trouble
from bench.rounds import Failed
from bench.targets import Engine, Name, Tools

_SLEEP = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


def _environment(folder: Path, script: str) -> Path:
    program = folder / "environment" / "bin" / "vllm-router"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder / "environment"


def test_a_peer_that_does_not_start_is_told_with_its_last_words_and_the_rest_runs_on(
    programs: Programs, tmp_path: Path
) -> None:
    engine = Engine("127.0.0.1:1", programs.start("engine", _SLEEP))
    environment = _environment(tmp_path, "echo no such option; exit 3")
    peer = next(peer for peer in PEERS if peer.name == "vllm-router")
    with pytest.raises(Trouble, match=r"(?s)vllm-router ended with exit code 3.*no such option"):
        start_peer(programs, peer, environment, engine)
    programs.wait("the engine said something", lambda: "here" in engine.program.said(), engine.program)


def test_a_peer_is_started_with_the_policy_that_its_row_names(programs: Programs, tmp_path: Path) -> None:
    engine = Engine("127.0.0.1:1", programs.start("engine", _SLEEP))
    environment = _environment(tmp_path, 'echo "$@"; exit 3')
    for peer in PEERS:
        if peer.program == "vllm-router":
            with pytest.raises(Trouble) as caught:
                start_peer(programs, peer, environment, engine)
            _, _, policy = peer.name.partition(" ")
            assert (f"--policy {policy}" in str(caught.value)) is bool(policy)


def test_what_was_dropped_or_killed_has_ended_and_is_no_longer_watched(programs: Programs) -> None:
    first, second, third = (programs.start(name, _SLEEP) for name in ("first", "second", "third"))
    programs.drop(first)
    programs.kill(second)
    assert [program.process.poll() is None for program in (first, second, third)] == [False, False, True]
    programs.wait("the third said something", lambda: "here" in third.said(), third)


def test_all_programs_have_ended_when_the_block_is_left_by_an_error(tmp_path: Path) -> None:
    started: list[Program] = []

    def fail() -> None:
        with Programs(tmp_path) as programs:
            started.append(programs.start("program", _SLEEP))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert started[0].process.poll() is not None


def test_ports_come_from_the_given_ones_and_none_comes_twice(tmp_path: Path) -> None:
    with Programs(tmp_path, range(24_990, 24_999)) as programs:
        ports = [programs.free_port() for _ in range(3)]
    assert len(set(ports)) == 3
    assert all(24_990 <= port < 24_999 for port in ports)


def test_a_failing_peer_is_left_out_and_any_other_failure_ends_the_run() -> None:
    nowhere = Path("/nowhere")
    peers: dict[Name, Path] = {"litellm": nowhere}
    tools = Tools(nowhere, nowhere, nowhere, nowhere, nowhere, None, peers)
    failed = Failed()
    with failed.unless_peer(tools, "litellm"):
        _fail("it fell over")
    with pytest.raises(Trouble, match="so did this"), failed.unless_peer(tools, "ours"):
        _fail("so did this")
    assert failed.reasons == {"litellm": "it fell over"}


def _fail(words: str) -> None:
    raise Trouble(words)
