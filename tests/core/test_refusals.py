"""A reason takes status and source from its code's row."""

import pytest

from hivenet_router.core.refusals import RefusalReason, reason
from hivenet_router.names.errors import ERROR_RULES, ErrorCode


@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_reason_is_what_the_row_of_its_code_says(code: ErrorCode) -> None:
    rule = ERROR_RULES[code]
    assert reason(code, "why") == RefusalReason(code, rule.status, "why", rule.source, rule.retry_after_s)
    assert reason(code, "why", retry_after_s=2.0).retry_after_s == 2.0
