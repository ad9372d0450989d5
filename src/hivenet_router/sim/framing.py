"""How are an answer's head and body put into HTTP/1.1?

Heads are written here byte by byte, because a fault may want one that no HTTP library would write (a length larger than
the body). Invariant: without a fault the framing is right. What is sent when is the business of `transfer`.
"""

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from hivenet_router.sim.faults import Fault
from hivenet_router.sim.reader import Request

JSON_TYPE: Final = "application/json"
SSE_TYPE: Final = "text/event-stream; charset=utf-8"
_GZIP_WBITS: Final = 31
_BODILESS: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is whole before it is sent."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()


def head_bytes(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """The status line and header block."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Simulated"
    lines = [f"HTTP/1.1 {status} {reason}", "Server: hivenet-sim", f"Date: {formatdate(usegmt=True)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def common_headers(fault: Fault, request: Request, content_type: str) -> list[tuple[str, str]]:
    """The headers that every answer has, before those of its length."""
    headers = [("Content-Type", fault.content_type or content_type)]
    for given in request.find("x-request-id")[:1]:
        name = "request-id" if request.path.startswith("/v1/messages") else "X-Request-Id"
        headers.append((name, given))
    if fault.retry_after is not None:
        headers.append(("Retry-After", fault.retry_after))
    if fault.gzip:
        headers.append(("Content-Encoding", "gzip"))
    if closes(fault, request):
        headers.append(("Connection", "close"))
    return headers + list(fault.header)


def closes(fault: Fault, request: Request) -> bool:
    """Whether the connection ends with this answer."""
    return fault.close_connection or not request.keep_alive


def reply_bytes(reply: Reply, fault: Fault, request: Request) -> bytes:
    """A whole answer. `truncate_body` announces more than is there, `http_chunk_bytes` sends chunks of that size."""
    headers = [*common_headers(fault, request, reply.content_type), *reply.headers]
    body = gzip.compress(reply.body, mtime=0) if fault.gzip else reply.body
    if reply.status in _BODILESS:
        return head_bytes(reply.status, headers)
    if fault.http_chunk_bytes is not None and request.http_version == "1.1":
        encoder = BodyEncoder(chunked=True, zipped=False, http_chunk_bytes=fault.http_chunk_bytes)
        head = head_bytes(reply.status, [*headers, ("Transfer-Encoding", "chunked")])
        body = encoder.encode(body) + encoder.finish()
    else:
        head = head_bytes(reply.status, [*headers, ("Content-Length", str(len(body) + fault.truncate_body))])
    return head if request.method == "HEAD" else head + body


class BodyEncoder:
    """Puts the pieces of a streamed body on the wire: each its own HTTP chunk, or cut anew to `http_chunk_bytes`."""

    def __init__(self, *, chunked: bool, zipped: bool, http_chunk_bytes: int | None) -> None:
        self._chunked = chunked
        self._zipper = zlib.compressobj(wbits=_GZIP_WBITS) if zipped else None
        self._step = http_chunk_bytes

    def encode(self, data: bytes) -> bytes:
        """The bytes for one piece."""
        if self._zipper is not None:
            data = self._zipper.compress(data) + self._zipper.flush(zlib.Z_SYNC_FLUSH)
        return self._framed(data)

    def finish(self) -> bytes:
        """The bytes that end the body."""
        rest = self._framed(self._zipper.flush()) if self._zipper is not None else b""
        return rest + (b"0\r\n\r\n" if self._chunked else b"")

    def _framed(self, data: bytes) -> bytes:
        if not self._chunked or not data:
            return data
        if self._step is None:
            return b"%x\r\n%b\r\n" % (len(data), data)
        pieces = (data[at : at + self._step] for at in range(0, len(data), self._step))
        return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
