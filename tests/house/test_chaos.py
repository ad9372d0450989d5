"""Is a link that outlasts a standstill found, and only such a one?"""

from datetime import UTC, datetime

import pytest
from tests.house.chaos import LINK_DIES_WITHIN_S, LINK_ENDED, Stop, links_left_standing

LONG_STOP = Stop("agent-0", "peer-0", 1000.0, 1000.0 + LINK_DIES_WITHIN_S + 3)


def logged(at: float, name: str, peer_id: str = "peer-0") -> dict[str, object]:
    """A line of the router's log."""
    return {"ts": datetime.fromtimestamp(at, UTC).isoformat(), "msg": name, "peer_id": peer_id}


@pytest.mark.parametrize("name", LINK_ENDED)
def test_a_link_whose_end_is_told_in_any_word_did_not_last(name: str) -> None:
    events = [logged(900.0, "agent_registered"), logged(1010.0, name)]
    assert links_left_standing([LONG_STOP], events) == []


@pytest.mark.parametrize(
    "later", [[], [logged(1010.0, "agent_link_lost", "peer-1")], [logged(1018.0, "agent_link_lost")]]
)
def test_a_link_that_lasts_is_found_whatever_happens_to_others(later: list[dict[str, object]]) -> None:
    (reason,) = links_left_standing([LONG_STOP], [logged(900.0, "agent_registered"), *later])
    assert "agent-0 stood still for 19.0 s" in reason


@pytest.mark.parametrize("before", [[], [logged(900.0, "agent_registered"), logged(950.0, "agent_link_lost")]])
def test_an_agent_without_a_link_has_none_to_lose(before: list[dict[str, object]]) -> None:
    assert links_left_standing([LONG_STOP], before) == []


def test_an_agent_that_is_back_again_has_one_to_lose() -> None:
    events = [logged(900.0, "agent_registered"), logged(950.0, "agent_link_lost"), logged(960.0, "agent_renewed")]
    assert len(links_left_standing([LONG_STOP], events)) == 1


def test_a_short_stop_need_not_end_a_link() -> None:
    short = Stop("agent-0", "peer-0", 1000.0, 1005.0)
    assert links_left_standing([short], [logged(900.0, "agent_registered")]) == []
