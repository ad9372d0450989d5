"""Why a request will not be served, as a value.

Decisions return it, a room raises it, and one room turns it into bytes in the client's dialect. Status and source come
from the table of error codes unless a backend's own status is to be kept.
"""

from dataclasses import dataclass

from hivenet_router.names.errors import ERROR_RULES, Blame, ErrorCode


@dataclass(frozen=True, slots=True)
class RefusalReason:
    """What the client will be told."""

    code: ErrorCode
    status: int
    message: str
    source: Blame
    retry_after_s: float | None = None


def reason(code: ErrorCode, message: str, *, retry_after_s: float | None = None) -> RefusalReason:
    """A reason with the status, the source and, unless a better one is known, the time to retry of its code."""
    rule = ERROR_RULES[code]
    wait_s = rule.retry_after_s if retry_after_s is None else retry_after_s
    return RefusalReason(code, rule.status, message, rule.source, wait_s)
