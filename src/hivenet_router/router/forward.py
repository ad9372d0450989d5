"""How does a placed request reach its agent, and what has come of it?

Sends one attempt and tells a finished exchange from a failure that may go better elsewhere. Retries are the walk's,
by the verdict of `core/attempts.py`; bytes and time limits are the data plane's.
Source: configuration.md §6.5; http-api.md §6, §15; decisions.md 2, 4, 11, 23.
"""

from dataclasses import dataclass
from typing import Final

from hivenet_router.core.attempts import Busy, Failure, LinkDead, StreamBroken, TimedOut
from hivenet_router.core.backend_errors import BackendFailure, classify, retry_after_s
from hivenet_router.core.refusals import reason
from hivenet_router.core.values import value
from hivenet_router.names import headers, paths
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import Dialect
from hivenet_router.ports import Arrived, AttemptFailed, ClientGone, Clock, Finished, ForwardPlan, Head, Recorder
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
    """Nothing reached the client; `head_s` is the time to the response head, 0 where none came."""

    failure: Failure
    head_s: float


# A stream without a limit on its silence is still given up some day, so that nothing is held for ever.
_IDLE_FOR_EVER_S: Final = 7 * 86_400.0
_ENDED_EARLY: Final = frozenset({"client_left", "aborted"})
_STREAM_FIELDS: Final = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
_OF_THE_SITE: Final = tuple(sorted(name.encode() for name in headers.OF_THE_SITE))


class ForwardRoom:
    """Sends placed requests to their agents."""

    def __init__(self, clock: Clock, recorder: Recorder, limits: ForwardLimits) -> None:
        self._clock = clock
        self._recorder = recorder
        self._limits = limits
        self._plans = {
            (dialect, is_original): _plan(limits, dialect, is_original=is_original)
            for dialect in Dialect
            for is_original in (False, True)
        }

    async def forward(self, admitted: Admitted, placed: Placed) -> Served | Failed:
        """Send the request to the agent it is placed on, and wait for what comes of it.

        Raises: ClientGone when the exchange was over before the client had any of an answer.
        """
        request, agent = admitted.request, placed.agent
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
            # The agent is done with it, or as good as; how long the client reads is no business of its slot.
            if not is_running and not self._limits.holds_slot_for_stream:
                placed.headers_came()

        try:
            finished = await request.exchange.forward(
                agent.peer,
                request.target,
                self._plans[request.path.dialect, agent.is_original],
                within_s=max(0.0, request.deadline - self._clock.now()),
                on_head=stream_begins,
                on_reply=answer_is_here,
            )
        except AttemptFailed as failed:
            return Failed(self._failure(failed, request.exchange.arrived), failed.head_s)
        finally:
            if is_running:
                self._recorder.streams(request.model, -1)
        if finished.head_s == 0 or (finished.outcome in _ENDED_EARLY and finished.first_byte_s == 0):
            raise ClientGone
        if not is_running:
            self._recorder.attempt_answered(agent, admitted.caller.tenant)
        return Served(finished, finished.head_s)

    def _failure(self, failed: AttemptFailed, arrived: Arrived) -> Failure:
        match failed.kind:
            case "no_link":
                return LinkDead()
            case "busy":
                return Busy()
            case "timeout":
                return TimedOut()
            case "status":
                wait_s = retry_after_s(failed.field(headers.RETRY_AFTER), now=self._clock.unix())
                content_type = failed.field(headers.CONTENT_TYPE)
                return classify(
                    failed.status,
                    content_type,
                    failed.body,
                    retry_after_s=wait_s,
                    had_clients_credentials=not self._limits.strips_authorization and _has_credentials(arrived),
                )
            case "malformed":
                return BackendFailure(reason(ErrorCode.BACKEND_ERROR, "the agent's answer is not valid HTTP"))
            case "connect" | "reset" | "truncated":
                return LinkDead() if failed.is_link_down else StreamBroken()


def _has_credentials(arrived: Arrived) -> bool:
    return any(arrived.field(name) is not None for name in (headers.AUTHORIZATION, headers.X_API_KEY))


def _plan(limits: ForwardLimits, dialect: Dialect, *, is_original: bool) -> ForwardPlan:
    dropped = [headers.ACCEPT_ENCODING.encode()]
    if limits.strips_authorization:
        dropped += [headers.AUTHORIZATION.encode(), headers.X_API_KEY.encode()]
    return ForwardPlan(
        host=b"",
        path_prefix=paths.INFERENCE_MOUNT.encode(),
        drop_fields=tuple(dropped),
        # The answer's usage is read on the way, so it must come as it is.
        set_fields=((headers.ACCEPT_ENCODING.encode(), b"identity"),),
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
