"""Which fault applies to this request?

Rules for all requests stand on the board: words, a probability, how often they may still strike, and which path they
concern. The first rule that strikes is taken, and the request's own words go over it; the error rate comes behind all
rules. Invariant: with one seed and one order of requests the same requests are struck. What the words mean is in
`faults`.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hivenet_router.sim.faults import COUNT_MAX, NO_FAULT, Fault, FaultError, parse_fault

RULES_MAX: Final = 100
CONTROL_PREFIX: Final = "/sim/"
"""Below it nothing is ever struck, so that a rule can always be taken back."""
SETTABLE: Final = frozenset({"rules", "error_rate", "error_status"})


@dataclass(slots=True)
class FaultRule:
    """One line of the board. `count` None never runs out; `path` None means every inference path."""

    text: str
    fault: Fault
    probability: float = 1.0
    count: int | None = None
    path: str | None = None
    struck: int = 0

    def as_json(self) -> dict[str, object]:
        """The rule as `/sim/faults` shows it."""
        return {
            "fault": self.text,
            "probability": self.probability,
            "count": self.count,
            "path": self.path,
            "struck": self.struck,
        }


def make_rule(text: str, *, probability: float = 1.0, count: int | None = None, path: str | None = None) -> FaultRule:
    """A rule, once its parts can be used.

    Raises: FaultError saying which part cannot.
    """
    fault = parse_fault(text)
    if not 0.0 <= probability <= 1.0:
        raise FaultError(f"probability {probability}: must be 0 to 1")
    if count is not None and count < 0:
        raise FaultError(f"count {count}: must be 0 or more")
    if path is not None and not path.startswith("/"):
        raise FaultError(f"path {path[:60]!r}: must begin with /")
    if path is not None and (path.startswith(CONTROL_PREFIX) or "?" in path):
        raise FaultError(
            f"path {path[:60]!r}: such a rule could never strike; {CONTROL_PREFIX} is spared, and a path has no query"
        )
    return FaultRule(text, fault, probability, count, path)


@dataclass(frozen=True, slots=True)
class BoardChange:
    """What is to be put in place of what stands; None leaves it."""

    rules: tuple[FaultRule, ...] | None = None
    error_rate: float | None = None
    error_status: int | None = None


class FaultBoard:
    """The rules in force, in order, and the dice. The error rate comes last and outlives a change of rules."""

    def __init__(self, *, seed: int, error_rate: float = 0.0, error_status: int = 500) -> None:
        self._dice = random.Random(seed)
        self._error_status = error_status
        self._errors = make_rule(f"status={error_status}", probability=error_rate)
        self.rules: tuple[FaultRule, ...] = ()

    def change(self, change: BoardChange) -> None:
        """Put what is given in place, all of it or nothing.

        Raises: FaultError for more than `RULES_MAX` rules.
        """
        if change.rules is not None:
            self.replace(change.rules)
        if change.error_status is not None:
            self._error_status = change.error_status
        if change.error_rate is not None or change.error_status is not None:
            rate = self._errors.probability if change.error_rate is None else change.error_rate
            self._errors = make_rule(f"status={self._error_status}", probability=rate)

    def replace(self, rules: Iterable[FaultRule]) -> None:
        """Put these rules in place of all that were set.

        Raises: FaultError for more than `RULES_MAX` rules.
        """
        fresh = tuple(rules)
        if len(fresh) > RULES_MAX:
            raise FaultError(f"{len(fresh)} rules: at most {RULES_MAX}")
        self.rules = fresh

    def draw(self, path: str, *, inference: bool, reused: bool) -> Fault:
        """The fault for one request at `path`; `reused` says the connection has carried a request before."""
        for rule in (*self.rules, self._errors):
            concerned = path == rule.path if rule.path is not None else inference
            if not concerned or rule.count == 0 or (rule.fault.reused_only and not reused):
                continue
            # What never strikes costs no throw: with and without it the same requests are struck by the others.
            if rule.probability <= 0.0 or (rule.probability < 1.0 and self._dice.random() >= rule.probability):
                continue
            rule.struck += 1
            if rule.count is not None:
                rule.count -= 1
            return rule.fault
        return NO_FAULT

    def as_json(self) -> dict[str, object]:
        """The board as `GET /sim/faults` shows it."""
        return {
            "rules": [rule.as_json() for rule in self.rules],
            "error_rate": self._errors.probability,
            "error_status": self._error_status,
            "errors_struck": self._errors.struck,
        }


def change_of(document: object) -> BoardChange:
    """The change a document asks for: one rule, or any of the members that `GET /sim/faults` shows.

    Raises: FaultError saying which rule and which part of it is wrong.
    """
    if not isinstance(document, dict):
        raise FaultError("needs a JSON object: one rule, or rules with a list of them")
    if not SETTABLE & set(document):
        return BoardChange(rules=(_rule_of(document, "the rule"),))
    # How often the rate has struck is shown and cannot be set, as with the rules.
    unknown = sorted(set(document) - SETTABLE - {"errors_struck"})
    if unknown:
        raise FaultError(f"unknown field {unknown[0][:60]!r} beside {', '.join(sorted(SETTABLE & set(document)))}")
    rules, error_rate, status = None, None, document.get("error_status")
    if "rules" in document:
        listed = document["rules"]
        if not isinstance(listed, list):
            raise FaultError("rules: needs a list")
        if len(listed) > RULES_MAX:
            raise FaultError(f"{len(listed)} rules: at most {RULES_MAX}")
        rules = tuple(_rule_of(each, f"rule {index}") for index, each in enumerate(listed))
    if "error_rate" in document:
        error_rate = _part(document["error_rate"], "error_rate")
    if "error_status" in document and not (type(status) is int and 400 <= status <= 599):
        raise FaultError("error_status: must be a whole number from 400 to 599")
    return BoardChange(rules, error_rate, status)


def _part(value: object, name: str) -> float:
    """A number from 0 to 1; compared before it is converted, for JSON has whole numbers that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise FaultError(f"{name}: must be a number from 0 to 1")
    return float(value)


def _rule_of(item: object, where: str) -> FaultRule:
    if not isinstance(item, dict):
        raise FaultError(f"{where}: needs an object")
    unknown = sorted(set(item) - {"fault", "probability", "count", "path", "struck"})
    if unknown:
        raise FaultError(f"{where}: unknown field {unknown[0][:60]!r}; known are fault, probability, count, path")
    text, probability = item.get("fault"), _part(item.get("probability", 1.0), f"{where}: probability")
    count, path = item.get("count"), item.get("path")
    if not isinstance(text, str):
        raise FaultError(f"{where}: fault must be a text of X-Sim words")
    if isinstance(count, bool) or not isinstance(count, int | None):
        raise FaultError(f"{where}: count must be a whole number or null")
    if count is not None and count > COUNT_MAX:
        raise FaultError(f"{where}: count must be at most {COUNT_MAX}")
    if not isinstance(path, str | None):
        raise FaultError(f"{where}: path must be a text or null")
    try:
        return make_rule(text, probability=probability, count=count, path=path)
    except FaultError as wrong:
        raise FaultError(f"{where}: {wrong}") from None
