"""What text does the engine answer with?

Words of our own, the same for the same seed and prompt, one word a token, or a text that is given, cut into pieces.
Invariants: the pieces joined are the answer; they are made when they are sent, so that an answer costs the same memory
however long it is. How an answer looks on the wire is the business of the `shapes_*` modules.
"""

import itertools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Final, Protocol

WORDS: Final = (
    "amber", "brook", "cedar", "delta", "ember", "fable", "grove", "hazel", "inlet", "juniper", "kestrel", "lumen",
    "meadow", "nectar", "orchid", "pebble", "quarry", "ripple", "saffron", "thistle", "umber", "velvet", "willow",
    "yarrow", "zephyr", "anchor", "bramble", "copper", "dapple", "evening", "feather", "glimmer", "harbor",
    "island", "jasmine", "kindle", "lantern", "marble", "nimbus", "opal", "prairie", "quiet", "russet", "shelter",
    "timber", "upland", "vessel", "wander", "acorn", "basil", "cobalt", "drift",
)  # fmt: skip
_CYCLE: Final = tuple(f" {word}" for word in WORDS)
# Bytes of the first so many words of the cycle.
_CYCLE_BYTES: Final = tuple(itertools.accumulate(map(len, _CYCLE), initial=0))
_WORD: Final = re.compile(r"\S+\s*|\s+")
_EIGHT: Final = re.compile(r".{1,8}", re.DOTALL)
# Pieces are joined to blocks of this many, or of about this many bytes if they are long.
BLOCK_PIECES: Final = 4_096
BLOCK_BYTES: Final = 64 * 1024


def quoted(text: str) -> bytes:
    """The text as a JSON string, quotes included."""
    return encode_basestring(text).encode("utf-8", "backslashreplace")


class Pieces(Protocol):
    """The pieces of one answer, in order; `start` and `stop` count them from 0."""

    def __len__(self) -> int:
        """How many there are."""

    def __iter__(self) -> Iterator[str]:
        """Each in turn, made when it is asked for."""

    def blocks(self, start: int, stop: int) -> Iterator[str]:
        """The text of some of them, in blocks of a bounded number of pieces."""

    def quoted_bytes(self, start: int, stop: int) -> int:
        """The size in bytes of that text inside a JSON string, without the quotes."""


@dataclass(frozen=True, slots=True)
class Words:
    """`count` words from place `first` of the cycle on, each with the blank before it; the very first has none.

    With `piece_bytes` each is repeated and cut to that size.
    """

    count: int
    first: int
    piece_bytes: int | None = None

    def __len__(self) -> int:
        """How many there are."""
        return self.count

    def __iter__(self) -> Iterator[str]:
        """Each in turn."""
        return self._between(0, self.count)

    def _between(self, start: int, stop: int) -> Iterator[str]:
        at = (self.first + start) % len(_CYCLE)
        words: Iterator[str] = itertools.islice(itertools.cycle(_CYCLE), at, at + stop - start)
        if start == 0 < stop:
            words = itertools.chain((next(words).lstrip(),), words)
        size = self.piece_bytes
        return words if size is None else ((word * (size // len(word) + 1))[:size] for word in words)

    def blocks(self, start: int, stop: int) -> Iterator[str]:
        """The text of some of them, in blocks."""
        step = BLOCK_PIECES if self.piece_bytes is None else max(1, BLOCK_BYTES // self.piece_bytes)
        return _joined(self._between(start, stop), step)

    def quoted_bytes(self, start: int, stop: int) -> int:
        """The size of that text; words need no escapes."""
        if self.piece_bytes is not None:
            return (stop - start) * self.piece_bytes
        at = (self.first + start) % len(_CYCLE)
        return _cycle_bytes(at + stop - start) - _cycle_bytes(at) - (start == 0 < stop)


@dataclass(frozen=True, slots=True)
class CutText:
    """The first `count` matches of a pattern in a text; an empty text is one empty piece."""

    text: str
    pattern: re.Pattern[str]
    count: int

    def __len__(self) -> int:
        """How many there are."""
        return self.count

    def __iter__(self) -> Iterator[str]:
        """Each in turn."""
        if not self.text:
            return iter(("",))
        return (match.group() for match in itertools.islice(self.pattern.finditer(self.text), self.count))

    def blocks(self, start: int, stop: int) -> Iterator[str]:
        """The text of some of them, in blocks."""
        return _joined(itertools.islice(iter(self), start, stop), BLOCK_PIECES)

    def quoted_bytes(self, start: int, stop: int) -> int:
        """The size of that text with its escapes."""
        return sum(len(quoted(block)) - 2 for block in self.blocks(start, stop))


def answer_words(count: int, *, prompt: str, seed: int, piece_bytes: int | None = None) -> Words:
    """`count` words that depend on prompt and seed only."""
    first = (zlib.crc32(prompt.encode("utf-8", "surrogatepass")) + seed) % len(_CYCLE)
    return Words(count, first, piece_bytes)


def echoed(text: str, count_max: int) -> tuple[CutText, bool]:
    """The text itself in at most `count_max` pieces, a word with the blanks behind it each, and whether that is all."""
    found = sum(1 for _ in itertools.islice(_WORD.finditer(text), count_max + 1))
    return CutText(text, _WORD, max(1, min(found, count_max))), found <= count_max


def cut_by_eight(text: str) -> CutText:
    """The text in pieces of eight characters."""
    return CutText(text, _EIGHT, max(1, -(-len(text) // 8)))


def _cycle_bytes(count: int) -> int:
    rounds, rest = divmod(count, len(_CYCLE))
    return rounds * _CYCLE_BYTES[-1] + _CYCLE_BYTES[rest]


def _joined(pieces: Iterator[str], step: int) -> Iterator[str]:
    while block := "".join(itertools.islice(pieces, step)):
        yield block
