"""How far has a request come?

One type for each stage, so that what is not yet admitted cannot be forwarded: it does not type-check. Values only; the
rooms make the next one from the last.
"""

from hivenet_router.core.clock import Monotonic
from hivenet_router.core.ids import ModelName
from hivenet_router.core.values import value
from hivenet_router.names.paths import InferencePath
from hivenet_router.ports import Exchange


@value
class Request:
    """Read and found well-formed: an inference request for a model. `target` is path and query as forwarded."""

    exchange: Exchange
    path: InferencePath
    model: ModelName
    target: bytes
    deadline: Monotonic


@value
class Caller:
    """Who asks. `key_id` is None where keys have no identity of their own."""

    tenant: str
    key_id: str | None = None


NOBODY_IN_PARTICULAR = Caller("default")
"""The caller where no keys are configured. Source: http-api.md §2.6."""


@value
class Identified:
    """A request whose caller is known and may use the model."""

    request: Request
    caller: Caller


@value
class Admitted:
    """A request that has been let in; what it reserved ends with its admission."""

    request: Request
    caller: Caller
