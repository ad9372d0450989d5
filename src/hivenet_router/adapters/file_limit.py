"""How many connections may the process hold?

Each is a file descriptor, and the soft limit is often 1,024 where the hard one is far higher.
"""

import resource

import structlog

log = structlog.get_logger("router")

_ENOUGH = 65_536


def raise_file_limit() -> int:
    """Raise the soft limit as far as it may go, at most to what we can use; gives the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        log.warning("file_limit_kept", files=soft, why=str(error))
        return soft
    return wanted
