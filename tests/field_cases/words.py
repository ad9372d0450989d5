"""What engines say on each path: answers, events, their ends and how they are framed.

Invariant: everything here is what a public engine could write; what is wrong on purpose is written in the tests.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.house.client import CHAT, MESSAGES
from tests.house.raw_engine import sized

if TYPE_CHECKING:
    from tests.field_cases.engine import Script, Turn

COMPLETIONS: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED_HEAD: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
DONE: Final = b"data: [DONE]\n\n"
USAGE: Final = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":100,"total_tokens":104}}\n\n'
ANSWER: Final = (
    b'{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}],'
    b'"usage":{"prompt_tokens":4,"completion_tokens":100,"total_tokens":104}}'
)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(name: str, document: object) -> bytes:
    """An event with a name, as Anthropic and the responses path have them."""
    return f"event: {name}\ndata: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def delta(**members: object) -> bytes:
    """A chat event whose delta has these members."""
    document = {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": members}]}
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def text_completion(text: str) -> bytes:
    """An event of the completions path."""
    document = {"id": "x", "object": "text_completion", "choices": [{"index": 0, "text": text}]}
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


MESSAGE_START: Final = event(
    "message_start",
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": {"input_tokens": 4}}},
)
MESSAGE_DELTA: Final = event(
    "message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 100}}
)
MESSAGE_STOP: Final = event("message_stop", {"type": "message_stop"})
COMPLETED: Final = event(
    "response.completed",
    {"type": "response.completed", "response": {"usage": {"input_tokens": 4, "output_tokens": 100}}},
)


def block_delta(**members: object) -> bytes:
    """An Anthropic event whose delta has these members."""
    return event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": members})


@dataclass(frozen=True)
class Stream:
    """How a path streams: what comes before the text, one piece of text, and what ends it, usage told."""

    opening: bytes
    piece: bytes
    closing: bytes
    error: bytes
    """How an error event of this dialect begins."""


_OPENAI_ERROR: Final = b'data: {"error":{'
STREAMS: Final = {
    CHAT: Stream(delta(role="assistant"), delta(content="hello "), USAGE + DONE, _OPENAI_ERROR),
    COMPLETIONS: Stream(text_completion(""), text_completion("hello "), USAGE + DONE, _OPENAI_ERROR),
    RESPONSES: Stream(
        event("response.created", {"type": "response.created"}),
        event("response.output_text.delta", {"type": "response.output_text.delta", "delta": "hello "}),
        COMPLETED,
        b'event: error\ndata: {"type":"error","code":',
    ),
    MESSAGES: Stream(
        MESSAGE_START,
        block_delta(type="text_delta", text="hello "),
        MESSAGE_DELTA + MESSAGE_STOP,
        b'event: error\ndata: {"type":"error",',
    ),
}
"""The four paths that stream. Each ends with a usage of 4 tokens in and 100 out."""


async def whole_answer(turn: "Turn") -> None:
    """A script: a sound buffered answer."""
    await turn.send(*sized(ANSWER).pieces)


def says(*pieces: bytes) -> "Script":
    """A script that sends these pieces, each in a write of its own."""

    async def script(turn: "Turn") -> None:
        await turn.send(*pieces)

    return script


async def silence(turn: "Turn") -> None:
    """A script: no answer at all, for as long as somebody waits for it."""
    await turn.stay()


def streams(body: bytes) -> "Script":
    """A script that sends this event stream in one chunk, whole."""
    return says(CHUNKED_HEAD + chunk(body) + LAST_CHUNK)
