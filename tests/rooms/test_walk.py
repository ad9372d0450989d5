"""The whole way of a request: served, retried, refused, left, or lost by a fault of ours."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs
from tests.core.making import MODEL, A, B, C
from tests.fakes.exchange import Answers, Fails, FakeArrived, FakeExchange, FakeUsage
from tests.rooms.building import Rooms, turns

from hivenet_router.core.agent import Agent
from hivenet_router.core.ids import PeerId
from hivenet_router.names.paths import EMBEDDINGS, MESSAGES


def asked(exchange: FakeExchange) -> list[object]:
    """The agents that were asked, in order."""
    return [attempt.to for attempt in exchange.forwards]


def error_of(exchange: FakeExchange) -> tuple[int, str, str]:
    """Status, code and message of the refusal that the client was sent."""
    assert exchange.answered is not None
    error = json.loads(exchange.answered.body)["error"]
    return exchange.answered.status, error["code"], error["message"]


def failures(agent: Agent) -> int:
    return agent.outcomes.failures


async def test_a_request_is_served_by_the_agent_of_its_model() -> None:
    rooms = Rooms()
    agent = rooms.join(A, Answers(head_after_s=0.5, lasts_s=1.0, usage=FakeUsage(7, 3)))
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 200
    assert asked(exchange) == [A]
    assert exchange.answered is None
    [end] = rooms.recorder.ends
    assert (end.outcome, end.model, end.agent, end.tenant) == ("served", MODEL, agent, "default")
    assert (end.input_tokens, end.output_tokens) == (7, 3)
    assert end.duration_s == pytest.approx(1.5)
    assert rooms.is_at_rest


@pytest.mark.parametrize(
    "failure",
    [
        Fails("reset"),
        Fails("truncated", head_after_s=0.1),
        Fails("truncated", head_after_s=0.1, is_stream=True),
        Fails("malformed"),
        Fails("busy"),
        Fails("status", status=500, head_after_s=0.1),
        Fails("status", status=503, body=b"loading"),
        Fails("status", status=429),
    ],
)
async def test_a_failure_that_may_go_better_elsewhere_is_tried_on_another_agent(failure: Fails) -> None:
    rooms = Rooms()
    rooms.join(A, failure)
    rooms.join(B)
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 200
    assert asked(exchange) == [A, B]
    assert rooms.recorder.outcomes == ["served"]
    assert rooms.recorder.failed == [(A, "default")]
    assert rooms.is_at_rest


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (400, b'{"message":"maximum context length is 8192 tokens"}', (400, "context_length_exceeded")),
        (500, b'{"message":"maximum context length is 8192 tokens"}', (400, "context_length_exceeded")),
        (422, b'{"detail":"temperature must be a number"}', (400, "invalid_parameter")),
        (404, b'{"error":{"message":"no such model"}}', (404, "invalid_parameter")),
        (413, b"too large", (413, "invalid_parameter")),
    ],
)
async def test_a_fault_of_the_request_is_told_at_once_and_held_against_no_agent(
    status: int, body: bytes, told: tuple[int, str]
) -> None:
    rooms = Rooms()
    agents = [rooms.join(peer, Fails("status", status=status, body=body)) for peer in (A, B)]
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == told[0]
    assert error_of(exchange)[:2] == told
    assert asked(exchange) == [A]
    assert [failures(agent) for agent in agents] == [0, 0]
    assert rooms.recorder.exhausted == []
    assert rooms.is_at_rest


async def test_an_anthropic_complaint_is_told_with_its_words_in_the_anthropic_envelope() -> None:
    rooms = Rooms()
    said = b'{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: field required"}}'
    rooms.join(A, Fails("status", status=400, body=said))
    exchange = rooms.chat(path=MESSAGES)
    assert await rooms.walk(exchange) == 400
    assert exchange.answered is not None
    told = json.loads(exchange.answered.body)
    assert told["type"] == "error"
    assert (told["error"]["type"], told["error"]["message"]) == ("invalid_request_error", "max_tokens: field required")


async def test_when_all_tries_fail_the_last_error_is_reported_with_its_retry_after() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("reset"))
    rooms.join(B, Fails("status", status=503, fields=[(b"retry-after", b"7")], body=b'{"message":"loading weights"}'))
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 503
    assert error_of(exchange) == (503, "backend_unavailable", "loading weights")
    assert exchange.answered is not None
    assert exchange.answered.field("Retry-After") == "7"
    assert rooms.recorder.outcomes == ["backend_unavailable"]
    assert rooms.recorder.exhausted == [(MODEL, "default")]
    assert rooms.is_at_rest


async def test_a_request_has_three_tries() -> None:
    rooms = Rooms()
    for peer in (A, B, C, PeerId("12D3KooWD")):
        rooms.join(peer, Fails("status", status=500, body=b"oops"))
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 502
    assert asked(exchange) == [A, B, C]
    assert error_of(exchange) == (502, "backend_error", "oops")
    assert rooms.recorder.exhausted == [(MODEL, "default")]


async def test_a_dead_link_is_forgiven_once_for_each_agent_and_request() -> None:
    rooms = Rooms(tries_per_step_max=2)
    agent = rooms.join(A, Fails("no_link", is_link_down=True))
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 503
    assert asked(exchange) == [A, A]
    assert error_of(exchange)[1] == "agent_disconnected"
    assert agent.outcomes.consecutive_failures == 0
    assert rooms.recorder.link_resets == [(MODEL, "forward_failure")]


async def test_a_link_that_was_dead_for_a_moment_costs_no_try() -> None:
    rooms = Rooms(tries_per_step_max=1)
    rooms.join(A, Fails("reset", is_link_down=True), Answers())
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 200
    assert asked(exchange) == [A, A]


async def test_with_one_agent_that_fails_its_error_is_told_and_not_that_nobody_is_left() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("status", status=500, body=b"oops"))
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 502
    assert asked(exchange) == [A]


async def test_a_retry_waits_for_an_agent_that_is_full_and_comes_before_who_arrived_later() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("reset", after_s=5.0), Answers(head_after_s=30.0))
    rooms.join(B, Answers(head_after_s=10.0))
    first, elsewhere, later, last = (rooms.chat() for _ in range(4))
    walking = [rooms.walk(first), rooms.walk(elsewhere)]
    await turns()
    walking += [rooms.walk(later), rooms.walk(last)]
    await asyncio.sleep(12)
    # `later` got what `first` gave back, and `first` got the next free agent although `last` waited for it already.
    assert [asked(exchange) for exchange in (first, later, last)] == [[A, B], [A], []]
    assert await asyncio.gather(*walking) == [200] * 4
    assert rooms.is_at_rest


async def test_an_agent_that_was_full_before_a_wait_is_asked_again_after_it() -> None:
    rooms = Rooms()
    rooms.join(A, Answers(head_after_s=0.5), Fails("reset"))
    rooms.join(B, Fails("busy"), Answers())
    elsewhere, exchange = rooms.chat(), rooms.chat()
    began = rooms.clock.now()
    walking = [rooms.walk(elsewhere), rooms.walk(exchange)]
    assert await asyncio.gather(*walking) == [200, 200]
    assert asked(exchange) == [B, A, B]
    assert rooms.clock.now() - began == pytest.approx(0.5)
    assert rooms.is_at_rest


async def test_a_request_whose_only_agent_turned_it_away_as_full_waits_for_it() -> None:
    """decisions.md 2 and 21."""
    rooms = Rooms()
    rooms.join(A, Answers(head_after_s=0.5), Fails("busy"), Answers(), capacity=9)
    walking = [rooms.walk(rooms.chat()), rooms.walk(rooms.chat())]
    began = rooms.clock.now()
    assert await asyncio.gather(*walking) == [200, 200]
    assert rooms.clock.now() - began == pytest.approx(0.5)
    assert rooms.is_at_rest


async def test_the_time_limit_counts_from_the_arrival_over_all_attempts() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("reset", after_s=40.0))
    rooms.join(B, Answers(head_after_s=40.0))
    exchange = rooms.chat()
    began = rooms.clock.now()
    assert await rooms.walk(exchange) == 504
    assert rooms.clock.now() - began == pytest.approx(60.0)
    assert exchange.forwards[1].within_s == pytest.approx(20.0)
    assert error_of(exchange)[1] == "request_timeout"
    assert rooms.recorder.outcomes == ["request_timeout"]
    assert rooms.is_at_rest


async def test_an_unknown_model_is_404_in_the_clients_dialect() -> None:
    rooms = Rooms()
    exchange = rooms.chat("elsewhere", path=MESSAGES)
    assert await rooms.walk(exchange) == 404
    assert exchange.answered is not None
    assert json.loads(exchange.answered.body)["error"]["type"] == "not_found_error"
    [end] = rooms.recorder.ends
    assert (end.model, end.outcome, end.was_routed) == ("elsewhere", "model_not_found", False)


async def test_a_model_that_is_served_for_something_else_is_the_requests_fault() -> None:
    rooms = Rooms()
    rooms.join(A, capability="llm")
    exchange = rooms.chat(path=EMBEDDINGS)
    assert await rooms.walk(exchange) == 400
    status, code, message = error_of(exchange)
    assert (status, code) == (400, "request_invalid")
    assert "llm" in message


async def test_a_body_without_a_model_never_reaches_an_agent() -> None:
    rooms = Rooms()
    rooms.join(A)
    exchange = rooms.chat(None)
    assert await rooms.walk(exchange) == 400
    assert asked(exchange) == []
    assert rooms.recorder.outcomes == ["request_invalid"]


async def test_a_stream_that_breaks_off_is_not_tried_again() -> None:
    rooms = Rooms()
    agent = rooms.join(A, Answers(is_stream=True, lasts_s=1.0, outcome="backend_lost"))
    rooms.join(B)
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 200
    assert asked(exchange) == [A]
    assert rooms.recorder.outcomes == ["stream_cut"]
    assert failures(agent) == 1
    assert rooms.is_at_rest


async def test_a_request_whose_client_left_before_anybody_looked_at_it_is_only_counted() -> None:
    rooms = Rooms()
    rooms.join(A)
    exchange = rooms.chat()
    exchange.leave()
    assert await rooms.walk(exchange) == 499
    assert asked(exchange) == []
    [end] = rooms.recorder.ends
    assert (end.outcome, end.was_routed) == ("client_gone", False)


async def test_who_leaves_the_queue_never_reaches_an_agent() -> None:
    rooms = Rooms()
    rooms.join(A, Answers(head_after_s=8.0))
    working, waiting = rooms.chat(), rooms.chat()
    first, second = rooms.walk(working), rooms.walk(waiting)
    await asyncio.sleep(0.5)
    waiting.leave()
    assert await second == 499
    assert await first == 200
    assert asked(waiting) == []
    assert rooms.recorder.outcomes == ["client_gone", "served"]
    assert rooms.is_at_rest


async def test_a_client_that_leaves_gives_its_agent_to_the_next_at_once() -> None:
    rooms = Rooms()
    rooms.join(A, Answers(head_after_s=30.0), Answers())
    leaving, next_one = rooms.chat(), rooms.chat()
    first, second = rooms.walk(leaving), rooms.walk(next_one)
    await asyncio.sleep(0.5)
    leaving.leave()
    began = rooms.clock.now()
    assert await second == 200
    assert rooms.clock.now() == began
    assert await first == 499


async def test_no_retry_is_made_once_the_client_has_left() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("reset", after_s=1.0))
    rooms.join(B)
    exchange = rooms.chat()
    walking = rooms.walk(exchange)
    await asyncio.sleep(0.5)
    asyncio.get_running_loop().call_at(rooms.clock.now() + 0.5, exchange.leave)
    assert await walking == 499
    assert asked(exchange) == [A]


async def test_an_agent_that_is_slow_is_blamed_and_one_whose_client_left_is_not() -> None:
    rooms = Rooms()
    slow = rooms.join(A, Answers(head_after_s=100.0))
    assert await rooms.walk(rooms.chat()) == 504
    assert failures(slow) == 1
    exchange = rooms.chat()
    walking = rooms.walk(exchange)
    await asyncio.sleep(30)
    exchange.leave()
    assert await walking == 499
    assert failures(slow) == 1


async def test_a_fault_of_ours_is_500_logged_and_settled() -> None:
    rooms = Rooms()
    rooms.join(A)
    # A script that no agent can follow: the fake itself falls over it.
    rooms.plane.scripts[A] = [None]  # type: ignore[list-item]
    exchange = rooms.chat()
    with capture_logs() as logs:
        assert await rooms.walk(exchange) == 500
    assert error_of(exchange)[:2] == (500, "backend_error")
    assert [line["event"] for line in logs] == ["request_failed"]
    assert rooms.recorder.outcomes == ["backend_error"]
    assert rooms.is_at_rest


async def test_a_stopping_router_refuses_and_says_when_to_come_again() -> None:
    rooms = Rooms()
    rooms.join(A)
    rooms.placing.close()
    exchange = rooms.chat()
    assert await rooms.walk(exchange) == 503
    assert exchange.answered is not None
    assert exchange.answered.field("Retry-After") == "1"
    assert rooms.recorder.outcomes == ["no_agents_available"]


async def test_a_retry_while_the_router_stops_reports_what_the_agent_said() -> None:
    rooms = Rooms()
    rooms.join(A, Fails("status", status=500, body=b"oops", after_s=1.0))
    rooms.join(B)
    exchange = rooms.chat()
    walking = rooms.walk(exchange)
    await turns()
    rooms.placing.close()
    assert await walking == 502
    assert error_of(exchange)[2] == "oops"


@pytest.mark.parametrize(
    ("problem", "status"),
    [("slow", 408), ("incomplete", 400), ("bad_chunk", 400), ("too_large", 413), ("overloaded", 503)],
)
async def test_bodies_that_did_not_come_are_counted_at_the_edge_and_told_once(problem: str, status: int) -> None:
    rooms = Rooms()
    with capture_logs() as logs:
        for _ in range(5):
            assert await rooms.walk(rooms.plane.arrive(FakeArrived(problem=problem))) == status
    [line] = logs
    assert (line["event"], line["why"], line["status"]) == ("request_rejected", problem, status)
    assert (line["listener"], line["client"]) == ("api", "127.0.0.1")
    assert rooms.recorder.rejections == {("api", problem): 5}
