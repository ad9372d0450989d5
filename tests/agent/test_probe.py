"""The watch over the backend, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from tests.fakes.agent_world import FakeEngine

from hivenet_router.agent.engines import FACES
from hivenet_router.agent.probe import BackendWatch
from hivenet_router.agent.report import Reports
from hivenet_router.names.protocol_ids import Engine
from hivenet_router.wire.agent_protocol import decode_heartbeat

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def watch_of(
    engine: FakeEngine, *, kind: Engine = Engine.VLLM, model: str | None = None, health_path: str = ""
) -> AsyncIterator[tuple[BackendWatch, Reports]]:
    reports = Reports()
    watch = BackendWatch(
        FACES[kind],
        health=engine,
        health_path=health_path,
        models=engine,
        model=model,
        interval_s=2.0,
        reports=reports,
    )
    task = asyncio.create_task(watch.run())
    yield watch, reports
    task.cancel()
    await asyncio.wait([task])


def healthy(reports: Reports) -> bool:
    return decode_heartbeat(reports.heartbeat("t")).backend_healthy


async def test_a_ready_backend_is_probed_at_the_interval_and_one_that_is_down_every_five_seconds() -> None:
    engine = FakeEngine()
    async with watch_of(engine):
        await asyncio.sleep(3)
        engine.status = 500
        await asyncio.sleep(21)
    assert engine.times_of("/health") == [0.0, 2.0, 4.0, 6.0, 8.0, 13.0, 18.0, 23.0]


async def test_three_failures_in_a_row_are_needed_and_one_success_is_enough() -> None:
    """Source: signals.md EX-1.7."""
    engine = FakeEngine()
    async with watch_of(engine) as (watch, reports):
        for status in (500, 500, 200, 500, 500):
            await asyncio.sleep(0.1)
            engine.status = status
            await asyncio.sleep(1.9)
            assert healthy(reports)
        await asyncio.sleep(2.1)
        assert not healthy(reports)
        assert not watch.is_ready
        engine.status = 200
        await asyncio.sleep(5)
        assert healthy(reports)
        assert watch.is_ready


async def test_a_probe_is_given_five_seconds() -> None:
    engine = FakeEngine()
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(1)
        engine.hangs = True
        await asyncio.sleep(1 + 5 + 2 + 5 + 2 + 4.9)
        assert watch.is_ready
        await asyncio.sleep(0.2)
        assert not watch.is_ready


async def test_a_backend_whose_models_cannot_be_read_is_not_ready() -> None:
    engine = FakeEngine()
    engine.models = []
    with capture_logs() as lines:
        async with watch_of(engine) as (watch, _):
            await asyncio.sleep(12)
            engine.models = ["late"]
            await asyncio.sleep(5)
            assert watch.is_ready
    assert [line["event"] for line in lines] == ["backend_not_ready", "backend_ready"]
    assert "lists no model" in lines[0]["why"]
    assert "--backend-url" in lines[0]["check"]


async def test_a_name_too_long_to_be_asked_for_is_not_announced() -> None:
    with capture_logs() as lines:
        async with watch_of(FakeEngine("x" * 257)) as (watch, _):
            await asyncio.sleep(1)
            assert not watch.is_ready
    assert "256 bytes" in lines[0]["why"]


async def test_a_custom_engine_is_probed_where_the_operator_said() -> None:
    engine = FakeEngine()
    async with watch_of(engine, kind=Engine.CUSTOM, model="mine", health_path="/ready?deep=1") as (watch, _):
        await asyncio.sleep(1)
        assert await watch.ready_model() == "mine"
    assert engine.asked == [(0.0, "/ready?deep=1")]


async def test_recovery_does_not_wait_for_the_list_of_models() -> None:
    engine = FakeEngine()
    async with watch_of(engine) as (watch, reports):
        await asyncio.sleep(1)
        engine.status = 500
        await asyncio.sleep(8)
        assert not watch.is_ready
        engine.models, engine.status = [], 200
        await asyncio.sleep(5)
        assert healthy(reports)


async def test_sessions_that_begin_together_share_one_look_at_the_models() -> None:
    engine = FakeEngine()
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(100)
        assert set(await asyncio.gather(watch.ready_model(), watch.ready_model())) == {"m"}
    assert engine.times_of("/v1/models") == [0.0, 100.0]


async def test_a_list_that_fails_later_makes_a_new_session_wait_for_it() -> None:
    engine = FakeEngine()
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(100)
        engine.models = []
        waiting = asyncio.create_task(watch.ready_model())
        await asyncio.sleep(4)
        engine.models = ["new"]
        assert await waiting == "new"
