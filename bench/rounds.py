"""In which order is measured?

In rounds. In each, every case runs on every target, one target right after the other, so that what disturbs the machine
for some seconds disturbs all of them. Cases with the same number of agents share their programs; the next round starts
fresh ones.
"""

import sys
import tempfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Final

from bench.cases import Case
from bench.measure import Sample, measure, run_load
from bench.programs import Programs
from bench.targets import Name, Target, Tools, start_all

Samples = dict[tuple[str, Name], list[Sample]]
"""By case and target, one sample a round."""
_WARM_UP: Final = ("--mode", "unary", "--clients", "16")
_WARM_UP_S: Final = 1.0


def run_rounds(cases: list[Case], tools: Tools, rounds: int, seconds: float) -> Samples:
    """Measure all cases on all targets, `rounds` times, `seconds` each.

    Raises: Trouble when a program fails.
    """
    samples: Samples = {}
    for number in range(1, rounds + 1):
        for agents, group in groupby(sorted(cases, key=_agents), key=_agents):
            with tempfile.TemporaryDirectory(prefix="hivenet-bench-") as folder, Programs(Path(folder)) as programs:
                targets = start_all(programs, tools, agents)
                for target in targets:
                    run_load(tools, target, _WARM_UP, _WARM_UP_S)
                _one_round(group, targets, tools, seconds, samples, f"round {number} of {rounds}")
    return samples


def _one_round(
    cases: Iterable[Case], targets: list[Target], tools: Tools, seconds: float, samples: Samples, words: str
) -> None:
    for case in cases:
        for target in targets:
            if case.counts == "connection" and target.router is None:
                continue
            sample = measure(case, target, tools, seconds)
            samples.setdefault((case.name, target.name), []).append(sample)
            rate = f"{sample.per_s:,.0f} {case.counts}s" + ("" if case.counts == "connection" else "/s")
            sys.stderr.write(f"{words}: {case.name}, {target.name}: {rate}\n")


def _agents(case: Case) -> tuple[int, int]:
    return case.agents
