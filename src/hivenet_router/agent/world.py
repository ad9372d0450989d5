"""What does the agent need from the world outside, and in which words?

Protocols and plain values only, beside `ports`, which both programs share. `links.py` fulfils them with the data
plane, the tests with fakes. A `dial`, `post` or `get` that comes to nothing raises `ports.RequestFailed`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hivenet_router.ports import Reply
from hivenet_router.wire.auth_messages import AgentMetadata, AuthOutcome, RouterConfig
from hivenet_router.wire.identity import PeerIdInvalid, parse_peer_id


class SessionFailed(Exception):
    """A session with a router could not begin or go on: why, and what a person should look at, if anything."""

    def __init__(self, why: str, check: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.check = check


class Links(Protocol):
    """The links to routers, each known by its router's peer ID."""

    async def dial(self, peer_id: str, addresses: Sequence[str], *, within_s: float) -> None:
        """Connect; also beside a link that may have died unseen. Raises: RequestFailed."""
        ...

    async def post(self, peer_id: str, path: str, body: bytes, *, within_s: float) -> Reply:
        """Send a message to the router. Raises: RequestFailed."""
        ...

    def close(self, peer_id: str) -> None:
        """End the link, if there is one."""
        ...


class Backend(Protocol):
    """The engine as a plain HTTP server."""

    async def get(self, path: str) -> Reply:
        """The answer, whatever its status. Raises: RequestFailed."""
        ...


Admit = Callable[[str, AgentMetadata], Awaitable[AuthOutcome]]
"""Authenticates at a router (`host:port`) with this metadata. Raises: SessionFailed."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host name; of version 4 or 6, or of both for 0. Raises: OSError."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a router granted for one session: the token, where to connect, and when to speak, in seconds."""

    token: str = field(repr=False)
    peer_id: str
    addresses: tuple[str, ...]
    heartbeat_interval_s: float
    renew_after_s: float


def terms_of(outcome: AuthOutcome, renew_before_s: float) -> Terms:
    """The terms in a successful outcome.

    Raises: SessionFailed when it lacks what a session needs.
    """
    info = outcome.libp2p_info
    if not outcome.success or info is None:
        raise SessionFailed("the router's answer does not say where to connect")
    try:
        # One spelling, since the data plane names peers in it.
        peer_id = parse_peer_id(info.peer_id)
    except PeerIdInvalid as error:
        raise SessionFailed(f"the router's answer has no usable peer ID: {error}") from error
    config = outcome.config or RouterConfig()
    return Terms(
        outcome.session_token,
        peer_id,
        info.addresses,
        float(config.effective_heartbeat_interval_s),
        config.effective_session_ttl_s - renew_before_s,
    )
