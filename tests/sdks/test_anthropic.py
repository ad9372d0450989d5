"""Does Anthropic's own SDK get from the router what it gets from an engine, and does it raise where it should?

Whatever the SDK returns without raising its user takes for a whole answer. Source: http-api.md §12, §15; field-cases.md
O-16 and O-17.
"""

import asyncio
import uuid
from collections.abc import Callable

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam
from tests.first_hour.programs import MODEL
from tests.sdks.conftest import EMBEDDER, Served

MESSAGES = "/v1/messages"
ENDLESS = {"X-Sim": "chunks=100000,interval_ms=5"}
WEATHER: ToolParam = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def said(text: str) -> list[MessageParam]:
    return [{"role": "user", "content": text}]


def faulty(words: str) -> dict[str, str]:
    return {"X-Sim": words}


async def collect(client: anthropic.AsyncAnthropic, into: list[str], headers: dict[str, str]) -> None:
    """Stream an answer to its end; what came before a fault is kept."""
    async with client.messages.stream(model=MODEL, max_tokens=50, messages=said("hi"), extra_headers=headers) as stream:
        async for piece in stream.text_stream:
            into.append(piece)  # noqa: PERF401  (a comprehension would lose what came before a fault)


def texts(message: anthropic.types.Message) -> list[str]:
    return [block.text for block in message.content if block.type == "text"]


async def test_a_stream_says_what_a_buffered_answer_says_and_costs_the_same(
    anthropic_async: anthropic.AsyncAnthropic,
) -> None:
    whole = await anthropic_async.messages.create(model=MODEL, max_tokens=50, messages=said("hi"))
    async with anthropic_async.messages.stream(model=MODEL, max_tokens=50, messages=said("hi")) as stream:
        pieces = [piece async for piece in stream.text_stream]
        final = await stream.get_final_message()
    assert ["".join(pieces)] == texts(final) == texts(whole)
    assert len(pieces) == 8
    assert (final.usage.input_tokens, final.usage.output_tokens) == (whole.usage.input_tokens, 8)
    assert (final.stop_reason, whole.stop_reason) == ("end_turn", "end_turn")


def test_the_blocking_client_is_served_alike(anthropic_sync: anthropic.Anthropic) -> None:
    whole = anthropic_sync.messages.create(model=MODEL, max_tokens=5, messages=said("hi"))
    with anthropic_sync.messages.stream(model=MODEL, max_tokens=5, messages=said("hi")) as stream:
        final = stream.get_final_message()
    assert texts(final) == texts(whole)
    assert final.stop_reason == "max_tokens"


async def test_tools_are_called_alike_in_both_ways(anthropic_async: anthropic.AsyncAnthropic) -> None:
    whole = await anthropic_async.messages.create(model=MODEL, max_tokens=50, messages=said("#tool"), tools=[WEATHER])
    pieces = []
    async with anthropic_async.messages.stream(
        model=MODEL, max_tokens=50, messages=said("#tool"), tools=[WEATHER]
    ) as stream:
        async for event in stream:
            if event.type == "input_json":
                pieces.append(event.partial_json)  # noqa: PERF401  (events of other kinds pass by)
        final = await stream.get_final_message()
    for message in (whole, final):
        (block,) = message.content
        assert block.type == "tool_use"
        assert (block.name, set(block.input), message.stop_reason) == ("weather", {"city"}, "tool_use")
    assert final.content[0].model_dump()["input"] == whole.content[0].model_dump()["input"]
    assert "city" in "".join(pieces)


async def test_thinking_is_streamed_as_thinking(anthropic_async: anthropic.AsyncAnthropic) -> None:
    async with anthropic_async.messages.stream(
        model=MODEL, max_tokens=50, messages=said("hi"), extra_headers=faulty("reasoning=2")
    ) as stream:
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]


async def test_closing_a_stream_stops_the_engine(anthropic_async: anthropic.AsyncAnthropic, served: Served) -> None:
    before = served.engine.stats()["requests"]["cancelled"]
    async with anthropic_async.messages.stream(
        model=MODEL, max_tokens=50, messages=said("hi"), extra_headers=ENDLESS
    ) as stream:
        await anext(aiter(stream))
    await asyncio.to_thread(served.engine.until_cancelled, before)


def test_closing_a_stream_of_the_blocking_client_stops_the_engine(
    anthropic_sync: anthropic.Anthropic, served: Served
) -> None:
    before = served.engine.stats()["requests"]["cancelled"]
    with anthropic_sync.messages.create(
        model=MODEL, max_tokens=50, messages=said("hi"), stream=True, extra_headers=ENDLESS
    ) as stream:
        next(iter(stream))
    served.engine.until_cancelled(before)


def error_in(error: anthropic.APIStatusError) -> dict[str, object]:
    """The inner object, in the shape that Anthropic's clients read."""
    assert isinstance(error.body, dict)
    assert error.body["type"] == "error"
    inner = error.body["error"]
    assert isinstance(inner, dict)
    return inner


async def test_an_unknown_model_is_not_found_in_plain_words(anthropic_async: anthropic.AsyncAnthropic) -> None:
    for stream in (False, True):
        with pytest.raises(anthropic.NotFoundError) as caught:
            await anthropic_async.messages.create(model="nobody", max_tokens=1, messages=said("hi"), stream=stream)
        error = caught.value
        assert "no agent serves the model 'nobody'" in error.message
        inner = error_in(error)
        assert (inner["type"], inner["code"], inner["source"]) == ("not_found_error", "model_not_found", "router")
        assert isinstance(error.body, dict)
        assert error.request_id == error.body["request_id"] == error.response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("words", "kind", "status", "type_"),
    [
        ("status=400,body=bad%20budget", anthropic.BadRequestError, 400, "invalid_request_error"),
        ("status=404,body=bad%20budget", anthropic.NotFoundError, 404, "not_found_error"),
        ("status=500,body=bad%20budget", anthropic.InternalServerError, 502, "api_error"),
        ("status=503,body=bad%20budget", anthropic.InternalServerError, 503, "overloaded_error"),
        ("status=529,body=bad%20budget", anthropic.InternalServerError, 503, "overloaded_error"),
    ],
)
async def test_an_engine_s_complaint_keeps_its_words(
    anthropic_async: anthropic.AsyncAnthropic,
    words: str,
    kind: type[anthropic.APIStatusError],
    status: int,
    type_: str,
) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            await anthropic_async.messages.create(
                model=MODEL, max_tokens=5, messages=said("hi"), stream=stream, extra_headers=faulty(words)
            )
        assert (caught.value.status_code, error_in(caught.value)["type"]) == (status, type_)
        assert error_in(caught.value)["message"] == "bad budget"


async def test_an_engine_s_own_error_is_read_through(anthropic_async: anthropic.AsyncAnthropic) -> None:
    """An error that the engine words in Anthropic's shape keeps its message, not its JSON."""
    with pytest.raises(anthropic.BadRequestError) as caught:
        await anthropic_async.messages.create(
            model=MODEL, max_tokens=5, messages=said("hi"), extra_headers=faulty("status=400")
        )
    assert error_in(caught.value)["message"] == "simulated status 400"


async def test_the_sdk_waits_as_long_as_the_engine_asks_and_tries_again(
    anthropic_async: anthropic.AsyncAnthropic, served: Served
) -> None:
    served.engine.fail("status=529,retry_after=1", times=1)
    before = len(served.engine.requests(MESSAGES))
    patient = anthropic_async.with_options(max_retries=1)
    answer = await patient.messages.create(model=MODEL, max_tokens=5, messages=said("hi"))
    assert texts(answer)
    first, second = (record["received_s"] for record in served.engine.requests(MESSAGES)[before:])
    assert isinstance(first, float)
    assert isinstance(second, float)
    assert second - first >= 1.0


@pytest.mark.parametrize("words", ["reset_after_chunks=3", "close_after_chunks=3"])
async def test_a_broken_stream_raises_after_what_had_come(
    anthropic_async: anthropic.AsyncAnthropic, words: str
) -> None:
    pieces: list[str] = []
    with pytest.raises(anthropic.APIStatusError, match="broke off") as caught:
        await collect(anthropic_async, pieces, faulty(words))
    assert len(pieces) >= 3
    inner = error_in(caught.value)
    assert (inner["type"], inner["code"], inner["source"]) == ("api_error", "backend_error", "backend")


def test_a_broken_stream_raises_in_the_blocking_client_too(anthropic_sync: anthropic.Anthropic) -> None:
    stream = anthropic_sync.messages.create(
        model=MODEL, max_tokens=50, messages=said("hi"), stream=True, extra_headers=faulty("reset_after_chunks=3")
    )
    with pytest.raises(anthropic.APIStatusError, match="broke off"):
        list(stream)


@pytest.mark.parametrize("stream", [False, True])
def test_a_silent_engine_is_given_up_in_time(
    hasty: Served, anthropic_of: Callable[[Served], anthropic.Anthropic], stream: bool
) -> None:
    before = hasty.engine.stats()["requests"]["cancelled"]
    with pytest.raises(anthropic.InternalServerError) as caught:
        anthropic_of(hasty).messages.create(
            model=MODEL,
            max_tokens=5,
            messages=said("hi"),
            stream=stream,
            extra_headers=faulty("stall_before_head=forever"),
        )
    assert (caught.value.status_code, error_in(caught.value)["type"]) == (504, "timeout_error")
    hasty.engine.until_cancelled(before)


def test_a_stream_that_falls_silent_raises(
    hasty: Served, anthropic_of: Callable[[Served], anthropic.Anthropic]
) -> None:
    stream = anthropic_of(hasty).messages.create(
        model=MODEL, max_tokens=50, messages=said("hi"), stream=True, extra_headers=faulty("stall_after_chunks=3")
    )
    with pytest.raises(anthropic.APIStatusError, match="fell silent") as caught:
        list(stream)
    assert error_in(caught.value)["type"] == "timeout_error"


async def test_tokens_are_counted_by_the_engine(anthropic_async: anthropic.AsyncAnthropic, served: Served) -> None:
    counted = await anthropic_async.messages.count_tokens(model=MODEL, messages=said("four byte words"))
    assert counted.input_tokens == 4 + 4
    assert served.engine.requests(f"{MESSAGES}/count_tokens")[-1]["outcome"] == "finished"


async def test_beta_features_reach_the_engine_as_they_were_asked_for(
    anthropic_async: anthropic.AsyncAnthropic, served: Served
) -> None:
    await anthropic_async.beta.messages.create(
        model=MODEL,
        max_tokens=5,
        messages=[{"role": "user", "content": "hi"}],
        betas=["one-2025-01-01", "two-2025-02-02"],
        extra_query={"beta": "true"},
    )
    record = served.engine.requests(MESSAGES)[-1]
    assert record["target"] == "/v1/messages?beta=true"
    assert served.engine.header(record, "anthropic-beta") == ["one-2025-01-01,two-2025-02-02"]
    assert served.engine.header(record, "anthropic-version") != []


def test_two_lines_of_beta_features_reach_the_engine_as_two(
    served: Served, anthropic_with_two_betas: anthropic.Anthropic
) -> None:
    anthropic_with_two_betas.messages.create(model=MODEL, max_tokens=5, messages=said("hi"))
    record = served.engine.requests(MESSAGES)[-1]
    assert served.engine.header(record, "anthropic-beta") == ["one-2025-01-01", "two-2025-02-02"]


async def test_models_are_listed_as_one_page_and_found(anthropic_async: anthropic.AsyncAnthropic) -> None:
    page = await anthropic_async.models.list(limit=1000)
    assert [model.id for model in page.data] == [EMBEDDER, MODEL]
    assert (page.has_more, page.first_id, page.last_id) == (False, EMBEDDER, MODEL)
    assert all(model.type == "model" and model.display_name and model.created_at.tzinfo for model in page.data)
    assert [model.id async for model in anthropic_async.models.list(limit=1)] == [EMBEDDER, MODEL]
    assert (await anthropic_async.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(anthropic.NotFoundError, match="nobody"):
        await anthropic_async.models.retrieve("nobody")


async def test_a_request_id_is_on_the_answer_and_at_the_engine(
    anthropic_async: anthropic.AsyncAnthropic, served: Served
) -> None:
    made = await anthropic_async.messages.create(model=MODEL, max_tokens=5, messages=said("hi"))
    assert made._request_id is not None
    assert str(uuid.UUID(made._request_id)) == made._request_id
    assert served.engine.header(served.engine.requests(MESSAGES)[-1], "x-request-id") == [made._request_id]


async def test_a_key_given_either_way_is_no_obstacle(served: Served, anthropic_async: anthropic.AsyncAnthropic) -> None:
    """While no keys are configured, `x-api-key` and a bearer token are as good as none."""
    for headers in ({"x-api-key": "k"}, {"Authorization": "Bearer k"}):
        answer = await anthropic_async.messages.create(
            model=MODEL, max_tokens=5, messages=said("hi"), extra_headers=headers
        )
        assert texts(answer)
