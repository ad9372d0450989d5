"""Do rules strike the requests they are meant for, as often as they may?"""

import math

import pytest

from hivenet_router.sim.fault_board import RULES_MAX, FaultBoard, change_of, make_rule
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


def test_the_error_rate_outlives_a_change_of_rules() -> None:
    board = FaultBoard(seed=0, error_rate=1.0, error_status=503)
    board.change(change_of({"rules": []}))
    assert board.draw(CHAT, inference=True, reused=False).status == 503


def test_the_error_rate_is_changed_without_touching_the_rules() -> None:
    board = FaultBoard(seed=0, error_rate=1.0)
    board.replace([make_rule("status=429", count=1)])
    board.change(change_of({"error_status": 502}))
    struck = [board.draw(CHAT, inference=True, reused=False).status for _ in range(2)]
    board.change(change_of({"error_rate": 0}))
    assert [*struck, board.draw(CHAT, inference=True, reused=False).status] == [429, 502, None]


def test_a_rate_of_nothing_changes_nobodys_luck() -> None:
    def strikes(board: FaultBoard) -> list[bool]:
        return [board.draw(CHAT, inference=True, reused=False) is not NO_FAULT for _ in range(50)]

    def with_rules(*texts: str) -> FaultBoard:
        board = FaultBoard(seed=1)
        board.replace([*(make_rule(text, probability=0.0) for text in texts), make_rule("status=500", probability=0.5)])
        return board

    assert strikes(with_rules()) == strikes(with_rules("status=501", "status=502"))


def test_what_the_board_shows_can_be_set_again() -> None:
    board = FaultBoard(seed=0)
    rule = {"fault": "status=500", "probability": 0.5, "count": 3, "path": CHAT}
    board.change(change_of({"rules": [rule], "error_rate": 0.25, "error_status": 502}))
    shown = board.as_json()
    other = FaultBoard(seed=0)
    other.change(change_of(shown))
    assert other.as_json() == shown
    assert (shown["error_rate"], shown["error_status"]) == (0.25, 502)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "needs a JSON object"),
        ({"rules": {}}, "needs a list"),
        ({"rules": [], "fault": "status=500"}, "unknown field 'fault' beside rules"),
        ({"rules": [3]}, "rule 0: needs an object"),
        ({"fault": 3}, "fault must be a text"),
        ({"fault": "status=1"}, "the rule: status"),
        ({"fault": "", "probability": 2}, "the rule: probability: must be a number from 0 to 1"),
        ({"fault": "", "probability": True}, "probability: must be a number"),
        ({"fault": "", "probability": 10**400}, "probability: must be a number from 0 to 1"),
        ({"fault": "", "probability": math.nan}, "probability: must be a number from 0 to 1"),
        ({"fault": "", "probability": None}, "probability: must be a number"),
        ({"fault": "", "count": 10**400}, "count must be at most"),
        ({"error_rate": "1"}, "error_rate: must be a number from 0 to 1"),
        ({"error_rate": -0.1}, "error_rate: must be a number from 0 to 1"),
        ({"error_rate": 0.1, "error_status": 200}, "error_status: must be a whole number from 400 to 599"),
        ({"error_rate": 0.1, "error_status": None}, "error_status: must be"),
        ({"rules": [{"fault": ""}] * (RULES_MAX + 1)}, f"at most {RULES_MAX}"),
        ({"fault": "", "count": -1}, "count -1: must be 0 or more"),
        ({"fault": "", "count": 1.5}, "count must be a whole number"),
        ({"fault": "", "path": "v1"}, "must begin with /"),
        ({"fault": "", "path": "/sim/faults"}, "path '/sim/faults': such a rule could never strike"),
        ({"rules": [{"fault": "", "path": "/sim/stats"}]}, "rule 0: path '/sim/stats'"),
        ({"fault": "", "path": "/health?x=1"}, "a path has no query"),
        ({"fault": "", "often": 1}, "unknown field 'often'"),
    ],
)
def test_a_wrong_rule_is_refused_with_the_part_that_is_wrong(document: object, says: str) -> None:
    with pytest.raises(FaultError, match=says):
        change_of(document)


def test_the_board_is_bounded() -> None:
    with pytest.raises(FaultError, match=f"at most {RULES_MAX}"):
        FaultBoard(seed=0).replace([make_rule("")] * (RULES_MAX + 1))
