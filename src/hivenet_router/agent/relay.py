"""What becomes of a request that a router sends over its link?

Inference goes to the same path on the backend, bytes unchanged both ways; the few paths beside it are answered here.
What the backend refuses is handed on as it is and judged by the router; only an original router is told of a refused
chat in the structured errors that it reads.
Invariant: nothing outside `/v1/` reaches the backend, a broken relay ends with a reset and never with a clean end, and
what fails before its first byte is answered with an error body that says whose fault it is.
Source: wire.md §6.2 to §6.4, §8.2 to §8.4, §8.6, §8.7, §14 no. 3, 7, 8 and 31; decisions.md 40 and 46.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog

from hivenet_router.config import AgentSettings, BackendUrl, Secret
from hivenet_router.core.backend_errors import agent_error_body, chat_refusal
from hivenet_router.names import headers
from hivenet_router.names.errors import ERROR_RULES, Blame, ErrorCode
from hivenet_router.names.paths import CHAT_COMPLETIONS, HEALTH, INFERENCE_MOUNT, PROTOCOL_MAP
from hivenet_router.ports import (
    Arrived,
    AttemptFailed,
    ClientGone,
    DataPlane,
    DoorRules,
    Exchange,
    Fields,
    Finished,
    ForwardPlan,
    HttpServer,
)
from hivenet_router.wire.agent_protocol import Answer, encode_protocol_map, text_answer

BUFFERED_BYTES_MAX: Final = 256 << 10
REQUEST_BYTES_MAX: Final = 1 << 30
"""Routers have their own, lower limit; this one only keeps a faulty router from filling the memory."""
NEVER_S: Final = 7 * 86_400.0
"""What "no limit" comes to, so that nothing is held for ever."""
KEY_REFUSED_TOLD_EVERY_S: Final = 60.0
"""An engine that refuses the agent's own key refuses every request with it; that is told so often at most."""

_V1: Final = f"{INFERENCE_MOUNT}/v1/"
_CHAT: Final = INFERENCE_MOUNT + CHAT_COMPLETIONS
_JSON_TYPES: Final = ("application/json", "*/*")
_JSON: Final = (headers.CONTENT_TYPE.encode(), b"application/json")
_NOT_FOUND: Final = text_answer(404, "404 page not found")
_METHOD_NOT_ALLOWED: Final = text_answer(405, "Method Not Allowed")
_NOT_ACCEPTABLE: Final = text_answer(406, "Not Acceptable")
_NOT_A_ROUTER: Final = text_answer(403, "only routers with a session may ask")
_HEALTHY: Final = Answer(200, (("Content-Type", "text/plain; charset=utf-8"),), b"ok")
_MAP: Final = Answer(200, (("Content-Type", "application/json"),), encode_protocol_map([INFERENCE_MOUNT]))

_KEY_REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_KEY_ADVICE: Final = "does --backend-api-key-file hold the key that the engine asks for?"
_KEY_REFUSED_TEXT: Final = "the engine does not take the key that its agent has for it"

log = structlog.get_logger("agent")


@dataclass(frozen=True, slots=True)
class Rule:
    """How requests under one path prefix are relayed."""

    prefix: str
    plan: ForwardPlan


def link_rules(settings: AgentSettings) -> DoorRules:
    """The limits for what routers send over their links."""
    return DoorRules(
        "links",
        body_bytes_max=REQUEST_BYTES_MAX,
        # A router has the body whole before it sends, but the way may be slow.
        body_within_s=300.0,
        idle_within_s=None,
        write_within_s=settings.stream_write_timeout_s or NEVER_S,
    )


class Relay:
    """Serves what routers send; the plane tells `arrival`, `run` owns the tasks.

    Without a listener every link is one this agent dialled to a router that proved to hold the secret, so the data
    plane relays by standing rules and nothing comes up but failures. With a listener anyone may hold a link: each
    request is then decided here, where `is_router` tells whether the peer is a router of ours; that of any other comes
    without its body. `is_own_kind` tells whether a router is one of this program's kind, which judges refusals itself.
    """

    def __init__(
        self,
        plane: DataPlane,
        backend: HttpServer,
        settings: AgentSettings,
        *,
        is_router: Callable[[str], bool],
        is_own_kind: Callable[[str], bool],
    ) -> None:
        self._backend = backend
        self._is_router = is_router
        self._is_own_kind = is_own_kind
        self._has_own_key = settings.backend_api_key is not None
        self._key_refused_at = float("-inf")
        self._within_s = settings.http_timeout_s or NEVER_S
        self._rules = (
            Rule(_CHAT, _plan(settings, relay_any_status=False)),
            # Who has a key of its own must see where the engine does not take it.
            Rule(_V1, _plan(settings, relay_any_status=not self._has_own_key)),
        )
        self._group: asyncio.TaskGroup | None = None
        # A standing rule does not ask who the peer is.
        if settings.p2p_listen_port is None:
            for rule in self._rules:
                plane.add_standing(
                    rule.prefix.encode(), backend, rule.plan, cut=len(INFERENCE_MOUNT), within_s=self._within_s
                )

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    def arrival(self, exchange: Exchange) -> None:
        """A request came, or failed under a standing rule: in that case its failure comes right after."""
        if self._group is None:
            exchange.arrived.abort()
            return
        self._group.create_task(self._serve(exchange, self._rule_for(exchange.arrived)))

    def _rule_for(self, arrived: Arrived) -> Rule | None:
        return next((rule for rule in self._rules if arrived.path.startswith(rule.prefix)), None)

    async def _serve(self, exchange: Exchange, rule: Rule | None) -> None:
        try:
            await self._answer_or_tell(exchange, rule)
        except ClientGone:
            pass
        # One request that meets a fault of ours, also while it is told of another, must not take the others with it.
        except Exception:
            log.exception("request_failed", path=exchange.arrived.path)
            exchange.arrived.abort()

    async def _answer_or_tell(self, exchange: Exchange, rule: Rule | None) -> None:
        try:
            if exchange.arrived.is_standing:
                await exchange.tried()
            elif not self._is_router(exchange.arrived.peer or ""):
                await _answer(exchange, _NOT_A_ROUTER)
            elif rule is None:
                await _answer(exchange, _own_answer(exchange.arrived))
            elif exchange.arrived.problem is not None:
                await _refuse(exchange, *_unreadable(exchange.arrived.problem))
            else:
                await self._forward(exchange, rule)
        except AttemptFailed as failed:
            await self._tell_failure(exchange, failed)

    async def _forward(self, exchange: Exchange, rule: Rule) -> Finished:
        arrived = exchange.arrived
        path = arrived.path.removeprefix(INFERENCE_MOUNT)
        if ".." in path.split("/"):
            return await _answer(exchange, _NOT_FOUND)
        if arrived.query:
            path = f"{path}?{arrived.query}"
        return await exchange.forward(
            self._backend,
            path.encode(),
            rule.plan,
            within_s=self._within_s,
            on_head=lambda _: None,
        )

    async def _tell_failure(self, exchange: Exchange, failed: AttemptFailed) -> None:
        retry_after = failed.field(headers.RETRY_AFTER)
        match failed.kind:
            case "status" if self._has_own_key and failed.status in _KEY_REFUSED:
                self._say_key_refused(failed.status)
                code, message = ErrorCode.BACKEND_ERROR, _KEY_REFUSED_TEXT
            case "status" if not self._is_judged_here(exchange.arrived):
                await exchange.respond(failed.status, _handed_on(failed.fields), failed.body)
                return
            case "status":
                refusal = chat_refusal(failed.status, failed.body)
                code, message = refusal.code, refusal.message
                message = message or f"the backend answered with HTTP status {failed.status}"
            case "malformed":
                code, message = ErrorCode.BACKEND_ERROR, "the backend's answer is not valid HTTP"
            case "timeout":
                code, message = ErrorCode.BACKEND_UNAVAILABLE, "the backend did not answer in time"
            case _:
                code = ErrorCode.BACKEND_UNAVAILABLE
                message = "the backend cannot be reached, or broke off before its first byte"
        # What the backend says of a request is that request's business; a backend that says nothing is the operator's.
        say = log.debug if failed.kind == "status" else log.warning
        say("backend_failed", kind=failed.kind, status=failed.status, why=failed.detail, path=exchange.arrived.path)
        await _refuse(exchange, code, ERROR_RULES[code].status, message, retry_after=retry_after, taken=_taken(failed))

    def _is_judged_here(self, arrived: Arrived) -> bool:
        """An original router cannot judge what a chat was refused with; other paths it reads as the backend wrote them.

        Source: wire.md §8.4.
        """
        return arrived.path.startswith(_CHAT) and not self._is_own_kind(arrived.peer or "")

    def _say_key_refused(self, status: int) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._key_refused_at >= KEY_REFUSED_TOLD_EVERY_S:
            self._key_refused_at = now
            log.warning("backend_key_refused", status=status, check=_KEY_ADVICE)


def _taken(failed: AttemptFailed) -> str:
    """How the engine ended that took the request whole, for a router that counts; empty where none did, or it spoke."""
    if failed.kind == "status" or not failed.is_taken:
        return ""
    if failed.kind == "truncated":
        return headers.TAKEN_PART
    return headers.TAKEN_KEPT if failed.is_stale else headers.TAKEN_FRESH


def _plan(settings: AgentSettings, *, relay_any_status: bool) -> ForwardPlan:
    """How a request goes to the backend.

    The client's `Authorization` and `Content-Type` pass as they are and stay absent where they are: the data plane
    cannot set a field only then. A key of the agent's own stands in place of the client's. No break events: a router is
    told by a reset.
    """
    key = tuple(key_fields(settings.backend_api_key))
    return ForwardPlan(
        host=host_of(settings.backend_url).encode(),
        path_prefix=settings.backend_url.path_prefix.encode(),
        drop_fields=(headers.X_API_KEY.encode(),) if key else (),
        set_fields=((headers.ACCEPT_ENCODING.encode(), b"identity"), *key),
        drop_reply_fields=(headers.X_HIVENET_TAKEN.encode(),),
        # A router of ours is told instead, so that it can count; an original does not know of it.
        resend_name=headers.X_HIVENET_RESEND.encode(),
        idle_s=settings.stream_idle_timeout_s or NEVER_S,
        total_s=None,
        buffered_bytes_max=BUFFERED_BYTES_MAX,
        relay_any_status=relay_any_status,
        meter=False,
    )


def key_fields(key: Secret | None) -> Fields:
    """What tells the backend the agent's own key, if it has one. Source: decisions.md 46."""
    return [] if key is None else [(headers.AUTHORIZATION.encode(), b"Bearer " + key.reveal())]


def host_of(url: BackendUrl) -> str:
    """The `Host` of requests to this server: without a port where it is the scheme's own. Source: RFC 9110 §7.2."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return host if url.port == 80 else f"{host}:{url.port}"


def _own_answer(arrived: Arrived) -> Answer:
    """What this agent answers itself. Source: wire.md §6.3, §6.4."""
    if arrived.path == INFERENCE_MOUNT + HEALTH:
        return _HEALTHY
    if arrived.path != PROTOCOL_MAP:
        return _NOT_FOUND
    if arrived.method != "GET":
        return _METHOD_NOT_ALLOWED
    accept = arrived.field(headers.ACCEPT)
    if accept is not None and not any(name in accept.decode("latin-1").lower() for name in _JSON_TYPES):
        return _NOT_ACCEPTABLE
    return _MAP


def _handed_on(fields: Fields) -> Fields:
    """The fields of a backend's answer that are not of its own hop."""
    named = b",".join(value for name, value in fields if name.lower() == headers.CONNECTION.encode()).lower()
    of_hop = {name.strip().decode("latin-1") for name in named.split(b",")} | headers.HOP_BY_HOP
    # What is said of an engine that died is for this agent to say.
    of_hop |= {headers.CONTENT_LENGTH, headers.X_HIVENET_TAKEN}
    return [(name, value) for name, value in fields if name.decode("latin-1").lower() not in of_hop]


def _unreadable(problem: str) -> tuple[ErrorCode, int, str]:
    if problem == "too_large":
        return ErrorCode.REQUEST_INVALID, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request body is too large"
    if problem == "overloaded":
        return ErrorCode.BACKEND_UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE, "the agent holds as much as it may"
    return ErrorCode.REQUEST_INVALID, HTTPStatus.BAD_REQUEST, "the request body could not be read"


async def _refuse(
    exchange: Exchange, code: ErrorCode, status: int, message: str, *, retry_after: str = "", taken: str = ""
) -> Finished:
    fields = [_JSON]
    if taken:
        fields.append((headers.X_HIVENET_TAKEN.encode(), taken.encode()))
    if retry_after:
        fields.append((headers.RETRY_AFTER.encode(), retry_after.encode("latin-1")))
    source = Blame(ERROR_RULES[code].source)
    return await exchange.respond(int(status), fields, agent_error_body(code, message, source))


async def _answer(exchange: Exchange, answer: Answer) -> Finished:
    fields = [(name.lower().encode(), value.encode()) for name, value in answer.headers]
    return await exchange.respond(answer.status, fields, answer.body)
