"""``kinograph … --ray ADDRESS``: every part is the same command on some node."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from kinograph import _core
from kinograph._errors import InvalidArgumentError
from kinograph._ray_tasks import (
    CommandError,
    How,
    Work,
    call,
    cluster,
    count_shards,
    distribute,
    here,
    in_folder,
    look,
    run,
    try_run,
)


def run_command(arguments: Sequence[str], address: str) -> int:
    """Run ``kinograph … --ray ADDRESS``: every part is that command with ``--part`` on some node. Return its exit code."""
    is_json = "--json" in arguments
    arguments = [argument for argument in arguments if argument != "--json"]
    run = {"pack": _write, "repack": _write, "export": _write, "verify": _verify}.get(arguments[0])
    if run is None:
        raise InvalidArgumentError(f"kinograph {arguments[0]} does not take --ray")
    with cluster(address):
        status, out, err = run(arguments, ["--json"] if is_json else [])
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


def _write(arguments: list[str], json_option: list[str]) -> tuple[int, str, str]:
    """Pack, repack or export, and commit."""
    has_threads = arguments[0] == "export" or any(one.startswith("--threads") for one in arguments)
    threads = [] if has_threads else ["--threads", "1"]
    plan = json.loads(call(here(lambda: run([*arguments, "--portions", "--json"])), 1))
    target = plan["target"]
    work = Work(
        lambda: int(plan["portions"]),
        lambda part: run([*arguments, "--part", part, *threads, "--json"]),
        None if arguments[0] == "export" else lambda: look(target),
    )
    with _bar(arguments[0]) as show:
        how = How(None, None, 1, 20, show)
        distribute(in_folder(work), how)
    return call(here(lambda: try_run(["commit", target, *json_option])), 1)


def _verify(arguments: list[str], json_option: list[str]) -> tuple[int, str, str]:
    """Check every part of a dataset, and report together what they have found."""

    def part(part: str) -> str:
        status, out, err = try_run([*arguments, "--part", part, "--json"])
        # Damage is status 1 with a report.
        if status not in (0, 1) or not out:
            raise CommandError(status, err.strip().removeprefix("error: "))
        return out

    def shards() -> int:
        names = (
            argument
            for argument, before in zip(arguments[1:], arguments, strict=False)
            if not argument.startswith("-") and before != "--root"
        )
        return count_shards(next(names))

    # More parts than shards have nothing to read.
    work = in_folder(Work(shards, part))
    with _bar(arguments[0]) as show:
        found = [json.loads(out) for out in distribute(work, How(None, None, 1, 20, show))]
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
        if verb in ("export", "verify"):
            sizes = f"{done} of {total} parts"
        else:
            sizes = f"{_core.show_bytes(done)} of {_core.show_bytes(total)}, {_core.show_bytes(int(rate))}/s"
        text = f"{verb}: {100 * done // max(total, 1)}% ({sizes}{left})"
        sys.stderr.write(f"\r\x1b[K{text}" if is_terminal else f"{text}\n")
        sys.stderr.flush()

    yield show
    if is_terminal:
        sys.stderr.write("\r\x1b[K")
