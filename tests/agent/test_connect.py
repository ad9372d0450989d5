"""One session from the wait for the backend to the registration, and back after every failure, on a virtual clock."""

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs
from tests.agent.running import AGENT, agent_of
from tests.fakes.agent_world import FakeEngine, FakeRouter, peer_id

from hivenet_router.agent.connect import Stage
from hivenet_router.agent.world import SessionFailed
from hivenet_router.names.paths import HEARTBEAT, REGISTER
from hivenet_router.ports import Reply

pytestmark = pytest.mark.looptime

A = "router-a:50051"
B = "router-b:50051"


def router(number: int = 1) -> FakeRouter:
    return FakeRouter(peer_id(number))


def gaps(times: list[float]) -> list[float]:
    return [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)]


async def test_no_router_is_asked_before_the_backend_is_ready() -> None:
    engine = FakeEngine()
    engine.ready_at = 12.0
    one = router()
    async with agent_of({A: one}, engine=engine) as agent:
        await asyncio.sleep(14.9)
        assert not one.asked_at
        assert agent.session.stage is Stage.WAIT_BACKEND
        await asyncio.sleep(1)
    assert one.asked_at == [15.0]
    assert engine.times_of("/health") == [0.0, 5.0, 10.0, 15.0]


async def test_a_registered_agent_says_who_it_is_and_which_model_it_found() -> None:
    one = router()
    async with agent_of({A: one}, engine=FakeEngine("first", "second")) as agent:
        await asyncio.sleep(1)
        assert agent.session.stage is Stage.SERVING
        assert agent.session.is_registered
    assert one.metadata[0].model == "first"
    ((_, registration),) = one.registrations
    assert (registration.session_token, registration.peer_id) == ("token-1", AGENT)
    assert (registration.deployment_id, registration.replica_id) == ("d", "r")


async def test_refusals_are_repeated_at_growing_distances_and_told_once() -> None:
    one = router()
    one.refuses = SessionFailed("router router-a:50051 refused the agent: bad clock", "look at both clocks")
    with capture_logs() as lines:
        async with agent_of({A: one}):
            await asyncio.sleep(60)
    assert gaps(one.asked_at)[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert len(warnings) == 1
    assert warnings[0]["event"] == "no_session"
    assert (warnings[0]["router"], warnings[0]["check"]) == (A, "look at both clocks")
    assert "bad clock" in warnings[0]["why"]
    assert warnings[0]["reconnect_in_s"] == 0.5


async def test_another_reason_for_the_same_silence_is_told_again() -> None:
    one = router()
    one.refuses = SessionFailed("unreachable")
    with capture_logs() as lines:
        async with agent_of({A: one}):
            await asyncio.sleep(5)
            one.refuses = SessionFailed("another secret")
            await asyncio.sleep(10)
    assert [line["why"] for line in lines if line["log_level"] == "warning"] == ["unreachable", "another secret"]


async def test_neither_token_nor_secret_is_ever_logged() -> None:
    one = router()
    with capture_logs() as lines:
        async with agent_of({A: one}):
            await asyncio.sleep(1)
            one.answers[HEARTBEAT] = Reply(401, b"invalid or expired session token\n")
            await asyncio.sleep(20)
    assert "token-" not in repr(lines)


async def test_a_router_that_cannot_be_dialled_gets_no_registration() -> None:
    one = router()
    one.refuses_dial = "Connection refused"
    with capture_logs() as lines:
        async with agent_of({A: one}):
            await asyncio.sleep(1)
    assert not one.registrations
    assert one.closes == len(one.dials) == 2
    told = next(line for line in lines if line["event"] == "no_session")
    assert "/ip4/192.0.2.1/tcp/9000" in told["why"]
    assert "Connection refused" in told["why"]
    assert "--p2p-announce-addr" in told["check"]


@pytest.mark.parametrize("step", ["authenticate", "dial", REGISTER])
async def test_a_step_that_is_not_answered_is_given_up_after_half_a_minute(step: str) -> None:
    one = router()
    one.hangs_at = step
    async with agent_of({A: one}):
        await asyncio.sleep(31)
    assert one.asked_at == [0.0, 30.5]


async def test_a_loopback_address_from_a_router_elsewhere_names_the_options_of_the_router() -> None:
    one = FakeRouter(peer_id(1), addresses=("/ip4/127.0.0.1/tcp/9000",), refuses_dial="Connection refused")
    with capture_logs() as lines:
        async with agent_of({A: one}, names={"router-a": ("192.0.2.7",)}):
            await asyncio.sleep(1)
    check = next(line["check"] for line in lines if line["event"] == "no_session")
    assert "loopback" in check
    assert "--p2p-listen-addr" in check
    assert "--p2p-announce-addr" in check


@pytest.mark.parametrize("target", ["127.0.0.1:50051", "localhost:50051"])
async def test_a_loopback_address_from_a_router_on_this_machine_is_nothing_to_remark_on(target: str) -> None:
    one = FakeRouter(peer_id(1), addresses=("/ip4/127.0.0.1/tcp/9000",), refuses_dial="Connection refused")
    with capture_logs() as lines:
        async with agent_of({target: one}, names={"localhost": ("127.0.0.1", "::1")}):
            await asyncio.sleep(1)
    assert not any("loopback" in line.get("check", "") for line in lines)


async def test_names_that_a_router_announces_are_dialled_by_their_ip_addresses() -> None:
    one = FakeRouter(peer_id(1), addresses=("/dns4/router.example.org/tcp/9000/p2p/X",))
    async with agent_of({A: one}, names={"router.example.org": ("192.0.2.5", "2001:db8::5")}):
        await asyncio.sleep(1)
    assert one.dials == [(0.0, ("/ip4/192.0.2.5/tcp/9000/p2p/X",))]


async def test_a_name_that_does_not_resolve_is_the_reason_that_is_told() -> None:
    one = FakeRouter(peer_id(1), addresses=("/dns/router.example.org/tcp/9000",))
    with capture_logs() as lines:
        async with agent_of({A: one}):
            await asyncio.sleep(0.2)
    assert not one.dials
    assert "router.example.org (no such name)" in lines[-1]["why"]


async def test_an_answer_with_a_peer_id_that_is_none_costs_the_session_and_nothing_more() -> None:
    one = router()
    one.peer_id = "nonsense"
    with capture_logs() as lines:
        async with agent_of({A: one}) as agent:
            await asyncio.sleep(1)
            assert agent.done is not None
            assert not agent.done.done()
    assert any("no usable peer ID" in line.get("why", "") for line in lines)


async def test_a_registration_that_is_refused_starts_anew_with_another_token() -> None:
    one = router()
    one.answers[REGISTER] = Reply(401, b"invalid or expired session token\n")
    async with agent_of({A: one}):
        await asyncio.sleep(0.6)
        one.answers.clear()
        await asyncio.sleep(2)
    assert [(at, each.session_token) for at, each in one.registrations] == [
        (0.0, "token-1"),
        (0.5, "token-2"),
        (1.5, "token-3"),
    ]
    assert one.closes == 3


async def test_after_a_registration_the_distances_begin_small_again() -> None:
    one = router()
    one.refuses = SessionFailed("down")
    async with agent_of({A: one}):
        await asyncio.sleep(10)
        one.refuses = None
        await asyncio.sleep(10)
        assert one.registrations
        one.refuses = SessionFailed("down")
        one.answers[HEARTBEAT] = Reply(404, b"agent not found\n")
        before = len(one.asked_at)
        await asyncio.sleep(12)
    assert gaps(one.asked_at[before:])[:3] == [1.0, 2.0, 4.0]


async def test_a_router_that_is_down_does_not_touch_the_others() -> None:
    one, two = router(1), router(2)
    one.refuses = SessionFailed("down")
    async with agent_of({A: one, B: two}) as agent:
        await asyncio.sleep(61)
        assert [session.is_registered for session in agent.sessions] == [False, True]
        one.refuses = None
        await asyncio.sleep(20)
        assert [session.is_registered for session in agent.sessions] == [True, True]
    assert len(two.registrations) == 1
    assert max(gaps(two.beat_times)) <= 5.0


async def test_one_router_under_two_addresses_gets_one_session_and_the_other_address_stands_by() -> None:
    one = router()
    with capture_logs() as lines:
        async with agent_of({A: one}, targets=(A, B)) as agent:
            agent.network.routers[B] = one
            await asyncio.sleep(100)
            assert sorted(session.stage for session in agent.sessions) == [Stage.SERVING, Stage.STAND_BY]
            del agent.network.routers[A if agent.sessions[0].is_registered else B]
            one.answers[HEARTBEAT] = Reply(404, b"agent not found\n")
            await asyncio.sleep(5.1)
            one.answers.clear()
            await asyncio.sleep(60)
            assert sum(session.is_registered for session in agent.sessions) == 1
    told = [line for line in lines if line["event"] == "session_on_stand_by"]
    assert "name each router once" in told[0]["check"]


async def test_a_session_that_begins_anew_asks_the_engine_for_its_model_again() -> None:
    one = router()
    engine = FakeEngine("old")
    async with agent_of({A: one}, engine=engine):
        await asyncio.sleep(20)
        engine.models = ["new"]
        one.answers[HEARTBEAT] = Reply(404, b"")
        await asyncio.sleep(5.1)
        one.answers.clear()
        await asyncio.sleep(5)
    assert (one.metadata[0].model, one.metadata[-1].model) == ("old", "new")


async def test_a_model_the_operator_chose_is_announced_whatever_the_engine_lists_now_or_later() -> None:
    one = router()
    engine = FakeEngine("other")
    async with agent_of({A: one}, engine=engine, model="mine"):
        await asyncio.sleep(1)
        engine.models = ["third"]
        await asyncio.sleep(60)
    assert [each.model for each in one.metadata] == ["mine"]
    assert engine.times_of("/v1/models") == [0.0]


async def test_another_model_is_registered_over_the_same_link_within_three_probes_of_a_restart() -> None:
    one, two = router(1), router(2)
    engine = FakeEngine("old")
    with capture_logs() as lines:
        async with agent_of({A: one, B: two}, engine=engine):
            await asyncio.sleep(21)
            engine.status = 500
            await asyncio.sleep(2)
            engine.models, engine.status = ["new"], 200
            await asyncio.sleep(60)
    for each in (one, two):
        assert [metadata.model for metadata in each.metadata] == ["old", "new"]
        assert [at for at, _ in each.registrations] == [0.0, 24.0]
        assert (len(each.dials), each.closes) == (1, 1)
        assert each.heartbeats[-1][1].session_token == "token-2"
    told = [line["model"] for line in lines if line["event"] == "registered" and line["router"] == A]
    assert told == ["old", "new"]
    assert sum(line["event"] == "model_changed" for line in lines) == 1


async def test_a_router_that_refuses_the_other_model_is_asked_again_after_a_while() -> None:
    one = router()
    engine = FakeEngine("old")
    async with agent_of({A: one}, engine=engine):
        await asyncio.sleep(1)
        one.answers[REGISTER] = Reply(503, b"busy\n")
        engine.models = ["new"]
        await asyncio.sleep(40)
        one.answers.clear()
        await asyncio.sleep(30)
    assert gaps([at for at, _ in one.registrations]) == [30.0, 30.0]
    assert one.closes == 1
