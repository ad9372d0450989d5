"""A slot is given back once, however often it is asked to."""

import contextlib

from tests.core.making import MODEL, OTHER_MODEL, START, A, Book, described

from hivenet_router.core.changes import CapacityFreed
from hivenet_router.core.slots import Slot, Stage


def taken(book: Book, capacity: int = 1) -> Slot:
    """A slot on a fresh agent, with the news so far read."""
    slot = book.registry.take_slot(book.join(A, described(capacity)))
    assert slot is not None
    book.news()
    return slot


def test_a_taken_slot_is_not_there_for_another() -> None:
    book = Book()
    slot = taken(book)
    assert book.registry.take_slot(slot.agent) is None
    assert slot.agent.outcomes.lost_races == 1


def test_a_released_slot_frees_capacity_of_its_model() -> None:
    book = Book()
    slot = taken(book)
    slot.release()
    assert slot.agent.active_slots == 0
    assert book.news() == [CapacityFreed(MODEL)]


def test_a_second_release_does_nothing() -> None:
    book = Book()
    slot = taken(book, capacity=2)
    other = book.registry.take_slot(slot.agent)
    slot.release()
    book.news()
    slot.release()
    slot.headers_arrived()
    assert slot.stage is Stage.ENDED
    assert other is not None
    assert (slot.agent.active_slots, slot.agent.running_streams, book.news()) == (1, 0, [])


def test_headers_give_the_slot_back_while_the_stream_goes_on() -> None:
    """decisions.md 2: released at the response headers, counted until the end."""
    book = Book()
    slot = taken(book)
    slot.headers_arrived()
    slot.headers_arrived()
    assert (slot.stage, slot.agent.active_slots, slot.agent.running_streams) == (Stage.STREAMING, 0, 1)
    assert book.news() == [CapacityFreed(MODEL)]
    slot.release()
    assert (slot.stage, slot.agent.active_slots, slot.agent.running_streams) == (Stage.ENDED, 0, 0)
    assert book.news() == []


def test_leaving_the_block_ends_the_slot_even_by_an_error() -> None:
    book = Book()
    slot = taken(book)
    with contextlib.suppress(RuntimeError), slot as same:
        assert same is slot
        raise RuntimeError
    assert slot.stage is Stage.ENDED


def test_streams_that_gave_their_slot_back_fill_an_agent_to_its_transports_bound() -> None:
    """wire.md §14, 5: an original agent resets what is above it."""
    book = Book()
    book.registry.link_up(A)
    agent = book.registry.register(A, described(10), streams_max=2, now=START).agent
    streams = [book.registry.take_slot(agent), book.registry.take_slot(agent)]
    for stream in streams:
        assert stream is not None
        stream.headers_arrived()
    assert (agent.active_slots, agent.free_slots) == (0, 0)
    assert book.registry.take_slot(agent) is None
    book.news()
    assert streams[0] is not None
    streams[0].release()
    assert book.news() == [CapacityFreed(MODEL)]
    assert agent.free_slots == 1


def test_a_slot_of_a_removed_agent_ends_without_effect() -> None:
    book = Book()
    slot = taken(book)
    book.registry.remove(A, now=START)
    book.news()
    assert book.registry.take_slot(slot.agent) is None
    slot.release()
    assert book.news() == []


def test_a_slot_of_an_agent_that_changed_its_model_frees_the_new_one() -> None:
    book = Book()
    slot = taken(book)
    book.registry.register(A, described(1, model=OTHER_MODEL), now=START)
    book.news()
    slot.release()
    assert book.news() == [CapacityFreed(OTHER_MODEL)]


def test_an_unroutable_agent_gives_out_no_slot() -> None:
    book = Book()
    agent = book.join(A)
    book.registry.link_down(A)
    assert book.registry.take_slot(agent) is None
