"""What does one load on one target give?

CPU time is read before and after the load and divided by all it sent, so that what runs before the window and after it
is counted on both sides. What the machine did beside the load is kept with the sample: it tells how far to trust it.
"""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.cases import Case
from bench.load import hold, run_load
from bench.programs import Program, machine_cpu_s, rss_mib
from bench.targets import Target, Tools

_SETTLE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    Times are of a unit (request or chunk); `late` is by how much the time between two chunks has grown; `held_kib` is
    the router's memory per idle connection; `fresh` memory was read before any load; `others_cpus` is how many CPUs
    were busy with something else.
    """

    per_s: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0
    late_p50_us: float = 0.0
    late_p99_us: float = 0.0
    late_max_us: float = 0.0
    ttft_p50_us: float = 0.0
    ttft_p99_us: float = 0.0
    cpu_router_us: float = 0.0
    cpu_agents_us: float = 0.0
    fresh_router_mib: float = 0.0
    fresh_agents_mib: float = 0.0
    rss_router_mib: float = 0.0
    rss_agents_mib: float = 0.0
    held_kib: float = 0.0
    others_cpus: float = 0.0
    errors: dict[str, int] | None = None


def measure(case: Case, target: Target, tools: Tools, seconds: float) -> Sample:
    """Run the case's load on the target for `seconds`.

    Raises: Trouble when the load generator fails or a process of the target ends.
    """
    if case.counts == "connection":
        return _hold(case, target, tools)
    started_s, before = time.monotonic(), _used(target)
    report = run_load(tools, target, case.load, seconds)
    took_s, after = time.monotonic() - started_s, _used(target)
    used = after - before
    chunks = case.counts == "chunk"
    units = max(1, report.chunks_all if chunks else report.requests_all)
    return Sample(
        per_s=report.chunks_per_s if chunks else report.requests_per_s,
        p50_us=report.chunk_delay_p50_us if chunks else report.latency_p50_us,
        p99_us=report.chunk_delay_p99_us if chunks else report.latency_p99_us,
        max_us=report.chunk_delay_max_us,
        late_p50_us=report.chunk_late_p50_us,
        late_p99_us=report.chunk_late_p99_us,
        late_max_us=report.chunk_late_max_us,
        ttft_p50_us=report.ttft_p50_us,
        ttft_p99_us=report.ttft_p99_us,
        cpu_router_us=used.router_s / units * 1e6,
        cpu_agents_us=used.agents_s / units * 1e6,
        fresh_router_mib=target.fresh_mib[0],
        fresh_agents_mib=target.fresh_mib[1],
        rss_router_mib=rss_mib(_routers(target)),
        rss_agents_mib=rss_mib(target.agents),
        others_cpus=max(0.0, used.machine_s - used.router_s - used.agents_s - used.load_s) / took_s,
        errors={kind: count for kind, count in report.errors.items() if count},
    )


def _hold(case: Case, target: Target, tools: Tools) -> Sample:
    """Memory of the router with many idle connections open."""
    held = hold(tools, target, case.load, _SETTLE_S)
    missing = int(case.load[case.load.index("--clients") + 1]) - held.held
    return Sample(
        per_s=float(held.held),
        fresh_router_mib=target.fresh_mib[0],
        fresh_agents_mib=target.fresh_mib[1],
        rss_router_mib=held.router_mib[1],
        rss_agents_mib=held.agents_mib[1],
        held_kib=held.router_kib_each(),
        errors={"connection": missing} if missing else {},
    )


@dataclass(frozen=True, slots=True)
class _Used:
    """Seconds of CPU time; `load_s` is that of engine, delay and load generator."""

    router_s: float
    agents_s: float
    load_s: float
    machine_s: float

    def __sub__(self, before: "_Used") -> "_Used":
        return _Used(
            self.router_s - before.router_s,
            self.agents_s - before.agents_s,
            self.load_s - before.load_s,
            self.machine_s - before.machine_s,
        )


def _routers(target: Target) -> Sequence[Program]:
    return [] if target.router is None else [target.router]


def _used(target: Target) -> _Used:
    routers, beside = _routers(target), (target.engine.program, *target.delays)
    for program in (*beside, *routers, *target.agents):
        program.check()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return _Used(
        router_s=sum(program.cpu_s() for program in routers),
        agents_s=sum(program.cpu_s() for program in target.agents),
        load_s=sum(program.cpu_s() for program in beside) + ended.ru_utime + ended.ru_stime,
        machine_s=machine_cpu_s(),
    )
