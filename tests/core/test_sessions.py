"""Sessions: one peer each, bounded, ending in time; and the same against a plain model under any order of events."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId
from hivenet_router.core.sessions import Registered, Session, SessionDenied, SessionStore
from hivenet_router.wire.auth_messages import AgentMetadata
from hivenet_router.wire.identity import identity_from_seed, peer_id_cid
from hivenet_router.wire.jwt import subject_of

PEERS = [PeerId(identity_from_seed(bytes([number]) * 32).peer_id) for number in range(4)]
ALICE, BOB = PEERS[:2]
METADATA = AgentMetadata(model="m", capacity=1)
T0 = Monotonic(1000.0)


def at(seconds: float) -> Monotonic:
    return Monotonic(T0 + seconds)


def store(**bounds: int) -> SessionStore:
    numbers = itertools.count()
    return SessionStore(lambda: f"token-{next(numbers)}", **bounds)


def opened(sessions: SessionStore, peer: PeerId = ALICE, *, now: Monotonic = T0) -> str:
    session = sessions.open(subject_of(peer), METADATA, now=now)
    assert session is not None
    return session.token


def registered(sessions: SessionStore, peer: PeerId = ALICE, *, now: Monotonic = T0) -> str:
    token = opened(sessions, peer, now=now)
    assert isinstance(sessions.register(token, peer, sender=peer, now=now), Registered)
    return token


def test_a_session_begins_without_a_peer_and_ends_after_an_hour() -> None:
    session = store().open("agent-x", METADATA, now=T0)

    assert session == Session("token-0", "agent-x", METADATA, T0, at(3600.0), None)
    assert "token-0" not in repr(session)


def test_a_registered_token_names_its_session_until_it_expires_however_much_it_is_used() -> None:
    sessions = store()
    token = registered(sessions)

    for second in range(0, 3600, 5):
        assert isinstance(sessions.resolve(token, sender=ALICE, now=at(second)), Session)
    assert sessions.resolve(token, sender=ALICE, now=at(3600)) is SessionDenied.UNKNOWN
    assert len(sessions) == 0


def test_before_register_an_agent_is_not_found() -> None:
    sessions = store()

    assert sessions.resolve(opened(sessions), sender=ALICE, now=T0) is SessionDenied.NOT_REGISTERED


def test_a_denial_is_the_answer_of_the_wire() -> None:
    assert [denied.value.status for denied in SessionDenied] == [401, 400, 403, 404]


@pytest.mark.parametrize("token", ["", "deadbeef"])
def test_an_unknown_token_is_refused_before_the_peer_id_is_looked_at(token: str) -> None:
    assert store().register(token, "nonsense", sender=ALICE, now=T0) is SessionDenied.UNKNOWN
    assert store().resolve(token, sender=ALICE, now=T0) is SessionDenied.UNKNOWN


def test_a_bad_peer_id_is_refused_and_the_session_can_still_register() -> None:
    sessions = store()
    token = opened(sessions)

    assert sessions.register(token, "nonsense", sender=ALICE, now=T0) is SessionDenied.BAD_PEER_ID
    assert isinstance(sessions.register(token, peer_id_cid(ALICE), sender=ALICE, now=T0), Registered)


def test_a_peer_may_register_neither_for_another_nor_with_another_s_token() -> None:
    sessions = store()
    token = opened(sessions, ALICE)

    assert sessions.register(token, BOB, sender=ALICE, now=T0) is SessionDenied.PEER_MISMATCH
    assert sessions.register(token, ALICE, sender=BOB, now=T0) is SessionDenied.PEER_MISMATCH
    assert sessions.register(token, BOB, sender=BOB, now=T0) is SessionDenied.PEER_MISMATCH


def test_a_token_used_from_another_peer_s_connection_is_unknown() -> None:
    sessions = store()
    unregistered, token = opened(sessions), registered(sessions)

    assert sessions.resolve(token, sender=BOB, now=T0) is SessionDenied.UNKNOWN
    assert sessions.resolve(unregistered, sender=BOB, now=T0) is SessionDenied.UNKNOWN
    assert sessions.register(token, ALICE, sender=BOB, now=T0) is SessionDenied.UNKNOWN
    assert isinstance(sessions.resolve(token, sender=ALICE, now=T0), Session)


def test_registering_twice_with_one_token_changes_nothing() -> None:
    sessions = store()
    token = registered(sessions)

    again = sessions.register(token, ALICE, sender=ALICE, now=at(1))

    assert isinstance(again, Registered)
    assert again.renewal
    assert isinstance(sessions.resolve(token, sender=ALICE, now=at(60)), Session)


def test_the_older_token_works_for_two_seconds_after_its_successor_registers() -> None:
    sessions = store()
    old = registered(sessions)
    new = opened(sessions, now=at(3300))
    assert isinstance(sessions.resolve(old, sender=ALICE, now=at(3300)), Session)

    renewed = sessions.register(new, ALICE, sender=ALICE, now=at(3300))

    assert isinstance(renewed, Registered)
    assert renewed.renewal
    assert isinstance(sessions.resolve(old, sender=ALICE, now=at(3301.9)), Session)
    assert sessions.resolve(old, sender=ALICE, now=at(3302)) is SessionDenied.UNKNOWN
    assert isinstance(sessions.resolve(new, sender=ALICE, now=at(3302)), Session)


def test_the_first_registration_is_no_renewal_and_neither_is_one_after_the_end() -> None:
    sessions = store()
    first = sessions.register(opened(sessions), ALICE, sender=ALICE, now=T0)
    later = sessions.register(opened(sessions, now=at(3600)), ALICE, sender=ALICE, now=at(3600))

    assert isinstance(first, Registered)
    assert isinstance(later, Registered)
    assert not first.renewal
    assert not later.renewal


def test_an_old_token_that_registers_in_its_grace_does_not_take_its_place_back() -> None:
    sessions = store()
    old, new = registered(sessions), registered(sessions)

    assert isinstance(sessions.register(old, ALICE, sender=ALICE, now=at(1)), Registered)

    current = sessions.current(ALICE, now=at(1))
    assert current is not None
    assert current.token == new
    assert sessions.resolve(old, sender=ALICE, now=at(2)) is SessionDenied.UNKNOWN


def test_a_token_about_to_expire_gains_nothing_by_the_grace() -> None:
    sessions = store()
    old = registered(sessions)
    registered(sessions, now=at(3599))

    assert sessions.resolve(old, sender=ALICE, now=at(3600)) is SessionDenied.UNKNOWN


def test_a_peer_that_is_gone_is_forgotten_with_all_its_sessions() -> None:
    sessions = store()
    tokens = [registered(sessions), registered(sessions), opened(sessions)]
    other = registered(sessions, BOB)

    assert sessions.forget(ALICE) == 3
    assert sessions.forget(ALICE) == 0
    assert all(sessions.resolve(token, sender=ALICE, now=T0) is SessionDenied.UNKNOWN for token in tokens)
    assert isinstance(sessions.resolve(other, sender=BOB, now=T0), Session)
    assert sessions.current(ALICE, now=T0) is None


def test_the_oldest_unregistered_session_of_a_subject_makes_room() -> None:
    sessions = store(subject_sessions_max=3)
    token = registered(sessions)
    second, third, fourth = (opened(sessions, now=at(second)) for second in (1, 2, 3))

    assert sessions.resolve(second, sender=ALICE, now=at(3)) is SessionDenied.UNKNOWN
    assert sessions.resolve(third, sender=ALICE, now=at(3)) is SessionDenied.NOT_REGISTERED
    assert sessions.resolve(fourth, sender=ALICE, now=at(3)) is SessionDenied.NOT_REGISTERED
    assert isinstance(sessions.resolve(token, sender=ALICE, now=at(3)), Session)


def test_a_subject_whose_sessions_are_all_registered_waits_for_their_grace() -> None:
    sessions = store(subject_sessions_max=3)
    for _ in range(3):
        registered(sessions)

    assert sessions.open(subject_of(ALICE), METADATA, now=at(1.9)) is None
    assert sessions.open(subject_of(ALICE), METADATA, now=at(2.0)) is not None


def test_a_full_store_drops_what_expired_then_what_nobody_registered_and_never_an_agent() -> None:
    sessions = store(sessions_max=2)
    registered(sessions, PEERS[0])
    idle = opened(sessions, PEERS[1], now=at(1))

    kept = registered(sessions, PEERS[2], now=at(2))

    assert sessions.resolve(idle, sender=PEERS[1], now=at(2)) is SessionDenied.UNKNOWN
    assert sessions.open(subject_of(PEERS[3]), METADATA, now=at(3)) is None
    assert sessions.open(subject_of(PEERS[3]), METADATA, now=at(3600)) is not None
    assert isinstance(sessions.resolve(kept, sender=PEERS[2], now=at(3600)), Session)


def test_a_sweep_drops_the_expired_and_says_how_many() -> None:
    sessions = store()
    opened(sessions)
    registered(sessions, BOB)
    opened(sessions, now=at(10))

    assert sessions.sweep(now=at(3599)) == 0
    assert sessions.sweep(now=at(3600)) == 2
    assert len(sessions) == 1


def test_a_token_source_that_repeats_itself_is_a_fault_of_ours() -> None:
    sessions = SessionStore(lambda: "same")
    sessions.open("agent-x", METADATA, now=T0)

    with pytest.raises(ValueError, match="in use"):
        sessions.open("agent-y", METADATA, now=T0)


@pytest.mark.parametrize("bounds", [{"subject_sessions_max": 2}, {"sessions_max": 0}])
def test_bounds_too_small_to_renew_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needs room"):
        store(**bounds)


SUBJECT_MAX, STORE_MAX, TTL, GRACE = 3, 6, 50.0, 2.0


@dataclass
class Entry:
    """What the model knows of one token: whose it is, when it ends, whether it registered."""

    peer: PeerId
    expires: float
    registered: bool = False


class SessionMachine(RuleBasedStateMachine):
    """In whatever order agents come, renew, meddle and leave, each token serves one peer, in time and within bounds."""

    def __init__(self) -> None:
        super().__init__()
        numbers = itertools.count()
        self.sessions = SessionStore(
            lambda: f"token-{next(numbers)}",
            ttl_s=TTL,
            grace_s=GRACE,
            subject_sessions_max=SUBJECT_MAX,
            sessions_max=STORE_MAX,
        )
        self.now = T0
        self.model: dict[str, Entry] = {}
        self.current: dict[PeerId, str] = {}

    def alive(self) -> dict[str, Entry]:
        return {token: entry for token, entry in self.model.items() if entry.expires > self.now}

    def drop_oldest_unregistered(self, of: dict[str, Entry]) -> bool:
        oldest = next((token for token, entry in of.items() if not entry.registered), None)
        if oldest is not None:
            del self.model[oldest]
        return oldest is not None

    def room_for(self, peer: PeerId) -> bool:
        own = {token: entry for token, entry in self.alive().items() if entry.peer == peer}
        if len(own) >= SUBJECT_MAX and not self.drop_oldest_unregistered(own):
            return False
        return len(self.alive()) < STORE_MAX or self.drop_oldest_unregistered(self.alive())

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 10.0, 49.0, 50.0]))
    def time_passes(self, seconds: float) -> None:
        self.now = Monotonic(self.now + seconds)

    @rule(peer=st.sampled_from(PEERS))
    def authenticate(self, peer: PeerId) -> None:
        fits = self.room_for(peer)
        session = self.sessions.open(subject_of(peer), METADATA, now=self.now)
        assert (session is not None) == fits
        if session is not None:
            self.model[session.token] = Entry(peer, self.now + TTL)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), sender=st.sampled_from(PEERS), claimed=st.sampled_from(PEERS))
    def register(self, data: st.DataObject, sender: PeerId, claimed: PeerId) -> None:
        token = data.draw(st.sampled_from(sorted(self.model)))
        entry = self.alive().get(token)
        outcome = self.sessions.register(token, claimed, sender=sender, now=self.now)
        if entry is None or (entry.registered and entry.peer != sender):
            assert outcome is SessionDenied.UNKNOWN
        elif not entry.peer == sender == claimed:
            assert outcome is SessionDenied.PEER_MISMATCH
        else:
            older = self.alive().get(self.current.get(sender, ""))
            assert isinstance(outcome, Registered)
            assert outcome.renewal == (older is not None)
            if not entry.registered:
                if older is not None:
                    older.expires = min(older.expires, self.now + GRACE)
                entry.registered = True
                self.current[sender] = token

    @precondition(lambda self: self.model)
    @rule(data=st.data(), sender=st.sampled_from(PEERS))
    def send(self, data: st.DataObject, sender: PeerId) -> None:
        token = data.draw(st.sampled_from(sorted(self.model)))
        entry = self.alive().get(token)
        outcome = self.sessions.resolve(token, sender=sender, now=self.now)
        if entry is None or entry.peer != sender:
            assert outcome is SessionDenied.UNKNOWN
        elif not entry.registered:
            assert outcome is SessionDenied.NOT_REGISTERED
        else:
            assert isinstance(outcome, Session)
            assert (outcome.token, outcome.peer, outcome.expires) == (token, sender, entry.expires)

    @rule(peer=st.sampled_from(PEERS))
    def leave(self, peer: PeerId) -> None:
        self.sessions.forget(peer)
        self.model = {token: entry for token, entry in self.model.items() if entry.peer != peer}

    @rule()
    def sweep(self) -> None:
        self.sessions.sweep(now=self.now)
        assert len(self.sessions) == len(self.alive())

    @invariant()
    def bounds_hold_and_each_peer_has_the_current_session_of_the_model(self) -> None:
        assert len(self.sessions) <= STORE_MAX
        for peer in PEERS:
            current = self.sessions.current(peer, now=self.now)
            expected = self.current.get(peer, "")
            assert (current.token if current else None) == (expected if expected in self.alive() else None)


TestSessionMachine = SessionMachine.TestCase
