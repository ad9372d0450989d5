"""Which agent speaks under this token? The sessions that `Authenticate` opens and `/register` ties to a peer.

Invariant: a session serves one peer only, the one its subject names; it never outlives its time, use does not extend
it, and a peer has at most one current session plus older ones in their last two seconds. The number of sessions is
bounded per subject and in all, and only sessions that nobody registered are pushed out. Memory only: a restart forgets
them all. Tokens come from the caller's source, `now` is one monotonic clock in seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId
from hivenet_router.wire import agent_protocol
from hivenet_router.wire.auth_messages import AgentMetadata
from hivenet_router.wire.identity import PeerIdInvalid, parse_peer_id
from hivenet_router.wire.jwt import subject_of

SESSION_TTL_S: Final = 3600.0
GRACE_S: Final = 2.0
"""How long the older token still works after its successor registered, so that messages on the way pass."""
SWEEP_INTERVAL_S: Final = 300.0
SUBJECT_SESSIONS_MAX: Final = 8
SESSIONS_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Session:
    """One authenticated agent: `peer` is None until it registers."""

    token: str = field(repr=False)
    subject: str
    metadata: AgentMetadata
    created: Monotonic
    expires: Monotonic
    peer: PeerId | None = None


class SessionDenied(Enum):
    """Why a message under a token is not taken; the value is the answer it gets."""

    UNKNOWN = agent_protocol.INVALID_SESSION
    BAD_PEER_ID = agent_protocol.INVALID_PEER_ID
    PEER_MISMATCH = agent_protocol.PEER_ID_MISMATCH
    NOT_REGISTERED = agent_protocol.AGENT_NOT_FOUND


@dataclass(frozen=True, slots=True)
class Registered:
    """The session is tied to its peer. `renewal`: the peer was registered before, so it is no new agent."""

    session: Session
    renewal: bool


class SessionStore:
    """The sessions of one router; see the module's invariant."""

    def __init__(
        self,
        token_source: Callable[[], str],
        *,
        ttl_s: float = SESSION_TTL_S,
        grace_s: float = GRACE_S,
        subject_sessions_max: int = SUBJECT_SESSIONS_MAX,
        sessions_max: int = SESSIONS_MAX,
    ) -> None:
        # Three is one current, one in its grace and one that is about to register.
        if subject_sessions_max < 3 or sessions_max < 1:
            raise ValueError("a subject needs room for three sessions, the store for one")
        self._token_source = token_source
        self._ttl_s = ttl_s
        self._grace_s = grace_s
        self._subject_sessions_max = subject_sessions_max
        self._sessions_max = sessions_max
        self._by_token: dict[str, Session] = {}
        # Tokens of each subject, oldest first. A dict is an ordered set here and below.
        self._of_subject: dict[str, dict[str, None]] = {}
        self._unregistered: dict[str, None] = {}
        self._current: dict[PeerId, str] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def open(self, subject: str, metadata: AgentMetadata, *, now: Monotonic) -> Session | None:
        """A new session under a fresh token, or None when the store is full of registered agents.

        At the bound of its subject, or of the store, the oldest session that nobody registered makes room.
        Source: wire.md §4.4, §14 no. 29.
        """
        if not self._make_room(subject, now=now):
            return None
        token = self._token_source()
        if token in self._by_token:
            raise ValueError("the token source gave a token that is in use")
        session = Session(token, subject, metadata, created=now, expires=Monotonic(now + self._ttl_s))
        self._by_token[token] = session
        self._of_subject.setdefault(subject, {})[token] = None
        self._unregistered[token] = None
        return session

    def register(self, token: str, peer_id: str, *, sender: PeerId, now: Monotonic) -> Registered | SessionDenied:
        """Ties the session to the peer that sent this, if the peer is who the message and the JWT say.

        Doing it again under one token changes nothing. A token that registers after another one becomes the peer's
        current session, and the other ends after the grace; an older one does not take its place back.
        Source: wire.md §7.1, §9, §10.1, §14 no. 13 and 16.
        """
        session = self._live(token, now=now)
        if session is None or session.peer not in (None, sender):
            return SessionDenied.UNKNOWN
        try:
            claimed = parse_peer_id(peer_id)
        except PeerIdInvalid:
            return SessionDenied.BAD_PEER_ID
        if claimed != sender or session.subject != subject_of(sender):
            return SessionDenied.PEER_MISMATCH
        if session.peer is not None:
            return Registered(session, renewal=True)
        older = self._current_of(sender, now=now)
        if older is not None:
            self._by_token[older.token] = replace(older, expires=min(older.expires, Monotonic(now + self._grace_s)))
        session = replace(session, peer=sender)
        self._by_token[token] = session
        self._current[sender] = token
        del self._unregistered[token]
        return Registered(session, renewal=older is not None)

    def resolve(self, token: str, *, sender: PeerId, now: Monotonic) -> Session | SessionDenied:
        """The registered session behind a token that came over this peer's connection.

        Source: wire.md §4.4, §7, §9.
        """
        session = self._live(token, now=now)
        if session is None or session.subject != subject_of(sender):
            return SessionDenied.UNKNOWN
        if session.peer is None:
            return SessionDenied.NOT_REGISTERED
        return session

    def has_any(self, peer: PeerId) -> bool:
        """Whether somebody authenticated as this peer of late; the session may have run out meanwhile."""
        return subject_of(peer) in self._of_subject

    def is_open(self, token: str, *, now: Monotonic) -> bool:
        """Whether a session has this token, whosever it is."""
        return self._live(token, now=now) is not None

    def current(self, peer: PeerId, *, now: Monotonic) -> Session | None:
        """The session under which this peer is registered now."""
        return self._current_of(peer, now=now)

    def forget(self, peer: PeerId) -> int:
        """Ends every session of a peer that is gone, registered or not; says how many there were."""
        tokens = list(self._of_subject.get(subject_of(peer), ()))
        for token in tokens:
            self._drop(token)
        return len(tokens)

    def sweep(self, *, now: Monotonic) -> int:
        """Drops what has expired; says how many. Nothing depends on it but memory."""
        expired = [token for token, session in self._by_token.items() if session.expires <= now]
        for token in expired:
            self._drop(token)
        return len(expired)

    def _make_room(self, subject: str, *, now: Monotonic) -> bool:
        own = self._of_subject.get(subject, {})
        for token in [token for token in own if self._by_token[token].expires <= now]:
            self._drop(token)
        if len(own) >= self._subject_sessions_max and not self._drop_first(own):
            return False
        if len(self._by_token) < self._sessions_max:
            return True
        return self.sweep(now=now) > 0 or self._drop_first(self._unregistered)

    def _drop_first(self, tokens: dict[str, None]) -> bool:
        oldest = next((token for token in tokens if token in self._unregistered), None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def _current_of(self, peer: PeerId, *, now: Monotonic) -> Session | None:
        token = self._current.get(peer)
        return None if token is None else self._live(token, now=now)

    def _live(self, token: str, *, now: Monotonic) -> Session | None:
        session = self._by_token.get(token)
        if session is not None and session.expires <= now:
            self._drop(token)
            return None
        return session

    def _drop(self, token: str) -> None:
        session = self._by_token.pop(token)
        self._unregistered.pop(token, None)
        own = self._of_subject[session.subject]
        del own[token]
        if not own:
            del self._of_subject[session.subject]
        if session.peer is not None and self._current.get(session.peer) == token:
            del self._current[session.peer]
