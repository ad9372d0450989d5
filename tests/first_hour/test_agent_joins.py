"""What does a person read when an agent joins its router, or does not?

Router, agent and simulator as processes. What each side decides is asked in the tests of the rooms and of the agent.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.first_hour.programs import (
    HELLO,
    MODEL,
    SECRET,
    Running,
    agent_flags,
    engine_url,
    fetch,
    first_grpc,
    program,
    router_flags,
    secret_file,
    sim_flags,
)
from tests.house.running import free_port

from hivenet_router.adapters.grpc_client import RouterUnreachable, authenticate
from hivenet_router.adapters.grpc_server import serve_bootstrap
from hivenet_router.adapters.identity_file import load_or_create
from hivenet_router.wire.auth_messages import AgentMetadata, AuthOutcome, AuthRequest, LibP2PInfo, RouterConfig
from hivenet_router.wire.jwt import mint_agent_token
from hivenet_router.wire.tls_identity import grpc_identity, grpc_pin


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Running]:
    """A simulator."""
    with program("sim", tmp_path, *sim_flags()) as sim:
        yield sim


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Running]:
    """A router that has started."""
    with program("router", tmp_path, *router_flags(tmp_path)) as router:
        router.event("router_started")
        yield router


def test_both_sides_say_that_an_agent_registered(tmp_path: Path, router: Running, engine: Running) -> None:
    started = router.event("router_started")
    flags = agent_flags(tmp_path, first_grpc(started), engine_url(engine))
    with program("agent", tmp_path, *flags) as agent:
        registered = router.event("agent_registered")
        assert agent.event("agent_started")["routers"] == first_grpc(started)
        told = agent.event("registered")
        assert agent.stop() == 0
    assert (registered["model"], registered["engine"], registered["capacity"]) == (MODEL, "vllm", 10)
    assert (told["model"], told["router"], told["router_peer_id"]) == (MODEL, first_grpc(started), started["peer_id"])
    assert registered["peer_id"] == told["peer_id"]
    assert len(router.events("agent_registered")) == 1


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_a_backend_url_works_however_it_ends(tmp_path: Path, router: Running, engine: Running, ending: str) -> None:
    started = router.event("router_started")
    flags = agent_flags(tmp_path, first_grpc(started), engine_url(engine) + ending)
    with program("agent", tmp_path, *flags) as agent:
        agent.event("registered")
        status, body = fetch(f"http://{started['http']}/v1/chat/completions", HELLO)
    assert (status, '"usage"' in body) == (200, True)
    said = [str(line["advice"]) for line in agent.events("setting")]
    assert any("/v1 was dropped" in advice for advice in said) is ending.startswith("/v1")


def test_another_secret_is_told_on_both_sides(tmp_path: Path, router: Running, engine: Running) -> None:
    grpc = first_grpc(router.event("router_started"))
    other = tmp_path / "other"
    other.mkdir()
    flags = [*agent_flags(tmp_path, grpc, engine_url(engine)), f"--jwt-secret-file={secret_file(other, SECRET[::-1])}"]
    with program("agent", tmp_path, *flags) as agent:
        told = agent.event("no_session")
        refused = router.event("grpc_refused")
    assert "--jwt-secret-file" in str(told["check"])
    assert "--jwt-secret-file" in str(refused["why"])
    assert refused["client"] == "127.0.0.1"
    assert SECRET not in agent.said + router.said


async def attempt(grpc: str) -> AuthOutcome:
    token = mint_agent_token(SECRET.encode(), "12D3KooWSKwfwuuoVVrexK3H1SApL25baqZiQXz63KnYpZf32Esu", now=time.time())
    metadata = AgentMetadata(model=MODEL, capacity=1, version="1", region="r", engine="vllm", organization="o")
    return await authenticate(grpc, [grpc_pin(SECRET.encode())], AuthRequest(token, metadata))


async def test_no_agent_is_answered_before_there_is_an_address_to_tell(tmp_path: Path) -> None:
    """Whoever calls from the first moment on hears nothing, or all that is needed to go on."""
    grpc = f"127.0.0.1:{free_port()}"
    with program("router", tmp_path, *router_flags(tmp_path), f"--grpc-port={grpc}", "--p2p-port=0") as router:
        outcome = None
        async with asyncio.timeout(30):
            while outcome is None:
                try:
                    outcome = await attempt(grpc)
                except RouterUnreachable:
                    await asyncio.sleep(0.001)
        assert outcome.success
        assert outcome.libp2p_info is not None
        assert list(outcome.libp2p_info.addresses) == router.event("router_started")["libp2p"]
        assert outcome.libp2p_info.addresses[0].split("/")[4] != "0"


async def test_an_agent_that_is_told_a_loopback_address_from_afar_names_the_router_s_options(
    tmp_path: Path, engine: Running
) -> None:
    """The address 0.0.0.0 leads to this machine but is no loopback address, so it stands for a router elsewhere."""
    with load_or_create(tmp_path / "router.key") as identity:
        told = LibP2PInfo(identity.peer_id, (f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{identity.peer_id}",))
    answer = AuthOutcome(True, session_token="0" * 64, libp2p_info=told, config=RouterConfig(5, session_ttl_s=3600))
    server = await serve_bootstrap(
        ("0.0.0.0", free_port()), grpc_identity(SECRET.encode()), lambda *_: answer, lambda _: None
    )
    try:
        grpc = f"0.0.0.0:{server.addresses[0][1]}"
        with program("agent", tmp_path, *agent_flags(tmp_path, grpc, engine_url(engine))) as agent:
            line = await asyncio.to_thread(agent.event, "no_session")
    finally:
        await server.close()
    assert "loopback" in str(line["check"])
    assert "--p2p-listen-addr 0.0.0.0" in str(line["check"])
    assert "--p2p-announce-addr" in str(line["check"])


@pytest.mark.parametrize(("flag", "level"), [("--log-level=debug", "debug"), ("--log-level=info", "info")])
def test_an_agent_logs_at_the_level_asked_for(
    tmp_path: Path, router: Running, engine: Running, flag: str, level: str
) -> None:
    grpc = first_grpc(router.event("router_started"))
    with program("agent", tmp_path, *agent_flags(tmp_path, grpc, engine_url(engine)), flag) as agent:
        agent.event("registered")
    assert ('"level": "debug"' in agent.said) is (level == "debug")
