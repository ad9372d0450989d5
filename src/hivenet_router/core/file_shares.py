"""How are the files that a process may open divided among those who connect to it?

Each connection takes one. Invariant: whatever clients do, agents can link and authenticate and the metrics can be read,
as the shares together never exceed what there is.
"""

from dataclasses import dataclass
from typing import Final

FILES_MIN: Final = 1024
"""With fewer a router does not start: agents, metrics and 100 clients need so many."""
CLIENTS_MAX: Final = 16_384
LINKS_MAX: Final = 4_096
BOOTSTRAP_MAX: Final = 1_024
METRICS_MAX: Final = 64
_OWN: Final = 160
"""Sockets that listen, files of the interpreter, and connections that are accepted only to be turned away."""
_OF_AGENT: Final = 128
"""What an agent needs besides one connection to its engine for each request: links, sessions, probes, files."""
_BOOTSTRAP_PART: Final = 8
_ADDRESS_PARTS: Final = (3, 4)


class TooFewFiles(Exception):
    """The process may open fewer files than it needs; the text says how many, and what to do."""


@dataclass(frozen=True, slots=True)
class FileShares:
    """How many connections of each kind a router may have at once."""

    clients: int
    links: int
    bootstrap: int
    metrics: int = METRICS_MAX


def router_shares(files_max: int) -> FileShares:
    """The shares of a router that may open so many files. Raises: TooFewFiles.

    Source: field-cases.md, Part S; http-api.md §1.4.
    """
    if files_max < FILES_MIN:
        raise TooFewFiles(_too_few(files_max, FILES_MIN, "a router"))
    bootstrap = min(BOOTSTRAP_MAX, (files_max - _OWN - METRICS_MAX) // _BOOTSTRAP_PART)
    rest = files_max - _OWN - METRICS_MAX - bootstrap
    links = min(LINKS_MAX, rest // 2)
    return FileShares(clients=min(CLIENTS_MAX, rest - links), links=links, bootstrap=bootstrap)


def check_agent_files(files_max: int, *, capacity: int) -> None:
    """Whether an agent that serves so many requests at once may open enough files. Raises: TooFewFiles."""
    if files_max < _OF_AGENT + capacity:
        raise TooFewFiles(_too_few(files_max, _OF_AGENT + capacity, f"an agent with --capacity {capacity}"))


def of_one_address(connections_max: int) -> int:
    """How many of them one address may have: so many that clients behind one proxy are not hurt, and never all."""
    share, parts = _ADDRESS_PARTS
    return max(1, connections_max * share // parts)


def _too_few(files_max: int, needed: int, who: str) -> str:
    return (
        f"this process may open {files_max} files, and {who} needs {needed} at least: raise the limit "
        f"(ulimit -n 65536, LimitNOFILE=65536 in a systemd unit, --ulimit nofile=65536 for a container)"
    )
