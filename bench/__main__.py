"""`python -m bench`: measure, print the tables, and write `bench/result.json` (figures: `bench/figures.json`).

Leaves nothing running, however it ends. Exit code 0 when all was measured, 1 with a sentence when it could not be, 130
after Ctrl-C.
"""

import argparse
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from bench import gates, report, work
from bench.cases import CASES, chosen
from bench.figures.run import ALL, FIGURES, chosen_figures, run_figures
from bench.peers import PEERS
from bench.programs import PORTS, Trouble
from bench.rounds import Failed, run_rounds
from bench.targets import Name, Tools

_HERE = Path(__file__).parent
_EXAMPLES = _HERE.parent / "target" / "release" / "examples"


def main() -> int:
    """Run; the exit code."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _allow_many_files()
    try:
        if given.work:
            _work(given)
        elif given.figures:
            _figures(given)
        else:
            _cases(given)
    except (Trouble, ValueError) as trouble:
        sys.stderr.write(f"bench: {trouble}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("bench: stopped.\n")
        return 130
    return 0


class _Given(argparse.Namespace):
    rounds: int
    seconds: float
    cases: str
    all: bool
    figures: str
    work: bool
    original: str
    examples: str
    ports: str
    json: str


def _cases(given: _Given) -> None:
    cases = chosen(given.cases, everything=given.all)
    tools = _find_tools(given)
    failed = Failed()
    samples = run_rounds(cases, tools, given.rounds, given.seconds, failed)
    parts = [
        f"{given.rounds} rounds of {given.seconds:g} s, {_machine()}; medians.",
        report.left_out(tools.peers, failed.reasons),
        report.as_markdown(cases, samples),
        gates.as_markdown(cases, samples),
    ]
    result = {"cases": report.as_json(cases, samples), "gates": gates.as_json(cases, samples)}
    _tell(parts, {**result, "left_out": failed.reasons}, given.json or str(_HERE / "result.json"))


def _figures(given: _Given) -> None:
    names = chosen_figures(given.figures)
    tools = _find_tools(given)
    failed = Failed()
    found = run_figures(names, tools, given.rounds, given.seconds, failed)
    parts = [
        f"{given.rounds} rounds of {given.seconds:g} s, {_machine()}; medians.",
        report.left_out(tools.peers, failed.reasons),
        *(figure.as_markdown() for figures in found.values() for figure in figures),
    ]
    result = {name: [figure.as_json() for figure in figures] for name, figures in found.items()}
    _tell(parts, {"figures": result, "left_out": failed.reasons}, given.json or str(_HERE / "figures.json"))


def _work(given: _Given) -> None:
    found = work.measured(work.ports())
    result = {"work": [held._asdict() for held in found]}
    _tell([work.as_markdown(found)], result, given.json or str(_HERE / "work.json"))


def _tell(parts: list[str], result: Mapping[str, object], path: str) -> None:
    sys.stdout.write("\n" + "\n\n".join(part for part in parts if part) + "\n")
    Path(path).write_text(json.dumps({"machine": _machine(), **result}, indent=1) + "\n")


def _machine() -> str:
    return f"{os.cpu_count()} CPUs"


def _arguments() -> _Given:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure what the way through a router costs: the engine itself, our router, and others beside it. "
        "With --figures, measure what is seldom published instead. Prints Markdown and writes JSON.",
        epilog="docs/performance.md says how to read the result, and how to make the peers' environments.",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured (3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each time (4)")
    parser.add_argument("--cases", default="", help=f"comma-separated: {', '.join(case.name for case in CASES)}")
    parser.add_argument("--all", action="store_true", help="the optional cases too")
    parser.add_argument(
        "--figures",
        nargs="?",
        const=ALL,
        default="",
        metavar="NAMES",
        help=f"figures instead of cases, all or comma-separated: {', '.join(FIGURES)}",
    )
    parser.add_argument(
        "--work",
        action="store_true",
        help="measure for each port what the most expensive input within its bounds costs, instead of cases",
    )
    parser.add_argument(
        "--original",
        default=os.environ.get("ORIGINAL_DIR", ""),
        help="folder with the original's programs, router and agent (ORIGINAL_DIR); without it they are left out",
    )
    for program, variable in {peer.program: peer.variable for peer in PEERS}.items():
        parser.add_argument(
            f"--{program}",
            default=os.environ.get(variable, ""),
            metavar="ENV",
            help=f"Python environment with {program} ({variable}); without it that is left out",
        )
    parser.add_argument("--examples", default=str(_EXAMPLES), help="folder with bench_engine, bench_load, bench_delay")
    parser.add_argument(
        "--ports",
        default=f"{PORTS.start}-{PORTS.stop - 1}",
        metavar="FIRST-LAST",
        help=f"ports of 127.0.0.1 to choose from ({PORTS.start}-{PORTS.stop - 1})",
    )
    parser.add_argument("--json", default="", help="where to write all figures (bench/result.json, bench/figures.json)")
    given = parser.parse_args(namespace=_Given())
    if given.rounds < 1 or given.seconds <= 0:
        parser.error("--rounds must be at least 1 and --seconds more than 0")
    if (given.figures or given.work) and (given.cases or given.all or (given.figures and given.work)):
        parser.error("--figures and --work each measure something else instead of cases: give one of them alone")
    return given


def _find_tools(given: _Given) -> Tools:
    """Where all programs are.

    Raises: Trouble when one is missing, ValueError when the ports are none.
    """
    installed = Path(sys.executable).parent
    built = Path(given.examples).resolve()
    tools = Tools(
        engine=built / "bench_engine",
        load=built / "bench_load",
        delay=built / "bench_delay",
        router=installed / "hivenet-router",
        agent=installed / "hivenet-agent",
        original=Path(given.original).resolve() if given.original else None,
        peers=_environments(given),
        ports=_ports(given.ports),
    )
    examples, ours = "cargo build --release -p plane-core --examples", "maturin develop --release"
    needed = [(path, examples) for path in (tools.engine, tools.load, tools.delay)]
    needed += [(path, ours) for path in (tools.router, tools.agent)]
    if tools.original is not None:
        needed += [(tools.original / name, "building the original") for name in ("router", "agent")]
    for path, how in needed:
        if not path.is_file():
            raise Trouble(f"{path} is missing; it comes from: {how}")
    return tools


def _environments(given: _Given) -> dict[Name, Path]:
    """Where the peers are that shall be measured.

    Raises: Trouble for a folder that is no Python environment.
    """
    found: dict[Name, Path] = {}
    options: dict[str, object] = vars(given)
    for peer in PEERS:
        if not (folder := options[peer.program.replace("-", "_")]):
            continue
        environment = Path(str(folder)).absolute()
        if not (environment / "bin" / "python").exists():
            raise Trouble(f"{environment} is no Python environment ({peer.variable})")
        found[peer.name] = environment
    return found


def _ports(text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) < 65536):
        raise ValueError(f"--ports is FIRST-LAST, such as {PORTS.start}-{PORTS.stop - 1}, and not {text!r}")
    return range(int(first), int(last) + 1)


def _allow_many_files() -> None:
    """Let the programs open as many connections as this user may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
