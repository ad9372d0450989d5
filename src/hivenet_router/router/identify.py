"""Who asks, and may they use this model?

Where no keys are configured everybody is the tenant `default` and may use every model.
Source: http-api.md §2.6; configuration.md §4.4.
"""

from hivenet_router.router.stages import NOBODY_IN_PARTICULAR, Identified, Request


def identify(request: Request) -> Identified:
    """The request with its caller."""
    return Identified(request, NOBODY_IN_PARTICULAR)
