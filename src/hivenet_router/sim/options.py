"""What can a simulated engine be told before it starts?

One frozen value holds every setting, with its unit in its name; `check` says in words what cannot be used. Reading
the command line is `main`'s business, and what changes while the program runs (faults) is not an option.
"""

from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1024 * 1024
# The longest answer, in tokens of each choice.
OUTPUT_TOKENS_MAX: Final = 1_000_000
# Speeds and times are less than this, in their own units.
NUMBER_MAX: Final = 1e9


class OptionError(ValueError):
    """Settings that cannot be used; each of `mistakes` names one, its value and the rule."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class SimOptions:
    """Settings of one simulated engine. A speed of 0 means "as fast as this machine can".

    `output_tokens` is a range; each request draws its length from it, repeatably by `seed`.
    `model_len_max` 0 sets no context limit. `idle_timeout_s` 0 keeps idle connections for ever.
    """

    host: str = "127.0.0.1"
    port: int = 0
    models: tuple[str, ...] = ("sim-model",)
    decode_tokens_per_s: float = 50.0
    prefill_tokens_per_s: float = 10_000.0
    output_tokens: tuple[int, int] = (64, 64)
    first_token_delay_s: float = 0.0
    concurrency: int = 256
    waiting_max: int = 10_000
    kv_cache_tokens: int = 524_288
    model_len_max: int = 0
    error_rate: float = 0.0
    error_status: int = 500
    seed: int = 0
    stamp_chunks: bool = False
    start_delay_s: float = 0.0
    api_key: str | None = field(default=None, repr=False)
    idle_timeout_s: float = 0.0
    body_bytes_max: int = 64 * MIB
    requests_kept: int = 1_000
    kept_body_bytes_max: int = 16 * 1024
    embedding_dimensions: int = 64

    def interval_s(self) -> float:
        """Seconds between two tokens of one request; 0 without a limit."""
        return 1.0 / self.decode_tokens_per_s if self.decode_tokens_per_s > 0 else 0.0

    def prefill_s(self, prompt_tokens: int) -> float:
        """Seconds from the start of work to the first token of a prompt of this size."""
        reading_s = prompt_tokens / self.prefill_tokens_per_s if self.prefill_tokens_per_s > 0 else 0.0
        return self.first_token_delay_s + reading_s


def check(options: SimOptions) -> SimOptions:
    """The same options, once every one of them can be used; mistakes are told by the names of the command line.

    Raises: OptionError naming all settings that cannot be used, not only the first.
    """
    low, high = options.output_tokens
    rules: list[tuple[bool, str]] = [
        (0 <= options.port <= 65535, f"--listen: port {options.port} must be 0 to 65535"),
        (bool(options.models) and all(options.models), "--model: at least one name, none of them empty"),
        (len(set(options.models)) == len(options.models), "--model: each name once"),
        (
            1 <= low <= high <= OUTPUT_TOKENS_MAX,
            f"--output-tokens {low}-{high}: must be 1 to {OUTPUT_TOKENS_MAX}, the smaller number first",
        ),
        (options.concurrency >= 1, f"--concurrency {options.concurrency}: must be 1 or more"),
        (options.waiting_max >= 0, f"--max-waiting {options.waiting_max}: must be 0 or more"),
        (options.kv_cache_tokens >= 1, f"--kv-cache-tokens {options.kv_cache_tokens}: must be 1 token or more"),
        (options.model_len_max >= 0, f"--max-model-len {options.model_len_max}: must be 0 (no limit) or more"),
        (0.0 <= options.error_rate <= 1.0, f"--error-rate {options.error_rate}: must be 0 to 1"),
        (400 <= options.error_status <= 599, f"--error-status {options.error_status}: must be 400 to 599"),
        (options.body_bytes_max >= 1, f"--max-body-bytes {options.body_bytes_max}: must be 1 byte or more"),
        (options.requests_kept >= 1, f"--keep-requests {options.requests_kept}: must be 1 or more"),
        (
            1 <= options.embedding_dimensions <= 65536,
            f"--embedding-dimensions {options.embedding_dimensions}: must be 1 to 65536",
        ),
    ]
    rules += [
        (0.0 <= value < NUMBER_MAX, f"{name} {value:g}: must be 0 or more, and less than {NUMBER_MAX:g}")
        for name, value in (
            ("--decode-tokens-per-s", options.decode_tokens_per_s),
            ("--prefill-tokens-per-s", options.prefill_tokens_per_s),
            ("--first-token-delay-ms", options.first_token_delay_s * 1000.0),
            ("--start-delay", options.start_delay_s),
            ("--idle-timeout", options.idle_timeout_s),
        )
    ]
    wrong = [text for holds, text in rules if not holds]
    if wrong:
        raise OptionError(*wrong)
    return options
