"""O-28 and O-29: answers stay in step with their requests, and what strangers invent leaves no trace on the page."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest
from tests.field_cases.bench import BODIES, TEST_MODEL, Bench
from tests.field_cases.words import ANSWER
from tests.house.client import CHAT, MESSAGES, Connection, connected, error_of
from tests.raw_http import Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

LARGE_BYTES: Final = 300_000
SMALL_BYTES: Final = 3_000
LINES_MORE_MAX: Final = 5
INVENTED_OF_EACH: Final = 100


@dataclass(frozen=True)
class Turn:
    """One request of a connection, and what its answer has to be."""

    data: bytes
    status: int
    is_bodiless: bool = False
    body: bytes | None = None
    code: str | None = None


def with_length(target: str, body: bytes, *, method: str = "POST") -> bytes:
    """A request whose body is framed by its length."""
    return f"{method} {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(target: str, body: bytes) -> bytes:
    """A request in chunks that have extensions, with trailers behind them."""
    head = f"POST {target} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    half = len(body) // 2
    pieces = (b'%x;n=1;s="a;b"\r\n%b\r\n' % (len(part), part) for part in (body[:half], body[half:]))
    return head + b"".join(pieces) + b"0;last\r\nX-Check: 1\r\nX-Other:\r\n\r\n"


def bare(method: str, target: str) -> bytes:
    """A request without a body."""
    return f"{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode()


def sound(number: int) -> bytes:
    """A chat that can be told from the others."""
    return json.dumps({**BODIES[CHAT], "user": f"turn {number}"}).encode()


def refused_body(framed: Callable[[str, bytes], bytes], size_bytes: int) -> bytes:
    """A request for a model that nobody serves."""
    return framed(CHAT, json.dumps({"model": "nobody-s", "x": "y" * size_bytes}).encode())


HEALTHY: Final = b'{"status":"ok"}'


def between(size_bytes: int) -> list[Turn]:
    """What stands between the sound ones; bodies that are refused have about this size."""
    return [
        Turn(with_length(CHAT, b"{"), 400, code="request_invalid"),
        Turn(bare("GET", "/nowhere"), 404, code="not_found"),
        Turn(bare("GET", CHAT), 405, code="method_not_allowed"),
        Turn(bare("HEAD", "/health"), 200, is_bodiless=True),
        Turn(bare("OPTIONS", CHAT), 204),
        Turn(with_length("/health", b"a body nobody asked for", method="GET"), 200, body=HEALTHY),
        Turn(refused_body(with_length, size_bytes), 404, code="model_not_found"),
        Turn(refused_body(chunked, size_bytes), 404, code="model_not_found"),
        Turn(with_length("/nowhere", b"y" * size_bytes), 404, code="not_found"),
        Turn(chunked(MESSAGES, b"[]"), 400, code="request_invalid"),
    ]


def twenty(size_bytes: int) -> list[Turn]:
    """A sound request before each of the others."""
    turns: list[Turn] = []
    for number, other in enumerate(between(size_bytes)):
        framed = chunked if number % 2 else with_length
        turns += [Turn(framed(CHAT, sound(number)), 200, body=ANSWER), other]
    return turns


async def answer_to(client: Connection, turn: Turn) -> Reply:
    """The next answer on the connection, checked to be this turn's."""
    reply = await client.reply(bodiless=turn.is_bodiless)
    assert reply.status == turn.status, turn.data[:100]
    if turn.body is not None:
        assert reply.body == turn.body
    if turn.code is not None:
        assert error_of(reply)["code"] == turn.code
    return reply


@pytest.mark.parametrize(("is_pipelined", "size_bytes"), [(False, LARGE_BYTES), (True, SMALL_BYTES)])
async def test_o28_each_of_twenty_unlike_requests_on_one_connection_gets_its_own_answer(
    bench: Bench, is_pipelined: bool, size_bytes: int
) -> None:
    turns = twenty(size_bytes)
    ids = set()
    async with connected(bench.http) as client:
        if is_pipelined:
            client.send(b"".join(turn.data for turn in turns))
        for turn in turns:
            if not is_pipelined:
                client.send(turn.data)
            ids.add((await answer_to(client, turn)).header("x-request-id"))
    assert len(ids) == len(turns) == 20
    asked = [json.loads(turn.request.body)["user"] for turn in bench.engine.turns]
    assert asked == [f"turn {number}" for number in range(len(turns) // 2)]


async def ask_inventions(client: Connection, name: str) -> None:
    """A request for each thing that a stranger can make up."""
    named = f"Host: h\r\nUser-Agent: {name}\r\nX-Request-ID: {name}".encode()
    requests = (
        (with_length(CHAT, json.dumps({**BODIES[CHAT], "model": name}).encode()), 404),
        (bare("GET", f"/v1/models/{name}"), 404),
        (bare("GET", f"/{name}"), 404),
        (bare(name.upper(), "/health"), 405),
        (bare("GET", "/health").replace(b"Host: h", named), 200),
        (with_length(CHAT, json.dumps(BODIES[CHAT]).encode()).replace(b"Host: h", named), 200),
    )
    for data, status in requests:
        client.send(data)
        assert (await client.reply()).status == status


async def test_o29_what_is_invented_leaves_hardly_a_line_on_the_page_and_no_word(bench: Bench) -> None:
    """Series that every such request shares come with the first of them."""
    word = f"invented{uuid.uuid4().hex}"
    async with connected(bench.http) as client:
        await ask_inventions(client, f"{word}x")
        before = (await bench.page()).text.splitlines()
        for number in range(INVENTED_OF_EACH):
            await ask_inventions(client, f"{word}x{number}")
    after = await bench.page()
    assert len(after.text.splitlines()) <= len(before) + LINES_MORE_MAX
    assert word not in after.text.lower()
    assert TEST_MODEL in after.text
