"""On which addresses does a listener open, by the host that an operator wrote?

The one rule for every port: an empty host and `::` are all interfaces in both families, an IP literal is itself, and a
name is all of its addresses. What this machine does not have is left out and told, as long as something remains.
Invariant: a name is looked up off the loop, so nothing waits for a resolver.
"""

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Final

import structlog

log = structlog.get_logger("router")

_EVERY: Final = ("0.0.0.0", "::")
_ABSENT: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


async def addresses_to_bind(host: str) -> Sequence[str]:
    """The IP addresses to listen on, each of one family only; never none.

    Raises: OSError where the name means nothing, or no address of it is one of this machine.
    """
    is_every = host in ("", "::")
    found = _EVERY if is_every else await _looked_up(host)
    absent = {address: error for address in found if (error := _why_absent(address)) is not None}
    usable = [address for address in found if address not in absent]
    if not usable:
        raise next(iter(absent.values()))
    for address, error in absent.items():
        say = log.debug if is_every else log.warning
        say("address_not_bound", host=host, address=address, why=error.strerror)
    return usable


def why_not(error: Exception) -> str:
    """What the system said of a listener that cannot open, and what to do."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, socket.gaierror):
        return f"{why}; write an IP address, or a name that this machine can look up"
    return f"{why}; choose another address or end the program that uses it"


async def _looked_up(host: str) -> Sequence[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"no host name: {error}") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _why_absent(address: str) -> OSError | None:
    if "%" in address:
        return OSError(errno.EADDRNOTAVAIL, "an address that holds on one interface only")
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as tried:
            tried.bind((address, 0))
    except OSError as error:
        # Anything else is met again, and told, where the port is bound.
        return error if error.errno in _ABSENT else None
    return None
