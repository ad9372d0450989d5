"""The waiting room against a plain model: FIFO, no slot or permit given twice, no wake-up lost."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.making import MODEL, OTHER_MODEL

from hivenet_router.core.ids import ModelName
from hivenet_router.core.waiting import (
    Crowded,
    Outcome,
    Permit,
    Placing,
    QueueFull,
    Stage,
    Ticket,
    WaitingRoom,
    Woken,
)

PERMITS, LINE_MAX, DEPTH_MAX = 3, 2, 2
models = st.sampled_from([MODEL, OTHER_MODEL])


@dataclass(eq=False)
class Request:
    """One request, which of its model's two agents it accepts, and the slot it was given."""

    model: ModelName
    accepts: frozenset[int]
    slot: int | None = None
    ticket: "Ticket[Request] | None" = None


class WaitingMachine(RuleBasedStateMachine):
    """Requests arrive, wait, run, fail and return, hang up; agents fill, empty, come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.room: WaitingRoom[Request] = WaitingRoom(
            self.place, permits=PERMITS, line_max=LINE_MAX, depth_max=DEPTH_MAX
        )
        self.free = {(model, agent): 1 for model in (MODEL, OTHER_MODEL) for agent in (0, 1)}
        self.there = dict.fromkeys(self.free, True)
        self.waiting: list[Request] = []
        self.running: dict[Request, Permit] = {}

    def place(self, request: Request) -> Placing:
        assert request.slot is None
        accepted = [(request.model, agent) for agent in sorted(request.accepts) if self.there[request.model, agent]]
        for key in accepted:
            if self.free[key] > 0:
                self.assert_nobody_is_passed_over(request, key)
                self.free[key] -= 1
                request.slot = key[1]
                return Placing.PLACED
        if not accepted:
            return Placing.NOWHERE
        left = any(self.there[key] and slots for key, slots in self.free.items() if key[0] == request.model)
        return Placing.FULL if left else Placing.NONE_LEFT

    def assert_nobody_is_passed_over(self, request: Request, key: tuple[ModelName, int]) -> None:
        mine = request.ticket.number if request.ticket is not None else None
        for other in self.waiting:
            ticket = other.ticket
            if other is request or ticket is None or ticket.stage is not Stage.PARKED:
                continue
            could_use = other.model == key[0] and key[1] in other.accepts
            assert not (could_use and (mine is None or ticket.number < mine))

    def wake(self, woken: tuple[Woken[Request], ...]) -> None:
        numbers = [wake.ticket.number for wake in woken]
        assert numbers == sorted(numbers)
        for wake in woken:
            self.waiting.remove(wake.ticket.request)
            self.book(wake.ticket.request, wake.outcome)

    def book(self, request: Request, outcome: Outcome) -> None:
        if isinstance(outcome, Permit):
            assert request.slot is not None
            self.running[request] = outcome
        else:
            assert request.slot is None

    @rule(model=models, accepts=st.sampled_from([frozenset({0}), frozenset({1}), frozenset({0, 1})]))
    def arrive(self, model: ModelName, accepts: frozenset[int]) -> None:
        request = Request(model, accepts)
        line, parked = self.room.in_line, self.room.parked(model)
        self.settle_arrival(request, self.room.arrive(model, request))
        if request in self.waiting:
            return
        if self.room.permits_free == 0 and request not in self.running:
            assert line >= LINE_MAX or parked >= DEPTH_MAX or not self.hope(request)

    def hope(self, request: Request) -> bool:
        return any(self.there[request.model, agent] for agent in request.accepts)

    def settle_arrival(self, request: Request, answer: "Ticket[Request] | Outcome") -> None:
        match answer:
            case Ticket() as ticket:
                request.ticket = ticket
                self.waiting.append(request)
            case QueueFull():
                assert self.room.permits_free == 0
                assert self.room.in_line >= LINE_MAX
            case Crowded() as crowded:
                assert self.room.parked(request.model) == DEPTH_MAX
                self.book(request, crowded)
            case outcome:
                self.book(request, outcome)

    def free_slot(self, request: Request) -> None:
        assert request.slot is not None
        self.free[request.model, request.slot] += 1
        request.slot = None
        self.wake(self.room.slot_freed(request.model))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), slot_first=st.booleans())
    def finish(self, data: st.DataObject, slot_first: bool) -> None:
        request = data.draw(st.sampled_from(list(self.running)))
        permit = self.running.pop(request)
        if slot_first:
            self.free_slot(request)
        self.wake(self.room.give_back(permit))
        if not slot_first:
            self.free_slot(request)
        assert self.room.give_back(permit) == ()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail_and_try_again(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(list(self.running)))
        permit = self.running.pop(request)
        self.free_slot(request)
        self.wake(self.room.give_back(permit))
        request.ticket = Ticket(permit.number, request.model, request, Stage.DONE)
        answer = self.room.arrive(request.model, request, earlier=permit.number)
        assert not isinstance(answer, QueueFull)
        self.settle_arrival(request, answer)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.waiting))
        assert request.ticket is not None
        assert self.room.leave(request.ticket)
        assert not self.room.leave(request.ticket)
        self.waiting.remove(request)

    @rule(model=models, agent=st.sampled_from([0, 1]), there=st.booleans())
    def agent_comes_or_goes(self, model: ModelName, agent: int, there: bool) -> None:
        self.there[model, agent] = there
        self.wake(self.room.revisit(model))

    @rule(model=models, agent=st.sampled_from([0, 1]), more=st.integers(1, 3))
    def agent_grows(self, model: ModelName, agent: int, more: int) -> None:
        self.free[model, agent] += more
        self.wake(self.room.slot_freed(model))

    @invariant()
    def permits_add_up(self) -> None:
        assert self.room.permits_free + len(self.running) == PERMITS

    @invariant()
    def slots_are_never_negative_and_only_runners_hold_one(self) -> None:
        assert min(self.free.values()) >= 0
        assert all(request.slot is None for request in self.waiting)
        assert all(request.slot is not None for request in self.running)

    @invariant()
    def queues_hold_exactly_those_who_wait(self) -> None:
        stages = [request.ticket.stage for request in self.waiting if request.ticket is not None]
        assert stages.count(Stage.IN_LINE) == self.room.in_line
        parked = sum(self.room.parked(model) for model in self.room.parked_models())
        assert stages.count(Stage.PARKED) == parked == len(stages) - self.room.in_line
        assert all(self.room.parked(model) <= DEPTH_MAX for model in (MODEL, OTHER_MODEL))

    @invariant()
    def no_wake_up_is_lost(self) -> None:
        if self.room.permits_free == 0:
            return
        assert self.room.in_line == 0
        for request in self.waiting:
            usable = [self.free[request.model, a] for a in request.accepts if self.there[request.model, a]]
            assert usable, "it waits for agents that are gone"
            assert max(usable) == 0, "it waits while a slot it could use is free"


TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
