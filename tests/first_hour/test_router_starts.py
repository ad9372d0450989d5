"""What does a router say when it is started for the first time?

As a process, since what is asked is what a person reads. Which settings fit together is asked in `tests/config`.
"""

import json
import socket
from pathlib import Path

import pytest
from tests.first_hour.programs import SECRET, fetch, program, router_flags, until
from tests.house.running import free_port


@pytest.mark.parametrize("name", ["router", "agent"])
def test_without_a_secret_it_says_how_to_make_one(tmp_path: Path, name: str) -> None:
    with program(name, tmp_path) as started:
        assert started.ended() == 1
    assert "openssl rand -hex 32 > secret.txt" in started.said
    assert "--jwt-secret-file secret.txt" in started.said
    assert "Traceback" not in started.said


def test_the_first_line_has_every_address_as_it_was_really_bound(tmp_path: Path) -> None:
    flags = [*router_flags(tmp_path), "--p2p-port=0", "--http-port=127.0.0.1:0", "--metrics-port=127.0.0.1:0"]
    with program("router", tmp_path, *flags) as router:
        started = router.event("router_started")
        assert fetch(f"http://{started['http']}/health")[0] == 200
        assert fetch(f"http://{started['metrics']}/metrics")[0] == 200
        for listed in ("grpc", "libp2p"):
            addresses = started[listed]
            assert isinstance(addresses, list)
            (address,) = addresses
            port = address.split("/")[4] if listed == "libp2p" else address.rpartition(":")[2]
            socket.create_connection(("127.0.0.1", int(port)), timeout=30).close()
        assert str(started["libp2p"]).count(f"/p2p/{started['peer_id']}") == 1
        assert len(router.events("router_started")) == 1
        assert router.stop() == 0
    assert SECRET not in router.said


def test_a_text_line_tells_the_addresses_as_they_are_typed(tmp_path: Path) -> None:
    with program("router", tmp_path, *router_flags(tmp_path, json_log=False)) as router:
        line = router.until_said("router_started")
    assert " grpc=127.0.0.1:" in line
    assert " libp2p=/ip4/127.0.0.1/tcp/" in line


def warnings_of_reach(said: str) -> list[str]:
    return [line for line in said.splitlines() if '"setting"' in line and "--p2p-listen-addr" in line]


def test_links_on_loopback_behind_an_open_grpc_port_are_warned_of_once(tmp_path: Path) -> None:
    with program("router", tmp_path, *router_flags(tmp_path, grpc_host="")) as router:
        router.event("router_started")
        (warning,) = warnings_of_reach(router.said)
    record = json.loads(warning)
    assert (record["level"], record["msg"]) == ("warn", "setting")
    assert "--p2p-listen-addr 0.0.0.0" in record["advice"]
    assert "--p2p-announce-addr" in record["advice"]


@pytest.mark.parametrize(
    ("grpc_host", "more"),
    [
        ("127.0.0.1", ()),
        ("", ("--p2p-announce-addr=/dns4/router.example.com/tcp/9000",)),
        ("", ("--p2p-listen-addr=::",)),
    ],
)
def test_links_that_agents_can_reach_are_not_warned_of(tmp_path: Path, grpc_host: str, more: tuple[str, ...]) -> None:
    with program("router", tmp_path, *router_flags(tmp_path, grpc_host=grpc_host), *more) as router:
        router.event("router_started")
        assert warnings_of_reach(router.said) == []


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port", "--metrics-port", "--p2p-port"])
def test_an_address_that_is_taken_ends_it_with_the_option_to_change(tmp_path: Path, flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        value = f"{port}" if flag == "--p2p-port" else f"127.0.0.1:{port}"
        with program("router", tmp_path, *router_flags(tmp_path, json_log=False), f"{flag}={value}") as router:
            assert router.ended() == 1
    assert str(port) in router.said
    assert flag in router.said
    assert "Traceback" not in router.said


def level_of(line: str) -> str:
    return line.split("\t")[1]


@pytest.mark.parametrize(
    ("flags", "env", "levels"),
    [
        ((), {}, {"INFO"}),
        (("--log-level=debug",), {}, {"INFO", "DEBUG"}),
        (("--log-level=warn",), {}, set[str]()),
        ((), {"GOLOG_LOG_LEVEL": "warn"}, set[str]()),
        ((), {"GOLOG_LOG_LEVEL": "router=debug"}, {"INFO", "DEBUG"}),
        ((), {"HIVENET_ROUTER_LOG_LEVEL": "debug", "GOLOG_LOG_LEVEL": "warn"}, {"INFO", "DEBUG"}),
        (("--log-level=warn,router=info",), {"GOLOG_LOG_LEVEL": "debug"}, {"INFO"}),
    ],
)
def test_the_level_is_the_one_asked_for(
    tmp_path: Path, flags: tuple[str, ...], env: dict[str, str], levels: set[str]
) -> None:
    """A stranger's connection to the libp2p port is a line at debug; start and stop are lines at info."""
    ports = router_flags(tmp_path, json_log=False)
    http = ports[0].partition("=")[2]
    with program("router", tmp_path, *ports, *flags, env=env) as router:
        until(lambda: answers(http), "an answer of /health")
        said_by_now = len(router.said)
        assert router.stop() == 0
    lines = router.said.splitlines()
    assert {level_of(line) for line in lines} - {"DEBUG"} == levels - {"DEBUG"}
    assert bool(said_by_now) is ("INFO" in levels)


def answers(http: str) -> bool:
    try:
        return fetch(f"http://{http}/health")[0] == 200
    except OSError:
        return False


def test_the_format_is_the_one_asked_for(tmp_path: Path) -> None:
    for flags, env, begins in (
        ((), {}, "2"),
        (("--log-format=color",), {}, "2"),
        (("--log-format=json",), {}, '{"level": "info", "ts": '),
        ((), {"GOLOG_LOG_FMT": "json"}, '{"level": "info", "ts": '),
    ):
        argv = router_flags(tmp_path, json_log=False)
        with program("router", tmp_path, *argv, *flags, env=env) as router:
            line = router.until_said("router_started")
        assert line.startswith(begins)
        assert ("\x1b[" in line) is (flags == ("--log-format=color",))


def test_a_level_that_is_none_ends_it_with_what_there_is(tmp_path: Path) -> None:
    with program("router", tmp_path, *router_flags(tmp_path), "--log-level=chatty") as router:
        assert router.ended() == 1
    assert "--log-level" in router.said
    assert "debug, info, warn" in router.said
