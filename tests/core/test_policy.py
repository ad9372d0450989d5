"""The evaluation of a step. The order of tests is that of configuration.md §6.4."""

from dataclasses import dataclass

import pytest
from tests.core.making import MODEL, START, A, B, Book, C, described

from hivenet_router.core.agent import Agent
from hivenet_router.core.ids import PeerId
from hivenet_router.core.policy import (
    BUILT_IN_STEP,
    Chosen,
    Hurdle,
    Match,
    NoCandidate,
    PolicyStep,
    choose,
    evaluate,
    may_wait,
    refusal_for,
)
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import Capability

LLM, EMBEDDING = Capability.LLM, Capability.EMBEDDING


@dataclass(frozen=True)
class Above:
    """A gate on utilization, as a policy file will make them."""

    utilization: float

    def excludes(self, agent: Agent) -> bool:
        return agent.capacity_utilization > self.utilization


def outcome(
    book: Book,
    step: PolicyStep = BUILT_IN_STEP,
    capability: Capability = LLM,
    failed: frozenset[str] = frozenset(),
    busy: frozenset[str] = frozenset(),
) -> Chosen | NoCandidate:
    failed_peers = frozenset(peer for peer in (A, B, C) if peer in failed)
    busy_peers = frozenset(peer for peer in (A, B, C) if peer in busy)
    pool = book.registry.pool(MODEL)
    found = evaluate(step, pool, capability, failed_peers, busy_peers, now=START)
    assert may_wait(step, pool, capability, failed_peers, busy_peers) == (
        isinstance(found, NoCandidate) and found.may_wait
    ) or isinstance(found, Chosen)
    return found


def none_of(found: Chosen | NoCandidate) -> NoCandidate:
    assert isinstance(found, NoCandidate)
    return found


def test_an_unknown_model_has_no_agents() -> None:
    found = none_of(outcome(Book()))
    assert (found.registered, found.emptied_by, found.may_wait) == (0, Hurdle.MODEL_FILTER, False)
    assert choose(BUILT_IN_STEP, None, LLM, now=START) is None


def test_a_free_agent_is_chosen() -> None:
    book = Book()
    agent = book.join(A)
    assert outcome(book) == Chosen(agent)


@pytest.mark.parametrize("way", ["backend", "silence", "link"])
def test_an_agent_out_of_routing_counts_as_unhealthy(way: str) -> None:
    book = Book()
    agent = book.join(A)
    if way == "backend":
        book.registry.heartbeat(A, backend_healthy=False, now=START)
    elif way == "silence":
        book.registry.fell_silent(agent)
    else:
        book.registry.link_down(A)
    found = none_of(outcome(book))
    assert (found.unhealthy, found.emptied_by) == (1, Hurdle.HEALTH)


def test_each_agent_is_counted_at_its_first_failing_test() -> None:
    book = Book()
    book.join(A, described(1, capability="embedding", region="elsewhere"), active=1)
    book.join(B, described(1, region="elsewhere"), active=1)
    book.join(C, described(1), active=1)
    step = PolicyStep("s", Match(region="EU-France"))
    found = none_of(outcome(book, step, failed=frozenset({A, B})))
    assert (found.wrong_capability, found.not_matching, found.failed_in_step, found.full) == (1, 1, 0, 1)
    assert (found.registered, found.emptied_by, found.may_wait) == (3, Hurdle.CAPACITY, True)


def test_an_agent_that_failed_in_this_step_is_left_out() -> None:
    book = Book()
    book.join(A)
    other = book.join(B, active=1)
    assert outcome(book, failed=frozenset({A})) == Chosen(other)
    found = none_of(outcome(book, failed=frozenset({A, B})))
    assert (found.failed_in_step, found.emptied_by, found.may_wait) == (2, Hurdle.PREV_FAILURES, False)


def test_full_agents_that_would_match_are_worth_a_wait_whatever_the_others_lack() -> None:
    """configuration.md §6.4, seed: agents outside the match must not matter."""
    book = Book()
    book.join(A, described(1), active=1)
    book.join(B, described(region="elsewhere"))
    assert none_of(outcome(book, PolicyStep("s", Match(region="EU-France")))).may_wait


def test_an_agent_that_said_it_was_full_counts_as_full() -> None:
    book = Book()
    book.join(A)
    found = none_of(outcome(book, busy=frozenset({A})))
    assert (found.full, found.may_wait) == (1, True)


def test_a_gate_drains_the_pool_last_and_is_not_asked_about_full_agents() -> None:
    book = Book()
    book.join(A, described(2), active=1)
    gated = PolicyStep("s", gates=(Above(0.4),))
    found = none_of(outcome(book, gated))
    assert (found.gated, found.emptied_by, found.may_wait) == (1, Hurdle.EXCLUDE_IF, False)
    book.join(B, described(2), active=2)
    assert none_of(outcome(book, gated)).may_wait
    free = book.join(C, described(10))
    assert outcome(book, gated) == Chosen(free)


@dataclass
class Counting:
    """A gate that lets everybody pass and counts who asked."""

    asked: int = 0

    def excludes(self, agent: Agent) -> bool:
        self.asked += 1
        return False


def test_a_choice_among_a_thousand_agents_looks_at_one() -> None:
    book = Book()
    for number in range(1000):
        book.join(PeerId(f"12D3KooW{number:04}"), active=number % 3)
    gate = Counting()
    found = outcome(book, PolicyStep("s", gates=(gate,)))
    assert isinstance(found, Chosen)
    assert (found.agent.peer, gate.asked) == ("12D3KooW0000", 1)


@pytest.mark.parametrize(
    ("match", "accepted"),
    [
        (Match(), True),
        (Match(region="EU-France", engine="vllm", organization="ml-team", machine="gpu-1"), True),
        (Match(region="EU"), False),
        (Match(region="eu-france"), False),
        (Match(engine="ollama"), False),
        (Match(organization="other"), False),
        (Match(machine="gpu-2"), False),
        (Match(gpu_model="H100"), False),
        (Match(tags=frozenset({"production", "a100"})), True),
        (Match(tags=frozenset({"production", "b200"})), False),
        (Match(tags=frozenset({""})), False),
    ],
)
def test_a_match_is_exact_and_needs_every_field_and_tag(match: Match, accepted: bool) -> None:
    metadata = described(tags=("production", "high-memory", "a100"))
    assert match.accepts(metadata) is accepted


# What the client is told


def refused(book: Book, capability: Capability = LLM, failed: frozenset[str] = frozenset()) -> tuple[str, int, str]:
    said = refusal_for(none_of(outcome(book, capability=capability, failed=failed)), MODEL, capability)
    return said.code, said.status, said.message


def test_an_unknown_model_is_not_found() -> None:
    code, status, message = refused(Book())
    assert (code, status) == (ErrorCode.MODEL_NOT_FOUND, 404)
    assert "'m'" in message


def test_a_model_of_another_capability_is_the_clients_mistake_and_is_named() -> None:
    """http-api.md §15, 7."""
    book = Book()
    book.join(A, described(capability="reranker"))
    book.join(B, described(capability="embedding"))
    book.registry.link_down(B)
    code, status, message = refused(book)
    assert (code, status) == (ErrorCode.REQUEST_INVALID, 400)
    assert "embedding and reranker" in message
    assert "llm" in message


def test_full_agents_are_no_capacity_with_a_time_to_come_back() -> None:
    book = Book()
    book.join(A, described(1), active=1)
    book.join(B)
    book.registry.link_down(B)
    assert refused(book)[:2] == (ErrorCode.NO_CAPACITY, 503)
    assert refusal_for(none_of(outcome(book)), MODEL, LLM).retry_after_s == 1.0


def test_unhealthy_agents_are_none_available() -> None:
    book = Book()
    book.join(A)
    book.registry.link_down(A)
    code, status, message = refused(book)
    assert (code, status) == (ErrorCode.NO_AGENTS_AVAILABLE, 503)
    assert "healthy" in message


def test_mixed_reasons_are_none_available() -> None:
    book = Book()
    book.join(A)
    book.join(B, described(capability="embedding"))
    book.join(C)
    book.registry.link_down(C)
    code, status, message = refused(book, failed=frozenset({A}))
    assert (code, status) == (ErrorCode.NO_AGENTS_AVAILABLE, 503)
    assert "healthy" not in message
