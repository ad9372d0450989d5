"""The bootstrap port: how long does the costliest a stranger may send hold the router's loop?"""

import asyncio
import gc
import ssl
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from hivenet_router.adapters.grpc_client import client_context
from hivenet_router.adapters.grpc_server import serve_bootstrap
from hivenet_router.names.protocol_ids import GRPC_AUTHENTICATE
from hivenet_router.wire import http2_frames as http2
from hivenet_router.wire.auth_messages import AuthOutcome
from hivenet_router.wire.tls_identity import grpc_identity

CONNECTIONS: Final = 40
_SECRET: Final = b"the secret of this measurement, 32+"
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_END_HEADERS: Final = 4


def measure() -> list[tuple[str, float]]:
    """The longest callback of the loop, in ms of its thread's CPU time, with forty connections that send the input."""
    # The router freezes its heap and looks for garbage seldom; here the strangers' heap would be searched with it.
    gc.collect()
    gc.disable()
    try:
        return [(shape, asyncio.run(_longest_ms(data))) for shape, data in shapes().items()]
    finally:
        gc.enable()


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    """One HTTP/2 frame."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def headers(block: bytes, stream: int = 1) -> bytes:
    """A HEADERS frame with a whole block."""
    return frame(http2.HEADERS, block, flags=_END_HEADERS, stream=stream)


def literal(name: bytes, value: bytes, first: int = 0x40) -> bytes:
    """A header with literal name and value, put into the table unless `first` says otherwise."""
    return bytes([first]) + _length(name) + name + _length(value) + value


def shapes() -> dict[str, bytes]:
    """Inputs by name, as decrypted bytes: each goes to a bound or beyond it."""
    block = http2.HEADER_BYTES_MAX
    start = _PREFACE + frame(http2.SETTINGS)
    return {
        "nothing but handshakes": b"",
        "references to one entry, 38 blocks": start + _blocks(range(1, 77, 2), 1900),
        "references to one entry, a block of 8 KiB": start + headers(literal(b"x", b"") + b"\xbe" * (block - 4)),
        "references to one entry, four blocks within the list": start + _blocks((1, 3, 5, 7), 240),
        "references to a long entry": start + headers(literal(b"x", b"y" * 3000) + b"\xbe" * 5000),
        "empty literals": start + headers(b"\0\0\0" * (block // 3)),
        "one Huffman value": start + headers(b"\x40\x01x" + _huffman(b"\0" * (block - 8))),
        "table size updates": start + headers(b"\x20" * block),
        "CONTINUATION without end": start
        + frame(http2.HEADERS, b"", stream=1)
        + frame(http2.CONTINUATION, b"\xbe" * 256, stream=1) * 2000,
        "8,800 empty SETTINGS": start + frame(http2.SETTINGS) * 8_800,
        "SETTINGS at their bounds": start + frame(http2.SETTINGS, struct.pack(">HI", 3, 1) * 32) * 7,
        "4,600 PINGs": start + frame(http2.PING, bytes(8)) * 4_600,
        "WINDOW_UPDATEs": start + frame(http2.WINDOW_UPDATE, b"\0\0\0\1") * 5_000,
        "all kinds at their bounds": start + _all_kinds(),
    }


def call(message: bytes, path: str = GRPC_AUTHENTICATE, stream: int = 1) -> bytes:
    """The frames of one call."""
    fields = {
        b":method": b"POST", b":scheme": b"https", b":path": path.encode(), b":authority": b"router",
        b"content-type": b"application/grpc", b"te": b"trailers",
    }  # fmt: skip
    block = b"".join(literal(name, value, 0) for name, value in fields.items())
    data = b"\0" + len(message).to_bytes(4) + message
    return headers(block, stream) + frame(http2.DATA, data, flags=1, stream=stream)


def _blocks(streams: Iterable[int], references: int) -> bytes:
    return b"".join(headers(literal(b"x", b"") + b"\xbe" * references, stream) for stream in streams)


def _all_kinds() -> bytes:
    most = http2.FRAMES_MAX
    return b"".join(
        (
            frame(http2.SETTINGS) * (most[http2.SETTINGS] - 1),
            frame(http2.PING, bytes(8)) * most[http2.PING],
            frame(http2.WINDOW_UPDATE, b"\0\0\0\1") * most[http2.WINDOW_UPDATE],
            frame(http2.PRIORITY, bytes(3) + b"\x05\0", stream=1) * most[http2.PRIORITY],
            call(b"\xff" * 4_000),
            call(b"\xff" * 4_000, stream=3),
        )
    )


def _length(data: bytes) -> bytes:
    return _integer(len(data), 0)


def _huffman(data: bytes) -> bytes:
    return _integer(len(data), 0x80) + data


def _integer(number: int, first: int) -> bytes:
    if number < 127:
        return bytes([first | number])
    rest, digits = number - 127, [first | 127]
    while rest > 127:
        digits.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*digits, rest])


async def _longest_ms(data: bytes) -> float:
    server = await serve_bootstrap(
        ("127.0.0.1", 0), grpc_identity(_SECRET), lambda _request, _source: AuthOutcome(success=False), lambda _: None
    )
    port = server.addresses[0][1]
    try:
        with _longest_callback() as longest:
            thread = threading.Thread(target=lambda: asyncio.run(_strangers(port, data)))
            thread.start()
            while thread.is_alive():  # noqa: ASYNC110  (a thread sets no event of this loop)
                await asyncio.sleep(0.01)
        return longest[0] * 1000
    finally:
        await server.close()


async def _strangers(port: int, data: bytes) -> None:
    await asyncio.gather(*(_stranger(port, data) for _ in range(CONNECTIONS)))


async def _stranger(port: int, data: bytes) -> None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context())
        writer.write(data)
        async with asyncio.timeout(1):
            await reader.read()
        writer.transport.abort()
    except (OSError, TimeoutError, ssl.SSLError):
        pass


@contextmanager
def _longest_callback() -> Iterator[list[float]]:
    """The most seconds of CPU time that one callback of this thread's loop took while the block ran."""
    ours = threading.get_ident()
    longest = [0.0]
    plain = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        plain(handle)
        if threading.get_ident() == ours:
            longest[0] = max(longest[0], time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[assignment, method-assign]
    try:
        yield longest
    finally:
        asyncio.Handle._run = plain  # type: ignore[method-assign]
