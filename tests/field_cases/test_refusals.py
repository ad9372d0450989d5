"""O-21, O-22: what an engine refuses is judged once, from status and body, alike on every path."""

import json
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, EMBEDDINGS, RERANK, TWO, Bench
from tests.field_cases.engine import Engine, Script, Turn
from tests.house.client import ask, error_of
from tests.house.raw_engine import sized

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORDS: Final = "the marker of this refusal"


def says(status: str, body: bytes, content_type: str = "application/json") -> Script:
    async def script(turn: Turn) -> None:
        await turn.send(*sized(body, status, content_type).pieces)

    return script


def model_of(path: str) -> str:
    """The model of two replicas where the path has one."""
    return str(BODIES[path]["model"]) if path in (EMBEDDINGS, RERANK) else TWO


def engines_of(bench: Bench, path: str) -> list[Engine]:
    return [bench.engine_of(path)] if path in (EMBEDDINGS, RERANK) else [bench.engines["a"], bench.engines["b"]]


async def refused(bench: Bench, path: str, script: Script, **headers: str) -> tuple[int, str, str, int]:
    """Status, code and message that the client has, and how many calls it took; nobody may be blamed for it."""
    bench.begin(script)
    failed_before = await bench.failed_attempts()
    reply = await ask(bench.http, path, {**BODIES[path], "model": model_of(path)}, **headers)
    error = error_of(reply)
    calls = sum(len(engine.turns) for engine in engines_of(bench, path))
    if calls == 1 and (reply.status < 502 or "--backend-api-key-file" in str(error["message"])):
        assert await bench.failed_attempts() == failed_before
    return reply.status, str(error["code"]), str(error["message"]), calls


OPENAI: Final = json.dumps({"error": {"message": WORDS, "type": "SomeError"}}).encode()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("status", "answered"),
    [
        ("404 Not Found", 404),
        ("413 Content Too Large", 413),
        ("405 Method Not Allowed", 400),
        ("415 Unsupported Media Type", 400),
        ("409 Conflict", 400),
        ("501 Not Implemented", 501),
    ],
)
async def test_o21_a_refusal_is_the_same_on_every_path(bench: Bench, path: str, status: str, answered: int) -> None:
    assert await refused(bench, path, says(status, OPENAI)) == (answered, "invalid_parameter", WORDS, 1)


@pytest.mark.parametrize("path", BODIES)
async def test_o21_a_page_of_a_proxy_says_no_more_than_its_status(bench: Bench, path: str) -> None:
    page = says("413 Content Too Large", b"<html><h1>413</h1></html>", "text/html")
    status, code, message, calls = await refused(bench, path, page)
    assert (status, code, calls) == (413, "invalid_parameter", 1)
    assert "413" in message
    assert "<" not in message


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(("told", "status"), [("401 Unauthorized", 401), ("403 Forbidden", 403)])
async def test_o21_credentials_are_the_clients_where_it_sent_some_and_else_the_operators(
    bench: Bench, path: str, told: str, status: int
) -> None:
    own = await refused(bench, path, says(told, OPENAI), Authorization="Bearer k")
    assert own == (status, "invalid_parameter", WORDS, 1)
    answered, code, message, calls = await refused(bench, path, says(told, OPENAI))
    assert (answered, code, calls) == (502, "backend_error", 1)
    assert message.endswith(f"(--backend-api-key-file): {WORDS}")


SHAPES: Final[dict[str, tuple[str, object]]] = {
    "error is text": ("400 Bad Request", {"error": WORDS}),
    "with a type": ("422 Unprocessable Content", {"error": WORDS, "error_type": "validation"}),
    "detail": ("400 Bad Request", {"detail": WORDS}),
    "a list": ("400 Bad Request", [{"error": {"message": WORDS}}]),
    "a text": ("400 Bad Request", WORDS),
    "flat": ("400 Bad Request", {"object": "error", "message": WORDS}),
    "message": ("400 Bad Request", {"message": WORDS}),
    "longer than is read": ("400 Bad Request", {"message": WORDS, "input": "x" * 70_000}),
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("shape", SHAPES)
async def test_o22_the_engines_words_are_the_message_whatever_shape_they_come_in(
    bench: Bench, path: str, shape: str
) -> None:
    status, document = SHAPES[shape]
    said = await refused(bench, path, says(status, json.dumps(document).encode()))
    assert said == (400, "invalid_parameter", WORDS, 1)


@pytest.mark.parametrize("path", BODIES)
async def test_o22_a_list_of_fastapis_becomes_place_and_complaint_in_one_line(bench: Bench, path: str) -> None:
    detail = {"detail": [{"loc": ["body", "max_tokens"], "msg": WORDS, "type": "int"}]}
    said = await refused(bench, path, says("422 Unprocessable Content", json.dumps(detail).encode()))
    assert said == (400, "invalid_parameter", f"body.max_tokens: {WORDS}", 1)


@pytest.mark.parametrize("path", BODIES)
async def test_o22_a_broken_engines_words_are_told_when_the_others_have_failed_too(bench: Bench, path: str) -> None:
    status, code, message, calls = await refused(
        bench, path, says("500 Internal Server Error", json.dumps({"error": WORDS}).encode())
    )
    assert (status, code, message) == (502, "backend_error", WORDS)
    assert calls == len(engines_of(bench, path))
