"""Does the program start, say where it listens, and stop as it should?"""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from hivenet_router.sim import Simulator
from hivenet_router.sim.faults import WORDS
from hivenet_router.sim.main import DEFAULTS, build_parser, main, options_of
from hivenet_router.sim.options import OptionError, SimOptions, check

RUN = "import sys; from hivenet_router.sim.main import main; sys.exit(main(sys.argv[1:]))"
DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"


def options(*argv: str) -> SimOptions:
    return options_of(argv)


def test_the_defaults_of_the_command_line_are_those_of_the_options() -> None:
    assert options("--listen", "127.0.0.1:0") == DEFAULTS


def test_arguments_become_options() -> None:
    read = options(
        *("--listen", "[::1]:8000", "--model", "a", "--model", "b", "--output-tokens", "10-20"),
        *("--first-token-delay-ms", "250", "--stamp-chunks", "--api-key", "k", "--start-delay", "2"),
    )
    assert (read.host, read.port, read.models, read.output_tokens) == ("::1", 8000, ("a", "b"), (10, 20))
    assert (read.first_token_delay_s, read.stamp_chunks, read.api_key, read.start_delay_s) == (0.25, True, "k", 2.0)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--listen", "8888"], "--listen 8888: must be HOST:PORT"),
        (["--output-tokens", "many"], "--output-tokens many"),
        (["--output-tokens", "9-3"], "the smaller number first"),
        (["--error-rate", "2"], "--error-rate 2.0: must be 0 to 1"),
        (["--decode-tokens-per-s", "nan"], "--decode-tokens-per-s nan: must be 0 or more"),
        (["--prefill-tokens-per-s", "inf"], "--prefill-tokens-per-s inf: must be 0 or more, and less than 1e+09"),
        (["--first-token-delay-ms", "-5"], "--first-token-delay-ms -5: must be 0 or more"),
        (["--output-tokens", "1000001"], "--output-tokens 1000001-1000001: must be 1 to 1000000"),
        (["--max-waiting", "-1"], "--max-waiting -1: must be 0 or more"),
        (["--listen", "127.0.0.1:65536"], "--listen: port 65536 must be 0 to 65535"),
        (["--seed", "9" * 5000], f"--seed {'9' * 60}…: must be a number"),
        (["--model", ""], "none of them empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_in_words(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_all_mistakes_are_told_at_once_with_one_line_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--listen", "8888", "--concurrency", "x", "--error-rate", "2", "--output-tokens", "-", "--api-kye", "hush"]
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "hivenet-sim cannot start, 5 mistakes:",
        "  --api-kye: is not a flag of hivenet-sim",
        "  --concurrency x: must be a number",
        "  --listen 8888: must be HOST:PORT",
        "  --output-tokens -: must be a number, or two with a dash between",
        "  --error-rate 2.0: must be 0 to 1",
        "Usage: hivenet-sim [arguments]; see hivenet-sim --help",
    ]


def test_a_flag_without_its_value_is_told_as_shortly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--listen"])
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_bare_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["8888"])
    assert "takes flags only" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"hivenet-sim \S+\n", capsys.readouterr().out)


def test_all_wrong_options_are_named_at_once() -> None:
    with pytest.raises(OptionError, match=r"--concurrency 0.*--error-rate 2"):
        check(SimOptions(concurrency=0, error_rate=2))


def test_every_setting_is_told_by_the_name_of_its_argument() -> None:
    wrong = SimOptions(
        port=-1,
        models=(),
        decode_tokens_per_s=-1,
        prefill_tokens_per_s=-1,
        output_tokens=(0, 0),
        first_token_delay_s=-1,
        concurrency=0,
        waiting_max=-1,
        kv_cache_tokens=0,
        model_len_max=-1,
        error_rate=-1,
        error_status=200,
        start_delay_s=-1,
        idle_timeout_s=-1,
        body_bytes_max=0,
        requests_kept=0,
        embedding_dimensions=0,
    )
    with pytest.raises(OptionError) as refused:
        check(wrong)
    told = {re.split(r"[ :]", mistake)[0] for mistake in refused.value.mistakes}
    free = {"--version", "--help", "--seed", "--stamp-chunks", "--api-key"}
    assert told == set(re.findall(r"--[a-z-]+", build_parser().format_usage())) - free


def test_the_documents_list_every_argument_and_every_word() -> None:
    text = DOCS.read_text()
    listed = set(re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE))
    words = set(re.findall(r"^\| `([a-z_]+)(?:=[^`]*)?` \|", text, re.MULTILINE))
    known = set(re.findall(r"--[a-z-]+", build_parser().format_usage()))
    assert listed == known
    assert words == set(WORDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_ends_with_0_on_a_signal(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line.startswith("hivenet-sim listening on http://127.0.0.1:")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(line.split()[-1] + "/health", timeout=5) as answer:
            assert answer.status == 200
        program.send_signal(number)
        assert program.wait(timeout=10) == 0


@pytest.mark.asyncio
async def test_leaving_during_the_start_delay_ends_it() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), Simulator(SimOptions(start_delay_s=60)):
            pytest.fail("it must not have started")


def test_a_port_in_use_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [sys.executable, "-c", RUN, "--listen", f"127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr
