"""What a registered session says and when, and what ends it, on a virtual clock."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.agent.running import agent_of
from tests.fakes.agent_world import FakeRouter, peer_id

from hivenet_router.agent.keep import LINK_BACKOFF_S
from hivenet_router.agent.world import SessionFailed
from hivenet_router.names.paths import HEARTBEAT, REGISTER, ROUTING_SIGNALS
from hivenet_router.ports import Reply
from hivenet_router.wire.agent_protocol import EngineSnapshot, HardwareSnapshot, decode_signals

pytestmark = pytest.mark.looptime

A = "router-a:50051"
B = "router-b:50051"


def router(number: int = 1) -> FakeRouter:
    return FakeRouter(peer_id(number))


async def test_heartbeats_come_at_once_and_then_at_the_interval_the_router_asked_for() -> None:
    one = router()
    one.heartbeat_interval_s = 3
    async with agent_of({A: one}):
        await asyncio.sleep(10)
    assert one.beat_times == [0.0, 3.0, 6.0, 9.0]
    _, first = one.heartbeats[0]
    assert (first.session_token, first.backend_healthy) == ("token-1", True)
    assert first.connected_routers == (one.peer_id,)
    assert (first.inflight_total, first.inflight_here) == (0, 0)
    assert (first.slots_total, first.slots_here) == (None, None)


@pytest.mark.parametrize("answer", [Reply(401, b"expired\n"), Reply(403, b""), Reply(404, b"agent not found\n")])
async def test_a_router_that_does_not_know_the_session_ends_it_and_another_begins(answer: Reply) -> None:
    one = router()
    with capture_logs() as lines:
        async with agent_of({A: one}):
            await asyncio.sleep(9)
            one.answers[HEARTBEAT] = answer
            await asyncio.sleep(1.2)
            one.answers.clear()
            await asyncio.sleep(2)
    assert one.asked_at == [0.0, 10.5]
    lost = next(line for line in lines if line["event"] == "session_lost")
    assert str(answer.status) in lost["why"]
    assert lost["reconnect_in_s"] == 0.5


@pytest.mark.parametrize(
    "answer", [Reply(503, b"too many request bodies\n"), Reply(500, b""), Reply(429, b""), Reply(204, b"")]
)
async def test_a_heartbeat_that_is_refused_is_sent_again_at_its_time_and_the_session_goes_on(answer: Reply) -> None:
    one = router()
    with capture_logs() as lines:
        async with agent_of({A: one}) as agent:
            await asyncio.sleep(9)
            one.answers[HEARTBEAT] = answer
            await asyncio.sleep(40)
            assert agent.session.is_registered
            one.answers.clear()
            await asyncio.sleep(7)
            assert agent.session.is_registered
    assert one.beat_times == [float(at) for at in range(0, 60, 5)]
    assert (len(one.asked_at), len(one.dials), one.closes) == (1, 1, 1)
    (told,) = [line for line in lines if line["event"] == "heartbeat_refused"]
    assert str(answer.status) in told["why"]


async def test_a_heartbeat_without_an_answer_gets_a_new_link_after_five_seconds_and_the_session_goes_on() -> None:
    """A link that swallows what is sent is replaced some ten seconds after it began to."""
    one = router()
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(6)
        one.hangs_at = HEARTBEAT
        await asyncio.sleep(8.9)
        assert len(one.dials) == 1
        one.hangs_at = ""
        await asyncio.sleep(2)
        assert agent.session.is_registered
        assert one.closes == 0
    assert [at for at, _ in one.dials] == [0.0, 15.0]
    assert one.beat_times == [0.0, 5.0, 10.0, 15.0]
    assert len(one.asked_at) == 1


async def test_a_router_that_answers_no_heartbeat_keeps_its_agent_and_is_dialled_more_and_more_slowly() -> None:
    one = router()
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(6)
        one.hangs_at = HEARTBEAT
        await asyncio.sleep(100)
        one.hangs_at = ""
        await asyncio.sleep(20)
        assert agent.session.is_registered
        assert one.beat_times[-1] > 115
    assert len(one.asked_at) == 1
    assert 4 <= len(one.dials) <= 9


async def test_a_link_that_was_only_doubted_is_used_while_the_new_dial_hangs_or_fails() -> None:
    """Heartbeats go on over it, or the router would take the agent for gone before the dial gives up."""
    one = router()
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(6)
        one.hangs_at = HEARTBEAT
        await asyncio.sleep(8)
        one.refuses_dial = "Connection refused"
        await asyncio.sleep(2)
        one.hangs_at = "dial"
        await asyncio.sleep(30)
        assert agent.session.is_registered
    assert [at for at, _ in one.dials][:2] == [0.0, 15.0]
    assert (len(one.asked_at), one.beat_times[-3:]) == (1, [35.0, 40.0, 45.0])


async def test_a_lost_link_is_dialled_again_at_once_and_the_session_goes_on() -> None:
    one = router()
    with capture_logs() as lines:
        async with agent_of({A: one}) as agent:
            await asyncio.sleep(7)
            agent.link_down(one)
            await asyncio.sleep(4)
    assert [at for at, _ in one.dials] == [0.0, 7.0]
    assert len(one.registrations) == len(one.asked_at) == 1
    # The router takes the agent back into routing at the next heartbeat, so that comes at once.
    assert one.beat_times == [0.0, 5.0, 7.0]
    assert [line["event"] for line in lines if line["event"].startswith("link_")] == ["link_lost", "link_restored"]


async def test_a_link_that_does_not_last_is_dialled_more_and_more_slowly() -> None:
    one = router()
    with capture_logs() as lines:
        async with agent_of({A: one}) as agent:
            for _ in range(120):
                await asyncio.sleep(0.5)
                if agent.session.is_registered:
                    agent.link_down(one)
    dialled = [at for at, _ in one.dials]
    assert len(dialled) < 12
    told = [line for line in lines if line["event"] == "link_unsteady"]
    assert told
    assert all(word in told[0]["advice"] for word in ("on the way", "--identity-path"))
    assert all(0 < line["retry_in_s"] <= LINK_BACKOFF_S[-1] for line in told)


async def test_a_link_that_cannot_be_had_again_ends_the_session() -> None:
    one = router()
    with capture_logs() as lines:
        async with agent_of({A: one}) as agent:
            await asyncio.sleep(7)
            one.refuses_dial = "Connection refused"
            agent.link_down(one)
            await asyncio.sleep(0.4)
            assert not agent.session.is_registered
            one.refuses_dial = ""
            await asyncio.sleep(1)
    assert one.asked_at == [0.0, 7.5]
    lost = next(line for line in lines if line["event"] == "session_lost")
    assert "the peer closed the connection" in lost["why"]
    assert "Connection refused" in lost["why"]


async def test_while_the_link_is_away_no_heartbeat_is_tried() -> None:
    one = router()
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(7)
        one.hangs_at = "dial"
        agent.link_down(one)
        await asyncio.sleep(20)
    assert one.beat_times == [0.0, 5.0]


async def test_a_heartbeat_that_cannot_be_sent_gets_a_new_link_and_the_session_goes_on() -> None:
    one = router()
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(9)
        one.cannot_post = "no link"
        await asyncio.sleep(1.2)
        one.cannot_post = ""
        await asyncio.sleep(3)
        assert agent.session.is_registered
    assert [at for at, _ in one.dials] == [0.0, 10.0, 11.0]
    assert one.beat_times == [0.0, 5.0, 10.0, 10.0, 11.0]
    assert len(one.asked_at) == 1


async def test_the_loss_of_a_link_to_somebody_else_is_nothing_to_a_session() -> None:
    one = router()
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(1)
        agent.link_down(router(9))
        await asyncio.sleep(1)
    assert len(one.dials) == 1


async def test_a_session_is_renewed_five_minutes_before_its_end_and_the_token_changes_after_the_registration() -> None:
    one = router()
    one.session_ttl_s = 360
    async with agent_of({A: one}):
        await asyncio.sleep(62)
        one.hangs_at = REGISTER
        await asyncio.sleep(76)
    assert one.asked_at == [0.0, 60.0, 120.0]
    assert [at for at, _ in one.dials] == [0.0]
    tokens = {round(at): each.session_token for at, each in one.heartbeats}
    assert (tokens[55], tokens[65]) == ("token-1", "token-2")
    # The third token was never taken by the router.
    assert tokens[135] == "token-2"


async def test_a_renewal_that_fails_is_tried_every_half_minute_while_the_old_token_works() -> None:
    one = router()
    one.session_ttl_s = 360
    with capture_logs() as lines:
        async with agent_of({A: one}) as agent:
            await asyncio.sleep(59)
            one.refuses = SessionFailed("refused", "the clocks")
            await asyncio.sleep(72)
            assert agent.session.is_registered
            one.refuses = None
            await asyncio.sleep(30)
    assert one.asked_at == [0.0, 60.0, 90.0, 120.0, 150.0]
    assert {each.session_token for at, each in one.heartbeats if at < 150} == {"token-1"}
    assert one.heartbeats[-1][1].session_token == "token-5"
    told = [line for line in lines if line["event"] == "renewal_failed"]
    assert [(line["why"], line["check"]) for line in told] == [("refused", "the clocks")]


async def test_a_renewal_that_reaches_another_router_ends_the_session() -> None:
    one = router()
    one.session_ttl_s = 360
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(59)
        other = agent.network.routers[A] = router(2)
        agent.network.routers["gone"] = one
        await asyncio.sleep(3)
        assert agent.session.is_registered
    assert [at for at, _ in other.registrations] == [60.5]
    assert one.closes == 1


async def test_a_backend_that_fails_three_probes_is_reported_at_once_and_so_is_its_return() -> None:
    one = router()
    one.heartbeat_interval_s = 60
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(1)
        agent.engine.status = 503
        await asyncio.sleep(6)
        assert [(at, each.backend_healthy) for at, each in one.heartbeats] == [(0.0, True), (6.0, False)]
        agent.engine.status = 200
        await asyncio.sleep(5)
    assert [(at, each.backend_healthy) for at, each in one.heartbeats][2:] == [(8.0, True)]


async def test_a_router_hears_at_once_that_another_is_connected_or_gone() -> None:
    one, two = router(1), router(2)
    one.heartbeat_interval_s = 60
    two.refuses = SessionFailed("down")
    async with agent_of({A: one, B: two}):
        await asyncio.sleep(1)
        two.refuses = None
        await asyncio.sleep(1)
        two.answers[HEARTBEAT] = Reply(404, b"")
        two.refuses = SessionFailed("down")
        await asyncio.sleep(8)
    both = tuple(sorted((one.peer_id, two.peer_id)))
    assert [each.connected_routers for _, each in one.heartbeats] == [(one.peer_id,), both, (one.peer_id,)]


async def test_signals_are_pushed_at_their_interval_whether_or_not_something_changed() -> None:
    one = router()
    async with agent_of({A: one}) as agent:
        await asyncio.sleep(1.1)
        agent.reports.engine = EngineSnapshot(running_requests=3.0)
        agent.running[0] = 2
        await asyncio.sleep(1)
    assert [at for at, _ in one.signals] == [0.5, 1.0, 1.5, 2.0]
    before, after = decode_signals(one.signals[1][1]), decode_signals(one.signals[2][1])
    assert (before.session_token, before.backend_metrics, before.inflight_total) == ("token-1", None, 0)
    assert (after.backend_metrics, after.inflight_total) == (EngineSnapshot(running_requests=3.0), 2)
    assert after.hardware is None


async def test_requests_in_flight_are_a_router_s_own_only_while_it_is_the_only_one() -> None:
    """several-routers.md S-109; the data plane counts the requests of all routers together."""
    one, two = router(1), router(2)
    two.refuses = SessionFailed("down")
    async with agent_of({A: one, B: two}) as agent:
        agent.running[0] = 4
        await asyncio.sleep(1.2)
        alone = decode_signals(one.signals[-1][1])
        two.refuses = None
        await asyncio.sleep(2)
    together = decode_signals(one.signals[-1][1])
    assert (alone.inflight_total, alone.inflight_here) == (4, 4)
    assert (together.inflight_total, together.inflight_here) == (4, None)
    assert together.connected_routers == tuple(sorted((one.peer_id, two.peer_id)))


async def test_signals_that_fail_cost_nothing() -> None:
    one = router()
    async with agent_of({A: one}) as agent:
        agent.reports.hardware = HardwareSnapshot(timestamp=1)
        one.answers[ROUTING_SIGNALS] = Reply(404, b"")
        await asyncio.sleep(5)
        one.hangs_at = ROUTING_SIGNALS
        await asyncio.sleep(20)
        assert agent.session.is_registered
    assert len(one.asked_at) == 1
