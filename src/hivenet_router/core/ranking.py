"""Which of several usable agents comes first?

The one with the smallest load for its capacity, then the smaller peer ID. Three kinds come after others: among equal
loads, an agent that failed in the last ten seconds; whatever the loads, one whose last word was a failure, in these ten
seconds and while as many requests wait for its first byte as failures are left until it is suspect; behind all, the
suspects. Agents come in as the order of their loads and go out in the order to be tried. Which agents are usable at
all, and which suspect is due to be tried, is asked in `policy.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId
from hivenet_router.core.outcomes import RECENT_FAILURE_S

RankedAgent: TypeAlias = tuple[float, PeerId, Agent]
"""An agent behind its load ratio and its peer ID, so that plain comparison gives the order of loads."""


def load_ratio(agent: Agent) -> float:
    """Requests on the agent over its capacity: the larger of its own report and our count, streams included.

    May exceed 1, since a stream that gave its slot back still counts.

    Source: signals.md §4; several-routers.md S-108; decisions.md 2.
    """
    ours, reported = agent.active_slots + agent.running_streams, agent.load.inflight_total
    return (ours if ours > reported else reported) / agent.metadata.capacity


def least_loaded(ranked: Iterable[RankedAgent], *, now: Monotonic) -> Iterator[Agent]:
    """The agents in the order to be tried. Lazy: the first costs little however many there are.

    Source: signals.md §4; decisions.md 2 and 36.
    """
    calm_since = now - RECENT_FAILURE_S
    ratio_of_run = -1.0
    failed_recently: list[Agent] = []
    failing: list[Agent] = []
    suspects: list[tuple[float, Monotonic, PeerId, Agent]] = []
    for ratio, peer, agent in ranked:
        if ratio != ratio_of_run:
            yield from failed_recently
            failed_recently.clear()
            ratio_of_run = ratio
        outcomes = agent.outcomes
        failed_at = outcomes.last_failure_at
        if failed_at is None:
            yield agent
        elif outcomes.suspicion is not None:
            # The longest without a failure first, so that one of them which has recovered is found.
            suspects.append((ratio, failed_at, peer, agent))
        elif outcomes.consecutive_failures and (
            failed_at > calm_since or agent.active_slots >= outcomes.unanswered_max
        ):
            failing.append(agent)
        elif failed_at > calm_since:
            failed_recently.append(agent)
        else:
            yield agent
    yield from failed_recently
    yield from failing
    yield from (agent for *_, agent in sorted(suspects))


class Strategy(Protocol):
    """Puts usable agents, given in the order of their loads, into the order to be tried."""

    def __call__(self, ranked: Iterable[RankedAgent], /, *, now: Monotonic) -> Iterator[Agent]:
        """The agents in the order to be tried."""
        ...


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType({"least-loaded": least_loaded})
"""Every strategy a policy may name."""
