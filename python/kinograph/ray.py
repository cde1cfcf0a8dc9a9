"""Packing recordings on a Ray cluster.

>>> import kinograph.ray  # doctest: +SKIP
>>> kinograph.ray.pack("/data/kitchen", "/data/kitchen.kino", address="auto")  # doctest: +SKIP

A recording is cut into portions, and each Ray task packs some of them (:func:`kinograph.pack_part`): it opens the recording
where it runs, writes shards and receipts to the target, and returns nothing but a count. So frames never pass through Ray's
object store, a task that dies can be started anywhere, and a task that is started twice does no harm. One last task commits
(:func:`kinograph.commit_parts`). The version is the one that :func:`kinograph.pack` makes on one machine, bit for bit.

Every node must see the recording and the target under the same path, and have the same version of Kinograph. ``ray`` is
imported here only: ``pip install 'kinograph[ray]'``.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import ray as _ray

from kinograph import _core
from kinograph._arguments import to_whole
from kinograph._defects import Packed
from kinograph._errors import InvalidArgumentError, KinographError, StorageError
from kinograph._pack_options import PackOptions, to_pack_args
from kinograph._pack_parts import commit_parts, pack_part

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["pack"]

_T = TypeVar("_T")

#: Tasks per worker, so that the last ones do not wait for one that got more.
_TASKS_PER_WORKER = 8

#: How often progress is looked up, in seconds.
_LOOK_EVERY_S = 1.0


class _Work(NamedTuple):
    """What is done in tasks: each is called where it runs, and opens everything anew."""

    #: How many portions there are.
    portions: Callable[[], int]
    #: Packs a part, such as ``"3/64"``.
    part: Callable[[str], object]
    #: Bytes that are finished, and in all; ``None`` before the first part has begun.
    look: Callable[[], tuple[int, int] | None]


def pack(  # noqa: PLR0913 (each is a keyword of its own)
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    address: str | None = "auto",
    tasks: int | None = None,
    cpus: int = 1,
    max_retries: int = 20,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[PackOptions],
) -> Packed:
    """Pack a recording into a new dataset with the workers of a Ray cluster.

    :param address: the cluster: ``"auto"`` for the one that this machine belongs to, ``"local"`` or ``None`` for the cores of
        this machine, or an address such as ``"ray://head:10001"``. If Ray is initialized already, that cluster is used.
    :param tasks: into how many tasks to divide the work; default: eight per worker, at most one per portion.
    :param cpus: CPUs of a task, which packs with as many threads, unless ``threads`` says otherwise.
    :param max_retries: how often a task is started again whose worker has died, or that could not read or write a file. Any
        other error ends the pack; what is finished stays for the next call.
    :param progress: called about once per second with the bytes of frames in finished portions, and in all.
    :param options: those of :func:`kinograph.pack`.
    """
    cpus = to_whole("cpus", cpus, least=1)
    options.setdefault("threads", cpus)
    folder = pathlib.Path.cwd()

    # Paths stay as they are given, because the manifest names the recording's.
    def count() -> int:
        _enter(folder)
        return _core.count_portions(source, to_pack_args(options, "new"))

    def part(part: str) -> object:
        _enter(folder)
        return pack_part(source, target, part=part, **options).made

    def look() -> tuple[int, int] | None:
        _enter(folder)
        return _look(target)

    def commit() -> Packed:
        _enter(folder)
        return commit_parts(target)

    work = _Work(count, part, look)
    with _cluster(address):
        _distribute(work, (cpus, tasks, max_retries), progress)
        return _call(commit, cpus)


def run_command(arguments: Sequence[str], address: str) -> int:
    """Run ``kinograph … --ray ADDRESS``: every part is that command with ``--part`` on some node. Return its exit code."""
    is_json = "--json" in arguments
    arguments = [argument for argument in arguments if argument != "--json"]
    run = {"pack": _write, "repack": _write, "verify": _verify}.get(arguments[0])
    if run is None:
        raise InvalidArgumentError(f"kinograph {arguments[0]} does not take --ray")
    with _cluster(address):
        status, out, err = run(arguments, ["--json"] if is_json else [])
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


def _write(arguments: list[str], json_option: list[str]) -> tuple[int, str, str]:
    """Pack or repack, and commit."""
    folder = pathlib.Path.cwd()
    has_threads = any(argument.startswith("--threads") for argument in arguments)
    threads = [] if has_threads else ["--threads", "1"]

    def count() -> str:
        _enter(folder)
        return _run([*arguments, "--portions", "--json"])

    def part(part: str) -> object:
        _enter(folder)
        return _run([*arguments, "--part", part, *threads, "--json"])

    plan = json.loads(_call(count, 1))
    target = plan["target"]

    def look() -> tuple[int, int] | None:
        _enter(folder)
        return _look(target)

    def commit() -> tuple[int, str, str]:
        _enter(folder)
        return _try_run(["commit", target, *json_option])

    with _bar(arguments[0]) as show:
        _distribute(_Work(lambda: int(plan["portions"]), part, look), (1, None, 20), show)
    committed: tuple[int, str, str] = _call(commit, 1)
    return committed


def _verify(arguments: list[str], json_option: list[str]) -> tuple[int, str, str]:
    """Check every part of a dataset, and report together what they have found."""
    folder = pathlib.Path.cwd()

    def part(part: str) -> str:
        _enter(folder)
        status, out, err = _try_run([*arguments, "--part", part, "--json"])
        # Damage is status 1 with a report.
        if status not in (0, 1) or not out:
            raise _CommandError(status, err.strip().removeprefix("error: "))
        return out

    def shards() -> int:
        _enter(folder)
        names = (
            argument
            for argument, before in zip(arguments[1:], arguments, strict=False)
            if not argument.startswith("-") and before != "--root"
        )
        dataset = next(names)
        return int(json.loads(_run(["info", dataset, "--json"]))["shards"])

    # More parts than shards have nothing to read.
    work = _Work(shards, part, lambda: None)
    found = [json.loads(out) for out in _distribute(work, (1, None, 20), None)]
    sums = {name: sum(one[name] for one in found) for name in _COUNTED}
    lists: dict[str, list[dict[str, str]]] = {name: [] for name in _LISTED}
    for name in _LISTED:
        for place in (place for one in found for place in one[name]):
            if place not in lists[name]:
                lists[name].append(place)
    is_valid = not any(lists.values())
    if json_option:
        merged = {"valid": is_valid, **sums, **lists}
        return int(not is_valid), json.dumps(merged, indent=2) + "\n", ""
    lines = [
        _core.escape(
            f"{'damaged' if name == 'damage' else 'not checked'}: {one['place']}: {one['what']}"
        )
        for name, places in lists.items()
        for one in places
    ]
    verdict = "valid" if is_valid else f"{len(lines)} places are damaged or were not checked"
    counts = (
        f"{sums['episodes']} episodes, {_core.show_bytes(sums['bytes'])} in {sums['files']} files"
    )
    decoded = f", {sums['frames']} frames decoded" if sums["frames"] else ""
    lines.append(f"{verdict} ({counts}{decoded})")
    return int(not is_valid), "\n".join(lines) + "\n", ""


#: The counts and the lists of a report of ``kinograph verify``.
_COUNTED = ("files", "bytes", "episodes", "frames")
_LISTED = ("damage", "unreadable", "undecodable")


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[None]:
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


def _call(function: Callable[[], _T], cpus: int) -> _T:
    """Call a function on some node, which sees the recording and the target even if this machine does not."""
    task = _ray.remote(num_cpus=cpus, max_retries=20)(function)
    try:
        result: _T = _ray.get(task.remote())
    except _ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    return result


def _distribute(
    work: _Work,
    how: tuple[int, int | None, int],
    progress: Callable[[int, int], object] | None,
) -> list[Any]:
    """Do all parts, in tasks that are started again when their workers die; return their results in order."""
    cpus, tasks, max_retries = how
    portions = _call(work.portions, cpus)
    workers = max(1, int(_ray.cluster_resources().get("CPU", 1)) // cpus)
    wanted = _TASKS_PER_WORKER * workers if tasks is None else to_whole("tasks", tasks, least=1)
    parts = max(1, min(portions, wanted))
    # Retries are counted here, so that an error that would come again ends the pack at once.
    remote = _ray.remote(num_cpus=cpus, max_retries=0)(work.part)
    running = {remote.remote(text): text for text in _names(parts)}
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
            if retries[part] > max_retries or not _is_worth_retrying(error):
                for left in running:
                    _ray.cancel(left, force=True)
                raise error
            running[remote.remote(part)] = part
        if progress is not None and (not running or time.monotonic() - looked > _LOOK_EVERY_S):
            looked = time.monotonic()
            now = _call(work.look, 0)
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
    if isinstance(error, _CommandError):
        # Killed by a signal: exit codes of the command itself are not negative.
        return error.status < 0
    return isinstance(error, _ray.exceptions.RayError | StorageError) and not isinstance(
        error, _ray.exceptions.RayTaskError
    )


class _CommandError(KinographError):
    """A command that failed on some node; its text is what it printed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text


def _run(arguments: Sequence[str]) -> str:
    """Run the command and return what it prints; losses that the user allowed are no failure."""
    status, out, err = _try_run(arguments)
    if status not in (0, 3):
        text = err.strip().removeprefix("error: ") or f"the command ended with status {status}"
        raise _CommandError(status, text)
    return out


def _try_run(arguments: Sequence[str]) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "kinograph", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def _enter(folder: pathlib.Path) -> None:
    """Give relative paths on a node the meaning that they had where the pack was started."""
    if folder.is_dir():
        os.chdir(folder)


def _look(target: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        found = _core.portions_done(target)
    except KinographError:
        # Nothing is there before the first part has begun.
        return None
    return None if found is None else found[1]


@contextlib.contextmanager
def _bar(verb: str) -> Iterator[Callable[[int, int], object]]:
    """Show progress on stderr: one line that is rewritten on a terminal, a line now and then elsewhere."""
    begin, last = time.monotonic(), -1e9
    is_terminal = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if not is_terminal and now - last < 5 and done < total:
            return
        last = now
        rate = done / max(now - begin, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if done else ""
        sizes = f"{_core.show_bytes(done)} of {_core.show_bytes(total)}"
        text = f"{verb}: {100 * done // max(total, 1)}% ({sizes}, {_core.show_bytes(int(rate))}/s{left})"
        sys.stderr.write(f"\r\x1b[K{text}" if is_terminal else f"{text}\n")
        sys.stderr.flush()

    yield show
    if is_terminal:
        sys.stderr.write("\r\x1b[K")
