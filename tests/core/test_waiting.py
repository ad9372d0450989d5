"""Permits, the line for them, and the parked requests of each model."""

from dataclasses import dataclass, field

import pytest
from tests.core.making import MODEL, OTHER_MODEL

from hivenet_router.core.ids import ModelName
from hivenet_router.core.waiting import (
    Closed,
    Crowded,
    Nowhere,
    Outcome,
    Permit,
    Placing,
    QueueFull,
    Stage,
    Ticket,
    WaitingRoom,
    Woken,
)


@dataclass
class House:
    """A waiting room before models with so many free slots; a model without an entry has no agents."""

    slots: dict[ModelName, int]
    permits: int = 10
    line_max: int = 10
    depth_max: int = 10
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.room: WaitingRoom[tuple[ModelName, str]] = WaitingRoom(
            self.place, permits=self.permits, line_max=self.line_max, depth_max=self.depth_max
        )

    def place(self, request: tuple[ModelName, str]) -> Placing:
        model, name = request
        self.asked.append(name)
        if model not in self.slots:
            return Placing.NOWHERE
        if self.slots[model] == 0:
            return Placing.NONE_LEFT
        self.slots[model] -= 1
        return Placing.PLACED

    def arrive(self, name: str, model: ModelName = MODEL, *, earlier: int | None = None) -> str | Outcome:
        """`parked` or `in line` for a request that waits, else what came of it."""
        match self.room.arrive(model, (model, name), earlier=earlier):
            case Ticket() as ticket:
                return "parked" if ticket.stage is Stage.PARKED else "in line"
            case outcome:
                return outcome

    def wait(self, name: str, model: ModelName = MODEL) -> Ticket[tuple[ModelName, str]]:
        """The ticket of a request that is known to have to wait."""
        ticket = self.room.arrive(model, (model, name))
        assert isinstance(ticket, Ticket)
        return ticket

    def permit(self, name: str = "first", model: ModelName = MODEL) -> Permit:
        """The permit of a request that is known to be placed."""
        outcome = self.room.arrive(model, (model, name))
        assert isinstance(outcome, Permit)
        return outcome

    def free(self, model: ModelName = MODEL, slots: int = 1) -> list[tuple[str, type[Outcome]]]:
        self.slots[model] = self.slots.get(model, 0) + slots
        return names(self.room.slot_freed(model))


def names(woken: tuple[Woken[tuple[ModelName, str]], ...]) -> list[tuple[str, type[Outcome]]]:
    return [(wake.ticket.request[1], type(wake.outcome)) for wake in woken]


def test_a_request_takes_permit_and_slot_together() -> None:
    house = House({MODEL: 1}, permits=2)
    assert isinstance(house.arrive("a"), Permit)
    assert (house.room.permits_free, house.slots[MODEL]) == (1, 0)


def test_a_request_whose_agents_are_full_holds_no_permit() -> None:
    """decisions.md 21."""
    house = House({MODEL: 0}, permits=1)
    assert house.arrive("a") == "parked"
    assert (house.room.permits_free, house.room.parked(MODEL), house.room.in_line) == (1, 1, 0)


def test_a_request_without_a_permit_stands_in_line_and_takes_no_slot() -> None:
    house = House({MODEL: 5}, permits=1)
    house.permit()
    assert house.arrive("a") == "in line"
    assert house.slots[MODEL] == 4
    assert house.asked == ["first"]


def test_a_request_that_no_agent_can_take_does_not_wait() -> None:
    assert House({}).arrive("a") == Nowhere()


def test_released_slots_wake_in_the_order_of_arrival() -> None:
    """EX-8.40."""
    house = House({MODEL: 0})
    for name in ("w1", "w2", "w3"):
        assert house.arrive(name) == "parked"
    assert house.free() == [("w1", Permit)]
    assert house.free() == [("w2", Permit)]
    assert house.room.parked(MODEL) == 1


def test_one_event_wakes_as_many_as_there_are_slots() -> None:
    """signals.md §9.3: the original wakes one waiter for a registration with capacity 10."""
    house = House({MODEL: 0})
    for name in ("w1", "w2", "w3"):
        house.arrive(name)
    assert house.free(slots=2) == [("w1", Permit), ("w2", Permit)]


def test_a_freed_slot_costs_the_same_however_many_wait() -> None:
    house = House({MODEL: 0}, depth_max=1000)
    for number in range(1000):
        house.arrive(f"w{number}")
    house.asked.clear()
    assert house.free() == [("w0", Permit)]
    assert house.asked == ["w0", "w1"]
    house.asked.clear()
    # Who was not asked this time is the first to be asked the next time.
    assert house.free() == [("w1", Permit)]
    assert house.asked == ["w1", "w2"]


def test_a_change_that_may_end_the_hope_of_some_is_told_to_all_even_where_no_slot_is_left() -> None:
    house = House({MODEL: 0})
    told = WaitingRoom[tuple[ModelName, str]](
        lambda request: Placing.NOWHERE if request[1] in hopeless else house.place(request), permits=5
    )
    hopeless: set[str] = set()
    for name in ("w1", "w2", "w3"):
        told.arrive(MODEL, (MODEL, name))
    hopeless.add("w3")
    # The slot's round ends with the slot, so it does not come to the last one; the change's round does.
    house.slots[MODEL] = 1
    assert names(told.slot_freed(MODEL)) == [("w1", Permit)]
    assert names(told.revisit(MODEL)) == [("w3", Nowhere)]
    assert told.parked(MODEL) == 1


def test_a_freed_slot_of_one_model_and_a_change_of_another_are_both_made_up_for_with_the_next_permit() -> None:
    house = House({MODEL: 0, OTHER_MODEL: 1}, permits=1)
    house.arrive("w1")
    permit = house.permit("runs", OTHER_MODEL)
    house.arrive("in line", OTHER_MODEL)
    assert house.free() == []
    assert house.room.revisit(MODEL) == ()
    del house.slots[MODEL]
    house.slots[OTHER_MODEL] += 1
    assert names(house.room.give_back(permit)) == [("w1", Nowhere), ("in line", Permit)]


def test_the_depth_counts_each_model_alone() -> None:
    """EX-8.38."""
    house = House({MODEL: 0, OTHER_MODEL: 0}, depth_max=1)
    assert house.arrive("a") == "parked"
    assert house.arrive("b") == Crowded()
    assert house.arrive("c", OTHER_MODEL) == "parked"
    assert house.room.parked_models() == (MODEL, OTHER_MODEL)


def test_a_depth_of_zero_never_parks() -> None:
    assert House({MODEL: 0}, depth_max=0).arrive("a") == Crowded()


def test_a_full_line_refuses_at_once() -> None:
    house = House({MODEL: 9}, permits=1, line_max=1)
    house.permit()
    assert house.arrive("a") == "in line"
    assert house.arrive("b") == QueueFull()


def test_a_permit_goes_to_the_first_in_line() -> None:
    house = House({MODEL: 9}, permits=1)
    permit = house.permit()
    house.arrive("a")
    house.arrive("b")
    assert names(house.room.give_back(permit)) == [("a", Permit)]
    assert house.room.in_line == 1


def test_a_permit_is_given_back_once() -> None:
    house = House({MODEL: 9}, permits=1)
    permit = house.permit()
    house.room.give_back(permit)
    assert house.room.give_back(permit) == ()
    assert house.room.permits_free == 1


def test_the_line_moves_on_past_requests_that_cannot_use_the_permit() -> None:
    house = House({MODEL: 1, OTHER_MODEL: 1}, permits=1, depth_max=1)
    permit = house.permit()
    house.arrive("parks")
    house.arrive("finds the queue full")
    gone = ModelName("gone")
    house.arrive("finds nobody", gone)
    house.arrive("is served", OTHER_MODEL)
    assert names(house.room.give_back(permit)) == [
        ("finds the queue full", Crowded),
        ("finds nobody", Nowhere),
        ("is served", Permit),
    ]
    assert (house.room.parked(MODEL), house.room.in_line) == (1, 0)


def test_a_slot_freed_while_no_permit_is_free_is_not_lost() -> None:
    house = House({MODEL: 0, OTHER_MODEL: 1}, permits=1)
    house.arrive("parked")
    permit = house.permit("runs", OTHER_MODEL)
    assert house.free() == []
    assert names(house.room.give_back(permit)) == [("parked", Permit)]


def test_the_earlier_of_line_and_parked_comes_first() -> None:
    house = House({MODEL: 0, OTHER_MODEL: 2}, permits=1)
    house.arrive("parked first")
    permit = house.permit("runs", OTHER_MODEL)
    house.arrive("in line second", OTHER_MODEL)
    house.free()
    assert names(house.room.give_back(permit)) == [("parked first", Permit)]
    assert house.asked[-1] == "parked first"


def test_a_request_comes_back_to_its_old_place() -> None:
    house = House({MODEL: 0})
    ticket = house.wait("retries")
    house.arrive("later")
    assert house.room.leave(ticket)
    assert house.arrive("retries", earlier=ticket.number) == "parked"
    assert house.free() == [("retries", Permit)]


def test_a_request_that_was_placed_comes_back_before_the_line_and_past_its_bound() -> None:
    house = House({MODEL: 9}, permits=1, line_max=1)
    permit = house.permit("retries")
    house.arrive("newcomer")
    assert names(house.room.give_back(permit)) == [("newcomer", Permit)]
    house.arrive("second newcomer")
    assert house.arrive("third newcomer") == QueueFull()
    assert house.arrive("retries", earlier=permit.number) == "in line"
    assert house.room.in_line == 2


def test_who_leaves_is_not_asked_again() -> None:
    house = House({MODEL: 0}, permits=1)
    parked = house.wait("leaves")
    house.arrive("stays")
    assert house.room.leave(parked)
    assert not house.room.leave(parked)
    assert house.free() == [("stays", Permit)]
    waiting = house.wait("leaves the line")
    assert waiting.stage is Stage.IN_LINE
    assert house.room.leave(waiting)
    assert house.room.in_line == 0


def test_a_woken_request_has_left_already() -> None:
    house = House({MODEL: 0})
    ticket = house.wait("w")
    house.free()
    assert not house.room.leave(ticket)


def test_a_parked_request_whose_agents_left_is_told() -> None:
    house = House({MODEL: 0})
    house.arrive("w")
    del house.slots[MODEL]
    assert names(house.room.revisit(MODEL)) == [("w", Nowhere)]
    assert house.room.parked_models() == ()


def test_who_cannot_use_a_slot_keeps_its_place_and_lets_the_next_one_by() -> None:
    house = House({MODEL: 0})
    house.arrive("picky")
    house.arrive("easy")
    real = house.place

    def place(request: tuple[ModelName, str]) -> Placing:
        return Placing.FULL if request[1] == "picky" else real(request)

    picky_house = WaitingRoom[tuple[ModelName, str]](place, permits=5)
    for name in ("picky", "easy"):
        picky_house.arrive(MODEL, (MODEL, name))
    house.slots[MODEL] = 1
    assert names(picky_house.slot_freed(MODEL)) == [("easy", Permit)]
    assert picky_house.parked(MODEL) == 1


def test_nobody_is_asked_when_nothing_changed_for_its_model() -> None:
    house = House({MODEL: 0, OTHER_MODEL: 0})
    house.arrive("w")
    house.arrive("x", OTHER_MODEL)
    house.asked.clear()
    house.room.revisit(OTHER_MODEL)
    house.room.revisit(ModelName("nobody waits for"))
    assert house.asked == ["x"]


def test_who_was_asked_in_vain_is_not_asked_again_for_a_permit() -> None:
    house = House({MODEL: 0, OTHER_MODEL: 1}, permits=2)
    house.arrive("w")
    permit = house.permit("runs", OTHER_MODEL)
    house.room.revisit(MODEL)
    house.asked.clear()
    house.room.give_back(permit)
    assert house.asked == []


@pytest.mark.parametrize("permits", [1, 5])
def test_closing_ends_every_wait_in_order_and_refuses_new_ones(permits: int) -> None:
    house = House({MODEL: 0, OTHER_MODEL: 1}, permits=permits)
    house.arrive("a")
    permit = house.permit("runs", OTHER_MODEL)
    house.arrive("b", OTHER_MODEL)
    house.arrive("c")
    assert names(house.room.close()) == [("a", Closed), ("b", Closed), ("c", Closed)]
    assert house.arrive("d") == Closed()
    assert house.room.give_back(permit) == ()
    assert (house.room.in_line, house.room.parked_models()) == (0, ())
