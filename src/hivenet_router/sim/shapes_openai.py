"""How does an answer look to an OpenAI client?

Bodies and stream events of chat and text completions, the model list and the error object, as vLLM writes them.
Invariant: an event is whole but for its closing blank line, and ends in the `}` of its JSON object (`[DONE]` apart),
so that a write time can be put in. Framing and pace are the business of `transfer`.

Source: http-api.md §12; the OpenAI API's documented objects.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hivenet_router.sim.answers import Answer, Usage
from hivenet_router.sim.bodies import PLACE, Body, Said, filled, said
from hivenet_router.sim.words import quoted

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


def _body(base: Mapping[str, object], choices: Iterable[bytes | Said], usage: Usage | None) -> Body:
    told = b"" if usage is None else b',"usage":' + compact(_usage(usage))
    return Body(compact(base)[:-1], b',"choices":[', *choices, b"]", told, b"}")


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

    def body(self) -> Body:
        """The buffered answer."""
        answer = self._answer
        texts = [said(answer.pieces, answer.reasoning, len(answer.pieces))]
        if answer.reasoning:
            texts.append(said(answer.pieces, 0, answer.reasoning))
        parts: list[bytes | Said] = []
        for index in range(answer.choices):
            choice = {
                "index": index,
                "message": self._message(index),
                "logprobs": None,
                "finish_reason": self._finish,
                "stop_reason": None,
            }
            parts += [b"," if index else b"", *filled(compact(choice), *texts)]
        return _body(self._base("chat.completion"), parts, answer.usage)

    def _message(self, index: int) -> dict[str, object]:
        """The message with a place for what is said, and behind it one for what was thought."""
        answer = self._answer
        if answer.tool is not None:
            function = {"name": answer.tool.name, "arguments": PLACE}
            call = {"id": _call_id(answer, index), "type": "function", "function": function}
            return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
        message: dict[str, object] = {"role": "assistant", "content": PLACE, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = PLACE
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

    def pieces(self) -> Iterator[bytes]:
        """The events with the pieces, choices taking turns."""
        answer = self._answer
        opened, closed = b'{"content":', b"}"
        if answer.tool is not None:
            opened, closed = b'{"tool_calls":[{"index":0,"function":{"arguments":', b"}}]}"
        fences = [self._event(index, b"\0", b"null").split(b"\0") for index in range(answer.choices)]
        for token, piece in enumerate(answer.pieces):
            delta = (b'{"reasoning_content":' if token < answer.reasoning else opened) + quoted(piece) + closed
            for before, after in fences:
                yield before + delta + after

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

    def body(self) -> Body:
        """The buffered answer."""
        answer = self._answer
        text = said(answer.pieces, 0, len(answer.pieces))
        parts: list[bytes | Said] = []
        for index in range(answer.choices):
            choice = {"index": index, "text": PLACE, "logprobs": None}
            choice |= {"finish_reason": answer.finish, "stop_reason": None}
            parts += [b"," if index else b"", *filled(compact(choice), text)]
        return _body(self._base(), parts, answer.usage)

    def opening(self) -> list[bytes]:
        """Nothing comes before the text."""
        return []

    def pieces(self) -> Iterator[bytes]:
        """The events with the pieces, choices taking turns."""
        fences = [self._event(index, b"\0", b"null").split(b"\0") for index in range(self._answer.choices)]
        for piece in self._answer.pieces:
            text = quoted(piece)
            for before, after in fences:
                yield before + text + after

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
