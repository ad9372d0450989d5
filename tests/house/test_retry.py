"""What a client notices of an agent or engine that fails: nothing before the first byte, the plain truth after it."""

import hashlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.house.client import CHAT, MESSAGES, MODEL, ask, connected, error_of, hello
from tests.house.running import FAST, House, house_in, program, router_in

from hivenet_router.sim import SimOptions, Simulator


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[House]:
    """A router with two agents of one model, each with an engine of its own."""
    async with house_in(tmp_path, engines=(FAST, FAST)) as house:
        yield house
        await house.rests()


def asked(house: House, path: str = CHAT) -> list[int]:
    """How many requests each engine has seen on this path."""
    return [len(engine.requests(path)) for engine in house.engines]


async def first_and_second(house: House) -> tuple[Simulator, Simulator]:
    """The engine that is asked first as long as nothing changes, and the other one."""
    assert (await ask(house.http, CHAT, hello())).status == 200
    first, second = sorted(house.engines, key=lambda engine: -engine.stats.seen)
    assert (first.stats.seen, second.stats.seen) == (1, 0)
    return first, second


# Each strikes the first engine asked, whichever that is, and so the second one serves.
FAULTS = [
    "reset_before_head",
    "close_before_head",
    "status=500",
    "status=503,retry_after=1",
    "status=429",
    "truncate_body=10",
    "reset_after_bytes=40",
    "raw=nonsense%0D%0A%0D%0A",
    "raw=HTTP/1.1%20200%20OK%0D%0AContent-Length:%205%0D%0AContent-Length:%206%0D%0A%0D%0Ahello",
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_failure_before_the_first_byte_is_served_by_the_other_agent(pair: House, fault: str, path: str) -> None:
    first, second = await first_and_second(pair)
    first.set_fault(fault)
    reply = await ask(pair.http, path, hello(max_tokens=5))
    assert (reply.status, reply.json()["model"]) == (200, MODEL)
    assert (first.stats.seen > 1, second.stats.finished) == (True, 1)


@pytest.mark.parametrize("fault", ["late_head,reset_before_head", "late_head,status=500"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_stream_that_fails_before_its_head_comes_whole_from_the_other_agent(
    pair: House, fault: str, path: str
) -> None:
    first, second = await first_and_second(pair)
    first.set_fault(fault)
    reply = await ask(pair.http, path, hello(stream=True, max_tokens=5))
    assert (reply.status, reply.whole) == (200, True)
    assert (first.stats.seen > 1, second.stats.finished) == (True, 1)


async def test_an_engine_that_nobody_listens_at_is_passed_over_until_its_agent_notices(tmp_path: Path) -> None:
    async with router_in(tmp_path) as house:
        dying = Simulator(FAST)
        async with dying:
            await house.add_agent(dying.url, "--hardware-sample-interval=1h")
            living = await house.add_engine()
            await house.add_agent(living.url)
        for _ in range(10):
            assert (await ask(house.http, CHAT, hello())).status == 200
        assert living.stats.finished == 10
        await house.rests()


async def test_when_every_engine_fails_the_last_engine_s_words_are_told(pair: House) -> None:
    for status, code, told in (
        ("status=500,body=out%20of%20memory", "backend_error", 502),
        ("status=503,retry_after=7,body=loading%20weights", "backend_unavailable", 503),
        ("status=429,retry_after=7,body=slow%20down", "backend_unavailable", 503),
    ):
        for path in (CHAT, MESSAGES):
            reply = await ask(pair.http, path, hello(max_tokens=5), x_sim=status)
            assert (reply.status, error_of(reply)["code"]) == (told, code), status
            assert status.rpartition("body=")[2].replace("%20", " ") in str(error_of(reply)["message"])
            assert reply.header("retry-after") == ("7" if "retry_after" in status else None)
    assert (await ask(pair.http, CHAT, hello())).status == 200


@pytest.mark.parametrize(
    ("path", "fault", "status", "code", "words"),
    [
        (
            CHAT,
            "status=400,body=maximum%20context%20length%20is%208192%20tokens",
            400,
            "context_length_exceeded",
            "8192",
        ),
        (CHAT, "status=422,body=bad%20tools", 400, "invalid_parameter", "bad tools"),
        (MESSAGES, "status=400", 400, "invalid_parameter", ""),
        (MESSAGES, "status=413,body=too%20much", 413, "invalid_parameter", "too much"),
    ],
)
async def test_a_complaint_about_the_request_is_asked_of_one_engine_only_and_blames_no_agent(
    pair: House, path: str, fault: str, status: int, code: str, words: str
) -> None:
    """O-13."""
    for _ in range(10):
        reply = await ask(pair.http, path, hello(max_tokens=5), x_sim=fault)
        assert (reply.status, error_of(reply)["code"]) == (status, code)
        assert words in str(error_of(reply)["message"])
    assert sum(asked(pair, path)) == 10
    page = await pair.page()
    assert page.total("hivenet_agent_requests_failed_total") == 0
    assert (await ask(pair.http, path, hello(max_tokens=5))).status == 200


async def test_an_engine_s_500_about_too_long_a_prompt_is_the_client_s_fault(pair: House) -> None:
    """O-13 (b)."""
    error = '{"message":"maximum context length is 8192 tokens"%2C"type":"context_length_exceeded"}'
    fault = f'status=500,body={{"error":{error}}}'
    reply = await ask(pair.http, CHAT, hello(), x_sim=fault)
    assert (reply.status, error_of(reply)["code"]) == (400, "context_length_exceeded")
    assert sum(asked(pair)) == 1


BREAKS = ["reset_after_chunks=3", "close_after_chunks=3", "reset_after_chunks=3,comments", "no_done,truncate_body=50"]


@pytest.mark.parametrize("fault", BREAKS)
@pytest.mark.parametrize(
    ("path", "event"), [(CHAT, b'data: {"error":'), (MESSAGES, b'event: error\ndata: {"type":"error",')]
)
async def test_a_stream_that_breaks_off_ends_with_an_error_event_and_is_never_begun_again(
    pair: House, path: str, event: bytes, fault: str
) -> None:
    """O-18."""
    reply = await ask(pair.http, path, hello(stream=True, max_tokens=5), x_sim=fault)
    assert (reply.status, reply.whole) == (200, False)
    *_, last = reply.body.rstrip(b"\n").split(b"\n\n")
    assert last.startswith(event)
    assert b"backend_error" in last
    assert sum(asked(pair, path)) == 1


async def test_a_buffered_answer_that_never_came_whole_is_asked_for_again(pair: House) -> None:
    first, second = await first_and_second(pair)
    first.set_fault("reset_after_bytes=300")
    reply = await ask(pair.http, CHAT, hello(max_tokens=200))
    assert (reply.status, reply.whole) == (200, True)
    assert (first.stats.broken, second.stats.finished) == (1, 1)


@pytest.mark.parametrize("size", [130_000, 200_000, 1_200_000, 5_000_000])
@pytest.mark.parametrize("fault", ["reset_before_head", "status=500"])
async def test_the_second_agent_gets_a_large_body_byte_for_byte(pair: House, size: int, fault: str) -> None:
    """A-14."""
    text = random.Random(size).randbytes(size // 2).hex()
    body = json.dumps(hello(messages=[{"role": "user", "content": text}], max_tokens=1)).encode()
    digest = hashlib.sha256(body).hexdigest()
    first, second = await first_and_second(pair)
    first.set_fault(fault)
    assert (await ask(pair.http, CHAT, body)).status == 200
    records = [*first.requests(CHAT)[1:], *second.requests(CHAT)]
    assert {record.body_sha256 for record in records} == {digest}
    assert second.stats.finished == 1


async def test_an_answer_that_is_not_strict_json_is_passed_on_as_it_is(pair: House) -> None:
    """A-16."""
    for body in ('{"choices":[{"logprobs":-Infinity}]%2C"x":NaN}', "plain%20text", "[1%2C2]", "{"):
        reply = await ask(pair.http, CHAT, hello(), x_sim=f"body={body},content_type=application/json")
        plain = body.replace("%2C", ",").replace("%20", " ")
        assert (reply.status, reply.body.decode()) == (200, plain)
    assert sum(asked(pair)) == 4
    assert (await pair.page()).total("hivenet_agent_requests_failed_total") == 0


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_an_agent_killed_before_the_first_byte_is_replaced_and_after_it_the_client_is_told(
    tmp_path: Path, path: str
) -> None:
    async with router_in(tmp_path) as house:
        engine = await house.add_engine(SimOptions(models=(MODEL,), decode_tokens_per_s=50))
        grpc = f"{house.grpc[0]}:{house.grpc[1]}"
        with program("agent", tmp_path, f"--backend-url={engine.url}", f"--router-grpc={grpc}") as doomed:
            await doomed.has_said("registered")
            async with connected(house.http) as streaming, connected(house.http) as silent:
                streaming.ask(path, hello(stream=True, max_tokens=1000), x_sim="chunks=1000")
                await streaming.until(b"\n\n")
                silent.ask(path, hello(max_tokens=5), x_sim="delay=60")
                await engine.wait_for(lambda stats: stats.seen == 2)
                living = await house.add_engine()
                await house.add_agent(living.url)
                living.set_fault("delay=0")
                doomed.kill()
                rest, ending = await streaming.rest()
                await living.wait_for(lambda stats: stats.seen == 1)
                silent.abort()
        assert ending in ("fin", "reset")
        assert (b"event: error\ndata: {" if path == MESSAGES else b'data: {"error":{') in rest
        assert not rest.endswith(b"0\r\n\r\n")
        reply = await ask(house.http, path, hello(max_tokens=5))
        assert reply.status == 200
        await house.rests()
