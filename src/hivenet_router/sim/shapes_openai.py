"""How does an answer look to an OpenAI client?

Bodies and stream events of chat and text completions, the model list and the error object, as vLLM writes them.
Invariant: an event is whole but for its closing blank line, and ends in the `}` of its JSON object (`[DONE]` apart),
so that a write time can be put in. Framing and pace are the business of `transfer`.

Source: http-api.md §12; the OpenAI API's documented objects.
"""

import json
from collections.abc import Sequence
from json.encoder import encode_basestring as quoted
from typing import Final

from hivenet_router.sim.answers import Answer, Usage

DONE: Final = b"data: [DONE]"
ERROR_TYPES: Final = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    413: "RequestTooLargeError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}


def compact(document: object) -> bytes:
    """The document as JSON without blanks."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")


def error_body(status: int, message: str, *, param: str | None = None) -> bytes:
    """The error object for a status."""
    kind = ERROR_TYPES.get(status, "BadRequestError" if status < 500 else "InternalServerError")
    return compact({"error": {"message": message, "type": kind, "param": param, "code": status}})


def models_body(models: Sequence[str], *, created: int, model_len: int) -> bytes:
    """The model list; `model_len` is the context length in tokens."""
    return compact(
        {"object": "list", "data": [model_entry(name, created=created, model_len=model_len) for name in models]}
    )


def model_entry(name: str, *, created: int, model_len: int) -> dict[str, object]:
    """One model of the list."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "hivenet-sim",
        "root": name,
        "parent": None,
        "max_model_len": model_len,
        "permission": [],
    }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }


def _call_id(answer: Answer, index: int) -> str:
    return f"call_sim{answer.serial:08x}{index:02x}"


class ChatShape:
    """One chat answer in both its forms."""

    def __init__(self, answer: Answer, *, include_usage: bool, no_done: bool) -> None:
        self._answer = answer
        self._include_usage = include_usage
        self._no_done = no_done
        self._finish = "tool_calls" if answer.finish == "tool" else answer.finish
        self._head = compact(self._base("chat.completion.chunk"))[:-1]
        self.total = len(answer.pieces) * answer.choices

    def _base(self, kind: str) -> dict[str, object]:
        answer = self._answer
        return {
            "id": f"chatcmpl-sim{answer.serial:08x}",
            "object": kind,
            "created": answer.created,
            "model": answer.model,
        }

    def body(self) -> bytes:
        """The buffered answer."""
        answer = self._answer
        choices = [
            {
                "index": index,
                "message": self._message(index),
                "logprobs": None,
                "finish_reason": self._finish,
                "stop_reason": None,
            }
            for index in range(answer.choices)
        ]
        document = self._base("chat.completion") | {"choices": choices}
        if answer.usage is not None:
            document["usage"] = _usage(answer.usage)
        return compact(document)

    def _message(self, index: int) -> dict[str, object]:
        answer = self._answer
        if answer.tool is not None:
            function = {"name": answer.tool.name, "arguments": answer.text}
            call = {"id": _call_id(answer, index), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
        message: dict[str, object] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.thought
        return message

    def opening(self) -> list[bytes]:
        """The events before any text: one with the role for each choice."""
        answer = self._answer
        events = []
        for index in range(answer.choices):
            delta: dict[str, object] = {"role": "assistant", "content": ""}
            if answer.tool is not None:
                function = {"name": answer.tool.name, "arguments": ""}
                call = {"index": 0, "id": _call_id(answer, index), "type": "function", "function": function}
                delta = {"role": "assistant", "content": None, "tool_calls": [call]}
            events.append(self._event(index, compact(delta), b"null"))
        return events

    def piece(self, number: int) -> bytes:
        """The event with piece `number`, choices taking turns."""
        token, index = divmod(number, self._answer.choices)
        text = quoted(self._answer.pieces[token]).encode("utf-8", "backslashreplace")
        if self._answer.tool is not None:
            delta = b'{"tool_calls":[{"index":0,"function":{"arguments":%b}}]}' % text
        elif token < self._answer.reasoning:
            delta = b'{"reasoning_content":%b}' % text
        else:
            delta = b'{"content":%b}' % text
        return self._event(index, delta, b"null")

    def closing(self) -> list[bytes]:
        """The events after the text: why it ended, usage if it was asked for, the end mark."""
        answer = self._answer
        events = [self._event(index, b"{}", b'"%b"' % self._finish.encode()) for index in range(answer.choices)]
        if self._include_usage and answer.usage is not None:
            usage = self._base("chat.completion.chunk") | {"choices": [], "usage": _usage(answer.usage)}
            events.append(b"data: " + compact(usage))
        return events if self._no_done else [*events, DONE]

    def _event(self, index: int, delta: bytes, finish: bytes) -> bytes:
        choice = b'{"index":%d,"delta":%b,"logprobs":null,"finish_reason":%b}' % (index, delta, finish)
        return b'data: %b,"choices":[%b]}' % (self._head, choice)


class CompletionShape:
    """One text completion in both its forms."""

    def __init__(self, answer: Answer, *, include_usage: bool, no_done: bool) -> None:
        self._answer = answer
        self._include_usage = include_usage
        self._no_done = no_done
        self._head = compact(self._base())[:-1]
        self.total = len(answer.pieces) * answer.choices

    def _base(self) -> dict[str, object]:
        answer = self._answer
        return {
            "id": f"cmpl-sim{answer.serial:08x}",
            "object": "text_completion",
            "created": answer.created,
            "model": answer.model,
        }

    def body(self) -> bytes:
        """The buffered answer."""
        answer = self._answer
        text = "".join(answer.pieces)
        choices = [
            {"index": index, "text": text, "logprobs": None, "finish_reason": answer.finish, "stop_reason": None}
            for index in range(answer.choices)
        ]
        document = self._base() | {"choices": choices}
        if answer.usage is not None:
            document["usage"] = _usage(answer.usage)
        return compact(document)

    def opening(self) -> list[bytes]:
        """Nothing comes before the text."""
        return []

    def piece(self, number: int) -> bytes:
        """The event with piece `number`, choices taking turns."""
        token, index = divmod(number, self._answer.choices)
        return self._event(index, quoted(self._answer.pieces[token]).encode("utf-8", "backslashreplace"), b"null")

    def closing(self) -> list[bytes]:
        """The events after the text: why it ended, usage if it was asked for, the end mark."""
        answer = self._answer
        events = [self._event(index, b'""', b'"%b"' % answer.finish.encode()) for index in range(answer.choices)]
        if self._include_usage and answer.usage is not None:
            events.append(b"data: " + compact(self._base() | {"choices": [], "usage": _usage(answer.usage)}))
        return events if self._no_done else [*events, DONE]

    def _event(self, index: int, text: bytes, finish: bytes) -> bytes:
        choice = b'{"index":%d,"text":%b,"logprobs":null,"finish_reason":%b}' % (index, text, finish)
        return b'data: %b,"choices":[%b]}' % (self._head, choice)
