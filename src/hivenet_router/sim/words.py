"""What text does the engine answer with?

Words of our own, the same for the same seed and prompt, one word a token. Invariant: the pieces joined are the answer.
How an answer looks on the wire is the business of the `shapes_*` modules.
"""

import itertools
import re
import zlib
from collections.abc import Sequence
from typing import Final

WORDS: Final = (
    "amber", "brook", "cedar", "delta", "ember", "fable", "grove", "hazel", "inlet", "juniper", "kestrel", "lumen",
    "meadow", "nectar", "orchid", "pebble", "quarry", "ripple", "saffron", "thistle", "umber", "velvet", "willow",
    "yarrow", "zephyr", "anchor", "bramble", "copper", "dapple", "evening", "feather", "glimmer", "harbor",
    "island", "jasmine", "kindle", "lantern", "marble", "nimbus", "opal", "prairie", "quiet", "russet", "shelter",
    "timber", "upland", "vessel", "wander", "acorn", "basil", "cobalt", "drift",
)  # fmt: skip
_CYCLE: Final = tuple(f" {word}" for word in WORDS)
_PIECE: Final = re.compile(r"\S+\s*|\s+")


def answer_pieces(count: int, *, prompt: str, seed: int) -> list[str]:
    """`count` words, each with the blank before it; the first has none. They depend on prompt and seed only."""
    start = (zlib.crc32(prompt.encode("utf-8", "surrogatepass")) + seed) % len(_CYCLE)
    pieces = list(itertools.islice(itertools.cycle(_CYCLE), start, start + count))
    pieces[0] = pieces[0].lstrip()
    return pieces


def echo_pieces(text: str, count_max: int) -> list[str]:
    """The text itself in at most `count_max` pieces, a word with the blanks behind it each; never empty."""
    found = [match.group() for match in itertools.islice(_PIECE.finditer(text), count_max)]
    return found or [""]


def widened(pieces: Sequence[str], size_bytes: int) -> list[str]:
    """Each piece repeated and cut to `size_bytes`; meant for pieces of ASCII words."""
    return [(piece * (size_bytes // len(piece) + 1))[:size_bytes] for piece in pieces]
