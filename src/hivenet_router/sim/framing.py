"""How are an answer's head and body put into HTTP/1.1?

Heads are written here byte by byte, because a fault may want one that no HTTP library would write (a length larger than
the body). Invariant: without a fault the framing is right. What is sent when is the business of `transfer`.
"""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from hivenet_router.sim.bodies import Body
from hivenet_router.sim.faults import Fault
from hivenet_router.sim.reader import Request
from hivenet_router.sim.words import BLOCK_BYTES

JSON_TYPE: Final = "application/json"
SSE_TYPE: Final = "text/event-stream; charset=utf-8"
# A longer body is compressed while it is sent, in HTTP chunks, instead of being held to learn its compressed size.
ZIPPED_WHOLE_BYTES_MAX: Final = 1024 * 1024
_GZIP_WBITS: Final = 31
_BODILESS: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer whose size is known before it is sent."""

    status: int
    body: Body | bytes
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


def reply_blocks(reply: Reply, fault: Fault, request: Request) -> Iterator[bytes]:
    """A whole answer, in blocks; the head comes with the first.

    `truncate_body` announces more than is there, `http_chunk_bytes` sends chunks of that size.
    """
    headers = [*common_headers(fault, request, reply.content_type), *reply.headers]
    body = reply.body if isinstance(reply.body, Body) else Body(reply.body)
    if reply.status in _BODILESS:
        yield head_bytes(reply.status, headers)
        return
    chunked, zipped = request.http_version == "1.1", fault.gzip
    if zipped and body.size_bytes <= ZIPPED_WHOLE_BYTES_MAX:
        body, zipped = Body(gzip.compress(b"".join(body.blocks()), mtime=0)), False
    if not zipped and (fault.http_chunk_bytes is None or not chunked):
        chunked = False
        headers.append(("Content-Length", str(body.size_bytes + fault.truncate_body)))
    elif chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    encoder = BodyEncoder(chunked=chunked, zipped=zipped, fault=fault)
    pending = head_bytes(reply.status, headers)
    if request.method == "HEAD":
        yield pending
        return
    for block in body.blocks():
        if len(pending) >= BLOCK_BYTES:
            yield pending
            pending = b""
        pending += encoder.encode(block)
    yield pending + encoder.finish()


class BodyEncoder:
    """Puts the pieces of a body on the wire: each its own HTTP chunk, or cut anew to `http_chunk_bytes`."""

    def __init__(self, *, chunked: bool, zipped: bool, fault: Fault) -> None:
        self._chunked = chunked
        self._zipper = zlib.compressobj(wbits=_GZIP_WBITS) if zipped else None
        self._step = fault.http_chunk_bytes
        self._missing_bytes = fault.truncate_body

    def encode(self, data: bytes) -> bytes:
        """The bytes for one piece."""
        if self._zipper is not None:
            data = self._zipper.compress(data) + self._zipper.flush(zlib.Z_SYNC_FLUSH)
        return self._framed(data)

    def finish(self) -> bytes:
        """The bytes that end the body, or announce a last chunk that does not come."""
        if self._missing_bytes:
            return b"%x\r\n" % self._missing_bytes if self._chunked else b""
        rest = self._framed(self._zipper.flush()) if self._zipper is not None else b""
        return rest + (b"0\r\n\r\n" if self._chunked else b"")

    def _framed(self, data: bytes) -> bytes:
        if not self._chunked or not data:
            return data
        if self._step is None:
            return b"%x\r\n%b\r\n" % (len(data), data)
        pieces = (data[at : at + self._step] for at in range(0, len(data), self._step))
        return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
