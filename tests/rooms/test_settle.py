"""What is booked at the end of a request, for whoever counts and for the agent."""

from typing import Final

import pytest
from structlog.testing import capture_logs
from tests.core.making import MODEL, A, B, Book, at
from tests.fakes.clock import VirtualClock
from tests.fakes.exchange import REQUEST_ID, FakeArrived, FakeDigest, FakeExchange, FakeFinished, FakeUsage
from tests.fakes.recorder import RecordingRecorder

from hivenet_router.core.agent import Agent
from hivenet_router.core.attempts import Busy, Failure, LinkDead, StaleStream, StreamBroken, TimedOut
from hivenet_router.core.backend_errors import BackendFailure
from hivenet_router.core.clock import Monotonic
from hivenet_router.core.estimate import TOKENS_TOLD_MAX
from hivenet_router.core.ids import ModelName
from hivenet_router.core.refusals import RefusalReason, reason
from hivenet_router.names.errors import Blame, ErrorCode
from hivenet_router.names.paths import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    COUNT_TOKENS,
    EMBEDDINGS,
    INFERENCE_PATHS,
    MESSAGES,
)
from hivenet_router.router.forward import Failed, Served
from hivenet_router.router.refuse import Refusal
from hivenet_router.router.rejections import RejectionRoom
from hivenet_router.router.settle import SettlingRoom, Visit, status_of
from hivenet_router.router.stages import Request
from hivenet_router.router.suspect import SuspectingRoom

USAGE: Final = FakeUsage(11, 5)


class Stepped(VirtualClock):
    """Stands still until it is set."""

    seconds = 0.0

    def now(self) -> Monotonic:
        return at(self.seconds)


class Desk:
    """A settling room with one agent."""

    def __init__(self) -> None:
        self.book = Book()
        self.agent = self.book.join(A)
        self.recorder = RecordingRecorder()
        self.room = self.room_with(VirtualClock())

    def room_with(self, clock: VirtualClock) -> SettlingRoom:
        suspecting = SuspectingRoom(self.book.registry, clock, suspect_after=3, chance=lambda: 0.5)
        return SettlingRoom(clock, self.recorder, RejectionRoom(clock, self.recorder), suspecting)

    def served(self, outcome: str, *, status: int = 200, first_byte_s: float = 1.0) -> tuple[str, int]:
        finished = FakeFinished(outcome, status, USAGE, first_byte_s)
        visit = Visit(REQUEST_ID, MODEL, "default", self.agent, Served(finished, 0.5), finished=finished)
        return self.settled(visit)

    def settled(self, visit: Visit) -> tuple[str, int]:
        status = self.room.settle(visit, 3.0)
        [end] = self.recorder.ends
        assert (end.status, end.duration_s) == (status, 3.0)
        return end.outcome, status


def counts(agent: Agent) -> tuple[int, int, int]:
    outcomes = agent.outcomes
    return outcomes.successes, outcomes.failures, outcomes.consecutive_failures


async def test_a_served_request_counts_for_its_agent_with_tokens_and_round_trip() -> None:
    desk = Desk()
    assert desk.served("answered") == ("served", 200)
    assert counts(desk.agent) == (1, 0, 0)
    assert (desk.agent.outcomes.input_tokens, desk.agent.outcomes.output_tokens) == (11, 5)
    assert desk.agent.outcomes.srtt_s == 0.5
    [end] = desk.recorder.ends
    assert (end.agent, end.was_routed, end.input_tokens, end.output_tokens) == (desk.agent, True, 11, 5)
    assert end.first_byte_s == 1.0


@pytest.mark.parametrize(
    ("path", "usage", "bytes_sent", "tokens"),
    [
        (CHAT_COMPLETIONS, FakeUsage(11, 5, output_bytes=99), 500, (11, 5)),
        (CHAT_COMPLETIONS, FakeUsage(0, 5, output_bytes=99), 500, (14, 5)),
        (MESSAGES, FakeUsage(None, 5, output_bytes=99), 500, (14, 5)),
        (CHAT_COMPLETIONS, FakeUsage(None, None, exact=False, output_bytes=19), 500, (14, 8)),
        (CHAT_COMPLETIONS, FakeUsage(None, None, exact=False), 500, (14, 0)),
        (MESSAGES, FakeUsage(42, 1, exact=False, output_bytes=19), 500, (42, 8)),
        (MESSAGES, FakeUsage(42, 90, exact=False, output_bytes=19), 500, (42, 90)),
        (CHAT_COMPLETIONS, None, 19, (14, 8)),
        (COMPLETIONS, None, 19, (14, 8)),
        (COUNT_TOKENS, FakeUsage(9, None, exact=False), 19, (9, 0)),
        (COUNT_TOKENS, None, 19, (0, 0)),
        (EMBEDDINGS, None, 19, (0, 0)),
    ],
)
async def test_tokens_that_the_backend_did_not_count_are_estimated_where_a_model_wrote_the_answer(
    path: str, usage: FakeUsage | None, bytes_sent: int, tokens: tuple[int, int]
) -> None:
    """EX-7.12 of signals.md: 42 bytes of prompt and 19 of output."""
    desk = Desk()
    finished = FakeFinished("answered", 200, usage, 1.0, bytes=bytes_sent)
    prompt = FakeDigest(MODEL, input_bytes=42) if path == COMPLETIONS else FakeDigest(MODEL, text_bytes=42, messages=1)
    exchange = FakeExchange(FakeArrived(digest=prompt))
    request = Request(exchange, INFERENCE_PATHS[path], MODEL, b"", at(60.0))
    desk.settled(
        Visit(REQUEST_ID, MODEL, "default", desk.agent, Served(finished, 0.5), finished=finished, request=request)
    )
    [end] = desk.recorder.ends
    assert (end.input_tokens, end.output_tokens) == tokens


@pytest.mark.parametrize(
    ("path", "usage", "tokens"),
    [
        (CHAT_COMPLETIONS, FakeUsage(10**18, 5, output_bytes=19), (14, 8)),
        (CHAT_COMPLETIONS, FakeUsage(11, TOKENS_TOLD_MAX + 1, output_bytes=19), (11, 8)),
        (MESSAGES, FakeUsage(2**64 - 1, 2**64 - 1, output_bytes=19), (14, 8)),
        (EMBEDDINGS, FakeUsage(10**18, 0), (0, 0)),
    ],
)
async def test_a_number_of_tokens_that_cannot_be_is_estimated_and_told_once(
    path: str, usage: FakeUsage, tokens: tuple[int, int]
) -> None:
    desk = Desk()
    finished = FakeFinished("answered", 200, usage, 1.0, bytes=500)
    exchange = FakeExchange(FakeArrived(digest=FakeDigest(MODEL, text_bytes=42, messages=1)))
    request = Request(exchange, INFERENCE_PATHS[path], MODEL, b"", at(60.0))
    served = Served(finished, 0.5)
    with capture_logs() as logs:
        for _ in range(3):
            desk.room.settle(Visit(REQUEST_ID, MODEL, agent=desk.agent, served=served, request=request), 1.0)
    assert {(end.input_tokens, end.output_tokens) for end in desk.recorder.ends} == {tokens}
    assert desk.agent.outcomes.input_tokens == 3 * tokens[0]
    [line] = logs
    assert (line["event"], line["peer_id"]) == ("engine_usage_not_believed", A)


async def test_the_largest_number_of_tokens_that_can_be_is_believed() -> None:
    desk = Desk()
    finished = FakeFinished("answered", 200, FakeUsage(TOKENS_TOLD_MAX, TOKENS_TOLD_MAX), 1.0)
    with capture_logs() as logs:
        desk.settled(Visit(REQUEST_ID, MODEL, agent=desk.agent, served=Served(finished, 0.5), finished=finished))
    [end] = desk.recorder.ends
    assert (end.input_tokens, end.output_tokens, logs) == (TOKENS_TOLD_MAX, TOKENS_TOLD_MAX, [])


@pytest.mark.parametrize("outcome", ["backend_lost", "stream_idle"])
async def test_a_stream_that_the_agent_broke_off_counts_against_it(outcome: str) -> None:
    desk = Desk()
    assert desk.served(outcome) == ("stream_cut", 200)
    assert counts(desk.agent) == (0, 1, 1)


async def test_a_stream_that_broke_with_its_link_is_no_step_of_the_agents_streak_although_it_has_another() -> None:
    desk = Desk()
    assert desk.agent.linked
    assert desk.served("link_lost") == ("stream_cut", 200)
    assert counts(desk.agent) == (0, 1, 0)


@pytest.mark.parametrize("outcome", ["stream_overtime", "stream_aborted", "aborted"])
async def test_a_stream_that_the_router_ended_is_cut_but_nobodys_fault(outcome: str) -> None:
    desk = Desk()
    assert desk.served(outcome) == ("stream_cut", 200)
    assert counts(desk.agent) == (0, 0, 0)


async def test_a_client_that_leaves_in_the_middle_counts_for_and_against_nobody() -> None:
    desk = Desk()
    assert desk.served("client_left") == ("client_gone", 200)
    assert counts(desk.agent) == (0, 0, 0)
    [end] = desk.recorder.ends
    assert (end.agent, end.output_tokens) == (desk.agent, 5)


async def test_a_client_that_leaves_before_an_answer_is_counted_with_499() -> None:
    desk = Desk()
    visit = Visit(REQUEST_ID, MODEL, "default", desk.agent, finished=FakeFinished("client_left"))
    assert desk.settled(visit) == ("client_gone", 499)
    [end] = desk.recorder.ends
    assert (end.agent, end.was_routed) == (None, True)
    assert counts(desk.agent) == (0, 0, 0)


async def test_a_refusal_is_counted_under_its_code_even_if_nothing_is_known_of_its_delivery() -> None:
    desk = Desk()
    refusal = Refusal(reason(ErrorCode.QUEUE_FULL, ""))
    assert desk.settled(Visit(REQUEST_ID, MODEL, "default", refusal=refusal)) == ("queue_full", 503)
    [end] = desk.recorder.ends
    assert (end.agent, end.was_routed, end.first_byte_s) == (None, False, 0.0)


async def test_a_refusal_that_its_client_did_not_wait_for_is_a_client_gone() -> None:
    desk = Desk()
    refusal = Refusal(reason(ErrorCode.QUEUE_FULL, ""))
    finished = FakeFinished("client_left", 503)
    assert desk.settled(Visit(REQUEST_ID, refusal=refusal, finished=finished)) == ("client_gone", 499)


@pytest.mark.parametrize("finished", [None, FakeFinished("aborted")])
async def test_a_request_that_the_stopping_router_ends_is_no_client_gone(finished: FakeFinished | None) -> None:
    desk = Desk()
    visit = Visit(REQUEST_ID, MODEL, "default", desk.agent, finished=finished)
    assert desk.settled(visit) == ("no_agents_available", 503)


async def test_an_exhausted_policy_is_counted_once_and_logged_with_what_emptied_it() -> None:
    desk = Desk()
    refusal = Refusal(reason(ErrorCode.NO_CAPACITY, "full"), exhausted_by="6 capacity")
    with capture_logs() as logs:
        desk.settled(Visit(REQUEST_ID, MODEL, "default", refusal=refusal, finished=FakeFinished("responded", 503)))
    assert desk.recorder.exhausted == [(MODEL, "default")]
    [line] = logs
    assert (line["event"], line["log_level"], line["emptied_by"]) == ("policy_exhausted", "warning", "6 capacity")
    assert line["request_id"] == REQUEST_ID


async def test_a_refusal_before_the_policy_exhausts_none() -> None:
    desk = Desk()
    refusal = Refusal(reason(ErrorCode.REQUEST_INVALID, "no model"))
    desk.settled(Visit(REQUEST_ID, refusal=refusal))
    assert desk.recorder.exhausted == []


@pytest.mark.parametrize(
    ("failure", "counted"),
    [
        (StreamBroken(), (0, 1, 1)),
        (TimedOut(), (0, 1, 1)),
        (LinkDead(), (0, 1, 0)),
        (Busy(), (0, 0, 0)),
        (BackendFailure(reason(ErrorCode.BACKEND_ERROR, "")), (0, 1, 1)),
        (BackendFailure(reason(ErrorCode.INVALID_PARAMETER, "")), (0, 0, 0)),
        (BackendFailure(reason(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "")), (0, 0, 0)),
    ],
)
async def test_what_a_failed_attempt_says_about_its_agent(failure: Failure, counted: tuple[int, int, int]) -> None:
    desk = Desk()
    desk.room.attempt_failed(desk.agent, "default", Failed(failure, 0.25))
    assert counts(desk.agent) == counted
    assert desk.recorder.failed == [(A, "default")]


@pytest.mark.parametrize("failure", [LinkDead(), StaleStream()])
async def test_what_is_forgiven_is_no_failure_of_the_agent(failure: Failure) -> None:
    """signals.md §3.2: a free retry is counted as a reset only."""
    desk = Desk()
    desk.room.attempt_failed(desk.agent, "default", Failed(failure, 0.0), is_forgiven=True)
    assert counts(desk.agent) == (0, 0, 0)
    assert desk.recorder.failed == []
    assert len(desk.recorder.link_resets) == isinstance(failure, LinkDead)


async def test_a_dead_link_is_counted_once_for_all_requests_on_it() -> None:
    desk = Desk()
    other = desk.book.join(B)
    clock = Stepped()
    room = desk.room_with(clock)
    for agent, seconds in ((desk.agent, 0.0), (desk.agent, 1.9), (other, 1.9), (desk.agent, 2.0), (desk.agent, 3.9)):
        clock.seconds = seconds
        room.attempt_failed(agent, "default", Failed(LinkDead(), 0.0))
    assert desk.recorder.link_resets == [(MODEL, "forward_failure")] * 3


@pytest.mark.parametrize(
    ("finished", "status"),
    [
        (FakeFinished("responded", 404), 404),
        (FakeFinished("answered", 200, first_byte_s=1.0), 200),
        (FakeFinished("client_left"), 499),
        (FakeFinished("client_left", 404), 499),
        (FakeFinished("client_left", 200, first_byte_s=1.0), 200),
        (FakeFinished("aborted"), 503),
    ],
)
def test_the_status_that_an_exchange_is_counted_with(finished: FakeFinished, status: int) -> None:
    assert status_of(finished) == status


def exhausted(code: ErrorCode, message: str, source: Blame | None = None) -> Refusal:
    plain = reason(code, message)
    why = RefusalReason(code, plain.status, message, source or plain.source)
    return Refusal(why, exhausted_by="max_tries exhausted")


@pytest.mark.parametrize("source", Blame)
@pytest.mark.parametrize("code", [ErrorCode.BACKEND_ERROR, ErrorCode.BACKEND_UNAVAILABLE])
async def test_what_an_engine_said_never_reaches_the_log_whatever_source_it_gives(
    code: ErrorCode, source: Blame
) -> None:
    desk = Desk()
    refusal = exhausted(code, "the prompt was: my secret", source)
    with capture_logs() as logs:
        desk.settled(Visit(REQUEST_ID, MODEL, "default", refusal=refusal))
    [line] = logs
    assert "secret" not in str(line)
    assert (line["code"], line["status"]) == (str(code), refusal.reason.status)


async def test_our_own_words_are_logged() -> None:
    desk = Desk()
    with capture_logs() as logs:
        desk.settled(Visit(REQUEST_ID, MODEL, "default", refusal=exhausted(ErrorCode.NO_CAPACITY, "all are full")))
    assert [line["why"] for line in logs] == ["all are full"]


async def test_a_model_has_ten_lines_a_second_and_a_count_of_the_others() -> None:
    desk, clock = Desk(), Stepped()
    room = desk.room_with(clock)
    visit = Visit(REQUEST_ID, MODEL, "default", refusal=exhausted(ErrorCode.NO_CAPACITY, "full"))
    with capture_logs() as logs:
        for _ in range(25):
            room.settle(visit, 1.0)
        clock.seconds = 1.0
        for _ in range(12):
            room.settle(visit, 1.0)
        clock.seconds = 2.0
        room.tell_due()
    assert [line.get("suppressed") for line in logs] == [None] * 10 + [15] + [None] * 9 + [2]
    assert logs[-1]["event"] == "policy_exhausted_suppressed"
    assert len(desk.recorder.exhausted) == 37


async def test_invented_models_share_their_lines() -> None:
    desk = Desk()
    with capture_logs() as logs:
        for number in range(50):
            refusal = exhausted(ErrorCode.MODEL_NOT_FOUND, "no such model")
            desk.room.settle(Visit(REQUEST_ID, ModelName(f"m{number}"), "default", refusal=refusal), 1.0)
    assert len(logs) == 10
