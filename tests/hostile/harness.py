"""Runs `kinograph` on files made to hurt it, and measures what they cost.

A case builds a source (or a dataset) in a fresh folder and says which exit codes are right. The rules are the same
for every case: no signal, no panic, no traceback, no hang, and at most `SLACK` of memory over the budget of the command.

    python tests/hostile/run.py                 every case, as a table
    python tests/hostile/run.py hdf5 -k chunk   the cases of one area whose name has `chunk`

The same cases run under pytest (tests/python/test_hostile.py), which checks everything but the CPU time.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MIB = 1 << 20
#: Memory over the budget that a command may take, beside what Python and the library take to start.
SLACK = 256 * MIB
#: The budget that cases pass as `--memory`, in MiB.
BUDGET_MIB = 64
#: A command that runs longer hangs. Generous: other programs may be using the machine.
HANG_S = 120.0
#: The CPU time that a case may take (checked by run.py alone): a start, and a rate per byte of source.
CPU_START_S = 5.0
CPU_S_PER_MIB = 0.25
#: More address space than this is refused by the system, so that a bug cannot take the machine down.
ADDRESS_SPACE = 20 << 30

#: Packs the source that a case has built.
PACK = ("pack", "{src}", "{out}", "--memory", str(BUDGET_MIB))


@dataclass(frozen=True)
class Case:
    """One attack."""

    area: str
    name: str
    #: Makes the source inside the folder and returns its path.
    build: Callable[[Path], Path]
    #: Commands to run one after the other; `{src}` is what `build` returned, `{out}` a path that does not exist. One that
    #: starts with `python` is a program instead of `kinograph`.
    commands: tuple[tuple[str, ...], ...] = (PACK,)
    #: Exit codes that are right for the last command: 0 done, 1 refused, 2 wrong usage, 3 done but something was lost.
    codes: tuple[int, ...] = (1,)
    #: What the last command must say (on stdout or stderr).
    says: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    output: str
    peak_bytes: int
    cpu_s: float
    hung: bool


CASES: list[Case] = []


def case(
    area: str,
    *,
    commands: tuple[tuple[str, ...], ...] = (PACK,),
    codes: tuple[int, ...] = (1,),
    says: str = "",
) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Registers the decorated builder as a case named after it."""

    def register(build: Callable[[Path], Path]) -> Callable[[Path], Path]:
        add(Case(area, build.__name__, build, commands, codes, says))
        return build

    return register


def add(case: Case) -> None:
    """Registers a case; for families of cases made in a loop."""
    if any((known.area, known.name) == (case.area, case.name) for known in CASES):
        raise ValueError(f"two cases are called {case.area}/{case.name}")
    CASES.append(case)


def kinograph() -> str:
    """The command under test: that of this Python's environment."""
    found = Path(sys.executable).with_name("kinograph")
    return str(found) if found.exists() else shutil.which("kinograph") or "kinograph"


def run(arguments: list[str]) -> Outcome:
    """Runs the command, or a Python program if the first argument is `python`, and measures it."""
    program = [sys.executable] if arguments[0] == "python" else [kinograph(), arguments[0]]
    process = subprocess.Popen(
        [*program, *arguments[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    hung = threading.Event()

    def stop() -> None:
        hung.set()
        process.kill()

    timer = threading.Timer(HANG_S, stop)
    timer.start()
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    text = output.decode(errors="replace")
    return Outcome(
        process.returncode,
        text,
        usage.ru_maxrss * 1024,
        usage.ru_utime + usage.ru_stime,
        hung.is_set(),
    )


@cache
def base_bytes() -> int:
    """What the command takes to start."""
    return run(["--version"]).peak_bytes


def attack(case: Case, folder: Path) -> tuple[Outcome, list[str]]:
    """Runs a case and returns the outcome of its costliest command, and what was wrong."""
    source = case.build(folder)
    outcomes = []
    for command in case.commands:
        outcomes.append(run([part.format(src=source, out=folder / "out.kino") for part in command]))
    wrong = [problem for outcome in outcomes for problem in problems(outcome)]
    last = outcomes[-1]
    if last.code not in case.codes:
        wrong.append(f"exit code {last.code}, expected one of {case.codes}: {last.output[-800:]}")
    elif case.says not in last.output:
        wrong.append(f"does not say {case.says!r}: {last.output[-800:]}")
    return max(outcomes, key=lambda outcome: outcome.peak_bytes), wrong


def problems(outcome: Outcome) -> Iterator[str]:
    """What no command may ever do."""
    if outcome.hung:
        yield f"still running after {HANG_S:.0f} s"
    elif outcome.code < 0:
        yield f"killed by signal {-outcome.code}"
    for word in ("panicked at", "Traceback (most recent call last)"):
        if word in outcome.output:
            yield f"{word}: {outcome.output[-800:]}"
    over = outcome.peak_bytes - base_bytes() - BUDGET_MIB * MIB
    if over > SLACK:
        yield f"{over / MIB:.0f} MiB over its budget of {BUDGET_MIB} MiB"
    if "\x1b" in outcome.output:
        yield "prints an escape character"


def size(path: Path) -> int:
    """Bytes on disk, which a sparse file has few of."""
    files = (
        [path]
        if path.is_file()
        else [found for found in path.rglob("*") if found.is_file() and not found.is_symlink()]
    )
    return sum(found.stat().st_blocks * 512 for found in files)


def cpu_limit_s(bytes_read: int) -> float:
    """The CPU time that a source of so many bytes may take."""
    return CPU_START_S + CPU_S_PER_MIB * bytes_read / MIB
