"""Who holds an agent's capacity, and when does it end?

A `Slot` is a lease on one request's place at one agent. It passes through at most three stages, held, streaming, ended,
and never back. At a stream's headers the slot is given back while the stream still counts as running. Invariant: each
stage is left once, so a second ending does nothing and no count is lowered twice.
"""

from enum import Enum, auto
from types import TracebackType
from typing import Final, Protocol, Self

from hivenet_router.core.agent import Agent


class Stage(Enum):
    """How far a slot has come."""

    HELD = auto()
    STREAMING = auto()
    ENDED = auto()


class Ledger(Protocol):
    """Where a slot is booked; `Registry` is one."""

    def slot_moved(self, agent: Agent, before: Stage, after: Stage) -> None:
        """Book that a slot of this agent passed from one stage to another."""
        ...


class Slot:
    """A request's place at an agent, from its choice until its answer ended."""

    __slots__ = ("_ledger", "agent", "stage")

    def __init__(self, agent: Agent, ledger: Ledger) -> None:
        self.agent: Final = agent
        self.stage = Stage.HELD
        self._ledger: Final = ledger

    def headers_arrived(self) -> None:
        """Give the slot back, while the answer's body still counts as a running stream.

        Source: decisions.md 2 and 23. Not called when slots are kept to the last byte.
        """
        if self.stage is Stage.HELD:
            self._move_to(Stage.STREAMING)

    def release(self) -> None:
        """End it, however far it has come; later calls do nothing."""
        if self.stage is not Stage.ENDED:
            self._move_to(Stage.ENDED)

    def _move_to(self, stage: Stage) -> None:
        before, self.stage = self.stage, stage
        self._ledger.slot_moved(self.agent, before, stage)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
