"""Reconnecting, without a clock and without luck."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.backoff import DELAY_MAX_S, reconnect_delay_s


@pytest.mark.parametrize(("failures", "longest_s"), [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 30), (9, 30)])
def test_the_wait_doubles_from_one_second_to_thirty(failures: int, longest_s: float) -> None:
    """several-routers.md S-101: attempt n waits min(30, 2**n) s times 0.5 to 1."""
    assert reconnect_delay_s(failures, chance=0.0) == longest_s / 2
    assert reconnect_delay_s(failures, chance=1.0) == longest_s


@given(st.integers(-5, 10**9), st.floats(0, 1, exclude_max=True))
def test_no_count_of_failures_leaves_the_bounds(failures: int, chance: float) -> None:
    assert 0.5 <= reconnect_delay_s(failures, chance=chance) <= DELAY_MAX_S
