"""An attempt at an agent failed and the client has seen nothing: what now?

The budget of a request is a value; each failure gives a verdict with the next budget in it. Three tries a step, one of
them used by each failure that may go better elsewhere. A connection that broke under a request is forgiven once per
agent and request. What an engine took whole before it died is sent once more at most, wherever. A fault of the request
itself ends it. Invariant: every verdict but a give-up shrinks what is left, so a request ends after at most one
forgiven and one counted failure per agent. Sending, selecting and marking agents belong to the rooms.
"""

from dataclasses import dataclass, field, replace
from typing import Final, Self

from hivenet_router.core.backend_errors import BackendFailure
from hivenet_router.core.ids import PeerId
from hivenet_router.core.outcomes import Mark
from hivenet_router.core.refusals import RefusalReason, reason
from hivenet_router.names.errors import ErrorCode

TRIES_PER_STEP: Final = 3
EXECUTIONS_MAX: Final = 2
"""How often a request may be carried out in all that an engine died of, or may have."""


@dataclass(frozen=True, slots=True)
class LinkDead:
    """No stream could be opened because the connection is gone, or it went under the request."""


@dataclass(frozen=True, slots=True)
class StaleStream:
    """A stream, or an engine's connection, that was kept from an earlier request ended before a byte of the answer; the
    link itself lives."""


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """A fresh stream was reset, or an answer broke off before the client had any of it; the link itself lives."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The agent, or the bound on streams to it, had no place for one more. Source: wire.md §14, 5."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The request's time ended while the agent was working on it. Only its stream is reset, never the link."""


@dataclass(frozen=True, slots=True)
class TriedInVain:
    """The agent had sent nothing when its share of the request's time ended, and another one takes it over."""


Failure = LinkDead | StaleStream | StreamBroken | Busy | TimedOut | TriedInVain | BackendFailure
"""What can end an attempt; a `BackendFailure` is an answer other than 200."""


@dataclass(frozen=True, slots=True)
class TryAnother:
    """Select again in this step."""

    attempts: "Attempts"


@dataclass(frozen=True, slots=True)
class RetrySameFree:
    """Send it once more, on a fresh stream: to the same agent where no other one can take it at once."""

    attempts: "Attempts"


@dataclass(frozen=True, slots=True)
class StepSpent:
    """The tries of this step are used up; go on to the next one, or end with `final`."""

    attempts: "Attempts"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No agent can do better; the client is told at once."""

    error: RefusalReason


Verdict = TryAnother | RetrySameFree | StepSpent | GiveUp


@dataclass(frozen=True, slots=True)
class Attempts:
    """What is left to a request: tries of the current step, agents to leave out of it, favours already done."""

    tries_max: int = TRIES_PER_STEP
    tries_used: int = 0
    failed: frozenset[PeerId] = field(default=frozenset())
    """Agents out of the current step because they failed in it."""
    avoided: PeerId | None = None
    """An agent that is asked only where no other one can take the request at once."""
    executions_left: int = EXECUTIONS_MAX
    """How often it may still be taken whole by an engine that may die of it; kept across steps."""
    busy: frozenset[PeerId] = field(default=frozenset())
    """Agents out of the current step because they turned the request away as full."""
    forgiven: frozenset[PeerId] = field(default=frozenset())
    """Agents whose one free recovery is spent; kept across steps."""
    taken_from: PeerId | None = None
    """An agent that let it wait in vain; whoever answers it is the witness that this one hangs. Kept across steps."""
    last_error: RefusalReason | None = None
    """The last thing an agent or its backend said, for the final answer; kept across steps."""

    def once_only(self) -> Self:
        """The budget of a request that an engine has died of lately."""
        return replace(self, executions_left=1)

    @property
    def is_last_execution(self) -> bool:
        """Whether it may be taken whole only once more, so that no hop may send it twice."""
        return self.executions_left <= 1

    def forgives(self, failure: Failure, peer: PeerId) -> bool:
        """Whether this failure is the way's and not the agent's: it is neither a failure nor a try."""
        return isinstance(failure, LinkDead | StaleStream) and peer not in self.forgiven

    def after(self, failure: Failure, peer: PeerId, *, was_taken: bool = False) -> Verdict:
        """What to do now that an attempt at this agent failed so.

        `was_taken`: it went out whole, and whoever took it died without an answer, so it may have been carried out.
        Source: configuration.md §6.5; signals.md §8.10; http-api.md §15, 4, 6 and 7; wire.md §8.5 and §14;
        field-cases.md O-09.
        """
        if not was_taken:
            return self._after(failure, peer)
        verdict = replace(self, executions_left=self.executions_left - 1)._after(failure, peer)
        if isinstance(verdict, GiveUp) or verdict.attempts.executions_left > 0:
            return verdict
        return GiveUp(verdict.attempts.last_error or _BROKEN_OFF)

    def _after(self, failure: Failure, peer: PeerId) -> Verdict:
        match failure:
            case LinkDead():
                said = replace(self, last_error=_DISCONNECTED)
                if peer not in self.forgiven:
                    return TryAnother(replace(said, forgiven=self.forgiven | {peer}))
                return said._tried(peer)
            case StaleStream():
                said = replace(self, last_error=_BROKEN_OFF)
                if peer not in self.forgiven:
                    return RetrySameFree(replace(said, forgiven=self.forgiven | {peer}, avoided=peer))
                return said._tried(peer)
            case StreamBroken():
                return replace(self, last_error=_BROKEN_OFF)._tried(peer)
            case Busy():
                # A full agent is less telling than what another one really said.
                said = replace(self, last_error=self.last_error or _FULL)
                return replace(said, busy=said.busy | {peer})._one_try_less()
            case TimedOut():
                return GiveUp(_TIMED_OUT)
            case TriedInVain():
                return replace(self, last_error=_TIMED_OUT, taken_from=peer)._tried(peer)
            case _:
                if not failure.retryable:
                    return GiveUp(failure.reason)
                return replace(self, last_error=failure.reason)._tried(peer)

    def _tried(self, peer: PeerId) -> Verdict:
        return replace(self, failed=self.failed | {peer})._one_try_less()

    def _one_try_less(self) -> Verdict:
        used = replace(self, tries_used=self.tries_used + 1)
        return TryAnother(used) if used.tries_used < used.tries_max else StepSpent(used)

    def next_step(self, tries_max: int) -> Self:
        """The budget at the start of another policy step: all tries again, nobody left out.

        Source: configuration.md §6.5 and signals.md §8.10 (failures are per step, the free recovery per request).
        """
        return replace(self, tries_max=tries_max, tries_used=0, failed=frozenset(), avoided=None, busy=frozenset())

    def after_wait(self) -> Self:
        """The budget after a wait for capacity: who was full then may have room now."""
        return replace(self, busy=frozenset())

    def final(self, selection: RefusalReason) -> RefusalReason:
        """What the client is told at the end: the last real error, or why no agent could be selected.

        Source: http-api.md §15, 7.
        """
        return self.last_error or selection


def mark_of(failure: Failure) -> Mark:
    """What a failure says about the agent, whatever becomes of the request.

    Source: signals.md §3.2 and §9.2; http-api.md §15, 6; wire.md §14, 2 and 5.
    """
    match failure:
        case StaleStream() | Busy():
            return Mark.NONE
        case LinkDead():
            return Mark.CONNECTION
        case StreamBroken() | TimedOut() | TriedInVain():
            return Mark.APPLICATION
        case _:
            return Mark.APPLICATION if failure.counts_against_agent else Mark.NONE


_DISCONNECTED: Final = reason(ErrorCode.AGENT_DISCONNECTED, "the connection to the agent was lost before it answered")
_BROKEN_OFF: Final = reason(ErrorCode.BACKEND_UNAVAILABLE, "the agent broke off before its answer was complete")
_FULL: Final = reason(ErrorCode.NO_CAPACITY, "the agents that may serve this request are full; try again shortly")
_TIMED_OUT: Final = reason(ErrorCode.REQUEST_TIMEOUT, "no answer came from the agent within the request's time limit")
