"""Which bodies engines died of: for a minute, so many, and none that was answered since."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.core.making import START, at

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.deadly import REMEMBERED_MAX, REMEMBERED_S, DeadlyBodies


def test_a_body_is_remembered_for_a_minute_after_its_last_death() -> None:
    bodies = DeadlyBodies()
    bodies.died_of(5, b"a", now=START)
    bodies.died_of(5, b"b", now=at(1))
    bodies.died_of(5, b"a", now=at(2))
    assert bodies.holds(5, b"b", now=at(REMEMBERED_S + 0.9))
    assert not bodies.holds(5, b"b", now=at(REMEMBERED_S + 1))
    assert bodies.holds(5, b"a", now=at(REMEMBERED_S + 1.9))
    assert not bodies.holds(5, b"a", now=at(REMEMBERED_S + 2))
    assert len(bodies) == 0


def test_only_so_many_are_remembered() -> None:
    bodies = DeadlyBodies()
    for number in range(REMEMBERED_MAX + 1):
        bodies.died_of(number, b"a", now=START)
    assert len(bodies) == REMEMBERED_MAX
    assert not bodies.may_hold(0, now=START)
    assert bodies.may_hold(1, now=START)


class Memory(RuleBasedStateMachine):
    """Against a plain map of deaths."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = DeadlyBodies()
        self.deaths: dict[tuple[int, bytes], float] = {}
        self.seconds = 0.0

    sizes = st.integers(0, 2)
    digests = st.sampled_from([b"a", b"b"])

    @rule(size=sizes, digest=digests)
    def dies(self, size: int, digest: bytes) -> None:
        self.bodies.died_of(size, digest, now=self.now)
        self.deaths[size, digest] = self.seconds

    @rule(size=sizes, digest=digests)
    def is_served(self, size: int, digest: bytes) -> None:
        self.bodies.served(size, digest)
        self.deaths.pop((size, digest), None)

    @rule(seconds=st.sampled_from([0.5, 20.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.seconds += seconds

    @property
    def now(self) -> Monotonic:
        return at(self.seconds)

    @invariant()
    def agrees(self) -> None:
        alive = {key for key, died in self.deaths.items() if self.seconds < died + REMEMBERED_S}
        for size in range(3):
            assert self.bodies.may_hold(size, now=self.now) == any(known == size for known, _ in alive)
            for digest in (b"a", b"b"):
                assert self.bodies.holds(size, digest, now=self.now) == ((size, digest) in alive)
        assert len(self.bodies) == len(alive)


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=50, stateful_step_count=30)
