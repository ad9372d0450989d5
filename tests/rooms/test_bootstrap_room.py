"""Who gets a session, under which secret, and what it is told."""

import itertools

from structlog.testing import capture_logs
from tests.core.making import described
from tests.fakes.clock import VirtualClock
from tests.fakes.recorder import RecordingRecorder

from hivenet_router.core.ids import PeerId
from hivenet_router.core.sessions import SessionDenied, SessionStore
from hivenet_router.router.bootstrap import BootstrapRoom
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.wire.auth_messages import AgentMetadata, AuthOutcome, AuthRequest, LibP2PInfo, RouterConfig
from hivenet_router.wire.identity import identity_from_seed
from hivenet_router.wire.jwt import mint_agent_token

CURRENT, PREVIOUS, OTHER = (bytes([letter]) * 32 for letter in b"abc")
PEER = PeerId(identity_from_seed(b"\x01" * 32).peer_id)
INFO = LibP2PInfo("12D3KooWRouter", ("/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWRouter",))
CONFIG = RouterConfig()


class Desk:
    """A bootstrap room that takes the current secret and the previous one."""

    def __init__(self, *, sessions_max: int = 100) -> None:
        numbers = itertools.count()
        self.clock = VirtualClock()
        self.sessions = SessionStore(lambda: f"token-{next(numbers)}", sessions_max=sessions_max)
        rejections = RejectionRoom(self.clock, RecordingRecorder())
        self.room = BootstrapRoom(self.sessions, self.clock, [CURRENT, PREVIOUS], CONFIG, lambda: INFO, rejections)

    def call(
        self, secret: bytes = CURRENT, *, peer: str = PEER, metadata: AgentMetadata | None = None, age_s: float = 0.0
    ) -> AuthOutcome:
        token = mint_agent_token(secret, peer, now=self.clock.unix() - age_s)
        return self.room.authenticate(AuthRequest(token, metadata or described()), "192.0.2.9")


async def test_an_agent_that_knows_the_secret_gets_a_session_and_the_way_to_the_router() -> None:
    desk = Desk()
    outcome = desk.call()
    assert (outcome.success, outcome.session_token) == (True, "token-0")
    assert (outcome.libp2p_info, outcome.config) == (INFO, CONFIG)
    assert len(desk.sessions) == 1


async def test_the_previous_secret_is_still_taken_and_another_never() -> None:
    desk = Desk()
    assert desk.call(PREVIOUS).success
    refused = desk.call(OTHER)
    assert (refused.success, refused.session_token) == (False, "")
    assert len(desk.sessions) == 1


async def test_an_old_token_opens_no_session_and_its_refusal_is_logged_without_it() -> None:
    desk = Desk()
    with capture_logs() as logs:
        assert not desk.call(age_s=7200.0).success
    [line] = logs
    assert (line["event"], line["client"]) == ("agent_refused", "192.0.2.9")
    assert "credentials" not in line


async def test_a_call_without_usable_metadata_is_refused() -> None:
    desk = Desk()
    assert not desk.call(metadata=AgentMetadata(model="m")).success
    token = mint_agent_token(CURRENT, PEER, now=desk.clock.unix())
    assert not desk.room.authenticate(AuthRequest(token, None), "192.0.2.9").success
    assert len(desk.sessions) == 0


async def test_a_router_full_of_registered_agents_says_so() -> None:
    desk = Desk(sessions_max=1)
    token = desk.call().session_token
    desk.sessions.register(token, PEER, sender=PEER, now=desk.clock.now())
    refused = desk.call(peer=identity_from_seed(b"\x02" * 32).peer_id)
    assert not refused.success
    assert "try again later" in refused.message


async def test_a_session_belongs_to_the_subject_of_the_token() -> None:
    desk = Desk()
    token = desk.call().session_token
    stranger = PeerId(identity_from_seed(b"\x02" * 32).peer_id)
    assert desk.sessions.resolve(token, sender=PEER, now=desk.clock.now()) is SessionDenied.NOT_REGISTERED
    assert desk.sessions.resolve(token, sender=stranger, now=desk.clock.now()) is SessionDenied.UNKNOWN


async def test_a_flood_of_refused_calls_is_one_line() -> None:
    desk = Desk()
    with capture_logs() as logs:
        for _ in range(50):
            assert not desk.call(OTHER).success
    assert [line["event"] for line in logs] == ["agent_refused"]
