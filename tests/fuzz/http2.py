"""A fuzz target: the decrypted bytes of one connection of the bootstrap port, and what must hold whatever they are.

`python -m tests.fuzz.http2 SECONDS [FOLDER]` changes the corpus at random for so long; what breaks a rule is left in
the folder, and belongs into `tests/fuzz/corpus/http2` when it is mended: `test_http2_corpus.py` runs all that is there.
"""

import asyncio
import hashlib
import random
import sys
import time
from pathlib import Path
from typing import Final

from bench.work.grpc import call, frame
from grpclib.server import Handler

from hivenet_router.adapters.grpc_connection import Protocol
from hivenet_router.adapters.grpc_server import Bounds, _Service, quiet_grpclib
from hivenet_router.names.protocol_ids import GRPC_HEALTH_CHECK
from hivenet_router.wire.auth_messages import AuthOutcome, AuthRequest
from hivenet_router.wire.http2_frames import FRAMES_MAX, HEADERS, SETTINGS, TooMuchHttp2

CORPUS: Final = Path(__file__).parent / "corpus" / "http2"
INPUT_BYTES_MAX: Final = 48 << 10
SAID_BYTES_MAX: Final = 16 << 10
"""What a router may say to one connection: settings, acknowledgements, two short answers."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_CANARY: Final = PREFACE + frame(SETTINGS) + call(b"", GRPC_HEALTH_CHECK)


class BrokeARule(Exception):
    """An input did what none may do; the text says what."""


class _Wire(asyncio.Transport):
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self.said = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Target:
    """One service; `check` gives it the bytes of a connection, and then those of an ordinary one."""

    def __init__(self) -> None:
        quiet_grpclib()
        self.calls = 0
        self._service = _Service(self._authenticate, Bounds())

    async def check(self, data: bytes, piece_bytes: int) -> None:
        """Raises: BrokeARule."""
        self.calls = 0
        tasks = asyncio.all_tasks()
        said = await self._connection(data, piece_bytes)
        if len(said) > SAID_BYTES_MAX:
            raise BrokeARule(f"{len(said)} bytes were said to it")
        if self.calls > FRAMES_MAX[HEADERS]:
            raise BrokeARule(f"it made {self.calls} calls")
        if left := asyncio.all_tasks() - tasks:
            raise BrokeARule(f"{len(left)} tasks were left running")
        if b"serving" not in await self._connection(_CANARY, len(_CANARY)):
            raise BrokeARule("the connection behind it was not served")

    async def _connection(self, data: bytes, piece_bytes: int) -> bytes:
        wire, protocol = _Wire(), Protocol(self._service.new_protocol())
        protocol.connection_made(wire)
        try:
            for at in range(0, len(data), piece_bytes):
                if wire.closed:
                    break
                protocol.data_received(data[at : at + piece_bytes])
                await asyncio.sleep(0)
        except TooMuchHttp2:
            pass
        # As the connection does: grpclib raises what comes to hand, and that ends the connection.
        except Exception:
            wire.close()
        for _ in range(10):
            await asyncio.sleep(0)
        protocol.end()
        if isinstance(protocol.handler, Handler):
            await protocol.handler.wait_closed()
        return bytes(wire.said)

    def _authenticate(self, _request: AuthRequest, _source: str) -> AuthOutcome:
        self.calls += 1
        return AuthOutcome(success=False, message="no")


def seeds() -> dict[str, bytes]:
    """The corpus by name."""
    return {path.name: path.read_bytes() for path in sorted(CORPUS.iterdir())}


def changed(seed: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The seed with a few changes: bytes set, cut out, doubled, or taken from another."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        length = chance.choice((1, 1, 2, 4, 9, 30, 300))
        match chance.randrange(5):
            case 0:
                data[at : at + 1] = bytes(
                    [chance.choice((0, 1, 0x20, 0x3F, 0x7F, 0x80, 0xBE, 0xFF, chance.randrange(256)))]
                )
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length] * chance.choice((1, 2, 40))
            case 3:
                other = chance.choice(others)
                begin = chance.randrange(len(other) + 1)
                data[at:at] = other[begin : begin + length]
            case _:
                data[at:at] = frame(
                    chance.randrange(12), chance.randbytes(chance.randrange(20)),
                    flags=chance.choice((0, 1, 4, 5, 8, 0x20, 0xFF)), stream=chance.choice((0, 1, 2, 3, 5, 2**31)),
                )  # fmt: skip
    return bytes(data[:INPUT_BYTES_MAX])


async def fuzz(seconds: float, folder: Path) -> int:
    """Tries changed seeds for so long; how many broke a rule."""
    chance, target, corpus = random.Random(), Target(), list(seeds().values())
    ends_at, tried, found = time.monotonic() + seconds, 0, 0
    while time.monotonic() < ends_at:
        data = changed(chance.choice(corpus), corpus, chance)
        tried += 1
        try:
            await target.check(data, chance.choice((1, 7, 100, len(data) or 1)))
        except BrokeARule as broke:
            found += 1
            _keep(folder, data, str(broke))
    sys.stdout.write(f"http2: {tried} inputs, {found} broke a rule\n")
    return found


def _keep(folder: Path, data: bytes, why: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    sys.stdout.write(f"{path}: {why}\n")


if __name__ == "__main__":
    left_in = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("artifacts/http2")
    sys.exit(1 if asyncio.run(fuzz(float(sys.argv[1]), left_in)) else 0)
