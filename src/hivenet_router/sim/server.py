"""How is a simulated engine started, watched and stopped?

`Simulator` is the whole program as one async context, for the command line and for tests in the same process.
Invariant: when the block is left, no task, timer or socket of it remains. Serving is the business of `connection`.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from hivenet_router.sim.connection import Connection
from hivenet_router.sim.fault_board import make_rule
from hivenet_router.sim.house import House, build_house
from hivenet_router.sim.ledger import RecordedRequest, Stats
from hivenet_router.sim.metrics_page import Load
from hivenet_router.sim.options import SimOptions, check

BACKLOG: Final = 1_024


class Simulator:
    """A simulated engine that listens while its block runs: `async with Simulator(SimOptions()) as sim: sim.url`."""

    def __init__(self, options: SimOptions | None = None) -> None:
        """Raises: OptionError for options that cannot be used."""
        self.options = check(options if options is not None else SimOptions())
        self.port = 0
        self._house: House | None = None
        self._stop = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listen. Raises: OSError when the address cannot be had."""
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # The one task outside a group: it owns the group, and __aexit__ ends it.
        self._life = asyncio.create_task(self._live(ready))
        try:
            await asyncio.wait((ready, self._life), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._life.cancel()
            raise
        if not ready.done():
            await self._life
        self.port = ready.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening and break off what still runs."""
        self._stop.set()
        if self._life is not None:
            await self._life

    @property
    def url(self) -> str:
        """The base address, such as `http://127.0.0.1:8888`."""
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return f"http://{host}:{self.port}"

    @property
    def stats(self) -> Stats:
        """The counters now."""
        return self._running().ledger.stats()

    @property
    def load(self) -> Load:
        """How full the engine is now."""
        return self._running().pacer.core.load()

    def requests(self, path: str | None = None) -> list[RecordedRequest]:
        """The requests kept, oldest first; those of one path if it is given."""
        return self._running().ledger.requests(path)

    def set_fault(
        self, text: str, *, probability: float = 1.0, count: int | None = None, path: str | None = None
    ) -> None:
        """Put one rule in place of all. Raises: FaultError."""
        self._running().board.replace([make_rule(text, probability=probability, count=count, path=path)])

    def add_fault(
        self, text: str, *, probability: float = 1.0, count: int | None = None, path: str | None = None
    ) -> None:
        """Put one more rule behind those in force. Raises: FaultError."""
        board = self._running().board
        board.replace([*board.rules, make_rule(text, probability=probability, count=count, path=path)])

    def clear_faults(self) -> None:
        """Take all rules away; the standing error rate stays."""
        self._running().board.replace(())

    async def wait_for(self, condition: Callable[[Stats], bool], timeout_s: float = 5.0) -> Stats:
        """The counters, once `condition` holds for them. Raises: TimeoutError."""
        return await self._running().ledger.wait_for(condition, timeout_s)

    def _running(self) -> House:
        if self._house is None:
            raise RuntimeError("the simulator is not running: enter its block first")
        return self._house

    async def _live(self, ready: asyncio.Future[int]) -> None:
        await asyncio.sleep(self.options.start_delay_s)
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._running()),
            self.options.host,
            self.options.port,
            backlog=BACKLOG,
            start_serving=False,
        )
        async with server, asyncio.TaskGroup() as group:
            house = self._house = build_house(self.options, group)
            await server.start_serving()
            ready.set_result(server.sockets[0].getsockname()[1])
            await self._stop.wait()
            server.close()
            house.close_connections()
        house.pacer.close()
