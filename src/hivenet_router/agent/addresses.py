"""Where can the router be dialled, given the multiaddrs it told, and why may that not work?

The data plane dials IP addresses only, so names are resolved here. Invariant: of what a router tells at most 16
addresses are looked at. Dialling and the wording of failures are `connect.py`'s.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

from hivenet_router.agent.world import Resolve

ADDRESSES_MAX: Final = 16
_IP_VERSION_OF: Final = {"dns": 0, "dns4": 4, "dns6": 6}


class NoneResolves(Exception):
    """Every address is a name, and none of them has an IP address; the text names them."""


async def with_ips(addresses: Sequence[str], resolve: Resolve) -> tuple[str, ...]:
    """The multiaddrs with each name replaced by its IP addresses, at most 16; others stay as they are.

    Raises: NoneResolves.
    Source: wire.md §4.2 (what `--p2p-announce-addr` may hold).
    """
    found: list[str] = []
    unknown: list[str] = []
    for address in addresses[:ADDRESSES_MAX]:
        parts = address.split("/")
        version = _IP_VERSION_OF.get(parts[1]) if len(parts) > 2 else None
        if version is None:
            found.append(address)
            continue
        try:
            ips = await resolve(parts[2], version)
        except OSError as error:
            unknown.append(f"{parts[2]} ({error.strerror or error})")
            continue
        found += ["/".join(("", f"ip{ipaddress.ip_address(ip).version}", ip, *parts[3:])) for ip in ips]
    if not found and unknown:
        raise NoneResolves(f"the name the router gave does not resolve: {', '.join(unknown)}")
    return tuple(dict.fromkeys(found))[:ADDRESSES_MAX]


def are_all_loopback(addresses: Sequence[str]) -> bool:
    """Whether every one of these multiaddrs can be dialled only on the machine it belongs to."""
    ips = [parts[2] for parts in (address.split("/") for address in addresses) if len(parts) > 2]
    return bool(ips) and all(_is_loopback(ip) for ip in ips)


async def is_here(host: str, resolve: Resolve) -> bool:
    """Whether a host of ours to dial is this machine, as far as its name tells."""
    if _is_loopback(host):
        return True
    try:
        ips = await resolve(host, 0)
    except OSError:
        return False
    return bool(ips) and all(_is_loopback(ip) for ip in ips)


def _is_loopback(ip: str) -> bool:
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return False
