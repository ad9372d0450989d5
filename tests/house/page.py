"""What does the metrics page say?

Reads the text form back into numbers. Invariant: `at_rest` names every gauge of running work that is not at zero.
"""

import re
from collections.abc import Iterator
from typing import Final

from tests.house.client import Address, ask

WORK_GAUGES: Final = (
    "hivenet_agent_active_requests",
    "hivenet_queue_depth",
    "hivenet_streams_in_progress",
    "http_server_active_requests",
)
_LINE: Final = re.compile(r"^([a-z_]+)(?:\{(.*)\})? ([^ ]+)$")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Page:
    """One reading of the page."""

    def __init__(self, text: str) -> None:
        self.text = text

    def samples(self, name: str, **labels: str) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of each series of this name that has these labels."""
        for line in self.text.splitlines():
            found = _LINE.match(line)
            if found is None or found[1] != name:
                continue
            has: dict[str, str] = dict(_LABEL.findall(found[2] or ""))
            if labels.items() <= has.items():
                yield has, float(found[3])

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of this name that have these labels."""
        return sum(value for _, value in self.samples(name, **labels))

    def busy(self) -> list[str]:
        """The series of running work that are not at zero."""
        return [
            f"{name}{labels} {value:g}" for name in WORK_GAUGES for labels, value in self.samples(name) if value != 0
        ]


async def page_of(metrics: Address) -> Page:
    """The page now."""
    reply = await ask(metrics, "/metrics")
    assert reply.status == 200
    return Page(reply.body.decode())
