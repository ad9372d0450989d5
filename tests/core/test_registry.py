"""Who is there, who serves what, and who is told of which change."""

from typing import TYPE_CHECKING

import pytest
from tests.core.making import MODEL, OTHER_MODEL, START, A, B, Book, C, at, described

from hivenet_router.core.agent import Load, Report
from hivenet_router.core.changes import (
    CapacityFreed,
    HealthCause,
    HealthChanged,
    LinkLost,
    LinkReturned,
    Registered,
    Removed,
)
from hivenet_router.core.ids import DeploymentId, ModelName, PeerId, ReplicaId
from hivenet_router.core.outcomes import History, Mark
from hivenet_router.core.registry import COUNTS_KEPT_S, DEPARTED_MAX, Registry
from hivenet_router.wire.agent_protocol import EngineSnapshot, HardwareSnapshot

if TYPE_CHECKING:
    from hivenet_router.core.slots import Slot


def test_an_empty_registry_serves_nothing() -> None:
    registry = Registry()
    assert len(registry) == 0
    assert registry.models() == ()
    assert registry.pool(MODEL) is None
    assert registry.agents_of(MODEL) == ()
    assert registry.healthy_agents_of(MODEL) == ()
    assert registry.replicas_of(MODEL) == 0
    assert registry.agent(A) is None


def test_a_registration_makes_a_linked_agent_usable_and_is_told() -> None:
    book = Book()
    book.registry.link_up(A)
    registered = book.registry.register(A, described(), DeploymentId("d"), ReplicaId("r"), now=START)
    assert book.news() == [registered, CapacityFreed(MODEL)]
    assert registered == Registered(registered.agent, None)
    assert (registered.agent.deployment_id, registered.agent.replica_id) == ("d", "r")
    assert book.registry.healthy_agents_of(MODEL) == (registered.agent,)
    assert book.registry.models() == (MODEL,)


def test_agents_come_in_peer_id_order_whatever_order_they_joined_in() -> None:
    book = Book()
    for peer in (B, A, C):
        book.join(peer)
    assert [agent.peer for agent in book.registry.agents_of(MODEL)] == [A, B, C]
    assert [agent.peer for agent in book.registry] == [B, A, C]


def test_a_listener_is_not_needed() -> None:
    registry = Registry()
    registry.link_up(A)
    registry.register(A, described(), now=START)
    assert registry.replicas_of(MODEL) == 1


# Registering again


def test_a_renewal_keeps_everything_but_what_it_brings() -> None:
    """signals.md §9.2: slots, counts, streak, round trip and known health survive the hourly renewal."""
    book = Book()
    agent = book.join(A, described(2), active=1)
    agent.outcomes.succeeded(sample_s=0.1)
    agent.outcomes.failed(Mark.APPLICATION, now=START)
    book.registry.heartbeat(
        A, backend_healthy=False, report=Report(EngineSnapshot(), HardwareSnapshot(), Load(3)), now=START
    )
    book.news()
    again = book.registry.register(A, described(2), history=History(successes=99), now=at(3300))
    assert again.agent is agent
    assert (agent.active_slots, agent.outcomes.successes, agent.outcomes.consecutive_failures) == (1, 1, 1)
    assert (agent.backend_healthy, agent.load.inflight_total, agent.last_seen_at) == (False, 3, at(3300))
    assert agent.engine is not None
    assert book.news() == [again]


def test_a_renewal_shows_whether_the_series_are_the_same() -> None:
    book = Book()
    book.join(A, described(2))
    same = book.registry.register(A, described(2), now=START)
    moved = book.registry.register(A, described(2, region="EU-Spain"), now=START)
    assert same.previous is not None
    assert same.previous.region == "EU-France"
    assert moved.previous is not None
    assert moved.previous.region != moved.agent.metadata.region


def test_a_model_change_moves_the_agent_whole() -> None:
    """signals.md §9.2: the original leaves a ghost under the old model."""
    book = Book()
    agent = book.join(A, described(2), active=1)
    book.news()
    moved = book.registry.register(A, described(2, model=OTHER_MODEL), now=START)
    assert book.registry.models() == (OTHER_MODEL,)
    assert book.registry.pool(MODEL) is None
    assert book.registry.agents_of(OTHER_MODEL) == (agent,)
    assert agent.active_slots == 1
    assert book.news() == [moved, CapacityFreed(OTHER_MODEL)]


def test_a_model_keeps_its_other_agents_when_one_moves_away() -> None:
    book = Book()
    book.join(A)
    stays = book.join(B)
    book.registry.register(A, described(model=OTHER_MODEL), now=START)
    assert book.registry.agents_of(MODEL) == (stays,)


def test_a_larger_capacity_is_told_and_a_smaller_one_is_not() -> None:
    book = Book()
    agent = book.join(A, described(2), active=2)
    book.news()
    smaller = book.registry.register(A, described(1), now=START)
    assert book.news() == [smaller]
    assert agent.free_slots == 0
    larger = book.registry.register(A, described(3), now=START)
    assert book.news() == [larger, CapacityFreed(MODEL)]


def test_a_registration_after_silence_makes_an_agent_healthy_again() -> None:
    book = Book()
    agent = book.join(A)
    book.registry.fell_silent(agent)
    book.news()
    again = book.registry.register(A, described(), now=at(20))
    assert book.news() == [again, HealthChanged(agent, HealthCause.HEARTBEAT), CapacityFreed(MODEL)]


def test_the_history_of_a_new_agent_is_taken_up() -> None:
    book = Book()
    registered = book.registry.register(A, described(), history=History(successes=9, failures=1), now=START)
    assert registered.agent.outcomes.success_rate == 0.9


# Heartbeats and signals


def test_a_heartbeat_of_an_unknown_peer_is_refused() -> None:
    assert not Registry().heartbeat(A, backend_healthy=True, now=START)
    assert not Registry().signals(A, report=Report(), now=START)


def test_a_sick_backend_takes_its_agent_out_at_once_and_is_counted_on_the_edge_only() -> None:
    """signals.md §5.1."""
    book = Book()
    agent = book.join(A)
    book.news()
    for second in (1, 6):
        assert book.registry.heartbeat(A, backend_healthy=False, now=at(second))
    assert book.news() == [HealthChanged(agent, HealthCause.BACKEND)]
    assert (agent.outcomes.backend_failures, agent.last_seen_at) == (1, at(6))
    assert book.registry.healthy_agents_of(MODEL) == ()
    assert book.registry.replicas_of(MODEL) == 0


def test_an_agent_that_leaves_is_out_at_once_and_its_backend_has_not_failed() -> None:
    book = Book()
    agent = book.join(A)
    book.news()
    for second in (1, 6):
        assert book.registry.heartbeat(A, backend_healthy=False, leaving=True, now=at(second))
    assert book.news() == [HealthChanged(agent, HealthCause.LEAVING)]
    assert (agent.leaving, agent.outcomes.backend_failures) == (True, 0)
    assert book.registry.healthy_agents_of(MODEL) == ()
    book.registry.heartbeat(A, backend_healthy=True, now=at(7))
    assert (agent.leaving, agent.healthy) == (False, True)


def test_a_recovered_backend_brings_its_slots_back() -> None:
    book = Book()
    agent = book.join(A)
    book.registry.heartbeat(A, backend_healthy=False, now=at(1))
    book.news()
    book.registry.heartbeat(A, backend_healthy=True, now=at(2))
    assert book.news() == [HealthChanged(agent, HealthCause.BACKEND), CapacityFreed(MODEL)]


def test_a_heartbeat_after_silence_makes_an_agent_healthy_again() -> None:
    book = Book()
    agent = book.join(A)
    assert book.registry.fell_silent(agent)
    assert not book.registry.fell_silent(agent)
    book.news()
    book.registry.heartbeat(A, backend_healthy=True, now=at(20))
    assert book.news() == [HealthChanged(agent, HealthCause.HEARTBEAT), CapacityFreed(MODEL)]


def test_signals_replace_snapshots_and_leave_the_last_sign_of_life() -> None:
    book = Book()
    agent = book.join(A)
    engine, hardware = EngineSnapshot(kv_cache_utilization=0.5), HardwareSnapshot(timestamp=7)
    book.registry.signals(A, report=Report(engine, hardware), now=at(1))
    book.registry.signals(A, report=Report(), now=at(2))
    assert agent.engine is not None
    assert agent.hardware is not None
    assert (agent.engine.value, agent.engine.received_at) == (engine, at(1))
    assert (agent.hardware.value, agent.hardware.received_at) == (hardware, at(1))
    assert agent.last_seen_at == START


def test_slots_that_other_routers_give_back_are_told() -> None:
    book = Book()
    book.join(A, described(2))
    book.registry.signals(A, report=Report(load=Load(2, 2, 0)), now=at(1))
    book.news()
    book.registry.signals(A, report=Report(load=Load(1, 1, 0)), now=at(2))
    assert book.news() == [CapacityFreed(MODEL)]


def test_a_bound_on_streams_takes_and_gives_room_when_the_agents_kind_is_learned() -> None:
    book = Book()
    agent = book.join(A, described(10), active=2)
    book.news()
    book.registry.identified(A, is_original=True, streams_max=2)
    assert (agent.free_slots, book.news()) == (0, [])
    book.registry.identified(A, is_original=True, streams_max=2)
    book.registry.identified(B, is_original=True, streams_max=2)
    assert book.news() == []
    book.registry.identified(A, is_original=False, streams_max=None)
    assert (agent.free_slots, book.news()) == (8, [CapacityFreed(MODEL)])


# Links


def test_an_agent_without_a_link_is_out_of_routing_but_healthy_by_its_heartbeats() -> None:
    """decisions.md 25."""
    book = Book()
    agent = book.join(A)
    book.news()
    book.registry.link_down(A)
    assert book.news() == [LinkLost(agent)]
    assert (agent.healthy, agent.routable, book.registry.replicas_of(MODEL)) == (True, False, 0)
    assert book.registry.agents_of(MODEL) == (agent,)
    assert not book.registry.is_linked(A)


def test_a_link_that_returns_needs_no_registration() -> None:
    """wire.md §13."""
    book = Book()
    agent = book.join(A)
    book.registry.link_down(A)
    book.news()
    book.registry.link_up(A)
    assert book.news() == [LinkReturned(agent), CapacityFreed(MODEL)]
    assert book.registry.is_linked(A)


def test_a_link_that_returns_to_a_sick_backend_frees_nothing() -> None:
    book = Book()
    agent = book.join(A)
    book.registry.heartbeat(A, backend_healthy=False, now=START)
    book.registry.link_down(A)
    book.news()
    book.registry.link_up(A)
    assert book.news() == [LinkReturned(agent)]


def test_one_of_two_connections_is_enough() -> None:
    """wire.md §5.8: a peer may hold several; the older one ends after the newer began."""
    book = Book()
    agent = book.join(A)
    book.registry.link_up(A, 7)
    book.news()
    book.registry.link_down(A)
    assert (agent.routable, book.news()) == (True, [])
    book.registry.link_down(A, 7)
    assert not agent.routable


def test_links_of_peers_that_never_registered_are_only_remembered() -> None:
    book = Book()
    book.registry.link_down(B)
    book.registry.link_up(A)
    book.registry.link_down(A)
    assert book.news() == []
    agent = book.registry.register(A, described(), now=START).agent
    assert not agent.routable
    assert book.registry.replicas_of(MODEL) == 0


# Leaving


def test_a_removed_agent_is_gone_from_every_answer() -> None:
    book = Book()
    agent = book.join(A)
    book.news()
    assert book.registry.remove(A, now=START) is agent
    assert book.news() == [Removed(agent)]
    assert (len(book.registry), book.registry.models(), agent.outcomes.disconnections) == (0, (), 1)
    assert book.registry.remove(A, now=START) is None


def test_a_peer_that_was_removed_starts_anew() -> None:
    book = Book()
    old = book.join(A, described(1), active=1)
    book.registry.remove(A, now=START)
    new = book.join(A, described(1))
    assert new is not old
    assert new.free_slots == 1


def test_a_removed_peer_that_is_back_in_time_keeps_its_counts_and_its_streak() -> None:
    """decisions.md 27 and 29."""
    book = Book()
    old = book.join(A)
    old.outcomes.failed(Mark.APPLICATION, now=START)
    book.registry.remove(A, now=START)
    back = book.registry.register(A, described(1), now=at(COUNTS_KEPT_S - 0.1)).agent
    counts = (back.outcomes.failures, back.outcomes.consecutive_failures, back.outcomes.disconnections)
    assert counts == (1, 1, 1)
    book.registry.remove(A, now=START)
    late = book.registry.register(A, described(1), history=History(successes=5), now=at(COUNTS_KEPT_S)).agent
    assert (late.outcomes.successes, late.outcomes.failures, late.outcomes.disconnections) == (5, 0, 0)


def test_the_counts_of_so_many_removed_peers_only_are_kept() -> None:
    book = Book()
    for number in range(DEPARTED_MAX + 1):
        book.join(PeerId(f"12D3KooW{number:04}"))
        book.registry.remove(PeerId(f"12D3KooW{number:04}"), now=START)
    returned = [book.join(PeerId(f"12D3KooW{number:04}")).outcomes.disconnections for number in (0, 1, DEPARTED_MAX)]
    assert returned == [0, 1, 1]


@pytest.mark.parametrize("leaving", [A, B, C])
def test_whoever_leaves_the_others_keep_their_order(leaving: PeerId) -> None:
    book = Book()
    for peer in (C, A, B):
        book.join(peer)
    book.registry.remove(leaving, now=START)
    assert [agent.peer for agent in book.registry.agents_of(MODEL)] == sorted({A, B, C} - {leaving})


def test_a_listener_that_takes_the_freed_slot_at_once_finds_the_books_in_order() -> None:
    taken: list[Slot | None] = []

    def take(change: object) -> None:
        if isinstance(change, CapacityFreed) and len(taken) < 3:
            (agent,) = registry.healthy_agents_of(change.model)
            taken.append(registry.take_slot(agent))

    registry = Registry(take)
    registry.link_up(A)
    agent = registry.register(A, described(1), now=START).agent
    (first,) = taken
    assert first is not None
    first.release()
    assert (len(taken), agent.active_slots, agent.free_slots) == (2, 1, 0)


def test_ollamas_default_tag_goes_without_saying_and_nobody_elses() -> None:
    """field-cases.md O-24."""
    book = Book()
    book.join(A, described(model=ModelName("llama3"), engine="ollama"))
    book.join(B, described(model=ModelName("mine"), engine="vllm"))
    book.join(C, described(model=ModelName("own:latest"), engine="vllm"))
    names = (
        "llama3",
        "llama3:latest",
        "llama3:8b",
        "llama3:latest:latest",
        "mine:latest",
        "own",
        "own:latest",
        ":latest",
    )
    named = {name: book.registry.named(ModelName(name)) for name in names}
    assert {name for name in names if named[name] != name} == {"llama3:latest"}
    assert named["llama3:latest"] == "llama3"
    # The body keeps the tag, and an engine that is no Ollama would not know it.
    book.join(B, described(model=ModelName("llama3"), engine="vllm"))
    assert book.registry.named(ModelName("llama3:latest")) == "llama3:latest"
