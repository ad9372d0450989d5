"""Who may go on when a forward permit or a slot comes free?

A request needs two things to be forwarded: a permit, of which the router has a fixed number, and a slot on an agent. It
takes both together or neither. One that finds no permit stands in the line; one that finds its agents full is parked
under its model and holds nothing. Both keep the place of their arrival. A thing that comes free is handed at once to
the first request in that order which can use it, so nobody who arrives later can take it from under a woken one. Once
no slot is left nobody else is asked, so what a freed slot costs does not grow with the number that waits. Invariant,
as long as every change is told: while a permit is free the line is empty, no parked request could be placed, and none
waits for agents that are gone. Futures, deadlines and the choice of an agent belong to the rooms.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from operator import attrgetter
from typing import Final, Generic, TypeVar

from hivenet_router.core.ids import ModelName

R = TypeVar("R")


class Placing(Enum):
    """What came of an attempt to find a slot for a request."""

    PLACED = auto()
    """It took a slot."""
    FULL = auto()
    """It took none, but a freed slot would help. What is free now may still do for another request."""
    NONE_LEFT = auto()
    """As `FULL`, and no agent of its model has a free slot for anybody."""
    AWAY = auto()
    """It took none, and nobody can take it; but an agent that could has just lost its link and is expected back."""
    NOWHERE = auto()
    """It took none, and waiting in this step would not help."""


class Stage(Enum):
    """Where a waiting request stands."""

    IN_LINE = auto()
    """It waits for a permit; nobody has looked for a slot yet."""
    PARKED = auto()
    """Its agents are full; it counts against its model's queue only."""
    DONE = auto()
    """It waits no longer."""


class Ticket(Generic[R]):
    """One request's place, from its arrival to the end of a wait. Only `stage` ever changes."""

    __slots__ = ("model", "number", "request", "stage", "was_placed")

    def __init__(self, number: int, model: ModelName, request: R, stage: Stage, *, was_placed: bool = False) -> None:
        self.number: Final = number
        self.was_placed: Final = was_placed
        self.model: Final = model
        self.request: Final = request
        self.stage = stage


class Permit:
    """The right to one forward at a time, for a request that has its slot; given back through `give_back`, once."""

    __slots__ = ("held", "number")

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.held = True


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No agent can take it in this step, and a freed slot would not change that."""


@dataclass(frozen=True, slots=True)
class Crowded:
    """Its agents are full, and so is the queue of its model."""


@dataclass(frozen=True, slots=True)
class QueueFull:
    """No permit is free, and the line for one is at its bound."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The router stops; nobody waits any longer."""


Outcome = Permit | Nowhere | Crowded | QueueFull | Closed


@dataclass(frozen=True, slots=True)
class Woken(Generic[R]):
    """A wait that has ended, and how."""

    ticket: Ticket[R]
    outcome: Outcome


_number_of: Final = attrgetter("number")


class WaitingRoom(Generic[R]):
    """The line for permits and the parked requests of each model.

    `try_place` looks for a slot for a request and takes it when there is one; it must answer at once.

    Source: decisions.md 21; signals.md §8.9 and §9.3; configuration.md §6.4 and §13, 19; http-api.md §15, 12.
    """

    __slots__ = (
        "_arrived",
        "_changed",
        "_closed",
        "_depth_max",
        "_freed",
        "_line",
        "_line_max",
        "_parked",
        "_permits_free",
        "_permits_max",
        "_place",
    )

    def __init__(
        self, try_place: Callable[[R], Placing], *, permits: int, line_max: int = 100, depth_max: int = 30
    ) -> None:
        self._place: Final = try_place
        self._permits_free = self._permits_max = permits
        self._line_max: Final = line_max
        self._depth_max: Final = depth_max
        self._line: list[Ticket[R]] = []
        self._parked: dict[ModelName, list[Ticket[R]]] = {}
        # Models whose parked requests are still to be asked: for the slots that came free, or each of them in any case.
        self._freed: set[ModelName] = set()
        self._changed: set[ModelName] = set()
        self._arrived = 0
        self._closed = False

    @property
    def permits_free(self) -> int:
        """How many more requests may be forwarded at once."""
        return self._permits_free

    @property
    def in_line(self) -> int:
        """How many requests wait for a permit."""
        return len(self._line)

    def parked(self, model: ModelName) -> int:
        """How many requests wait for capacity of this model."""
        return len(self._parked.get(model, ()))

    def parked_models(self) -> tuple[ModelName, ...]:
        """The models somebody waits for, sorted by name."""
        return tuple(sorted(self._parked))

    def arrive(self, model: ModelName, request: R, *, earlier: int | None = None) -> Ticket[R] | Outcome:
        """Place a request now, give it a place to wait, or say why neither is possible.

        `earlier` is the number on the ticket or the permit that the same request had before, for its next step or try:
        it returns to the place it had, and the bound of the line is not held against it, since it is past it already.
        """
        if self._closed:
            return Closed()
        number = earlier
        if number is None:
            self._arrived = number = self._arrived + 1
        if self._permits_free == 0:
            if earlier is None and len(self._line) >= self._line_max:
                return QueueFull()
            ticket = Ticket(number, model, request, Stage.IN_LINE, was_placed=earlier is not None)
            insort(self._line, ticket, key=_number_of)
            return ticket
        placing = self._place(request)
        if placing is Placing.PLACED:
            return self._take_permit(number)
        if placing is Placing.NOWHERE:
            return Nowhere()
        ticket = Ticket(number, model, request, Stage.DONE, was_placed=earlier is not None)
        return ticket if self._park(ticket, placing) else Crowded()

    def leave(self, ticket: Ticket[R]) -> bool:
        """End a wait from the request's side (deadline, hang-up); False if it had ended already.

        Nothing can be lost by it: a waiting request holds nothing, and one that was placed gives back what it has.
        """
        if ticket.stage is Stage.DONE:
            return False
        self._take_out(ticket)
        return True

    def give_back(self, permit: Permit) -> tuple[Woken[R], ...]:
        """Take a permit back and hand it on; a second time does nothing."""
        if not permit.held:
            return ()
        permit.held = False
        self._permits_free += 1
        return self._hand_out_permits()

    def slot_freed(self, model: ModelName) -> tuple[Woken[R], ...]:
        """Ask the parked requests of a model again, in the order of their arrival, until no slot is left."""
        if model not in self._parked:
            return ()
        self._freed.add(model)
        return self._hand_out_permits()

    def revisit(self, model: ModelName) -> tuple[Woken[R], ...]:
        """Ask every parked request of a model again, in the order of their arrival.

        To be called after anything that may end the hope of one: a registration, a removal, a lost link, another
        health, another policy.
        """
        if model not in self._parked:
            return ()
        self._changed.add(model)
        return self._hand_out_permits()

    def close(self) -> tuple[Woken[R], ...]:
        """End every wait, and refuse to begin another."""
        self._closed = True
        waiting = sorted([*self._line, *(t for queue in self._parked.values() for t in queue)], key=_number_of)
        for ticket in waiting:
            self._take_out(ticket)
        return tuple(Woken(ticket, Closed()) for ticket in waiting)

    def _hand_out_permits(self) -> tuple[Woken[R], ...]:
        """Ask, in the order of arrival, everybody who waits for a permit or is owed another look for a slot."""
        if not (self._line or self._freed or self._changed):
            return ()
        woken: list[Woken[R]] = []
        asked = -1
        while self._permits_free > 0:
            ticket = self._next_to_ask(after=asked)
            if ticket is None:
                self._freed.clear()
                self._changed.clear()
                break
            asked = ticket.number
            outcome = self._ask(ticket)
            if outcome is not None:
                woken.append(Woken(ticket, outcome))
        return tuple(woken)

    def _next_to_ask(self, *, after: int) -> Ticket[R] | None:
        """The first in the order of arrival behind `after`, of the line and of the models that are owed a look."""
        first = _first_behind(after, self._line)
        for model in chain(self._freed, self._changed):
            ticket = _first_behind(after, self._parked.get(model))
            if ticket is not None and (first is None or ticket.number < first.number):
                first = ticket
        return first

    def _ask(self, ticket: Ticket[R]) -> Outcome | None:
        """Place a waiting request while a permit is free; None if it is parked afterwards."""
        placing = self._place(ticket.request)
        if placing is Placing.PLACED:
            self._take_out(ticket)
            return self._take_permit(ticket.number)
        if placing is Placing.NOWHERE:
            self._take_out(ticket)
            return Nowhere()
        if placing is Placing.NONE_LEFT or placing is Placing.AWAY:
            self._freed.discard(ticket.model)
        if ticket.stage is Stage.PARKED:
            return None
        self._take_out(ticket)
        return None if self._park(ticket, placing) else Crowded()

    def _take_permit(self, number: int) -> Permit:
        self._permits_free -= 1
        return Permit(number)

    def _park(self, ticket: Ticket[R], placing: Placing) -> bool:
        queue = self._parked.get(ticket.model, [])
        # With its link an agent loses all its requests at once; of those, no more than had permits come back.
        returning_max = self._permits_max if placing is Placing.AWAY and ticket.was_placed else 0
        if len(queue) >= self._depth_max + returning_max:
            return False
        insort(queue, ticket, key=_number_of)
        self._parked[ticket.model] = queue
        ticket.stage = Stage.PARKED
        return True

    def _take_out(self, ticket: Ticket[R]) -> None:
        """Remove a ticket from wherever it waits; one that waits nowhere is left alone."""
        stage, ticket.stage = ticket.stage, Stage.DONE
        if stage is Stage.IN_LINE:
            del self._line[bisect_left(self._line, ticket.number, key=_number_of)]
        elif stage is Stage.PARKED:
            queue = self._parked[ticket.model]
            del queue[bisect_left(queue, ticket.number, key=_number_of)]
            if not queue:
                del self._parked[ticket.model]


def _first_behind(number: int, queue: list[Ticket[R]] | None) -> Ticket[R] | None:
    """The first of a queue with a later number than this."""
    if not queue:
        return None
    # A pass begins at the front, and whom it served is gone from there.
    if queue[0].number > number:
        return queue[0]
    start = bisect_right(queue, number, key=_number_of)
    return queue[start] if start < len(queue) else None
