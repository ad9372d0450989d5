"""Whatever a process may open: agents, metrics and clients each have their part, or it does not start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.file_shares import (
    CLIENTS_MAX,
    FILES_MIN,
    LINKS_MAX,
    TooFewFiles,
    check_agent_files,
    of_one_address,
    router_shares,
)


@given(st.integers(FILES_MIN, 1 << 20))
def test_the_shares_leave_room_for_each_and_for_the_process_itself(files_max: int) -> None:
    shares = router_shares(files_max)
    assert shares.clients + shares.links + shares.bootstrap + shares.metrics <= files_max - 128
    assert min(shares.clients, shares.links, shares.bootstrap) >= 100
    assert shares.clients <= CLIENTS_MAX
    assert shares.links <= LINKS_MAX


def test_with_as_many_files_as_can_be_used_nobody_gets_less_than_the_bounds() -> None:
    shares = router_shares(65_536)
    assert (shares.clients, shares.links, shares.bootstrap, shares.metrics) == (16_384, 4_096, 1_024, 64)


def test_with_too_few_files_the_start_is_refused_with_a_sentence() -> None:
    with pytest.raises(TooFewFiles, match="may open 1023 files, and a router needs 1024 at least: raise the limit"):
        router_shares(FILES_MIN - 1)
    check_agent_files(1024, capacity=100)
    with pytest.raises(TooFewFiles, match="--capacity 1000 needs 1128"):
        check_agent_files(1024, capacity=1000)


@given(st.integers(2, 20_000))
def test_one_address_may_have_most_connections_and_never_all(connections_max: int) -> None:
    assert connections_max / 2 - 1 <= of_one_address(connections_max) < connections_max
