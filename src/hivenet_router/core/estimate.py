"""How many tokens is a prompt, before any model has counted it?

Bytes of text times a ratio learned per model, and never under four tokens a message. The ratio follows what backends
report and is bounded, so one odd report cannot spoil it. Which bytes count as text, and which answers may teach, is
decided where bodies and usage are read.
"""

from collections.abc import Iterable
from math import ceil
from typing import Final

from hivenet_router.core.ids import ModelName, Tokens

COLD_TOKENS_PER_BYTE: Final = 1 / 3.2
TOKENS_PER_MESSAGE_MIN: Final = 4
OBSERVED_RATIO_MIN: Final = 0.05
OBSERVED_RATIO_MAX: Final = 1.0
MODELS_LEARNED_MAX: Final = 4096

TOKENS_TOLD_MAX: Final = 10_000_000
"""What an engine may say that it used for one request: more than any model's context. Above it the number is a mistake.

No tighter bound follows from what passed: an image is few bytes of text, and what a model thinks need not be sent.
"""

_WEIGHT_OF_NEWS: Final = 0.2


def estimate_tokens(text_bytes: int, messages: int, *, tokens_per_byte: float = COLD_TOKENS_PER_BYTE) -> Tokens:
    """The prompt's size in tokens, from its bytes of text and its number of messages; rounded up.

    Source: http-api.md §3.1; signals.md §7.1.
    """
    return Tokens(max(ceil(text_bytes * tokens_per_byte), TOKENS_PER_MESSAGE_MIN * messages))


def learned_ratio(tokens_per_byte: float, *, prompt_tokens: int, text_bytes: int) -> float:
    """The ratio in tokens per byte after a backend counted `prompt_tokens` for `text_bytes` of text.

    Nothing is learned when either number is not positive.

    Source: signals.md §7.1.
    """
    if prompt_tokens <= 0 or text_bytes <= 0:
        return tokens_per_byte
    observed = min(max(prompt_tokens / text_bytes, OBSERVED_RATIO_MIN), OBSERVED_RATIO_MAX)
    return _WEIGHT_OF_NEWS * observed + (1 - _WEIGHT_OF_NEWS) * tokens_per_byte


def tokens_without_usage(texts_bytes: Iterable[int]) -> Tokens:
    """Tokens of texts for which a backend reported no usage: a quarter of each one's bytes, and four for each text.

    Source: signals.md §7.2.
    """
    return Tokens(sum(text_bytes // 4 + TOKENS_PER_MESSAGE_MIN for text_bytes in texts_bytes))


def believed(told: int | None) -> int | None:
    """The number of tokens that an engine told for one request; None where it told none, or one that cannot be.

    It ends up in counters that only grow, so one absurd number would spoil them for as long as they are kept.
    """
    return told if told is None or 0 <= told <= TOKENS_TOLD_MAX else None


def output_without_usage(output_bytes: int) -> Tokens:
    """Tokens of one answer of which this many bytes of output were seen; nothing where none was."""
    return tokens_without_usage((output_bytes,)) if output_bytes else Tokens(0)


class LearnedRatios:
    """Tokens per byte, for each model that has taught us something.

    Invariant: at most `MODELS_LEARNED_MAX` models are kept. The one that was first learned makes room and starts cold
    again, which costs accuracy only.
    """

    __slots__ = ("_by_model",)

    def __init__(self) -> None:
        self._by_model: dict[ModelName, float] = {}

    def of(self, model: ModelName) -> float:
        """Tokens per byte of this model's prompts; the cold ratio until one was observed."""
        return self._by_model.get(model, COLD_TOKENS_PER_BYTE)

    def estimate(self, model: ModelName, *, text_bytes: int, messages: int) -> Tokens:
        """The prompt's size in tokens with this model's ratio."""
        return estimate_tokens(text_bytes, messages, tokens_per_byte=self.of(model))

    def observe(self, model: ModelName, *, prompt_tokens: int, text_bytes: int) -> None:
        """Learn from an exact count of a local agent's backend; requests with images must not be passed in."""
        known = self.of(model)
        ratio = learned_ratio(known, prompt_tokens=prompt_tokens, text_bytes=text_bytes)
        if ratio == known:
            return
        if model not in self._by_model and len(self._by_model) >= MODELS_LEARNED_MAX:
            del self._by_model[next(iter(self._by_model))]
        self._by_model[model] = ratio
