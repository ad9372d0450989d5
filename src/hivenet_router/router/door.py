"""Which room does an arrival belong to?

Every exchange of every listener begins here and is led to its end by one coroutine; see `led.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import structlog

from hivenet_router.names import headers
from hivenet_router.ports import AnswerWith, Exchange, Finished
from hivenet_router.router import attend, refuse
from hivenet_router.router.arrive import ToControl, ToInference, ToNowhere, ToPreflight, Way, way_of
from hivenet_router.router.attend import AttendingRoom
from hivenet_router.router.settle import status_of
from hivenet_router.router.walk import House, walk

log = structlog.get_logger("api")

API: Final = "api"
METRICS: Final = "metrics"
PEERS: Final = attend.PEERS

_PREFLIGHT_METHODS: Final = b"GET, HEAD, POST, PUT, DELETE, OPTIONS"
_PREFLIGHT_MAX_AGE_S: Final = b"600"
_USUAL_HEADERS: Final = b"Authorization, Content-Type, X-Api-Key, X-Request-ID, X-Session-ID, X-Hivenet-Scope"

STANDING_FIELDS: Final = [
    (headers.CORS_ALLOW_ORIGIN.encode(), b"*"),
    (
        headers.CORS_EXPOSE_HEADERS.encode(),
        b"X-Request-ID, X-RateLimit-Remaining-Requests, X-RateLimit-Remaining-Tokens, Retry-After, traceparent",
    ),
]
"""On every answer of the API listener, in place of what a backend says. Source: http-api.md §15 items 11 and 28."""


class Door:
    """Leads arrivals to their rooms."""

    def __init__(
        self,
        lead: Callable[[Coroutine[None, None, None]], None],
        house: House,
        control: AnswerWith,
        attending: AttendingRoom,
        metrics: AnswerWith,
    ) -> None:
        self._lead = lead
        self._house = house
        self._control = control
        self._attending = attending
        self._metrics = metrics

    def arrival(self, exchange: Exchange) -> None:
        """Called for each arrival, on the loop."""
        self._lead(self._lead_safely(exchange))

    async def _lead_safely(self, exchange: Exchange) -> None:
        """A fault of ours costs the request it happened on, and no other."""
        try:
            await self._room_for(exchange)
        except Exception:
            log.exception("exchange_failed", listener=exchange.arrived.listener, path=exchange.arrived.path)
            exchange.arrived.abort()
        except asyncio.CancelledError:
            # What it held has been given back, so nothing of it may go on.
            exchange.arrived.abort()
            raise

    def _room_for(self, exchange: Exchange) -> Coroutine[None, None, None]:
        listener = exchange.arrived.listener
        if listener == PEERS:
            return self._attending.attend(exchange)
        return self._answer(self._metrics, exchange) if listener == METRICS else self._api(exchange)

    async def _answer(self, app: AnswerWith, exchange: Exchange) -> None:
        await app(exchange, exchange.arrived.path)

    async def _api(self, exchange: Exchange) -> None:
        arrived = exchange.arrived
        method = arrived.method
        way = way_of(method, arrived.path)
        recorder, route = self._house.recorder, way.route
        recorder.http_began(method, route)
        status = 500
        try:
            status = await self._go(way, exchange)
        finally:
            recorder.http_ended(method, route, status, arrived.age_s)

    def _go(self, way: Way, exchange: Exchange) -> Coroutine[None, None, int]:
        match way:
            case ToInference(path):
                return walk(exchange, path, self._house)
            case ToControl():
                return _counted(self._control(exchange, exchange.arrived.path.removesuffix("/")))
            case ToPreflight():
                return _counted(exchange.respond(204, _preflight_fields(exchange), b""))
            case ToNowhere(refusal):
                return _counted(refuse.answer(exchange, refusal, refuse.dialect_of(exchange.arrived.path)))


async def _counted(answer: Awaitable[Finished]) -> int:
    return status_of(await answer)


def _preflight_fields(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    """What a browser may send: the headers it asks for, or the usual ones."""
    asked = exchange.arrived.field(headers.CORS_REQUEST_HEADERS)
    return [
        (headers.CORS_ALLOW_METHODS.encode(), _PREFLIGHT_METHODS),
        (headers.CORS_ALLOW_HEADERS.encode(), asked or _USUAL_HEADERS),
        (headers.CORS_MAX_AGE.encode(), _PREFLIGHT_MAX_AGE_S),
    ]
