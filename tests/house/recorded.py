"""Recorded raw HTTP messages, read back into what a client can ask and what an answer is compared by."""

import json
from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).parents[1] / "vectors"
FREE = frozenset({"date", "connection", "content-length"})
"""Headers that say nothing of the answer's meaning, or differ from one moment to the next."""


@dataclass(frozen=True)
class Message:
    """One message: its first line, its headers in order, and its body as it was sent."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def status(self) -> int:
        """The status of an answer."""
        return int(self.line.split(" ")[1])

    def compared(self) -> tuple[int, dict[str, str], bytes]:
        """What two answers must agree in."""
        return self.status, {name: value for name, value in self.headers if name not in FREE}, self.body


def message(recorded: dict[str, str]) -> Message:
    """The message in a vector; an interim answer before it is passed over."""
    raw = bytes.fromhex(recorded["raw_hex"]) if "raw_hex" in recorded else recorded["raw"].encode()
    while raw.startswith(b"HTTP/1.1 100 "):
        raw = raw.partition(b"\r\n\r\n")[2]
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (each.partition(":") for each in lines)]
    if ("transfer-encoding", "chunked") in headers and line.startswith("HTTP/"):
        body = _unchunked(body)
    return Message(line, headers, body)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return whole
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]


def cases(name: str) -> list[tuple[str, Message, Message]]:
    """Name, request and answer of each case of a file."""
    document = json.loads((VECTORS / name).read_text("utf-8"))
    return [(case["name"], message(case["request"]), message(case["response"])) for case in document["cases"]]
