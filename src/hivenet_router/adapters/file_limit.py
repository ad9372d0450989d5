"""How many connections may the process hold, and what does it need when it may hold no more?

Each is a file descriptor, and the soft limit is often 1,024 where the hard one is far higher. Invariant: once the limit
is raised, nothing that serves a request makes Python read a file of its own.
"""

import codecs
import resource
from datetime import UTC, datetime
from typing import Final

import structlog

log = structlog.get_logger("main")

_ENOUGH: Final = (65_536, 10_240)
"""What we can use, and what a system that refuses this still gives (macOS, whose hard limit is no limit)."""
_READ_AT_FIRST_USE: Final = ("utf-16-le", "idna", "latin-1", "ascii")


def raise_file_limit() -> int:
    """Raise the soft limit as far as it may go, at most to what we can use; gives the limit that holds now,
    or what we can use where there is none."""
    _read_ahead()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return max(_ENOUGH)
    why = ""
    for enough in _ENOUGH:
        wanted = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        if soft >= wanted:
            return soft
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            why = str(error)
        else:
            return wanted
    log.warning("file_limit_kept", files=soft, why=why)
    return soft


def _read_ahead() -> None:
    """Have Python read the modules that it reads at first use: without a descriptor left that use would fail."""
    for name in _READ_AT_FIRST_USE:
        codecs.lookup(name)
    datetime.strptime("1970", "%Y").replace(tzinfo=UTC)
