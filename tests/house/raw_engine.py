"""An engine that answers with exactly the bytes a test gives it, and keeps exactly those it was sent.

For what the simulator does not do: vectors that were recorded against a stand-in of their own, and very large answers.
Invariant: each connection carries requests one after another until the answer says otherwise.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.house.client import MODEL
from tests.house.running import free_port


@dataclass(frozen=True)
class RawRequest:
    """One request as it came."""

    raw: bytes
    line: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.line.split(" ")[1].partition("?")[0]

    def header(self, name: str) -> str:
        """First value of that header; empty where there is none."""
        return next((value for key, value in self.headers if key.lower() == name), "")


@dataclass(frozen=True)
class Said:
    """What to send, in pieces with pauses of `pause_s` before each; then whether the connection is kept, ended or
    reset."""

    pieces: list[bytes]
    pause_s: float = 0.0
    then: str = "keep"


Answer = Callable[[RawRequest], Said]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


def sized(body: bytes, status: str = "200 OK", content_type: str = "application/json", extra: str = "") -> Said:
    """An answer with its length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return Said([head.encode() + body])


async def read_request(reader: asyncio.StreamReader) -> RawRequest:
    """The next request on a connection. Raises: IncompleteReadError, OSError."""
    return await behind_head(reader, await reader.readuntil(b"\r\n\r\n"))


async def behind_head(reader: asyncio.StreamReader, head: bytes) -> RawRequest:
    """The request that begins with this head. Raises: IncompleteReadError, OSError."""
    line, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = [(name, value.strip()) for name, _, value in (each.partition(":") for each in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    body = await reader.readexactly(length)
    return RawRequest(head + body, line, headers, body)


def probe_answer(request: RawRequest, model: str = MODEL) -> Said | None:
    """What a healthy engine of one model says to a probe; None where the request is none."""
    if request.line.startswith("GET /health "):
        return sized(b"{}")
    if request.line.startswith("GET /v1/models ") and not request.header("x-mock"):
        models = b'{"object":"list","data":[{"id":"%b","object":"model"}]}' % model.encode()
        return sized(models, extra="X-Backend: mock\r\n")
    return None


@dataclass
class RawEngine:
    """A running one; `ended` holds how many connections their other side has ended."""

    port: int
    answer: Answer
    requests: list[RawRequest] = field(default_factory=list)
    ended: int = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def asked(self) -> list[RawRequest]:
        """What it was asked beside probes."""
        return [request for request in self.requests if request.line.startswith("POST ")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended += 1
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await read_request(reader)
        self.requests.append(request)
        said = probe_answer(request) or self.answer(request)
        gone = asyncio.ensure_future(reader.read(1)) if said.pause_s else None
        for piece in said.pieces:
            if gone is not None:
                await asyncio.wait([gone], timeout=said.pause_s)
                if gone.done():
                    return False
            writer.write(piece)
            await writer.drain()
        if gone is not None:
            gone.cancel()
            return False
        if said.then == "end":
            writer.write_eof()
        return said.then == "keep"


@asynccontextmanager
async def serving(port: int, serve: Serve) -> AsyncIterator[None]:
    """A server on loopback whose connections are served so; none is left when the block ends."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve_one, "127.0.0.1", port, limit=1 << 24)
    try:
        yield
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@asynccontextmanager
async def raw_engine(answer: Answer) -> AsyncIterator[RawEngine]:
    """A running engine that answers so."""
    engine = RawEngine(free_port(), answer)
    async with serving(engine.port, engine.serve):
        yield engine
