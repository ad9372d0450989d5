"""How do tests speak HTTP over raw sockets?

Half-sent bytes, FIN and RST are seen as they are. Invariants: every wait here ends, at the latest after the patience it
was given; `ending` tells which of the two ended a connection. What is asserted is each test's business.
"""

import asyncio
import gzip
import json
import socket
import struct
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reply:
    """One HTTP answer, body unframed. `ending` is `kept`, `fin` or `reset`."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    ending: str = "kept"
    http_chunks: list[bytes] = field(default_factory=list)
    whole: bool = True

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        document: object = json.loads(self.body)
        assert isinstance(document, dict)
        return document

    def plain_json(self) -> object:
        """The body as JSON, decompressed if it has to be."""
        return json.loads(gzip.decompress(self.body) if self.header("content-encoding") == "gzip" else self.body)

    def data(self) -> list[str]:
        """The payloads of the events in the body."""
        lines = self.body.decode().split("\n")
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]

    def events(self) -> list[dict[str, object]]:
        """The payloads that are JSON, read."""
        return [json.loads(text) for text in self.data() if text != "[DONE]"]


class RawConnection:
    """The client's side of one connection; no answer is waited for longer than `patience_s`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, patience_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self._patience_s = patience_s

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def ask(self, path: str, body: object = None, *, method: str | None = None, **headers: str) -> None:
        """Send a request; a keyword `x_sim` becomes the header `X-Sim`."""
        self.send(request_bytes(path, body, method=method, **headers))

    async def reply(self, *, bodiless: bool = False) -> Reply:
        """Read one answer to its end, or to where the connection broke."""
        async with asyncio.timeout(self._patience_s):
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:-2])]
            lengths = {name.lower(): value for name, value in headers}
            if bodiless or status in (204, 304):
                return Reply(status, headers, b"")
            if lengths.get("transfer-encoding") == "chunked":
                return await self._chunked(status, headers)
            return await self._sized(status, headers, lengths.get("content-length"))

    async def _sized(self, status: int, headers: list[tuple[str, str]], length: str | None) -> Reply:
        if length is None:
            rest, ending = await self.rest()
            return Reply(status, headers, rest, ending)
        try:
            return Reply(status, headers, await self._reader.readexactly(int(length)))
        except asyncio.IncompleteReadError as short:
            return Reply(status, headers, short.partial, "fin", whole=False)

    async def _chunked(self, status: int, headers: list[tuple[str, str]]) -> Reply:
        chunks: list[bytes] = []
        ending = "kept"
        try:
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                chunks.append((await self._reader.readexactly(size + 2))[:-2])
            await self._reader.readexactly(2)
        except asyncio.IncompleteReadError as short:
            chunks.append(short.partial)
            ending = "fin"
        except ConnectionResetError:
            ending = "reset"
        return Reply(status, headers, b"".join(chunks), ending, chunks, whole=ending == "kept")

    async def until(self, mark: bytes) -> bytes:
        """Read up to and with `mark`."""
        async with asyncio.timeout(self._patience_s):
            return await self._reader.readuntil(mark)

    async def rest(self) -> tuple[bytes, str]:
        """All bytes to the end of the connection, and whether it was `fin` or `reset`."""
        got = b""
        async with asyncio.timeout(self._patience_s):
            try:
                while data := await self._reader.read(65536):
                    got += data
            except ConnectionResetError:
                return got, "reset"
        return got, "fin"

    def leave(self) -> None:
        """Close with FIN."""
        self._writer.close()

    def abort(self) -> None:
        """Close with RST."""
        endpoint = self._writer.get_extra_info("socket")
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def at(document: object, *path: str | int) -> object:
    """What lies at `path` in a JSON document; None where a step leads nowhere."""
    for step in path:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            return None
    return document


def request_bytes(path: str, body: object = None, *, method: str | None = None, **headers: str) -> bytes:
    """One request as bytes; a body makes it a POST, other than bytes it is sent as JSON."""
    payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", "Host: sim"]
    lines += [f"{name.replace('_', '-').title()}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(payload)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + payload
