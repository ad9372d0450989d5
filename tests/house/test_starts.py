"""The programs as processes: what stops a start is said in a sentence, and what they log holds no secret."""

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.test_listening import needs_ipv6
from tests.house.client import CHAT, MODEL, ask, connected, exchange, hello
from tests.house.running import SECRET, Program, free_port, program, until

from hivenet_router._plane import is_debug_build


def router_flags(**given: int) -> list[str]:
    """Flags of a router with free ports, but for those given."""
    ports = {name: given.get(name) or free_port() for name in ("http", "grpc", "metrics", "p2p")}
    flags = [f"--{name}-port=127.0.0.1:{ports[name]}" for name in ("http", "grpc", "metrics")]
    return [*flags, f"--p2p-port={ports['p2p']}"]


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield port


async def says_why(started: Program, *words: str) -> None:
    """It ends with 1, and its last words are one sentence that a person can act on."""
    assert await started.ended() == 1
    assert "Traceback" not in started.said
    (told,) = started.events("router_cannot_start")
    for word in words:
        assert word in str(told["why"])
    assert SECRET not in started.said


@pytest.mark.parametrize("port", ["http", "grpc", "metrics", "p2p"])
async def test_a_port_in_use_ends_the_start_with_what_to_do(tmp_path: Path, port: str) -> None:
    with taken_port() as taken, program("router", tmp_path, *router_flags(**{port: taken})) as router:
        await says_why(router, str(taken), "choose another address")


@pytest.mark.parametrize("port", ["http", "grpc", "metrics"])
async def test_a_name_that_means_nothing_ends_the_start_with_what_to_do(tmp_path: Path, port: str) -> None:
    flags = [*router_flags(), f"--{port}-port=nobody.invalid:{free_port()}"]
    with program("router", tmp_path, *flags) as router:
        await says_why(router, f"--{port}-port", "nobody.invalid", "a name that this machine can look up")


async def test_an_address_that_is_not_of_this_machine_ends_the_start(tmp_path: Path) -> None:
    flags = [*router_flags()[1:], f"--http-port=192.0.2.1:{free_port()}"]
    with program("router", tmp_path, *flags) as router:
        await says_why(router, "192.0.2.1")


@pytest.mark.parametrize("content", [b"", b"x", b"\x08\x01\x12\x40" + b"\0" * 64, b"-----BEGIN PRIVATE KEY-----"])
async def test_a_corrupt_identity_ends_the_start_and_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "router_identity.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with program("router", tmp_path, *router_flags()) as router:
        await says_why(router, "--identity-path", "router_identity.key")
    assert path.read_bytes() == content


async def test_an_identity_that_is_a_folder_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "router_identity.key").mkdir()
    with program("router", tmp_path, *router_flags()) as router:
        await says_why(router, "--identity-path")


async def test_a_second_router_on_one_identity_ends_and_the_first_goes_on(tmp_path: Path) -> None:
    http = free_port()
    with program("router", tmp_path, *router_flags(http=http)) as first:
        await first.has_said("router_started")
        with program("router", tmp_path, *router_flags()) as second:
            await says_why(second, "another process")
        assert (await ask(("127.0.0.1", http), "/health")).status == 200


async def test_a_secret_that_is_too_short_ends_both_programs(tmp_path: Path) -> None:
    for name in ("router", "agent"):
        with program(name, tmp_path, secret="short-but-still-secret") as started:
            assert await started.ended() == 1
            assert "32" in started.said
            assert "short-but-still-secret" not in started.said


async def test_what_the_programs_log_holds_no_secret_token_or_prompt(tmp_path: Path) -> None:
    http, grpc = free_port(), free_port()
    debug = "--log-level=debug"
    with (
        program("sim", tmp_path, f"--listen=127.0.0.1:{(engine := free_port())}", f"--model={MODEL}") as sim,
        program("router", tmp_path, *router_flags(http=http, grpc=grpc), debug) as router,
    ):
        await router.has_said("router_started")
        await until(lambda: "listening on" in sim.said)
        backend = (f"--backend-url=http://127.0.0.1:{engine}", f"--router-grpc=127.0.0.1:{grpc}")
        with program("agent", tmp_path, *backend, debug) as agent:
            await agent.has_said("registered")
            mine = {"authorization": "Bearer sk-mine", "x_api_key": "sk-mine", "cookie": "c=sk-mine"}
            body = hello(messages=[{"role": "user", "content": "a secret prompt"}])
            reply = await ask(("127.0.0.1", http), CHAT, body, **mine)
            assert reply.status == 200
            for fault in ("status=500", "reset_before_head", "status=400"):
                await ask(("127.0.0.1", http), CHAT, body, x_sim=fault, **mine)
            await ask(("127.0.0.1", http), CHAT, b'{"model":"a secret prompt', **mine)
            await exchange(("127.0.0.1", http), b"POST /?rt=sk-mine HTTP/1.1\r\nAuthorization: sk-mine\r\n\r\n")
            await exchange(("127.0.0.1", grpc), b"sk-mine")
            agent.process.terminate()
            assert await agent.ended() == 0
        router.process.terminate()
        assert await router.ended() == 0
        assert re.findall("agent_(health|leaving|left|link_lost|removed)", router.said) == ["leaving", "left"]
        for each in (router, agent):
            assert "Traceback" not in each.said
            for secret in (SECRET, "sk-mine", "a secret prompt", "eyJ"):
                assert secret not in each.said, secret


@pytest.mark.parametrize("hurried", ["router", "agent"])
async def test_a_second_signal_ends_a_program_which_says_how_many_answers_it_cut(tmp_path: Path, hurried: str) -> None:
    http, grpc, engine = free_port(), free_port(), free_port()
    slow = (f"--listen=127.0.0.1:{engine}", f"--model={MODEL}", "--decode-tokens-per-s=5", "--output-tokens=1000")
    backend = (f"--backend-url=http://127.0.0.1:{engine}", f"--router-grpc=127.0.0.1:{grpc}")
    with (
        program("sim", tmp_path, *slow) as sim,
        program("router", tmp_path, *router_flags(http=http, grpc=grpc)) as router,
    ):
        await router.has_said("router_started")
        await until(lambda: "listening on" in sim.said)
        with program("agent", tmp_path, *backend) as agent:
            await agent.has_said("registered")
            async with connected(("127.0.0.1", http)) as one, connected(("127.0.0.1", http)) as other:
                for client in (one, other):
                    client.ask(CHAT, hello(stream=True))
                    await client.until(b"data: ")
                ending, first_words = {"router": (router, "router_draining"), "agent": (agent, "leaving")}[hurried]
                ending.process.terminate()
                await ending.has_said(first_words)
                ending.process.terminate()
                assert await ending.ended() == 0
    (told,) = ending.events("requests_cut")
    assert told["requests"] == 2


_PANICKING = """
import asyncio
from hivenet_router.adapters import plane

begin = plane.PlaneAdapter.__init__
def begin_and_panic(self, *args, **kwargs):
    begin(self, *args, **kwargs)
    self.loop.call_later(1.0, self._plane.panic_for_tests)
plane.PlaneAdapter.__init__ = begin_and_panic
"""


@pytest.mark.skipif(not is_debug_build, reason="a release cannot be made to panic")
@pytest.mark.parametrize("name", ["router", "agent"])
async def test_a_panic_of_the_data_plane_ends_the_program_with_a_sentence(tmp_path: Path, name: str) -> None:
    flags = router_flags() if name == "router" else [f"--router-grpc=127.0.0.1:{free_port()}"]
    with program(name, tmp_path, *flags, before=_PANICKING) as started:
        assert await started.ended() == 1
        (told,) = [line for line in started.events(f"{name}_failed") if line["level"] == "error"]
    assert "the task of the libp2p links panicked" in str(told["why"])
    assert "Traceback" not in started.said


_TWO_ADDRESSES = """
from hivenet_router.adapters import listening

async def both(host):
    return ["127.0.0.1", "::1"]
listening._looked_up = both
"""


@needs_ipv6
async def test_a_name_with_two_addresses_is_bound_the_same_way_on_every_port(tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("http", "grpc", "metrics")}
    flags = [f"--{name}-port=localhost:{port}" for name, port in ports.items()]
    flags += [f"--p2p-port={(p2p := free_port())}", "--p2p-listen-addr=::"]
    with program("router", tmp_path, *flags, before=_TWO_ADDRESSES) as router:
        told = await router.has_said("router_started")
        for name, port in ports.items():
            assert all(f"{host}:{port}" in str(told[name]) for host in ("127.0.0.1", "[::1]"))
        for host in ("127.0.0.1", "::1"):
            for port in (*ports.values(), p2p):
                with socket.create_connection((host, port), timeout=5):
                    pass
        agent_port = free_port()
        agent_flags = [f"--router-grpc=127.0.0.1:{ports['grpc']}", f"--p2p-listen-port={agent_port}"]
        with program("agent", tmp_path, *agent_flags) as agent:
            await agent.has_said("listening_for_peers")
            for host in ("127.0.0.1", "::1"):
                with socket.create_connection((host, agent_port), timeout=5):
                    pass


async def test_options_that_are_not_there_yet_end_the_start_all_at_once(tmp_path: Path) -> None:
    flags = ["--auth-config-file=missing.yaml", "--sync-store=valkey", "--audit-log-path=audit.jsonl"]
    for check in ([], ["--check-config"]):
        with program("router", tmp_path, *router_flags(), *flags, *check) as router:
            assert await router.ended() == 1
        assert all(flag.partition("=")[0] in router.said for flag in flags)
        assert "client keys are not checked" in router.said
