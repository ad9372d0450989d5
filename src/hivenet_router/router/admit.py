"""May this request come in now, and what does it reserve?

Without keys there are no quotas, and without a budget in a policy there is nothing to reserve: everything is admitted
and the lease is empty. Source: signals.md §8; http-api.md §2.2.
"""

from types import TracebackType
from typing import Final

from hivenet_router.router.stages import Admitted, Identified


class Admission:
    """A request that has been let in; what it reserved is given back at the end of the block, however that comes."""

    __slots__ = ("_admitted",)

    def __init__(self, admitted: Admitted) -> None:
        self._admitted: Final = admitted

    def __enter__(self) -> Admitted:
        return self._admitted

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


def admit(visitor: Identified) -> Admission:
    """The request, let in for the length of a block."""
    return Admission(Admitted(visitor.request, visitor.caller))
