"""How do figures look to a person? Markdown tables and their cells."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def time_text(time_us: float) -> str:
    """A time with a unit in which it reads well; a negative one keeps its sign."""
    return f"{time_us:.0f} µs" if abs(time_us) < 1000 else f"{time_us / 1000:,.1f} ms"


def number_text(value: float) -> str:
    """A number with two places where it is small."""
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"


def errors_text(errors: dict[str, int] | None) -> str:
    """Counts by kind, or 0."""
    return ", ".join(f"{count:,} {kind}" for kind, count in (errors or {}).items()) or "0"
