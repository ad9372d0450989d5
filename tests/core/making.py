"""Short ways to make what the tests of core/ need: peers, metadata, agents, a registry that writes down its changes."""

from hivenet_router.core.agent import Agent, Load, Report
from hivenet_router.core.changes import Change
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.registry import Registry
from hivenet_router.wire.auth_messages import AgentMetadata

MODEL = ModelName("m")
OTHER_MODEL = ModelName("n")
A, B, C = PeerId("12D3KooWA"), PeerId("12D3KooWB"), PeerId("12D3KooWC")
START = Monotonic(1000.0)


def at(seconds: float) -> Monotonic:
    """A moment so many seconds after the tests begin."""
    return Monotonic(START + seconds)


def described(
    capacity: int = 10,
    *,
    model: ModelName = MODEL,
    capability: str = "llm",
    region: str = "EU-France",
    engine: str = "vllm",
    tags: tuple[str, ...] = (),
) -> AgentMetadata:
    """An agent's metadata as it stands after a good authentication."""
    return AgentMetadata(
        model=model,
        capacity=capacity,
        version="1.0",
        region=region,
        engine=engine,
        organization="ml-team",
        machine="gpu-1",
        tags=tags,
        capability=capability,
    )


class Book:
    """A registry whose changes are written down in order."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.registry = Registry(self.changes.append)

    def join(
        self, peer: PeerId, metadata: AgentMetadata | None = None, *, active: int = 0, inflight_total: int = 0
    ) -> Agent:
        """Link and register an agent, take some of its slots, have it report a load."""
        self.registry.link_up(peer)
        agent = self.registry.register(peer, metadata or described(), now=START).agent
        for _ in range(active):
            assert self.registry.take_slot(agent) is not None
        if inflight_total:
            self.registry.signals(peer, report=Report(load=Load(inflight_total=inflight_total)), now=START)
        return agent

    def news(self) -> list[Change]:
        """What changed since the last call."""
        news = self.changes.copy()
        self.changes.clear()
        return news
