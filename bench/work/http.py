"""What does the most expensive body or head of a request cost the data plane?

A body up to 256 KiB is read through on the plane's own thread; a longer one on a helper's, beside which others run.
Heads are sent to a listener of a plane of our own, and what its thread worked is read off the kernel's account of it.
"""

import socket
import time
from pathlib import Path
from typing import Final

from hivenet_router._plane import Arrived, DoorSpec, Plane, digest_of, new_identity

_HERE_BYTES_MAX: Final = 256 << 10
"""`DIGEST_HERE_BYTES_MAX` of the plane."""
_HEAD_BYTES_MAX: Final = 128 << 10
_FIELDS_MAX: Final = 512
_TOKENS_MAX: Final = 32
_MEMBERS_MAX: Final = 1024
_DEPTH_MAX: Final = 128
_TIMES: Final = 15
_WITHIN_S: Final = 20.0
_HEAD: Final = b"GET /v1/models HTTP/1.1\r\nHost: h\r\n"


def measure() -> list[tuple[str, float]]:
    """For the most expensive inputs within the bounds: what each is, and how many milliseconds of thread it takes."""
    bodies = [(f"body summary: {name}", _digest_ms(body)) for name, body in _bodies().items()]
    return [*bodies, *((f"request head: {name}", held_ms) for name, held_ms in _heads_ms())]


def _bodies() -> dict[str, bytes]:
    """Bodies of just so many bytes as are read through on the plane's thread, by what makes them dear."""
    return {
        "escapes": _filled(b'{"model":"m","messages":[{"content":"', b"\\u00e9", b'"}]}'),
        "empty objects": _filled(b'{"model":"m","x":[', b"{},", b"0]}"),
        "numbers": _filled(b'{"model":"m","x":[', b"1e9,", b"0]}"),
        "tools, read twice": _filled(b'{"model":"m","tools":[', b"[],", b"0]}"),
        "image parts": _filled(b'{"model":"m","messages":[{"content":[', b'{"type":"image_url"},', b"{}]}]}"),
        "nesting": _filled(b'{"model":"m","x":[', b"[" * (_DEPTH_MAX - 3) + b"]" * (_DEPTH_MAX - 3) + b",", b"0]}"),
        "members": b"{%s}"
        % b",".join(b'"%s%d":0' % (b"m" * (_HERE_BYTES_MAX // _MEMBERS_MAX - 10), n) for n in range(_MEMBERS_MAX)),
    }


def _filled(start: bytes, piece: bytes, end: bytes) -> bytes:
    return start + piece * ((_HERE_BYTES_MAX - len(start) - len(end)) // len(piece)) + end


def _digest_ms(body: bytes) -> float:
    """The median: what else this machine does is not the input's cost."""
    took = []
    for _ in range(_TIMES):
        begun = time.thread_time()
        digest_of(body)
        took.append(time.thread_time() - begun)
    return sorted(took)[_TIMES // 2] * 1000


def _heads() -> dict[str, bytes]:
    rooms = (_HEAD_BYTES_MAX - len(_HEAD) - 2) // _FIELDS_MAX - 12
    connection = b"Connection: " + b",".join(b"x%03d" % n for n in range(_TOKENS_MAX)) + b"\r\n"
    return {
        "one long field": b"X: " + b"y" * (_HEAD_BYTES_MAX - len(_HEAD) - 7) + b"\r\n",
        "512 fields": b"".join(b"X-%03d: %s\r\n" % (n, b"y" * rooms) for n in range(_FIELDS_MAX - 1)),
        "512 fields and 32 tokens": connection + b"".join(b"y%03d: z\r\n" % n for n in range(_FIELDS_MAX - 2)),
    }


def _heads_ms() -> list[tuple[str, float]]:
    plane = Plane(new_identity(), DoorSpec("links", body_bytes_max=1 << 20), conns_per_ip=8)
    [address] = plane.listen_http(["127.0.0.1"], 0, DoorSpec("api", body_bytes_max=1 << 20))
    try:
        return [(name, _head_ms(plane, address, _HEAD + fields + b"\r\n")) for name, fields in _heads().items()]
    finally:
        plane.shutdown()


def _head_ms(plane: Plane, address: tuple[str, int], head: bytes) -> float:
    """Milliseconds that the plane's thread works for one such request and its answer."""
    with socket.create_connection(address, timeout=_WITHIN_S) as client:
        before = _plane_worked_ms()
        for _ in range(_TIMES):
            client.sendall(head)
            _answer(plane)
            if not client.recv(1 << 16).startswith(b"HTTP/1.1 200 "):
                raise RuntimeError("the plane refused a head within the bounds")
        return (_plane_worked_ms() - before) / _TIMES


def _answer(plane: Plane) -> None:
    by = time.monotonic() + _WITHIN_S
    while time.monotonic() < by:
        for event in plane.drain():
            if isinstance(event, Arrived):
                event.respond(200, [], b"ok")
                plane.ring()
                return
        time.sleep(0.0005)
    raise RuntimeError("no request arrived")


def _plane_worked_ms() -> float:
    """What the threads of the newest plane in this process have worked; Linux alone keeps that account."""
    tasks = sorted(Path("/proc/self/task").iterdir(), key=lambda task: int(task.name), reverse=True)
    plane = next((task for task in tasks if (task / "comm").read_text().strip() == "plane"), None)
    if plane is None:
        raise RuntimeError("no thread of a plane is known here")
    return int((plane / "schedstat").read_text().split()[0]) / 1e6
