"""Are limits exact? The engine counts how many chats are with it at one time; the load counts what was refused.

Bursts send every request before the first is answered, so that which are taken, which wait and which are refused is a
matter of counting.
"""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.figures.figure import Figure
from bench.load import run_load
from bench.programs import Programs
from bench.rounds import Failed, say
from bench.targets import Limits, Tools, start_engine, start_ours

_BURST_S: Final = 30.0
"""Bound of a burst; it ends when the last request is answered."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit and what follows from it.

    `most` is how many requests an engine has at one time; a burst of `burst` requests has `admitted` answered, and the
    rest refused; without a burst all are answered.
    """

    title: str
    limits: Limits
    load: tuple[str, ...]
    most: int
    agents: int = 1
    burst: int = 0
    admitted: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted: at the load (offered, answered, refused, broken) and at the engines (most of any, all)."""

    offered: int
    answered: int
    refused: int
    broken: int
    most: int
    reached_engines: int


def _steady(clients: int) -> tuple[str, ...]:
    return ("--mode", "unary", "--clients", str(clients), "--delay-us", "10000")


def _burst(requests: int) -> tuple[str, ...]:
    return ("--mode", "unary", "--clients", str(requests), "--requests", "1", "--delay-us", "1000000")


RULES: Final = (
    Rule("capacity 4, 200 clients", Limits(capacity=4), _steady(200), most=4),
    Rule("capacity 4 on each of two agents, 200 clients", Limits(capacity=4), _steady(200), most=4, agents=2),
    Rule("8 forwards at once, 200 clients", Limits(max_concurrent=8), _steady(200), most=8),
    Rule(
        "capacity 4, slots kept for whole streams, 50 streams",
        Limits(capacity=4, more=("--hold-slot-for-stream",)),
        ("--mode", "streams", "--clients", "50", "--chunks", "10", "--interval-us", "10000"),
        most=4,
    ),
    Rule(
        "capacity 4, 10 may wait for a slot, burst of 50",
        Limits(capacity=4, queue_depth=10),
        _burst(50),
        most=4,
        burst=50,
        admitted=14,
    ),
    Rule(
        "capacity 4, none may wait, burst of 50",
        Limits(capacity=4, queue_depth=0),
        _burst(50),
        most=4,
        burst=50,
        admitted=4,
    ),
    Rule(
        "8 forwards at once, 5 may wait, burst of 50",
        Limits(max_concurrent=8, queue_size=5, more=("--enqueue-timeout", "0s")),
        _burst(50),
        most=8,
        burst=50,
        admitted=13,
    ),
)


def is_exact(rule: Rule, counted: Counted) -> bool:
    """True when all counts are what the rule says: not one more, not one less."""
    admitted = rule.admitted if rule.burst else counted.offered
    offered = rule.burst or counted.offered
    wanted = Counted(offered, admitted, offered - admitted, 0, rule.most, admitted)
    return counted == wanted


def measure_limits(tools: Tools, rounds: int, seconds: float, _: Failed) -> list[Figure]:
    """Each rule, `rounds` times, on our router.

    Raises: Trouble when a program fails.
    """
    rows, values = [], []
    for rule in RULES:
        counts = [_count(rule, tools, seconds) for _ in range(rounds)]
        wrong = [counted for counted in counts if not is_exact(rule, counted)]
        say(f"limits: {rule.title}: exact in {rounds - len(wrong)} of {rounds}")
        rows.append([rule.title, *_cells(rule, (wrong or counts)[0]), f"{rounds - len(wrong)} of {rounds}"])
        each = [{**asdict(counted), "exact": is_exact(rule, counted)} for counted in counts]
        values.append({"rule": rule.title, "most_by_rule": rule.most, "rounds": each})
    return [
        Figure(
            "Exactness of limits",
            "The most requests that an engine had at one time, as it counted, and what was answered and refused; "
            "each beside what the rule says; of the first round, or of the first that was not exact.",
            (
                "limit",
                "most at one time (rule)",
                "offered",
                "answered (rule)",
                "refused",
                "broken",
                "sent on",
                "exact in",
            ),
            rows,
            values,
        )
    ]


def _cells(rule: Rule, counted: Counted) -> list[str]:
    admitted = rule.admitted if rule.burst else counted.offered
    return [
        f"{counted.most} ({rule.most})",
        f"{counted.offered:,}",
        f"{counted.answered:,} ({admitted:,})",
        f"{counted.refused:,}",
        f"{counted.broken:,}",
        f"{counted.reached_engines:,}",
    ]


def _count(rule: Rule, tools: Tools, seconds: float) -> Counted:
    with (
        tempfile.TemporaryDirectory(prefix="hivenet-bench-") as folder,
        Programs(Path(folder), tools.ports) as programs,
    ):
        engines = [start_engine(programs, tools, f"engine {number + 1}") for number in range(rule.agents)]
        target = start_ours(programs, tools, engines, rule.limits)
        for engine in engines:
            engine.counts()
        report = run_load(tools, target, rule.load, _BURST_S if rule.burst else seconds)
        counts = [engine.counts() for engine in engines]
    refused = report.errors["non_2xx"]
    broken = sum(report.errors.values()) - refused
    return Counted(
        offered=report.requests_all,
        answered=report.requests_all - refused - broken,
        refused=refused,
        broken=broken,
        most=max(count.most for count in counts),
        reached_engines=sum(count.all for count in counts),
    )
