"""Pages are written between requests, one at a time, for everybody who asked before they were begun."""

import asyncio
from collections.abc import Iterator

from tests.rooms.building import turns

from hivenet_router.router.pages import KEPT_MAX, Press


class Counted:
    """A page that says how much had happened when each piece was written."""

    def __init__(self) -> None:
        self.happened = 0
        self.begun = 0

    def pieces(self) -> Iterator[bytes]:
        self.begun += 1
        for _ in range(5):
            yield f"{self.happened},".encode()


async def test_a_page_is_written_in_pieces_with_the_loop_free_in_between() -> None:
    press, counted = Press(), Counted()
    reader = asyncio.create_task(press.page("a", counted.pieces))
    while not reader.done():
        counted.happened += 1
        await asyncio.sleep(0.001)
    assert len(set(reader.result().split(b","))) >= 5


async def test_who_asks_while_a_page_is_written_gets_the_next_one_together_with_all_others() -> None:
    press, counted = Press(), Counted()
    first = asyncio.create_task(press.page("a", counted.pieces))
    await turns()
    counted.happened = 7
    others = [asyncio.create_task(press.page("a", counted.pieces)) for _ in range(8)]
    pages = await asyncio.gather(first, *others)
    assert pages[0].startswith(b"0,0,7,")
    assert set(pages[1:]) == {b"7,7,7,7,7,"}
    assert counted.begun == 2


async def test_a_page_is_never_kept_for_who_asks_later() -> None:
    press, counted = Press(), Counted()
    for happened in range(3):
        counted.happened = happened
        assert await press.page("a", counted.pieces) == f"{happened},".encode() * 5


async def test_a_reader_that_leaves_in_the_middle_takes_the_page_from_nobody() -> None:
    press, counted = Press(), Counted()
    leaving = asyncio.create_task(press.page("a", counted.pieces))
    await turns()
    staying = asyncio.create_task(press.page("a", counted.pieces))
    await turns()
    leaving.cancel()
    assert await staying == b"0,0,0,0,0,"


async def test_pages_of_many_names_are_not_kept_without_bound() -> None:
    press, counted = Press(), Counted()
    readers = [asyncio.create_task(press.page(str(name), counted.pieces)) for name in range(3 * KEPT_MAX)]
    while not all(reader.done() for reader in readers):
        assert len(press._written) <= KEPT_MAX
        await asyncio.sleep(0.001)
    assert not press._written
