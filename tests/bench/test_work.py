"""The bench of the costliest inputs finds its ports, and its table marks what holds a loop for too long."""

import pytest
from bench.work import Held

from bench import work


def test_each_module_of_the_package_is_a_port_and_can_measure() -> None:
    assert "grpc" in work.ports()


def test_the_table_marks_what_is_above_the_bound() -> None:
    lines = work.as_markdown([Held("a", "small", 10.0), Held("a", "large", 10.1), Held("b", "none", 0.0)]).splitlines()

    assert lines[-3:] == ["| a | small | 10.0 |", "| a | large | 10.1 **above 10** |", "| b | none | 0.0 |"]


def test_what_a_port_measures_stands_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.work.grpc.measure", lambda: [("pings", 1.5)])

    assert work.measured(["grpc"]) == [Held("grpc", "pings", 1.5)]
