"""What an agent's record says about its room and its health."""

import pytest
from tests.core.making import MODEL, A, Book, described

from hivenet_router.core.agent import Load, Report, SeriesIdentity, report_in, series_identity
from hivenet_router.wire.agent_protocol import EngineSnapshot, HardwareSnapshot, Heartbeat, Signals


def test_utilization_is_slots_held_over_declared_capacity() -> None:
    """EX-3.2: 8 of 10 is exactly 0.8."""
    assert Book().join(A, active=8).capacity_utilization == 0.8


def test_slots_that_other_routers_hold_leave_less_room() -> None:
    """several-routers.md S-110."""
    book = Book()
    agent = book.join(A, described(10), active=2)
    agent.load = Load(slots_total=7, slots_here=2)
    assert agent.free_slots == 3


def test_a_report_that_lags_behind_never_makes_room() -> None:
    agent = Book().join(A, described(10), active=2)
    agent.load = Load(slots_total=1, slots_here=4)
    assert agent.free_slots == 8


def test_a_full_agent_has_no_negative_room() -> None:
    agent = Book().join(A, described(2), active=2)
    agent.load = Load(slots_total=9)
    assert agent.free_slots == 0


def test_the_series_identity_is_what_the_metrics_are_labelled_with() -> None:
    assert series_identity(described(4)) == SeriesIdentity("EU-France", "vllm", MODEL, 4, "ml-team", "gpu-1")


def test_a_message_of_an_original_agent_reports_no_load() -> None:
    engine, hardware = EngineSnapshot(running_requests=3.0), HardwareSnapshot(timestamp=1)
    assert report_in(Signals(backend_metrics=engine, hardware=hardware)) == Report(engine, hardware, None)


@pytest.mark.parametrize(
    ("message", "load"),
    [
        (Heartbeat(inflight_total=5), Load(5, 0, 0)),
        (Signals(slots_total=4, slots_here=1), Load(0, 4, 1)),
        (Heartbeat(inflight_total=0, slots_total=0, slots_here=0), Load(0, 0, 0)),
    ],
)
def test_an_agent_that_counts_reports_its_load(message: Heartbeat | Signals, load: Load) -> None:
    assert report_in(message).load == load
