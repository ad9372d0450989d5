"""What is written down when a request ends, and when an attempt fails?

Runs once on every way out of the walk: the agent's outcome, the counts, the durations. Invariant: it waits for nothing
and cannot fail a request; what was held has been given back before it runs.
Source: observability.md §1.4 with §'Do better'; signals.md §3.2, §8.10.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from hivenet_router.core.agent import Agent
from hivenet_router.core.attempts import LinkDead, mark_of
from hivenet_router.core.estimate import TOKENS_TOLD_MAX, believed, estimate_tokens, output_without_usage
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.outcomes import Mark
from hivenet_router.core.rejections import Rations
from hivenet_router.names.errors import ERROR_RULES, ErrorCode
from hivenet_router.ports import Clock, Finished, Recorder, RequestEnd
from hivenet_router.router.forward import Failed, Served
from hivenet_router.router.refuse import Refusal
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.router.stages import Request
from hivenet_router.router.suspect import SuspectingRoom

log = structlog.get_logger("policy")

SERVED: Final = "served"
STREAM_CUT: Final = "stream_cut"
CLIENT_GONE: Final = "client_gone"
CLIENT_GONE_STATUS: Final = 499
"""What is counted where the client left before an answer. Nobody is sent it. Source: http-api.md §15 item 5."""

LINK_RESETS_EVERY_S: Final = 2.0
"""A dead link is counted once, however many requests were on it. Source: signals.md §8.10."""

_CUT_BY_BACKEND: Final = frozenset({"backend_lost", "link_lost", "stream_idle"})
_CUT: Final = _CUT_BY_BACKEND | {"stream_overtime", "stream_aborted", "aborted"}
# A request that the stopping router ended unanswered counts like one that it refused.
_STOPPED: Final = ErrorCode.NO_AGENTS_AVAILABLE

_OWN_WORDS: Final = frozenset(
    {
        ErrorCode.MODEL_NOT_FOUND,
        ErrorCode.NO_AGENTS_AVAILABLE,
        ErrorCode.NO_CAPACITY,
        ErrorCode.QUEUE_FULL,
        ErrorCode.AGENT_DISCONNECTED,
    }
)
"""Codes whose message is the router's. Under every other one an agent may have written it, whatever it gives as the
source, and what an engine says may hold a client's prompt."""
_UNKNOWN_MODEL: Final = "(unknown)"
_NOT_BELIEVED: Final = (
    f"its engine says that one request took more than {TOKENS_TOLD_MAX} tokens; they are estimated instead: "
    "look at what the engine reports as usage"
)

NO_MODEL: Final = ModelName("")
"""The model of a request that was refused before it named one."""


@dataclass(slots=True)
class Visit:
    """What the walk learns about one request on its way, for whoever settles it. Only the walk writes it."""

    request_id: str
    model: ModelName = NO_MODEL
    tenant: str = ""
    agent: Agent | None = None
    served: Served | None = None
    refusal: Refusal | None = None
    finished: Finished | None = None
    request: Request | None = None


def status_of(finished: Finished) -> int:
    """The status that an exchange is counted with: 499 where the client left before any of an answer."""
    is_unanswered = finished.outcome == "client_left" and finished.first_byte_s == 0
    return CLIENT_GONE_STATUS if is_unanswered else finished.status or ERROR_RULES[_STOPPED].status


class SettlingRoom:
    """Books the ends of requests and of failed attempts."""

    def __init__(self, clock: Clock, recorder: Recorder, rejections: RejectionRoom, suspecting: SuspectingRoom) -> None:
        self._clock = clock
        self._recorder = recorder
        self._rejections = rejections
        self._suspecting = suspecting
        self._link_resets: dict[PeerId, float] = {}
        self._lines: Final = Rations()

    def attempt_failed(self, agent: Agent, tenant: str, failed: Failed, *, is_forgiven: bool = False) -> None:
        """Book an attempt of which the client has seen nothing; one that is forgiven is no failure of the agent."""
        if isinstance(failed.failure, LinkDead):
            self._count_link_reset(agent)
        if is_forgiven:
            return
        self._suspecting.failed(agent, mark_of(failed.failure), sample_s=failed.head_s)
        self._recorder.attempt_failed(agent, tenant)

    def settle(self, visit: Visit, age_s: float) -> int:
        """Book how this request ended, `age_s` seconds after it arrived; the status it is counted with."""
        outcome, status = _outcome_of(visit)
        agent, served, refusal = visit.agent, visit.served, visit.refusal
        first_byte_s, input_tokens, output_tokens = 0.0, 0, 0
        if served is not None:
            first_byte_s = served.finished.first_byte_s
            input_tokens, output_tokens, is_credible = _tokens(visit.request, served.finished)
            if agent is not None:
                if not is_credible:
                    self._rejections.refused("engine_usage_not_believed", _NOT_BELIEVED, peer=agent.peer)
                self._settle_agent(agent, served, outcome, input_tokens, output_tokens)
        if refusal is not None and refusal.exhausted_by is not None:
            self._settle_exhausted(visit, refusal, refusal.exhausted_by)
        self._recorder.request_ended(
            RequestEnd(
                model=visit.model,
                outcome=outcome,
                status=status,
                agent=agent if served is not None else None,
                tenant=visit.tenant,
                first_byte_s=first_byte_s,
                duration_s=age_s,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                was_routed=agent is not None,
            )
        )
        return status

    def _settle_agent(self, agent: Agent, served: Served, outcome: str, input_tokens: int, output_tokens: int) -> None:
        if outcome == SERVED:
            self._suspecting.succeeded(
                agent, sample_s=served.head_s, input_tokens=input_tokens, output_tokens=output_tokens
            )
        elif served.finished.outcome in _CUT_BY_BACKEND:
            mark = Mark.CONNECTION if served.finished.outcome == "link_lost" else Mark.APPLICATION
            self._suspecting.failed(agent, mark, sample_s=served.head_s)

    def _settle_exhausted(self, visit: Visit, refusal: Refusal, exhausted_by: str) -> None:
        self._recorder.policy_exhausted(visit.model, visit.tenant)
        why = refusal.reason
        # Clients invent names: those that nobody serves share one ration.
        kind = _UNKNOWN_MODEL if why.code is ErrorCode.MODEL_NOT_FOUND else visit.model
        suppressed = self._lines.take(kind, now=self._clock.now())
        if suppressed is None:
            return
        fields: dict[str, object] = {"why": why.message} if why.code in _OWN_WORDS else {}
        if suppressed:
            fields["suppressed"] = suppressed
        log.warning(
            "policy_exhausted",
            request_id=visit.request_id,
            model=visit.model,
            tenant=visit.tenant,
            emptied_by=exhausted_by,
            code=str(why.code),
            status=why.status,
            **fields,
        )

    def tell_due(self) -> None:
        """Tell how many lines were held back of models that had none since. Source: observability.md §8, 40."""
        for model, suppressed in self._lines.due(now=self._clock.now()):
            log.warning("policy_exhausted_suppressed", model=model, suppressed=suppressed)

    def _count_link_reset(self, agent: Agent) -> None:
        now = self._clock.now()
        recent = {peer: at for peer, at in self._link_resets.items() if now - at < LINK_RESETS_EVERY_S}
        if agent.peer not in recent:
            recent[agent.peer] = now
            self._recorder.agent_link_reset(agent.model, "forward_failure")
        self._link_resets = recent


def _tokens(request: Request | None, finished: Finished) -> tuple[int, int, bool]:
    """Tokens in and out: by the backend's count where it covers the output, else estimated from what was seen.

    The third tells whether what the backend counted can be.
    Source: observability.md §1.4 and §8, 10; signals.md §7.2; field-cases.md O-17, A-16.
    """
    usage = finished.usage
    told = (None, None) if usage is None else (usage.prompt_tokens, usage.completion_tokens)
    prompt, output = known = believed(told[0]), believed(told[1])
    is_credible = known == told
    # No prompt is of no tokens: an engine that counts none has told of its output only.
    prompt, output = prompt or 0, output or 0
    if request is None or not request.path.generates:
        return prompt, output, is_credible
    if not prompt:
        prompt = _estimated(request)
    if usage is None or not (is_credible and usage.exact):
        # An answer that is no JSON is all output.
        output = max(output, output_without_usage(finished.bytes if usage is None else usage.output_bytes))
    return prompt, output, is_credible


def _estimated(request: Request) -> int:
    digest = request.exchange.arrived.digest
    return 0 if digest is None else estimate_tokens(digest.text_bytes + digest.input_bytes, digest.messages)


def _outcome_of(visit: Visit) -> tuple[str, int]:
    """The outcome's name and the status that is counted with it."""
    finished = visit.finished
    if finished is not None and finished.outcome == "client_left":
        return CLIENT_GONE, status_of(finished)
    if visit.served is not None:
        ended = visit.served.finished
        return (STREAM_CUT if ended.outcome in _CUT else SERVED), ended.status
    if visit.refusal is not None:
        return str(visit.refusal.reason.code), visit.refusal.reason.status
    return str(_STOPPED), ERROR_RULES[_STOPPED].status
