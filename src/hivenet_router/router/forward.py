"""How does a placed request reach its agent, and what has come of it?

Sends one attempt and tells a finished exchange from a failure that may go better elsewhere. Retries are the walk's,
by the verdict of `core/attempts.py`; bytes and time limits are the data plane's.
Source: configuration.md §6.5; http-api.md §6, §15; decisions.md 2, 4, 11, 23.
"""

from dataclasses import dataclass
from typing import Final

from hivenet_router.core.attempts import Busy, Failure, LinkDead, StaleStream, StreamBroken, TimedOut, TriedInVain
from hivenet_router.core.backend_errors import BackendFailure, classify, retry_after_s, tells_of_death
from hivenet_router.core.refusals import reason
from hivenet_router.core.values import value
from hivenet_router.names import headers, paths
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import Dialect
from hivenet_router.ports import (
    Arrived,
    AttemptFailed,
    ClientGone,
    Clock,
    Finished,
    ForwardPlan,
    Head,
    Recorder,
    Resend,
)
from hivenet_router.router.hand_over import HandingOverRoom, Sent
from hivenet_router.router.place import Placed
from hivenet_router.router.refuse import SEQUENCE_MARK, break_events
from hivenet_router.router.stages import Admitted


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """What bounds an answer, in seconds and bytes; None: no limit."""

    stream_idle_s: float | None
    stream_total_s: float | None
    buffered_bytes_max: int
    strips_authorization: bool
    holds_slot_for_stream: bool


@value
class Served:
    """The exchange is over and the client had an answer of this agent, at least in part."""

    finished: Finished
    head_s: float


@value
class Failed:
    """Nothing reached the client; `head_s` is the time to the response head, 0 where none came.

    `was_taken`: it went out whole, and whoever took it gave no whole answer, so it may have been carried out.
    `engine_died`: not a byte of an answer came, and it was neither the link's end nor that of a kept connection.
    """

    failure: Failure
    head_s: float
    was_taken: bool = False
    engine_died: bool = False


# A stream without a limit on its silence is still given up some day, so that nothing is held for ever.
_IDLE_FOR_EVER_S: Final = 7 * 86_400.0
_ENDED_EARLY: Final = frozenset({"client_left", "aborted"})
_STREAM_FIELDS: Final = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
_OF_THE_SITE: Final = tuple(sorted(name.encode() for name in headers.OF_THE_SITE))


class ForwardRoom:
    """Sends placed requests to their agents."""

    def __init__(self, clock: Clock, recorder: Recorder, handing_over: HandingOverRoom, limits: ForwardLimits) -> None:
        self._clock = clock
        self._recorder = recorder
        self._handing_over = handing_over
        self._limits = limits
        self._plans = {
            (dialect, is_original, is_last): _plan(limits, dialect, is_original=is_original, is_last=is_last)
            for dialect in Dialect
            for is_original in (False, True)
            for is_last in (False, True)
        }

    async def forward(self, admitted: Admitted, placed: Placed) -> Served | Failed:
        """Send the request to the agent it is placed on, and wait for what comes of it.

        Raises: ClientGone when the exchange was over before the client had any of an answer.
        """
        request, agent, now = admitted.request, placed.agent, self._clock.now()
        sent = self._handing_over.sent(request, placed, now=now)
        is_running = False

        def stream_begins(head: Head) -> None:
            nonlocal is_running
            if head.status != 200:
                return
            is_running = True
            self._recorder.attempt_answered(agent, admitted.caller.tenant)
            self._recorder.streams(request.model, +1)
            if not self._limits.holds_slot_for_stream:
                placed.headers_came()

        def answer_is_here() -> None:
            self._handing_over.answered(sent)
            # The agent is done with it, or as good as; how long the client reads is no business of its slot.
            if not is_running and not self._limits.holds_slot_for_stream:
                placed.headers_came()

        try:
            finished = await request.exchange.forward(
                agent.peer,
                request.target,
                self._plans[request.path.dialect, agent.is_original, placed.attempts.is_last_execution],
                within_s=max(0.0, request.deadline - now),
                on_head=stream_begins,
                on_reply=answer_is_here,
            )
        except AttemptFailed as failed:
            return self._failed(failed, sent)
        else:
            return self._served(finished, sent, None if is_running else admitted.caller.tenant)
        finally:
            self._handing_over.ended(sent)
            if is_running:
                self._recorder.streams(request.model, -1)

    def _served(self, finished: Finished, sent: Sent, answered_tenant: str | None) -> Served:
        if finished.head_s:
            self._handing_over.answered(sent)
        if finished.head_s == 0 or (finished.outcome in _ENDED_EARLY and finished.first_byte_s == 0):
            raise ClientGone
        if answered_tenant is not None:
            self._recorder.attempt_answered(sent.placed.agent, answered_tenant)
        return Served(finished, finished.head_s)

    def _failed(self, failed: AttemptFailed, sent: Sent) -> Failed:
        if failed.kind == "status":
            self._handing_over.answered(sent)
        failure = self._failure(failed, sent)
        if not isinstance(failure, BackendFailure) or failed.kind != "status":
            has_died = failed.is_taken and failed.kind == "reset" and isinstance(failure, StreamBroken)
            # An agent that is given no more time may be at work all the same.
            was_taken = failed.is_taken or isinstance(failure, TriedInVain)
            return Failed(failure, failed.head_s, was_taken, has_died)
        if sent.placed.agent.is_original:
            has_died = tells_of_death(failure)
            return Failed(failure, failed.head_s, has_died, has_died)
        taken = failed.field(headers.X_HIVENET_TAKEN)
        if taken == headers.TAKEN_KEPT:
            return Failed(StaleStream(), failed.head_s, was_taken=True)
        return Failed(failure, failed.head_s, bool(taken), taken == headers.TAKEN_FRESH)

    def _failure(self, failed: AttemptFailed, sent: Sent) -> Failure:
        match failed.kind:
            case "no_link":
                return LinkDead()
            case "busy":
                return Busy()
            case "timeout":
                # With its link gone, the agent is not who took too long.
                if failed.is_link_down:
                    return LinkDead()
                return TriedInVain() if sent.is_given_up else TimedOut()
            case "status":
                wait_s = retry_after_s(failed.field(headers.RETRY_AFTER), now=self._clock.unix())
                content_type = failed.field(headers.CONTENT_TYPE)
                return classify(
                    failed.status,
                    content_type,
                    failed.body,
                    retry_after_s=wait_s,
                    had_clients_credentials=not self._limits.strips_authorization
                    and _has_credentials(sent.request.exchange.arrived),
                )
            case "malformed":
                return BackendFailure(reason(ErrorCode.BACKEND_ERROR, "the agent's answer is not valid HTTP"))
            case "connect" | "reset" | "truncated":
                if failed.is_link_down:
                    return LinkDead()
                return StaleStream() if failed.is_stale else StreamBroken()


def _has_credentials(arrived: Arrived) -> bool:
    return any(arrived.field(name) is not None for name in (headers.AUTHORIZATION, headers.X_API_KEY))


def _plan(limits: ForwardLimits, dialect: Dialect, *, is_original: bool, is_last: bool) -> ForwardPlan:
    dropped = [headers.ACCEPT_ENCODING.encode(), headers.X_HIVENET_RESEND.encode()]
    # What may have been carried out is sent again by the walk alone, which counts.
    resend: Resend = "never" if is_last else "unsent"
    if limits.strips_authorization:
        dropped += [headers.AUTHORIZATION.encode(), headers.X_API_KEY.encode()]
    return ForwardPlan(
        host=b"",
        path_prefix=paths.INFERENCE_MOUNT.encode(),
        drop_fields=tuple(dropped),
        set_fields=_set_fields(says_never=is_last and not is_original),
        resend=resend,
        drop_reply_fields=_OF_THE_SITE,
        stream_fields=_STREAM_FIELDS,
        request_id_name=headers.X_REQUEST_ID.encode(),
        idle_s=limits.stream_idle_s or _IDLE_FOR_EVER_S,
        total_s=limits.stream_total_s,
        buffered_bytes_max=limits.buffered_bytes_max,
        # An original agent ends a broken stream as if it were whole (wire.md §8.7).
        needs_end_mark=is_original,
        break_events=break_events(dialect),
        sequence_mark=SEQUENCE_MARK,
    )


def _set_fields(*, says_never: bool) -> tuple[tuple[bytes, bytes], ...]:
    # The answer's usage is read on the way, so it must come as it is.
    identity = (headers.ACCEPT_ENCODING.encode(), b"identity")
    # An original agent would pass the word on to its engine; ours resends what went out whole for no router of ours.
    return (identity, (headers.X_HIVENET_RESEND.encode(), b"never")) if says_never else (identity,)
