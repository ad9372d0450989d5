"""What is a figure? A table for people and the same values for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.tables import table


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, as it was measured: `about` says in a sentence or two what is counted."""

    title: str
    about: str
    head: tuple[str, ...]
    rows: list[list[str]]
    values: Sequence[Mapping[str, object]]

    def as_markdown(self) -> str:
        """For people."""
        return f"**{self.title}**\n\n{self.about}\n\n{table(self.head, self.rows)}"

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {"title": self.title, "about": self.about, "values": self.values}
