"""The control app as clients meet it: through the door and the ASGI adapter."""

import asyncio
import json
from dataclasses import replace
from typing import Final

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from structlog.testing import capture_logs
from tests.core.making import MODEL, A, B, described
from tests.fakes.clock import VirtualClock
from tests.fakes.exchange import REQUEST_ID, Answered, FakeArrived, FakeExchange

from hivenet_router.adapters.asgi import AsgiApp, answer_with
from hivenet_router.core.ids import ModelName
from hivenet_router.core.registry import Registry
from hivenet_router.router.arrive import ToControl, way_of
from hivenet_router.router.control import control_app
from hivenet_router.router.led import Led

NAMED: Final = ModelName("org/name:7b")
CHINESE: Final = ModelName("模型")


def registry_with(*models: ModelName) -> Registry:
    registry = Registry()
    clock = VirtualClock()
    for model, peer in zip(models, (A, B), strict=False):
        registry.link_up(peer)
        registry.register(peer, replace(described(), model=model), now=clock.now())
    return registry


async def get(path: str, registry: Registry, *, method: str = "GET", query: str = "") -> Answered:
    """Ask as the door does, which hands the path on without one trailing slash."""
    assert isinstance(way_of(method, path), ToControl)
    arrived = FakeArrived(method=method, path=path, query=query)
    return await answered_by(control_app(registry, VirtualClock()), arrived, path.removesuffix("/"))


async def answered_by(app: AsgiApp, arrived: FakeArrived, path: str) -> Answered:
    exchange = FakeExchange(arrived)
    await answer_with(app)(exchange, path)
    assert exchange.answered is not None
    return exchange.answered


async def test_an_app_finds_the_task_that_its_framework_wants_also_where_the_exchange_is_led() -> None:
    def blocking(request: Request) -> Response:
        return PlainTextResponse("from another thread")

    exchange, ends = FakeExchange(FakeArrived(method="GET", path="/blocking")), list[BaseException | None]()

    async def work() -> None:
        await answer_with(Starlette(routes=[Route("/blocking", blocking)]))(exchange, "/blocking")

    loop = asyncio.get_running_loop()
    loop.call_soon(Led(work(), lambda led, error: ends.append(error), loop).go_on)
    while not ends:  # noqa: ASYNC110  # threads live in real time, the test's loop does not
        await asyncio.sleep(0)
    assert exchange.answered is not None
    assert (exchange.answered.status, exchange.answered.body) == (200, b"from another thread")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/health/"])
async def test_the_router_says_that_it_lives(method: str, path: str) -> None:
    answer = await get(path, Registry(), method=method, query="x=1")
    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
    assert answer.field("content-type") == "application/json"
    # The data plane writes it, and leaves the body of a HEAD away.
    assert answer.field("content-length") is None


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/"])
async def test_the_list_is_served_with_and_without_a_slash(path: str) -> None:
    answer = await get(path, registry_with(MODEL), query="limit=1000")
    assert [entry["id"] for entry in json.loads(answer.body)["data"]] == [MODEL]


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v1/models/org/name:7b", NAMED),
        ("/v1/models/org%2Fname:7b", NAMED),
        ("/v1/models/org%2fname%3A7b", NAMED),
        ("/v1/models/org/name:7b/", NAMED),
        ("/v1/models/%E6%A8%A1%E5%9E%8B", CHINESE),
        ("/v1/models/模型", CHINESE),
    ],
)
async def test_a_name_is_found_however_it_is_written(path: str, model: ModelName) -> None:
    answer = await get(path, registry_with(NAMED, CHINESE))
    assert answer.status == 200
    assert json.loads(answer.body)["id"] == model


async def test_a_name_with_signs_that_mean_something_in_addresses_is_found() -> None:
    odd = ModelName("a?b#c%d")
    assert (await get("/v1/models/a%3Fb%23c%25d", registry_with(odd))).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/ORG/name:7b",
        "/v1/models/org/name:7b%20",
        "/v1/models/org/name:7b//",
        "/v1/models/org//name:7b",
        "/v1/models//",
        "/v1/models/..%2f",
        "/v1/models/../models",
        "/v1/models/a%0Ab",
        "/v1/models/%FF",
        "/v1/models/%",
    ],
)
async def test_any_other_name_is_404_in_the_envelope(path: str) -> None:
    answer = await get(path, registry_with(NAMED))
    assert answer.status == 404
    assert answer.field("content-type") == "application/json"
    assert json.loads(answer.body)["error"]["code"] == "model_not_found"


async def test_a_head_is_answered_like_a_get() -> None:
    registry = registry_with(NAMED)
    for path in ("/v1/models", "/v1/models/org/name:7b", "/v1/models/unknown"):
        assert await get(path, registry, method="HEAD") == await get(path, registry)


async def test_an_app_reads_the_request_id_that_the_answer_will_carry() -> None:
    seen: list[object] = []

    async def app(scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict)
        seen.extend(value for name, value in scope["headers"] if name == b"x-request-id")

    arrived = FakeArrived(headers=[(b"X-Request-ID", b"no uuid"), (b"Accept", b"*/*")])
    await answered_by(app, arrived, "/health")
    assert seen == [REQUEST_ID.encode()]


async def test_an_app_that_fails_costs_its_request_a_500_and_is_logged() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise RuntimeError("broken")

    with capture_logs() as logs:
        answer = await answered_by(app, FakeArrived(), "/health")
    assert (answer.status, answer.body) == (500, b"")
    assert [line["event"] for line in logs] == ["control_request_failed"]


async def test_an_app_reads_the_body_once_and_then_that_the_client_waits_no_more() -> None:
    messages: list[object] = []

    async def app(scope: object, receive: object, send: object) -> None:
        assert callable(receive)
        messages.extend([await receive(), await receive()])

    await answered_by(app, FakeArrived(content=b"body"), "/health")
    assert messages == [
        {"type": "http.request", "body": b"body", "more_body": False},
        {"type": "http.disconnect"},
    ]


async def test_a_model_of_ollamas_is_found_with_and_without_its_default_tag() -> None:
    """field-cases.md O-24."""
    registry = Registry()
    registry.register(A, replace(described(), model=ModelName("llama3"), engine="ollama"), now=VirtualClock().now())
    plain, tagged, other = [
        await get(f"/v1/models/{name}", registry) for name in ("llama3", "llama3:latest", "llama3:8b")
    ]
    assert (plain.status, tagged.status, other.status) == (200, 200, 404)
    assert tagged.body == plain.body
