"""What does a client ask under load, and has it got what it asked for?

Each request has a text of its own, which the engine echoes, so that a piece that is lost, doubled or another client's
is seen. Invariant: `judged` puts every way in which a request can end into exactly one `Ending`, and calls it a fault
unless it is whole, a documented refusal, or a stream that said that it broke off. Sockets are `load.py`'s.
"""

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Literal

from tests.raw_http import at

from hivenet_router.names.errors import ERROR_RULES, ErrorCode
from hivenet_router.names.paths import CHAT_COMPLETIONS, MESSAGES

Kind = Literal["chat stream", "messages stream", "chat whole"]

MAY_BE_REFUSED: Final = frozenset(
    {
        ErrorCode.AGENT_DISCONNECTED,
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.BACKEND_ERROR,
        ErrorCode.NO_AGENTS_AVAILABLE,
        ErrorCode.NO_CAPACITY,
        ErrorCode.QUEUE_FULL,
        ErrorCode.REQUEST_TIMEOUT,
    }
)
"""What a client may be told while agents come and go; any other refusal of a sound request is a fault."""


class Ending(StrEnum):
    """How a request ended."""

    WHOLE = "whole"
    CUT = "cut, with an error event"
    REFUSED = "refused"
    LEFT = "left by the client"
    FAULT = "FAULT"


@dataclass(frozen=True, slots=True)
class Question:
    """One request: how it is asked, and the text that must come back in `pieces` pieces."""

    kind: Kind
    request_id: str
    pieces: int
    interval_ms: int

    @property
    def text(self) -> str:
        """The text of the question, and of its answer."""
        return " ".join(f"{self.request_id[-12:]}.{number}" for number in range(self.pieces))

    @property
    def is_stream(self) -> bool:
        """Whether the answer is streamed."""
        return self.kind != "chat whole"

    def request(self, model: str) -> bytes:
        """The request as it goes over the wire."""
        messages = [{"role": "user", "content": self.text}]
        body = {"model": model, "stream": self.is_stream, "max_tokens": self.pieces, "messages": messages}
        payload = json.dumps(body).encode()
        path = MESSAGES if self.kind == "messages stream" else CHAT_COMPLETIONS
        head = (
            f"POST {path} HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\n"
            f"X-Request-ID: {self.request_id}\r\nX-Sim-Echo: 1\r\n"
            f"X-Sim: interval_ms={self.interval_ms}\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        return head.encode() + payload


@dataclass(slots=True)
class Answer:
    """What came on the wire: the head, the body as framed, how it stopped, and when."""

    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    raw: bytearray = field(default_factory=bytearray)
    stopped: Literal["", "fin", "reset", "late"] = ""
    """How the connection stopped before the end of the answer; empty where it did not."""
    first_s: float = 0.0
    longest_silence_s: float = 0.0

    @property
    def is_chunked(self) -> bool:
        """Whether the body is framed in chunks."""
        return self.fields.get("transfer-encoding") == "chunked"

    def is_whole(self) -> bool:
        """Whether the framing says that all is there."""
        if not self.status:
            return False
        if self.is_chunked:
            return self.raw == b"0\r\n\r\n" or self.raw.endswith(b"\r\n0\r\n\r\n")
        return len(self.raw) >= int(self.fields.get("content-length", "-1"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a request ended; `detail` is the refusal's code, or what is wrong."""

    ending: Ending
    detail: str = ""


def judged(question: Question, answer: Answer) -> Verdict:
    """What is to be thought of this answer to this question."""
    if answer.stopped == "late":
        return _fault("no answer, or no end of it, within the time limit")
    if not answer.status:
        return _fault(f"{answer.stopped} instead of an answer")
    if answer.status != HTTPStatus.OK:
        return _judged_refusal(answer)
    if not question.is_stream:
        return _judged_whole(question, answer)
    return _judged_stream(question, answer)


def _judged_refusal(answer: Answer) -> Verdict:
    if not answer.is_whole():
        return _fault(f"{answer.status} with a broken body")
    try:
        code = str(at(json.loads(_unframed(answer)), "error", "code"))
    except ValueError:
        return _fault(f"{answer.status} whose body is not JSON: {bytes(answer.raw[:100])!r}")
    if code not in MAY_BE_REFUSED or ERROR_RULES[ErrorCode(code)].status != answer.status:
        return _fault(f"{answer.status} with code {code}")
    return Verdict(Ending.REFUSED, f"{answer.status} {code}")


def _judged_whole(question: Question, answer: Answer) -> Verdict:
    if not answer.is_whole():
        return _fault(f"a buffered answer that ends with {answer.stopped} after {len(answer.raw)} bytes")
    try:
        text = at(json.loads(_unframed(answer)), "choices", 0, "message", "content")
    except ValueError:
        return _fault("a buffered answer that is not JSON")
    return Verdict(Ending.WHOLE) if text == question.text else _fault(f"another text: {str(text)[:80]!r}")


def _judged_stream(question: Question, answer: Answer) -> Verdict:
    events = _events(_unframed(answer))
    texts, has_end, error = [], False, None
    for event in events:
        if error is not None:
            return _fault("something after the error event")
        if event == "[DONE]":
            has_end = True
            continue
        try:
            document: object = json.loads(event)
        except ValueError:
            return _fault(f"an event that is not JSON: {event[:80]!r}")
        error = at(document, "error", "code")
        has_end |= at(document, "type") == "message_stop"
        texts.append(str(at(document, "choices", 0, "delta", "content") or at(document, "delta", "text") or ""))
    text = "".join(texts)
    if not question.text.startswith(text):
        return _fault(f"another text: {text[:80]!r}")
    if error is not None:
        return Verdict(Ending.CUT, str(error)) if answer.stopped else _fault("an error event, then an end as if whole")
    if answer.stopped:
        return _fault(f"a stream cut by {answer.stopped} without an error event, after {len(events)} events")
    return (
        Verdict(Ending.WHOLE) if has_end and text == question.text else _fault("a stream that ends as if whole, short")
    )


def _fault(detail: str) -> Verdict:
    return Verdict(Ending.FAULT, detail)


_EVENT_DATA: Final = re.compile(r"^data: ?(.*)$", re.MULTILINE)


def _events(body: bytes) -> list[str]:
    """The data of each event; an event that is not closed by a blank line does not count."""
    closed = body[: body.rfind(b"\n\n") + 2]
    found = (_EVENT_DATA.findall(event) for event in closed.decode("utf-8", "replace").split("\n\n"))
    return ["\n".join(lines) for lines in found if lines]


def _unframed(answer: Answer) -> bytes:
    """The body without its framing, as far as it came."""
    if not answer.is_chunked:
        return bytes(answer.raw)
    out, rest = [], bytes(answer.raw)
    while rest:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            break
        length = int(size, 16)
        out.append(rest[:length])
        rest = rest[length + 2 :]
    return b"".join(out)
