"""How does whoever waits learn of what has come: now, or at the loop's next turn?

An asyncio future tells at the next turn, which is one more trip through the loop for every request. A `Told` is such a
future for everybody, except for the coroutine that is led (`router/led.py`) and waits for it: that one goes on at once.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Told(asyncio.Future[T]):
    """A future whose led waiter has gone on when `set_result` returns."""

    goes_on: Callable[[], None] | None = None
    """How the led coroutine goes on that waits for this; None where none does."""

    def set_result(self, result: T, /) -> None:
        """As every future's, and at once."""
        super().set_result(result)
        if self.goes_on is not None:
            self.goes_on()

    def set_exception(self, exception: type | BaseException, /) -> None:
        """As every future's, and at once."""
        super().set_exception(exception)
        if self.goes_on is not None:
            self.goes_on()

    def cancel(self, msg: object = None) -> bool:
        """As every future's: even a led waiter goes on at the loop's next turn only."""
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.goes_on is not None:
            self.get_loop().call_soon(self.goes_on)
        return is_cancelled
