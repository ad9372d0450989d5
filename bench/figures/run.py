"""Which figures are there, and how are they run?"""

from collections.abc import Callable
from typing import Final

from bench.figures.figure import Figure
from bench.figures.limits import measure_limits
from bench.figures.loads import measure_chunks, measure_first_token
from bench.figures.memory import measure_memory
from bench.figures.recovery import measure_recovery
from bench.rounds import Failed
from bench.targets import Tools

_Measure = Callable[[Tools, int, float, Failed], list[Figure]]
FIGURES: Final[dict[str, _Measure]] = {
    "chunks": measure_chunks,
    "memory": measure_memory,
    "first-token": measure_first_token,
    "recovery": measure_recovery,
    "limits": measure_limits,
}
ALL: Final = "all"


def chosen_figures(names: str) -> list[str]:
    """The figures named in a comma-separated list, or every one for `all`.

    Raises: ValueError with a sentence for a name that is none.
    """
    if names == ALL:
        return list(FIGURES)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in FIGURES:
            raise ValueError(f"there is no figure {name!r}; there are {', '.join(FIGURES)}")
    return wanted


def run_figures(names: list[str], tools: Tools, rounds: int, seconds: float, failed: Failed) -> dict[str, list[Figure]]:
    """What was measured, by name; peers that fail are entered in `failed` and left out from then on.

    Raises: Trouble when a program fails.
    """
    return {name: FIGURES[name](tools, rounds, seconds, failed) for name in names}
