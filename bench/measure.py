"""What does one load on one target give?

CPU time is read before and after the load and divided by all it sent, so that what runs before the window and after it
is counted on both sides. What the machine did beside the load is kept with the sample: it tells how far to trust it.
"""

import resource
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from bench.cases import Case
from bench.programs import Program, Trouble, machine_cpu_s
from bench.targets import MODEL, Target, Tools

_LOAD_LONGER_S: Final = 60.0
"""How much longer than its window a load may take, with its beginning and its end."""
_HOLD_S: Final = 60.0


class LoadReport(msgspec.Struct, frozen=True):
    """The load generator's line."""

    requests_all: int
    requests_per_s: float
    latency_p50_us: float
    latency_p99_us: float
    chunks_all: int
    chunks_per_s: float
    chunk_delay_p50_us: float
    chunk_delay_p99_us: float
    ttft_p50_us: float
    ttft_p99_us: float
    errors: dict[str, int]


class HoldReport(msgspec.Struct, frozen=True):
    """The load generator's line when it holds connections."""

    held: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    Times are of a unit (request or chunk); `held_kib` is the router's memory per idle connection; `others_cpus` is how
    many CPUs were busy with something else.
    """

    per_s: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    ttft_p50_us: float = 0.0
    ttft_p99_us: float = 0.0
    cpu_router_us: float = 0.0
    cpu_agents_us: float = 0.0
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
    routers = [] if target.router is None else [target.router]
    started_s, before = time.monotonic(), _used(routers, target)
    report = run_load(tools, target, case.load, seconds)
    took_s, after = time.monotonic() - started_s, _used(routers, target)
    used = after - before
    chunks = case.counts == "chunk"
    units = max(1, report.chunks_all if chunks else report.requests_all)
    return Sample(
        per_s=report.chunks_per_s if chunks else report.requests_per_s,
        p50_us=report.chunk_delay_p50_us if chunks else report.latency_p50_us,
        p99_us=report.chunk_delay_p99_us if chunks else report.latency_p99_us,
        ttft_p50_us=report.ttft_p50_us,
        ttft_p99_us=report.ttft_p99_us,
        cpu_router_us=used.router_s / units * 1e6,
        cpu_agents_us=used.agents_s / units * 1e6,
        rss_router_mib=_rss_mib(routers),
        rss_agents_mib=_rss_mib(target.agents),
        others_cpus=max(0.0, used.machine_s - used.router_s - used.agents_s - used.load_s) / took_s,
        errors={kind: count for kind, count in report.errors.items() if count},
    )


def run_load(tools: Tools, target: Target, load: Sequence[str], seconds: float) -> LoadReport:
    """What the load generator reports.

    Raises: Trouble when it gives no report.
    """
    argv = [str(tools.load), "--target", target.address, "--model", MODEL, "--seconds", str(seconds), *load]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=seconds + _LOAD_LONGER_S, check=True)
        return msgspec.json.decode(done.stdout, type=LoadReport)
    except subprocess.CalledProcessError as error:
        raise Trouble(f"the load on {target.name} failed: {error.stderr.decode(errors='replace').strip()}") from error
    except (subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        raise Trouble(f"the load on {target.name} failed: {error}") from error


def _hold(case: Case, target: Target, tools: Tools) -> Sample:
    """Memory of the router with many idle connections open."""
    assert target.router is not None, "only routers are asked"
    before_kib = target.router.rss_kib()
    argv = [str(tools.load), "--target", target.address, "--seconds", str(_HOLD_S), *case.load]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as load:
        try:
            assert load.stdout is not None, "it was asked for"
            if not select.select([load.stdout], [], [], _LOAD_LONGER_S)[0]:
                raise Trouble(f"the connections to {target.name} are not open after {_LOAD_LONGER_S:.0f} s")
            held = msgspec.json.decode(load.stdout.readline(), type=HoldReport).held
            after_kib = target.router.rss_kib()
        except msgspec.MsgspecError as error:
            raise Trouble(f"the load on {target.name} did not say how many connections it holds: {error}") from error
        finally:
            load.kill()
    missing = int(case.load[-1]) - held
    return Sample(
        per_s=float(held),
        rss_router_mib=after_kib / 1024,
        rss_agents_mib=_rss_mib(target.agents),
        held_kib=(after_kib - before_kib) / max(1, held),
        errors={"connection": missing} if missing else {},
    )


@dataclass(frozen=True, slots=True)
class _Used:
    """Seconds of CPU time; `load_s` is that of engine and load generator."""

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


def _used(routers: Sequence[Program], target: Target) -> _Used:
    for program in (target.engine, *routers, *target.agents):
        program.check()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return _Used(
        router_s=sum(program.cpu_s() for program in routers),
        agents_s=sum(program.cpu_s() for program in target.agents),
        load_s=target.engine.cpu_s() + ended.ru_utime + ended.ru_stime,
        machine_s=machine_cpu_s(),
    )


def _rss_mib(programs: Sequence[Program]) -> float:
    return sum(program.rss_kib() for program in programs) / 1024
