"""What do all connections of one simulator share?

Options, engine, faults in force and books, put together once and handed to each connection. Invariant: nothing here
belongs to a single request. Serving is the business of `connection` and `exchange`.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Final

from hivenet_router.sim.engine import EngineCore
from hivenet_router.sim.fault_board import FaultBoard
from hivenet_router.sim.ledger import Ledger
from hivenet_router.sim.options import SimOptions
from hivenet_router.sim.pacer import Pacer

INFERENCE_PATHS: Final = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/v1/rerank",
    }
)


@dataclass(slots=True)
class House:
    """The shared things. `created` is the start in Unix seconds, `started_s` on the monotonic clock."""

    options: SimOptions
    ledger: Ledger
    board: FaultBoard
    pacer: Pacer
    group: asyncio.TaskGroup
    created: int = field(default_factory=lambda: int(time.time()))
    started_s: float = field(default_factory=time.monotonic)
    transports: set[asyncio.Transport] = field(default_factory=set)
    stopping: bool = False
    _serial: int = 0

    def next_serial(self) -> int:
        """A number for the next answer, from 1."""
        self._serial += 1
        return self._serial

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a connection's work until the house closes."""
        return self.group.create_task(work)

    def close_connections(self) -> None:
        """Break off every connection; what runs on them ends."""
        self.stopping = True
        for transport in tuple(self.transports):
            transport.abort()


def build_house(options: SimOptions, group: asyncio.TaskGroup) -> House:
    """A fresh house for these options, on the running loop."""
    core = EngineCore(options.concurrency, options.waiting_max, options.kv_cache_tokens)
    return House(
        options=options,
        ledger=Ledger(options.requests_kept, options.kept_body_bytes_max),
        board=FaultBoard(seed=options.seed, error_rate=options.error_rate, error_status=options.error_status),
        pacer=Pacer(core),
        group=group,
    )
