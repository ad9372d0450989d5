"""Routers and an engine as an agent meets them: scripted, on a virtual clock, and writing down all they hear."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hivenet_router.agent.world import SessionFailed
from hivenet_router.names.paths import HEARTBEAT, REGISTER, ROUTING_SIGNALS
from hivenet_router.ports import Reply, RequestFailed
from hivenet_router.wire.agent_protocol import Heartbeat, Registration, decode_heartbeat, decode_registration
from hivenet_router.wire.auth_messages import AgentMetadata, AuthOutcome, LibP2PInfo, RouterConfig
from hivenet_router.wire.identity import identity_from_seed

OK = Reply(200, b"")


def peer_id(number: int) -> str:
    """A peer ID, the same for the same number."""
    return identity_from_seed(bytes([number]) * 32).peer_id


def now() -> float:
    """Seconds on the virtual clock."""
    return asyncio.get_running_loop().time()


async def for_ever() -> None:
    """What a peer that never answers does."""
    await asyncio.Event().wait()


@dataclass
class FakeRouter:
    """One router. What it does is set by its fields at any time; what it heard stands in its lists, with times."""

    peer_id: str
    addresses: tuple[str, ...] = ("/ip4/192.0.2.1/tcp/9000",)
    heartbeat_interval_s: int = 5
    session_ttl_s: int = 3600
    refuses: SessionFailed | None = None
    refuses_dial: str = ""
    hangs_at: str = ""
    """`authenticate`, `dial`, or the path of a message."""
    cannot_post: str = ""
    answers: dict[str, Reply] = field(default_factory=dict)
    asked_at: list[float] = field(default_factory=list)
    metadata: list[AgentMetadata] = field(default_factory=list)
    dials: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    registrations: list[tuple[float, Registration]] = field(default_factory=list)
    heartbeats: list[tuple[float, Heartbeat]] = field(default_factory=list)
    signals: list[tuple[float, bytes]] = field(default_factory=list)
    closes: int = 0

    async def authenticate(self, metadata: AgentMetadata) -> AuthOutcome:
        self.asked_at.append(now())
        self.metadata.append(metadata)
        if self.hangs_at == "authenticate":
            await for_ever()
        if self.refuses is not None:
            raise self.refuses
        return AuthOutcome(
            success=True,
            session_token=f"token-{len(self.asked_at)}",
            libp2p_info=LibP2PInfo(self.peer_id, self.addresses),
            config=RouterConfig(heartbeat_interval_s=self.heartbeat_interval_s, session_ttl_s=self.session_ttl_s),
        )

    async def linked(self, addresses: Sequence[str]) -> None:
        self.dials.append((now(), tuple(addresses)))
        if self.hangs_at == "dial":
            await for_ever()
        if self.refuses_dial:
            raise RequestFailed(self.refuses_dial)

    async def hears(self, path: str, body: bytes) -> Reply:
        match path:
            case _ if path == REGISTER:
                self.registrations.append((now(), decode_registration(body)))
            case _ if path == HEARTBEAT:
                self.heartbeats.append((now(), decode_heartbeat(body)))
            case _ if path == ROUTING_SIGNALS:
                self.signals.append((now(), body))
        if self.hangs_at == path:
            await for_ever()
        if self.cannot_post:
            raise RequestFailed(self.cannot_post)
        return self.answers.get(path, OK)

    @property
    def beat_times(self) -> list[float]:
        return [at for at, _ in self.heartbeats]


class FakeNetwork:
    """Routers by the address (`host:port`) that leads to them, and names with their IP addresses."""

    def __init__(self, routers: dict[str, FakeRouter], names: Mapping[str, Sequence[str]] | None = None) -> None:
        self.routers = routers
        self.names = names or {}

    async def admit(self, target: str, metadata: AgentMetadata) -> AuthOutcome:
        router = self.routers.get(target)
        if router is None:
            raise SessionFailed(f"router {target} cannot be reached")
        return await router.authenticate(metadata)

    async def resolve(self, host: str, version: int) -> Sequence[str]:
        ips = [ip for ip in self.names.get(host, ()) if version in (0, 6 if ":" in ip else 4)]
        if not ips:
            raise OSError("no such name")
        return ips

    async def dial(self, peer_id: str, addresses: Sequence[str], *, within_s: float) -> None:
        await self._of(peer_id).linked(addresses)

    async def post(self, peer_id: str, path: str, body: bytes, *, within_s: float) -> Reply:
        return await self._of(peer_id).hears(path, body)

    def close(self, peer_id: str) -> None:
        self._of(peer_id).closes += 1

    def _of(self, peer_id: str) -> FakeRouter:
        return next(router for router in self.routers.values() if router.peer_id == peer_id)


class FakeEngine:
    """An engine: ready or not, with models and a metrics page; `asked` lists the paths it was asked for, with times."""

    def __init__(self, *models: str) -> None:
        self.models = list(models) or ["m"]
        self.status = 200
        self.ready_at = 0.0
        self.hangs = False
        self.answers_after_s = 0.0
        self.times_heard = 0
        self.page = b""
        self.page_status = 200
        self.asking = 0
        self.asking_max = 0
        self.asked: list[tuple[float, str]] = []

    async def get(self, path: str) -> Reply:
        self.asked.append((now(), path))
        self.asking += 1
        self.asking_max = max(self.asking, self.asking_max)
        try:
            return await self._answer(path)
        finally:
            self.asking -= 1

    async def _answer(self, path: str) -> Reply:
        if self.hangs:
            await for_ever()
        if self.answers_after_s:
            await asyncio.sleep(self.answers_after_s)
        if now() < self.ready_at:
            raise RequestFailed("connection refused")
        if path == "/metrics":
            return Reply(self.page_status, self.page)
        if path == "/v1/models":
            return Reply(200, msgspec.json.encode({"data": [{"id": model} for model in self.models]}))
        return Reply(self.status, b"")

    def times_of(self, path: str) -> list[float]:
        return [at for at, asked in self.asked if asked == path]
