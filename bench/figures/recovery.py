"""How soon is all served again when an engine or an agent is killed under load, and what fails meanwhile?

Two agents, an engine behind each, and a load that keeps both busy. One of them is killed; the load's journal tells what
became of each request.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from bench.figures.figure import Figure
from bench.load import Request, read_journal, read_report, started_load
from bench.programs import Program, Programs
from bench.rounds import Failed, say
from bench.tables import time_text
from bench.targets import Engine, Limits, Name, Target, Tools, start_engine, start_original, start_ours

Killed = Literal["engine", "agent"]
_NS_PER_MS: Final = 1e6
_BEFORE_S: Final = 3.0
"""Load before the kill, with the time in which streams begin."""
_AFTER_S: Final = 6.0
_LATE_NS: Final = 100_000_000
"""So much longer than any wait before the kill is late; less is what a busy machine does by itself."""
_LOADS: Final = (
    ("64 clients, whole answers after 20 ms", ("--mode", "unary", "--clients", "64", "--delay-us", "20000")),
    (
        "64 streams, 50 chunks, 20 ms apart",
        ("--mode", "streams", "--clients", "64", "--chunks", "50", "--interval-us", "20000"),
    ),
)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a kill did to the requests.

    `first_ms` is from the kill to the beginning of the first good answer that was asked for after it. `all_ms` is to
    the moment from which all went as before: what had waited at the kill has its answer, nothing fails any more, and
    nothing comes late. `failed` is by status, 0 for an answer that did not come whole; `under_way` is how many requests
    were when it was killed; `latest_ms` is the longest wait for an answer's beginning after that.
    """

    first_ms: float | None
    all_ms: float
    under_way: int
    failed: dict[int, int]
    late: int
    latest_ms: float
    served_after: int


def reduce_recovery(requests: Sequence[Request], killed_ns: int) -> Recovery:
    """What the journal of a load says about a kill at `killed_ns`."""
    before = [request for request in requests if request.ended_ns < killed_ns]
    after = [request for request in requests if request.ended_ns >= killed_ns]
    usual_ns = max((_waited_ns(request) for request in before if _good(request)), default=0)
    good = [request for request in after if _good(request)]
    bad = [request for request in after if not _good(request)]
    begun = [request for request in good if request.first_ns >= killed_ns]
    late = [request for request in begun if _waited_ns(request) > usual_ns + _LATE_NS]
    waiting = [request for request in begun if request.sent_ns < killed_ns]
    first_ns = min((request.first_ns for request in good if request.sent_ns >= killed_ns), default=None)
    ends_ns = [request.ended_ns for request in bad] + [request.first_ns for request in (*waiting, *late)]
    last_ns = max(ends_ns, default=killed_ns)
    return Recovery(
        first_ms=None if first_ns is None else (first_ns - killed_ns) / _NS_PER_MS,
        all_ms=(last_ns - killed_ns) / _NS_PER_MS,
        under_way=sum(request.sent_ns < killed_ns for request in after),
        failed=dict(sorted(Counter(request.status for request in bad).items())),
        late=len(late),
        latest_ms=max((_waited_ns(request) for request in after if request.first_ns >= killed_ns), default=0)
        / _NS_PER_MS,
        served_after=len(good),
    )


def _good(request: Request) -> bool:
    return 200 <= request.status < 300


def _waited_ns(request: Request) -> int:
    return request.first_ns - request.sent_ns


def measure_recovery(tools: Tools, rounds: int, seconds: float, _: Failed) -> list[Figure]:
    """Each kill under each load, `rounds` times, on ours and on the original.

    Raises: Trouble when a program fails that was not killed.
    """
    rows, values = [], []
    for title, load in _LOADS:
        for killed in ("engine", "agent"):
            for name, start in _starts(tools):
                recoveries = [_one(tools, start, killed, load) for _ in range(rounds)]
                worst = max(recoveries, key=lambda recovery: (recovery.all_ms, recovery.latest_ms))
                say(f"recovery: {name}, {killed} killed, {title}: all served after {worst.all_ms:.0f} ms")
                rows.append([title, killed, name, *_cells(worst)])
                each = [asdict(recovery) for recovery in recoveries]
                values.append({"load": title, "killed": killed, "target": name, "rounds": each})
    return [
        Figure(
            "Recovery when an engine or an agent is killed under load",
            "Two agents with an engine each; one engine or one agent is killed; the worst of the rounds. Times are "
            "from the kill: until the first good answer begins to a request sent after it, and until all that waited "
            "is answered, nothing fails any more, and nothing comes late (100 ms later than anything before). What was "
            "under way on the killed part can be sent again until its answer has begun; a stream that had begun is "
            "lost.",
            (
                "load",
                "killed",
                "target",
                "first served",
                "all served",
                "failed",
                "late",
                "longest wait",
                "served after",
            ),
            rows,
            values,
        )
    ]


def _cells(recovery: Recovery) -> list[str]:
    failed = ", ".join(f"{count} {status or 'cut'}" for status, count in recovery.failed.items()) or "0"
    return [
        "never" if recovery.first_ms is None else time_text(recovery.first_ms * 1000),
        time_text(recovery.all_ms * 1000) if recovery.all_ms else "at once",
        f"{failed} ({recovery.under_way} under way)",
        f"{recovery.late:,}",
        time_text(recovery.latest_ms * 1000),
        f"{recovery.served_after:,}",
    ]


_Start = Callable[[Programs, Sequence[Engine]], Target]


def _starts(tools: Tools) -> list[tuple[Name, _Start]]:
    limits = Limits()
    starts: list[tuple[Name, _Start]] = [
        ("ours", lambda programs, engines: start_ours(programs, tools, engines, limits)),
    ]
    if tools.original is not None:
        starts.append(("original", partial(_start_original, folder=tools.original, limits=limits)))
    return starts


def _start_original(programs: Programs, engines: Sequence[Engine], folder: Path, limits: Limits) -> Target:
    return start_original(programs, folder, engines, limits)


def _one(tools: Tools, start: _Start, killed: Killed, load: Sequence[str]) -> Recovery:
    with (
        tempfile.TemporaryDirectory(prefix="hivenet-bench-") as folder,
        Programs(Path(folder), tools.ports) as programs,
    ):
        engines = [start_engine(programs, tools, f"engine {number}") for number in (1, 2)]
        target = start(programs, engines)
        victim: Program = engines[0].program if killed == "engine" else target.agents[0]
        journal = Path(folder) / "journal.txt"
        seconds = _BEFORE_S + _AFTER_S
        with started_load(tools, target, [*load, "--journal", str(journal)], seconds) as running:
            time.sleep(_BEFORE_S)
            killed_ns = time.time_ns()
            programs.kill(victim)
            read_report(running, target, seconds)
        return reduce_recovery(read_journal(journal), killed_ns)
