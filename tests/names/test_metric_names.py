"""Are the metric rows those that dashboards and alerts rely on?"""

import json
import re
from pathlib import Path
from typing import TypedDict

import pytest

from hivenet_router.names.metrics import METRICS, METRICS_OVERFLOW, Metric

ROWS = (*METRICS, METRICS_OVERFLOW)
BY_NAME = {metric.name: metric for metric in ROWS}
OWN = {
    "hivenet_http_rejected_total",
    "hivenet_metrics_overflow_total",
    "hivenet_routing_agent_suspect",
    "hivenet_streams_in_progress",
}


class Fact(TypedDict):
    name: str
    kind: str
    labels: list[str]
    buckets: list[float] | None
    aliases: list[str]


class Facts(TypedDict):
    series: list[Fact]


def load_facts() -> list[Fact]:
    loaded: Facts = json.loads(Path(__file__).with_name("metric_facts.json").read_text())
    return loaded["series"]


@pytest.mark.parametrize("fact", load_facts(), ids=lambda fact: str(fact["name"]))
def test_a_known_series_keeps_its_name_kind_labels_buckets_and_aliases(fact: Fact) -> None:
    metric = BY_NAME[fact["name"]]
    assert metric.kind == fact["kind"]
    assert list(metric.labels) == fact["labels"]
    assert (list(metric.buckets) if metric.buckets else None) == fact["buckets"]
    assert list(metric.aliases) == fact["aliases"]


def test_the_only_other_series_are_our_own() -> None:
    assert set(BY_NAME) - {fact["name"] for fact in load_facts()} == OWN


def test_the_count_of_overflows_is_kept_as_dashboards_know_it() -> None:
    assert METRICS_OVERFLOW.name == "hivenet_metrics_overflow_total"
    assert (METRICS_OVERFLOW.kind, METRICS_OVERFLOW.labels) == ("counter", ("family",))
    assert METRICS_OVERFLOW not in METRICS


def test_no_name_or_alias_is_used_twice() -> None:
    names = [name for metric in ROWS for name in (metric.name, *metric.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("metric", ROWS, ids=lambda metric: str(metric.name))
def test_a_row_can_be_registered(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in metric.labels)
    assert len(set(metric.labels)) == len(metric.labels)
    assert metric.help.endswith(".")
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert (metric.kind == "histogram") == (metric.buckets is not None)
    assert metric.buckets is None or list(metric.buckets) == sorted(set(metric.buckets))
