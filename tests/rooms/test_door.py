"""Which room an arrival is led to, what browsers are told, and what a fault costs."""

import asyncio
import json
from collections.abc import Coroutine

import pytest
from structlog.testing import capture_logs
from tests.core.making import A
from tests.fakes.exchange import Answers, FakeArrived, FakeDigest, FakeExchange
from tests.rooms.building import Rooms, turns

from hivenet_router.core.sessions import SessionStore
from hivenet_router.ports import Exchange, Finished
from hivenet_router.router.attend import AttendingRoom
from hivenet_router.router.door import STANDING_FIELDS, Door

ASKED_BY_SDKS = b"authorization,content-type,x-api-key,anthropic-version,anthropic-beta,x-stainless-os"


class Entrance:
    """A door with rooms behind it, and apps that write down what they were asked."""

    def __init__(self) -> None:
        self.rooms = Rooms()
        self.control_paths: list[str] = []
        self.metrics_paths: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        attending = AttendingRoom(
            self.rooms.registry,
            SessionStore(lambda: "token"),
            self.rooms.clock,
            self.rooms.recorder,
            self.rooms.rejections,
            welcome=self.rooms.plane.welcome,
        )
        self.door = Door(self._spawn, self.rooms.house, self._control, attending, self._metrics)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def _control(self, exchange: Exchange, path: str) -> Finished:
        self.control_paths.append(path)
        return await exchange.respond(200, [], b"")

    async def _metrics(self, exchange: Exchange, path: str) -> Finished:
        self.metrics_paths.append(path)
        return await exchange.respond(200, [], b"")

    def begin(self, arrived: FakeArrived, *, respond_takes_s: float = 0.0) -> FakeExchange:
        exchange = self.rooms.plane.arrive(arrived, respond_takes_s=respond_takes_s)
        self.door.arrival(exchange)
        return exchange

    async def lead(self, arrived: FakeArrived) -> FakeExchange:
        exchange = self.begin(arrived)
        await asyncio.wait(self.tasks)
        return exchange

    @property
    def http_ends(self) -> list[tuple[str, str, int]]:
        """Method, route and status of what has ended."""
        return [end[:3] for end in self.rooms.recorder.http_ends]


async def test_an_inference_request_goes_the_walk() -> None:
    entrance = Entrance()
    entrance.rooms.join(A)
    exchange = await entrance.lead(FakeArrived(path="/v1/chat/completions/", digest=FakeDigest("m")))
    assert [attempt.target for attempt in exchange.forwards] == [b"/v1/chat/completions"]
    assert entrance.http_ends == [("POST", "/v1/chat/completions", 200)]
    assert entrance.rooms.recorder.outcomes == ["served"]


@pytest.mark.parametrize(
    ("path", "told", "route"),
    [
        ("/health", "/health", "/health"),
        ("/v1/models/", "/v1/models", "/v1/models"),
        ("/v1/models/org%2Fname:7b/", "/v1/models/org%2Fname:7b", "/v1/models/*model"),
        ("/v1/models//", "/v1/models/", "/v1/models/*model"),
    ],
)
async def test_the_control_app_is_asked_without_one_slash_at_the_end(path: str, told: str, route: str) -> None:
    entrance = Entrance()
    await entrance.lead(FakeArrived(method="HEAD", path=path))
    assert entrance.control_paths == [told]
    assert entrance.http_ends == [("HEAD", route, 200)]


async def test_the_other_listeners_lead_to_their_own_apps_and_are_no_traffic_of_the_api() -> None:
    entrance = Entrance()
    await entrance.lead(FakeArrived(listener="metrics", method="GET", path="/metrics"))
    peer = await entrance.lead(FakeArrived(listener="peers", path="/v1/chat/completions", peer=A))
    assert entrance.metrics_paths == ["/metrics"]
    assert peer.answered is not None
    assert peer.answered.status == 404
    assert entrance.http_ends == []


@pytest.mark.parametrize("path", ["/v1/messages", "/nowhere", "*"])
async def test_a_preflight_allows_every_header_that_is_asked_for(path: str) -> None:
    entrance = Entrance()
    asked = [(b"Access-Control-Request-Headers", ASKED_BY_SDKS)]
    exchange = await entrance.lead(FakeArrived(method="OPTIONS", path=path, headers=asked))
    assert exchange.answered is not None
    assert (exchange.answered.status, exchange.answered.body) == (204, b"")
    assert exchange.answered.field("access-control-allow-headers") == ASKED_BY_SDKS.decode()
    assert "POST" in (exchange.answered.field("access-control-allow-methods") or "")
    assert entrance.http_ends == [("OPTIONS", "unmatched", 204)]


async def test_a_preflight_that_asks_for_nothing_is_told_the_usual_headers() -> None:
    exchange = await Entrance().lead(FakeArrived(method="OPTIONS"))
    assert exchange.answered is not None
    assert "X-Api-Key" in (exchange.answered.field("access-control-allow-headers") or "")


def test_browsers_may_read_every_answer_and_its_own_headers() -> None:
    fields = dict(STANDING_FIELDS)
    assert fields[b"access-control-allow-origin"] == b"*"
    assert b"X-Request-ID" in fields[b"access-control-expose-headers"]


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/nowhere", 404, None),
        ("CONNECT", "example.org:443", 404, None),
        ("GET", "/v1/chat/completions", 405, "POST"),
        ("TRACE", "/v1/models", 405, "GET, HEAD"),
    ],
)
async def test_what_leads_nowhere_is_answered_in_the_envelope(
    method: str, path: str, status: int, allow: str | None
) -> None:
    entrance = Entrance()
    exchange = await entrance.lead(FakeArrived(method=method, path=path))
    assert exchange.answered is not None
    assert (exchange.answered.status, exchange.answered.field("allow")) == (status, allow)
    assert json.loads(exchange.answered.body)["error"]["type"]
    assert entrance.http_ends == [(method, "unmatched", status)]


async def test_what_leads_nowhere_below_the_anthropic_paths_is_answered_in_their_envelope() -> None:
    exchange = await Entrance().lead(FakeArrived(path="/v1/messages/batches"))
    assert exchange.answered is not None
    assert json.loads(exchange.answered.body)["type"] == "error"


async def test_a_stopping_router_refuses_inference_with_a_time_to_come_again_and_still_says_that_it_lives() -> None:
    entrance = Entrance()
    entrance.rooms.join(A)
    entrance.rooms.placing.close()
    exchange = await entrance.lead(FakeArrived(path="/v1/messages", digest=FakeDigest("m")))
    assert exchange.answered is not None
    assert (exchange.answered.status, exchange.answered.field("retry-after")) == (503, "1")
    assert json.loads(exchange.answered.body)["error"]["type"] == "overloaded_error"
    health = await entrance.lead(FakeArrived(method="GET", path="/health"))
    assert health.answered is not None
    assert health.answered.status == 200


@pytest.mark.parametrize(
    ("arrived", "route"),
    [
        (("POST", "/v1/chat/completions"), "/v1/chat/completions"),
        (("GET", "/health"), "/health"),
        (("OPTIONS", "/health"), "unmatched"),
        (("GET", "/nowhere"), "unmatched"),
    ],
)
async def test_a_client_that_leaves_first_is_counted_with_499(arrived: tuple[str, str], route: str) -> None:
    entrance = Entrance()
    method, path = arrived
    exchange = entrance.begin(FakeArrived(method=method, path=path), respond_takes_s=1.0)
    await turns()
    exchange.leave()
    await asyncio.wait(entrance.tasks)
    assert entrance.http_ends == [(method, route, 499)]
    assert entrance.rooms.is_at_rest


async def test_a_fault_in_an_app_costs_its_exchange_and_no_other() -> None:
    entrance = Entrance()

    async def broken(exchange: Exchange, path: str) -> Finished:
        raise RuntimeError("broken")

    entrance.door._control = broken
    with capture_logs() as logs:
        exchange = await entrance.lead(FakeArrived(method="GET", path="/health"))
    assert exchange.finished is not None
    assert exchange.finished.outcome == "aborted"
    assert [line["event"] for line in logs] == ["exchange_failed"]
    assert entrance.http_ends == [("GET", "/health", 500)]
    assert all(task.exception() is None for task in entrance.tasks)
    assert entrance.rooms.is_at_rest


async def test_what_a_cancelled_task_led_does_not_go_on_without_it() -> None:
    entrance = Entrance()
    entrance.rooms.join(A, Answers(is_stream=True, lasts_s=100.0))
    exchange = entrance.begin(FakeArrived(digest=FakeDigest("m")))
    await asyncio.sleep(1)
    entrance.tasks[0].cancel()
    await asyncio.wait(entrance.tasks)
    assert exchange.finished is not None
    assert exchange.finished.outcome == "stream_aborted"
    assert entrance.rooms.is_at_rest
