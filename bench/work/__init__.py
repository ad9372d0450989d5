"""What does the most expensive input within a port's bounds cost? One module for each port, run by `bench --work`.

A module has `measure() -> list[tuple[str, float]]`: for each shape of input its name, and the longest time in
milliseconds that it holds a loop or a thread without a break. Whatever is above `HELD_MS_MAX` is marked.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, cast

HELD_MS_MAX: Final = 10.0

Measure = Callable[[], list[tuple[str, float]]]


class Held(NamedTuple):
    """How long one input at one port holds a loop or a thread."""

    port: str
    shape: str
    held_ms: float


def ports() -> list[str]:
    """The modules of this package, each the name of a port."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def measured(names: Iterable[str]) -> list[Held]:
    """What the named ports' inputs cost here and now."""
    return [
        Held(name, shape, held_ms)
        for name in names
        for shape, held_ms in cast("Measure", importlib.import_module(f"{__name__}.{name}").measure)()
    ]


def as_markdown(found: Iterable[Held]) -> str:
    """One table, the shapes of a port in their order."""
    lines = [
        "### Work of the most expensive input within the bounds",
        "",
        "| port | input | ms of a loop or thread held |",
        "| --- | --- | --- |",
    ]
    for port, shape, held_ms in found:
        mark = f" **above {HELD_MS_MAX:g}**" if held_ms > HELD_MS_MAX else ""
        lines.append(f"| {port} | {shape} | {held_ms:.1f}{mark} |")
    return "\n".join(lines)
