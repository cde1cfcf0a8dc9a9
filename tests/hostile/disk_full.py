"""Fills a small disk in the middle of a pack, an append and an export, at many sizes.

python tests/hostile/disk_full.py

Each command runs on a tmpfs that is too small for it. It must end with a proper error (exit code 1, with a message that
space is missing), and
- a first pack shows no version, and `--resume` finishes it once there is space, with the shards of an undisturbed pack;
- an append leaves the old version intact, and succeeds once there is space;
- an export leaves no target and nothing else.

Needs root and Linux, to mount the tmpfs; elsewhere it prints that and exits with 77. Not part of CI.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import harness  # noqa: E402

ROOT = HERE.parents[1]
SOURCE = ROOT / "tests" / "data" / "lift_3demos.hdf5"
OTHER = ROOT / "crates" / "kino_cli" / "tests" / "data" / "other_demo.hdf5"
FORMATS = (
    "robomimic", "act", "lerobot-v2.1", "lerobot-v3", "zarr", "webdataset", "rlds", "mcap"
)  # fmt: skip
PACKS, APPENDS, EXPORTS_PER_FORMAT = 15, 9, 3
SKIPPED = 77
#: Small shards, so that there is something to resume.
PACK = ("--shard-size", "0B", "--threads", "1")


@contextlib.contextmanager
def disk(size: int) -> Iterator[Path]:
    """A file system of this many bytes."""
    folder = Path(tempfile.mkdtemp(prefix="kino-disk-"))
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "kino-disk-full", folder], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def grow(folder: Path) -> None:
    """Adds space."""
    subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True)


def used(folder: Path) -> int:
    """Bytes that a folder takes on a tmpfs, in whole pages."""
    with disk(1 << 30) as space:
        target = space / "x"
        shutil.copytree(folder, target) if folder.is_dir() else shutil.copy(folder, target)
        stat = os.statvfs(space)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def sizes(need: int, count: int) -> list[int]:
    """Sizes below the need, from almost nothing to almost enough."""
    page = os.sysconf("SC_PAGE_SIZE")
    return [max(page, need * place // (count + 1)) for place in range(1, count + 1)]


def run(*arguments: object) -> harness.Outcome:
    """Runs the command."""
    return harness.run([str(argument) for argument in arguments])


def done(*arguments: object) -> None:
    """Runs the command, which must succeed."""
    outcome = run(*arguments)
    assert outcome.code in (0, 3), outcome.output


def refusal(outcome: harness.Outcome) -> list[str]:
    """What is wrong with how a command handled the full disk."""
    wrong = list(harness.problems(outcome))
    if outcome.code != 1:
        wrong.append(f"exit code {outcome.code}, expected 1: {outcome.output[-400:]}")
    elif "No space left on device" not in outcome.output:
        wrong.append(f"does not say that space is missing: {outcome.output[-400:]}")
    return wrong


def shards(dataset: Path) -> list[str]:
    """The shards on disk, by content."""
    return sorted(path.name for path in (dataset / "shards").iterdir())


def pack(size: int, whole: Path) -> list[str]:
    """A first pack on a disk of this size."""
    with disk(size) as space:
        target = space / "a.kino"
        wrong = refusal(run("pack", SOURCE, target, *PACK))
        if list(target.glob("versions/*.json")):
            wrong.append("a version is visible")
        grow(space)
        outcome = run("pack", SOURCE, target, "--resume", *PACK)
        if outcome.code != 0:
            return [*wrong, f"cannot be resumed: {outcome.output[-400:]}"]
        if shards(target) != shards(whole):
            wrong.append("the resumed dataset has other shards than an undisturbed one")
        return wrong + verified(target, 1)


def append(size: int, base: Path) -> list[str]:
    """An append to a dataset whose disk has this many bytes free."""
    with disk(1 << 30) as space:
        target = space / "a.kino"
        shutil.copytree(base, target)
        subprocess.run(["mount", "-o", f"remount,size={used(base) + size}", space], check=True)
        wrong = refusal(run("pack", OTHER, target, "--append", "--prefix", "new/", *PACK))
        wrong += verified(target, 1)
        grow(space)
        outcome = run("pack", OTHER, target, "--append", "--prefix", "new/", *PACK)
        if outcome.code != 0:
            return [*wrong, f"cannot be repeated: {outcome.output[-400:]}"]
        return wrong + verified(target, 2)


def verified(dataset: Path, versions: int) -> list[str]:
    """What is wrong with a dataset that should have this many versions, all intact."""
    found = len(list(dataset.glob("versions/*.json")))
    wrong = [] if found == versions else [f"{found} versions, expected {versions}"]
    outcome = run("verify", dataset, "--decode")
    return wrong if outcome.code == 0 else [*wrong, f"verify: {outcome.output[-400:]}"]


def export(size: int, base: Path, to: str) -> list[str]:
    """An export to a disk of this size."""
    with disk(size) as space:
        target = space / "sub" / "x"
        wrong = refusal(run("export", base, target, "--to", to, "--on-defect", "keep"))
        left = [str(path.relative_to(space)) for path in space.rglob("*")]
        # The parent folder of the target was requested, and may stay.
        if [name for name in left if name != "sub"]:
            wrong.append(f"leaves {left}")
        grow(space)
        outcome = run("export", base, target, "--to", to, "--on-defect", "keep")
        if outcome.code not in (0, 3):
            wrong.append(f"cannot be repeated: {outcome.output[-400:]}")
        return wrong


def attacks(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Every attack, with its name and what was wrong."""
    base, both = folder / "base.kino", folder / "both.kino"
    done("pack", SOURCE, base, *PACK)
    shutil.copytree(base, both)
    done("pack", OTHER, both, "--append", "--prefix", "new/", *PACK)
    for size in sizes(used(base), PACKS):
        yield f"pack on {size} bytes", pack(size, base)
    for size in sizes(used(both) - used(base), APPENDS):
        yield f"append on {size} bytes more", append(size, base)
    for to in FORMATS:
        target = folder / f"alone-{to}"
        done("export", base, target, "--to", to, "--on-defect", "keep")
        for size in sizes(used(target), EXPORTS_PER_FORMAT):
            yield f"export --to {to} on {size} bytes", export(size, base, to)


def main() -> int:
    """Runs all of them."""
    if sys.platform != "linux" or os.geteuid() != 0:
        print("skipped: mounting a small tmpfs needs Linux and root")
        return SKIPPED
    count, failed = 0, 0
    with tempfile.TemporaryDirectory(prefix="kino-full-") as folder:
        for name, wrong in attacks(Path(folder)):
            count, failed = count + 1, failed + bool(wrong)
            print(f"{name:<48} {'; '.join(wrong) or 'held'}", flush=True)
    print(f"{count - failed} of {count} held")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
