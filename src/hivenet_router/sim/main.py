"""How is the simulator run from the command line?

`hivenet-sim` reads its arguments, says on standard output where it listens, and serves until SIGINT or SIGTERM.
Invariant: what cannot be used is refused with a sentence for each mistake and exit status 2 (arguments) or 1 (address),
before anything is served. All else is `server`'s.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final, NoReturn

from hivenet_router.sim.options import OptionError, SimOptions, check
from hivenet_router.sim.server import Simulator

DEFAULTS: Final = SimOptions()
SHOWN_CHARS_MAX: Final = 60


def main(argv: Sequence[str] | None = None) -> int:
    """Run the simulator; 0 after a signal, 1 if the address cannot be had, 2 for arguments that cannot be used."""
    options = options_of(argv)
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


class _Unread(str):
    """The text of a number that is none; kept, so that reading goes on to further mistakes."""

    __slots__ = ()


class _Number:
    """Reads a number of one kind, or hands back the text as unread."""

    def __init__(self, kind: Callable[[str], float]) -> None:
        self._kind = kind

    def __call__(self, text: str) -> float | _Unread:
        try:
            return self._kind(text)
        except ValueError:
            return _Unread(text)


_WHOLE: Final = _Number(int)
_DECIMAL: Final = _Number(float)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line for each mistake, with no list of all arguments."""

    def error(self, message: str) -> NoReturn:
        self.refuse([message])

    def refuse(self, mistakes: Sequence[str]) -> NoReturn:
        """End the program with status 2."""
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        lines = [f"{self.prog} cannot start, {count}:", *(f"  {mistake}" for mistake in mistakes)]
        self.exit(2, "\n".join([*lines, f"Usage: {self.prog} [arguments]; see {self.prog} --help"]) + "\n")


def build_parser() -> _Parser:
    """The arguments and their help."""
    parser = _Parser(
        prog="hivenet-sim",
        description="Simulated inference engine: OpenAI and Anthropic endpoints, vLLM metrics, faults on command.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    # An option whose default is shown by its own words.
    parser.set_defaults(model=None)
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {_version()}", help="print the version and exit")
    add("--listen", default="127.0.0.1:8888", metavar="HOST:PORT", help="where to listen; port 0 takes a free one")
    words = "a model to serve; repeat for more (default: sim-model)"
    add("--model", action="append", default=argparse.SUPPRESS, metavar="NAME", help=words)
    _add_speed(parser)
    _add_behaviour(parser)
    return parser


def _add_speed(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--decode-tokens-per-s", type=_DECIMAL, default=50.0, metavar="N", help="writing, per request; 0: no limit")
    add("--prefill-tokens-per-s", type=_DECIMAL, default=10_000.0, metavar="N", help="reading prompts; 0: no limit")
    add("--output-tokens", default="64", metavar="N|LOW-HIGH", help="length of answers, unless max_tokens is less")
    add("--first-token-delay-ms", type=_DECIMAL, default=0.0, metavar="MS", help="added before each first token")
    add("--concurrency", type=_WHOLE, default=DEFAULTS.concurrency, metavar="N", help="requests worked on at a time")
    add(
        "--max-waiting", type=_WHOLE, default=DEFAULTS.waiting_max, metavar="N", help="requests that may wait; then 503"
    )
    add("--kv-cache-tokens", type=_WHOLE, default=DEFAULTS.kv_cache_tokens, metavar="N", help="size of the KV cache")
    add(
        "--max-model-len",
        type=_WHOLE,
        default=0,
        metavar="N",
        help="context length; a longer request gets 400; 0: none",
    )


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--error-rate", type=_DECIMAL, default=0.0, metavar="P", help="part of requests that fail, 0 to 1")
    add("--error-status", type=_WHOLE, default=500, metavar="N", help="the status they fail with")
    add("--seed", type=_WHOLE, default=0, metavar="N", help="makes texts, lengths and errors repeatable")
    add("--stamp-chunks", action="store_true", help="put the write time into each streamed chunk as sim_ns")
    add("--start-delay", type=_DECIMAL, default=0.0, metavar="S", help="seconds until the port opens, as if loading")
    add("--idle-timeout", type=_DECIMAL, default=0.0, metavar="S", help="close idle connections after this; 0: never")
    add("--api-key", metavar="KEY", help="ask for this key on /v1/ (Bearer or x-api-key)")
    add("--max-body-bytes", type=_WHOLE, default=DEFAULTS.body_bytes_max, metavar="N", help="larger bodies get 413")
    add(
        "--keep-requests",
        type=_WHOLE,
        default=DEFAULTS.requests_kept,
        metavar="N",
        help="requests kept for /sim/requests",
    )
    add("--embedding-dimensions", type=_WHOLE, default=DEFAULTS.embedding_dimensions, metavar="N", help="vector length")


def options_of(argv: Sequence[str] | None) -> SimOptions:
    """The options that the arguments say; unusable ones end the program with status 2 and all mistakes."""
    parser = build_parser()
    given, unknown = parser.parse_known_args(argv)
    mistakes = _unknown(unknown)
    for name, value in vars(given).items():
        if isinstance(value, _Unread):
            shown = value if len(value) <= SHOWN_CHARS_MAX else f"{value[:SHOWN_CHARS_MAX]}…"
            mistakes.append(f"--{name.replace('_', '-')} {shown}: must be a number")
            # A value that passes, so that one slip is told once.
            setattr(given, name, parser.get_default(name))
    host, port, output_tokens = DEFAULTS.host, DEFAULTS.port, DEFAULTS.output_tokens
    try:
        host, port = _address(given.listen)
    except OptionError as wrong:
        mistakes += wrong.mistakes
    try:
        output_tokens = _range(given.output_tokens)
    except OptionError as wrong:
        mistakes += wrong.mistakes
    options = _options(given, host, port, output_tokens)
    try:
        check(options)
    except OptionError as wrong:
        mistakes += wrong.mistakes
    if mistakes:
        parser.refuse(mistakes)
    return options


def _options(given: argparse.Namespace, host: str, port: int, output_tokens: tuple[int, int]) -> SimOptions:
    return SimOptions(
        host=host,
        port=port,
        models=tuple(given.model or DEFAULTS.models),
        decode_tokens_per_s=given.decode_tokens_per_s,
        prefill_tokens_per_s=given.prefill_tokens_per_s,
        output_tokens=output_tokens,
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


def _unknown(arguments: Sequence[str]) -> list[str]:
    """What is wrong with arguments nobody asked for; a text behind an unknown flag may be a key and is not shown."""
    flags = [argument.partition("=")[0] for argument in arguments if argument.startswith("-")]
    if arguments and not flags:
        return ["an argument belongs to no flag; this program takes flags only"]
    return [f"{flag}: is not a flag of hivenet-sim" for flag in flags]


def _version() -> str:
    try:
        return metadata.version("hivenet-router")
    except metadata.PackageNotFoundError:
        return "dev"


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
