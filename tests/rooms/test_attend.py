"""What agents are answered over their links, and what becomes of peers that come, go, or never say who they are."""

import itertools
import json
from typing import Final

import pytest
from structlog.testing import capture_logs
from tests.core.making import MODEL, described
from tests.fakes.clock import UNIX_START, VirtualClock
from tests.fakes.exchange import FakeArrived, FakeExchange
from tests.fakes.recorder import RecordingRecorder

from hivenet_router.cli.router import AGENT_STREAMS_MAX
from hivenet_router.core.agent import ORIGINAL_AGENT_STREAMS_MAX, OWN_AGENT_STREAMS_MAX
from hivenet_router.core.changes import Registered
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId
from hivenet_router.core.registry import Registry
from hivenet_router.core.sessions import SessionStore
from hivenet_router.names import paths
from hivenet_router.router.attend import READ_UNASKED_BYTES_MAX, AttendingRoom, has_left
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.wire.agent_protocol import Answer
from hivenet_router.wire.identity import identity_from_seed, peer_id_cid
from hivenet_router.wire.jwt import subject_of

ALICE, BOB = (PeerId(identity_from_seed(bytes([number]) * 32).peer_id) for number in range(2))
MOUNT: Final = "/hivenet_router/router/1.0.0"
REGISTERED: Final = (200, b'{"status":"registered"}\n')
TAKEN: Final = (200, b"")
INVALID_BODY: Final = (400, b"invalid request body\n")
INVALID_SESSION: Final = (401, b"invalid or expired session token\n")
INVALID_PEER_ID: Final = (400, b"invalid peer ID\n")
MISMATCH: Final = (403, b"peer ID mismatch\n")
NOT_FOUND: Final = (404, b"agent not found\n")
NO_PAGE: Final = (404, b"404 page not found\n")


class Settable(VirtualClock):
    """Stands still until it is set."""

    seconds = 1000.0

    def now(self) -> Monotonic:
        return Monotonic(self.seconds)


class Attending:
    """An attending room with a registry, and the messages of its agents."""

    def __init__(self) -> None:
        numbers = itertools.count()
        self.clock = Settable()
        self.recorder = RecordingRecorder()
        self.registry = Registry(self.recorder.registry_changed)
        self.sessions = SessionStore(lambda: f"token-{next(numbers)}")
        self.welcomed: list[str] = []
        self.rejections = RejectionRoom(self.clock, self.recorder)
        self.room = AttendingRoom(
            self.registry, self.sessions, self.clock, self.recorder, self.rejections, welcome=self.welcomed.append
        )

    def token(self, peer: PeerId = ALICE, *, capacity: int = 100) -> str:
        session = self.sessions.open(subject_of(peer), described(capacity), now=self.clock.now())
        assert session is not None
        return session.token

    def joined(self, peer: PeerId = ALICE) -> str:
        token = self.token(peer)
        self.room.link_up(peer, "192.0.2.1:9", False)
        assert self.register(token, peer) == REGISTERED
        return token

    def register(self, token: str, peer: PeerId = ALICE, **more: object) -> tuple[int, bytes]:
        return self.send("/register", peer, session_token=token, **{"peer_id": peer, **more})

    def send(self, path: str, peer: PeerId = ALICE, **members: object) -> tuple[int, bytes]:
        return self.post(MOUNT + path, json.dumps(members).encode(), peer=peer)

    def post(self, path: str, body: bytes, *, peer: PeerId | None = ALICE, method: str = "POST") -> tuple[int, bytes]:
        arrived = FakeArrived(listener="peers", method=method, path=path, peer=peer, content=body)
        answer = self.room.answer_to(FakeExchange(arrived))
        return answer.status, answer.body

    def kind(self) -> tuple[bool, int | None]:
        """Whether Alice is taken for an original agent, and how much she may have in flight."""
        agent = self.registry.agent(ALICE)
        assert agent is not None
        return agent.is_original, agent.streams_max

    def protocol_map(self, method: str = "GET", *, accept: bytes | None = b"application/json") -> Answer:
        fields = [] if accept is None else [(b"Accept", accept)]
        path = "/.well-known/libp2p/protocols"
        arrived = FakeArrived(listener="peers", method=method, path=path, peer=ALICE, headers=fields)
        return self.room.answer_to(FakeExchange(arrived))


async def test_an_agent_registers_under_its_session_with_its_join_keys() -> None:
    attending = Attending()
    token = attending.token()
    assert attending.register(token, deployment_id="d", replica_id="r") == REGISTERED
    agent = attending.registry.agent(ALICE)
    assert agent is not None
    assert (agent.model, agent.deployment_id, agent.replica_id) == (MODEL, "d", "r")
    assert attending.recorder.last_seen[ALICE] == pytest.approx(UNIX_START + 1000.0)


async def test_registering_again_under_the_same_token_changes_nothing() -> None:
    attending = Attending()
    token = attending.joined()
    assert attending.register(token) == REGISTERED
    assert attending.send("/heartbeat", session_token=token) == TAKEN


async def test_the_method_is_not_looked_at() -> None:
    attending = Attending()
    body = json.dumps({"session_token": attending.token(), "peer_id": ALICE}).encode()
    assert attending.post(MOUNT + "/register", body, method="PUT") == REGISTERED


async def test_a_peer_id_may_come_in_its_other_form() -> None:
    attending = Attending()
    assert attending.register(attending.token(), peer_id=peer_id_cid(ALICE)) == REGISTERED


async def test_a_registration_must_be_of_the_peer_it_comes_from() -> None:
    attending = Attending()
    token = attending.token()
    assert attending.register("unknown") == INVALID_SESSION
    assert attending.register(token, peer_id="nonsense") == INVALID_PEER_ID
    assert attending.register(token, peer_id=BOB) == MISMATCH
    assert attending.register(token, BOB) == MISMATCH
    assert len(attending.registry) == 0


async def test_a_long_body_is_read_only_for_a_peer_or_a_token_that_has_a_session() -> None:
    attending = Attending()
    unreadable: dict[str, object] = {"x": ["x" * READ_UNASKED_BYTES_MAX], "backend_healthy": "no boolean"}
    for path in ("/register", "/heartbeat", "/routing-signals"):
        assert attending.send(path, ALICE, session_token="unknown", **unreadable) == INVALID_SESSION
        assert attending.send(path, x=["x" * READ_UNASKED_BYTES_MAX]) == INVALID_SESSION
    assert attending.recorder.rejections["peers", "unknown_session"] == 6
    token = attending.joined()
    assert attending.send("/heartbeat", ALICE, session_token=token, **unreadable) == INVALID_BODY
    assert attending.send("/heartbeat", BOB, session_token=token, **unreadable) == INVALID_BODY
    assert attending.register(token, BOB, x="x" * READ_UNASKED_BYTES_MAX) == INVALID_SESSION
    assert attending.register(attending.token(), BOB, x="x" * READ_UNASKED_BYTES_MAX) == MISMATCH


async def test_a_token_of_another_agent_opens_nothing() -> None:
    attending = Attending()
    token = attending.joined()
    assert attending.register(token, BOB) == INVALID_SESSION
    assert attending.send("/heartbeat", BOB, session_token=token) == INVALID_SESSION
    assert attending.send("/routing-signals", BOB, session_token=token) == INVALID_SESSION


@pytest.mark.parametrize("path", ["/heartbeat", "/routing-signals"])
async def test_a_report_is_taken_from_a_registered_agent_only(path: str) -> None:
    attending = Attending()
    assert attending.send(path, session_token="unknown") == INVALID_SESSION
    assert attending.send(path) == INVALID_SESSION
    token = attending.token()
    assert attending.send(path, session_token=token) == NOT_FOUND
    assert attending.register(token) == REGISTERED
    assert attending.send(path, session_token=token) == TAKEN
    attending.registry.remove(ALICE, now=attending.clock.now())
    assert attending.send(path, session_token=token) == NOT_FOUND


async def test_a_session_ends_in_time_and_a_report_under_it_is_refused() -> None:
    attending = Attending()
    token = attending.joined()
    attending.clock.seconds += 3600
    assert attending.send("/heartbeat", session_token=token) == INVALID_SESSION


async def test_a_heartbeat_is_a_sign_of_life_and_carries_health_and_load() -> None:
    attending = Attending()
    token = attending.joined()
    attending.clock.seconds += 5
    assert attending.send("/heartbeat", session_token=token, backend_healthy=False, slots_total=7) == TAKEN
    agent = attending.registry.agent(ALICE)
    assert agent is not None
    assert (agent.last_seen_at, agent.healthy, agent.load.slots_total) == (1005.0, False, 7)
    assert attending.send("/heartbeat", session_token=token, backend_healthy=None) == TAKEN
    assert agent.healthy


async def test_a_signal_says_nothing_about_life_or_health() -> None:
    attending = Attending()
    token = attending.joined()
    attending.clock.seconds += 5
    assert attending.send("/routing-signals", session_token=token, slots_total=7) == TAKEN
    agent = attending.registry.agent(ALICE)
    assert agent is not None
    assert (agent.last_seen_at, agent.load.slots_total) == (1000.0, 7)


@pytest.mark.parametrize("path", ["/register", "/heartbeat", "/routing-signals"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"session_token":1}', b'{"hardware":{"timestamp":1.5}}'])
async def test_a_body_that_is_no_such_message_is_refused_and_logged_without_it(path: str, body: bytes) -> None:
    attending = Attending()
    with capture_logs() as logs:
        answer = attending.post(MOUNT + path, body)
    # A registration knows no snapshots, so what stands there is nothing to it.
    assert answer == (INVALID_SESSION if path == "/register" and b"hardware" in body else INVALID_BODY)
    assert all("session_token" not in line for line in logs)


@pytest.mark.parametrize(
    ("problem", "answer"),
    [("too_large", (413, b"request body too large\n")), ("incomplete", INVALID_BODY), ("slow", INVALID_BODY)],
)
async def test_a_body_that_did_not_come_is_refused(problem: str, answer: tuple[int, bytes]) -> None:
    attending = Attending()
    attending.joined()
    arrived = FakeArrived(listener="peers", path=MOUNT + "/heartbeat", peer=ALICE, problem=problem)
    told = attending.room.answer_to(FakeExchange(arrived))
    assert (told.status, told.body) == answer


@pytest.mark.parametrize("path", ["/register", "/", MOUNT, MOUNT + "/", MOUNT + "/nothing", "/.well-known/libp2p", "*"])
async def test_any_other_path_is_a_page_that_is_not_there(path: str) -> None:
    assert Attending().post(path, b"{}") == NO_PAGE


async def test_who_is_no_peer_cannot_speak_for_one() -> None:
    assert Attending().post(MOUNT + "/register", b"{}", peer=None) == NO_PAGE


@pytest.mark.parametrize("accept", [None, b"", b"application/json", b"*/*", b"text/html, */*;q=0.1"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_protocol_map_names_the_one_mount(method: str, accept: bytes | None) -> None:
    answer = Attending().protocol_map(method, accept=accept)
    assert (answer.status, answer.headers) == (200, (("Content-Type", "application/json"),))
    assert answer.body == b'{"/hivenet_router/router/1.0.0":{"path":"/hivenet_router/router/1.0.0/"}}'


async def test_the_protocol_map_is_refused_in_another_type_and_under_another_method() -> None:
    attending = Attending()
    assert attending.protocol_map(accept=b"text/html").status == 406
    assert attending.protocol_map("POST").status == 405


async def test_an_answer_goes_out_with_its_headers() -> None:
    attending = Attending()
    exchange = FakeExchange(FakeArrived(listener="peers", path="/nothing", peer=ALICE))
    await attending.room.attend(exchange)
    assert exchange.answered is not None
    assert exchange.answered.status == 404
    assert exchange.answered.field("X-Content-Type-Options") == "nosniff"


async def test_an_agent_is_routed_to_only_while_it_is_linked() -> None:
    attending = Attending()
    attending.joined()
    replicas = [attending.registry.replicas_of(MODEL)]
    with capture_logs() as logs:
        attending.room.link_down(ALICE, "reset")
    replicas.append(attending.registry.replicas_of(MODEL))
    assert [(line["event"], line["why"]) for line in logs] == [("agent_link_lost", "reset")]
    attending.room.link_up(ALICE, "192.0.2.1:9", False)
    replicas.append(attending.registry.replicas_of(MODEL))
    assert replicas == [1, 0, 1]


async def test_only_who_has_registered_is_welcome() -> None:
    attending = Attending()
    attending.room.link_up(BOB, "192.0.2.1:9", False)
    assert attending.send("/heartbeat", BOB, session_token="no such token")[0] == 401
    assert attending.register("no such token", BOB)[0] == 401
    assert attending.welcomed == []
    attending.joined()
    assert attending.welcomed == [ALICE]


@pytest.mark.parametrize(("path", "status"), [("/heartbeat", 401), ("/routing-signals", 401), ("/register", 413)])
async def test_what_is_too_long_for_a_stranger_ends_its_session_where_it_had_one(path: str, status: int) -> None:
    attending = Attending()
    attending.joined()
    arrived = FakeArrived(method="POST", path=paths.ROUTER_MOUNT + path, peer=BOB, problem="too_large")
    assert attending.room.answer_to(FakeExchange(arrived)).status == status


async def test_what_is_too_long_for_an_agent_keeps_its_session() -> None:
    attending = Attending()
    attending.joined()
    arrived = FakeArrived(method="POST", path=paths.ROUTER_MOUNT + paths.HEARTBEAT, peer=ALICE, problem="too_large")
    assert attending.room.answer_to(FakeExchange(arrived)).status == 413


AN_ORIGINAL: Final = (True, ORIGINAL_AGENT_STREAMS_MAX)
ONE_OF_OURS: Final = (False, OWN_AGENT_STREAMS_MAX)
A_STRANGER: Final = (False, ORIGINAL_AGENT_STREAMS_MAX)


async def test_a_peer_is_treated_like_an_original_agent_until_it_says_that_it_is_none() -> None:
    attending = Attending()
    attending.joined()
    kinds = [attending.kind()]
    for version in ("hivenet-router-py/0.1.0", "hivenet_router@v1.2.3", "some-agent/0.1.0"):
        attending.room.identified(ALICE, version)
        kinds.append(attending.kind())
    assert kinds == [AN_ORIGINAL, ONE_OF_OURS, AN_ORIGINAL, A_STRANGER]


async def test_what_a_peer_said_it_is_holds_for_its_registration_but_not_for_its_next_link() -> None:
    attending = Attending()
    attending.room.link_up(ALICE, "192.0.2.1:9", False)
    attending.room.identified(ALICE, "hivenet-router-py/0.1.0")
    attending.register(attending.token())
    kinds = [attending.kind()]
    attending.room.link_down(ALICE, "reset")
    attending.room.link_up(ALICE, "192.0.2.1:9", False)
    kinds.append(attending.kind())
    attending.register(attending.token())
    kinds.append(attending.kind())
    assert kinds == [ONE_OF_OURS, AN_ORIGINAL, AN_ORIGINAL]


async def test_a_link_that_takes_the_place_of_another_begins_anew() -> None:
    attending = Attending()
    attending.joined()
    attending.room.identified(ALICE, "hivenet-router-py/0.1.0")
    attending.room.link_up(ALICE, "192.0.2.1:10", False)
    assert attending.kind() == AN_ORIGINAL


async def test_an_agent_is_given_no_more_than_its_link_takes_whatever_capacity_it_declares() -> None:
    assert OWN_AGENT_STREAMS_MAX == AGENT_STREAMS_MAX
    attending = Attending()
    attending.room.link_up(ALICE, "192.0.2.1:9", False)
    attending.register(attending.token(capacity=9000))
    agent = attending.registry.agent(ALICE)
    assert agent is not None
    room = [agent.free_slots]
    attending.room.identified(ALICE, "hivenet-router-py/0.1.0")
    room.append(agent.free_slots)
    assert room == [ORIGINAL_AGENT_STREAMS_MAX, AGENT_STREAMS_MAX]


async def test_a_renewal_is_told_to_the_registry_as_one() -> None:
    attending = Attending()
    attending.joined()
    attending.register(attending.token())
    changes = [change for change in attending.recorder.changes if isinstance(change, Registered)]
    assert [change.previous is None for change in changes] == [True, False]


async def test_bad_messages_leave_one_line_a_kind_and_are_counted() -> None:
    attending = Attending()
    attending.joined()
    too_large = FakeArrived(listener="peers", path=MOUNT + "/heartbeat", peer=ALICE, problem="too_large")
    with capture_logs() as logs:
        for _ in range(20):
            attending.room.answer_to(FakeExchange(too_large))
            attending.send("/heartbeat", session_token="unknown")
            attending.send("/routing-signals")
            attending.post(MOUNT + "/heartbeat", b"{")
            attending.register("unknown")
    told = [(line["event"], line["log_level"], line.get("status"), line["peer_id"]) for line in logs]
    assert told == [
        ("request_rejected", "info", 413, ALICE),
        ("request_rejected", "info", 401, ALICE),
        ("agent_message_refused", "warning", None, ALICE),
        ("agent_registration_refused", "warning", None, ALICE),
    ]
    assert attending.recorder.rejections == {("peers", "too_large"): 20, ("peers", "unknown_session"): 40}


async def test_an_agent_with_a_sick_backend_that_loses_its_link_has_not_left() -> None:
    attending = Attending()
    attending.send("/heartbeat", session_token=attending.joined(), backend_healthy=False)
    with capture_logs() as logs:
        attending.room.link_down(ALICE, "reset")
    assert [(line["event"], line["log_level"]) for line in logs] == [("agent_link_lost", "info")]


async def test_an_agent_that_said_goodbye_has_left_and_one_that_fell_silent_is_no_news() -> None:
    attending = Attending()
    token = attending.joined()
    attending.send("/heartbeat", session_token=token, backend_healthy=False, leaving=True)
    attending.joined(BOB)
    agent, other = (attending.registry.agent(peer) for peer in (ALICE, BOB))
    assert agent is not None
    assert other is not None
    attending.registry.fell_silent(other)
    assert not has_left(agent)
    with capture_logs() as logs:
        attending.room.link_down(ALICE, "closed")
        attending.room.link_down(BOB, "timed out")
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("agent_left", "info"),
        ("agent_link_lost", "info"),
    ]
    assert (has_left(agent), has_left(other)) == (True, False)


async def test_a_healthy_agents_lost_link_is_a_warning() -> None:
    attending = Attending()
    attending.joined()
    with capture_logs() as logs:
        attending.room.link_down(ALICE, "reset")
    assert [(line["event"], line["log_level"]) for line in logs] == [("agent_link_lost", "warning")]
