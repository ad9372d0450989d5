"""What is a buffered body before it is sent?

JSON with places for the long texts, which are made block by block as the client takes them: a body of gigabytes costs
no more memory than one of kilobytes, and its size is known before its first byte. Invariant: the blocks joined have
exactly `size_bytes`. Framing is the business of `framing`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hivenet_router.sim.words import BLOCK_BYTES, Pieces, quoted

# Stands in a template for a text that is filled in; JSON writes it as below.
PLACE: Final = "\0"
_PLACE_JSON: Final = b"\\u0000"


@dataclass(frozen=True, slots=True)
class Said:
    """Some of an answer's pieces, to stand inside a JSON string. `size_bytes` is their size there."""

    pieces: Pieces
    start: int
    stop: int
    size_bytes: int

    def blocks(self) -> Iterator[bytes]:
        """The bytes, some at a time."""
        return (quoted(block)[1:-1] for block in self.pieces.blocks(self.start, self.stop))


def said(pieces: Pieces, start: int, stop: int) -> Said:
    """The pieces from `start` up to `stop`."""
    return Said(pieces, start, stop, pieces.quoted_bytes(start, stop))


class Body:
    """A body in parts, bytes or texts."""

    def __init__(self, *parts: bytes | Said) -> None:
        self._parts = parts
        self.size_bytes = sum(len(part) if isinstance(part, bytes) else part.size_bytes for part in parts)

    def blocks(self) -> Iterator[bytes]:
        """All of it, in blocks of about `BLOCK_BYTES`; a part of bytes stays whole."""
        gathered: list[bytes] = []
        size_bytes = 0
        for part in self._parts:
            for block in (part,) if isinstance(part, bytes) else part.blocks():
                gathered.append(block)
                size_bytes += len(block)
                if size_bytes >= BLOCK_BYTES:
                    yield b"".join(gathered)
                    gathered, size_bytes = [], 0
        if gathered:
            yield b"".join(gathered)


def filled(template: bytes, *texts: Said) -> list[bytes | Said]:
    """A JSON template with its last places filled in; what looks like a place before them is left as it is."""
    first, *rest = template.rsplit(_PLACE_JSON, len(texts))
    parts: list[bytes | Said] = [first]
    for text, after in zip(texts, rest, strict=True):
        parts += [text, after]
    return parts
