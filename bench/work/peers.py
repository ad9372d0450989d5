"""What does the most expensive that a peer may send cost: the router's loop with JSON, the plane's thread with frames?

Shapes, not programs: each is as large as its bound allows, and the most expensive of those that were tried stay listed.
"""

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.raw_peer import DATA, PING, RST, SYN, UPDATE, RawPeer, frame
from hivenet_router._plane import DoorSpec, Plane, new_identity
from hivenet_router.wire import agent_protocol
from hivenet_router.wire.agent_protocol import BODY_BYTES_MAX, VALUES_MAX, BodyInvalid

STRANGER_BODY_BYTES_MAX: Final = 8 << 10
TURN_BYTES: Final = 64 << 10
PINGS_MAX: Final = 1_000
"""As the data plane has them."""
_ROUNDS: Final = 5


def _filled(unit: str, values: int, bytes_max: int, *, before: str = '{"session_token":null,"x":[') -> bytes:
    room = bytes_max - len(before) - len("]}")
    return f"{before}{','.join([unit] * min(values, room // (len(unit) + 1)))}]}}".encode()


def shapes(bytes_max: int) -> Iterator[tuple[str, bytes]]:
    """Bodies of that many bytes at most, with as many values as may be: what they are and what they hold."""
    for name, unit, weight in (("objects", "{}", 2), ("arrays", "[]", 2), ("numbers", "0", 1), ("texts", '""', 1)):
        yield name, _filled(unit, VALUES_MAX // weight - 4, bytes_max)
    yield "objects between blanks", _filled("{}", VALUES_MAX // 2 - 4, bytes_max, before='{ "session_token":null,"x":[')
    members = ",".join(f'"{number:x}":0' for number in range(min(VALUES_MAX - 4, bytes_max // 8)))
    yield "members", f'{{"session_token":null,{members}}}'.encode()
    yield "one escaped text", b'{"session_token":null,"x":"' + b"\\n" * ((bytes_max - 32) // 2) + b'"}'
    long = "a" * ((bytes_max - 8192) // 1000)
    yield "long texts", _filled(f'"{long}"', 900, bytes_max)


def _decode(body: bytes) -> None:
    try:
        agent_protocol.decode_heartbeat(body)
    except BodyInvalid:
        return


def _median_ms(body: bytes) -> float:
    took = []
    for _ in range(_ROUNDS):
        begun = time.thread_time()
        _decode(body)
        took.append(time.thread_time() - begun)
    return statistics.median(took) * 1e3


def floods() -> Iterator[tuple[str, bytes]]:
    """What one turn of the thread takes in of frames that carry nothing: 64 KiB, and no more than a second's bound."""
    fits = TURN_BYTES // len(frame(PING, SYN, 0, 0))
    yield "pings", frame(PING, SYN, 0, 7) * (PINGS_MAX - 1)
    yield "resets", frame(DATA, RST, 1, 0) * fits
    yield "window updates", frame(UPDATE, 0, 1, 1) * fits
    yield "empty frames", frame(DATA, 0, 1, 0) * fits
    yield "bytes of no stream", frame(DATA, 0, 1, 1, b"x") * (TURN_BYTES // 13)
    yield "new streams", b"".join(frame(UPDATE, SYN, 2 * number + 1, 0) for number in range(fits))


def _thread_s() -> float:
    """Processor seconds of the plane's thread so far."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "plane":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise RuntimeError("there is no thread of a data plane")


def _flooded_ms(address: tuple[str, int], frames: bytes) -> float:
    with contextlib.closing(RawPeer(address)) as made:
        # Identify and the first ping are not what is measured.
        time.sleep(0.3)
        drained = threading.Thread(target=made.is_cut_off)
        drained.start()
        before = _thread_s()
        made.send(frames)
        time.sleep(0.3)
        took = _thread_s() - before
        made.socket.shutdown(socket.SHUT_RDWR)
        drained.join()
    return took * 1e3


def _frames() -> Iterator[tuple[str, float]]:
    plane = Plane(new_identity(), DoorSpec("peers", body_bytes_max=BODY_BYTES_MAX), conns_per_ip=8)
    try:
        _, _, ip, _, port = plane.listen_peers("/ip4/127.0.0.1/tcp/0")[0].split("/")
        for name, frames in floods():
            yield f"yamux, {name}", _flooded_ms((ip, int(port)), frames)
    finally:
        plane.shutdown()


def measure() -> list[tuple[str, float]]:
    """Each input and the milliseconds of processor time that it takes from the loop, or the plane's thread."""
    taken = []
    for who, bytes_max in (("a stranger", STRANGER_BODY_BYTES_MAX), ("an agent", BODY_BYTES_MAX)):
        taken += [(f"JSON of {who}, {name}", _median_ms(body)) for name, body in shapes(bytes_max)]
    return [*taken, *_frames()]
