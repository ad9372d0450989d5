"""The way of one request: arrive, identify, redirect, hold, admit, place, forward, settle; refuse from any of them.

Read this first. Each room is a module of the same name. A request leaves in one of three ways: served by an agent (at
least in part), refused with a reason, or left by its client; whichever it is, everything it held has been given back
and it has been settled, once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import structlog

from hivenet_router.core.attempts import Attempts, GiveUp, RetrySameFree, StepSpent, TryAnother, Verdict
from hivenet_router.core.ids import ModelName
from hivenet_router.core.refusals import reason
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import InferencePath
from hivenet_router.ports import ClientGone, Clock, Exchange, Recorder
from hivenet_router.router import arrive, identify, redirect, refuse
from hivenet_router.router.admit import admit
from hivenet_router.router.forward import ForwardRoom, Served
from hivenet_router.router.hold import hold
from hivenet_router.router.place import PlacingRoom
from hivenet_router.router.refuse import Refusal
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.router.remember import RememberingRoom
from hivenet_router.router.settle import SettlingRoom, Visit
from hivenet_router.router.stages import Admitted

log = structlog.get_logger("router")


@dataclass(frozen=True, slots=True)
class House:
    """The rooms, and what the walk itself needs."""

    placing: PlacingRoom
    forwarding: ForwardRoom
    settling: SettlingRoom
    remembering: RememberingRoom
    rejections: RejectionRoom
    clock: Clock
    recorder: Recorder
    named: Callable[[ModelName], ModelName]
    request_timeout_s: float
    tries_per_step_max: int


async def walk(exchange: Exchange, path: InferencePath, house: House) -> int:
    """Lead one inference request from the door to its last byte; the status it is counted with."""
    visit = Visit(exchange.arrived.request_id)
    try:
        within_s, now = house.request_timeout_s, house.clock.now()
        request = arrive.read(exchange, path, request_timeout_s=within_s, named=house.named, now=now)
        visit.request, visit.model = request, request.model
        visitor = identify.identify(request)
        visit.tenant = visitor.caller.tenant
        visitor = redirect.redirect(visitor)
        visitor = await hold(visitor)
        with admit(visitor) as admitted:
            visit.served = await _serve(admitted, visit, house)
            visit.finished = visit.served.finished
    except Refusal as refusal:
        # Its traceback holds this frame, and so itself and the request with its body.
        visit.refusal = refusal.with_traceback(None)
        _tell_of_body(exchange, refusal, house.rejections)
        visit.finished = await refuse.answer(exchange, refusal, path.dialect)
    except ClientGone:
        visit.finished = exchange.finished
    except Exception:
        log.exception("request_failed", request_id=visit.request_id, path=path.path)
        visit.refusal = refuse.refuse(ErrorCode.BACKEND_ERROR, "the router failed on this request", status=500)
        visit.finished = await refuse.answer(exchange, visit.refusal, path.dialect)
    finally:
        status = house.settling.settle(visit, exchange.arrived.age_s)
    return status


def _tell_of_body(exchange: Exchange, refusal: Refusal, rejections: RejectionRoom) -> None:
    """A body that did not come whole is like what the edge turns away: nobody could look into it further."""
    arrived = exchange.arrived
    if arrived.problem is not None:
        rejections.rejected(arrived.listener, arrived.client, refusal.reason.status, arrived.problem)


async def _serve(admitted: Admitted, visit: Visit, house: House) -> Served:
    """Place and forward until an agent has answered.

    Raises: Refusal when nobody can, or the last thing said is final; ClientGone.
    """
    attempts, number = _whole_budget(house.tries_per_step_max), None
    remembering, arrived = house.remembering, admitted.request.exchange.arrived
    deadly = await remembering.recall(arrived) if remembering.is_in_use else None
    if deadly is not None:
        attempts = attempts.once_only()
    while True:
        with await house.placing.place(admitted, attempts, earlier=number) as placed:
            attempts, number, visit.agent = placed.attempts, placed.number, placed.agent
            result = await house.forwarding.forward(admitted, placed)
            if isinstance(result, Served):
                if deadly is not None and result.finished.outcome == "answered":
                    remembering.served(deadly)
                return result
            failure, peer = result.failure, placed.agent.peer
            # Before the slot is free again, so that whoever is woken by it knows how the agent did.
            house.settling.attempt_failed(
                placed.agent, visit.tenant, result, is_forgiven=attempts.forgives(failure, peer)
            )
        if result.engine_died:
            deadly = await remembering.died(arrived)
        attempts = _next(attempts.after(failure, peer, was_taken=result.was_taken))


@lru_cache(maxsize=1)
def _whole_budget(tries_max: int) -> Attempts:
    return Attempts(tries_max=tries_max)


def _next(verdict: Verdict) -> Attempts:
    """What is left to try after a failed attempt.

    Raises: Refusal when nothing is.
    """
    match verdict:
        case TryAnother(rest) | RetrySameFree(rest):
            return rest
        case StepSpent(spent):
            said = spent.final(reason(ErrorCode.NO_AGENTS_AVAILABLE, "every attempt failed"))
            raise Refusal(said, exhausted_by="max_tries exhausted")
        case GiveUp(error):
            raise Refusal(error)
