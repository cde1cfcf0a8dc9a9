"""Tasks of a Ray cluster: parts of one job, started again when their workers die."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import ray as _ray

from kinograph import _core
from kinograph._arguments import to_whole
from kinograph._errors import KinographError, StorageError

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: Tasks per worker, so that the last ones do not wait for one that got more.
_TASKS_PER_WORKER = 8

#: How often progress is looked up, in seconds.
_LOOK_EVERY_S = 1.0


class Work(NamedTuple):
    """What is done in tasks: each is called where it runs, and opens everything anew."""

    #: How many portions there are.
    portions: Callable[[], int]
    #: Does a part, such as ``"3/64"``.
    part: Callable[[str], object]
    #: What is finished, and in all; ``None`` before the first part has begun. Otherwise parts are counted.
    look: Callable[[], tuple[int, int] | None] | None = None


class How(NamedTuple):
    """How tasks are started: the arguments that all functions here have."""

    address: str | None
    tasks: int | None
    cpus: int
    max_retries: int
    progress: Callable[[int, int], object] | None


def run_parts(work: Work, commit: Callable[[], _T], how: How) -> _T:
    """Do all parts, and make them one."""
    with cluster(how.address):
        distribute(in_folder(work), how)
        return call(here(commit), how.cpus)


def here(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Make a function that gives relative paths on a node the meaning that they have in this folder."""
    folder = pathlib.Path.cwd()

    def call(*args: _P.args, **keywords: _P.kwargs) -> _T:
        if folder.is_dir():
            os.chdir(folder)
        return function(*args, **keywords)

    return call


def in_folder(work: Work) -> Work:
    """Do the same with relative paths as here."""
    look = work.look
    return Work(here(work.portions), here(work.part), None if look is None else here(look))


def count_shards(dataset: str | os.PathLike[str]) -> int:
    return int(json.loads(run(["info", os.fspath(dataset), "--json"]))["shards"])


@contextlib.contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Connect to the cluster, unless that has been done."""
    if _ray.is_initialized():
        yield
        return
    local = address in (None, "local")
    _ray.init(address="local" if local else address, log_to_driver=False, configure_logging=False)
    try:
        yield
    finally:
        _ray.shutdown()


def call(function: Callable[[], _T], cpus: int) -> _T:
    """Call a function on some node, which sees the recording and the target even if this machine does not."""
    task = _ray.remote(num_cpus=cpus, max_retries=20)(function)
    try:
        result: _T = _ray.get(task.remote())
    except _ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    return result


def distribute(work: Work, how: How) -> list[Any]:
    """Do all parts, in tasks that are started again when their workers die; return their results in order."""
    cpus, tasks, progress = how.cpus, how.tasks, how.progress
    portions = call(work.portions, cpus)
    workers = max(1, int(_ray.cluster_resources().get("CPU", 1)) // cpus)
    wanted = _TASKS_PER_WORKER * workers if tasks is None else to_whole("tasks", tasks, least=1)
    parts = max(1, min(portions, wanted))
    # Retries are counted here, so that an error that would come again ends the pack at once.
    remote = _ray.remote(num_cpus=cpus, max_retries=0)(work.part)

    def start(part: str) -> object:
        return remote.options(name=f"part {part}").remote(part)

    running = {start(part): part for part in _names(parts)}
    retries = dict.fromkeys(running.values(), 0)
    results: dict[str, Any] = {}
    looked = 0.0
    while running:
        done, _ = _ray.wait(list(running), num_returns=1, timeout=_LOOK_EVERY_S)
        for task in done:
            part = running.pop(task)
            error = _error(task)
            if error is None:
                results[part] = _ray.get(task)
                continue
            retries[part] += 1
            if retries[part] > how.max_retries or not _is_worth_retrying(error):
                for left in running:
                    _ray.cancel(left, force=True)
                raise error
            running[start(part)] = part
        if progress is not None and (not running or time.monotonic() - looked > _LOOK_EVERY_S):
            looked = time.monotonic()
            now = (len(results), parts) if work.look is None else call(work.look, 0)
            if now is not None:
                progress(*now)
    return [results[part] for part in _names(parts)]


def _names(parts: int) -> list[str]:
    return [f"{part}/{parts}" for part in range(1, parts + 1)]


def _error(task: object) -> BaseException | None:
    """Return what ended a task, if it was not its own end."""
    try:
        _ray.get(task)
    except _ray.exceptions.RayTaskError as error:
        return _cause(error)
    except _ray.exceptions.RayError as error:
        died: BaseException = error
        return died
    return None


def _cause(error: BaseException) -> BaseException:
    """Return the exception that a task raised."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, KinographError) else error


def _is_worth_retrying(error: BaseException) -> bool:
    """Tell a worker that died, or a file that could not be read, from an error that would come again."""
    if isinstance(error, CommandError):
        # Killed by a signal: exit codes of the command itself are not negative.
        return error.status < 0
    return isinstance(error, _ray.exceptions.RayError | StorageError) and not isinstance(
        error, _ray.exceptions.RayTaskError
    )


class CommandError(KinographError):
    """A command that failed on some node; its text is what it printed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text


def run(arguments: Sequence[str]) -> str:
    """Run the command and return what it prints; losses that the user allowed are not a failure."""
    status, out, err = try_run(arguments)
    if status not in (0, 3):
        text = err.strip().removeprefix("error: ") or f"the command ended with status {status}"
        raise CommandError(status, text)
    return out


def try_run(arguments: Sequence[str]) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "kinograph", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def look(target: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        found = _core.portions_done(target)
    except KinographError:
        # Nothing is there before the first part has begun.
        return None
    return None if found is None else found[1]
