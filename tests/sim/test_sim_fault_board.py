"""Do rules strike the requests they are meant for, as often as they may?"""

import pytest

from hivenet_router.sim.fault_board import RULES_MAX, FaultBoard, make_rule, rules_of
from hivenet_router.sim.faults import NO_FAULT, FaultError

CHAT = "/v1/chat/completions"


def test_a_rule_without_a_path_strikes_inference_only() -> None:
    board = FaultBoard(seed=0)
    board.replace([make_rule("status=500")])
    assert board.draw(CHAT, inference=True, reused=False).status == 500
    assert board.draw("/health", inference=False, reused=False) is NO_FAULT


def test_a_rule_with_a_path_strikes_that_path_only() -> None:
    board = FaultBoard(seed=0)
    board.replace([make_rule("status=503", path="/health")])
    assert board.draw("/health", inference=False, reused=False).status == 503
    assert board.draw(CHAT, inference=True, reused=False) is NO_FAULT


def test_a_count_runs_out() -> None:
    board = FaultBoard(seed=0)
    board.replace([make_rule("status=500", count=2)])
    struck = [board.draw(CHAT, inference=True, reused=False).status for _ in range(3)]
    assert struck == [500, 500, None]


def test_the_same_seed_strikes_the_same_requests() -> None:
    def strikes(seed: int) -> list[bool]:
        board = FaultBoard(seed=seed)
        board.replace([make_rule("status=500", probability=0.5)])
        return [board.draw(CHAT, inference=True, reused=False) is not NO_FAULT for _ in range(200)]

    assert strikes(3) == strikes(3)
    assert strikes(3) != strikes(4)
    assert 60 < sum(strikes(3)) < 140


def test_a_reused_only_rule_spares_fresh_connections() -> None:
    board = FaultBoard(seed=0)
    board.replace([make_rule("reset_before_head,reused_only", count=1)])
    assert board.draw(CHAT, inference=True, reused=False) is NO_FAULT
    assert board.draw(CHAT, inference=True, reused=True).reset_before_head


def test_the_standing_rule_outlives_a_change() -> None:
    board = FaultBoard(seed=0, standing=[make_rule("status=500")])
    board.replace([])
    assert board.draw(CHAT, inference=True, reused=False).status == 500


def test_what_the_board_shows_can_be_set_again() -> None:
    board = FaultBoard(seed=0)
    board.replace(rules_of({"rules": [{"fault": "status=500", "probability": 0.5, "count": 3, "path": CHAT}]}))
    shown = board.as_json()
    board.replace(rules_of({"rules": shown["rules"]}))
    assert board.as_json() == shown


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "needs a JSON object"),
        ({"rules": {}}, "needs a list"),
        ({"rules": [], "fault": "status=500"}, "no other field"),
        ({"rules": [3]}, "rule 0: needs an object"),
        ({"fault": 3}, "fault must be a text"),
        ({"fault": "status=1"}, "the rule: status"),
        ({"fault": "", "probability": 2}, "probability 2.0: must be 0 to 1"),
        ({"fault": "", "probability": True}, "probability must be a number"),
        ({"fault": "", "count": -1}, "count -1: must be 0 or more"),
        ({"fault": "", "count": 1.5}, "count must be a whole number"),
        ({"fault": "", "path": "v1"}, "must begin with /"),
        ({"fault": "", "often": 1}, "unknown field 'often'"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_part_that_is_wrong(document: object, says: str) -> None:
    with pytest.raises(FaultError, match=says):
        rules_of(document)


def test_the_board_is_bounded() -> None:
    with pytest.raises(FaultError, match=f"at most {RULES_MAX}"):
        FaultBoard(seed=0).replace([make_rule("")] * (RULES_MAX + 1))
