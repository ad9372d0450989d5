"""What an attempt asks of the data plane, when it gives its place back, and what its failures mean."""

import asyncio

import pytest
from tests.core.making import MODEL, A
from tests.fakes.clock import UNIX_START
from tests.fakes.exchange import Answers, Fails, FakeExchange, Script
from tests.rooms.building import Rooms, soon

from hivenet_router.core.attempts import Busy, Failure, LinkDead, StaleStream, StreamBroken, TimedOut
from hivenet_router.core.backend_errors import BackendFailure
from hivenet_router.names.errors import Blame, ErrorCode
from hivenet_router.names.paths import CHAT_COMPLETIONS, COMPLETIONS, MESSAGES, RESPONSES
from hivenet_router.ports import ClientGone, FailureKind, ForwardPlan
from hivenet_router.router.forward import Failed, Served


async def forwarded(rooms: Rooms, exchange: FakeExchange, *, within_s: float = 60.0) -> Served | Failed:
    with await rooms.place(exchange, within_s=within_s) as placed:
        return await rooms.forwarding.forward(rooms.admitted(exchange, within_s=within_s), placed)


async def failed(script: Script, *, is_original: bool = False) -> Failed:
    rooms = Rooms()
    rooms.join(A, script)
    rooms.registry.identified(A, is_original=is_original, streams_max=64)
    result = await forwarded(rooms, rooms.chat())
    assert isinstance(result, Failed)
    return result


async def plan_for(path: str, *, is_original: bool = False, strips_authorization: bool = False) -> ForwardPlan:
    rooms = Rooms(strips_authorization=strips_authorization)
    rooms.join(A)
    rooms.registry.identified(A, is_original=is_original, streams_max=64)
    exchange = rooms.chat(path=path)
    await forwarded(rooms, exchange)
    return exchange.forwards[0].plan


async def test_a_request_goes_to_its_agent_and_no_longer_than_to_its_deadline() -> None:
    rooms = Rooms()
    rooms.join(A, Answers(head_after_s=2.0))
    exchange = rooms.chat()
    result = await forwarded(rooms, exchange, within_s=30.0)
    assert isinstance(result, Served)
    assert result.finished.outcome == "answered"
    assert result.head_s == pytest.approx(2.0)
    [attempt] = exchange.forwards
    assert (attempt.to, attempt.target) == (A, b"/v1/chat/completions")
    assert attempt.within_s == pytest.approx(30.0)
    assert rooms.recorder.answered == [(A, "default")]


async def test_slot_and_permit_end_with_a_streams_headers_and_the_stream_is_counted_to_its_end() -> None:
    rooms = Rooms()
    agent = rooms.join(A, Answers(head_after_s=1.0, first_byte_after_s=5.0, lasts_s=10.0, is_stream=True))
    running = await soon(forwarded(rooms, rooms.chat()))
    await asyncio.sleep(0.5)
    assert (agent.active_slots, rooms.placing.permits_free, rooms.recorder.streams_now[MODEL]) == (1, 49, 0)
    for _ in range(2):
        # Once while the client waits for the first byte, once while it reads.
        await asyncio.sleep(5)
        assert (agent.active_slots, agent.running_streams, rooms.placing.permits_free) == (0, 1, 50)
        assert rooms.recorder.streams_now[MODEL] == 1
    await running
    assert rooms.is_at_rest


async def test_slot_and_permit_of_a_buffered_answer_end_with_it() -> None:
    rooms = Rooms()
    agent = rooms.join(A, Answers(head_after_s=1.0, lasts_s=10.0))
    running = await soon(forwarded(rooms, rooms.chat()))
    await asyncio.sleep(10)
    assert (agent.active_slots, rooms.placing.permits_free, rooms.recorder.streams_now[MODEL]) == (1, 49, 0)
    await running
    assert rooms.is_at_rest


async def test_a_client_that_reads_a_long_answer_slowly_holds_no_slot_and_no_permit() -> None:
    rooms = Rooms()
    agent = rooms.join(A, Answers(head_after_s=1.0, lasts_s=5.0, read_for_s=60.0))
    running = await soon(forwarded(rooms, rooms.chat()))
    await asyncio.sleep(5)
    assert (agent.active_slots, rooms.placing.permits_free) == (1, 49)
    await asyncio.sleep(20)
    assert (agent.active_slots, rooms.placing.permits_free, rooms.recorder.streams_now[MODEL]) == (0, 50, 0)
    await running
    assert rooms.is_at_rest


async def test_a_stream_keeps_its_slot_to_the_end_where_the_operator_says_so() -> None:
    rooms = Rooms(holds_slot_for_stream=True)
    agent = rooms.join(A, Answers(head_after_s=1.0, lasts_s=10.0, is_stream=True))
    running = await soon(forwarded(rooms, rooms.chat()))
    await asyncio.sleep(5)
    assert (agent.active_slots, agent.running_streams, rooms.placing.permits_free) == (1, 0, 49)
    assert rooms.recorder.streams_now[MODEL] == 1
    await running
    assert rooms.is_at_rest


async def test_a_stream_that_fails_before_its_first_byte_is_no_running_stream_any_more() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("truncated", head_after_s=1.0, after_s=1.0, is_stream=True))
    result = await forwarded(rooms, rooms.chat())
    assert result == Failed(StreamBroken(), 1.0)
    assert rooms.is_at_rest


async def test_an_error_with_the_headers_of_a_stream_counts_as_no_answer() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("status", status=500, head_after_s=1.0, is_stream=True))
    await forwarded(rooms, rooms.chat())
    assert rooms.recorder.answered == []


@pytest.mark.parametrize(
    ("kind", "is_link_down", "failure"),
    [
        ("no_link", True, LinkDead()),
        ("busy", False, Busy()),
        ("timeout", False, TimedOut()),
        ("timeout", True, LinkDead()),
        ("connect", True, LinkDead()),
        ("connect", False, StreamBroken()),
        ("reset", True, LinkDead()),
        ("reset", False, StreamBroken()),
        ("truncated", True, LinkDead()),
        ("truncated", False, StreamBroken()),
    ],
)
async def test_what_each_kind_of_failure_means(kind: FailureKind, is_link_down: bool, failure: Failure) -> None:
    assert (await failed(Fails(kind, is_link_down=is_link_down))).failure == failure


async def test_an_answer_that_is_not_http_is_the_backends_error() -> None:
    failure = (await failed(Fails("malformed"))).failure
    assert isinstance(failure, BackendFailure)
    assert (failure.reason.code, failure.reason.status, failure.retryable) == (ErrorCode.BACKEND_ERROR, 502, True)
    assert failure.reason.source is Blame.BACKEND


async def test_a_status_is_judged_by_its_body_and_keeps_its_retry_after() -> None:
    too_many = Fails("status", status=429, fields=[(b"Retry-After", b"7")], body=b'{"error":{"message":"busy"}}')
    failure = (await failed(too_many)).failure
    assert isinstance(failure, BackendFailure)
    assert (failure.reason.code, failure.reason.message) == (ErrorCode.BACKEND_UNAVAILABLE, "busy")
    assert failure.reason.retry_after_s == 7.0


async def test_a_retry_after_may_be_a_date() -> None:
    # Twenty minutes after the zero of the clock, and the test begins at its thousandth second.
    assert UNIX_START == 1_764_000_000
    date = Fails("status", status=503, fields=[(b"retry-after", b"Mon, 24 Nov 2025 16:20:00 GMT")])
    failure = (await failed(date)).failure
    assert isinstance(failure, BackendFailure)
    assert failure.reason.retry_after_s == pytest.approx(200.0)


async def test_an_agent_that_takes_too_long_runs_into_the_deadline() -> None:
    rooms = Rooms()
    rooms.join(A, Answers(head_after_s=100.0))
    assert await forwarded(rooms, rooms.chat(), within_s=5.0) == Failed(TimedOut(), 0.0)
    assert rooms.is_at_rest


@pytest.mark.parametrize(
    "script",
    [
        Answers(head_after_s=9.0),
        Answers(head_after_s=1.0, first_byte_after_s=9.0, is_stream=True),
        Answers(head_after_s=1.0, lasts_s=9.0),
    ],
)
@pytest.mark.parametrize("ends", ["leave", "abort"])
async def test_an_exchange_that_ends_before_any_byte_of_an_answer_was_not_served(script: Answers, ends: str) -> None:
    rooms = Rooms()
    rooms.join(A, script)
    exchange = rooms.chat()
    running = await soon(forwarded(rooms, exchange))
    await asyncio.sleep(5)
    exchange.leave() if ends == "leave" else exchange.arrived.abort()
    with pytest.raises(ClientGone):
        await running
    assert rooms.is_at_rest


async def test_a_stream_that_the_client_leaves_in_the_middle_was_served() -> None:
    rooms = Rooms()
    rooms.join(A, Answers(lasts_s=9.0, is_stream=True))
    exchange = rooms.chat()
    running = await soon(forwarded(rooms, exchange))
    await asyncio.sleep(5)
    exchange.leave()
    result = await running
    assert isinstance(result, Served)
    assert result.finished.outcome == "client_left"
    assert rooms.is_at_rest


@pytest.mark.parametrize(
    ("path", "beginning"),
    [
        (CHAT_COMPLETIONS, b'data: {"error":'),
        (COMPLETIONS, b'data: {"error":'),
        (RESPONSES, b'event: error\ndata: {"type":"error","code":"backend_error",'),
        (MESSAGES, b'event: error\ndata: {"type":"error","error":'),
    ],
)
async def test_the_plan_speaks_the_paths_dialect(path: str, beginning: bytes) -> None:
    plan = await plan_for(path)
    assert plan.break_events[0].startswith(beginning)
    assert (plan.sequence_mark in plan.break_events[0]) == (path == RESPONSES)


@pytest.mark.parametrize("strips", [False, True])
@pytest.mark.parametrize("sent", ["authorization", "x-api-key", ""])
async def test_refused_credentials_are_the_clients_only_where_they_went_along(sent: str, strips: bool) -> None:
    """decisions.md 40."""
    rooms = Rooms(strips_authorization=strips)
    rooms.join(A, Fails("status", status=401, body=b'{"error":"no such key"}'))
    exchange = rooms.chat()
    if sent:
        exchange.arrived.headers.append((sent.encode(), b"k"))
    result = await forwarded(rooms, exchange)
    assert isinstance(result, Failed)
    assert isinstance(result.failure, BackendFailure)
    is_clients = bool(sent) and not strips
    assert (result.failure.reason.status, result.failure.retryable) == (401 if is_clients else 502, False)


async def test_only_an_original_agents_stream_must_have_an_end_mark() -> None:
    assert (await plan_for(CHAT_COMPLETIONS, is_original=True)).needs_end_mark
    assert not (await plan_for(CHAT_COMPLETIONS)).needs_end_mark


async def test_an_original_agent_is_not_sent_what_it_would_pass_on_to_its_engine() -> None:
    plan = await plan_for(CHAT_COMPLETIONS, is_original=True)
    assert plan.set_fields == ((b"accept-encoding", b"identity"),)
    assert b"x-hivenet-resend" in plan.drop_fields
    assert plan.resend == "unsent"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (Fails("reset", is_taken=True, is_stale=True), Failed(StaleStream(), 0.0, was_taken=True)),
        (Fails("reset", is_taken=True), Failed(StreamBroken(), 0.0, was_taken=True, engine_died=True)),
        (Fails("truncated", is_taken=True), Failed(StreamBroken(), 0.0, was_taken=True)),
        (Fails("reset", is_taken=True, is_stale=True, is_link_down=True), Failed(LinkDead(), 0.0, was_taken=True)),
        (Fails("reset"), Failed(StreamBroken(), 0.0)),
        (
            Fails("status", status=503, fields=[(b"X-Hivenet-Taken", b"kept")]),
            Failed(StaleStream(), 0.0, was_taken=True),
        ),
    ],
)
async def test_what_may_have_been_carried_out_is_told(script: Fails, expected: Failed) -> None:
    assert await failed(script) == expected


async def test_our_agents_tell_by_a_field_that_the_engine_died_and_original_ones_by_their_words() -> None:
    begun = await failed(Fails("status", status=503, fields=[(b"x-hivenet-taken", b"part")]))
    assert (begun.was_taken, begun.engine_died) == (True, False)
    told = Fails("status", status=503, fields=[(b"x-hivenet-taken", b"fresh")])
    assert (await failed(told)).engine_died
    assert not (await failed(told, is_original=True)).engine_died
    for words, died in (
        ("EOF", True),
        ("read: connection reset by peer", True),
        ("connect: connection refused", False),
    ):
        message = f'backend unreachable: Post \\"http://127.0.0.1:8000/v1/x\\": tcp 127.0.0.1:8000: {words}'
        body = f'{{"error":{{"code":"backend_unavailable","message":"{message}","source":"backend"}}}}'.encode()
        assert (await failed(Fails("status", status=503, body=body), is_original=True)).engine_died == died
        assert not (await failed(Fails("status", status=503, body=body))).engine_died


async def test_the_plan_asks_for_an_answer_that_can_be_read_and_passes_it_on_as_it_is() -> None:
    plan = await plan_for(CHAT_COMPLETIONS)
    assert plan.path_prefix == b"/hivenet_router/inference/1.0.0"
    assert plan.set_fields == ((b"accept-encoding", b"identity"),)
    assert plan.request_id_name == b"x-request-id"
    assert {b"set-cookie", b"strict-transport-security", b"refresh"} <= set(plan.drop_reply_fields)
    assert plan.stream_fields == ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
    assert b"authorization" not in plan.drop_fields
    assert not plan.relay_any_status


async def test_the_clients_credentials_stay_here_where_the_operator_says_so() -> None:
    plan = await plan_for(CHAT_COMPLETIONS, strips_authorization=True)
    assert {b"authorization", b"x-api-key"} <= set(plan.drop_fields)


async def test_plans_are_made_once() -> None:
    rooms = Rooms()
    rooms.join(A)
    first, second = rooms.chat(), rooms.chat()
    await forwarded(rooms, first)
    await forwarded(rooms, second)
    assert first.forwards[0].plan is second.forwards[0].plan
