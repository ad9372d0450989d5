"""`python -m bench`: measure, print the tables, and write `bench/result.json`.

Leaves nothing running, however it ends. Exit code 0 when all was measured, 1 with a sentence when it could not be, 130
after Ctrl-C.
"""

import argparse
import json
import os
import resource
import signal
import sys
from pathlib import Path

from bench import gates, report
from bench.cases import CASES, chosen
from bench.programs import Trouble
from bench.rounds import run_rounds
from bench.targets import Tools

_HERE = Path(__file__).parent
_EXAMPLES = _HERE.parent / "target" / "release" / "examples"


def main() -> int:
    """Run; the exit code."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _allow_many_files()
    try:
        cases = chosen(given.cases, everything=given.all)
        tools = _find_tools(given.original, given.examples)
        samples = run_rounds(cases, tools, given.rounds, given.seconds)
    except (Trouble, ValueError) as trouble:
        sys.stderr.write(f"bench: {trouble}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("bench: stopped.\n")
        return 130
    words = f"{given.rounds} rounds of {given.seconds:g} s, {os.cpu_count()} CPUs; medians."
    sys.stdout.write(f"\n{words}\n\n{report.as_markdown(cases, samples)}\n\n{gates.as_markdown(cases, samples)}\n")
    Path(given.json).write_text(json.dumps(report.as_json(cases, samples), indent=1) + "\n")
    return 0


class _Given(argparse.Namespace):
    rounds: int
    seconds: float
    cases: str
    all: bool
    original: str
    examples: str
    json: str


def _arguments() -> _Given:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure direct, ours and the original.")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured (3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each time (4)")
    parser.add_argument("--cases", default="", help=f"comma-separated: {', '.join(case.name for case in CASES)}")
    parser.add_argument("--all", action="store_true", help="the optional cases too")
    parser.add_argument(
        "--original",
        default=os.environ.get("ORIGINAL_DIR", ""),
        help="folder with the original's programs, router and agent (ORIGINAL_DIR); without it they are left out",
    )
    parser.add_argument("--examples", default=str(_EXAMPLES), help="folder with bench_engine and bench_load")
    parser.add_argument("--json", default=str(_HERE / "result.json"), help="where to write all figures")
    given = parser.parse_args(namespace=_Given())
    if given.rounds < 1 or given.seconds <= 0:
        parser.error("--rounds must be at least 1 and --seconds more than 0")
    return given


def _find_tools(original: str, examples: str) -> Tools:
    """Where all programs are.

    Raises: Trouble when one is missing.
    """
    installed = Path(sys.executable).parent
    built = Path(examples).resolve()
    tools = Tools(
        engine=built / "bench_engine",
        load=built / "bench_load",
        router=installed / "hivenet-router",
        agent=installed / "hivenet-agent",
        original=Path(original).resolve() if original else None,
    )
    needed = [
        (tools.engine, "cargo build --release -p plane-core --examples"),
        (tools.load, "cargo build --release -p plane-core --examples"),
        (tools.router, "maturin develop --release"),
        (tools.agent, "maturin develop --release"),
    ]
    if tools.original is not None:
        needed += [(tools.original / name, "building the original") for name in ("router", "agent")]
    for path, how in needed:
        if not path.is_file():
            raise Trouble(f"{path} is missing; it comes from: {how}")
    return tools


def _allow_many_files() -> None:
    """Let the programs open as many connections as this user may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
