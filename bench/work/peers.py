"""What does the most expensive that a peer may send cost: the router's loop with JSON, the plane's thread with frames?

Shapes, not programs: each is as large as its bound allows, and the most expensive of those that were tried stay listed.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Final

from hivenet_router.wire import agent_protocol
from hivenet_router.wire.agent_protocol import BODY_BYTES_MAX, VALUES_MAX, BodyInvalid

STRANGER_BODY_BYTES_MAX: Final = 8 << 10
"""As the data plane has it."""
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


def measure() -> list[tuple[str, float]]:
    """Each input and the milliseconds of processor time that it takes from the loop."""
    taken = []
    for who, bytes_max in (("stranger", STRANGER_BODY_BYTES_MAX), ("agent", BODY_BYTES_MAX)):
        for name, body in shapes(bytes_max):
            taken.append((f"peers: JSON of a {who}, {name}", _median_ms(body)))
    return taken
