"""Do the real OpenAI and Anthropic SDKs understand the simulator?"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest
from tests.sim.sim_wire import FAST

from hivenet_router.sim import Simulator

pytestmark = pytest.mark.asyncio

MODEL = "sim-model"


@asynccontextmanager
async def openai_client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with Simulator(FAST) as sim, openai.DefaultAsyncHttpxClient(trust_env=False) as http:
        yield openai.AsyncOpenAI(base_url=f"{sim.url}/v1", api_key="k", http_client=http, max_retries=0)


@asynccontextmanager
async def anthropic_client() -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with Simulator(FAST) as sim, anthropic.DefaultAsyncHttpxClient(trust_env=False) as http:
        yield anthropic.AsyncAnthropic(base_url=sim.url, api_key="k", http_client=http, max_retries=0)


async def test_openai_chat_both_ways() -> None:
    async with openai_client() as client:
        whole = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


async def test_openai_tools_are_called() -> None:
    async with openai_client() as client:
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "weather? #tool"}],
            tools=[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert (calls[0].function.name, calls[0].function.arguments) == ("weather", "{}")


async def test_openai_completions_embeddings_and_models() -> None:
    async with openai_client() as client:
        completion = await client.completions.create(model=MODEL, prompt="once", max_tokens=3)
        vectors = await client.embeddings.create(model=MODEL, input=["a", "b"])
        models = [model.id async for model in client.models.list()]
    assert len(completion.choices[0].text.split()) == 3
    assert [len(item.embedding) for item in vectors.data] == [64, 64]
    assert models == [MODEL]


async def test_openai_errors_are_understood() -> None:
    async with openai_client() as client:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.chat.completions.create(model="other", messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hi"}],
                extra_headers={"X-Sim": "status=429,retry_after=7"},
            )
    assert limited.value.response.headers["retry-after"] == "7"


async def test_anthropic_messages_both_ways() -> None:
    async with anthropic_client() as client:
        whole = await client.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "hi"}])
        async with client.messages.stream(
            model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            streamed = await stream.get_final_message()
    assert [block.text for block in streamed.content if block.type == "text"] == [
        block.text for block in whole.content if block.type == "text"
    ]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == ("max_tokens", 5)
    assert streamed.usage.input_tokens == whole.usage.input_tokens == 5


async def test_anthropic_tools_and_thinking_are_streamed() -> None:
    async with anthropic_client() as client:
        async with client.messages.stream(
            model=MODEL,
            max_tokens=50,
            messages=[{"role": "user", "content": "#tool"}],
            tools=[{"name": "weather", "input_schema": {"type": "object"}}],
        ) as stream:
            called = await stream.get_final_message()
        async with client.messages.stream(
            model=MODEL,
            max_tokens=50,
            messages=[{"role": "user", "content": "hi"}],
            extra_headers={"X-Sim": "reasoning=2"},
        ) as stream:
            thought = await stream.get_final_message()
    assert called.stop_reason == "tool_use"
    block = called.content[0]
    assert block.type == "tool_use"
    assert (block.name, block.input) == ("weather", {})
    assert [block.type for block in thought.content] == ["thinking", "text"]


async def test_anthropic_counts_and_errors_are_understood() -> None:
    async with anthropic_client() as client:
        counted = await client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(anthropic.NotFoundError, match="does not exist"):
            await client.messages.create(model="other", max_tokens=1, messages=[{"role": "user", "content": "hi"}])
    assert counted.input_tokens == 5
