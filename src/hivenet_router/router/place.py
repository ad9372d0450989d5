"""Which agent gets this request, and when?

A request needs a forward permit and a slot on an agent, and takes both or neither. Where it must wait, it waits until
it is woken, its deadline passes, or its client leaves; where even the line is full, it waits outside for a moment until
there is room in it. Invariant: what a `Placed` holds is given back exactly once, at the latest at the end of its `with`
block; every change in the registry asks the waiting ones again.
Source: configuration.md §6.4; decisions.md 2, 21, 23; signals.md §8.9; http-api.md §15 item 12.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

from hivenet_router.core.agent import Agent
from hivenet_router.core.attempts import Attempts
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.policy import (
    BUILT_IN_STEP,
    Hurdle,
    NoCandidate,
    PolicyStep,
    choose,
    evaluate,
    is_offered,
    may_wait,
    refusal_for,
)
from hivenet_router.core.pool import ModelPool
from hivenet_router.core.refusals import RefusalReason, reason
from hivenet_router.core.registry import Registry
from hivenet_router.core.slots import Slot
from hivenet_router.core.waiting import (
    Closed,
    Crowded,
    Nowhere,
    Outcome,
    Permit,
    Placing,
    QueueFull,
    Ticket,
    WaitingRoom,
    Woken,
)
from hivenet_router.names.errors import ErrorCode
from hivenet_router.ports import Clock, Exchange, Recorder
from hivenet_router.router.refuse import STOPPING, Refusal
from hivenet_router.router.stages import Admitted, Request

LINK_RETURN_WITHIN_S: Final = 2.0
"""How long an agent is waited for that has lost its link or is about to dial, where nobody else can take a request."""
_FULL_FOR_S: Final = 1.0


class Placed:
    """A request with a place: a slot on this agent and a permit to forward, both leases.

    `attempts` is what is left to the request; after a wait, agents that were full may be asked again.
    """

    __slots__ = ("_give_back", "_permit", "agent", "attempts", "number", "slot", "step")

    def __init__(
        self, slot: Slot, step: PolicyStep, attempts: Attempts, permit: Permit, give_back: Callable[[Permit], None]
    ) -> None:
        self.slot: Final = slot
        self.agent: Final = slot.agent
        self.step: Final = step
        self.attempts: Final = attempts
        self.number: Final = permit.number
        self._permit: Final = permit
        self._give_back: Final = give_back

    def headers_came(self) -> None:
        """The backend's headers are there: slot and permit end, the stream still counts as running."""
        self.slot.headers_arrived()
        self._give_back(self._permit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.slot.release()
        self._give_back(self._permit)


class _Asking:
    """A request that wants a place, as the waiting room knows it.

    While it waits it has a `woken`, and it stands outside as long as it has no `ticket`.
    """

    __slots__ = (
        "attempts",
        "capability",
        "deadline",
        "limit",
        "model",
        "slot",
        "step",
        "ticket",
        "was_parked",
        "was_turned_away",
        "woken",
    )

    def __init__(self, request: Request, step: PolicyStep, attempts: Attempts) -> None:
        self.model: Final = request.model
        self.capability: Final = request.path.capability
        self.deadline: Final = request.deadline
        self.step: Final = step
        self.attempts = attempts
        self.was_turned_away: Final = bool(attempts.busy)
        self.slot: Slot | None = None
        self.was_parked = False
        self.ticket: Ticket[_Asking] | None = None
        self.woken: asyncio.Future[Outcome] | None = None
        self.limit: asyncio.Timeout | None = None


class PlacingRoom:
    """Gives requests their places."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        recorder: Recorder,
        *,
        forwards_max: int,
        queue_requests_max: int,
        enqueue_timeout_s: float,
        capacity_waiters_max: int,
        on_waiting: Callable[[bool], None],
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._recorder = recorder
        self._enqueue_timeout_s = enqueue_timeout_s
        self._on_waiting = on_waiting
        self._waiting = 0
        self._outside: deque[_Asking] = deque()
        # Agents that are about to be back, and until when that is believed.
        self._expected: dict[PeerId, Monotonic] = {}
        # Models whose number of parked requests may have changed.
        self._untold: set[ModelName] = set()
        self._room: WaitingRoom[_Asking] = WaitingRoom(
            self._try_place, permits=forwards_max, line_max=queue_requests_max, depth_max=capacity_waiters_max
        )

    @property
    def waiting(self) -> int:
        """Requests that wait for a permit, for capacity, or for room in the line."""
        return self._waiting

    @property
    def permits_free(self) -> int:
        """How many more requests may be forwarded at once."""
        return self._room.permits_free

    async def place(self, admitted: Admitted, attempts: Attempts, *, earlier: int | None = None) -> Placed:
        """A place for the request; `earlier` is the number of the place it had before, so that it keeps its turn.

        Raises: Refusal when there is none and waiting does not help or took too long; ClientGone.
        """
        request = admitted.request
        if self._clock.now() >= request.deadline:
            raise Refusal(_TOO_LATE)
        asking = _Asking(request, BUILT_IN_STEP, attempts)
        if (self._outside or not self._room.permits_free) and not self._is_offered(asking):
            # It would wait for a permit only to be told the same, or that the line is full, which is no use to it.
            raise self._refusal(asking, Nowhere())
        # Who comes later stands behind those outside; who was in the line before does not.
        outcome = QueueFull() if self._outside and earlier is None else self._arrive(asking, earlier)
        if outcome is None or isinstance(outcome, QueueFull):
            outcome = await self._wait_for_outcome(request.exchange, asking)
        return self._placed(asking, outcome)

    def slot_freed(self, model: ModelName) -> None:
        """A slot of a model came free: ask those who wait for it until no slot is left."""
        if self._waiting:
            self._wake(self._room.slot_freed(model))

    def revisit(self, model: ModelName) -> None:
        """Something else changed for a model: ask everybody who waits for it, since it may end their hope."""
        if self._waiting:
            self._wake(self._room.revisit(model))

    def expect(self, agent: Agent) -> None:
        """An agent has lost its link, or is about to dial: it is waited for a little, from now on."""
        until = self._expected[agent.peer] = Monotonic(self._clock.now() + LINK_RETURN_WITHIN_S)
        asyncio.get_running_loop().call_later(LINK_RETURN_WITHIN_S, self._expect_no_longer, agent, until)

    def _expect_no_longer(self, agent: Agent, until: Monotonic) -> None:
        if self._expected.get(agent.peer) == until:
            del self._expected[agent.peer]
            self.revisit(agent.model)

    def room_elsewhere(self, request: Request, placed: Placed) -> int:
        """How many free slots the agent has that would take this request over: 0 when there is none, or no try left."""
        attempts, pool = placed.attempts, self._registry.pool(request.model)
        if attempts.is_last_execution or attempts.tries_used + 1 >= attempts.tries_max:
            return 0
        others, capability = attempts.failed | {placed.agent.peer}, request.path.capability
        other = choose(placed.step, pool, capability, others, attempts.busy, now=self._clock.now())
        return 0 if other is None or other.outcomes.suspicion is not None else other.free_slots

    def close(self) -> None:
        """The router stops: nobody waits any longer, and nobody is given a place any more."""
        self._wake(self._room.close())

    def _arrive(self, asking: _Asking, earlier: int | None = None) -> Outcome | None:
        """What came of asking for a place; None when it got a ticket to wait with."""
        answer = self._room.arrive(asking.model, asking, earlier=earlier)
        if not isinstance(answer, Ticket):
            return answer
        asking.ticket = answer
        asking.attempts = asking.attempts.after_wait()
        return None

    async def _wait_for_outcome(self, exchange: Exchange, asking: _Asking) -> Outcome:
        """Wait until there is a place, or none to hope for."""
        began, outcome = self._clock.now(), None
        try:
            while outcome is None or isinstance(outcome, QueueFull):
                outcome = await self._wait(exchange, asking)
                # Since it was told that there is no agent, one may have come back.
                if isinstance(outcome, Nowhere) and self._why_nowhere(asking) is None:
                    outcome = self._ask_again(asking)
        finally:
            # They know each other, and nobody is to look for that.
            asking.ticket = asking.limit = asking.woken = None
        if isinstance(outcome, Permit) and asking.was_parked:
            self._recorder.waited(asking.model, self._clock.now() - began)
        return outcome

    def _ask_again(self, asking: _Asking) -> Outcome | None:
        """What comes of asking once more, at the place that it had."""
        if self._clock.now() >= asking.deadline:
            raise Refusal(_TOO_LATE)
        return self._arrive(asking, None if asking.ticket is None else asking.ticket.number)

    async def _wait(self, exchange: Exchange, asking: _Asking) -> Outcome:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[Outcome] = loop.create_future()
        asking.woken = woken
        until = asking.deadline
        if asking.ticket is None:
            self._outside.append(asking)
            until = min(until, Monotonic(self._clock.now() + self._enqueue_timeout_s))
        # An agent may be full of what others sent it; then nothing that happens here tells when it has room again.
        if asking.was_turned_away:
            loop.call_later(_FULL_FOR_S, self.slot_freed, asking.model)
        self._count_waiting(+1, asking.model)
        try:
            async with asyncio.timeout_at(until) as asking.limit:
                await exchange.until(woken)
        except TimeoutError:
            self._withdraw(asking, woken)
            raise Refusal(_QUEUE_FULL if asking.ticket is None else _TOO_LATE) from None
        except BaseException:
            self._withdraw(asking, woken)
            raise
        finally:
            self._count_waiting(-1, asking.model)
        return woken.result()

    def _withdraw(self, asking: _Asking, woken: "asyncio.Future[Outcome]") -> None:
        """End a wait from the request's side. A place that was given in the same moment is handed on."""
        if woken.done() and not woken.cancelled():
            outcome = woken.result()
            if isinstance(outcome, Permit):
                with self._placed(asking, outcome):
                    return
        elif asking.ticket is not None:
            self._room.leave(asking.ticket)
        else:
            self._outside.remove(asking)
        self._let_in()

    def _let_in(self) -> None:
        """Who waits outside comes in, in the order of arrival, as far as there is room in the line again."""
        while self._outside:
            asking = self._outside[0]
            # One whose time is over is on its way out, and will let the next one in.
            if asking.limit is None or asking.limit.expired():
                return
            outcome = self._arrive(asking)
            if isinstance(outcome, QueueFull):
                return
            self._outside.popleft()
            if outcome is None:
                asking.limit.reschedule(asking.deadline)
            else:
                _resolve(asking, outcome)

    def _placed(self, asking: _Asking, outcome: Outcome) -> Placed:
        if isinstance(outcome, Permit):
            return Placed(self._slot_of(asking), asking.step, asking.attempts, outcome, self._give_back)
        raise self._refusal(asking, outcome)

    def _refusal(self, asking: _Asking, outcome: Nowhere | Crowded | QueueFull | Closed) -> Refusal:
        match outcome:
            case Nowhere():
                none = self._why_nowhere(asking)
                # Invariant: it was asked, or this was looked into, in this very step, and nothing has changed since.
                assert none is not None
                why = refusal_for(none, asking.model, asking.capability)
                return Refusal(asking.attempts.final(why), exhausted_by=_named(none.emptied_by))
            case Crowded():
                return Refusal(asking.attempts.final(_crowded(asking.model)), exhausted_by=_named(Hurdle.CAPACITY))
            case QueueFull():
                return Refusal(_QUEUE_FULL)
            case Closed():
                return Refusal(asking.attempts.final(STOPPING))

    def _try_place(self, asking: _Asking) -> Placing:
        attempts, pool = asking.attempts, self._registry.pool(asking.model)
        if pool is not None and pool.with_free_slot:
            now = self._clock.now()
            # Invariant: no await between the choice and the take; another request could take the last slot.
            while agent := self._choose(asking, pool, now=now):
                asking.slot = self._registry.take_slot(agent)
                if asking.slot is not None:
                    if agent.outcomes.suspicion is not None:
                        agent.outcomes.try_began(now=now)
                    return Placing.PLACED
        is_full = may_wait(asking.step, pool, asking.capability, attempts.failed, attempts.busy)
        if not is_full and not self._is_expected(asking):
            return Placing.NOWHERE
        if not asking.was_parked:
            asking.was_parked = True
            self._untold.add(asking.model)
        if not is_full:
            return Placing.AWAY
        return Placing.FULL if pool is not None and pool.with_free_slot else Placing.NONE_LEFT

    @staticmethod
    def _choose(asking: _Asking, pool: ModelPool, *, now: Monotonic) -> Agent | None:
        step, capability, attempts = asking.step, asking.capability, asking.attempts
        if attempts.avoided is not None:
            others_out = attempts.failed | {attempts.avoided}
            other = choose(step, pool, capability, others_out, attempts.busy, now=now)
            if other is not None:
                return other
        return choose(step, pool, capability, attempts.failed, attempts.busy, now=now)

    def _is_expected(self, asking: _Asking) -> bool:
        """Whether an agent that may take the request lacks nothing but its link, and that is believed to come."""
        agents = map(self._registry.agent, self._expected)
        return any(
            agent is not None
            and not agent.linked
            and agent.healthy
            and agent.model == asking.model
            and agent.metadata.capability == asking.capability
            and agent.peer not in asking.attempts.failed
            and asking.step.match.accepts(agent.metadata)
            for agent in agents
        )

    def _is_offered(self, asking: _Asking) -> bool:
        return is_offered(self._registry.pool(asking.model), asking.capability)

    def _why_nowhere(self, asking: _Asking) -> NoCandidate | None:
        """At which tests of its step the agents fail; None where one can take the request, or is worth a wait."""
        if self._is_expected(asking):
            return None
        attempts, pool, now = asking.attempts, self._registry.pool(asking.model), self._clock.now()
        found = evaluate(asking.step, pool, asking.capability, attempts.failed, attempts.busy, now=now)
        return found if isinstance(found, NoCandidate) and not found.may_wait else None

    def _slot_of(self, asking: _Asking) -> Slot:
        # Invariant: the waiting room says "placed" only after `_try_place` took a slot.
        assert asking.slot is not None
        return asking.slot

    def _give_back(self, permit: Permit) -> None:
        woken = self._room.give_back(permit)
        if self._waiting:
            self._wake(woken)

    def _wake(self, woken: Iterable[Woken[_Asking]]) -> None:
        for wake in woken:
            _resolve(wake.ticket.request, wake.outcome)
            self._untold.add(wake.ticket.model)
        self._let_in()
        self._tell_parked()

    def _count_waiting(self, change: int, model: ModelName) -> None:
        self._waiting += change
        self._untold.add(model)
        self._tell_parked()
        self._on_waiting(self._waiting > 0)

    def _tell_parked(self) -> None:
        for model in self._untold:
            self._recorder.parked(model, self._room.parked(model))
        self._untold.clear()


def _resolve(asking: _Asking, outcome: Outcome) -> None:
    # Invariant: who waits has a future until it has been taken out of the waiting room, in one step.
    if asking.woken is not None and not asking.woken.done():
        asking.woken.set_result(outcome)


def _named(hurdle: Hurdle) -> str:
    return f"{hurdle.value} {hurdle.name.lower()}"


def _crowded(model: ModelName) -> RefusalReason:
    text = f"every agent of the model '{model}' is at its capacity and the queue for it is full; try again shortly"
    return reason(ErrorCode.NO_CAPACITY, text)


_TOO_LATE: Final = reason(ErrorCode.REQUEST_TIMEOUT, "no agent was free within the request's time limit")
_QUEUE_FULL: Final = reason(
    ErrorCode.QUEUE_FULL, "this router has as many requests waiting as it takes; try again shortly"
)
