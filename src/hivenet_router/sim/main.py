"""How is the simulator run from the command line?

`hivenet-sim` reads its arguments, says on standard output where it listens, and serves until SIGINT or SIGTERM.
Invariant: what cannot be used is refused with a sentence and exit status 2 (arguments) or 1 (address), before anything
is served. All else is `server`'s.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import Final

from hivenet_router.sim.options import OptionError, SimOptions, check
from hivenet_router.sim.server import Simulator

DEFAULTS: Final = SimOptions()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the simulator; 0 after a signal, 1 if the address cannot be had, 2 for arguments that cannot be used."""
    parser = build_parser()
    options = options_of(parser, parser.parse_args(argv))
    try:
        asyncio.run(_serve(options))
    except OSError as wrong:
        reason = wrong.strerror or str(wrong)
        sys.stderr.write(
            f"hivenet-sim: cannot listen on {options.host}:{options.port}: {reason}. "
            "Choose another address with --listen, or port 0 for any free one.\n"
        )
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The arguments and their help."""
    parser = argparse.ArgumentParser(
        prog="hivenet-sim",
        description="Simulated inference engine: OpenAI and Anthropic endpoints, vLLM metrics, faults on command.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    # An option whose default is shown by its own words.
    parser.set_defaults(model=None)
    add = parser.add_argument
    add("--listen", default="127.0.0.1:8888", metavar="HOST:PORT", help="where to listen; port 0 takes a free one")
    words = "a model to serve; repeat for more (default: sim-model)"
    add("--model", action="append", default=argparse.SUPPRESS, metavar="NAME", help=words)
    _add_speed(parser)
    _add_behaviour(parser)
    return parser


def _add_speed(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--decode-tokens-per-s", type=float, default=50.0, metavar="N", help="writing, per request; 0: no limit")
    add("--prefill-tokens-per-s", type=float, default=10_000.0, metavar="N", help="reading prompts; 0: no limit")
    add("--output-tokens", default="64", metavar="N|LOW-HIGH", help="length of answers, unless max_tokens is less")
    add("--first-token-delay-ms", type=float, default=0.0, metavar="MS", help="added before each first token")
    add("--concurrency", type=int, default=DEFAULTS.concurrency, metavar="N", help="requests worked on at a time")
    add("--max-waiting", type=int, default=DEFAULTS.waiting_max, metavar="N", help="requests that may wait; then 503")
    add("--kv-cache-tokens", type=int, default=DEFAULTS.kv_cache_tokens, metavar="N", help="size of the KV cache")
    add("--max-model-len", type=int, default=0, metavar="N", help="context length; a longer request gets 400; 0: none")


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--error-rate", type=float, default=0.0, metavar="P", help="part of requests that fail, 0 to 1")
    add("--error-status", type=int, default=500, metavar="N", help="the status they fail with")
    add("--seed", type=int, default=0, metavar="N", help="makes texts, lengths and errors repeatable")
    add("--stamp-chunks", action="store_true", help="put the write time into each streamed chunk as sim_ns")
    add("--start-delay", type=float, default=0.0, metavar="S", help="seconds until the port opens, as if loading")
    add("--idle-timeout", type=float, default=0.0, metavar="S", help="close idle connections after this; 0: never")
    add("--api-key", metavar="KEY", help="ask for this key on /v1/ (Bearer or x-api-key)")
    add("--max-body-bytes", type=int, default=DEFAULTS.body_bytes_max, metavar="N", help="larger bodies get 413")
    add(
        "--keep-requests", type=int, default=DEFAULTS.requests_kept, metavar="N", help="requests kept for /sim/requests"
    )
    add("--embedding-dimensions", type=int, default=DEFAULTS.embedding_dimensions, metavar="N", help="vector length")


def options_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> SimOptions:
    """The options that the arguments say; unusable ones end the program with status 2 and a sentence."""
    try:
        host, port = _address(given.listen)
        return check(
            SimOptions(
                host=host,
                port=port,
                models=tuple(given.model or DEFAULTS.models),
                decode_tokens_per_s=given.decode_tokens_per_s,
                prefill_tokens_per_s=given.prefill_tokens_per_s,
                output_tokens=_range(given.output_tokens),
                first_token_delay_s=given.first_token_delay_ms / 1000.0,
                concurrency=given.concurrency,
                waiting_max=given.max_waiting,
                kv_cache_tokens=given.kv_cache_tokens,
                model_len_max=given.max_model_len,
                error_rate=given.error_rate,
                error_status=given.error_status,
                seed=given.seed,
                stamp_chunks=given.stamp_chunks,
                start_delay_s=given.start_delay,
                api_key=given.api_key,
                idle_timeout_s=given.idle_timeout,
                body_bytes_max=given.max_body_bytes,
                requests_kept=given.keep_requests,
                embedding_dimensions=given.embedding_dimensions,
            )
        )
    except OptionError as wrong:
        parser.error(str(wrong))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise OptionError(f"--listen {text}: must be HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _range(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    try:
        return int(low), int(high if dash else low)
    except ValueError:
        raise OptionError(f"--output-tokens {text}: must be a number, or two with a dash between") from None


async def _serve(options: SimOptions) -> None:
    own = asyncio.current_task()
    assert own is not None  # asyncio.run makes one
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, own.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with Simulator(options) as sim:
            sys.stdout.write(f"hivenet-sim listening on {sim.url}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()
