"""Silence of agents and of backends."""

from tests.core.making import A, B, Book, at

from hivenet_router.core.agent import Report
from hivenet_router.core.changes import HealthCause, HealthChanged, Removed
from hivenet_router.core.health import BackendHealth, SilenceLimits, is_gone, is_silent, monitor_pass, remove_if_gone

LIMITS = SilenceLimits()


def test_an_agent_falls_silent_and_is_removed_at_the_passes_of_the_example() -> None:
    """EX-5.1: last heartbeat at 0, passes at 2, 7, 12, … → unhealthy at 17, removed at 32."""
    book = Book()
    agent = book.join(A)
    unhealthy_at = removed_at = None
    for second in range(2, 60, 5):
        gone = monitor_pass(book.registry, LIMITS, now=at(second))
        if not agent.healthy and unhealthy_at is None:
            unhealthy_at = second
        if gone:
            assert remove_if_gone(book.registry, agent, LIMITS, now=at(second))
            removed_at = second
            break
    assert (unhealthy_at, removed_at) == (17, 32)


def test_both_limits_are_strict() -> None:
    book = Book()
    agent = book.join(A)
    assert not is_silent(agent, LIMITS, now=at(15))
    assert is_silent(agent, LIMITS, now=at(15.001))
    monitor_pass(book.registry, LIMITS, now=at(16))
    assert not is_gone(agent, LIMITS, now=at(30))
    assert is_gone(agent, LIMITS, now=at(30.001))


def test_signals_do_not_keep_an_agent_alive() -> None:
    """EX-5.2."""
    book = Book()
    agent = book.join(A)
    book.registry.signals(A, report=Report(), now=at(14))
    monitor_pass(book.registry, LIMITS, now=at(16))
    assert not agent.healthy


def test_silence_of_an_agent_whose_backend_was_down_is_no_new_failure() -> None:
    """EX-5.3."""
    book = Book()
    agent = book.join(A)
    book.registry.heartbeat(A, backend_healthy=False, now=at(1))
    book.news()
    assert monitor_pass(book.registry, LIMITS, now=at(20)) == ()
    assert agent.outcomes.agent_failures == 0
    assert book.news() == []
    assert monitor_pass(book.registry, LIMITS, now=at(32)) == (agent,)


def test_silence_of_a_healthy_agent_is_told_and_counted_once() -> None:
    book = Book()
    agent = book.join(A)
    book.join(B)
    book.registry.heartbeat(B, backend_healthy=True, now=at(15))
    book.news()
    monitor_pass(book.registry, LIMITS, now=at(16))
    monitor_pass(book.registry, LIMITS, now=at(21))
    assert book.news() == [HealthChanged(agent, HealthCause.SILENCE)]
    assert agent.outcomes.agent_failures == 1


def test_a_heartbeat_between_the_pass_and_the_removal_rescues() -> None:
    book = Book()
    agent = book.join(A)
    assert monitor_pass(book.registry, LIMITS, now=at(31)) == (agent,)
    book.registry.heartbeat(A, backend_healthy=True, now=at(31.5))
    assert not remove_if_gone(book.registry, agent, LIMITS, now=at(32))
    assert book.registry.agent(A) is agent


def test_a_removal_concerns_the_very_agent_that_was_found_gone() -> None:
    book = Book()
    gone = book.join(A)
    monitor_pass(book.registry, LIMITS, now=at(31))
    book.registry.remove(A, now=at(31))
    new = book.join(A)
    book.news()
    assert not remove_if_gone(book.registry, gone, LIMITS, now=at(40))
    assert book.registry.agent(A) is new


def test_a_removal_is_told() -> None:
    book = Book()
    agent = book.join(A)
    monitor_pass(book.registry, LIMITS, now=at(31))
    book.news()
    assert remove_if_gone(book.registry, agent, LIMITS, now=at(31))
    assert book.news() == [Removed(agent)]


def test_three_failed_probes_in_a_row_make_a_backend_unhealthy_and_one_good_one_healthy() -> None:
    """EX-1.6, without the clock."""
    backend = BackendHealth()
    probes = (False, False, False, False, True, True)
    changed = [backend.probed(ready=ready) for ready in probes]
    assert changed == [False, False, True, False, True, False]


def test_a_backend_is_unhealthy_until_a_probe_succeeds() -> None:
    backend = BackendHealth(failures_max=1)
    backend.probed(ready=False)
    assert not backend.healthy


def test_failures_that_a_good_probe_parts_do_not_add_up() -> None:
    """EX-1.7."""
    backend = BackendHealth()
    changed = [backend.probed(ready=ready) for ready in (False, False, True, False, False)]
    assert changed == [False] * 5
    assert backend.healthy
