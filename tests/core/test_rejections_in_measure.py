"""A flood of rejections is counted, not written down one by one, and nothing of it is lost."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.rejections import (
    KINDS_MAX,
    LINES_PER_S_MAX,
    MANY_CLIENTS,
    MANY_REASONS,
    TELL_EVERY_S,
    Rations,
    Rejection,
    Rejections,
    Told,
)

START = Monotonic(1000.0)
GARBAGE = Rejection("api", "192.0.2.1", 400, "request_line")


def later(seconds: float) -> Monotonic:
    return Monotonic(START + seconds)


def test_the_first_is_told_at_once_and_those_that_follow_once_a_minute() -> None:
    rejections = Rejections()
    assert rejections.add(GARBAGE, now=START) == Told(GARBAGE, 1)
    assert [rejections.add(GARBAGE, now=later(second)) for second in (0.0, 1.0, 59.0)] == [None] * 3
    assert rejections.due(now=later(TELL_EVERY_S - 1)) == []
    assert rejections.due(now=later(TELL_EVERY_S)) == [Told(GARBAGE, 3)]
    assert rejections.add(GARBAGE, now=later(TELL_EVERY_S + 1)) is None
    assert rejections.due(now=later(TELL_EVERY_S + 5)) == []
    assert rejections.due(now=later(2 * TELL_EVERY_S)) == [Told(GARBAGE, 1)]


def test_after_a_silent_minute_the_next_is_news_again() -> None:
    rejections = Rejections()
    rejections.add(GARBAGE, now=START)
    assert rejections.due(now=later(TELL_EVERY_S)) == []
    assert rejections.add(GARBAGE, now=later(TELL_EVERY_S + 1)) == Told(GARBAGE, 1)


def test_another_client_and_another_reason_are_news() -> None:
    rejections = Rejections()
    rejections.add(GARBAGE, now=START)
    for other in (Rejection("api", "192.0.2.2", 400, "request_line"), Rejection("api", "192.0.2.1", 431, "head")):
        assert rejections.add(other, now=START) == Told(other, 1)


def test_clients_beyond_the_bound_are_told_as_one() -> None:
    rejections = Rejections()
    told = [rejections.add(Rejection("api", f"client-{n}", 400, "x"), now=START) for n in range(KINDS_MAX + 50)]
    assert sum(each is not None for each in told) == KINDS_MAX + 1
    assert Told(Rejection("api", MANY_CLIENTS, 400, "x"), 49) in rejections.due(now=later(TELL_EVERY_S))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 40)), max_size=60))
def test_what_is_told_is_all_that_was_added(steps: list[tuple[str, float]]) -> None:
    rejections, added, told, now = Rejections(), Counter[str](), Counter[str](), START
    lines = 0

    def tell(each: Told) -> None:
        told[each.rejection.client] += each.times

    for client, pause_s in steps:
        now = Monotonic(now + pause_s)
        added[client] += 1
        for each in (rejections.add(Rejection("api", client, 400, "x"), now=now), *rejections.due(now=now)):
            if each is not None:
                tell(each)
                lines += 1
    for each in rejections.due(now=Monotonic(now + TELL_EVERY_S + 1)):
        tell(each)
    assert told == added
    assert lines <= 3 * (2 + (now - START) / TELL_EVERY_S)


def test_whoever_can_word_the_reason_gets_no_line_for_each() -> None:
    rejections = Rejections()
    told = [
        rejections.add(Rejection("", "", 0, f"reason {n}", "agent_message_refused", f"peer-{n}", "/p"), now=START)
        for n in range(4 * KINDS_MAX)
    ]
    assert sum(each is not None for each in told) == 2 * KINDS_MAX + 1
    rest = Rejection("", "", 0, MANY_REASONS, "agent_message_refused", MANY_CLIENTS)
    assert Told(rest, 2 * KINDS_MAX - 1) in rejections.due(now=later(TELL_EVERY_S))


def test_a_ration_lets_ten_a_second_through_and_counts_the_rest() -> None:
    rations = Rations()
    taken = [rations.take("m", now=later(0.5)) for _ in range(25)]
    assert taken == [0] * LINES_PER_S_MAX + [None] * 15
    assert rations.take("n", now=later(0.5)) == 0
    assert rations.take("m", now=later(1.4)) is None
    assert rations.take("m", now=later(1.5)) == 16
    assert rations.due(now=later(2.4)) == []


def test_what_was_held_back_is_told_after_the_last_one_too() -> None:
    rations = Rations()
    for _ in range(12):
        rations.take("m", now=START)
    assert rations.due(now=later(1.0)) == [("m", 2)]
    assert rations.due(now=later(2.0)) == []


def test_names_without_number_share_one_ration() -> None:
    rations = Rations()
    taken = [rations.take(f"m{n}", now=START) for n in range(KINDS_MAX + 50)]
    assert sum(each is not None for each in taken) == KINDS_MAX + LINES_PER_S_MAX
    assert rations.due(now=later(1.0)) == [(MANY_CLIENTS, 40)]


@given(st.lists(st.floats(0, 0.4), max_size=80))
def test_no_second_has_more_lines_than_its_ration_and_no_line_is_lost(pauses: list[float]) -> None:
    rations, now, told_at, suppressed = Rations(), START, list[float](), 0
    for pause_s in pauses:
        now = Monotonic(now + pause_s)
        before = rations.take("m", now=now)
        if before is not None:
            told_at.append(now)
            suppressed += before
    suppressed += sum(count for _, count in rations.due(now=Monotonic(now + 1.5)))
    assert len(told_at) + suppressed == len(pauses)
    assert all(later_one - first >= 1.0 for first, later_one in zip(told_at, told_at[LINES_PER_S_MAX:], strict=False))
