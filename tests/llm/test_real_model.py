"""Does everything hold with a real engine: llama-cpp-python's server and a model of 135 million parameters?

What the model says is its own affair; that all ways to ask it come to the same is ours. It samples nothing
(temperature 0), and each comparison first asks once, so that all that are compared find the same in the engine's cache.
"""

import threading
from collections.abc import Iterable

import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam
from tests.first_hour.programs import fetch
from tests.llm.conftest import Served

ENDLESS_TOKENS = 1800
"""An answer of so many tokens takes longer than all other requests here together."""


def said(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


FRANCE = said("What is the capital of France?")


def whole(client: openai.OpenAI, model: str, messages: list[ChatCompletionMessageParam], tokens: int) -> ChatCompletion:
    return client.chat.completions.create(model=model, messages=messages, max_tokens=tokens, temperature=0.0, seed=1)


def streamed(
    client: openai.OpenAI, model: str, messages: list[ChatCompletionMessageParam], tokens: int
) -> list[ChatCompletionChunk]:
    stream = client.chat.completions.create(
        model=model, messages=messages, max_tokens=tokens, temperature=0.0, seed=1, stream=True
    )
    return list(stream)


def text_of(chunks: Iterable[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def ends_of(chunks: Iterable[ChatCompletionChunk]) -> list[str]:
    return [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]


def endless(client: openai.OpenAI, model: str) -> openai.Stream[Completion]:
    """A stream that would go on for minutes: the engine may not end it before all tokens are there."""
    return client.completions.create(
        model=model,
        prompt="One, two, three,",
        max_tokens=ENDLESS_TOKENS,
        stream=True,
        extra_body={"min_tokens": ENDLESS_TOKENS},
    )


def test_the_model_is_listed_by_the_name_that_the_engine_gives_it(client: openai.OpenAI, served: Served) -> None:
    assert [model.id for model in client.models.list()] == [served.model]
    assert client.models.retrieve(served.model).id == served.model


def test_a_chat_is_answered_and_its_tokens_are_counted(client: openai.OpenAI, served: Served) -> None:
    answer = whole(client, served.model, FRANCE, 16)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens >= 6
    assert 1 <= usage.completion_tokens <= 16
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_says_what_a_buffered_answer_says(client: openai.OpenAI, served: Served) -> None:
    whole(client, served.model, FRANCE, 32)
    buffered = whole(client, served.model, FRANCE, 32)
    chunks = streamed(client, served.model, FRANCE, 32)
    assert text_of(chunks) == buffered.choices[0].message.content
    assert ends_of(chunks) == [buffered.choices[0].finish_reason]
    assert len(chunks) > 2
    assert {chunk.model for chunk in chunks} == {served.model}


def test_a_text_is_completed_alike_in_both_ways(client: openai.OpenAI, served: Served) -> None:
    def ask() -> Completion:
        return client.completions.create(
            model=served.model, prompt="Once upon a time", max_tokens=12, temperature=0.0, seed=1
        )

    ask()
    buffered = ask()
    stream = client.completions.create(
        model=served.model, prompt="Once upon a time", max_tokens=12, temperature=0.0, seed=1, stream=True
    )
    assert buffered.choices[0].text
    assert buffered.usage is not None
    assert 1 <= buffered.usage.completion_tokens <= 12
    assert "".join(chunk.choices[0].text for chunk in stream) == buffered.choices[0].text


def test_a_client_that_leaves_a_stream_frees_the_engine_for_the_next(client: openai.OpenAI, served: Served) -> None:
    given_up = len(served.engine_lines("Disconnected from client"))
    stream = endless(client, served.model)
    pieces = [chunk.choices[0].text for _, chunk in zip(range(3), stream, strict=False)]
    stream.close()
    assert len(pieces) == 3
    assert whole(client, served.model, FRANCE, 4).choices[0].message.content
    served.until_engine_says("Disconnected from client", times=given_up + 1)


def test_a_client_that_leaves_a_buffered_answer_costs_the_next_one_only_that_answer(
    client: openai.OpenAI, served: Served
) -> None:
    """The engine cannot break off an answer that it does not stream, and nobody else has to mend that."""
    with pytest.raises(openai.APITimeoutError):
        client.completions.create(
            model=served.model, prompt="One,", max_tokens=200, extra_body={"min_tokens": 200}, timeout=0.3
        )
    assert whole(client, served.model, FRANCE, 4).choices[0].message.content


def test_clients_at_the_same_time_are_answered_one_after_the_other_and_in_full(
    client: openai.OpenAI, served: Served
) -> None:
    """Left to itself this engine ends a stream, as if it were whole, when somebody else asks."""
    prompts = [said(f"Write about the number {number}.") for number in range(4)]
    alone = [whole(client, served.model, prompt, 24).choices[0].finish_reason for prompt in prompts]
    found: dict[int, list[ChatCompletionChunk]] = {}

    def ask(number: int) -> None:
        found[number] = streamed(client, served.model, prompts[number], 24)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ends_of(found[number]) for number in range(4)] == [[reason] for reason in alone]
    assert all(text_of(chunks) for chunks in found.values())


def test_a_wrong_model_is_told_by_the_router_and_never_asked_of_the_engine(
    client: openai.OpenAI, served: Served
) -> None:
    asked = len(served.engine_lines("POST"))
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="another-model", messages=FRANCE)
    assert refused.value.code == "model_not_found"
    assert whole(client, served.model, FRANCE, 1).choices
    served.until_engine_says("POST", times=asked + 1)
    assert len(served.engine_lines("POST")) == asked + 1


def test_a_prompt_that_is_too_long_is_told_as_such(client: openai.OpenAI, served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        whole(client, served.model, said("word " * 3000), 4)
    assert refused.value.code == "context_length_exceeded"


def test_a_parameter_that_the_engine_refuses_is_told_as_the_clients_fault(
    client: openai.OpenAI, served: Served
) -> None:
    """The engine itself answers 500."""
    with pytest.raises(openai.BadRequestError, match="temperature") as refused:
        client.chat.completions.create(model=served.model, messages=FRANCE, extra_body={"temperature": "hot"})
    assert refused.value.code == "invalid_parameter"


def test_a_stream_that_the_engine_cannot_begin_raises(client: openai.OpenAI, served: Served) -> None:
    """The engine has sent its head by then, and ends the body as if that were the answer."""
    with pytest.raises(openai.InternalServerError) as failed:
        streamed(client, served.model, said("word " * 3000), 4)
    assert (failed.value.status_code, failed.value.code) == (503, "backend_unavailable")
    assert whole(client, served.model, FRANCE, 4).choices


def test_the_agent_asks_for_what_the_engine_does_not_have_only_now_and_then(
    client: openai.OpenAI, served: Served
) -> None:
    assert whole(client, served.model, FRANCE, 1).choices
    served.until_engine_says("GET /health", times=4)
    health = len(served.engine_lines("GET /health"))
    assert 1 <= len(served.engine_lines("GET /metrics")) < health
    assert 1 <= len(served.engine_lines("GET /v1/models")) < health
    status, page = fetch(served.house.metrics)
    assert status == 200
    (success,) = [line for line in page.splitlines() if line.startswith("hivenet_agent_requests_success_total{")]
    assert 'engine="llamacpp"' in success
    assert f'model="{served.model}"' in success
    assert float(success.rpartition(" ")[2]) >= 1
