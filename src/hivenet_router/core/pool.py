"""Who serves one model, and in which order would they be tried?

Keeps the agents of a model in peer-ID order, and those with a free slot in the order of their loads. Each change moves
one agent by binary search, so that a choice among a thousand starts at the right end instead of looking at all of them.
Invariant: an agent is in the order of loads exactly when it has a free slot, and at the rank it was last filed under.
`Registry` keeps that true by filing an agent after each change to it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Set
from typing import Final

from hivenet_router.core.agent import Agent
from hivenet_router.core.changes import CapacityFreed
from hivenet_router.core.ids import ModelName, PeerId
from hivenet_router.core.ranking import RankedAgent, load_ratio


def _peer_of(agent: Agent) -> PeerId:
    return agent.peer


class ModelPool:
    """The agents of one model. Changed by `Registry` only."""

    __slots__ = (
        "_agents",
        "_by_rank",
        "_filed",
        "_routable",
        "_suspects",
        "freed",
        "model",
        "routable",
        "suspects",
        "with_free_slot",
    )

    def __init__(self, model: ModelName) -> None:
        self.model: Final = model
        self.freed: Final = CapacityFreed(model)
        """What is told when one of its agents has more free slots than before."""
        self._agents: list[Agent] = []
        self._by_rank: list[RankedAgent] = []
        self._filed: dict[PeerId, RankedAgent] = {}
        self._routable: set[PeerId] = set()
        self._suspects: set[PeerId] = set()
        self.routable: Final[Set[PeerId]] = self._routable
        """The agents that may be routed to, full ones included; a live view."""
        self.with_free_slot: Final[Set[PeerId]] = self._filed.keys()
        """The agents that can take a request now; a live view."""
        self.suspects: Final[Set[PeerId]] = self._suspects
        """The agents that failed too often in a row; a live view."""

    def __len__(self) -> int:
        return len(self._agents)

    def __iter__(self) -> Iterator[Agent]:
        """All registered agents in peer-ID order."""
        return iter(self._agents)

    def ranked(self) -> Iterator[RankedAgent]:
        """The agents with a free slot and their ranks, least loaded first, then by peer ID."""
        return iter(self._by_rank)

    def ranked_suspects(self) -> Iterator[RankedAgent]:
        """Those of `ranked` that are suspect, by peer ID."""
        return (self._filed[peer] for peer in sorted(self._suspects) if peer in self._filed)

    def capabilities(self) -> frozenset[str]:
        """What the model is served as, by any registered agent."""
        return frozenset(agent.metadata.capability for agent in self._agents)

    def add(self, agent: Agent) -> int:
        """Take in an agent of this model; its free slots come back."""
        insort(self._agents, agent, key=_peer_of)
        self.judge(agent)
        return self.file(agent)

    def discard(self, agent: Agent) -> None:
        """Let an agent go that was taken in before."""
        del self._agents[bisect_left(self._agents, agent.peer, key=_peer_of)]
        self._routable.discard(agent.peer)
        self._suspects.discard(agent.peer)
        self._unfile(agent)

    def judge(self, agent: Agent) -> None:
        """Note whether an agent is suspect, after any change to that."""
        if agent.outcomes.suspicion is None:
            self._suspects.discard(agent.peer)
        else:
            self._suspects.add(agent.peer)

    def file(self, agent: Agent) -> int:
        """Put an agent where its present state belongs, after any change to it; its free slots come back."""
        if agent.routable:
            self._routable.add(agent.peer)
        else:
            self._routable.discard(agent.peer)
        return self.rank(agent)

    def rank(self, agent: Agent) -> int:
        """As `file`, after a change that cannot have made the agent routable or unroutable."""
        peer, by_rank = agent.peer, self._by_rank
        agent.filed_free_slots = free_slots = agent.free_slots
        if free_slots == 0:
            self._unfile(agent)
            return 0
        ratio, filed = load_ratio(agent), self._filed.get(peer)
        if filed is not None:
            if filed[0] == ratio:
                return free_slots
            del by_rank[bisect_left(by_rank, filed)]
        # Entries differ by peer ID at least, so two agents themselves are never compared.
        self._filed[peer] = filed = (ratio, peer, agent)
        insort(by_rank, filed)
        return free_slots

    def _unfile(self, agent: Agent) -> None:
        filed = self._filed.pop(agent.peer, None)
        if filed is not None:
            del self._by_rank[bisect_left(self._by_rank, filed)]
