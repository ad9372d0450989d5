"""Which addresses and URLs can be listened on, dialled or announced?

Invariant: what is accepted here can be handed to the network layer as it is: hosts are IP literals or DNS names,
ports are numbers. Whether anybody answers there is found out when it is used.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from hivenet_router.config.values import UnusableError, read_words

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

PORT_MAX: Final = 65535
_HOST_CHARACTERS_MAX: Final = 253
_LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_MULTIADDR_HOSTS: Final = ("ip4", "ip6", "dns", "dns4", "dns6")
_SERVICE_LINK: Final = "tcp://"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a TCP listener opens. An empty host means all interfaces, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return _join(self.host, self.port)


@dataclass(frozen=True, slots=True)
class HostPort:
    """What can be dialled: a DNS name or IP literal (IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return _join(self.host, self.port)


@dataclass(frozen=True, slots=True)
class HostPorts:
    """A comma list of what can be dialled, in the order written."""

    items: tuple[HostPort, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.items))


@dataclass(frozen=True, slots=True)
class Networks:
    """A comma list of IP networks; a single address is a network of one."""

    items: tuple[IpNetwork, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.items))


@dataclass(frozen=True, slots=True)
class BackendUrl:
    """Base URL of a backend. `path_prefix` is empty or begins with `/` and does not end with one."""

    scheme: str
    host: str
    port: int
    path_prefix: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{_join(self.host, self.port)}{self.path_prefix}"


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_listen_address(text: str) -> ListenAddress:
    """A listener's `host:port`, as `:8080`, `127.0.0.1:8080` or `[::1]:8080`.

    Raises: UnusableError.
    Source: configuration.md §1.3.
    """
    rule = "must be a listen address such as :8080, 127.0.0.1:8080 or [::1]:8080"
    if text.isdigit():
        raise UnusableError(f"{rule}; a port alone is written :{text}")
    if text.startswith(_SERVICE_LINK):
        raise UnusableError(
            f"{rule}; this looks like a Kubernetes service link: set enableServiceLinks: false or rename the Service"
        )
    host, port = _split_host_port(text, rule, port_min=0)
    return ListenAddress(host, port)


def read_ip(text: str) -> str:
    """An IPv4 or IPv6 literal, IPv6 without brackets. Raises: UnusableError. Source: configuration.md §13 item 6."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise UnusableError("must be an IP address such as 127.0.0.1, 0.0.0.0 or ::") from None


def read_host_port(text: str) -> HostPort:
    """A `host:port` that can be dialled. Raises: UnusableError."""
    rule = "must be host:port with a port from 1 to 65535, such as router-0:50051"
    host, port = _split_host_port(text, rule, port_min=1)
    if not host:
        raise UnusableError(rule)
    return HostPort(host, port)


def read_host_ports(text: str) -> HostPorts:
    """A comma list of `host:port`; items are trimmed, empty ones dropped.

    Raises: UnusableError, also for commas with nothing between them: a list that was to be filled in.
    """
    items = dict.fromkeys(read_host_port(item) for item in read_words(text).items)
    if text.strip() and not items:
        raise UnusableError("must name at least one host:port, such as router-0:50051")
    return HostPorts(tuple(items))


def read_advertised(text: str) -> HostPort:
    """A `host:port` other machines can dial: not the address that means all interfaces.

    Raises: UnusableError.
    Source: configuration.md §3.2.
    """
    address = read_host_port(text)
    if is_ip(address.host) and ipaddress.ip_address(address.host).is_unspecified:
        raise UnusableError("must name this router as agents can dial it, not the address of all interfaces")
    return address


def read_networks(text: str) -> Networks:
    """A comma list of addresses and networks, as `10.0.0.0/8,::1`. Raises: UnusableError."""
    networks: list[IpNetwork] = []
    for item in read_words(text).items:
        try:
            networks.append(ipaddress.ip_network(item))
        except ValueError as error:
            hint = " (host bits are set)" if "host bits" in str(error) else ""
            raise UnusableError(
                f"must be a comma list of IP addresses and networks such as 10.0.0.0/8; {item!r} is none{hint}"
            ) from None
    return Networks(tuple(networks))


def read_announce_multiaddr(text: str) -> str:
    """A multiaddr agents dial over TCP, without the peer ID, which is appended when it is handed out.

    Raises: UnusableError.
    Source: configuration.md §1.3.
    """
    rule = "must be a multiaddr such as /ip4/203.0.113.7/tcp/9000 or /dns4/router.example.com/tcp/9000"
    parts = text.rstrip("/").split("/")
    if "p2p" in parts or "ipfs" in parts:
        raise UnusableError(f"{rule}, without /p2p/…: the peer ID is appended")
    if len(parts) != 5 or parts[0] or parts[1] not in _MULTIADDR_HOSTS or parts[3] != "tcp":
        raise UnusableError(rule)
    protocol, host = parts[1], parts[2]
    version = {"ip4": 4, "ip6": 6}.get(protocol)
    if version is None:
        usable = is_host(host) and not is_ip(host)
    else:
        usable = is_ip(host) and ipaddress.ip_address(host).version == version
    if not usable:
        raise UnusableError(rule)
    _read_port(parts[4], rule, port_min=1)
    return "/".join(parts)


def read_backend_url(text: str) -> BackendUrl:
    """The base URL of a backend; a trailing `/`, then a trailing `/v1`, is dropped because paths are appended.

    Raises: UnusableError.
    Source: configuration.md §10, §13 item 1.
    """
    rule = "must be the base URL of the backend, such as http://localhost:8000"
    parts = _split_url(text, rule)
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise UnusableError(f"{rule}, without a query or fragment")
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):
        path = path.removesuffix("/v1").rstrip("/")
    default_port = 443 if parts.scheme == "https" else 80
    return BackendUrl(parts.scheme, parts.hostname or "", parts.port or default_port, path)


def read_url(text: str) -> str:
    """An absolute `http` or `https` URL, kept as written. Raises: UnusableError."""
    _split_url(text, "must be an absolute URL such as http://localhost:8000/healthz")
    return text


def read_otlp_endpoint(text: str) -> str:
    """`host:port` of a collector, or the same as an `http` or `https` URL; kept as written. Raises: UnusableError."""
    if "://" in text:
        _split_url(text, "must be host:port or a URL such as http://localhost:4317")
    else:
        read_host_port(text)
    return text


def is_ip(text: str) -> bool:
    """Whether the text is an IPv4 or IPv6 literal."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host to listen on is certain to be reached from this machine only; an empty one is every interface."""
    return ipaddress.ip_address(host).is_loopback if is_ip(host) else host.lower() == "localhost"


def is_host(text: str) -> bool:
    """Whether the text is an IP literal or has the shape of a DNS name (a final dot and `_` allowed)."""
    if is_ip(text):
        return True
    labels = text.removesuffix(".").split(".")
    if len(text) > _HOST_CHARACTERS_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        return False
    return not labels[-1].isdigit()


def _split_url(text: str, rule: str) -> SplitResult:
    if not _PRINTABLE.fullmatch(text) or "\\" in text:
        raise UnusableError(rule)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UnusableError(rule) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_host(parts.hostname) or port == 0:
        raise UnusableError(rule)
    if parts.username is not None or parts.password is not None:
        raise UnusableError(f"{rule}, without user name or password")
    return parts


def _split_host_port(text: str, rule: str, *, port_min: int) -> tuple[str, int]:
    host, colon, port_text = text.rpartition(":")
    if not colon:
        raise UnusableError(rule)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise UnusableError(rule)
    elif ":" in host:
        raise UnusableError(f"{rule}; an IPv6 address is written in brackets")
    if host and not is_host(host):
        raise UnusableError(rule)
    return host, _read_port(port_text, rule, port_min=port_min)


def _read_port(text: str, rule: str, *, port_min: int) -> int:
    if not _PORT.fullmatch(text) or not port_min <= int(text) <= PORT_MAX:
        raise UnusableError(rule)
    return int(text)
