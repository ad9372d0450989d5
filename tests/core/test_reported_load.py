"""What an agent reports of its load beside what we count ourselves, and for how long a report holds."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.making import MODEL, OTHER_MODEL, A, B, Book, at, described

from hivenet_router.core.agent import LOAD_FRESH_S, Agent, report_in
from hivenet_router.core.changes import CapacityFreed, Change
from hivenet_router.core.health import SilenceLimits, monitor_pass
from hivenet_router.core.policy import BUILT_IN_STEP, choose
from hivenet_router.core.ranking import load_ratio
from hivenet_router.core.registry import Registry
from hivenet_router.core.slots import Slot
from hivenet_router.names.paths import Capability
from hivenet_router.wire.agent_protocol import Heartbeat, Signals


def report(book: Book, agent: Agent, message: Signals, *, after_s: float = 0.0) -> None:
    assert book.registry.signals(agent.peer, report=report_in(message), now=at(after_s))


def busy(book: Book, *, capacity: int, slots: int, streams: int) -> Agent:
    """An agent with so many of our requests, `streams` of which gave their slots back at their headers."""
    agent = book.join(A, described(capacity))
    for number in range(slots + streams):
        taken = book.registry.take_slot(agent)
        assert isinstance(taken, Slot)
        if number < streams:
            taken.headers_arrived()
    return agent


@dataclass(frozen=True)
class Case:
    capacity: int
    slots: int
    streams: int
    message: Signals
    ratio: float
    is_full: bool


def counts(inflight_total: int, inflight_here: int, slots_total: int, slots_here: int) -> Signals:
    return Signals(
        inflight_total=inflight_total, inflight_here=inflight_here, slots_total=slots_total, slots_here=slots_here
    )


@pytest.mark.parametrize(
    "case",
    [
        Case(10, 2, 0, Signals(), 0.2, False),
        Case(10, 1, 1, counts(7, 2, 5, 1), 0.7, False),
        Case(10, 8, 0, counts(5, 5, 5, 5), 0.8, False),
        Case(10, 4, 0, counts(11, 4, 10, 4), 1.1, True),
        Case(4, 1, 0, counts(4, 1, 3, 1), 1.0, False),
    ],
)
def test_rank_and_room_are_as_in_the_vectors(case: Case) -> None:
    """Source: vectors/sync/agent-load.json; several-routers.md S-108, S-110."""
    book = Book()
    agent = busy(book, capacity=case.capacity, slots=case.slots, streams=case.streams)
    report(book, agent, case.message)
    assert load_ratio(agent) == case.ratio
    assert (agent.free_slots == 0) is case.is_full


def test_our_own_requests_in_a_report_are_not_counted_twice() -> None:
    """Three of ours run, and the agent reports three: it has three, not six."""
    book = Book()
    agent = busy(book, capacity=10, slots=1, streams=2)
    report(book, agent, Signals(inflight_total=3, inflight_here=3))
    assert load_ratio(agent) == 0.3
    assert agent.free_slots == 9


def test_requests_in_flight_alone_move_the_rank_and_take_no_room() -> None:
    """An agent that cannot count slots reports only what is in flight; its slots are judged by our own count."""
    book = Book()
    loaded = book.join(A, described(2))
    book.join(B, described(2))
    report(book, loaded, Signals(inflight_total=5))
    assert loaded.free_slots == 2
    chosen = choose(BUILT_IN_STEP, book.registry.pool(MODEL), Capability.LLM, now=at(0))
    assert chosen is not None
    assert chosen.peer == B


def test_a_report_that_is_not_repeated_ranks_nobody_low_for_ever() -> None:
    book = Book()
    agent = book.join(A, described(10))
    book.join(B, described(10), active=1)
    report(book, agent, Signals(inflight_total=9))
    book.registry.forget_stale_loads(now=at(LOAD_FRESH_S))
    assert load_ratio(agent) == 0.9
    book.registry.forget_stale_loads(now=at(LOAD_FRESH_S + 0.001))
    assert load_ratio(agent) == 0.0
    chosen = choose(BUILT_IN_STEP, book.registry.pool(MODEL), Capability.LLM, now=at(11))
    assert chosen is agent


def test_a_report_holds_while_it_is_repeated_by_either_message() -> None:
    book = Book()
    agent = book.join(A, described(10))
    report(book, agent, Signals(inflight_total=9))
    message = report_in(Heartbeat(inflight_total=8))
    book.registry.heartbeat(A, backend_healthy=True, report=message, now=at(6))
    monitor_pass(book.registry, SilenceLimits(), now=at(15))
    assert agent.load.inflight_total == 8
    report(book, agent, Signals(), after_s=15)
    monitor_pass(book.registry, SilenceLimits(), now=at(17))
    assert agent.load.inflight_total == 0


def test_slots_of_other_routers_that_are_not_repeated_come_back_and_are_told() -> None:
    book = Book()
    agent = book.join(A, described(2))
    report(book, agent, Signals(slots_total=2, slots_here=0))
    book.news()
    monitor_pass(book.registry, SilenceLimits(), now=at(11))
    assert agent.free_slots == 2
    assert book.news() == [CapacityFreed(MODEL)]
    monitor_pass(book.registry, SilenceLimits(), now=at(11))
    assert book.news() == []


def test_whoever_is_told_of_room_may_remove_the_others() -> None:
    removed: list[Agent | None] = []

    def on_change(change: Change) -> None:
        if isinstance(change, CapacityFreed) and change.model == MODEL:
            removed.append(registry.remove(B, now=at(0)))

    registry = Registry(on_change)
    for peer, model in ((A, MODEL), (B, OTHER_MODEL)):
        registry.link_up(peer)
        registry.register(peer, described(1, model=model), now=at(0))
        registry.signals(peer, report=report_in(Signals(slots_total=1)), now=at(0))
    removed.clear()
    agent_b = registry.agent(B) or registry.register(B, described(1, model=OTHER_MODEL), now=at(0)).agent
    registry.signals(B, report=report_in(Signals(slots_total=1)), now=at(0))
    registry.forget_stale_loads(now=at(11))
    assert removed == [agent_b]
    assert registry.pool(OTHER_MODEL) is None


@given(st.integers(0, 20), st.integers(0, 5), st.integers(0, 5))
def test_the_rank_is_never_below_our_own_count_nor_above_the_larger_of_the_two(
    reported: int, slots: int, streams: int
) -> None:
    agent = busy(book := Book(), capacity=20, slots=slots, streams=streams)
    report(book, agent, Signals(inflight_total=reported))
    assert load_ratio(agent) == max(reported, slots + streams) / 20
