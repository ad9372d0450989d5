"""When is a request whole, and what is in it?

h11 judges the bytes; this module gathers one request at a time, body included, and leaves what follows it (pipelined
requests) where it is until the answer is out. Invariant: whatever way the bytes are cut, the same requests come out,
and neither head nor body grows past its bound. Writing answers is the business of `outlet`.
"""

from dataclasses import dataclass
from typing import Final

import h11

HEAD_BYTES_MAX: Final = 128 * 1024
# A head of many tiny lines costs far more memory than its bytes, and heads are kept for `/sim/requests`.
HEADERS_MAX: Final = 1_024


class RequestRefusedError(Exception):
    """Bytes that cannot be served as a request, with the status to answer with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Request:
    """One request as it came. `headers` keep spelling and order; `find` looks one up whatever the spelling."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    http_version: str
    keep_alive: bool

    @property
    def path(self) -> str:
        """The target without query, and without scheme and host if it has them."""
        path = self.target.partition("?")[0]
        if path.startswith(("http://", "https://")):
            path = "/" + path.split("://", 1)[1].partition("/")[2]
        return path

    @property
    def query(self) -> str:
        """What follows the first question mark."""
        return self.target.partition("?")[2]

    def take_body(self) -> bytes:
        """The body, handed out once: a body that has been read is not kept while its answer lasts."""
        body, self.body = self.body, b""
        return body

    def find(self, name: str) -> list[str]:
        """The values of every header line of this name, in order."""
        return [value for key, value in self.headers if key.lower() == name]


class RequestReader:
    """Gathers the requests of one connection."""

    def __init__(self, *, body_bytes_max: int) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._body_bytes_max = body_bytes_max
        self._head: h11.Request | None = None
        self._body = bytearray()

    @property
    def midway(self) -> bool:
        """Whether a request has begun and is not whole, or bytes lie unread."""
        return self._head is not None or bool(self._h11.trailing_data[0])

    def feed(self, data: bytes) -> None:
        """Take bytes as they come."""
        self._h11.receive_data(data)

    def waiting_bytes(self) -> int:
        """Bytes of later requests that lie here."""
        return len(self._h11.trailing_data[0])

    def continue_bytes(self) -> bytes:
        """What to send to a client that waits for leave to send its body; empty if it does not."""
        if not self._h11.they_are_waiting_for_100_continue:
            return b""
        return self._h11.send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue")) or b""

    def poll(self) -> Request | None:
        """The next request, once it is whole.

        Raises: RequestRefusedError for bytes that are no request, or one past its bound.
        """
        try:
            while True:
                event = self._h11.next_event()
                if isinstance(event, h11.Request):
                    self._begin(event)
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    self._check_body(len(self._body))
                elif isinstance(event, h11.EndOfMessage):
                    return self._whole()
                else:
                    return None
        except h11.RemoteProtocolError as wrong:
            raise RequestRefusedError(wrong.error_status_hint, f"this is not an HTTP request: {wrong}") from None

    def next_cycle(self) -> bool:
        """Make ready for the next request once an answer is out; False if the connection ends here."""
        # h11 keeps the state, the outlet owns the bytes: it is told of an answer whose bytes are thrown away. A 404,
        # because a 200 to CONNECT would mean a tunnel.
        self._h11.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
        self._h11.send(h11.EndOfMessage())
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return True

    def _begin(self, head: h11.Request) -> None:
        self._head = head
        if len(head.headers) > HEADERS_MAX:
            raise RequestRefusedError(431, f"the head has more than {HEADERS_MAX} lines")
        for name, value in head.headers:
            if name == b"content-length":
                self._check_body(int(value))

    def _check_body(self, size_bytes: int) -> None:
        if size_bytes > self._body_bytes_max:
            raise RequestRefusedError(413, f"the body is larger than {self._body_bytes_max} bytes")

    def _whole(self) -> Request:
        head = self._head
        assert head is not None  # h11 ends no message before it has begun
        tokens = [value.lower() for name, value in head.headers if name == b"connection"]
        closing = any(token.strip() == b"close" for value in tokens for token in value.split(b","))
        request = Request(
            method=head.method.decode("ascii"),
            target=head.target.decode("latin-1"),
            headers=tuple(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers.raw_items()
            ),
            body=bytes(self._body),
            http_version=head.http_version.decode("ascii"),
            keep_alive=head.http_version == b"1.1" and not closing,
        )
        self._head = None
        self._body = bytearray()
        return request
