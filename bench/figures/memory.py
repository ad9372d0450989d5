"""How much memory does an open stream cost?"""

import tempfile
from pathlib import Path
from typing import Final

from bench.figures.figure import Figure
from bench.load import Held, hold
from bench.programs import Programs
from bench.rounds import Failed, say, start_all
from bench.targets import Name, Tools

STREAMS: Final = 2000
_LOAD: Final = ("--mode", "open", "--clients", str(STREAMS), "--chunks", "100", "--interval-us", "1000000")
_SETTLE_S: Final = 3.0


def measure_memory(tools: Tools, rounds: int, seconds: float, failed: Failed) -> list[Figure]:
    """Memory of router and agents with many slow streams, once; the number of rounds and their length change nothing.

    The original is left out: its agents carry some 75 streams each. Raises: Trouble when a program fails.
    """
    held: dict[Name, Held] = {}
    with (
        tempfile.TemporaryDirectory(prefix="hivenet-bench-") as folder,
        Programs(Path(folder), tools.ports) as programs,
    ):
        for target in start_all(programs, tools, (1, 0), 0, failed):
            if target.router is None:
                continue
            with failed.unless_peer(tools, target.name):
                held[target.name] = hold(tools, target, _LOAD, _SETTLE_S)
                say(f"memory: {target.name} holds {held[target.name].held:,} streams")
    return [reduce_memory(held)]


def reduce_memory(held: dict[Name, Held]) -> Figure:
    """KiB for each stream."""
    rows, values = [], []
    for name, one in held.items():
        agents = f"{one.agents_kib_each():.1f}" if one.agents_mib[1] else "-"
        rows.append([name, f"{one.held:,}", f"{one.router_kib_each():.1f}", agents, _way(one.router_mib)])
        values.append(
            {
                "target": name,
                "streams": one.held,
                "router_kib_each": one.router_kib_each(),
                "agents_kib_each": one.agents_kib_each(),
                "router_mib": one.router_mib,
                "agents_mib": one.agents_mib,
            }
        )
    return Figure(
        "Memory per open stream",
        f"{STREAMS:,} streams with a chunk a second: by how much the memory of router and agent is above that before "
        "them, divided by the streams.",
        ("target", "streams open", "router, KiB each", "agent, KiB each", "router, MiB before → with → after"),
        rows,
        values,
    )


def _way(mib: tuple[float, float, float]) -> str:
    return " → ".join(f"{value:.0f}" for value in mib)
