"""What does the router answer about itself?

An ordinary ASGI app; inference never passes through it.
Source: http-api.md §1.2, §8; decisions.md 10.
"""

from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hivenet_router.core.ids import ModelName
from hivenet_router.core.refusals import reason
from hivenet_router.core.registry import Registry
from hivenet_router.names import headers, paths
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import Dialect
from hivenet_router.ports import Clock
from hivenet_router.router.catalog import model_detail, model_list
from hivenet_router.router.pages import Press
from hivenet_router.router.refuse import envelope

_NOT_FOUND: Final = 404
_JSON: Final = "application/json"


def control_app(registry: Registry, clock: Clock) -> Starlette:
    """The app behind `/health` and `/v1/models`."""
    press = Press()

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(_request: Request) -> Response:
        page = await press.page(paths.MODELS, lambda: model_list(registry, now=clock.now(), unix=clock.unix()))
        return Response(page, media_type=_JSON)

    async def model(request: Request) -> Response:
        name = registry.named(_model_of(request))
        if not registry.agents_of(name):
            raise HTTPException(_NOT_FOUND)
        page = await press.page(
            f"{paths.MODELS}/{name}", lambda: model_detail(registry, name, now=clock.now(), unix=clock.unix())
        )
        if not page:
            raise HTTPException(_NOT_FOUND)
        return Response(page, media_type=_JSON)

    return Starlette(
        routes=[
            Route(paths.HEALTH, health),
            Route(paths.MODELS, models),
            Route(paths.MODELS + "/{model:path}", model),
        ],
        # Also what matches no route: the door lets only these paths through, so it is a name no route can hold.
        exception_handlers={_NOT_FOUND: _unknown_model},
    )


async def _unknown_model(request: Request, _error: Exception) -> Response:
    why = reason(ErrorCode.MODEL_NOT_FOUND, f"no agent serves the model '{_model_of(request)}'")
    body = envelope(why, Dialect.OPENAI, request.headers.get(headers.X_REQUEST_ID, ""))
    return Response(body, why.status, media_type="application/json")


def _model_of(request: Request) -> ModelName:
    """The name in the path, decoded: slashes and colons belong to it however they were written."""
    return ModelName(str(request.scope["path"]).removeprefix(f"{paths.MODELS}/"))
