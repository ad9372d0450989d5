"""How does an answer look to an Anthropic client?

The message object, the full sequence of stream events and the error object. Invariant: an event is whole but for its
closing blank line and ends in the `}` of its JSON object. Framing and pace are the business of `transfer`.

Source: http-api.md §12; the Anthropic API's documented events.
"""

from collections.abc import Iterator
from typing import Final

from hivenet_router.sim.answers import Answer
from hivenet_router.sim.bodies import PLACE, Body, Said, filled, said
from hivenet_router.sim.shapes_openai import compact
from hivenet_router.sim.words import quoted

ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool": "tool_use"}


def error_body(status: int, message: str) -> bytes:
    """The error object for a status."""
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return compact({"type": "error", "error": {"type": kind, "message": message}})


def event(name: str, document: dict[str, object]) -> bytes:
    """One named event whose data begin with its type."""
    return b"event: %b\ndata: %b" % (name.encode(), compact({"type": name} | document))


class MessageShape:
    """One message in both its forms; it has one choice."""

    def __init__(self, answer: Answer, *, no_done: bool) -> None:
        self._answer = answer
        self._no_done = no_done
        self.total = len(answer.pieces)
        # Reasoning takes a block of its own before the text.
        self._text_block = 1 if answer.reasoning else 0

    def _message(self, content: list[dict[str, object]], stop: str | None, output_tokens: int) -> dict[str, object]:
        answer = self._answer
        message: dict[str, object] = {
            "id": f"msg_sim{answer.serial:08x}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
        }
        if answer.usage is not None:
            message["usage"] = {"input_tokens": answer.usage.prompt, "output_tokens": output_tokens}
        return message

    def body(self) -> Body:
        """The buffered answer."""
        answer, total = self._answer, self.total
        if answer.tool is not None:
            # The pieces are JSON text of our own making, so the object can be put in as it stands.
            before, empty, after = self._ended([self._tool_block()]).rpartition(b'"input":{}')
            return Body(before, empty[:-2], "".join(answer.pieces).encode(), after)
        content: list[dict[str, object]] = [{"type": "text", "text": PLACE}]
        texts: list[Said] = [said(answer.pieces, answer.reasoning, total)]
        if answer.reasoning:
            content.insert(0, {"type": "thinking", "thinking": PLACE, "signature": ""})
            texts.insert(0, said(answer.pieces, 0, answer.reasoning))
        return Body(*filled(self._ended(content), *texts))

    def _ended(self, content: list[dict[str, object]]) -> bytes:
        return compact(self._message(content, STOP_REASONS[self._answer.finish], self._output_tokens()))

    def _output_tokens(self) -> int:
        return self._answer.usage.completion if self._answer.usage is not None else 0

    def _tool_block(self) -> dict[str, object]:
        tool, serial = self._answer.tool, self._answer.serial
        name = tool.name if tool is not None else ""
        return {"type": "tool_use", "id": f"toolu_sim{serial:08x}", "name": name, "input": {}}

    def opening(self) -> list[bytes]:
        """The events before any text: start, ping, the first block."""
        started = event("message_start", {"message": self._message([], None, 0)})
        block: dict[str, object] = {"type": "text", "text": ""}
        if self._answer.tool is not None:
            block = self._tool_block()
        elif self._answer.reasoning:
            block = {"type": "thinking", "thinking": "", "signature": ""}
        return [started, event("ping", {}), _block_start(0, block)]

    def pieces(self) -> Iterator[bytes]:
        """The events with the pieces; the first piece after reasoning brings the change of block with it."""
        answer = self._answer
        delta = _delta(self._text_block, b'{"type":"text_delta","text":%b}')
        if answer.tool is not None:
            delta = _delta(0, b'{"type":"input_json_delta","partial_json":%b}')
        thought = _delta(0, b'{"type":"thinking_delta","thinking":%b}')
        change = event("content_block_stop", {"index": 0}), _block_start(1, {"type": "text", "text": ""}), b""
        for number, piece in enumerate(answer.pieces):
            if number < answer.reasoning:
                yield thought % quoted(piece)
            elif self._text_block and number == answer.reasoning:
                yield b"\n\n".join(change) + delta % quoted(piece)
            else:
                yield delta % quoted(piece)

    def closing(self) -> list[bytes]:
        """The events after the text: block stop, why it ended with usage, message stop."""
        answer = self._answer
        block = self._text_block if answer.reasoning < self.total else 0
        delta = {"stop_reason": STOP_REASONS[answer.finish], "stop_sequence": None}
        ended: dict[str, object] = {"delta": delta}
        if answer.usage is not None:
            ended["usage"] = {"output_tokens": answer.usage.completion}
        events = [event("content_block_stop", {"index": block}), event("message_delta", ended)]
        return events if self._no_done else [*events, event("message_stop", {})]


def _block_start(index: int, block: dict[str, object]) -> bytes:
    return event("content_block_start", {"index": index, "content_block": block})


def _delta(index: int, delta: bytes) -> bytes:
    data = b'{"type":"content_block_delta","index":%d,"delta":%b}' % (index, delta)
    return b"event: content_block_delta\ndata: " + data
