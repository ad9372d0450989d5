"""The watch over the backend, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Callable
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
    engine: FakeEngine,
    *,
    kind: Engine = Engine.VLLM,
    model: str | None = None,
    health_path: str = "",
    running: Callable[[], int] | None = None,
) -> AsyncIterator[tuple[BackendWatch, Reports]]:
    reports = Reports(running)
    watch = BackendWatch(
        FACES[kind],
        health=engine,
        health_path=health_path,
        models=engine,
        model=model,
        interval_s=2.0,
        timeout_s=5.0,
        times_heard=lambda: engine.times_heard,
        reports=reports,
    )
    task = asyncio.create_task(watch.run())
    yield watch, reports
    task.cancel()
    await asyncio.wait([task])


def healthy(reports: Reports) -> bool:
    return decode_heartbeat(reports.heartbeat("t")).backend_healthy


async def test_a_backend_is_probed_every_five_seconds_until_first_ready_and_at_the_interval_ever_after() -> None:
    """Source: wire.md §11, signals.md §1.5."""
    engine = FakeEngine()
    engine.ready_at = 7.0
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(13)
        engine.status = 500
        await asyncio.sleep(8)
        was_ready = watch.is_ready
        engine.status = 200
        await asyncio.sleep(2)
        assert (was_ready, watch.is_ready) == (False, True)
    assert engine.times_of("/health") == [0.0, 5.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0]


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


@pytest.mark.parametrize("model", [None, "mine"])
async def test_a_llamacpp_server_without_a_health_page_is_ready_once_it_lists_its_models(model: str | None) -> None:
    engine = FakeEngine("mine")
    engine.status, engine.models = 404, []
    with capture_logs() as lines:
        async with watch_of(engine, kind=Engine.LLAMACPP, model=model) as (watch, reports):
            await asyncio.sleep(4)
            assert not watch.is_ready
            engine.models = ["mine"]
            await asyncio.sleep(2)
            assert await watch.ready_model() == "mine"
            engine.status = 500
            await asyncio.sleep(7)
            assert not healthy(reports)
    assert "lists no model" in lines[0]["why"]


async def test_any_other_engine_without_its_health_page_is_not_ready() -> None:
    engine = FakeEngine()
    engine.status = 404
    with capture_logs() as lines:
        async with watch_of(engine, kind=Engine.VLLM) as (watch, _):
            await asyncio.sleep(1)
            assert not watch.is_ready
    assert lines[0]["why"] == "GET /health answered 404; does --engine name what runs there?"


async def test_an_engine_without_a_health_page_is_not_asked_for_its_models_while_it_answers() -> None:
    """llama-cpp-python cuts a stream short for whoever asks for the models meanwhile, or lets them wait for it."""
    engine = FakeEngine("old")
    engine.status = 404
    running = 0
    async with watch_of(engine, kind=Engine.LLAMACPP, running=lambda: running) as (watch, reports):
        await asyncio.sleep(1)
        running = 1
        before = len(engine.times_of("/v1/models"))
        await asyncio.sleep(100)
        assert len(engine.times_of("/v1/models")) == before
        assert healthy(reports)
        running, engine.models = 0, ["new"]
        await asyncio.sleep(3)
        assert watch.model == "new"


async def test_an_engine_with_a_health_page_is_asked_for_its_models_also_while_it_answers() -> None:
    engine = FakeEngine("old")
    async with watch_of(engine, kind=Engine.LLAMACPP, running=lambda: 1) as (watch, _):
        await asyncio.sleep(1)
        engine.models = ["new"]
        async with asyncio.timeout(30):
            await watch.until_other_than("old")


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
    assert engine.times_of("/v1/models") == [0.0, 30.0, 60.0, 90.0, 100.0]


async def test_a_list_that_fails_later_makes_a_new_session_wait_for_it() -> None:
    engine = FakeEngine()
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(100)
        engine.models = []
        waiting = asyncio.create_task(watch.ready_model())
        await asyncio.sleep(4)
        engine.models = ["new"]
        assert await waiting == "new"


async def test_an_engine_that_comes_back_with_another_model_is_noticed_after_one_failed_probe() -> None:
    engine = FakeEngine("old")
    with capture_logs() as lines:
        async with watch_of(engine) as (watch, reports):
            await asyncio.sleep(1)
            engine.status = 500
            await asyncio.sleep(2)
            engine.models, engine.status = ["new"], 200
            await asyncio.sleep(2)
            assert watch.model == "new"
            assert healthy(reports)
    assert {"event": "model_changed", "log_level": "warning", "old": "old", "new": "new"} in lines


async def test_an_engine_that_changes_its_model_unseen_is_noticed_within_half_a_minute() -> None:
    engine = FakeEngine("old")
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(1)
        engine.models = ["new"]
        async with asyncio.timeout(30):
            await watch.until_other_than("old")
        assert watch.model == "new"


async def test_the_line_of_readiness_names_the_model_of_now() -> None:
    engine = FakeEngine("old")
    with capture_logs() as lines:
        async with watch_of(engine):
            await asyncio.sleep(1)
            engine.status = 500
            await asyncio.sleep(8)
            engine.models, engine.status = ["new"], 200
            await asyncio.sleep(3)
    assert [line["model"] for line in lines if line["event"] == "backend_ready"] == ["old", "new"]


async def test_a_list_that_cannot_be_read_after_a_restart_is_asked_for_with_each_probe() -> None:
    engine = FakeEngine("old")
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(1)
        engine.status = 500
        await asyncio.sleep(2)
        engine.models, engine.status = [], 200
        await asyncio.sleep(4)
        assert (watch.is_ready, watch.model) == (True, "old")
        engine.models = ["new"]
        await asyncio.sleep(2)
        assert watch.model == "new"


@pytest.mark.parametrize("kind", [Engine.VLLM, Engine.SGLANG, Engine.LLAMACPP])
async def test_a_chosen_model_that_the_engine_does_not_list_is_warned_of_once(kind: Engine) -> None:
    engine = FakeEngine("a", "b")
    with capture_logs() as lines:
        async with watch_of(engine, kind=kind, model="mine") as (watch, _):
            await asyncio.sleep(1)
            assert await watch.ready_model() == "mine"
            engine.status = 500
            await asyncio.sleep(8)
            engine.status = 200
            await asyncio.sleep(40)
    (told,) = [line for line in lines if line["event"] == "model_not_listed"]
    assert (told["model"], told["listed"], told["log_level"]) == ("mine", "a, b", "warning")


@pytest.mark.parametrize(("kind", "model"), [(Engine.VLLM, "b"), (Engine.INFINITY, "mine"), (Engine.CUSTOM, "mine")])
async def test_a_chosen_model_is_not_remarked_on_where_it_is_listed_or_no_list_binds(kind: Engine, model: str) -> None:
    with capture_logs() as lines:
        async with watch_of(FakeEngine("a", "b"), kind=kind, model=model, health_path="/health"):
            await asyncio.sleep(1)
    assert [line["event"] for line in lines] == ["backend_ready"]


def test_ollama_knows_a_model_with_and_without_its_default_tag() -> None:
    assert FACES[Engine.OLLAMA].serves_only_listed
    assert FACES[Engine.OLLAMA].plain("llama3:latest") in FACES[Engine.OLLAMA].models_in(
        b'{"models":[{"name":"llama3:latest"}]}'
    )


async def test_an_engine_that_answers_requests_while_its_health_page_is_silent_is_busy_and_not_dead() -> None:
    """decisions.md 38, field-cases.md O-25."""
    engine = FakeEngine()
    async with watch_of(engine) as (watch, reports):
        await asyncio.sleep(1)
        engine.hangs = True
        for _ in range(60):
            engine.times_heard += 1
            await asyncio.sleep(1)
        assert (watch.is_ready, healthy(reports)) == (True, True)


@pytest.mark.parametrize("how", ["silent", "answers badly", "refuses"])
async def test_an_engine_is_out_after_three_probes_that_were_answered_badly_or_in_silence(how: str) -> None:
    """The silent one was heard until its health page fell silent; the others count whatever comes meanwhile."""
    engine = FakeEngine()
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(1)
        engine.times_heard += 1
        match how:
            case "silent":
                engine.hangs = True
            case "answers badly":
                engine.status = 500
            case _:
                engine.ready_at = 1e9
        for _ in range(25):
            engine.times_heard += how != "silent"
            await asyncio.sleep(1)
        assert not watch.is_ready


async def test_silent_probes_between_traffic_are_counted_where_there_was_none() -> None:
    engine = FakeEngine()
    async with watch_of(engine) as (watch, _):
        await asyncio.sleep(1)
        engine.hangs = True
        # Two that count, one that does not, one that does.
        await asyncio.sleep(15.5)
        engine.times_heard += 1
        await asyncio.sleep(6)
        assert watch.is_ready
        await asyncio.sleep(6)
        assert not watch.is_ready
