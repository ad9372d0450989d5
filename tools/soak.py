"""`make soak`: a thousand clients, and agents that are killed under them. Is anything lost?

Starts engine simulators, a router and three agents as processes, and lets clients ask while things go wrong: once to
warm up, and once more. Says what came of every request, and exits with 1 and the reasons when something does not hold:
a request without an answer or a documented error within its time, a stream cut without an error event, too few that are
answered, or anything that is still held, open or grown afterwards. Ends by itself and leaves nothing running. Needs
Linux.
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.house import at_rest
from tests.house.asking import Ending
from tests.house.chaos import KINDS, Chaos, Wires
from tests.house.client import MODEL
from tests.house.fleet import Fleet, Size, fleet_in
from tests.house.load import Clients, Plan, Tally
from tests.house.running import free_port
from tests.sim.sim_wire import fetch

ANSWERED_RATIO_MIN: Final = 0.98
LOOK_EVERY_S: Final = 0.1
FILES_WANTED: Final = 20_000


class _Given(argparse.Namespace):
    seconds: float
    warm_up: float
    clients: int
    chaos: str
    every: float
    interval_ms: int
    engines: int
    seed: int
    keep: str


def main() -> int:
    """Run; the exit code."""
    given = _arguments()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_WANTED:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES_WANTED, hard), hard))
    kinds = given.chaos.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        sys.stderr.write(f"soak: no such chaos: {', '.join(unknown)}; there are {', '.join(KINDS)}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="hivenet-soak-") as folder:
        where = Path(given.keep or folder)
        where.mkdir(parents=True, exist_ok=True)
        try:
            reasons = asyncio.run(_soak(given, kinds, where))
        except KeyboardInterrupt:
            _say("stopped.")
            return 130
    for reason in reasons:
        sys.stderr.write(f"soak: {reason}\n")
    _say("Something does not hold." if reasons else "Nothing was lost.")
    return 1 if reasons else 0


def _arguments() -> _Given:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description="Load and failure test.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things go wrong (60)")
    parser.add_argument("--warm-up", type=float, default=60.0, help="how long the same goes before memory counts (60)")
    parser.add_argument("--clients", type=int, default=1000, help="how many ask at once (1000)")
    parser.add_argument("--chaos", default="kill", help=f"what goes wrong, comma-separated: {', '.join(KINDS)} (kill)")
    parser.add_argument("--every", type=float, default=2.0, help="seconds from one blow to the next (2)")
    parser.add_argument("--interval-ms", type=int, default=100, help="time between two pieces of a stream (100)")
    parser.add_argument("--engines", type=int, default=3, help="how many engines the three agents share (3)")
    parser.add_argument("--seed", type=int, default=1, help="what chance begins with (1)")
    parser.add_argument("--keep", default="", help="a folder in which all logs stay")
    return parser.parse_args(namespace=_Given())


async def _soak(given: _Given, kinds: list[str], folder: Path) -> list[str]:
    wires, size = None, Size(engines=given.engines)
    if "links" in kinds:
        size = Size(engines=given.engines, p2p_port=free_port(), p2p_announce_port=free_port())
        wires = Wires(size.p2p_port)
        await wires.open(size.p2p_announce_port)
    try:
        async with fleet_in(folder, size) as fleet:
            chaos = Chaos(fleet, kinds, every_s=given.every, seed=given.seed, wires=wires)
            reasons = await _two_rounds(given, fleet, chaos, size)
            return reasons + chaos.links_not_dropped() + await at_rest.not_ended(fleet)
    finally:
        if wires is not None:
            await wires.close()


async def _two_rounds(given: _Given, fleet: Fleet, chaos: Chaos, size: Size) -> list[str]:
    plan = Plan(
        fleet.http,
        MODEL,
        given.clients,
        interval_ms=given.interval_ms,
        head_within_s=size.request_timeout_s,
        silent_within_s=size.stream_idle_timeout_s,
    )
    reasons: list[str] = []
    before = await at_rest.footing(fleet)
    warm = before
    for name, seconds in (("warm-up", given.warm_up), ("soak", given.seconds)):
        if not seconds:
            continue
        clients = Clients(plan, seed=given.seed)
        await _one_round(clients, chaos, seconds, fleet)
        await fleet.all_serve()
        left = await at_rest.not_at_rest(fleet, before)
        end = await at_rest.footing(fleet)
        _say(f"\n{name}, {seconds:g} s, {given.clients} clients; struck: {_words(chaos.struck)}\n")
        _say(_table(clients.tally))
        _say(f"router: {_footing_words(before)} before, {_footing_words(warm)} warm, {_footing_words(end)} now\n")
        reasons += [f"{name}: {reason}" for reason in _not_held(clients.tally) + left]
        if name == "soak" and warm is not before:
            reasons += at_rest.grown(warm, end)
        warm = end
    return reasons


async def _one_round(clients: Clients, chaos: Chaos, seconds: float, fleet: Fleet) -> None:
    began, cpu = time.monotonic(), _cpu_s(fleet)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(_slowest_look(fleet))
        await chaos.during(clients.run(seconds))
        looking.cancel()
    used = _cpu_s(fleet)
    took = time.monotonic() - began
    words = ", ".join(f"{name} {(used[name] - cpu[name]) / took:.2f}" for name in used)
    _say(f"\nprocessors used: {words}; blows were put off for {chaos.put_off_s:.1f} s until another agent served")


async def _slowest_look(fleet: Fleet) -> None:
    """Ask the router for its health again and again, and say in the end how long it took at most."""
    slowest_s = 0.0
    try:
        while True:
            began = time.monotonic()
            await fetch(f"http://{fleet.http[0]}:{fleet.http[1]}", "/health")
            slowest_s = max(slowest_s, time.monotonic() - began)
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        _say(f"\nslowest answer of the router about itself: {slowest_s:.2f} s")


def _cpu_s(fleet: Fleet) -> dict[str, float]:
    """Processor time used so far."""
    killed = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = sum(process.cpu_s() for process in (*fleet.agents, *fleet.engines))
    return {
        "clients": time.process_time(),
        "router": fleet.router.cpu_s(),
        "agents and engines": others + killed.ru_utime + killed.ru_stime,
    }


def _not_held(tally: Tally) -> list[str]:
    reasons = [f"fault: {fault}" for fault in tally.faults]
    if tally.answered_ratio < ANSWERED_RATIO_MIN:
        reasons.append(
            f"only {tally.answered_ratio:.2%} of the requests that were not cut mid-way ended in 200, of "
            f"{ANSWERED_RATIO_MIN:.0%} wanted"
        )
    return reasons


def _table(tally: Tally) -> str:
    rows = [
        f"{kind:<16} {ending.value:<26} {detail:<44} {number:>8,}"
        for (kind, ending, detail), number in sorted(tally.counts.items())
    ]
    first = sorted(tally.first_s)
    shown = f"{first[len(first) // 2]:.3f} s, 99 %: {first[len(first) * 99 // 100]:.3f} s" if first else "none"
    totals = ", ".join(f"{ending.value}: {tally.count(ending):,}" for ending in Ending if tally.count(ending))
    return "\n".join(
        [
            *rows,
            f"\n{tally.asked:,} requests, at most {tally.streaming_most} streams at once ({totals})",
            f"{tally.answered_ratio:.3%} of those neither cut mid-way nor left ended in 200",
            f"head of streams that came whole, median: {shown}",
        ]
    )


def _words(struck: Counter[str]) -> str:
    return ", ".join(f"{kind} {number}" for kind, number in struck.items()) or "nothing"


def _footing_words(footing: at_rest.Footing) -> str:
    inside = footing.inside
    objects = f"{inside['objects']:,} Python objects"
    return f"{footing.rss_bytes / (1 << 20):.0f} MiB, {footing.files} files, {inside['tasks']} tasks, {objects}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
