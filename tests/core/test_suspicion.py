"""An agent that keeps failing is left alone in growing pauses, and soon back when it has recovered. Virtual time."""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.making import MODEL, START, A, B, Book, C, at, described

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId
from hivenet_router.core.outcomes import Mark
from hivenet_router.core.policy import BUILT_IN_STEP, choose
from hivenet_router.core.slots import Slot
from hivenet_router.core.suspicion import Suspicion
from hivenet_router.names.paths import Capability

SUSPECT_AFTER = 3


def pick(book: Book, now: Monotonic, without: frozenset[PeerId] = frozenset()) -> Agent | None:
    return choose(BUILT_IN_STEP, book.registry.pool(MODEL), Capability.LLM, without, now=now)


def fail(book: Book, agent: Agent, now: Monotonic, chance: float = 0.5, times: int = 1) -> None:
    for _ in range(times):
        agent.outcomes.failed(Mark.APPLICATION, now=now, suspect_after=SUSPECT_AFTER, chance=chance)
    book.registry.judged(agent)


def succeed(book: Book, agent: Agent) -> None:
    agent.outcomes.succeeded(sample_s=0.1)
    book.registry.judged(agent)


# One pause after another


def test_a_pause_doubles_up_to_two_minutes_at_each_failed_try() -> None:
    suspicion, now, pauses = Suspicion.beginning(now=START, chance=0.5), START, []
    for _ in range(6):
        pauses.append(suspicion.due_at - now)
        now = suspicion.due_at
        suspicion = suspicion.after_try_began(now=now).after_failure(now=now, chance=0.5)
    assert pauses == [10, 20, 40, 80, 120, 120]


@given(st.floats(0, 1, exclude_max=True))
def test_chance_moves_a_pause_by_a_tenth_at_most(chance: float) -> None:
    assert 9 <= Suspicion.beginning(now=START, chance=chance).due_at - START <= 11


def test_what_was_at_the_agent_already_lengthens_no_pause() -> None:
    begun = Suspicion.beginning(now=START, chance=0.5)
    assert begun.after_failure(now=at(9), chance=0.5) == begun


def test_a_try_that_learns_nothing_is_followed_by_no_other_before_a_pause() -> None:
    tried = Suspicion.beginning(now=START, chance=0.5).after_try_began(now=at(12))
    assert not tried.is_due(now=at(21))
    assert tried.is_due(now=at(22))


# Choosing


def test_a_suspect_is_not_chosen_whatever_the_loads_while_another_has_a_free_slot() -> None:
    book = Book()
    suspect, other = book.join(A), book.join(B, described(5), active=4)
    fail(book, suspect, START, times=SUSPECT_AFTER)
    assert pick(book, at(9)) is other
    assert book.registry.take_slot(other) is not None
    assert pick(book, at(9)) is suspect


def test_after_its_pause_a_suspect_is_tried_first_by_one_request_at_a_time() -> None:
    book = Book()
    other, suspect = book.join(A), book.join(B, inflight_total=3)
    fail(book, suspect, START, times=SUSPECT_AFTER)
    assert pick(book, at(9.9)) is other
    assert pick(book, at(10)) is suspect
    slot = book.registry.take_slot(suspect)
    suspect.outcomes.try_began(now=at(10))
    assert pick(book, at(25)) is other
    assert slot is not None
    slot.release()
    succeed(book, suspect)
    assert book.registry.pool(MODEL).suspects == set()  # type: ignore[union-attr]


def test_a_request_that_failed_at_the_suspect_goes_to_another() -> None:
    book = Book()
    other, suspect = book.join(A), book.join(B)
    fail(book, suspect, START, times=SUSPECT_AFTER)
    assert pick(book, at(10), frozenset({B})) is other


def test_an_agent_that_is_alone_serves_however_suspect_it_is() -> None:
    book = Book()
    suspect = book.join(A)
    fail(book, suspect, START, times=20)
    assert pick(book, START) is suspect


def test_among_suspects_the_one_that_failed_longest_ago_comes_first() -> None:
    book = Book()
    earlier, later = book.join(B), book.join(A)
    fail(book, earlier, START, times=SUSPECT_AFTER)
    fail(book, later, at(1), times=SUSPECT_AFTER)
    assert pick(book, at(2)) is earlier


def test_nobody_is_suspect_when_that_is_turned_off() -> None:
    book = Book()
    agent = book.join(A)
    for _ in range(50):
        agent.outcomes.failed(Mark.APPLICATION, now=START, suspect_after=0)
    assert agent.outcomes.suspicion is None


def test_a_lost_link_makes_no_suspect() -> None:
    book = Book()
    agent = book.join(A)
    for _ in range(50):
        agent.outcomes.failed(Mark.CONNECTION, now=START, suspect_after=SUSPECT_AFTER)
    assert agent.outcomes.suspicion is None


def test_a_suspect_stays_one_when_it_moves_to_another_model_and_none_is_left_behind() -> None:
    book = Book()
    agent = book.join(A)
    book.join(B)
    fail(book, agent, START, times=SUSPECT_AFTER)
    book.registry.register(A, described(model=type(MODEL)("other")), now=START)
    pools = [book.registry.pool(type(MODEL)(name)) for name in (MODEL, "other")]
    assert [pool.suspects if pool else None for pool in pools] == [set(), {A}]
    book.registry.remove(A, now=START)
    assert book.registry.pool(type(MODEL)("other")) is None


# Whole hours of it


@dataclass
class Town:
    """Clients, agents and time. `A` is bad from the beginning until `recovers_at_s`; the others are good."""

    takes_s: float
    recovers_at_s: float
    chances: Iterator[float]
    book: Book = field(default_factory=Book)
    ends: list[tuple[float, int, Slot, bool]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    tries_of_bad: list[float] = field(default_factory=list)
    failures: list[float] = field(default_factory=list)

    def until(self, seconds: float) -> None:
        """Let end what ends by then."""
        while self.ends and self.ends[0][0] <= seconds:
            end, _, slot, is_good = heapq.heappop(self.ends)
            if is_good:
                succeed(self.book, slot.agent)
            else:
                self.failures.append(end)
                fail(self.book, slot.agent, at(end), chance=next(self.chances))
            slot.release()

    def request(self, seconds: float) -> Agent:
        """A client asks at this second."""
        self.until(seconds)
        agent = pick(self.book, at(seconds))
        assert agent is not None
        slot = self.book.registry.take_slot(agent)
        assert slot is not None
        agent.outcomes.try_began(now=at(seconds))
        is_good = agent.peer != A or seconds >= self.recovers_at_s
        if agent.peer == A:
            self.tries_of_bad.append(seconds)
        heapq.heappush(self.ends, (seconds + (0.05 if is_good else self.takes_s), next(self.numbers), slot, is_good))
        return agent


TOWNS = {
    "takes_s": st.sampled_from([0.0, 0.4, 2.0, 7.0, 30.0]),
    "gaps_s": st.lists(st.floats(0.001, 0.8), min_size=5, max_size=40),
    "chances": st.lists(st.floats(0, 1, exclude_max=True), min_size=5, max_size=5),
}


def _for_ever(values: list[float]) -> Iterator[float]:
    while True:
        yield from values


def _play(town: Town, gaps_s: list[float], *, until_s: float) -> Agent | None:
    seconds, gaps, agent = 0.0, _for_ever(gaps_s), None
    while seconds < until_s:
        agent = town.request(seconds)
        seconds += next(gaps)
    return agent


@settings(max_examples=40, deadline=None)
@given(**TOWNS)
def test_once_an_agent_has_failed_it_gets_three_tries_and_then_one_in_each_growing_pause(
    takes_s: float, gaps_s: list[float], chances: list[float]
) -> None:
    town = Town(takes_s, float("inf"), _for_ever(chances))
    town.book.join(A, described(100))
    town.book.join(B, described(100))
    _play(town, gaps_s, until_s=600)
    assert town.failures
    first = town.failures[0]
    before = [tried for tried in town.tries_of_bad if tried < first]
    after = [tried for tried in town.tries_of_bad if tried >= first]
    streak = max(0, SUSPECT_AFTER - len(before))
    assert all(later - sooner >= 9 for sooner, later in zip(after[streak:], after[streak + 1 :], strict=False))
    # Pauses of 9, 18, 36, 72 and then of 108 s at the least.
    assert len(after) <= streak + 9


@settings(max_examples=25, deadline=None)
@given(**TOWNS, bad_for_s=st.floats(1, 12))
def test_a_recovered_agent_is_back_within_half_a_minute(
    takes_s: float, gaps_s: list[float], chances: list[float], bad_for_s: float
) -> None:
    town = Town(min(takes_s, 2.0), bad_for_s, _for_ever(chances))
    bad = town.book.join(A, described(100))
    town.book.join(B, described(100))
    _play(town, gaps_s, until_s=bad_for_s + 30)
    town.until(bad_for_s + 30)
    assert bad.outcomes.suspicion is None
    assert town.tries_of_bad[-1] > bad_for_s


@settings(max_examples=10, deadline=None)
@given(**TOWNS, bad_for_s=st.floats(600, 900))
def test_after_a_long_streak_a_recovered_agent_is_back_within_two_and_a_half_minutes(
    takes_s: float, gaps_s: list[float], chances: list[float], bad_for_s: float
) -> None:
    town = Town(min(takes_s, 2.0), bad_for_s, _for_ever(chances))
    bad = town.book.join(A, described(100))
    town.book.join(C, described(100))
    _play(town, gaps_s, until_s=bad_for_s + 150)
    town.until(bad_for_s + 150)
    assert bad.outcomes.suspicion is None


@pytest.mark.parametrize("takes_s", [0.0, 2.0])
def test_a_lone_suspect_gets_every_request(takes_s: float) -> None:
    town = Town(takes_s, 100.0, _for_ever([0.5]))
    town.book.join(A, described(100))
    for second in range(200):
        assert town.request(float(second)).peer == A
