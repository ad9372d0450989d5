"""In which order is measured?

In rounds. In each, every case runs on every target, one target right after the other, so that what disturbs the machine
for some seconds disturbs all of them. Cases with the same number of agents share their programs; the next round starts
fresh ones. A peer that fails is left out from then on: its samples are those of the rounds before.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from bench.cases import Case
from bench.load import run_load
from bench.measure import Sample, measure
from bench.peers import PEERS, start_peer
from bench.programs import Programs, Trouble
from bench.targets import (
    Engine,
    Limits,
    Name,
    Target,
    Tools,
    start_engine,
    start_far_engine,
    start_original,
    start_ours,
)

Samples = dict[tuple[str, Name], list[Sample]]
"""By case and target, one sample a round."""
_WARM_UP: Final = ("--mode", "unary", "--clients", "16")
_WARM_UP_S: Final = 1.0


@dataclass(slots=True)
class Failed:
    """Peers that are left out, each with the reason."""

    reasons: dict[Name, str] = field(default_factory=dict)

    @contextmanager
    def unless_peer(self, tools: Tools, name: Name) -> Iterator[None]:
        """Where the block fails for a peer, that peer is left out from now on; any other failure passes through."""
        try:
            yield
        except Trouble as trouble:
            if name not in tools.peers:
                raise
            self.reasons[name] = str(trouble)
            say(f"{name} is left out: {trouble}")


def say(words: str) -> None:
    """Tell a person at the terminal how far the run is."""
    sys.stderr.write(words + "\n")


def run_rounds(cases: list[Case], tools: Tools, rounds: int, seconds: float, failed: Failed) -> Samples:
    """Measure all cases on all targets that have not `failed`, `rounds` times, `seconds` each.

    Raises: Trouble when a program fails that is not a peer.
    """
    samples: Samples = {}
    for number in range(1, rounds + 1):
        for (agents, round_trip_ms), group in groupby(sorted(cases, key=_stage), key=_stage):
            with (
                tempfile.TemporaryDirectory(prefix="hivenet-bench-") as folder,
                Programs(Path(folder), tools.ports) as programs,
            ):
                targets = start_all(programs, tools, agents, round_trip_ms, failed)
                _one_round(group, targets, tools, seconds, samples, failed, f"round {number} of {rounds}")
    return samples


def start_all(
    programs: Programs, tools: Tools, agents: tuple[int, int], round_trip_ms: int, failed: Failed
) -> list[Target]:
    """The engine, and each target before it: our router and the original with their number of `agents`, and the peers.

    With no agents for it, the original is left out. All have carried a second of load.

    Raises: Trouble when one does not come up that is not a peer.
    """
    engine = start_engine(programs, tools)
    if round_trip_ms:
        far = start_far_engine(programs, tools, engine, round_trip_ms)
        targets = [far, start_ours(programs, tools, [engine] * agents[0], Limits(), round_trip_ms)]
    else:
        targets = [Target("direct", engine.address, engine)]
        targets.append(start_ours(programs, tools, [engine] * agents[0], Limits()))
        if tools.original is not None and agents[1]:
            targets.append(start_original(programs, tools.original, [engine] * agents[1], Limits()))
    for target in targets:
        _warm_up(tools, target)
    return targets if round_trip_ms else targets + _start_peers(programs, tools, engine, failed)


def _warm_up(tools: Tools, target: Target) -> None:
    run_load(tools, target, _WARM_UP, _WARM_UP_S)


def _start_peers(programs: Programs, tools: Tools, engine: Engine, failed: Failed) -> list[Target]:
    started = []
    for peer in PEERS:
        if peer.name not in tools.peers or peer.name in failed.reasons:
            continue
        with failed.unless_peer(tools, peer.name):
            target = start_peer(programs, peer, tools.peers[peer.name], engine)
            _warm_up(tools, target)
            started.append(target)
    return started


def _one_round(
    cases: Iterable[Case],
    targets: list[Target],
    tools: Tools,
    seconds: float,
    samples: Samples,
    failed: Failed,
    words: str,
) -> None:
    for case in cases:
        for target in targets:
            if (case.counts == "connection" and target.router is None) or target.name in failed.reasons:
                continue
            with failed.unless_peer(tools, target.name):
                sample = measure(case, target, tools, seconds)
                samples.setdefault((case.name, target.name), []).append(sample)
                rate = f"{sample.per_s:,.0f} {case.counts}s" + ("" if case.counts == "connection" else "/s")
                say(f"{words}: {case.name}, {target.name}: {rate}")


def _stage(case: Case) -> tuple[tuple[int, int], int]:
    return case.agents, case.round_trip_ms
