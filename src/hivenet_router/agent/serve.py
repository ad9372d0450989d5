"""How does an agent run, and how does it stop without breaking off what it serves?

One task group owns everything. On the first signal each router hears that the backend takes nothing more, the requests
that are running may end, then the agent ends; on the second it ends at once. Invariant: a stop is heard in every state,
also before the backend was ever ready, and a fault in any part ends the agent instead of leaving it half alive.
Source: wire.md §10.2, §14 no. 21 and 33; configuration.md (`--shutdown-timeout`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

import structlog

from hivenet_router.agent.connect import RouterSession
from hivenet_router.agent.report import Reports

LOOK_EVERY_S: Final = 0.1
LOOKS_QUIET: Final = 3
"""So many looks in a row must find nothing running: a router may have sent a request before it heard the goodbye."""

SECOND_SIGNAL: Final = "a second signal came: the program ends at once"

log = structlog.get_logger("agent")


class Stop:
    """What the signals asked for; `signalled` is called at each of them."""

    def __init__(self) -> None:
        self.leave: Final = asyncio.Event()
        self.now: Final = asyncio.Event()

    def signalled(self) -> None:
        """The first time: leave in good order; after that: at once."""
        if self.leave.is_set():
            self.now.set()
        self.leave.set()


async def serve(
    sessions: Sequence[RouterSession],
    beside: Sequence[Coroutine[None, None, None]],
    *,
    reports: Reports,
    requests_running: Callable[[], int],
    stop: Stop,
    shutdown_timeout_s: float,
) -> None:
    """Run the sessions, and what runs `beside` them, until stopped; `requests_running` counts what is being served."""
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(work) for work in beside]
        tasks = {session: group.create_task(session.run()) for session in sessions}
        await stop.leave.wait()
        reports.leave()
        for session, task in tasks.items():
            if not session.is_registered:
                task.cancel()
        log.info("leaving", requests_running=requests_running())
        was_hurried = await _unless_hurried(_drain(sessions, requests_running, shutdown_timeout_s), stop)
        if was_hurried and (cut := requests_running()):
            log.warning("requests_cut", requests=cut, why=SECOND_SIGNAL)
        for task in (*tasks.values(), *others):
            task.cancel()
    log.info("ended")


async def _drain(sessions: Sequence[RouterSession], requests_running: Callable[[], int], within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await asyncio.gather(*(session.goodbye() for session in sessions))
            quiet = 0
            while quiet < LOOKS_QUIET:
                await asyncio.sleep(LOOK_EVERY_S)
                quiet = 0 if requests_running() else quiet + 1
    except TimeoutError:
        if cut := requests_running():
            log.warning("requests_cut", requests=cut, why=f"--shutdown-timeout of {within_s:g} s is over")


async def _unless_hurried(work: Coroutine[None, None, None], stop: Stop) -> bool:
    """Do this until a second signal comes; whether one came before it was done."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work)
        hurry = group.create_task(stop.now.wait())
        working.add_done_callback(lambda _: hurry.cancel())
        hurry.add_done_callback(lambda _: working.cancel())
    return working.cancelled()
