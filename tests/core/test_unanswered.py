"""When does an agent hang, and who is taken away from it?"""

from dataclasses import dataclass

import pytest
from tests.core.making import START

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.unanswered import SUSPECT_SHARE_MAX_S, Unanswered


def at(s: float) -> Monotonic:
    return Monotonic(START + s)


@dataclass(frozen=True)
class Asked:
    """A request that was sent so many seconds after the start and has a minute."""

    number: int
    sent_s: float = 0.0
    left_s: float = 60.0

    @property
    def since(self) -> Monotonic:
        return at(self.sent_s)

    @property
    def deadline(self) -> Monotonic:
        return at(self.sent_s + self.left_s)


def crowd_of(number: int, *, left_s: float = 60.0) -> tuple[Unanswered[Asked], list[Asked]]:
    crowd: Unanswered[Asked] = Unanswered()
    asked = [Asked(n, left_s=left_s) for n in range(number)]
    for one in asked:
        crowd.sent(one)
    return crowd, asked


def taken(crowd: Unanswered[Asked], now_s: float, *, failures_left: int = 3) -> list[int]:
    """Who is taken away now, as the room does it."""
    numbers = []
    for request in crowd.overdue(failures_left=failures_left, now=at(now_s)):
        numbers.append(request.number)
        crowd.ended(request)
        if not crowd.hangs:
            crowd.witness_left(until=request.deadline)
    return numbers


def test_as_many_as_may_still_fail_are_left_alone() -> None:
    crowd, _ = crowd_of(3)
    assert taken(crowd, 59.0) == []


def test_of_more_the_first_one_goes_when_half_of_its_time_is_over_and_only_one() -> None:
    crowd, _ = crowd_of(6)
    assert taken(crowd, 29.9) == []
    assert taken(crowd, 30.0) == [0]
    assert taken(crowd, 59.0) == []


def test_all_follow_a_witness_who_got_an_answer_elsewhere() -> None:
    crowd, _ = crowd_of(6)
    crowd.sent(Asked(6, sent_s=20.0))
    assert taken(crowd, 30.0) == [0]
    assert crowd.witness_ended(is_answered=True)
    assert taken(crowd, 31.0) == [1, 2, 3, 4, 5]
    assert taken(crowd, 50.0) == [6]


def test_a_witness_without_an_answer_proves_nothing_and_another_one_goes() -> None:
    crowd, _ = crowd_of(6)
    assert taken(crowd, 30.0) == [0]
    assert not crowd.witness_ended(is_answered=False)
    assert not crowd.hangs
    assert taken(crowd, 31.0) == [1]


def test_a_witness_that_is_never_heard_of_again_counts_until_its_time_is_over() -> None:
    crowd, _ = crowd_of(1, left_s=20.0)
    for number in range(1, 6):
        crowd.sent(Asked(number, left_s=30.0))
    assert taken(crowd, 10.0) == [0]
    assert taken(crowd, 19.9) == []
    assert taken(crowd, 20.0) == [1]


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_any_answer_of_the_agent_ends_what_was_thought_of_it(is_confirmed: bool) -> None:
    crowd, asked = crowd_of(6)
    assert taken(crowd, 30.0) == [0]
    if is_confirmed:
        crowd.witness_ended(is_answered=True)
    crowd.ended(asked[1])
    crowd.answered(now=at(31.0))
    assert not crowd.hangs
    # A witness that is answered later has been overtaken.
    assert not crowd.witness_ended(is_answered=True)
    assert taken(crowd, 59.0) == []


def test_half_of_the_time_counts_from_the_agents_last_answer() -> None:
    crowd, asked = crowd_of(6)
    crowd.answered(now=at(10.0))
    crowd.ended(asked[5])
    assert taken(crowd, 39.9) == []
    assert taken(crowd, 40.0) == [0]


def test_a_suspect_has_nobody_left_and_half_a_minute_at_most() -> None:
    crowd, _ = crowd_of(1, left_s=600.0)
    assert taken(crowd, SUSPECT_SHARE_MAX_S - 0.1, failures_left=0) == []
    assert taken(crowd, SUSPECT_SHARE_MAX_S, failures_left=1) == []
    assert taken(crowd, SUSPECT_SHARE_MAX_S, failures_left=0) == [0]


def test_who_is_due_first_is_told_whatever_the_order_of_sending() -> None:
    crowd, asked = crowd_of(1)
    crowd.sent(Asked(1, sent_s=1.0, left_s=4.0))
    assert crowd.next_due_at(is_suspect=False) == at(3.0)
    assert crowd.due_at(asked[0], is_suspect=False) == at(30.0)
    crowd.ended(asked[0])
    crowd.ended(asked[0])
    crowd.ended(Asked(1, sent_s=1.0, left_s=4.0))
    assert (len(crowd), crowd.next_due_at(is_suspect=False)) == (0, None)
