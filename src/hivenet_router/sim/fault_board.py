"""Which fault applies to this request?

Rules for all requests stand on the board: words, a probability, how often they may still strike, and which path they
concern. The first rule that strikes is taken, and the request's own words go over it. Invariant: with one seed and one
order of requests the same requests are struck. What the words mean is in `faults`.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hivenet_router.sim.faults import NO_FAULT, Fault, FaultError, parse_fault

RULES_MAX: Final = 100


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
    return FaultRule(text, fault, probability, count, path)


class FaultBoard:
    """The rules in force, in order, and the dice. A standing rule comes last and outlives every change."""

    def __init__(self, *, seed: int, standing: Iterable[FaultRule] = ()) -> None:
        self._dice = random.Random(seed)
        self._standing = tuple(standing)
        self.rules: tuple[FaultRule, ...] = ()

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
        for rule in (*self.rules, *self._standing):
            concerned = path == rule.path if rule.path is not None else inference
            if not concerned or rule.count == 0 or (rule.fault.reused_only and not reused):
                continue
            if rule.probability < 1.0 and self._dice.random() >= rule.probability:
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
            "standing": [rule.as_json() for rule in self._standing],
        }


def rules_of(document: object) -> list[FaultRule]:
    """The rules a document asks for: one rule, or `{"rules": [...]}`.

    Raises: FaultError saying which rule and which part of it is wrong.
    """
    if not isinstance(document, dict):
        raise FaultError("needs a JSON object: one rule, or rules with a list of them")
    if "rules" not in document:
        return [_rule_of(document, "the rule")]
    listed = document["rules"]
    if not isinstance(listed, list) or len(document) != 1:
        raise FaultError("rules: needs a list, and no other field beside it")
    return [_rule_of(each, f"rule {index}") for index, each in enumerate(listed)]


def _rule_of(item: object, where: str) -> FaultRule:
    if not isinstance(item, dict):
        raise FaultError(f"{where}: needs an object")
    unknown = sorted(set(item) - {"fault", "probability", "count", "path", "struck"})
    if unknown:
        raise FaultError(f"{where}: unknown field {unknown[0][:60]!r}; known are fault, probability, count, path")
    text, probability = item.get("fault"), item.get("probability", 1.0)
    count, path = item.get("count"), item.get("path")
    if not isinstance(text, str):
        raise FaultError(f"{where}: fault must be a text of X-Sim words")
    if isinstance(probability, bool) or not isinstance(probability, int | float):
        raise FaultError(f"{where}: probability must be a number from 0 to 1")
    if isinstance(count, bool) or not isinstance(count, int | None):
        raise FaultError(f"{where}: count must be a whole number or null")
    if not isinstance(path, str | None):
        raise FaultError(f"{where}: path must be a text or null")
    try:
        return make_rule(text, probability=float(probability), count=count, path=path)
    except FaultError as wrong:
        raise FaultError(f"{where}: {wrong}") from None
