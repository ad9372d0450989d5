"""What is left when nobody asks any more? Nothing may be.

Reads the router's metrics, its inside, its memory and descriptors, and the engines' counts. Invariant: each function
gives the reasons why something is not at rest, in words, after having waited for it for a bounded time.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.house.fleet import Fleet
from tests.house.page import page_of
from tests.raw_http import at
from tests.sim.sim_wire import fetch

RESTS_WITHIN_S: Final = 20.0
FILES_SLACK: Final = 3
TASKS_SLACK: Final = 2
RSS_GROWTH_MAX: Final = 0.15
RSS_SLACK_BYTES: Final = 8 << 20
_ESTABLISHED, _CLOSE_WAIT = "01", "08"


@dataclass(frozen=True, slots=True)
class Footing:
    """What a router at rest takes up."""

    files: int
    rss_bytes: int
    inside: dict[str, int]


async def footing(fleet: Fleet) -> Footing:
    """What the router takes up now."""
    return Footing(fleet.router.open_files(), fleet.router.rss_bytes(), await fleet.inside())


async def not_at_rest(fleet: Fleet, before: Footing) -> list[str]:
    """What still runs, is held or is open though no client is there, after waiting for it to end."""
    loop = asyncio.get_running_loop()
    until = loop.time() + RESTS_WITHIN_S
    while (reasons := await _busy(fleet, before)) and loop.time() < until:  # noqa: ASYNC110  (other processes)
        await asyncio.sleep(0.25)
    return reasons


async def _busy(fleet: Fleet, before: Footing) -> list[str]:
    reasons = [f"gauge not at zero: {series}" for series in (await page_of(fleet.metrics)).busy()]
    for engine, port in zip(fleet.engines, fleet.engine_ports, strict=True):
        stats = (await fetch(f"http://127.0.0.1:{port}", "/sim/stats")).json()
        load = {name: at(stats, *path) for name, path in _ENGINE_LOAD.items()}
        reasons += [f"{engine.name} has {value} {name}" for name, value in load.items() if value]
    now = await footing(fleet)
    if now.files > before.files + FILES_SLACK:
        reasons.append(f"the router has {now.files} files open, and had {before.files} before")
    if now.inside["tasks"] > before.inside["tasks"] + TASKS_SLACK:
        reasons.append(f"the router has {now.inside['tasks']} tasks, and had {before.inside['tasks']} before")
    if now.inside["permits_free"] != before.inside["permits_free"]:
        reasons.append(f"forward permits free: {now.inside['permits_free']}, before {before.inside['permits_free']}")
    for name in ("requests_waiting", "exchanges_known", "exchanges_alive", "requests_in_plane"):
        # An agent's heartbeat or signal may be on its way at this moment.
        if now.inside[name] > before.inside[name] + len(fleet.agents):
            reasons.append(f"the router's {name}: {now.inside[name]}, before {before.inside[name]}")
    return reasons


_ENGINE_LOAD: Final[dict[str, tuple[str, str]]] = {
    "requests running": ("requests", "running"),
    "requests in work": ("engine", "running"),
    "requests waiting": ("engine", "waiting"),
    "KV cache tokens held": ("engine", "kv_cache_tokens_held"),
}


def grown(warm: Footing, end: Footing) -> list[str]:
    """Why the router's memory is not back near where it was."""
    most = warm.rss_bytes * (1 + RSS_GROWTH_MAX) + RSS_SLACK_BYTES
    if end.rss_bytes <= most:
        return []
    return [f"the router's memory went from {warm.rss_bytes >> 20} MiB to {end.rss_bytes >> 20} MiB"]


async def not_ended(fleet: Fleet) -> list[str]:
    """End agents, router and engines in order, and say what did not end well."""
    reasons = []
    codes = await asyncio.gather(*(agent.end() for agent in fleet.agents))
    for agent, code in zip(fleet.agents, codes, strict=True):
        if code != 0:
            reasons.append(f"{agent.name} ended with {code} on SIGTERM")
    await asyncio.sleep(0.5)
    for engine, port in zip(fleet.engines, fleet.engine_ports, strict=True):
        if left := _connections_of(port):
            reasons.append(f"{engine.name} has {left} TCP connections though no agent is left")
    code = await fleet.router.end()
    if code != 0:
        reasons.append(f"the router ended with {code} on SIGTERM")
    for process in fleet.processes:
        reasons += [f"{process.name} says: {line}" for line in process.troubles()[:5]]
    return reasons


def _connections_of(port: int) -> int:
    """TCP connections that the server on this port of 127.0.0.1 has open."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ending = f":{port:04X}"
    return sum(fields[1].endswith(ending) and fields[3] in (_ESTABLISHED, _CLOSE_WAIT) for fields in lines)
