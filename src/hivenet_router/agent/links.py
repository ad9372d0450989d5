"""How do messages reach routers, and probes the backend? Over the data plane.

Invariant: an address of a router that the data plane cannot take comes back as `RequestFailed`, never as another error,
so a strange answer costs one session and not the process. When to speak is left to others.
"""

from collections.abc import Sequence
from typing import Final

from hivenet_router.names import headers
from hivenet_router.names.paths import ROUTER_MOUNT
from hivenet_router.ports import DataPlane, Fields, HttpServer, Reply, RequestFailed

_ROUTER_HOST: Final = "router"
_MESSAGE_FIELDS: Final = [(headers.CONTENT_TYPE.encode(), b"application/json")]
_GRACE_S: Final = 5.0
"""A question is given up so long after its asker has: it ends a request that nobody waits for any more."""


class PlaneLinks:
    """Links to routers; fulfils `world.Links`."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    async def dial(self, peer_id: str, addresses: Sequence[str], *, within_s: float) -> None:
        """Connect to the router. Raises: RequestFailed."""
        try:
            await self._plane.dial(peer_id, addresses, within_s=within_s)
        except ValueError as error:
            raise RequestFailed(f"the router told an address that cannot be used: {error}") from error

    async def post(self, peer_id: str, path: str, body: bytes, *, within_s: float) -> Reply:
        """Send a message to the router. Raises: RequestFailed. Source: wire.md §6.1, §7."""
        return await self._plane.request(
            peer_id,
            "POST",
            ROUTER_MOUNT + path,
            host=_ROUTER_HOST,
            fields=_MESSAGE_FIELDS,
            body=body,
            within_s=within_s,
        )

    def close(self, peer_id: str) -> None:
        """End the link, if there is one."""
        self._plane.close_peer(peer_id)
        self._plane.forget(peer_id)


class PlaneBackend:
    """The backend, asked over its own connections; fulfils `world.Backend`. `prefix` goes before every path, `fields`
    with every question. Whoever asks waits for `within_s` itself."""

    def __init__(
        self, plane: DataPlane, server: HttpServer, *, host: str, prefix: str, fields: Fields, within_s: float
    ) -> None:
        self._plane = plane
        self._server = server
        self._host = host
        self._prefix = prefix
        self._fields = fields
        self._within_s = within_s + _GRACE_S

    async def get(self, path: str) -> Reply:
        """The answer, whatever its status. Raises: RequestFailed."""
        return await self._plane.request(
            self._server,
            "GET",
            self._prefix + path,
            host=self._host,
            fields=self._fields,
            body=b"",
            within_s=self._within_s,
        )
