"""How much HTTP/2 may one connection of an agent send? Counted from frame headers, before anything decodes a frame.

An agent makes one call: its settings and the acknowledgement of ours, one header block, a message in a few DATA frames,
and what its library adds by itself (grpc-go: a ping and a window update for what it reads). The bounds are some times
that. Whether the frames are good HTTP/2 is for whoever decodes them to say.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

HEADER_BYTES_MAX: Final = 8 << 10
"""All header blocks of a connection together, as they come; a call of grpc-go takes some 300."""
SETTINGS_BYTES_MAX: Final = 32 * 6
GOAWAY_BYTES_MAX: Final = 1 << 10
UNKNOWN_FRAMES_MAX: Final = 8
FRAMES_MAX: Final[Mapping[int, int]] = MappingProxyType(
    {
        DATA: 32,
        HEADERS: 4,
        PRIORITY: 8,
        RST_STREAM: 4,
        SETTINGS: 8,
        PUSH_PROMISE: 0,
        PING: 16,
        GOAWAY: 2,
        WINDOW_UPDATE: 32,
        CONTINUATION: 4,
    }
)
"""Frames of each kind that one connection may send in its whole life."""

_NAMES: Final = {
    DATA: "DATA",
    HEADERS: "HEADERS",
    PRIORITY: "PRIORITY",
    RST_STREAM: "RST_STREAM",
    SETTINGS: "SETTINGS",
    PUSH_PROMISE: "PUSH_PROMISE",
    PING: "PING",
    GOAWAY: "GOAWAY",
    WINDOW_UPDATE: "WINDOW_UPDATE",
    CONTINUATION: "CONTINUATION",
}
_PREFACE_BYTES: Final = 24
_FRAME_HEADER_BYTES: Final = 9


class TooMuchHttp2(Exception):
    """A connection has sent more than one call takes; the text says of what."""


class FrameBudget:
    """What one connection may still send; `spend` takes its decrypted bytes, however they are cut."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._header_bytes_left = HEADER_BYTES_MAX
        self._payload_left = _PREFACE_BYTES
        self._frame_header = b""

    def spend(self, data: bytes) -> None:
        """Counts the frames that begin in these bytes.

        Raises: TooMuchHttp2 at the first frame that is one too many, or too long.
        """
        at = 0
        while at < len(data):
            passed = min(self._payload_left, len(data) - at)
            self._payload_left -= passed
            at += passed
            missing = _FRAME_HEADER_BYTES - len(self._frame_header)
            self._frame_header += data[at : at + missing]
            at += missing
            if len(self._frame_header) == _FRAME_HEADER_BYTES:
                self._payload_left = int.from_bytes(self._frame_header[:3])
                self._count(self._frame_header[3], self._payload_left)
                self._frame_header = b""

    def _count(self, kind: int, payload_bytes: int) -> None:
        name = _NAMES.get(kind, "other")
        # Frames of kinds that nobody knows share one count, or there would be hundreds.
        counted = kind if kind in FRAMES_MAX else -1
        self._seen[counted] = seen = self._seen.get(counted, 0) + 1
        if seen > (most := FRAMES_MAX.get(kind, UNKNOWN_FRAMES_MAX)):
            raise TooMuchHttp2(f"sent more than {most} {name} frames")
        if kind == SETTINGS and payload_bytes > SETTINGS_BYTES_MAX:
            raise TooMuchHttp2(f"sent a SETTINGS frame of {payload_bytes} bytes")
        if kind == GOAWAY and payload_bytes > GOAWAY_BYTES_MAX:
            raise TooMuchHttp2(f"sent a GOAWAY frame of {payload_bytes} bytes")
        if kind in (HEADERS, CONTINUATION):
            self._header_bytes_left -= payload_bytes
            if self._header_bytes_left < 0:
                raise TooMuchHttp2(f"sent more than {HEADER_BYTES_MAX} bytes of headers")
