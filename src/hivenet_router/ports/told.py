"""How does whoever waits learn of what has come: now, or at the loop's next turn?

An asyncio future tells at the next turn, which is one more trip through the loop for every request. A `Told` is such a
future for everybody, except for a coroutine that is led (`router/led.py`): that one goes on within `tell`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Told(asyncio.Future[T]):
    """A future that its led waiter hears of at once. Told on the loop's thread, where no task is in the middle."""

    goes_on: Callable[[], None] | None = None
    """How the led coroutine goes on that waits for this; None where none does."""

    def tell(self, what: T) -> None:
        """Give the result; a led waiter has gone on when this returns.

        Raises: asyncio.InvalidStateError when it is done.
        """
        self.set_result(what)
        if self.goes_on is not None:
            self.goes_on()

    def cancel(self, msg: object = None) -> bool:
        """As every future's; the waiter hears of it at the loop's next turn, led or not."""
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.goes_on is not None:
            self.get_loop().call_soon(self.goes_on)
        return is_cancelled
