"""Does OpenAI's own SDK get from the router what it gets from an engine, and does it raise where it should?

Whatever the SDK returns without raising its user takes for a whole answer. Source: http-api.md
§12, §15 items 1, 23, 26.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterable, Callable

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam, ChatCompletionToolParam
from tests.first_hour.programs import MODEL
from tests.sdks.conftest import EMBEDDER, Served

CHAT = "/v1/chat/completions"
ENDLESS = {"X-Sim": "chunks=100000,interval_ms=5"}
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def said(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


async def collect(stream: AsyncIterable[ChatCompletionChunk], into: list[ChatCompletionChunk]) -> None:
    """Read to the end; what came before a fault is kept."""
    async for chunk in stream:
        into.append(chunk)  # noqa: PERF401  (a comprehension would lose what came before a fault)


def faulty(words: str) -> dict[str, str]:
    return {"X-Sim": words}


async def test_a_stream_says_what_a_buffered_answer_says_and_costs_the_same(openai_async: openai.AsyncOpenAI) -> None:
    whole = await openai_async.chat.completions.create(model=MODEL, messages=said("hi"))
    stream = await openai_async.chat.completions.create(
        model=MODEL, messages=said("hi"), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert text_of(chunks) == whole.choices[0].message.content
    assert len(text_of(chunks).split()) == 8
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 8


async def test_the_stream_helper_comes_to_the_same(openai_async: openai.AsyncOpenAI) -> None:
    async with openai_async.chat.completions.stream(model=MODEL, messages=said("hi")) as stream:
        final = await stream.get_final_completion()
    whole = await openai_async.chat.completions.create(model=MODEL, messages=said("hi"))
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_the_blocking_client_is_served_alike(openai_sync: openai.OpenAI) -> None:
    whole = openai_sync.chat.completions.create(model=MODEL, messages=said("hi"))
    chunks = list(openai_sync.chat.completions.create(model=MODEL, messages=said("hi"), stream=True))
    assert text_of(chunks) == whole.choices[0].message.content
    completion = openai_sync.completions.create(model=MODEL, prompt="once", max_tokens=3)
    assert len(completion.choices[0].text.split()) == 3


async def test_tools_are_called_alike_in_both_ways(openai_async: openai.AsyncOpenAI) -> None:
    whole = await openai_async.chat.completions.create(model=MODEL, messages=said("#tool"), tools=[WEATHER])
    stream = await openai_async.chat.completions.create(
        model=MODEL, messages=said("#tool"), tools=[WEATHER], stream=True
    )
    deltas = [choice async for chunk in stream for choice in chunk.choices]
    calls = [call for choice in deltas for call in choice.delta.tool_calls or ()]
    assert whole.choices[0].message.tool_calls
    called = whole.choices[0].message.tool_calls[0]
    assert called.type == "function"
    assert called.function.name == "weather"
    assert set(json.loads(called.function.arguments)) == {"city"}
    assert [call.function.name for call in calls if call.function and call.function.name] == ["weather"]
    arguments = "".join(call.function.arguments or "" for call in calls if call.function)
    assert arguments == called.function.arguments
    assert (deltas[-1].finish_reason, whole.choices[0].finish_reason) == ("tool_calls", "tool_calls")


async def test_closing_a_stream_stops_the_engine(openai_async: openai.AsyncOpenAI, served: Served) -> None:
    before = served.engine.stats()["requests"]["cancelled"]
    stream = await openai_async.chat.completions.create(
        model=MODEL, messages=said("hi"), stream=True, extra_headers=ENDLESS
    )
    await anext(aiter(stream))
    await stream.close()
    await asyncio.to_thread(served.engine.until_cancelled, before)


def test_closing_a_stream_of_the_blocking_client_stops_the_engine(openai_sync: openai.OpenAI, served: Served) -> None:
    before = served.engine.stats()["requests"]["cancelled"]
    with openai_sync.chat.completions.create(
        model=MODEL, messages=said("hi"), stream=True, extra_headers=ENDLESS
    ) as stream:
        next(iter(stream))
    served.engine.until_cancelled(before)


async def test_cancelling_a_buffered_request_stops_the_engine(openai_async: openai.AsyncOpenAI, served: Served) -> None:
    before = served.engine.stats()["requests"]
    asking = asyncio.create_task(
        openai_async.chat.completions.create(model=MODEL, messages=said("hi"), extra_headers=ENDLESS)
    )
    await asyncio.to_thread(served.engine.until_seen, before["seen"])
    asking.cancel()
    await asyncio.wait([asking])
    await asyncio.to_thread(served.engine.until_cancelled, before["cancelled"])


def body_of(error: openai.APIError) -> dict[str, object]:
    assert isinstance(error.body, dict)
    return error.body


async def test_an_unknown_model_is_not_found_in_plain_words(openai_async: openai.AsyncOpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as caught:
            await openai_async.chat.completions.create(model="nobody", messages=said("hi"), stream=stream)
        error = caught.value
        assert "no agent serves the model 'nobody'" in error.message
        assert (error.code, error.type, error.param) == ("model_not_found", "not_found_error", None)
        assert (body_of(error)["source"], error.request_id) == ("router", error.response.headers["x-request-id"])


@pytest.mark.parametrize(
    ("words", "kind", "status", "code"),
    [
        ("status=400,body=bad%20temperature", openai.BadRequestError, 400, "invalid_parameter"),
        ("status=422,body=bad%20temperature", openai.BadRequestError, 400, "invalid_parameter"),
        ("status=500,body=bad%20temperature", openai.InternalServerError, 502, "backend_error"),
        ("status=503,body=bad%20temperature", openai.InternalServerError, 503, "backend_unavailable"),
    ],
)
async def test_an_engine_s_complaint_keeps_its_words(
    openai_async: openai.AsyncOpenAI, words: str, kind: type[openai.APIStatusError], status: int, code: str
) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            await openai_async.chat.completions.create(
                model=MODEL, messages=said("hi"), stream=stream, extra_headers=faulty(words)
            )
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert "bad temperature" in caught.value.message
        assert body_of(caught.value)["source"] == "backend"


async def test_a_request_without_a_model_is_a_bad_request(openai_async: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="model") as caught:
        await openai_async.chat.completions.create(model="", messages=said("hi"))
    assert caught.value.code == "request_invalid"


async def test_retry_after_is_passed_on(openai_async: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        await openai_async.chat.completions.create(
            model=MODEL, messages=said("hi"), extra_headers=faulty("status=503,retry_after=7")
        )
    assert caught.value.response.headers["retry-after"] == "7"


async def test_the_sdk_waits_as_long_as_the_engine_asks_and_tries_again(
    openai_async: openai.AsyncOpenAI, served: Served
) -> None:
    served.engine.fail("status=503,retry_after=1", times=1)
    before = len(served.engine.requests(CHAT))
    patient = openai_async.with_options(max_retries=1)
    answer = await patient.chat.completions.create(model=MODEL, messages=said("hi"))
    assert answer.choices[0].message.content
    first, second = (record["received_s"] for record in served.engine.requests(CHAT)[before:])
    assert isinstance(first, float)
    assert isinstance(second, float)
    assert second - first >= 1.0


@pytest.mark.parametrize("words", ["reset_after_chunks=3", "close_after_chunks=3"])
async def test_a_broken_stream_raises_after_what_had_come(openai_async: openai.AsyncOpenAI, words: str) -> None:
    stream = await openai_async.chat.completions.create(
        model=MODEL, messages=said("hi"), stream=True, extra_headers=faulty(words)
    )
    chunks: list[ChatCompletionChunk] = []
    with pytest.raises(openai.APIError, match="broke off") as caught:
        await collect(stream, chunks)
    assert len(text_of(chunks).split()) >= 3
    assert (caught.value.code, body_of(caught.value)["source"]) == ("backend_error", "backend")


def test_a_broken_stream_raises_in_the_blocking_client_too(openai_sync: openai.OpenAI) -> None:
    stream = openai_sync.chat.completions.create(
        model=MODEL, messages=said("hi"), stream=True, extra_headers=faulty("reset_after_chunks=3")
    )
    with pytest.raises(openai.APIError, match="broke off"):
        list(stream)


@pytest.mark.parametrize("words", ["reset_before_head", "close_before_head", "truncate_body=40"])
async def test_an_engine_that_breaks_off_a_buffered_answer_is_an_error(
    openai_async: openai.AsyncOpenAI, words: str
) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        await openai_async.chat.completions.create(model=MODEL, messages=said("hi"), extra_headers=faulty(words))
    assert caught.value.status_code in (502, 503)


@pytest.mark.parametrize("stream", [False, True])
def test_a_silent_engine_is_given_up_in_time(
    hasty: Served, client_of: Callable[[Served], openai.OpenAI], stream: bool
) -> None:
    before = hasty.engine.stats()["requests"]["cancelled"]
    with pytest.raises(openai.InternalServerError) as caught:
        client_of(hasty).chat.completions.create(
            model=MODEL, messages=said("hi"), stream=stream, extra_headers=faulty("stall_before_head=forever")
        )
    assert (caught.value.status_code, caught.value.code) == (504, "request_timeout")
    hasty.engine.until_cancelled(before)


def test_a_stream_that_falls_silent_raises(hasty: Served, client_of: Callable[[Served], openai.OpenAI]) -> None:
    before = hasty.engine.stats()["requests"]["cancelled"]
    stream = client_of(hasty).chat.completions.create(
        model=MODEL, messages=said("hi"), stream=True, extra_headers=faulty("stall_after_chunks=3")
    )
    with pytest.raises(openai.APIError, match="fell silent") as caught:
        list(stream)
    assert caught.value.code == "request_timeout"
    hasty.engine.until_cancelled(before)


async def test_embeddings_come_in_both_encodings(openai_async: openai.AsyncOpenAI) -> None:
    decoded = await openai_async.embeddings.create(model=EMBEDDER, input=["a", "b"])
    written = await openai_async.embeddings.create(model=EMBEDDER, input=["a", "b"], encoding_format="float")
    assert [len(each.embedding) for each in decoded.data] == [64, 64]
    for one, other in zip(decoded.data, written.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)


async def test_embeddings_of_a_chat_model_are_a_bad_request(openai_async: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="capability"):
        await openai_async.embeddings.create(model=MODEL, input="a")


async def test_models_are_listed_and_found(openai_async: openai.AsyncOpenAI) -> None:
    models = [model async for model in openai_async.models.list()]
    assert [model.id for model in models] == [EMBEDDER, MODEL]
    assert all(model.created > 1_700_000_000 and model.owned_by and model.object == "model" for model in models)
    assert (await openai_async.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError, match="nobody"):
        await openai_async.models.retrieve("nobody")


async def test_a_request_id_is_on_the_answer_and_at_the_engine(
    openai_async: openai.AsyncOpenAI, served: Served
) -> None:
    made = await openai_async.chat.completions.create(model=MODEL, messages=said("hi"))
    assert str(uuid.UUID(made._request_id)) == made._request_id
    mine = str(uuid.uuid4())
    kept = await openai_async.chat.completions.create(
        model=MODEL, messages=said("hi"), extra_headers={"X-Request-ID": mine}
    )
    assert kept._request_id == mine
    assert [served.engine.header(record, "x-request-id") for record in served.engine.requests(CHAT)[-2:]] == [
        [made._request_id],
        [mine],
    ]


async def test_fifty_streams_at_once_each_get_their_own_answer(openai_async: openai.AsyncOpenAI) -> None:
    async def ask(number: int) -> str:
        stream = await openai_async.chat.completions.create(
            model=MODEL,
            messages=said(f"number {number} of fifty, and its own {'word ' * number}"),
            stream=True,
            extra_headers={"X-Sim-Echo": "1", **faulty("interval_ms=2")},
        )
        return text_of([chunk async for chunk in stream])

    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(ask(number) for number in range(50)))
    for number, answer in enumerate(answers):
        assert answer.split() == f"number {number} of fifty, and its own {'word ' * number}".split()
