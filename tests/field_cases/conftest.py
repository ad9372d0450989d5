"""One bench for all field cases that do not need a router of their own, and what must hold after each of them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.field_cases.bench import SEATS, Bench, bench_in
from tests.field_cases.words import whole_answer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """The programs, started once."""
    async with bench_in(tmp_path_factory.mktemp("bench"), SEATS) as bench:
        yield bench
        answers = "http_server_request_duration_seconds_count"
        page = await bench.page()
        assert page.total(answers) > page.total(answers, status_code="500") == 0
        assert bench.router.process.poll() is None
        assert "Traceback" not in bench.router.said


@pytest_asyncio.fixture(loop_scope="session")
async def bench(shared_bench: Bench) -> AsyncIterator[Bench]:
    """The bench as new. No case may leave anything running, whatever it did."""
    shared_bench.begin(whole_answer)
    yield shared_bench
    await shared_bench.rests()
    assert [engine.faults for engine in shared_bench.engines.values() if engine.faults] == []
