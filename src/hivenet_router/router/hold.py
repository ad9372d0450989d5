"""Should this request wait while its model wakes?

A model is held only where a sibling map places it here with scale-from-zero; without a map nothing is held.
Source: cross-site.md, hold at zero.
"""

from hivenet_router.router.stages import Identified


async def hold(visitor: Identified) -> Identified:
    """The request, once nothing keeps it from being admitted."""
    return visitor
