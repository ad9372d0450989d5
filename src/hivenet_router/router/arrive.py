"""What has come to the door, and is it a request that can be read?

Finds the route, reads nothing but what the data plane has already read off the body, and says no where it must. The
path table is a security boundary: what is not in it never reaches an agent.
Source: http-api.md §1, §3, §15 items 21 and 27; field-cases.md O-12.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import ModelName
from hivenet_router.names import headers, paths
from hivenet_router.names.errors import ErrorCode
from hivenet_router.names.paths import INFERENCE_PATHS, InferencePath
from hivenet_router.ports import ClientGone, Exchange
from hivenet_router.router.refuse import STOPPING, Refusal, refuse
from hivenet_router.router.stages import Request

MODEL_NAME_BYTES_MAX: Final = 256
_READING_METHODS: Final = ("GET", "HEAD")
_REDIRECT_TOKEN: Final = "rt"
UNMATCHED: Final = "unmatched"


@dataclass(frozen=True, slots=True)
class ToInference:
    """The request goes the walk."""

    path: InferencePath
    route: str


@dataclass(frozen=True, slots=True)
class ToControl:
    """The request is for the control app."""

    route: str


@dataclass(frozen=True, slots=True)
class ToPreflight:
    """A browser asks what it may send."""

    route: ClassVar[str] = UNMATCHED


@dataclass(frozen=True, slots=True)
class ToNowhere:
    """No such path, or not with this method."""

    refusal: Refusal
    route: ClassVar[str] = UNMATCHED


Way = ToInference | ToControl | ToPreflight | ToNowhere
"""The `route` of each is the template that the path matched, for metrics."""

_TO_INFERENCE: Final = {path: ToInference(inference, path) for path, inference in INFERENCE_PATHS.items()}


BODIES_WANTED: Final = [(b"POST", path.encode() + slash) for path in INFERENCE_PATHS for slash in (b"", b"/")]
"""What is read on before it is answered; everything else is answered by its method and path."""


def way_of(method: str, path: str) -> Way:
    """Where a request with this method and path goes; one trailing slash is as good as none."""
    if method == "OPTIONS":
        return ToPreflight()
    if len(path) > 1 and path.endswith("/"):
        path = path[:-1]
    inference = _TO_INFERENCE.get(path)
    if inference is not None:
        return inference if method == "POST" else ToNowhere(_method_not_allowed(method, path, "POST"))
    route = _control_route(path)
    if route is None:
        return ToNowhere(refuse(ErrorCode.NOT_FOUND, f"there is no {path[:128]!r} here"))
    if method in _READING_METHODS:
        return ToControl(route)
    return ToNowhere(_method_not_allowed(method, path, "GET, HEAD"))


def _control_route(path: str) -> str | None:
    if path in (paths.HEALTH, paths.MODELS):
        return path
    return f"{paths.MODELS}/*model" if path.startswith(f"{paths.MODELS}/") else None


def _method_not_allowed(method: str, path: str, allowed: str) -> Refusal:
    plain = refuse(ErrorCode.METHOD_NOT_ALLOWED, f"{path} takes {allowed}, not {method[:16]}")
    return Refusal(plain.reason, [(headers.ALLOW.encode(), allowed.encode())])


def _as_it_is(model: ModelName) -> ModelName:
    """What a model is called where names have one form only."""
    return model


def read(
    exchange: Exchange,
    path: InferencePath,
    *,
    request_timeout_s: float,
    named: Callable[[ModelName], ModelName] = _as_it_is,
    now: Monotonic,
) -> Request:
    """The inference request that has arrived; its model by the name under which it is `named` here, its body as it is.

    Raises: Refusal when its body is not there, is not JSON that every reader reads alike, or names no model; ClientGone
    when there is nobody any more to answer.
    """
    if exchange.finished is not None:
        raise ClientGone
    arrived = exchange.arrived
    if arrived.problem is not None:
        raise _body_problem(arrived.problem)
    model = arrived.model
    if not model:
        if arrived.digest is None:
            raise refuse(ErrorCode.REQUEST_INVALID, f"the body cannot be read: {arrived.digest_error or 'it is empty'}")
        raise refuse(ErrorCode.REQUEST_INVALID, 'the body must name a model: "model" is missing or empty')
    if len(model.encode()) > MODEL_NAME_BYTES_MAX:
        raise refuse(ErrorCode.REQUEST_INVALID, f"the model's name is longer than {MODEL_NAME_BYTES_MAX} bytes")
    deadline = Monotonic(now - arrived.age_s + request_timeout_s)
    return Request(exchange, path, named(ModelName(model)), _target(path, arrived.query), deadline)


def _target(path: InferencePath, query: str) -> bytes:
    """Path and query for the backend; a redirect token is nobody's business but a router's."""
    if query:
        query = "&".join(part for part in query.split("&") if part.partition("=")[0] != _REDIRECT_TOKEN)
    return f"{path.path}?{query}".encode() if query else path.path.encode()


def _body_problem(problem: str) -> Refusal:
    match problem:
        case "too_large":
            return refuse(ErrorCode.REQUEST_INVALID, "the body is larger than this router takes", status=413)
        case "incomplete":
            return refuse(ErrorCode.REQUEST_INVALID, "the connection was closed before the whole body had come")
        case "bad_chunk":
            return refuse(ErrorCode.REQUEST_INVALID, "the body's chunked framing is malformed")
        case "overloaded":
            text = "this router holds as many request bodies as it may; try again shortly"
            return refuse(ErrorCode.QUEUE_FULL, text)
        case "stopping":
            return Refusal(STOPPING)
        case _:
            return refuse(ErrorCode.REQUEST_TIMEOUT, "the body did not arrive within the time allowed", status=408)
