"""What does this process use of its machine?

The nine `process_*` families of the original: six as the client library reads them, three more that it does not know.
A figure the system does not give is left out; a page without it is better than none.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from hivenet_router.adapters.prometheus_series import Block, sample_line

_PROC: Final = Path("/proc")
_UNLIMITED_BYTES: Final = 2.0**64
"""How the original shows a limit that is not set."""


class ProcessFigures:
    """Reads the figures under `proc` anew each time; may be asked from any thread."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._self: Final = proc / "self"
        self._library: Final = CollectorRegistry()
        ProcessCollector(proc=str(proc), registry=self._library)

    def blocks(self) -> Iterator[Block]:
        """The families that this system can give. Source: observability.md §1.1."""
        yield from self._of_the_library()
        limit = _address_space_max_bytes(self._self)
        if limit is not None:
            yield _gauge("process_virtual_memory_max_bytes", "Most virtual memory it may have, in bytes.", limit)
        octets = _network_octets(self._self)
        if octets is not None:
            received, sent = octets
            yield _counter("process_network_receive_bytes_total", "Bytes received over the network.", received)
            yield _counter("process_network_transmit_bytes_total", "Bytes sent over the network.", sent)

    def _of_the_library(self) -> list[Block]:
        try:
            metrics = list(self._library.collect())
        except (OSError, ValueError, LookupError, UnboundLocalError):
            # The library takes the shape of /proc for granted, which containers may cut short.
            return []
        return [
            Block(sample.name, metric.type, metric.documentation, [sample_line(sample.name, "", sample.value)])
            for metric in metrics
            for sample in metric.samples
        ]


def _gauge(name: str, words: str, value: float) -> Block:
    return Block(name, "gauge", words, [sample_line(name, "", value)])


def _counter(name: str, words: str, value: float) -> Block:
    return Block(name, "counter", words, [sample_line(name, "", value)])


def _address_space_max_bytes(process: Path) -> float | None:
    for line in _lines(process / "limits"):
        if line.startswith("Max address space"):
            soft = line.split()[3]
            return float(soft) if soft.isdecimal() else _UNLIMITED_BYTES
    return None


def _network_octets(process: Path) -> tuple[float, float] | None:
    """Bytes in and out of this network namespace, all processes in it together, as the original counts them."""
    rows = [line.split() for line in _lines(process / "net" / "netstat") if line.startswith("IpExt:")]
    if len(rows) != 2:
        return None
    figures = dict(zip(*rows, strict=False))
    received, sent = figures.get("InOctets", ""), figures.get("OutOctets", "")
    return (float(received), float(sent)) if received.isdecimal() and sent.isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
