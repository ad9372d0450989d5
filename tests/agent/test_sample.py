"""Reading an engine's metrics again and again, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from tests.fakes.agent_world import FakeEngine

from hivenet_router.agent.engines import FACES
from hivenet_router.agent.report import Reports
from hivenet_router.agent.sample import FRESH_AT_LEAST_S, MISSED_SAMPLES_MAX, NO_PAGE_AGAIN_S, EngineSampler
from hivenet_router.names.protocol_ids import Engine
from hivenet_router.wire.agent_protocol import EngineSnapshot
from hivenet_router.wire.engine_metrics import PAGE_BYTES_MAX, vllm

pytestmark = pytest.mark.looptime

RUNNING_2 = EngineSnapshot(running_requests=2.0)
UNKNOWN = EngineSnapshot()


def engine_with(page: bytes = b"vllm:num_requests_running 2") -> FakeEngine:
    engine = FakeEngine()
    engine.page = page
    return engine


@asynccontextmanager
async def sampling(engine: FakeEngine, *, interval_s: float = 0.5) -> AsyncIterator[Reports]:
    reports = Reports()
    sampler = EngineSampler(vllm.read, engine, interval_s=interval_s, reports=reports)
    task = asyncio.create_task(sampler.run())
    yield reports
    task.cancel()
    await asyncio.wait([task])


async def test_the_page_is_read_at_once_and_then_at_every_interval() -> None:
    engine = engine_with()
    async with sampling(engine) as reports:
        await asyncio.sleep(0.1)
        assert reports.engine == RUNNING_2
        await asyncio.sleep(1.5)
    assert engine.asked == [(0.0, "/metrics"), (0.5, "/metrics"), (1.0, "/metrics"), (1.5, "/metrics")]


async def test_two_pages_are_never_asked_for_at_once_and_missed_intervals_are_not_made_up_for() -> None:
    engine = engine_with()
    engine.answers_after_s = 1.2
    async with sampling(engine):
        await asyncio.sleep(4.6)
    assert [round(at, 3) for at in engine.times_of("/metrics")] == [0.0, 1.5, 3.0, 4.5]
    assert engine.asking_max == 1


async def test_an_engine_that_does_not_answer_is_given_up_after_five_seconds() -> None:
    engine = engine_with()
    engine.hangs = True
    with capture_logs() as lines:
        async with sampling(engine):
            await asyncio.sleep(6)
    assert engine.times_of("/metrics") == [0.0, 5.5]
    assert engine.asking_max == 1
    assert [line["why"] for line in lines] == ["GET /metrics got no answer within 5 s"]


@pytest.mark.parametrize(
    ("status", "page", "why"),
    [
        (404, b"", "answered 404"),
        (200, b"#" * (PAGE_BYTES_MAX + 1), "longer than"),
        (200, b"sglang:num_running_reqs 2", "no series of this engine"),
    ],
)
async def test_a_page_of_no_use_is_told_once_with_why(status: int, page: bytes, why: str) -> None:
    engine = engine_with(page)
    engine.page_status = status
    with capture_logs() as lines:
        async with sampling(engine):
            await asyncio.sleep(3)
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("warning", "engine_metrics_unread")
    assert why in line["why"]
    assert "--enable-metrics" in line["check"]


@pytest.mark.parametrize("ails", ["refuses", "hangs", "answers 503"])
async def test_an_engine_that_is_down_is_not_told_to_switch_its_metrics_on(ails: str) -> None:
    engine = engine_with()
    engine.ready_at = 1e9 if ails == "refuses" else 0.0
    engine.hangs = ails == "hangs"
    engine.page_status = 503 if ails == "answers 503" else 200
    with capture_logs() as lines:
        async with sampling(engine):
            await asyncio.sleep(12)
    (line,) = lines
    assert (line["log_level"], line["event"]) == ("warning", "engine_metrics_unread")
    assert "is the engine up?" in line["check"]
    assert "--" not in line["check"]


async def test_an_engine_that_comes_up_without_a_page_is_told_of_once_more() -> None:
    engine = engine_with()
    engine.ready_at, engine.page_status = 5.0, 404
    with capture_logs() as lines:
        async with sampling(engine):
            await asyncio.sleep(100)
    assert ["--enable-metrics" in line["check"] for line in lines] == [False, True]


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_an_engine_that_has_no_page_is_asked_for_it_seldom(status: int) -> None:
    engine = engine_with()
    engine.page_status = status
    async with sampling(engine) as reports:
        await asyncio.sleep(3 * NO_PAGE_AGAIN_S - 1)
        assert engine.times_of("/metrics") == [0.0, NO_PAGE_AGAIN_S, 2 * NO_PAGE_AGAIN_S]
        engine.page_status = 200
        await asyncio.sleep(1.6)
        assert reports.engine == RUNNING_2
        assert engine.times_of("/metrics")[-2:] == [3 * NO_PAGE_AGAIN_S, 3 * NO_PAGE_AGAIN_S + 0.5]


async def test_a_page_that_went_away_is_soon_known_to_be_gone() -> None:
    engine = engine_with()
    async with sampling(engine) as reports:
        await asyncio.sleep(0.1)
        engine.page_status = 404
        await asyncio.sleep(FRESH_AT_LEAST_S + 0.5)
        assert reports.engine == UNKNOWN


async def test_bad_and_good_again_are_one_line_each() -> None:
    """signals.md §1.4.5."""
    engine = engine_with()
    with capture_logs() as lines:
        async with sampling(engine):
            for status in (200, 500, 503, 200, 200, 500):
                engine.page_status = status
                await asyncio.sleep(1)
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "engine_metrics_unread"),
        ("info", "engine_metrics_read"),
        ("warning", "engine_metrics_unread"),
    ]


async def test_before_the_first_page_there_is_nothing_to_report() -> None:
    engine = engine_with()
    engine.ready_at = 20.0
    async with sampling(engine) as reports:
        await asyncio.sleep(19)
        assert reports.engine is None
        await asyncio.sleep(1.6)
        assert reports.engine == RUNNING_2


async def test_what_was_known_counts_for_a_while_after_the_last_page_and_then_is_unknown() -> None:
    engine = engine_with()
    async with sampling(engine) as reports:
        await asyncio.sleep(0.1)
        engine.page_status = 503
        await asyncio.sleep(FRESH_AT_LEAST_S)
        assert reports.engine == RUNNING_2
        await asyncio.sleep(0.5)
        assert reports.engine == UNKNOWN
        engine.page_status = 200
        await asyncio.sleep(0.5)
        assert reports.engine == RUNNING_2


async def test_with_a_long_interval_some_missed_samples_are_allowed() -> None:
    engine = engine_with()
    async with sampling(engine, interval_s=20.0) as reports:
        await asyncio.sleep(1)
        engine.page_status = 503
        await asyncio.sleep(20.0 * MISSED_SAMPLES_MAX)
        assert reports.engine == RUNNING_2
        await asyncio.sleep(20.0)
        assert reports.engine == UNKNOWN


async def test_a_hung_engine_is_unknown_soon_after() -> None:
    engine = engine_with()
    async with sampling(engine) as reports:
        await asyncio.sleep(0.1)
        engine.hangs = True
        await asyncio.sleep(FRESH_AT_LEAST_S + 6)
        assert reports.engine == UNKNOWN


async def test_a_page_that_knows_less_takes_the_rest_back_at_once() -> None:
    engine = engine_with(b"vllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.5")
    async with sampling(engine) as reports:
        await asyncio.sleep(0.1)
        engine.page = b"vllm:num_requests_running 2"
        await asyncio.sleep(0.5)
        assert reports.engine == RUNNING_2
        engine.page = b"another program's page"
        await asyncio.sleep(0.5)
        assert reports.engine == UNKNOWN


def ttft_page(count: int, total_s: float) -> bytes:
    name = b"vllm:time_to_first_token_seconds"
    return b"%b_sum %f\n%b_count %d" % (name, total_s, name, count)


async def test_latency_looks_back_a_minute_where_enough_happened() -> None:
    """signals.md §9.1, "Windowed latency": after a day of 1 s, a minute of 3 s is seen as 3 s."""
    engine = engine_with(ttft_page(10_000, 10_000.0))
    async with sampling(engine) as reports:
        await asyncio.sleep(61)
        assert reports.engine is not None
        assert reports.engine.avg_ttft_seconds == pytest.approx(1.0)
        engine.page = ttft_page(10_100, 10_300.0)
        await asyncio.sleep(1)
        assert reports.engine.avg_ttft_seconds == pytest.approx(3.0)
        await asyncio.sleep(50)
        assert reports.engine.avg_ttft_seconds == pytest.approx(3.0)
        await asyncio.sleep(20)
        assert reports.engine.avg_ttft_seconds == pytest.approx(10_300 / 10_100)


async def test_an_engine_that_began_anew_is_seen_as_it_is_now() -> None:
    engine = engine_with(ttft_page(10_000, 10_000.0))
    async with sampling(engine) as reports:
        await asyncio.sleep(61)
        engine.page = ttft_page(30, 60.0)
        await asyncio.sleep(1)
        assert reports.engine is not None
        assert reports.engine.avg_ttft_seconds == pytest.approx(2.0)


def test_these_engines_have_metrics() -> None:
    assert {engine for engine, face in FACES.items() if face.metrics_in} == {
        Engine.VLLM,
        Engine.SGLANG,
        Engine.LLAMACPP,
    }
