"""Figures that come from the rounds themselves: time between chunks, CPU per chunk, and time to the first token.

`late` of a chunk is its time on the way minus that of the chunk before it, and 0 where that is negative.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from bench.cases import CASES, Case
from bench.figures.figure import Figure
from bench.measure import Sample
from bench.report import typical
from bench.rounds import Failed, Samples, run_rounds
from bench.tables import errors_text, time_text
from bench.targets import NAMES, Name, Tools

_STREAMS: Final = ("streams-200", "streams-500")
_LONG_PROMPT_BYTES: Final = 400 * 1024


def _first_token(streams: int) -> Case:
    load = ("--mode", "streams", "--clients", str(streams), "--prompt-bytes", str(_LONG_PROMPT_BYTES))
    title = "1 client" if streams == 1 else f"{streams} clients"
    return Case(f"first-token-{streams}", title, "chunk", (*load, "--chunks", "4", "--interval-us", "5000"))


FIRST_TOKEN: Final = (_first_token(1), _first_token(8))


def measure_chunks(tools: Tools, rounds: int, seconds: float, failed: Failed) -> list[Figure]:
    """Time between chunks, and CPU per chunk, with hundreds of streams.

    Raises: Trouble when a program fails.
    """
    cases = [case for case in CASES if case.name in _STREAMS]
    samples = run_rounds(cases, tools, rounds, seconds, failed)
    return [reduce_late(cases, samples), reduce_cpu(cases, samples)]


def measure_first_token(tools: Tools, rounds: int, seconds: float, failed: Failed) -> list[Figure]:
    """Time to the first token with long prompts.

    Raises: Trouble when a program fails.
    """
    samples = run_rounds(list(FIRST_TOKEN), tools, rounds, seconds, failed)
    return [reduce_first_token(FIRST_TOKEN, samples)]


def reduce_late(cases: Sequence[Case], samples: Samples) -> Figure:
    """By how much the time between two chunks grows."""
    rows, values = [], []
    for case, name, sample in _each(cases, samples):
        late = sample.late_p50_us, sample.late_p99_us, sample.late_max_us
        way = sample.p50_us, sample.p99_us, sample.max_us
        cells = [" / ".join(time_text(time_us) for time_us in times) for times in (late, way)]
        rows.append([case.title, name, *cells, errors_text(sample.errors)])
        values.append(
            {
                "case": case.name,
                "target": name,
                "late_us": dict(zip(("p50", "p99", "max"), late, strict=True)),
                "way_us": dict(zip(("p50", "p99", "max"), way, strict=True)),
                "errors": sample.errors,
            }
        )
    return Figure(
        "Time added between chunks",
        "By how much a chunk comes later after the chunk before it than it was written, and the time on the way; each "
        "p50 / p99 / longest. Direct shows what the machine itself adds.",
        ("streams", "target", "added between chunks", "on the way", "errors"),
        rows,
        values,
    )


def reduce_cpu(cases: Sequence[Case], samples: Samples) -> Figure:
    """CPU time for each chunk."""
    rows, values = [], []
    for case, name, sample in _each(cases, samples):
        if name == "direct":
            continue
        router, agents = sample.cpu_router_us, sample.cpu_agents_us
        rows.append([case.title, name, f"{router:.1f}", f"{agents:.1f}" if agents else "-", f"{router + agents:.1f}"])
        values.append({"case": case.name, "target": name, "router_us": router, "agents_us": agents})
    return Figure(
        "CPU time per chunk",
        "µs of CPU time of router and agents for each chunk that was read, from beginning to end of the load.",
        ("streams", "target", "router", "agents", "sum"),
        rows,
        values,
    )


def reduce_first_token(cases: Sequence[Case], samples: Samples) -> Figure:
    """What the way adds to the time to the first token."""
    rows, values = [], []
    for case, name, sample in _each(cases, samples):
        direct = typical(samples[case.name, "direct"])
        added = sample.ttft_p50_us - direct.ttft_p50_us, sample.ttft_p99_us - direct.ttft_p99_us
        times = f"{time_text(sample.ttft_p50_us)} / {time_text(sample.ttft_p99_us)}"
        text = "-" if name == "direct" else f"{time_text(added[0])} / {time_text(added[1])}"
        rows.append([case.title, name, times, text, errors_text(sample.errors)])
        values.append(
            {
                "case": case.name,
                "target": name,
                "first_token_us": {"p50": sample.ttft_p50_us, "p99": sample.ttft_p99_us},
                "added_us": {"p50": added[0], "p99": added[1]},
                "errors": sample.errors,
            }
        )
    return Figure(
        "Time added to the first token, prompts of 100,000 tokens",
        "Request bodies of 400 KiB; from the first byte sent to the first chunk read, p50 / p99, and what is above "
        "direct.",
        ("load", "target", "to the first token", "added", "errors"),
        rows,
        values,
    )


def _each(cases: Sequence[Case], samples: Samples) -> Iterator[tuple[Case, Name, Sample]]:
    for case in cases:
        for name in NAMES:
            if found := samples.get((case.name, name)):
                yield case, name, typical(found)
