"""Least loaded first. The examples are those of signals.md §4."""

from hypothesis import given
from hypothesis import strategies as st
from tests.core.making import MODEL, START, A, B, Book, C, at, described

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId
from hivenet_router.core.outcomes import Mark
from hivenet_router.core.policy import BUILT_IN_STEP, choose
from hivenet_router.core.ranking import least_loaded, load_ratio
from hivenet_router.names.paths import Capability


def order(book: Book, *, now: Monotonic = START) -> list[PeerId]:
    pool = book.registry.pool(MODEL)
    assert pool is not None
    return [agent.peer for agent in least_loaded(pool.ranked(), now=now)]


def test_the_smallest_share_of_its_capacity_comes_first() -> None:
    """EX-4.1: 4/20, 8/20 and 5/10."""
    book = Book()
    book.join(C, described(20), active=4)
    book.join(B, described(20), active=8)
    book.join(A, described(10), active=5)
    assert order(book) == [C, B, A]


def test_an_equal_share_goes_to_the_smaller_peer_id() -> None:
    """EX-4.2 and EX-4.3: 1/2 equals 5/10, and idle is idle."""
    book = Book()
    book.join(B, described(2), active=1)
    book.join(A, described(10), active=5)
    assert order(book) == [A, B]
    idle = Book()
    idle.join(B, described(1))
    idle.join(A, described(100))
    assert order(idle) == [A, B]


def test_the_larger_of_our_count_and_the_agents_own_counts() -> None:
    """EX-4.4: own 1, reported 6 against own 3, reported 3."""
    book = Book()
    book.join(A, described(10), active=1, inflight_total=6)
    book.join(B, described(10), active=3, inflight_total=3)
    assert order(book) == [B, A]


def test_a_running_stream_counts_after_it_gave_its_slot_back() -> None:
    """decisions.md 2."""
    book = Book()
    agent = book.join(A, described(10))
    slot = book.registry.take_slot(agent)
    assert slot is not None
    slot.headers_arrived()
    assert (agent.active_slots, load_ratio(agent)) == (0, 0.1)


def test_single_requests_to_idle_agents_all_go_to_the_smaller_peer_id() -> None:
    """EX-4.5."""
    book = Book()
    book.join(B)
    book.join(A)
    for _ in range(3):
        agent = choose(BUILT_IN_STEP, book.registry.pool(MODEL), Capability.LLM, now=START)
        assert agent is not None
        assert agent.peer == A
        slot = book.registry.take_slot(agent)
        assert slot is not None
        slot.release()


def test_among_equal_shares_an_agent_that_failed_lately_comes_last() -> None:
    book = Book()
    book.join(A).outcomes.failed(Mark.APPLICATION, now=START)
    book.join(B)
    assert order(book, now=at(9.9)) == [B, A]
    assert order(book, now=at(10.0)) == [A, B]


def test_an_agent_whose_last_word_was_a_failure_comes_last_for_ten_seconds_whatever_the_loads() -> None:
    """decisions.md 36: a load reported half a second ago may be over."""
    book = Book()
    book.join(A).outcomes.failed(Mark.APPLICATION, now=START)
    book.join(B, active=1)
    assert order(book, now=at(9.9)) == [B, A]
    assert order(book, now=at(10.0)) == [A, B]


def test_a_smaller_share_outweighs_a_failure_before_a_success_or_on_the_way() -> None:
    book = Book()
    recovered = book.join(A).outcomes
    recovered.failed(Mark.APPLICATION, now=START)
    recovered.succeeded(sample_s=0.1)
    book.join(B, active=2)
    book.join(C, active=1).outcomes.failed(Mark.CONNECTION, now=START)
    assert order(book) == [A, C, B]


def test_while_an_agent_fails_its_unanswered_requests_count_like_failures() -> None:
    book = Book()
    failing = book.join(A)
    failing.outcomes.failed(Mark.APPLICATION, now=START, suspect_after=3)
    book.join(B, active=5)
    later = at(11)
    for expected in ([A, B], [A, B], [B, A]):
        assert order(book, now=later) == expected
        assert book.registry.take_slot(failing) is not None


FAILED_AFTER_S = st.none() | st.sampled_from([0.0, 5.0, 9.0])


def _slow_order(agents: list[Agent], now: Monotonic) -> list[PeerId]:
    def key(agent: Agent) -> tuple[bool, float, PeerId]:
        failed_at = agent.outcomes.last_failure_at
        return failed_at is not None and now - failed_at < 10, load_ratio(agent), agent.peer

    return [agent.peer for agent in sorted(agents, key=key)]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4), st.integers(0, 3), st.integers(0, 6), st.none() | st.sampled_from([0.0, 5.0, 9.0])
        ),
        max_size=8,
    ),
    st.sampled_from([0.0, 9.5, 12.0, 20.0]),
)
def test_the_lazy_order_is_the_plain_sort(drawn: list[tuple[int, int, int, float | None]], after_s: float) -> None:
    book = Book()
    agents: list[Agent] = []
    for number, (capacity, active, inflight_total, failed_after_s) in enumerate(drawn):
        peer = PeerId(f"12D3KooW{(number * 7) % 10}")
        agent = book.join(peer, described(capacity), active=min(active, capacity), inflight_total=inflight_total)
        if failed_after_s is not None:
            agent.outcomes.failed(Mark.APPLICATION, now=at(failed_after_s))
        agents.append(agent)
    open_agents = [agent for agent in agents if agent.free_slots > 0]
    assert (order(book, now=at(after_s)) if agents else []) == _slow_order(open_agents, at(after_s))
