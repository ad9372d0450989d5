"""The retry budget, without a network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.making import A, B, C

from hivenet_router.core.attempts import (
    EXECUTIONS_MAX,
    Attempts,
    Busy,
    Failure,
    GiveUp,
    LinkDead,
    RetrySameFree,
    StaleStream,
    StepSpent,
    StreamBroken,
    TimedOut,
    TryAnother,
    Verdict,
    mark_of,
)
from hivenet_router.core.backend_errors import BackendFailure
from hivenet_router.core.ids import PeerId
from hivenet_router.core.outcomes import Mark
from hivenet_router.core.refusals import reason
from hivenet_router.names.errors import ErrorCode

OVERLOADED = BackendFailure(reason(ErrorCode.BACKEND_UNAVAILABLE, "slow down", retry_after_s=7.0))
BROKEN = BackendFailure(reason(ErrorCode.BACKEND_ERROR, "boom"))
TOO_LONG = BackendFailure(reason(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long"))
NOTHING_TO_SELECT = reason(ErrorCode.NO_AGENTS_AVAILABLE, "none")


def left(verdict: Verdict) -> Attempts:
    assert not isinstance(verdict, GiveUp)
    return verdict.attempts


def test_a_failed_agent_is_left_out_and_costs_a_try() -> None:
    verdict = Attempts().after(BROKEN, A)
    assert isinstance(verdict, TryAnother)
    assert (verdict.attempts.tries_used, verdict.attempts.failed) == (1, frozenset({A}))


def test_the_third_failure_spends_the_step() -> None:
    attempts = Attempts()
    for peer in (A, B):
        verdict = attempts.after(BROKEN, peer)
        assert isinstance(verdict, TryAnother)
        attempts = verdict.attempts
    assert isinstance(attempts.after(BROKEN, C), StepSpent)


def test_failures_are_per_step() -> None:
    """EX-8.41: A fails in the first step (one try), again in the second (two tries), then B may serve."""
    first = Attempts(tries_max=1).after(BROKEN, A)
    assert isinstance(first, StepSpent)
    second = first.attempts.next_step(2)
    assert (second.tries_used, second.failed) == (0, frozenset())
    verdict = second.after(BROKEN, A)
    assert isinstance(verdict, TryAnother)
    assert verdict.attempts.failed == {A}


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_INVALID, ErrorCode.INVALID_PARAMETER, ErrorCode.CONTEXT_LENGTH_EXCEEDED]
)
def test_a_fault_of_the_request_ends_it_at_once(code: ErrorCode) -> None:
    said = reason(code, "no")
    assert Attempts().after(BackendFailure(said), A) == GiveUp(said)


def test_a_dead_link_is_forgiven_once_for_each_agent() -> None:
    """configuration.md §6.5: no try is used and the agent is not left out."""
    once = Attempts().after(LinkDead(), A)
    assert isinstance(once, TryAnother)
    assert (once.attempts.tries_used, once.attempts.failed) == (0, frozenset())
    other = once.attempts.after(LinkDead(), B)
    assert left(other).tries_used == 0
    again = left(other).after(LinkDead(), A)
    assert (left(again).tries_used, left(again).failed) == (1, frozenset({A}))


def test_the_favour_is_per_request_and_not_per_step() -> None:
    attempts = left(Attempts().after(LinkDead(), A)).next_step(3)
    assert left(attempts.after(LinkDead(), A)).tries_used == 1


def test_a_stale_stream_is_retried_on_the_same_agent_once() -> None:
    """field-cases.md O-09."""
    once = Attempts().after(StaleStream(), A)
    assert isinstance(once, RetrySameFree)
    assert once.attempts.tries_used == 0
    again = once.attempts.after(StaleStream(), A)
    assert isinstance(again, TryAnother)
    assert again.attempts.failed == {A}


def test_a_stale_stream_and_a_dead_link_share_one_favour() -> None:
    attempts = left(Attempts().after(StaleStream(), A))
    assert left(attempts.after(LinkDead(), A)).tries_used == 1


def test_a_reset_of_a_fresh_stream_is_an_ordinary_failure() -> None:
    assert left(Attempts().after(StreamBroken(), A)).failed == {A}


def test_a_full_agent_is_busy_and_not_failed() -> None:
    attempts = left(Attempts().after(Busy(), A))
    assert (attempts.busy, attempts.failed, attempts.tries_used) == (frozenset({A}), frozenset(), 1)
    assert attempts.after_wait().busy == frozenset()
    assert attempts.after_wait().tries_used == 1


def test_the_end_of_time_ends_the_request() -> None:
    verdict = Attempts().after(TimedOut(), A)
    assert isinstance(verdict, GiveUp)
    assert (verdict.error.code, verdict.error.status) == (ErrorCode.REQUEST_TIMEOUT, 504)


# What may have been carried out


def test_what_engines_die_of_goes_to_one_other_agent_and_no_further() -> None:
    once = Attempts(tries_max=5).after(StreamBroken(), A, was_taken=True)
    assert isinstance(once, TryAnother)
    assert (once.attempts.is_last_execution, Attempts().is_last_execution) == (True, False)
    twice = once.attempts.after(OVERLOADED, B, was_taken=True)
    assert twice == GiveUp(OVERLOADED.reason)


def test_what_an_engine_died_of_lately_is_tried_once() -> None:
    attempts = Attempts().once_only()
    assert attempts.is_last_execution
    assert isinstance(attempts.after(StreamBroken(), A, was_taken=True), GiveUp)
    assert isinstance(attempts.after(StaleStream(), A, was_taken=True), GiveUp)
    assert isinstance(attempts.after(BROKEN, A), TryAnother)


def test_after_a_kept_connection_that_died_under_a_request_another_agent_is_preferred() -> None:
    """field-cases.md O-09."""
    again = Attempts().after(StaleStream(), A, was_taken=True)
    assert isinstance(again, RetrySameFree)
    assert (again.attempts.avoided, again.attempts.failed, again.attempts.tries_used) == (A, frozenset(), 0)
    assert again.attempts.next_step(3).avoided is None


# The final answer


def test_nothing_tried_is_told_as_the_selection_said() -> None:
    assert Attempts().final(NOTHING_TO_SELECT) == NOTHING_TO_SELECT


@pytest.mark.parametrize(
    ("failures", "code", "status"),
    [
        ([OVERLOADED], ErrorCode.BACKEND_UNAVAILABLE, 503),
        ([OVERLOADED, BROKEN], ErrorCode.BACKEND_ERROR, 502),
        ([BROKEN, OVERLOADED], ErrorCode.BACKEND_UNAVAILABLE, 503),
        ([LinkDead()], ErrorCode.AGENT_DISCONNECTED, 503),
        ([StreamBroken()], ErrorCode.BACKEND_UNAVAILABLE, 503),
        ([Busy()], ErrorCode.NO_CAPACITY, 503),
        ([BROKEN, Busy()], ErrorCode.BACKEND_ERROR, 502),
        ([Busy(), BROKEN], ErrorCode.BACKEND_ERROR, 502),
    ],
)
def test_the_last_real_error_is_what_the_client_is_told(failures: list[Failure], code: ErrorCode, status: int) -> None:
    """http-api.md §15, 7."""
    attempts = Attempts()
    for failure, peer in zip(failures, (A, B, C), strict=False):
        attempts = left(attempts.after(failure, peer))
    said = attempts.next_step(3).final(NOTHING_TO_SELECT)
    assert (said.code, said.status) == (code, status)


def test_the_backends_time_to_come_back_is_kept() -> None:
    assert left(Attempts().after(OVERLOADED, A)).final(NOTHING_TO_SELECT).retry_after_s == 7.0


@pytest.mark.parametrize(
    ("failure", "mark"),
    [
        (StaleStream(), Mark.NONE),
        (Busy(), Mark.NONE),
        (TOO_LONG, Mark.NONE),
        (LinkDead(), Mark.CONNECTION),
        (StreamBroken(), Mark.APPLICATION),
        (TimedOut(), Mark.APPLICATION),
        (OVERLOADED, Mark.APPLICATION),
        (BROKEN, Mark.APPLICATION),
    ],
)
def test_only_its_own_failures_are_held_against_an_agent(failure: Failure, mark: Mark) -> None:
    assert mark_of(failure) is mark


FAILURES: list[Failure] = [LinkDead(), StaleStream(), StreamBroken(), Busy(), OVERLOADED, BROKEN]


@given(st.lists(st.tuples(st.sampled_from(FAILURES), st.sampled_from([A, B, C]))), st.integers(1, 5))
def test_a_step_ends_after_its_tries_and_one_favour_for_each_agent(
    script: list[tuple[Failure, PeerId]], tries_max: int
) -> None:
    attempts, forwards, spent = Attempts(tries_max=tries_max), 0, False
    for failure, peer in script:
        verdict = attempts.after(failure, peer)
        forwards += 1
        attempts = left(verdict)
        spent = isinstance(verdict, StepSpent)
        if spent:
            break
    assert forwards == attempts.tries_used + len(attempts.forgiven)
    assert attempts.tries_used <= tries_max
    assert spent == (attempts.tries_used == tries_max)


@given(
    st.lists(st.tuples(st.sampled_from(FAILURES), st.sampled_from([A, B, C]), st.booleans()), min_size=12),
    st.integers(1, 5),
)
def test_no_request_may_be_carried_out_more_than_twice(
    script: list[tuple[Failure, PeerId, bool]], tries_max: int
) -> None:
    attempts, executions = Attempts(tries_max=tries_max), 0
    for failure, peer, was_taken in script:
        verdict = attempts.after(failure, peer, was_taken=was_taken)
        executions += was_taken
        if isinstance(verdict, GiveUp):
            break
        attempts = verdict.attempts
        assert attempts.is_last_execution == (executions == 1)
        attempts = attempts.next_step(tries_max) if isinstance(verdict, StepSpent) else attempts
    assert executions <= EXECUTIONS_MAX
