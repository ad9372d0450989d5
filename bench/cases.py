"""Which loads are measured?

One row a case. `counts` says whether its unit is a request or a chunk: its rate, its spread and its CPU time are per
unit. A case with `optional` runs only when it is named or with `--all`.
"""

from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["request", "chunk", "connection"]


@dataclass(frozen=True, slots=True)
class Case:
    """One load.

    What the load generator is told, how many agents stand behind our router and the original, and the time a byte
    takes from router to agent and back. With a round trip only direct (over the same distance) and ours are measured.
    """

    name: str
    title: str
    counts: Unit
    load: tuple[str, ...]
    agents: tuple[int, int] = (1, 1)
    round_trip_ms: int = 0
    optional: bool = False


def _unary(name: str, clients: int, prompt_kib: int, *, round_trip_ms: int = 0, optional: bool = False) -> Case:
    load = ("--mode", "unary", "--clients", str(clients), "--prompt-bytes", str(prompt_kib * 1024))
    noun = "client" if clients == 1 else "clients"
    size = f"{prompt_kib} KiB" if prompt_kib < 1024 else f"{prompt_kib // 1024} MiB"
    far = f", {round_trip_ms} ms to the agent and back" if round_trip_ms else ""
    title = f"unary, {clients} {noun}, {size}{far}"
    return Case(name, title, "request", load, round_trip_ms=round_trip_ms, optional=optional)


def _streams(streams: int, agents: tuple[int, int], *, optional: bool = False) -> Case:
    load = ("--mode", "streams", "--clients", str(streams), "--chunks", "100", "--interval-us", "20000")
    title = f"{streams} streams, 20 ms a chunk"
    return Case(f"streams-{streams}", title, "chunk", load, agents=agents, optional=optional)


CASES: Final = (
    # Before the loads, while no memory lies free that they have left.
    Case("idle-1000", "1,000 idle connections", "connection", ("--mode", "idle", "--clients", "1000"), optional=True),
    _unary("unary-1", 1, 4),
    _unary("unary-16", 16, 4),
    _unary("unary-64", 64, 4),
    _unary("unary-16-256k", 16, 256, optional=True),
    Case(
        "saturation-16",
        "16 saturated streams",
        "chunk",
        ("--mode", "streams", "--clients", "16", "--chunks", "20000", "--interval-us", "0"),
        optional=True,
    ),
    # An agent of the original carries 75 requests on a machine of 24 GiB, whatever its capacity, and refuses the rest.
    _streams(50, (1, 8), optional=True),
    _streams(200, (1, 8)),
    _streams(500, (1, 8), optional=True),
    _unary("rtt50-unary-64", 64, 4, round_trip_ms=50, optional=True),
    _unary("rtt50-1m", 4, 1024, round_trip_ms=50, optional=True),
)


def chosen(names: str, *, everything: bool) -> list[Case]:
    """The cases named in a comma-separated list, else all, else those that are not optional.

    Raises: ValueError with a sentence for a name that is not a case.
    """
    if not names:
        return [case for case in CASES if everything or not case.optional]
    by_name = {case.name: case for case in CASES}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in by_name:
            raise ValueError(f"there is no case {name!r}; there are {', '.join(by_name)}")
    return [case for case in CASES if case.name in wanted]
