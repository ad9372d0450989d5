"""Token estimates, cold and learned. The examples are those of signals.md §7 and http-api.md §3.1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivenet_router.core.estimate import (
    COLD_TOKENS_PER_BYTE,
    MODELS_LEARNED_MAX,
    TOKENS_TOLD_MAX,
    LearnedRatios,
    believed,
    estimate_tokens,
    tokens_without_usage,
)
from hivenet_router.core.ids import ModelName

MODEL = ModelName("m")


@pytest.mark.parametrize(
    ("text_bytes", "messages", "tokens"),
    [(3200, 1, 1000), (100, 1, 32), (0, 3, 12), (2, 1, 4), (13, 1, 5), (160, 1, 50), (161, 1, 51), (0, 0, 0)],
)
def test_a_cold_estimate_counts_bytes_and_never_less_than_four_a_message(
    text_bytes: int, messages: int, tokens: int
) -> None:
    """EX-7.1 to EX-7.5, and the two edges of http-api.md §3.1."""
    assert estimate_tokens(text_bytes, messages) == tokens


def test_an_exact_count_moves_the_ratio_by_a_fifth() -> None:
    """EX-7.6."""
    ratios = LearnedRatios()
    ratios.observe(MODEL, prompt_tokens=400, text_bytes=1000)
    assert ratios.of(MODEL) == pytest.approx(0.33)
    assert ratios.estimate(MODEL, text_bytes=1000, messages=1) == 330
    ratios.observe(MODEL, prompt_tokens=400, text_bytes=1000)
    assert ratios.of(MODEL) == pytest.approx(0.344)
    assert ratios.estimate(MODEL, text_bytes=1000, messages=1) == 344


def test_the_same_observation_is_believed_after_twenty_one_times() -> None:
    """EX-7.7."""
    ratios = LearnedRatios()
    needed = 0
    while ratios.of(MODEL) < 0.399:
        ratios.observe(MODEL, prompt_tokens=400, text_bytes=1000)
        needed += 1
    assert needed == 21


@pytest.mark.parametrize(("text_bytes", "prompt_tokens", "ratio"), [(100, 5000, 0.45), (10000, 1, 0.26)])
def test_one_odd_report_is_bounded(text_bytes: int, prompt_tokens: int, ratio: float) -> None:
    """EX-7.8 and EX-7.9."""
    ratios = LearnedRatios()
    ratios.observe(MODEL, prompt_tokens=prompt_tokens, text_bytes=text_bytes)
    assert ratios.of(MODEL) == pytest.approx(ratio)


@pytest.mark.parametrize(("text_bytes", "prompt_tokens"), [(0, 5), (5, 0), (-1, 5), (5, -1)])
def test_nothing_is_learned_from_nothing(text_bytes: int, prompt_tokens: int) -> None:
    ratios = LearnedRatios()
    ratios.observe(MODEL, prompt_tokens=prompt_tokens, text_bytes=text_bytes)
    assert ratios.of(MODEL) == COLD_TOKENS_PER_BYTE


@pytest.mark.parametrize("told", [None, 0, 1, TOKENS_TOLD_MAX])
def test_what_an_engine_may_have_used_is_believed(told: int | None) -> None:
    assert believed(told) == told


@pytest.mark.parametrize("told", [-1, TOKENS_TOLD_MAX + 1, 10**18, 2**64 - 1])
def test_what_no_request_can_have_used_is_not_believed(told: int) -> None:
    assert believed(told) is None


def test_models_learn_apart() -> None:
    ratios = LearnedRatios()
    ratios.observe(MODEL, prompt_tokens=400, text_bytes=1000)
    assert ratios.of(ModelName("other")) == COLD_TOKENS_PER_BYTE


def test_the_first_model_makes_room_when_too_many_were_learned() -> None:
    ratios = LearnedRatios()
    for number in range(MODELS_LEARNED_MAX + 1):
        ratios.observe(ModelName(f"m{number}"), prompt_tokens=400, text_bytes=1000)
    assert ratios.of(ModelName("m0")) == COLD_TOKENS_PER_BYTE
    assert ratios.of(ModelName("m1")) == pytest.approx(0.33)


def test_a_model_that_teaches_nothing_pushes_nobody_out() -> None:
    ratios = LearnedRatios()
    for number in range(MODELS_LEARNED_MAX):
        ratios.observe(ModelName(f"m{number}"), prompt_tokens=400, text_bytes=1000)
    ratios.observe(MODEL, prompt_tokens=0, text_bytes=1000)
    assert ratios.of(ModelName("m0")) == pytest.approx(0.33)


@pytest.mark.parametrize(("texts_bytes", "tokens"), [([], 0), ([0], 4), ([8], 6), ([4, 4], 10)])
def test_texts_without_usage_cost_a_quarter_of_their_bytes_and_four_each(texts_bytes: list[int], tokens: int) -> None:
    """EX-7.10."""
    assert tokens_without_usage(texts_bytes) == tokens


@given(st.integers(0, 10**7), st.integers(0, 1000), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))))
def test_no_history_makes_more_tokens_than_bytes_beyond_the_floor(
    text_bytes: int, messages: int, observed: list[tuple[int, int]]
) -> None:
    ratios = LearnedRatios()
    for prompt_tokens, of_bytes in observed:
        ratios.observe(MODEL, prompt_tokens=prompt_tokens, text_bytes=of_bytes)
    assert 4 * messages <= ratios.estimate(MODEL, text_bytes=text_bytes, messages=messages)
    assert ratios.estimate(MODEL, text_bytes=text_bytes, messages=messages) <= max(text_bytes, 4 * messages)
