"""How are programs started, watched and ended, and what do they use?

Invariant: every program started through `Programs` has ended when its `with` block is left, however it is left.
CPU time and memory are read from `/proc`, so this runs on Linux.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

START_WITHIN_S: Final = 30.0
STOP_WITHIN_S: Final = 10.0
PORTS: Final = range(20000, 32000)
"""Below what the kernel hands out for outgoing connections, so that none of those takes a port first."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Trouble(Exception):
    """The run cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """One running program, with its output in a file."""

    name: str
    output: Path
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """Seconds of CPU time it has used, its own and the kernel's for it, all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / _TICKS_PER_S

    def rss_kib(self) -> int:
        """KiB of memory it holds."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def said(self) -> str:
        """Its output so far."""
        return self.output.read_text(errors="replace")

    def check(self) -> None:
        """Raises: Trouble when it has ended."""
        if self.process.poll() is not None:
            raise Trouble(f"the {self.name} ended with exit code {self.process.returncode}; {self.last_words()}")

    def last_words(self) -> str:
        """The end of its output, for a person."""
        tail = "\n".join(f"    {line[:300]}" for line in self.said().splitlines()[-8:])
        return f"its last words:\n{tail}"


def rss_mib(programs: Sequence[Program]) -> float:
    """MiB of memory that these hold together."""
    return sum(program.rss_kib() for program in programs) / 1024


def machine_cpu_s() -> float:
    """Seconds of CPU time that all programs of this machine have used."""
    user, nice, system, _idle, _io_wait, irq, soft_irq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft_irq + steal) / _TICKS_PER_S


class Programs:
    """All that one part of the run has started."""

    def __init__(self, folder: Path, ports: range = PORTS) -> None:
        self.folder = folder
        self._all_ports = ports
        self._started: list[Program] = []
        self._ports: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A second Ctrl-C must not leave programs running; stopping takes STOP_WITHIN_S at most.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Program:
        """Start one, in its own folder and away from this terminal's Ctrl-C.

        Raises: Trouble when it cannot be started.
        """
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        output = folder / "output.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("HIVENET_", "GOLOG_"))}
        with output.open("wb") as to:
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=folder,
                    env={**clean, **(env or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=to,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise Trouble(f"cannot start the {name}: {error}") from error
        program = Program(name, output, process)
        self._started.append(program)
        return program

    def wait(self, what: str, done: Callable[[], bool], program: Program, within_s: float = START_WITHIN_S) -> None:
        """Return when `done()`.

        Raises: Trouble when that takes too long or a program ends meanwhile.
        """
        deadline_s = time.monotonic() + within_s
        while not done():
            for started in self._started:
                started.check()
            if time.monotonic() > deadline_s:
                raise Trouble(f"not within {within_s:.0f} s: {what}; the {program.name}: {program.last_words()}")
            time.sleep(0.05)

    def free_port(self) -> int:
        """A port of 127.0.0.1 that nobody has, and that this has not given out.

        Raises: Trouble when none is found.
        """
        for port in random.sample(self._all_ports, min(200, len(self._all_ports))):
            if port in self._ports:
                continue
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            self._ports.add(port)
            return port
        raise Trouble(f"no free port of 127.0.0.1 found in {self._all_ports}")

    def stop(self) -> None:
        """End all, the last one first: ask, wait, and make those that stay."""
        _end(self._started)
        self._started.clear()

    def drop(self, program: Program) -> None:
        """End one, and watch it no longer."""
        _end([program])
        self._started.remove(program)

    def kill(self, program: Program) -> None:
        """End one as a crash would, and watch it no longer."""
        program.process.kill()
        program.process.wait()
        self._started.remove(program)


def _end(programs: Sequence[Program]) -> None:
    for program in reversed(programs):
        if program.process.poll() is None:
            program.process.send_signal(signal.SIGTERM)
    deadline_s = time.monotonic() + STOP_WITHIN_S
    for program in reversed(programs):
        try:
            program.process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            program.process.kill()
            program.process.wait()
