"""The agents of one model, in both orders."""

from tests.core.making import MODEL, A, B, Book, C, described

from hivenet_router.core.pool import ModelPool


def pool_of(book: Book) -> ModelPool:
    pool = book.registry.pool(MODEL)
    assert pool is not None
    return pool


def test_only_agents_with_a_free_slot_are_in_the_order_of_loads() -> None:
    book = Book()
    book.join(A, described(1), active=1)
    book.join(B, described(2), active=1)
    book.join(C, described(2))
    pool = pool_of(book)
    assert [peer for _, peer, _ in pool.ranked()] == [C, B]
    assert [agent.peer for agent in pool] == [A, B, C]
    assert (len(pool), pool.routable, pool.with_free_slot) == (3, {A, B, C}, {B, C})


def test_filing_an_agent_that_did_not_change_leaves_it_where_it_was() -> None:
    book = Book()
    agent = book.join(A, described(2))
    pool = pool_of(book)
    assert pool.file(agent) == 2
    assert [peer for _, peer, _ in pool.ranked()] == [A]


def test_capabilities_are_those_of_all_registered_agents() -> None:
    book = Book()
    book.join(A)
    book.join(B, described(capability="embedding"))
    book.registry.link_down(B)
    assert pool_of(book).capabilities() == {"llm", "embedding"}
