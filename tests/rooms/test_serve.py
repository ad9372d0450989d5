"""A whole router on fakes: how it starts, what runs beside the requests, and how it stops."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

import pytest
from structlog.testing import capture_logs
from tests.config.given import good_router
from tests.core.making import MODEL, OTHER_MODEL, A, B, described
from tests.fakes.clock import VirtualClock
from tests.fakes.exchange import Answers, FakeArrived, FakeDigest, FakeExchange
from tests.fakes.plane import PEER_ID, FakePlane
from tests.fakes.recorder import RecordingRecorder
from tests.rooms.building import soon, turns

from hivenet_router.core.file_shares import FILES_MIN, router_shares
from hivenet_router.core.registry import Registry
from hivenet_router.ports import (
    AnswerWith,
    BootstrapServer,
    CannotListen,
    DataPlane,
    DoorRules,
    Exchange,
    Finished,
    PlaneBroken,
    PlaneListener,
    Recorder,
)
from hivenet_router.router.serve import PEER_RULES, Router, World, running, stopped_by_signal
from hivenet_router.router.tasks import Tasks
from hivenet_router.wire.auth_messages import AuthOutcome, AuthRequest
from hivenet_router.wire.identity import identity_from_seed
from hivenet_router.wire.jwt import mint_agent_token, subject_of


class FakeBootstrap(BootstrapServer):
    """A service that nobody calls."""

    def __init__(self, host: str, port: int, events: list[str]) -> None:
        self._address = (host or "0.0.0.0", port)
        self._events = events

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Where it would listen."""
        return [self._address]

    async def close(self) -> None:
        """Write it down."""
        self._events.append("close bootstrap")


class Town:
    """A world of fakes, and settings as an operator would give them."""

    def __init__(self, *argv: str) -> None:
        self.settings = good_router(*argv)
        self.clock = VirtualClock()
        self.plane = FakePlane()
        self.recorder = RecordingRecorder()
        self.bootstrap_is_taken = False
        self.authenticate: Callable[[AuthRequest, str], AuthOutcome] | None = None

    def world(self) -> World:
        return World(
            clock=self.clock,
            open_plane=self._open_plane,
            open_bootstrap=self._open_bootstrap,
            recorder_for=self._recorder_for,
            control_for=lambda registry: says_ok,
            shares=router_shares(FILES_MIN),
        )

    def _open_plane(self, listener: PlaneListener, rules: DoorRules) -> DataPlane:
        self.plane = FakePlane(listener, rules, taken_addresses=self.plane.taken_addresses)
        return self.plane

    async def _open_bootstrap(
        self, host: str, port: int, secret: bytes, authenticate: Callable[[AuthRequest, str], AuthOutcome]
    ) -> BootstrapServer:
        self.plane.events.append("listen bootstrap")
        if self.bootstrap_is_taken:
            raise CannotListen(f"cannot listen on {host}:{port}")
        self.authenticate = authenticate
        return FakeBootstrap(host, port, self.plane.events)

    def _recorder_for(self, registry: Registry) -> tuple[Recorder, AnswerWith]:
        return self.recorder, says_ok

    def chat(self, model: str = MODEL) -> FakeExchange:
        return self.plane.arrive(FakeArrived(digest=FakeDigest(model)))

    def join(self, router: Router, *answers: Answers, capacity: int = 1) -> None:
        self.plane.scripts[A] = list(answers) or [Answers()]
        router.link_up(A, "192.0.2.1:9", False)
        router.registry.register(A, described(capacity), now=self.clock.now())


async def says_ok(exchange: Exchange, path: str) -> Finished:
    return await exchange.respond(200, [], b"")


async def cannot_listen(town: Town) -> str:
    with pytest.raises(ExceptionGroup) as caught:
        async with running(town.settings, town.world()):
            pass
    assert caught.group_contains(CannotListen)
    return str(caught.value.exceptions[0])


async def test_agents_are_told_of_the_router_only_when_all_of_it_listens() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        assert town.plane.events == ["listen peers", "listen api", "listen metrics", "listen bootstrap"]
        assert town.plane.peer_rules is PEER_RULES
        assert router.addresses is not None
        assert router.addresses.http[0][1] == 8080
        assert all(address.endswith(f"/p2p/{PEER_ID}") for address in router.addresses.libp2p)
    assert town.plane.events[-2:] == ["close bootstrap", "close"]


@pytest.mark.parametrize(
    "announced", ["/ip4/192.0.2.7/tcp/4001", "/dns4/router.example/tcp/4001", f"/ip4/192.0.2.7/tcp/4001/p2p/{PEER_ID}"]
)
async def test_agents_are_sent_to_the_announced_address_where_there_is_one(announced: str) -> None:
    town = Town()
    object.__setattr__(town.settings, "p2p_announce_multiaddr", announced)
    peer = identity_from_seed(b"\x01" * 32).peer_id
    async with running(town.settings, town.world()):
        token = mint_agent_token(town.settings.jwt_secret.reveal(), peer, now=town.clock.unix())
        assert town.authenticate is not None
        info = town.authenticate(AuthRequest(token, described()), "192.0.2.9").libp2p_info
    assert info is not None
    assert info.addresses == (f"{announced.split('/p2p/')[0]}/p2p/{PEER_ID}",)


async def test_a_listener_that_cannot_be_bound_ends_the_start_and_closes_what_was_open() -> None:
    town = Town("--metrics-port=127.0.0.9:2112")
    town.plane.taken_addresses.add("127.0.0.9")
    assert "metrics" in await cannot_listen(town)
    assert town.plane.events == ["listen peers", "listen api", "listen metrics", "close"]


async def test_a_bootstrap_address_that_is_taken_ends_the_start_too() -> None:
    town = Town()
    town.bootstrap_is_taken = True
    await cannot_listen(town)
    assert town.plane.events[-2:] == ["listen bootstrap", "close"]


async def test_a_data_plane_that_breaks_ends_the_router_with_what_it_says() -> None:
    town = Town()

    async def run() -> None:
        async with running(town.settings, town.world()):
            town.plane.broken.set()
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(PlaneBroken, match="a part of it panicked")
    assert town.plane.events[-1] == "close"


async def test_a_silent_agent_is_taken_out_and_then_removed_with_its_sessions_and_links() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        town.join(router)
        router.sessions.open(subject_of(A), described(), now=town.clock.now())
        await asyncio.sleep(20.5)
        agent = router.registry.agent(A)
        assert agent is not None
        assert not agent.healthy
        await asyncio.sleep(20)
        assert router.registry.agent(A) is None
        assert len(router.sessions) == 0
        assert f"close peer {A}" in town.plane.events
        assert f"forget {A}" in town.plane.events


async def test_a_router_that_itself_stood_still_takes_no_agent_for_gone() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        town.join(router)
        await asyncio.sleep(12)
        with capture_logs() as lines:
            # As after SIGSTOP or a laptop's sleep: time has passed, and what was sent meanwhile is not read yet.
            town.clock.jump(300)
            await asyncio.sleep(10.5)
        assert router.registry.agent(A) is not None
        assert [line["event"] for line in lines if "agent" in line["event"] or "router" in line["event"]] == [
            "router_stood_still"
        ]
        await asyncio.sleep(20)
        assert router.registry.agent(A) is None


async def test_expired_sessions_are_swept() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        router.sessions.open(subject_of(B), described(), now=town.clock.now())
        await asyncio.sleep(3600 + 300)
        assert len(router.sessions) == 0


async def test_who_waits_hears_of_slots_registrations_and_agents_that_move_away() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        town.join(router, Answers(head_after_s=5.0), Answers(head_after_s=5.0))
        first, second, third = town.chat(), town.chat(), town.chat()
        await asyncio.sleep(6)
        assert [len(exchange.forwards) for exchange in (first, second, third)] == [1, 1, 0]
        assert town.plane.eager
        router.registry.register(A, described(1, model=OTHER_MODEL), now=town.clock.now())
        await turns()
        assert third.answered is not None
        assert third.answered.status == 404
        await asyncio.sleep(5)
    assert town.recorder.outcomes == ["served", "model_not_found", "served"]
    assert town.recorder.at_rest


async def test_an_agent_that_leaves_is_not_told_to_be_ill() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        for leaving in (False, True):
            town.join(router)
            router.registry.heartbeat(A, backend_healthy=True, now=town.clock.now())
            with capture_logs() as lines:
                router.registry.heartbeat(A, backend_healthy=False, leaving=leaving, now=town.clock.now())
            [line] = lines
            assert (line["event"], line["peer_id"]) == ("agent_leaving" if leaving else "agent_health", A)


async def test_what_was_refused_before_it_was_a_request_is_counted() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        router.rejected("api", "192.0.2.1", 400, "host_missing")
    assert town.recorder.rejections["api", "host_missing"] == 1


async def test_draining_lets_what_runs_end_and_refuses_what_comes() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        town.join(router, Answers(head_after_s=10.0))
        working, parked = town.chat(), town.chat()
        await asyncio.sleep(1)
        draining = await soon(router.drain())
        late = town.chat()
        health = town.plane.arrive(FakeArrived(method="GET", path="/health"))
        await turns()
        for exchange, status in ((parked, 503), (late, 503), (health, 200)):
            assert exchange.answered is not None
            assert exchange.answered.status == status
        assert "close doors" not in town.plane.events
        began = town.clock.now()
        await draining
        assert working.finished is not None
        assert (working.finished.outcome, working.answered) == ("answered", None)
        assert town.clock.now() - began < 9.1
        assert town.plane.events[-1] == "close doors"
    assert sorted(town.recorder.outcomes) == ["no_agents_available", "no_agents_available", "served"]


async def test_draining_begins_after_the_delay() -> None:
    town = Town("--drain-delay=4s")
    async with running(town.settings, town.world()) as router:
        town.join(router)
        draining = await soon(router.drain())
        await asyncio.sleep(3.9)
        early = town.chat()
        await turns()
        assert early.finished is not None
        assert early.finished.outcome == "answered"
        await draining


async def test_what_runs_for_too_long_is_ended() -> None:
    town = Town("--shutdown-timeout=3s")
    async with running(town.settings, town.world()) as router:
        town.join(router, Answers(is_stream=True, lasts_s=1000.0), Answers(head_after_s=1000.0), capacity=2)
        stream, unanswered = town.chat(), town.chat()
        await asyncio.sleep(1)
        began = town.clock.now()
        await router.drain()
        assert town.clock.now() - began == pytest.approx(3.0, abs=0.2)
        for exchange, outcome in ((stream, "stream_aborted"), (unanswered, "responded")):
            assert exchange.finished is not None
            assert exchange.finished.outcome == outcome
        assert unanswered.answered is not None
        assert (unanswered.answered.status, b"is stopping" in unanswered.answered.body) == (503, True)
        assert (b"retry-after", b"1") in unanswered.answered.fields
        await turns()
    assert sorted(town.recorder.outcomes) == ["no_agents_available", "stream_cut"]
    assert town.recorder.at_rest


@pytest.mark.parametrize(("lasts_s", "told"), [(100.0, [("requests_cut", 1)]), (10.0, [])])
async def test_what_the_time_limit_of_a_drain_cuts_is_counted(lasts_s: float, told: list[tuple[str, int]]) -> None:
    town = Town("--shutdown-timeout=20s")
    async with running(town.settings, town.world()) as router:
        town.join(router, Answers(head_after_s=1.0, lasts_s=lasts_s, is_stream=True))
        town.chat()
        await asyncio.sleep(2)
        with capture_logs() as lines:
            await router.drain()
    assert [(line["event"], line["requests"]) for line in lines if line["event"] == "requests_cut"] == told


async def stopping(town: Town, router: Router) -> "asyncio.Task[None]":
    task = await soon(stopped_by_signal(router))
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.5)
    return task


async def test_a_signal_drains_and_then_ends_the_router() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        town.join(router, Answers(head_after_s=10.0))
        working = town.chat()
        await turns()
        task = await stopping(town, router)
        assert not task.done()
        await task
        assert working.finished is not None
        assert working.finished.outcome == "answered"


async def test_a_second_signal_ends_the_wait_at_once() -> None:
    town = Town()
    async with running(town.settings, town.world()) as router:
        town.join(router, Answers(head_after_s=1000.0))
        town.chat()
        await turns()
        task = await stopping(town, router)
        began = town.clock.now()
        with capture_logs() as lines:
            os.kill(os.getpid(), signal.SIGINT)
            await task
        assert town.clock.now() - began < 1.0
        assert [(line["event"], line.get("requests")) for line in lines] == [
            ("requests_cut", 1),
            ("router_stopped", None),
        ]
    assert town.recorder.outcomes == ["no_agents_available"]
    assert town.recorder.at_rest


async def test_tasks_end_with_their_owner() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(name)

    async with Tasks() as tasks:
        tasks.spawn(work("a"))
        tasks.spawn(work("b"))
        await turns()
    assert sorted(ended) == ["a", "b"]


async def test_a_task_that_fails_ends_them_all() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    async def own() -> None:
        async with Tasks() as tasks:
            tasks.spawn(fail())
            await asyncio.sleep(1000)

    with pytest.raises(ExceptionGroup):
        await own()
