"""May this request come in now, and what does it reserve?

Without keys there are no quotas, and without a budget in a policy there is nothing to reserve: everything is admitted
and the lease is empty. Source: signals.md §8; http-api.md §2.2.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hivenet_router.router.stages import Admitted, Identified


@contextmanager
def admit(visitor: Identified) -> Iterator[Admitted]:
    """The request, let in; what it reserved is given back at the end of the block, however that comes."""
    yield Admitted(visitor.request, visitor.caller)
