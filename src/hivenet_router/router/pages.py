"""How is a long page written without keeping requests waiting?

Piece by piece, with a pause after each in which the loop serves requests, and one page at a time however many readers
ask. Not on a thread: Python would let that one hold the interpreter for 5 ms at a time, and a request needs it several
times. Invariant: a reader gets a page that was begun after it asked, so what it knows to have happened is on the page;
all who asked before a page was begun share it.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

PAUSE_S: Final = 0.001
"""Between two pieces, each of which takes a third of that; so readers take a part of the loop only, however many."""
KEPT_MAX: Final = 16
"""Pages kept for readers that wait for them."""


class Press:
    """Writes pages for everybody who waits for them."""

    def __init__(self) -> None:
        self._turn: Final = asyncio.Lock()
        self._begun = 0
        self._readers = 0
        self._written: Final[dict[str, tuple[int, bytes]]] = {}

    async def page(self, name: str, write: Callable[[], Iterator[bytes]]) -> bytes:
        """The page of this name, as `write` gives it in pieces of less than a millisecond's work."""
        asked_at = self._begun
        self._readers += 1
        try:
            async with self._turn:
                number, page = self._written.pop(name, (0, b""))
                if number <= asked_at:
                    self._begun = number = self._begun + 1
                    page = await _joined(write())
                self._written[name] = number, page
                if len(self._written) > KEPT_MAX:
                    del self._written[next(iter(self._written))]
                return page
        finally:
            self._readers -= 1
            if not self._readers:
                self._written.clear()


async def _joined(pieces: Iterator[bytes]) -> bytes:
    written: list[bytes] = []
    for piece in pieces:
        if written:
            await asyncio.sleep(PAUSE_S)
        written.append(piece)
    return b"".join(written)
