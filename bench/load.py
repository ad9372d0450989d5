"""What does a load meet? Runs the load generator and reads its line.

Invariant: no load generator is left running, however a function here is left.
"""

import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.programs import Trouble, rss_mib
from bench.targets import MODEL, Target, Tools

_LONGER_S: Final = 60.0
"""How much longer than its window a load may take, with its beginning and its end."""
_HOLD_S: Final = 60.0


class LoadReport(msgspec.Struct, frozen=True):
    """The load generator's line; `chunk_late` is by how much the time between two chunks has grown on the way."""

    requests_all: int
    requests_per_s: float
    latency_p50_us: float
    latency_p99_us: float
    chunks_all: int
    chunks_per_s: float
    chunk_delay_p50_us: float
    chunk_delay_p99_us: float
    chunk_delay_max_us: float
    chunk_late_p50_us: float
    chunk_late_p99_us: float
    chunk_late_max_us: float
    ttft_p50_us: float
    ttft_p99_us: float
    status: dict[str, int]
    errors: dict[str, int]


class _HoldReport(msgspec.Struct, frozen=True):
    held: int


@dataclass(frozen=True, slots=True)
class Held:
    """What many open connections or streams cost: how many there were, and MiB before, with and after them."""

    held: int
    router_mib: tuple[float, float, float]
    agents_mib: tuple[float, float, float]

    def router_kib_each(self) -> float:
        """KiB of the router's memory for each."""
        return _each_kib(self.router_mib, self.held)

    def agents_kib_each(self) -> float:
        """KiB of the agents' memory for each."""
        return _each_kib(self.agents_mib, self.held)


def _each_kib(mib: tuple[float, float, float], held: int) -> float:
    return (mib[1] - mib[0]) * 1024 / max(1, held)


def run_load(tools: Tools, target: Target, load: Sequence[str], seconds: float) -> LoadReport:
    """What the load generator reports.

    Raises: Trouble when it gives no report.
    """
    with started_load(tools, target, load, seconds) as running:
        return read_report(running, target, seconds)


@contextmanager
def started_load(
    tools: Tools, target: Target, load: Sequence[str], seconds: float
) -> Iterator[subprocess.Popen[bytes]]:
    """A load that runs until the block is left."""
    argv = [str(tools.load), "--target", target.address, "--model", MODEL, "--seconds", str(seconds), *load]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            running.kill()


def read_report(running: subprocess.Popen[bytes], target: Target, seconds: float) -> LoadReport:
    """The report of a started load, when it has ended.

    Raises: Trouble when it gives none.
    """
    try:
        said, complaint = running.communicate(timeout=seconds + _LONGER_S)
        if running.returncode != 0:
            raise Trouble(f"the load on {target.name} failed: {complaint.decode(errors='replace').strip()}")
        return msgspec.json.decode(said, type=LoadReport)
    except (subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        raise Trouble(f"the load on {target.name} failed: {error}") from error


def hold(tools: Tools, target: Target, load: Sequence[str], settle_s: float) -> Held:
    """Memory before, with, and `settle_s` after what this load opens and holds.

    Raises: Trouble when the load generator does not say how many it holds.
    """
    routers = [] if target.router is None else [target.router]
    router_mib, agents_mib = [rss_mib(routers)], [rss_mib(target.agents)]

    def look() -> None:
        router_mib.append(rss_mib(routers))
        agents_mib.append(rss_mib(target.agents))

    with started_load(tools, target, load, _HOLD_S) as running:
        held = _read_held(running, target)
        time.sleep(settle_s)
        look()
    time.sleep(settle_s)
    look()
    return Held(held, (router_mib[0], router_mib[1], router_mib[2]), (agents_mib[0], agents_mib[1], agents_mib[2]))


def _read_held(running: subprocess.Popen[bytes], target: Target) -> int:
    assert running.stdout is not None, "it was asked for"
    if not select.select([running.stdout], [], [], _LONGER_S)[0]:
        raise Trouble(f"what {target.name} is to hold is not open after {_LONGER_S:.0f} s")
    try:
        return msgspec.json.decode(running.stdout.readline(), type=_HoldReport).held
    except msgspec.MsgspecError as error:
        running.kill()
        complaint = running.communicate()[1].decode(errors="replace").strip()
        raise Trouble(f"the load on {target.name} did not say how much it holds: {complaint or error}") from error


class Request(msgspec.Struct, frozen=True):
    """A line of a load's journal: when a request was sent, began to be answered, and ended; ns since 1970.

    A whole answer begins when it ends. The status is 0 where no whole answer came.
    """

    sent_ns: int
    first_ns: int
    ended_ns: int
    status: int


def read_journal(path: Path) -> list[Request]:
    """The requests of a load that ran with `--journal`, in the order of their ends."""
    rows = (line.split() for line in path.read_text().splitlines())
    return [Request(*map(int, row)) for row in rows]
