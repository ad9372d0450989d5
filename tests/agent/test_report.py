"""The messages to routers, and who is woken when."""

import asyncio

from hivenet_router.agent.report import Reports
from hivenet_router.wire.agent_protocol import EngineSnapshot, HardwareSnapshot, decode_heartbeat, decode_signals


async def test_a_snapshot_no_router_would_take_is_left_out_rather_than_lose_the_session() -> None:
    reports = Reports()
    reports.engine = EngineSnapshot(running_requests=float("nan"), avg_ttft_seconds=1.0)
    reports.hardware = HardwareSnapshot(timestamp=2**63)
    said = decode_heartbeat(reports.heartbeat("t"))
    assert (said.session_token, said.hardware, said.backend_metrics) == ("t", None, None)
    assert reports.signals("t") is None


async def test_the_requests_in_flight_are_told_even_if_the_samples_cannot_be() -> None:
    reports = Reports(lambda: 3)
    reports.engine = EngineSnapshot(running_requests=float("nan"), avg_ttft_seconds=1.0)
    reports.hardware = HardwareSnapshot(timestamp=2**63)
    body = reports.signals("t")
    assert body is not None
    said = decode_signals(body)
    assert (said.hardware, said.backend_metrics, said.inflight_total) == (None, None, 3)
    assert decode_heartbeat(reports.heartbeat("t")).inflight_total == 3


async def test_without_samples_and_without_a_count_there_is_nothing_to_push() -> None:
    assert Reports().signals("t") is None
    assert Reports(lambda: 0).signals("t") is not None


async def test_an_engine_of_which_nothing_is_known_any_more_is_sent_as_such() -> None:
    """A router keeps what it heard last, so silence would keep an old figure alive."""
    reports = Reports()
    reports.engine = EngineSnapshot()
    body = reports.signals("t")
    assert body is not None
    assert b'"backend_metrics":{}' in body


async def test_samples_travel_in_both_messages() -> None:
    reports = Reports()
    reports.hardware = HardwareSnapshot(timestamp=7)
    said = reports.signals("t")
    assert said is not None
    assert decode_signals(said).hardware == HardwareSnapshot(timestamp=7)
    assert decode_heartbeat(reports.heartbeat("t")).hardware == HardwareSnapshot(timestamp=7)


async def test_leaving_outweighs_a_healthy_backend() -> None:
    reports = Reports()
    reports.leave()
    reports.backend_is(healthy=True)
    said = decode_heartbeat(reports.heartbeat("t"))
    assert (said.backend_healthy, said.leaving) == (False, True)


async def test_a_sick_backend_is_no_leaving() -> None:
    reports = Reports()
    reports.backend_is(healthy=False)
    said = decode_heartbeat(reports.heartbeat("t"))
    assert (said.backend_healthy, said.leaving) == (False, False)


async def test_only_those_whom_it_concerns_are_woken() -> None:
    reports = Reports()
    first, second = asyncio.Event(), asyncio.Event()
    with reports.connected("a", first):
        assert not first.is_set()
        with reports.connected("b", second):
            assert first.is_set()
            assert not second.is_set()
            first.clear()
            reports.backend_is(healthy=True)
            assert not first.is_set()
            reports.backend_is(healthy=False)
            assert first.is_set()
            assert second.is_set()
            assert reports.connected_routers == ("a", "b")
            first.clear()
        assert first.is_set()
    assert not reports.connected_routers
