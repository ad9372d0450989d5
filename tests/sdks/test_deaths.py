"""What does a user of the SDKs see when a part of the house dies in the middle of an answer?

An exception, never a shorter answer. Source: http-api.md §15 item 1; expectations.md §2 no. 2 and 8.
"""

import signal
from collections.abc import Callable

import anthropic
import httpx2
import openai
import pytest
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from tests.first_hour.programs import MODEL
from tests.sdks.conftest import Served

ENDLESS = {"X-Sim": "chunks=100000,interval_ms=5"}


def one_of_each(
    served: Served, client_of: Callable[[Served], openai.OpenAI], anthropic_of: Callable[[Served], anthropic.Anthropic]
) -> tuple[openai.Stream[ChatCompletionChunk], anthropic.Stream[RawMessageStreamEvent]]:
    """A stream of each SDK that has begun and would not end for long."""
    chat = client_of(served).chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True, extra_headers=ENDLESS
    )
    messages = anthropic_of(served).messages.create(
        model=MODEL,
        max_tokens=100_000,
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        extra_headers=ENDLESS,
    )
    next(iter(chat))
    next(iter(messages))
    return chat, messages


def test_an_agent_that_is_killed_breaks_its_streams(
    mortal: Served, client_of: Callable[[Served], openai.OpenAI], anthropic_of: Callable[[Served], anthropic.Anthropic]
) -> None:
    chat, messages = one_of_each(mortal, client_of, anthropic_of)
    mortal.agents[0].process.kill()
    with pytest.raises(openai.APIError, match="connection to the agent was lost"):
        list(chat)
    with pytest.raises(anthropic.APIStatusError, match="connection to the agent was lost"):
        list(messages)


def test_a_router_that_is_killed_breaks_its_streams(
    mortal: Served, client_of: Callable[[Served], openai.OpenAI], anthropic_of: Callable[[Served], anthropic.Anthropic]
) -> None:
    """There is nobody left to send an error event; a connection without its last chunk has to do."""
    chat, messages = one_of_each(mortal, client_of, anthropic_of)
    mortal.router.process.kill()
    with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)):
        list(chat)
    with pytest.raises((anthropic.APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)):
        list(messages)


def test_a_router_that_is_told_twice_to_stop_breaks_its_streams_in_words_or_without(
    mortal: Served, client_of: Callable[[Served], openai.OpenAI], anthropic_of: Callable[[Served], anthropic.Anthropic]
) -> None:
    chat, messages = one_of_each(mortal, client_of, anthropic_of)
    mortal.router.process.send_signal(signal.SIGTERM)
    mortal.router.event("router_draining")
    mortal.router.process.send_signal(signal.SIGTERM)
    with pytest.raises((openai.APIError, httpx2.RemoteProtocolError, httpx2.ReadError)):
        list(chat)
    with pytest.raises((anthropic.APIError, httpx2.RemoteProtocolError, httpx2.ReadError)):
        list(messages)
    assert mortal.router.ended() == 0


def test_a_client_that_comes_while_the_router_drains_is_refused_and_told_when_to_come_back(
    mortal: Served, client_of: Callable[[Served], openai.OpenAI], anthropic_of: Callable[[Served], anthropic.Anthropic]
) -> None:
    chat, _ = one_of_each(mortal, client_of, anthropic_of)
    mortal.router.process.send_signal(signal.SIGTERM)
    mortal.router.event("router_draining")
    with pytest.raises(openai.InternalServerError) as caught:
        client_of(mortal).chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    assert caught.value.status_code == 503
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert next(iter(chat)).choices
