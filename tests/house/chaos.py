"""What goes wrong while clients ask?

Four kinds of blow, each struck again and again until told to stop: agents are killed and started again, agents stand
still for a while, links are cut between router and agent, engines are killed beside living agents. Invariant: what was
struck is running again when `Chaos.run` returns.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Final

from tests.house.fleet import Fleet, Process, logged_at

STOPS_S: Final = (3.0, 20.0)
LINK_DIES_WITHIN_S: Final = 16.0
"""An agent that does not answer loses its link in about 15 s; the rest is for a crowded machine."""
LINK_BEGAN: Final = ("agent_registered", "agent_renewed")
LINK_ENDED: Final = ("agent_link_lost", "agent_left", "agent_removed")
"""What the router logs of an agent whose link is gone. One whose engine was dead has taken itself out of routing and is
told as one that left; one that was silent for very long is removed, and its link is closed with that."""
KINDS: Final = ("kill", "stop", "links", "engine")


class Wires:
    """Stands between router and agents, so that links can be cut where neither side does it."""

    def __init__(self, router_port: int) -> None:
        self._router_port = router_port
        self._links: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = {}
        self._server: asyncio.Server | None = None

    async def open(self, port: int) -> None:
        """Take connections on this port."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", port)

    def cut_one(self, chance: random.Random) -> bool:
        """Cut one link, so that both sides see it end; False when there is none."""
        if not self._links:
            return False
        for writer in self._links[chance.choice(list(self._links))]:
            writer.transport.abort()
        return True

    async def close(self) -> None:
        """Cut all, and take no more."""
        if self._server is not None:
            self._server.close()
        for task in list(self._links):
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._router_port)
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = (writer, there)
        try:
            ways = [asyncio.create_task(_copy(reader, there)), asyncio.create_task(_copy(there_reader, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except asyncio.CancelledError:
            pass
        finally:
            del self._links[task]
            writer.transport.abort()
            there.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 18):
        writer.write(data)
        await writer.drain()


@dataclass(frozen=True, slots=True)
class Stop:
    """An agent stood still, from and to in Unix time."""

    machine: str
    peer_id: str
    began: float
    ended: float


class Chaos:
    """Strikes a fleet; `struck` counts the blows by kind."""

    def __init__(
        self, fleet: Fleet, kinds: list[str], *, every_s: float, seed: int, wires: Wires | None = None
    ) -> None:
        self._fleet = fleet
        self._kinds = kinds
        self._every_s = every_s
        self._chance = random.Random(seed)
        self._wires = wires
        self._turn = 0
        self.struck: Counter[str] = Counter()
        self.put_off_s = 0.0
        self.stops: list[Stop] = []

    async def during(self, work: Coroutine[None, None, None]) -> None:
        """Strike for as long as the work takes."""
        stopping = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            striking = group.create_task(self.run(stopping))
            await work
            stopping.set()
            await striking

    async def run(self, stopping: asyncio.Event) -> None:
        """Strike once every so often, the kinds in turn, until told to stop."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every_s
        while not stopping.is_set():
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + self._every_s, loop.time())
            kind = self._kinds[self._turn % len(self._kinds)]
            await self._others_serve(kind, stopping)
            if not stopping.is_set():
                await self._strike(kind)
                self.struck[kind] += 1
                self._turn += 1

    def links_not_dropped(self) -> list[str]:
        """The stops that were long enough for the agent's link to be dropped, but left it standing."""
        return links_left_standing(self.stops, self._fleet.router.events(*LINK_BEGAN, *LINK_ENDED))

    async def _others_serve(self, kind: str, stopping: asyncio.Event) -> None:
        """Wait until somebody is left to serve, or a crowded machine would be taken for a fault."""
        others = self._left_by(kind)
        # Which link is cut is left to chance.
        wanted = min(len(others), 2 if kind == "links" else 1)
        began = time.monotonic()
        while not stopping.is_set() and sum([await self._serves(number) for number in others]) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        self.put_off_s += time.monotonic() - began

    def _left_by(self, kind: str) -> list[int]:
        """The numbers of the agents that the next blow of this kind does not strike."""
        fleet = self._fleet
        numbers = range(len(fleet.agents))
        if kind in ("kill", "stop"):
            return [number for number in numbers if fleet.agents[number] is not self._next(fleet.agents)]
        if kind == "engine":
            struck = fleet.engines.index(self._next(fleet.engines))
            return [number for number in numbers if number % len(fleet.engines) != struck]
        return list(numbers)

    async def _serves(self, number: int) -> bool:
        """Whether this agent has registered, and its engine takes connections."""
        fleet = self._fleet
        return fleet.agents[number].has_registered() and await fleet.engine_listens(number % len(fleet.engines))

    async def _strike(self, kind: str) -> None:
        match kind:
            case "kill":
                _restart(self._next(self._fleet.agents))
            case "engine":
                _restart(self._next(self._fleet.engines))
            case "stop":
                await self._stop_agent()
            case "links":
                assert self._wires is not None
                self._wires.cut_one(self._chance)
            case _:
                raise ValueError(f"no such chaos: {kind!r}; there are {', '.join(KINDS)}")

    def _next(self, processes: list[Process]) -> Process:
        # Each kind begins with another one, so that several kinds in turn do not all hit the same.
        rounds, kind = divmod(self._turn, len(self._kinds))
        return processes[(rounds + kind) % len(processes)]

    async def _stop_agent(self) -> None:
        agent = self._next(self._fleet.agents)
        registered = agent.events("registered")
        began = time.time()
        agent.pause()
        try:
            await asyncio.sleep(self._chance.uniform(*STOPS_S))
        finally:
            agent.resume()
        if registered:
            self.stops.append(Stop(agent.name, str(registered[-1]["peer_id"]), began, time.time()))


def links_left_standing(stops: list[Stop], events: list[dict[str, object]]) -> list[str]:
    """The stops through which an agent's link lasted too long, by what the router logged of links, in words.

    An agent that had no link when its stop began has none to lose.
    """
    found = []
    for stop in stops:
        if stop.ended - stop.began <= LINK_DIES_WITHIN_S + 1:
            continue
        told = [(logged_at(event), event["msg"]) for event in events if event.get("peer_id") == stop.peer_id]
        before = [name for at, name in told if at <= stop.began]
        if not before or before[-1] in LINK_ENDED:
            continue
        if not any(name in LINK_ENDED and stop.began < at < stop.began + LINK_DIES_WITHIN_S for at, name in told):
            found.append(
                f"{stop.machine} stood still for {stop.ended - stop.began:.1f} s and its link was not dropped in "
                f"{LINK_DIES_WITHIN_S:g} s"
            )
    return found


def _restart(process: Process) -> None:
    process.kill()
    process.start()
