"""Who may go on when a forward permit or a slot comes free?

A request needs two things to be forwarded: a permit, of which the router has a fixed number, and a slot on an agent. It
takes both together or neither. One that finds no permit stands in the line; one that finds its agents full is parked
under its model and holds nothing. Both keep the place of their arrival. A thing that comes free is handed at once to
the first request in that order which can use it, so nobody who arrives later can take it from under a woken one.
Invariant: while a permit is free the line is empty, and no parked request could be placed that was not asked since
something last changed for its model. Futures, deadlines and the choice of an agent belong to the rooms.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from hivenet_router.core.ids import ModelName

R = TypeVar("R")


class Placing(Enum):
    """What came of an attempt to find a slot for a request."""

    PLACED = auto()
    """It took a slot."""
    FULL = auto()
    """It took none, but a freed slot would help."""
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

    __slots__ = ("model", "number", "request", "stage")

    def __init__(self, number: int, model: ModelName, request: R, stage: Stage) -> None:
        self.number: Final = number
        self.model: Final = model
        self.request: Final = request
        self.stage = stage


class Permit:
    """The right to one forward at a time; given back through `WaitingRoom.give_back`, once."""

    __slots__ = ("held", "number")

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.held = True


@dataclass(frozen=True, slots=True)
class Placed:
    """It holds a slot and this permit."""

    permit: Permit


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


Outcome = Placed | Nowhere | Crowded | QueueFull | Closed


@dataclass(frozen=True, slots=True)
class Woken(Generic[R]):
    """A wait that has ended, and how."""

    ticket: Ticket[R]
    outcome: Outcome


def _number_of(ticket: Ticket[R]) -> int:
    return ticket.number


class WaitingRoom(Generic[R]):
    """The line for permits and the parked requests of each model.

    `try_place` looks for a slot for a request and takes it when there is one; it must answer at once.

    Source: decisions.md 21; signals.md §8.9 and §9.3; configuration.md §6.4 and §13, 19; http-api.md §15, 12.
    """

    __slots__ = (
        "_arrived",
        "_closed",
        "_depth_max",
        "_line",
        "_line_max",
        "_owed",
        "_parked",
        "_permits_free",
        "_place",
    )

    def __init__(
        self, try_place: Callable[[R], Placing], *, permits: int, line_max: int = 100, depth_max: int = 30
    ) -> None:
        self._place: Final = try_place
        self._permits_free = permits
        self._line_max: Final = line_max
        self._depth_max: Final = depth_max
        self._line: list[Ticket[R]] = []
        self._parked: dict[ModelName, list[Ticket[R]]] = {}
        self._owed: set[ModelName] = set()
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
        if earlier is None:
            self._arrived += 1
        ticket = Ticket(self._arrived if earlier is None else earlier, model, request, Stage.DONE)
        if self._permits_free == 0:
            if earlier is None and len(self._line) >= self._line_max:
                return QueueFull()
            ticket.stage = Stage.IN_LINE
            insort(self._line, ticket, key=_number_of)
            return ticket
        return self._try(ticket) or ticket

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

    def revisit(self, model: ModelName) -> tuple[Woken[R], ...]:
        """Ask the parked requests of a model again, in the order of their arrival.

        To be called after anything that may place one or end its hope: a freed slot, a registration, a removal, another
        health, another policy.
        """
        if model not in self._parked:
            return ()
        self._owed.add(model)
        return self._hand_out_permits()

    def close(self) -> tuple[Woken[R], ...]:
        """End every wait, and refuse to begin another."""
        self._closed = True
        waiting = sorted([*self._line, *(t for queue in self._parked.values() for t in queue)], key=_number_of)
        for ticket in waiting:
            self._take_out(ticket)
        return tuple(Woken(ticket, Closed()) for ticket in waiting)

    def _hand_out_permits(self) -> tuple[Woken[R], ...]:
        """Ask, in the order of arrival, everybody who waits for a permit or whose model has changed."""
        woken: list[Woken[R]] = []
        asked = -1
        while self._permits_free > 0:
            ticket = self._next_to_ask(after=asked)
            if ticket is None:
                self._owed.clear()
                break
            asked = ticket.number
            outcome = self._try(ticket)
            if outcome is not None:
                woken.append(Woken(ticket, outcome))
        return tuple(woken)

    def _next_to_ask(self, *, after: int) -> Ticket[R] | None:
        """The first in the order of arrival behind `after`, of the line and of the models that are owed a look."""
        queues = [self._line, *(self._parked[model] for model in self._owed if model in self._parked)]
        starts = ((queue, bisect_left(queue, after + 1, key=_number_of)) for queue in queues)
        heads = [queue[start] for queue, start in starts if start < len(queue)]
        return min(heads, key=_number_of, default=None)

    def _try(self, ticket: Ticket[R]) -> Outcome | None:
        """Place a request while a permit is free; None if it is parked afterwards."""
        match self._place(ticket.request):
            case Placing.PLACED:
                self._take_out(ticket)
                self._permits_free -= 1
                return Placed(Permit(ticket.number))
            case Placing.NOWHERE:
                self._take_out(ticket)
                return Nowhere()
            case _:
                if ticket.stage is Stage.PARKED:
                    return None
                self._take_out(ticket)
                return None if self._park(ticket) else Crowded()

    def _park(self, ticket: Ticket[R]) -> bool:
        queue = self._parked.get(ticket.model, [])
        if len(queue) >= self._depth_max:
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
