"""Runs `kinograph` on hostile files, and measures what they cost.

A case builds a source (or a dataset) in a fresh folder and lists the acceptable exit codes. The rules are the same
for every case: no signal, no panic, no traceback, no hang, and at most `SLACK` of memory over the command's budget.

    python tests/hostile/run.py                 every case, as a table
    python tests/hostile/run.py hdf5 -k chunk   the cases of one area whose name contains `chunk`

The same cases run under pytest (tests/python/test_hostile.py), which checks everything except the CPU time.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MIB = 1 << 20
#: Memory that a command may use beyond its budget, on top of what Python and the library need to start.
SLACK = 256 * MIB
#: The budget that cases pass as `--memory`, in MiB.
BUDGET_MIB = 64
#: A command that runs longer is considered hung. Generous: other programs may be using the machine.
HANG_S = 120.0
#: The CPU time allowed for a case (checked only by run.py): a constant, plus a rate per byte of source.
CPU_START_S = 5.0
CPU_S_PER_MIB = 0.25
#: The system refuses more address space than this, so that a bug cannot take the machine down.
ADDRESS_SPACE = 20 << 30

#: Packs the source that a case has built.
PACK = ("pack", "{src}", "{out}", "--memory", f"{BUDGET_MIB}MB")


@dataclass(frozen=True)
class Case:
    """One attack."""

    area: str
    name: str
    #: Builds the source inside the folder and returns its path.
    build: Callable[[Path], Path]
    #: Commands to run one after the other; `{src}` is what `build` returned, `{out}` a path that does not exist. One that
    #: starts with `python` is a program instead of `kinograph`.
    commands: tuple[tuple[str, ...], ...] = (PACK,)
    #: Acceptable exit codes of the last command: 0 done, 1 refused, 2 wrong usage, 3 done but something was lost.
    codes: tuple[int, ...] = (1,)
    #: What the last command must print (on stdout or stderr).
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
    """Registers a case; for families of cases created in a loop."""
    if any((known.area, known.name) == (case.area, case.name) for known in CASES):
        raise ValueError(f"two cases are called {case.area}/{case.name}")
    CASES.append(case)


def kinograph() -> str:
    """The command under test: the one in this Python's environment."""
    found = Path(sys.executable).with_name("kinograph")
    return str(found) if found.exists() else shutil.which("kinograph") or "kinograph"


@cache
def _spawner() -> subprocess.Popen[str]:
    path = str(Path(__file__).with_name("spawner.py"))
    process = subprocess.Popen(
        [sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(_close, process)
    return process


def _close(process: subprocess.Popen[str]) -> None:
    with process:
        pass


def run(arguments: list[str]) -> Outcome:
    """Runs the command, or a Python program if the first argument is `python`, and measures it."""
    program = [sys.executable] if arguments[0] == "python" else [kinograph(), arguments[0]]
    spawner = _spawner()
    assert spawner.stdin is not None
    assert spawner.stdout is not None
    spawner.stdin.write(json.dumps([[*program, *arguments[1:]], HANG_S, ADDRESS_SPACE]) + "\n")
    spawner.stdin.flush()
    return Outcome(**json.loads(spawner.stdout.readline()))


@cache
def base_bytes() -> int:
    """Memory that the command needs to start."""
    return run(["--version"]).peak_bytes


def attack(case: Case, folder: Path) -> tuple[Outcome, list[str]]:
    """Runs a case and returns the outcome of its most expensive command, and what was wrong."""
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
    """What a command must never do."""
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
    """Bytes on disk; few for a sparse file."""
    files = (
        [path]
        if path.is_file()
        else [found for found in path.rglob("*") if found.is_file() and not found.is_symlink()]
    )
    return sum(found.stat().st_blocks * 512 for found in files)


def cpu_limit_s(bytes_read: int) -> float:
    """The CPU time allowed for a source of this many bytes."""
    return CPU_START_S + CPU_S_PER_MIB * bytes_read / MIB
