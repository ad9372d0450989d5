"""O-24, O-25 and an engine that asks for a key: what engines differ in, on benches of their own."""

import asyncio
from pathlib import Path

import pytest
from tests.field_cases.bench import TEST_MODEL, Seat, bench_in
from tests.field_cases.engine import Turn
from tests.field_cases.words import CHUNKED_HEAD, LAST_CHUNK, chunk, delta, whole_answer
from tests.house.client import CHAT, ask, connected, error_of, hello
from tests.house.raw_engine import sized
from tests.raw_http import at

pytestmark = pytest.mark.asyncio(loop_scope="session")

OLLAMA = ("--engine=ollama",)


async def test_o24_the_tag_that_goes_without_saying(tmp_path: Path) -> None:
    ollamas = [
        Seat(name, model, OLLAMA) for name, model in {"a": "llama3:latest", "b": "llama3", "c": "llama3:70b"}.items()
    ]
    seats = (*ollamas, Seat("d", "exact:latest"))
    async with bench_in(tmp_path, seats, tags=("llama3:latest", "llama3:70b")) as bench:
        statuses = {}
        for name in ("llama3", "llama3:latest", "llama3:70b", "llama3:8b", "exact:latest", "exact"):
            bench.begin(whole_answer)
            statuses[name] = (await ask(bench.http, CHAT, hello(name))).status
            listed = (await ask(bench.http, f"/v1/models/{name}")).status
            assert listed == statuses[name]
            for engine in bench.engines.values():
                for turn in engine.turns:
                    assert f'"{name}"'.encode() in turn.request.body
        assert statuses == {
            "llama3": 200,
            "llama3:latest": 200,
            "llama3:70b": 200,
            "llama3:8b": 404,
            "exact:latest": 200,
            "exact": 404,
        }
        detail = (await ask(bench.http, "/v1/models/llama3:latest")).json()
        assert (at(detail, "id"), at(detail, "agents", "total")) == ("llama3", 2)


async def test_o25_an_engine_that_answers_requests_is_not_dead_because_its_health_page_is_silent(
    tmp_path: Path,
) -> None:
    """Longer than three silent probes take, here with a shorter time for each."""
    flags = ("--probe-timeout=1s", "--hardware-sample-interval=200ms")
    async with bench_in(tmp_path, (Seat("test", TEST_MODEL, flags),)) as bench:

        async def streams_or_answers(turn: Turn) -> None:
            if b'"stream"' not in turn.request.body:
                await whole_answer(turn)
                return
            await turn.send(CHUNKED_HEAD)
            for _ in range(80):
                await turn.send(chunk(delta(content="x")))
                await asyncio.sleep(0.1)
            await turn.send(chunk(b"data: [DONE]\n\n"), LAST_CHUNK)

        engine = bench.engine
        engine.begin(streams_or_answers)
        async with connected(bench.http) as client:
            client.ask(CHAT, hello(TEST_MODEL, stream=True))
            await engine.has_turns(1)
            engine.probes_are_silent = True
            asked_before = len(engine.probes)
            while len(engine.probes) < asked_before + 5:
                assert (await ask(bench.http, CHAT, hello(TEST_MODEL))).status == 200
                await asyncio.sleep(0.2)
            assert (await client.reply()).status == 200
        # What answers nothing is dead.
        await bench.agents["test"].has_said("backend_not_ready")
        assert error_of(await ask(bench.http, CHAT, hello(TEST_MODEL)))["code"] == "no_agents_available"


async def test_an_engine_is_told_the_agents_own_key_everywhere_and_never_the_clients(tmp_path: Path) -> None:
    key = tmp_path / "engine.key"
    key.write_text("sk-of-the-engine\n")
    key.chmod(0o600)
    seat = Seat("test", TEST_MODEL, (f"--backend-api-key-file={key}",))
    async with bench_in(tmp_path, (seat,)) as bench:
        headers = {"Authorization": "Bearer sk-of-the-client", "X-Api-Key": "sk-of-the-client"}
        assert (await ask(bench.http, CHAT, hello(TEST_MODEL), **headers)).status == 200
        engine = bench.engine
        assert {line.split(" ")[1] for line in (each.line for each in engine.probes)} >= {"/health", "/metrics"}
        for request in (*engine.probes, *(turn.request for turn in engine.turns)):
            assert [value for name, value in request.headers if name.lower() == "authorization"] == [
                "Bearer sk-of-the-engine"
            ]
            assert b"sk-of-the-client" not in request.raw

        async def refuses(turn: Turn) -> None:
            await turn.send(*sized(b'{"error":"no such key"}', "401 Unauthorized").pieces)

        engine.begin(refuses)
        for path in (CHAT, "/v1/completions"):
            reply = await ask(bench.http, path, {**hello(TEST_MODEL), "prompt": "hi"}, **headers)
            assert (reply.status, error_of(reply)["code"]) == (502, "backend_error")
        said = bench.agents["test"].said
        assert "backend_key_refused" in said
        assert "sk-of-the-engine" not in said + bench.router.said
