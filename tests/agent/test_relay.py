"""What becomes of the requests that routers send, with a scripted data plane."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from hivenet_router.agent.relay import NEVER_S, Relay, host_of, link_rules
from hivenet_router.config import AgentSettings, BackendUrl, Program, parse
from hivenet_router.ports import (
    Arrived,
    AttemptFailed,
    ClientGone,
    DataPlane,
    Destination,
    Digest,
    FailureKind,
    Fields,
    Finished,
    ForwardPlan,
    Head,
    HttpServer,
)

MOUNT = "/hivenet_router/inference/1.0.0"
CHAT = f"{MOUNT}/v1/chat/completions"
ROUTER = "12D3KooWRouter"
BACKEND = HttpServer("backend", 8000)


def settings(*flags: str) -> AgentSettings:
    parsed = parse(Program.AGENT, flags, {"HIVENET_ROUTER_JWT_SECRET": "s" * 32})
    assert isinstance(parsed, AgentSettings)
    return parsed


@dataclass
class Request:
    """A `ports.Arrived` by its fields."""

    path: str
    method: str = "POST"
    query: str = ""
    peer: str | None = ROUTER
    problem: str | None = None
    is_standing: bool = False
    headers: dict[str, bytes] = field(default_factory=dict)
    listener: str = "links"
    client: str = "/ip4/192.0.2.1/tcp/9000"
    request_id: str = "id"
    age_s: float = 0.0
    model: str | None = None
    digest: Digest | None = None
    digest_error: str | None = None
    aborts: int = 0
    body_bytes: int = 2

    def body(self) -> bytes:
        return b"{}"

    def field(self, name: str) -> bytes | None:
        return self.headers.get(name)

    def fields(self) -> Fields:
        return [(name.encode(), value) for name, value in self.headers.items()]

    def abort(self) -> bool:
        self.aborts += 1
        return True


@dataclass(frozen=True)
class Ended:
    """A `ports.Finished`."""

    outcome: str = "responded"
    status: int = 200
    usage: None = None
    first_byte_s: float = 0.0
    head_s: float = 0.0
    bytes: int = 0


class ScriptedExchange:
    """Fails or not as it was told to, and keeps what was answered and forwarded."""

    def __init__(self, arrived: Request, ends: Exception | None = None) -> None:
        self.arrived: Arrived = arrived
        self.finished: Finished | None = None
        self.ends = ends
        self.answer: tuple[int, dict[bytes, bytes], bytes] | None = None
        self.forwards: list[tuple[Destination, bytes, ForwardPlan, float]] = []

    async def forward(
        self,
        to: Destination,
        target: bytes,
        plan: ForwardPlan,
        *,
        within_s: float,
        on_head: Callable[[Head], None],
        on_reply: Callable[[], None] | None = None,
        reply_fields: Sequence[tuple[bytes, bytes]] = (),
        body: bytes | None = None,
    ) -> Finished:
        self.forwards.append((to, target, plan, within_s))
        return await self.outcome()

    def give_up(self) -> None:
        raise AssertionError("an agent gives nothing up for another one")

    async def tried(self) -> Finished:
        return await self.outcome()

    async def outcome(self) -> Finished:
        await asyncio.sleep(0)
        if self.ends is not None:
            raise self.ends
        return Ended("answered")

    async def respond(self, status: int, fields: Fields, body: bytes) -> Finished:
        self.answer = (status, dict(fields), body)
        return Ended(status=status)

    def call_off(self, status: int, fields: Fields, body: bytes) -> None:
        raise AssertionError("an agent's exchanges are aborted")

    async def until(self, something: object) -> None:
        raise AssertionError("an agent waits for nothing else")

    @property
    def error(self) -> dict[str, str]:
        assert self.answer is not None
        assert self.answer[1][b"content-type"] == b"application/json"
        return cast("dict[str, str]", json.loads(self.answer[2])["error"])


class StandingRules:
    """The one thing a relay asks of the plane."""

    def __init__(self) -> None:
        self.rules: list[tuple[bytes, Destination, ForwardPlan, int]] = []

    def add_standing(self, prefix: bytes, to: Destination, plan: ForwardPlan, *, cut: int, within_s: float) -> None:
        self.rules.append((prefix, to, plan, cut))


def relay_of(
    plane: StandingRules, *flags: str, routers: tuple[str, ...] = (ROUTER,), own_kind: tuple[str, ...] = ()
) -> Relay:
    # Of the plane only its standing rules are used.
    whole = cast("DataPlane", plane)
    return Relay(whole, BACKEND, settings(*flags), is_router=routers.__contains__, is_own_kind=own_kind.__contains__)


async def led(relay: Relay, exchange: ScriptedExchange) -> ScriptedExchange:
    running = asyncio.create_task(relay.run())
    await asyncio.sleep(0)
    relay.arrival(exchange)
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    return exchange


def test_without_a_listener_inference_is_relayed_by_standing_rules_and_chat_is_judged() -> None:
    plane = StandingRules()
    relay_of(plane, "--backend-url=http://engine:8000/base", "--http-timeout=120s")
    (chat, others) = plane.rules
    assert (chat[0], others[0]) == (CHAT.encode(), f"{MOUNT}/v1/".encode())
    assert chat[1] is others[1] is BACKEND
    assert (chat[3], others[3]) == (len(MOUNT), len(MOUNT))
    assert (chat[2].relay_any_status, others[2].relay_any_status) == (False, True)
    for _, _, plan, _ in plane.rules:
        assert (plan.host, plan.path_prefix) == (b"engine:8000", b"/base")
        assert plan.set_fields == ((b"accept-encoding", b"identity"),)
        assert (plan.idle_s, plan.total_s, plan.buffered_bytes_max) == (60.0, None, 256 << 10)
        assert not any(plan.break_events)


@pytest.mark.parametrize("flags", [("--p2p-listen-port=0",), ("--p2p-listen-port=0", "--http-timeout=5s")])
def test_what_a_standing_rule_cannot_know_is_decided_for_each_request(flags: tuple[str, ...]) -> None:
    plane = StandingRules()
    relay_of(plane, *flags)
    assert not plane.rules


def test_a_limit_that_is_off_is_a_very_long_one() -> None:
    plane = StandingRules()
    relay_of(plane, "--stream-idle-timeout=0s")
    assert {plan.idle_s for _, _, plan, _ in plane.rules} == {NEVER_S}
    assert link_rules(settings("--stream-write-timeout=0s")).write_within_s == NEVER_S
    assert link_rules(settings("--stream-write-timeout=7s")).write_within_s == 7


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (BackendUrl("http", "engine", 80), "engine"),
        (BackendUrl("http", "engine", 8000), "engine:8000"),
        (BackendUrl("http", "::1", 8000), "[::1]:8000"),
    ],
)
def test_the_backend_is_told_its_own_host(url: BackendUrl, host: str) -> None:
    assert host_of(url) == host


async def test_with_a_listener_a_router_is_served_and_a_stranger_is_not() -> None:
    relay = relay_of(StandingRules(), "--p2p-listen-port=0", "--http-timeout=9s")
    served = await led(relay, ScriptedExchange(Request(CHAT, query="a=1")))
    assert [(to, target, within_s) for to, target, _, within_s in served.forwards] == [
        (BACKEND, b"/v1/chat/completions?a=1", 9.0)
    ]
    assert served.answer is None
    for path in (CHAT, f"{MOUNT}/health"):
        refused = await led(relay, ScriptedExchange(Request(path, peer="12D3KooWStranger")))
        assert not refused.forwards
        assert refused.answer is not None
        assert refused.answer[0] == 403


@pytest.mark.parametrize("flags", [(), ("--p2p-listen-port=0",)])
@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("connect", 503, "backend_unavailable"),
        ("reset", 503, "backend_unavailable"),
        ("timeout", 503, "backend_unavailable"),
        ("truncated", 503, "backend_unavailable"),
        ("malformed", 502, "backend_error"),
    ],
)
async def test_a_backend_that_fails_is_blamed_in_an_error_body(
    flags: tuple[str, ...], kind: FailureKind, status: int, code: str
) -> None:
    failed = AttemptFailed(kind, "10.0.0.5:8000 said nothing")
    exchange = await led(
        relay_of(StandingRules(), *flags), ScriptedExchange(Request(CHAT, is_standing=not flags), failed)
    )
    assert exchange.answer is not None
    assert exchange.answer[0] == status
    assert (exchange.error["code"], exchange.error["source"]) == (code, "backend")
    # A client may read this; where the backend lives is not its business.
    assert "10.0.0.5" not in exchange.error["message"]


@pytest.mark.parametrize(
    ("failed", "word"),
    [
        (AttemptFailed("reset", is_taken=True, is_stale=True), b"kept"),
        (AttemptFailed("reset", is_taken=True), b"fresh"),
        (AttemptFailed("truncated", is_taken=True), b"part"),
        (AttemptFailed("reset"), None),
        (AttemptFailed("connect"), None),
        (AttemptFailed("status", status=500), None),
    ],
)
async def test_a_router_is_told_whether_the_engine_may_have_carried_the_request_out(
    failed: AttemptFailed, word: bytes | None
) -> None:
    exchange = await led(relay_of(StandingRules()), ScriptedExchange(Request(CHAT, is_standing=True), failed))
    assert exchange.answer is not None
    assert exchange.answer[1].get(b"x-hivenet-taken") == word


class MuteExchange(ScriptedExchange):
    """Cannot even be answered."""

    async def respond(self, status: int, fields: Fields, body: bytes) -> Finished:
        raise OSError(24, "Too many open files")


@pytest.mark.parametrize("flags", [(), ("--p2p-listen-port=0",)])
async def test_a_failure_that_cannot_be_told_costs_its_request_and_no_other(flags: tuple[str, ...]) -> None:
    relay = relay_of(StandingRules(), *flags)
    mute, arrived = Request(CHAT, is_standing=not flags), Request(CHAT, is_standing=not flags)
    running = asyncio.create_task(relay.run())
    await asyncio.sleep(0)
    relay.arrival(MuteExchange(mute, AttemptFailed("connect", "x")))
    for _ in range(10):
        await asyncio.sleep(0)
    assert mute.aborts == 1
    other = ScriptedExchange(arrived, AttemptFailed("connect", "x"))
    relay.arrival(other)
    for _ in range(10):
        await asyncio.sleep(0)
    assert other.answer is not None
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(
    ("status", "body", "answered", "code", "message"),
    [
        (
            400,
            b'{"error":{"message":"bad <tag>","type":"invalid_request_error"}}',
            400,
            "invalid_parameter",
            "bad <tag>",
        ),
        (
            400,
            b'{"message":"maximum context length is 5"}',
            400,
            "context_length_exceeded",
            "maximum context length is 5",
        ),
        (429, b"busy", 503, "backend_unavailable", "busy"),
        (500, b"", 502, "backend_error", "the backend answered with HTTP status 500"),
        (204, b"", 502, "backend_error", "the backend answered with HTTP status 204"),
    ],
)
async def test_a_chat_answer_other_than_200_becomes_a_structured_error_for_an_original_router(
    status: int, body: bytes, answered: int, code: str, message: str
) -> None:
    failed = AttemptFailed("status", status=status, fields=[(b"Retry-After", b"7")], body=body)
    exchange = await led(relay_of(StandingRules()), ScriptedExchange(Request(CHAT, is_standing=True), failed))
    assert exchange.answer is not None
    assert (exchange.answer[0], exchange.answer[1][b"retry-after"]) == (answered, b"7")
    assert exchange.error == {"code": code, "message": message, "source": "backend"}
    assert b"<" not in exchange.answer[2]


@pytest.mark.parametrize("flags", [(), ("--p2p-listen-port=0",)])
@pytest.mark.parametrize("status", [204, 400, 401, 404, 413, 429, 500, 501])
async def test_a_router_of_our_own_kind_is_handed_what_the_backend_said(flags: tuple[str, ...], status: int) -> None:
    """decisions.md 40."""
    fields = [(b"Content-Type", b"text/html"), (b"Retry-After", b"7"), (b"X-Engine", b"e"), (b"content-length", b"9")]
    fields += [(b"Connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"Transfer-Encoding", b"chunked")]
    failed = AttemptFailed("status", status=status, fields=fields, body=b"<h1>no</h1>")
    relay = relay_of(StandingRules(), *flags, own_kind=(ROUTER,))
    exchange = await led(relay, ScriptedExchange(Request(CHAT, is_standing=not flags), failed))
    assert exchange.answer == (
        status,
        {b"Content-Type": b"text/html", b"Retry-After": b"7", b"X-Engine": b"e"},
        b"<h1>no</h1>",
    )


def key_file(folder: Path, key: str = "sk-engine") -> str:
    path = folder / "key"
    path.write_text(f"{key}\n")
    path.chmod(0o600)
    return f"--backend-api-key-file={path}"


def test_a_key_of_the_agents_own_stands_in_place_of_the_clients(tmp_path: Path) -> None:
    """decisions.md 46."""
    plane = StandingRules()
    relay_of(plane, key_file(tmp_path))
    for _, _, plan, _ in plane.rules:
        assert (b"authorization", b"Bearer sk-engine") in plan.set_fields
        assert b"x-api-key" in plan.drop_fields
        assert not plan.relay_any_status
    without = StandingRules()
    relay_of(without)
    for _, _, plan, _ in without.rules:
        assert not plan.drop_fields
        assert all(name != b"authorization" for name, _ in plan.set_fields)


@pytest.mark.parametrize("own_kind", [(), (ROUTER,)])
@pytest.mark.parametrize("path", [CHAT, f"{MOUNT}/v1/embeddings"])
@pytest.mark.parametrize("status", [401, 403])
async def test_an_engine_that_refuses_the_agents_own_key_is_the_operators_fault(
    tmp_path: Path, status: int, path: str, own_kind: tuple[str, ...]
) -> None:
    relay = relay_of(StandingRules(), key_file(tmp_path), own_kind=own_kind)
    with capture_logs() as lines:
        for _ in range(3):
            failed = AttemptFailed("status", status=status, body=b'{"error":"bad key sk-engine"}')
            exchange = await led(relay, ScriptedExchange(Request(path, is_standing=True), failed))
            assert exchange.answer is not None
            assert (exchange.answer[0], exchange.error["code"]) == (502, "backend_error")
            assert b"sk-engine" not in exchange.answer[2]
    (told,) = [line for line in lines if line["event"] == "backend_key_refused"]
    assert (told["status"], "--backend-api-key-file" in told["check"]) == (status, True)
    assert "sk-engine" not in str(lines)


async def test_what_else_an_engine_refuses_is_handed_on_by_an_agent_with_a_key(tmp_path: Path) -> None:
    relay = relay_of(StandingRules(), key_file(tmp_path))
    failed = AttemptFailed(
        "status", status=404, fields=[(b"content-type", b"application/json")], body=b'{"detail":"x"}'
    )
    exchange = await led(relay, ScriptedExchange(Request(f"{MOUNT}/v1/messages", is_standing=True), failed))
    assert exchange.answer == (404, {b"content-type": b"application/json"}, b'{"detail":"x"}')


@pytest.mark.parametrize(("problem", "status"), [("too_large", 413), ("incomplete", 400), ("slow", 400)])
async def test_a_body_that_is_not_there_is_refused_unforwarded(problem: str, status: int) -> None:
    exchange = await led(relay_of(StandingRules()), ScriptedExchange(Request(CHAT, problem=problem)))
    assert exchange.answer is not None
    assert exchange.answer[0] == status
    assert (exchange.error["code"], exchange.error["source"]) == ("request_invalid", "router")
    assert not exchange.forwards


@pytest.mark.parametrize(
    "path",
    [
        f"{MOUNT}/metrics",
        f"{MOUNT}/v1",
        f"{MOUNT}",
        f"{MOUNT}v1/models",
        "/v1/chat/completions",
        "/.well-known/libp2p",
        "/",
    ],
)
@pytest.mark.parametrize("flags", [(), ("--p2p-listen-port=0",)])
async def test_nothing_outside_v1_reaches_the_backend(path: str, flags: tuple[str, ...]) -> None:
    exchange = await led(relay_of(StandingRules(), *flags), ScriptedExchange(Request(path)))
    assert not exchange.forwards
    assert exchange.answer is not None
    assert (exchange.answer[0], exchange.answer[2]) == (404, b"404 page not found\n")


async def test_a_path_that_climbs_out_of_v1_does_not_reach_the_backend() -> None:
    relay = relay_of(StandingRules(), "--p2p-listen-port=0")
    exchange = await led(relay, ScriptedExchange(Request(f"{MOUNT}/v1/../metrics")))
    assert not exchange.forwards


async def test_health_is_the_agents_own() -> None:
    exchange = await led(relay_of(StandingRules()), ScriptedExchange(Request(f"{MOUNT}/health", method="GET")))
    assert exchange.answer is not None
    assert (exchange.answer[0], exchange.answer[2]) == (200, b"ok")


@pytest.mark.parametrize(
    ("method", "accept", "status"),
    [
        ("GET", None, 200),
        ("GET", b"application/json", 200),
        ("GET", b"text/html, */*;q=0.1", 200),
        ("GET", b"text/html", 406),
        ("POST", b"application/json", 405),
    ],
)
async def test_the_protocol_map_is_told_to_those_who_take_json(method: str, accept: bytes | None, status: int) -> None:
    headers = {} if accept is None else {"accept": accept}
    request = Request("/.well-known/libp2p/protocols", method=method, headers=headers)
    exchange = await led(relay_of(StandingRules()), ScriptedExchange(request))
    assert exchange.answer is not None
    assert exchange.answer[0] == status
    if status == 200:
        assert json.loads(exchange.answer[2]) == {MOUNT: {"path": f"{MOUNT}/"}}


async def test_a_router_that_left_and_a_fault_of_ours_end_that_exchange_only() -> None:
    relay = relay_of(StandingRules())
    left = await led(relay, ScriptedExchange(Request(CHAT), ClientGone()))
    assert left.answer is None
    broken = await led(relay, ScriptedExchange(Request(CHAT), ZeroDivisionError()))
    assert cast("Request", broken.arrived).aborts == 1
    assert (await led(relay, ScriptedExchange(Request(f"{MOUNT}/health")))).answer is not None


async def test_before_it_runs_nothing_is_kept_waiting() -> None:
    exchange = ScriptedExchange(Request(CHAT))
    relay_of(StandingRules()).arrival(exchange)
    assert cast("Request", exchange.arrived).aborts == 1
