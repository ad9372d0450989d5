"""Should another site serve this request?

Without `--site-id` there are no other sites, so every request stays; its scope and token headers are only forwarded.
Source: http-api.md §10; cross-site.md.
"""

from hivenet_router.router.stages import Identified


def redirect(visitor: Identified) -> Identified:
    """The request, if it is to be served here."""
    return visitor
