"""What do agents tell the router over their links, and what does it answer?

Registration, heartbeats and routing signals, and who is linked at all. Invariant: a message counts only for the peer
whose link it came over, and a peer that is not registered is a stranger, which the data plane holds to bounds of its
own and cuts off before long.
Source: wire.md §6.3, §6.4, §7, §9, §10; signals.md §5; decisions.md 25.
"""

from collections.abc import Callable
from typing import Final

import structlog

from hivenet_router.core.agent import ORIGINAL_AGENT_STREAMS_MAX, OWN_AGENT_STREAMS_MAX, Agent, report_in
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import DeploymentId, PeerId, ReplicaId
from hivenet_router.core.registry import Registry
from hivenet_router.core.sessions import Session, SessionDenied, SessionStore
from hivenet_router.names import headers, paths
from hivenet_router.names.protocol_ids import ORIGINAL_AGENT_VERSION_PREFIX, OWN_AGENT_VERSION_PREFIX
from hivenet_router.ports import Clock, Exchange, Recorder
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.wire import agent_protocol
from hivenet_router.wire.agent_protocol import Answer, BodyInvalid

log = structlog.get_logger("router")

PEERS: Final = "peers"
"""The listener that agents' messages come through."""

REGISTER_WITHIN_S: Final = 10.0
"""A peer that has not registered by then is cut off by the data plane. Source: wire.md §14 no. 28."""

READ_UNASKED_BYTES_MAX: Final = 512
"""A body up to this is read whoever sends it: a registration is no longer, and costs as little as any refusal."""

_NOT_FOUND: Final = agent_protocol.text_answer(404, "404 page not found")
_NOT_ACCEPTABLE: Final = agent_protocol.text_answer(406, "only application/json is served here")
_NOT_ALLOWED: Final = agent_protocol.text_answer(405, "method not allowed")
_PROBLEMS: Final = {
    "too_large": agent_protocol.text_answer(413, "request body too large"),
    "stopping": agent_protocol.text_answer(503, "this router is stopping"),
    "overloaded": agent_protocol.text_answer(503, "too many request bodies, try again later"),
}
_PROTOCOL_MAP: Final = Answer(
    200, (("Content-Type", "application/json"),), agent_protocol.encode_protocol_map([paths.ROUTER_MOUNT])
)


class AttendingRoom:
    """Takes what agents send."""

    def __init__(
        self,
        registry: Registry,
        sessions: SessionStore,
        clock: Clock,
        recorder: Recorder,
        rejections: RejectionRoom,
        *,
        welcome: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._clock = clock
        self._recorder = recorder
        self._rejections = rejections
        self._welcome = welcome
        self._versions: dict[PeerId, str] = {}
        self._paths: Final[dict[str, Callable[[PeerId, bytes], Answer]]] = {
            paths.ROUTER_MOUNT + paths.REGISTER: self._register,
            paths.ROUTER_MOUNT + paths.HEARTBEAT: self._heartbeat,
            paths.ROUTER_MOUNT + paths.ROUTING_SIGNALS: self._signals,
        }
        self._in_session: Final = frozenset(self._paths) - {paths.ROUTER_MOUNT + paths.REGISTER}

    # What a peer sends

    async def attend(self, exchange: Exchange) -> None:
        """Answer one message of a peer."""
        answer = self.answer_to(exchange)
        fields = [(name.encode(), value.encode()) for name, value in answer.headers]
        await exchange.respond(answer.status, fields, answer.body)

    def answer_to(self, exchange: Exchange) -> Answer:
        """What the peer is told."""
        arrived = exchange.arrived
        if arrived.problem is not None:
            answer = _PROBLEMS.get(arrived.problem, agent_protocol.INVALID_BODY)
            if arrived.path in self._in_session and self._registry.agent(PeerId(arrived.peer or "")) is None:
                # Too long for a stranger, yet what it has to hear is that its session is over.
                answer = agent_protocol.INVALID_SESSION
            self._rejections.rejected(PEERS, "", answer.status, arrived.problem, peer=arrived.peer or "")
            return answer
        if arrived.path == paths.PROTOCOL_MAP:
            return _protocol_map(arrived.method, (arrived.field(headers.ACCEPT) or b"").decode("latin-1"))
        handler = self._paths.get(arrived.path)
        if handler is None or arrived.peer is None:
            return _NOT_FOUND
        body = arrived.body()
        if not self._is_worth_reading(PeerId(arrived.peer), body):
            status = agent_protocol.INVALID_SESSION.status
            self._rejections.rejected(PEERS, "", status, "unknown_session", peer=arrived.peer)
            return agent_protocol.INVALID_SESSION
        try:
            return handler(PeerId(arrived.peer), body)
        except BodyInvalid as fault:
            self._rejections.refused("agent_message_refused", str(fault), peer=arrived.peer, path=arrived.path)
            return agent_protocol.INVALID_BODY

    def _is_worth_reading(self, peer: PeerId, body: bytes) -> bool:
        """Whether the sender, or at least the token it names, has a session: reading JSON is work, a look-up is not."""
        if len(body) <= READ_UNASKED_BYTES_MAX or self._sessions.has_any(peer):
            return True
        token = agent_protocol.token_in(body)
        return token is not None and self._sessions.is_open(token, now=self._clock.now())

    def _register(self, peer: PeerId, body: bytes) -> Answer:
        message = agent_protocol.decode_registration(body)
        now = self._clock.now()
        outcome = self._sessions.register(message.session_token, message.peer_id, sender=peer, now=now)
        if isinstance(outcome, SessionDenied):
            why = outcome.value.body.decode().strip()
            self._rejections.refused("agent_registration_refused", why, peer=peer)
            return outcome.value
        metadata = outcome.session.metadata
        registered = self._registry.register(
            peer,
            metadata,
            DeploymentId(message.deployment_id),
            ReplicaId(message.replica_id),
            streams_max=self._streams_max(peer),
            is_original=self._is_original(peer),
            now=now,
        )
        # Before it hears of it: what it sends next is no stranger's.
        self._welcome(peer)
        self._recorder.agent_seen(registered.agent, at=self._clock.unix())
        log.info(
            "agent_renewed" if outcome.renewal else "agent_registered",
            peer_id=peer,
            model=metadata.model,
            engine=metadata.engine,
            capacity=metadata.capacity,
            region=metadata.region,
            deployment_id=message.deployment_id,
            replica_id=message.replica_id,
        )
        return agent_protocol.REGISTERED

    def _heartbeat(self, peer: PeerId, body: bytes) -> Answer:
        message = agent_protocol.decode_heartbeat(body)
        now = self._clock.now()
        session = self._session(message.session_token, peer, now=now)
        if isinstance(session, Answer):
            return session
        known = self._registry.heartbeat(
            peer,
            backend_healthy=message.backend_healthy,
            leaving=message.leaving,
            report=report_in(message),
            now=now,
        )
        agent = self._registry.agent(peer)
        if not known or agent is None:
            return agent_protocol.AGENT_NOT_FOUND
        self._recorder.agent_seen(agent, at=self._clock.unix())
        return agent_protocol.heartbeat_answer(())

    def _signals(self, peer: PeerId, body: bytes) -> Answer:
        message = agent_protocol.decode_signals(body)
        now = self._clock.now()
        session = self._session(message.session_token, peer, now=now)
        if isinstance(session, Answer):
            return session
        known = self._registry.signals(peer, report=report_in(message), now=now)
        return agent_protocol.TAKEN if known else agent_protocol.AGENT_NOT_FOUND

    def _session(self, token: str, peer: PeerId, *, now: Monotonic) -> Session | Answer:
        found = self._sessions.resolve(token, sender=peer, now=now)
        if not isinstance(found, SessionDenied):
            return found
        if found is SessionDenied.UNKNOWN:
            self._rejections.rejected(PEERS, "", found.value.status, "unknown_session", peer=peer)
        return found.value

    # What happens to links

    def link_up(self, peer_id: str, remote: str, dialed: bool) -> None:
        """A peer connected, or replaced its connection."""
        peer = PeerId(peer_id)
        # A new link begins like one to an original agent.
        self._versions.pop(peer, None)
        self._tell_kind(peer)
        self._registry.link_up(peer)
        log.debug("peer_up", peer_id=peer, remote=remote, dialed=dialed)

    def link_down(self, peer_id: str, why: str) -> None:
        """A peer's last connection is gone; told a second time, nothing is new."""
        peer = PeerId(peer_id)
        if not self._registry.is_linked(peer):
            return
        self._versions.pop(peer, None)
        self._registry.link_down(peer)
        agent = self._registry.agent(peer)
        if agent is None:
            return
        # One that fell silent first did not say goodbye, whatever its backend was like.
        if has_left(agent) and agent.process_healthy:
            log.info("agent_left", peer_id=peer, model=agent.model, why=why)
        else:
            say = log.warning if agent.healthy else log.info
            say("agent_link_lost", peer_id=peer, model=agent.model, why=why)

    def identified(self, peer_id: str, agent_version: str) -> None:
        """A peer said what it is: only an agent of our own kind takes many streams at once."""
        peer = PeerId(peer_id)
        self._versions[peer] = agent_version
        self._tell_kind(peer)

    def _tell_kind(self, peer: PeerId) -> None:
        self._registry.identified(peer, is_original=self._is_original(peer), streams_max=self._streams_max(peer))

    def _is_original(self, peer: PeerId) -> bool:
        # Until it has said what it is, a peer is treated like an original one.
        return self._versions.get(peer, ORIGINAL_AGENT_VERSION_PREFIX).startswith(ORIGINAL_AGENT_VERSION_PREFIX)

    def _streams_max(self, peer: PeerId) -> int:
        is_own = self._versions.get(peer, "").startswith(OWN_AGENT_VERSION_PREFIX)
        return OWN_AGENT_STREAMS_MAX if is_own else ORIGINAL_AGENT_STREAMS_MAX


def has_left(agent: Agent) -> bool:
    """Whether an agent said that it leaves before its link closed. An original one never says so: wire.md §14, 21."""
    return not agent.linked and agent.leaving


def _protocol_map(method: str, accept: str) -> Answer:
    if method not in ("GET", "HEAD"):
        return _NOT_ALLOWED
    if accept and "application/json" not in accept and "*/*" not in accept:
        return _NOT_ACCEPTABLE
    return _PROTOCOL_MAP
