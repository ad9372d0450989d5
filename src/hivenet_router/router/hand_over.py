"""Whom does an agent that says nothing keep waiting, and when is another one asked instead?

Hears of each attempt's beginning, its first byte and its end, and gives up attempts at an agent that hangs while
another one has room, so that the walk places them anew. Invariant: whoever was sent is taken out again when its attempt
ends, and as long as somebody waits for an agent a timer looks at it when the first one is due. When an agent hangs is
decided in `core/unanswered.py`.
Source: decisions.md 36.
"""

import asyncio
from typing import Final

import structlog

from hivenet_router.core.agent import Agent
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import PeerId
from hivenet_router.core.unanswered import Unanswered
from hivenet_router.ports import Clock
from hivenet_router.router.place import Placed, PlacingRoom
from hivenet_router.router.stages import Request

log = structlog.get_logger("policy")

_LOOK_AGAIN_S: Final = 0.5
"""How soon an agent is looked at again while somebody is overdue who cannot be helped yet."""


class Sent:
    """A request at an agent. `is_given_up`: another one shall take it over."""

    __slots__ = ("deadline", "is_given_up", "placed", "request", "since")

    def __init__(self, request: Request, placed: Placed, since: Monotonic) -> None:
        self.request: Final = request
        self.placed: Final = placed
        self.since: Final = since
        self.deadline: Final = request.deadline
        self.is_given_up = False


class _Crowd(Unanswered[Sent]):
    """Those who wait for this agent."""

    __slots__ = ("agent",)

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent: Final = agent


class HandingOverRoom:
    """Takes requests away from agents that hang; never, where `suspect_after` is 0, as then nobody is suspected."""

    def __init__(self, placing: PlacingRoom, clock: Clock, *, suspect_after: int) -> None:
        self._placing: Final = placing
        self._clock: Final = clock
        self._suspect_after: Final = suspect_after
        # Of agents for which somebody waits.
        self._crowds: Final[dict[PeerId, _Crowd]] = {}
        self._looks: Final[dict[PeerId, asyncio.TimerHandle]] = {}

    def sent(self, request: Request, placed: Placed, *, now: Monotonic) -> Sent:
        """A request goes to its agent; `ended` has to follow."""
        sent, agent = Sent(request, placed, now), placed.agent
        if self._suspect_after:
            crowd = self._crowds.get(agent.peer)
            if crowd is None:
                crowd = self._crowds[agent.peer] = _Crowd(agent)
            crowd.sent(sent)
            self._look_at(agent.peer, crowd.due_at(sent, is_suspect=agent.outcomes.suspicion is not None))
        return sent

    def answered(self, sent: Sent) -> None:
        """The first byte of an answer is there, or a refusal."""
        crowd = self._crowds.get(sent.placed.agent.peer)
        if crowd is not None:
            crowd.answered(now=self._clock.now())
        self._leaves(sent, crowd, is_answered=True)

    def ended(self, sent: Sent) -> None:
        """A request's attempt is over, with or without an answer; after `answered` this does nothing more."""
        self._leaves(sent, self._crowds.get(sent.placed.agent.peer), is_answered=False)

    def _leaves(self, sent: Sent, crowd: _Crowd | None, *, is_answered: bool) -> None:
        if crowd is not None:
            crowd.ended(sent)
            if not crowd:
                del self._crowds[crowd.agent.peer]
        silent = sent.placed.attempts.taken_from
        if silent is not None:
            self._witness_ended(silent, is_answered=is_answered)

    def _witness_ended(self, silent: PeerId, *, is_answered: bool) -> None:
        crowd = self._crowds.get(silent)
        if crowd is not None and crowd.witness_ended(is_answered=is_answered):
            log.warning("agent_hangs", peer_id=silent, model=crowd.agent.model, waiting=len(crowd))
            self._look(silent)

    def _look_at(self, peer: PeerId, when: Monotonic) -> None:
        planned = self._looks.get(peer)
        if planned is not None:
            if planned.when() <= when:
                return
            planned.cancel()
        self._looks[peer] = asyncio.get_running_loop().call_at(when, self._look, peer)

    def _look(self, peer: PeerId) -> None:
        planned = self._looks.pop(peer, None)
        if planned is not None:
            planned.cancel()
        crowd = self._crowds.get(peer)
        if crowd is None:
            return
        now, failures_left = self._clock.now(), self._failures_left(crowd.agent)
        taken = 0
        for sent in crowd.overdue(failures_left=failures_left, now=now):
            if self._placing.room_elsewhere(sent.request, sent.placed) > taken:
                taken += 1
                self._give_up(sent, crowd)
        due = crowd.next_due_at(is_suspect=not failures_left)
        if due is None:
            del self._crowds[peer]
        else:
            self._look_at(peer, due if due > now else Monotonic(now + _LOOK_AGAIN_S))

    def _give_up(self, sent: Sent, crowd: _Crowd) -> None:
        crowd.ended(sent)
        if not crowd.hangs:
            crowd.witness_left(until=sent.deadline)
        sent.is_given_up = True
        sent.request.exchange.give_up()

    def _failures_left(self, agent: Agent) -> int:
        outcomes = agent.outcomes
        return 0 if outcomes.suspicion is not None else max(0, self._suspect_after - outcomes.consecutive_failures)
