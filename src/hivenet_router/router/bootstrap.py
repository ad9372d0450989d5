"""How does an agent get its session?

Answers `Authenticate`: checks the token, judges the metadata, opens a session and says where the link is.
Source: wire.md §4; decisions.md 17.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from hivenet_router.core.bootstrap import Welcome, acceptance, judge, refusal
from hivenet_router.core.sessions import SessionStore
from hivenet_router.ports import Clock
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.wire.auth_messages import AuthOutcome, AuthRequest, LibP2PInfo, RouterConfig
from hivenet_router.wire.jwt import AgentClaims, TokenRefused, verify_agent_token

log = structlog.get_logger("grpc")

_FULL = "Authentication failed: too many sessions, try again later"


@dataclass(frozen=True, slots=True)
class BootstrapRoom:
    """Opens sessions for agents that know the secret."""

    sessions: SessionStore
    clock: Clock
    secrets: Sequence[bytes]
    config: RouterConfig
    addresses: Callable[[], LibP2PInfo]
    rejections: RejectionRoom
    on_welcome: Callable[[str], None] = lambda subject: None
    """Hears of each agent that was let in, by the subject of its token: it is about to dial."""

    def authenticate(self, request: AuthRequest, source: str) -> AuthOutcome:
        """The answer to one `Authenticate` call from this address."""
        judged = judge(request, self._verdict(request.credentials))
        if not isinstance(judged, Welcome):
            self.rejections.refused("agent_refused", judged.message, client=source)
            return judged
        session = self.sessions.open(judged.subject, judged.metadata, now=self.clock.now())
        if session is None:
            self.rejections.refused("agent_refused", _FULL, client=source)
            return refusal(_FULL)
        self.on_welcome(judged.subject)
        log.debug("agent_authenticated", client=source, subject=judged.subject, model=judged.metadata.model)
        return acceptance(session.token, libp2p_info=self.addresses(), config=self.config)

    def _verdict(self, credentials: str) -> AgentClaims | TokenRefused:
        try:
            return verify_agent_token(self.secrets, credentials, now=self.clock.unix())
        except TokenRefused as refused:
            return refused
