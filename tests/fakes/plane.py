"""A data plane that moves no bytes: it remembers what it was asked, and its exchanges follow scripts."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from tests.fakes.exchange import Answers, FakeArrived, FakeExchange, Script

from hivenet_router.ports import (
    CannotListen,
    DataPlane,
    Destination,
    DoorRules,
    Fields,
    ForwardPlan,
    HttpServer,
    PlaneBroken,
    PlaneListener,
    Reply,
    RequestFailed,
)

PEER_ID: Final = "12D3KooWRouter"
_FIRST_PORT: Final = 20_000


class FakePlane(DataPlane):
    """What `adapters/plane.py` is to the rooms, without a socket.

    `scripts` holds what each destination does, one entry an attempt; the last one stays in force.
    """

    def __init__(
        self,
        listener: PlaneListener | None = None,
        peer_rules: DoorRules | None = None,
        *,
        taken_addresses: set[str] | None = None,
    ) -> None:
        self._listener = listener
        self._exchanges: list[FakeExchange] = []
        self._ports = iter(range(_FIRST_PORT, _FIRST_PORT + 100))
        self.peer_rules = peer_rules
        self.scripts: dict[Destination, list[Script]] = {}
        self.taken_addresses = set() if taken_addresses is None else taken_addresses
        """Hosts and multiaddrs that cannot be bound."""
        self.events: list[str] = []
        """What was asked of it, in order."""
        self.eager = False
        self.broken = asyncio.Event()

    def arrive(self, arrived: FakeArrived, *, respond_takes_s: float = 0.0) -> FakeExchange:
        """A request comes in, and is told to the listener if there is one."""
        exchange = FakeExchange(arrived, self._script_for, respond_takes_s=respond_takes_s)
        self._exchanges.append(exchange)
        if self._listener is not None:
            self._listener.arrival(exchange)
        return exchange

    @property
    def peer_id(self) -> str:
        """See `ports.DataPlane`."""
        return PEER_ID

    async def listen_http(self, host: str, port: int, rules: DoorRules) -> Sequence[tuple[str, int]]:
        """See `ports.DataPlane`."""
        self.events.append(f"listen {rules.name}")
        if host in self.taken_addresses:
            raise CannotListen(f"cannot listen for {rules.name} on {host}:{port}")
        return [(host, port or next(self._ports))]

    async def listen_for_peers(self, host: str, port: int) -> Sequence[str]:
        """See `ports.DataPlane`."""
        self.events.append("listen peers")
        if host in self.taken_addresses:
            raise CannotListen(f"cannot listen for peers on {host}")
        return [f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port or next(self._ports)}"]

    async def dial(self, peer_id: str, addresses: Sequence[str], *, within_s: float) -> None:
        """See `ports.DataPlane`."""
        raise RequestFailed("nobody can be dialed here")

    async def request(
        self, to: Destination, method: str, path: str, *, host: str, fields: Fields, body: bytes, within_s: float
    ) -> Reply:
        """See `ports.DataPlane`."""
        raise RequestFailed("nobody answers here")

    def times_heard(self, server: HttpServer) -> int:
        """See `ports.DataPlane`."""
        return 0

    def add_standing(self, prefix: bytes, to: Destination, plan: ForwardPlan, *, cut: int, within_s: float) -> None:
        """See `ports.DataPlane`."""
        self.events.append(f"standing {prefix.decode()}")

    def hear_only(self, peers: Collection[str]) -> None:
        """See `ports.DataPlane`."""
        self.events.append(f"hear only {', '.join(peers)}")

    async def until_broken(self) -> None:
        """See `ports.DataPlane`."""
        await self.broken.wait()
        raise PlaneBroken("a part of it panicked")

    def welcome(self, peer_id: str) -> None:
        """See `ports.DataPlane`."""
        self.events.append(f"welcome {peer_id}")

    def live(self) -> int:
        """See `ports.DataPlane`."""
        return len(self.exchanges())

    def exchanges(self) -> Sequence[FakeExchange]:
        """See `ports.DataPlane`."""
        return [exchange for exchange in self._exchanges if exchange.finished is None]

    def set_eager(self, eager: bool) -> None:
        """See `ports.DataPlane`."""
        self.eager = eager

    def close_peer(self, peer_id: str) -> None:
        """See `ports.DataPlane`."""
        self.events.append(f"close peer {peer_id}")

    def forget(self, peer_id: str) -> None:
        """See `ports.DataPlane`."""
        self.events.append(f"forget {peer_id}")

    def close_doors(self) -> None:
        """See `ports.DataPlane`."""
        self.events.append("close doors")

    def close(self) -> None:
        """See `ports.DataPlane`."""
        self.events.append("close")

    def _script_for(self, to: Destination) -> Script:
        scripts = self.scripts.get(to, [Answers()])
        return scripts.pop(0) if len(scripts) > 1 else scripts[0]
