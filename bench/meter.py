"""What does metering cost? The same loader with all meters and with the minimum, alternating: `python bench/meter.py`.

    all      waits by size, timeline, bytes used, cache hits, and the training loop's own meter with compute marked
    least    only the counters that the loader's own control needs

Two loaders live in one process and alternate every few hundred batches, so that other load on the machine affects both.
A turn is timed by the CPU time of all threads, and by wall-clock time. The last row has the cheapest possible samples,
where the meter's share is largest. Both loaders must return the same batches. Writes target/bench/meter.csv; with `--save`
also bench/results/meter.csv. Fails if the meter takes more than 1 % of the CPU time.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import kinograph
import kinograph.numpy
from kinograph._loop import LoopReport

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "bench"
RECORDING = ROOT / "tests/data/lift_3demos.hdf5"
REPEATS = 8
CAMERAS = ("obs/agentview_image", "obs/robot0_eye_in_hand_image")
NUMBERS = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/object", "actions")
MOST = 0.01


class Silent:
    """A training-loop meter that measures nothing."""

    trace = None

    def took(self, asked: float, has: float) -> None:
        """Do nothing."""

    def end(self, now: float) -> None:
        """Do nothing."""

    def report(self) -> LoopReport:
        """Report nothing."""
        return LoopReport()


def main() -> int:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=40, help="number of turns of each loader")
    parser.add_argument("--save", action="store_true", help="also write to bench/results")
    arguments = parser.parse_args()
    dataset = pack()
    cases: dict[str, dict[str, Any]] = {
        "two cameras, batch 16": {"keys": [*CAMERAS, *NUMBERS], "batch_size": 16},
        "numbers alone, batch 16": {"keys": list(NUMBERS), "batch_size": 16},
    }
    rows = [measure(name, dataset, arguments.turns, **case) for name, case in cases.items()]
    for folder in [OUT, *([ROOT / "bench/results"] if arguments.save else [])]:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "meter.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    return int(any(float(row["cpu overhead"]) > MOST for row in rows))


def pack() -> pathlib.Path:
    """Pack the recording repeatedly, as many demonstrations, once."""
    target = OUT / "meter.kino"
    if not target.exists():
        for number in range(REPEATS):
            mode = "append" if number else "new"
            kinograph.pack(RECORDING, target, prefix=f"{number}/", mode=mode)
    return target


def measure(name: str, dataset: pathlib.Path, turns: int, **options: Any) -> dict[str, Any]:  # noqa: ANN401 (a loader's)
    """Run both alternately, and compare turn by turn."""
    loaders = {}
    for kind in ("all", "least"):
        loader = kinograph.numpy.Loader(dataset, seq_length=10, seed=7, threads=1, **options)
        if kind == "least":
            loader._options["meter"] = False
            loader._start()
            loader._loop = Silent()
        loaders[kind] = loader
    compare(loaders["all"], loaders["least"])
    batches = {kind: endless(loader) for kind, loader in loaders.items()}
    # Whole epochs, so that both do the same work in every turn, and enough of them to take half a second.
    count = len(loaders["all"])
    while (found := turn(loaders["all"], batches["all"], count, is_marked=True))[1] < 0.5:
        count *= 2
    times: dict[str, list[tuple[float, float]]] = {"all": [], "least": []}
    for number in range(turns):
        # The second one finds the caches as the first left them, so the order alternates too.
        for kind in ("all", "least") if number % 2 else ("least", "all"):
            found = turn(loaders[kind], batches[kind], count, is_marked=kind == "all")
            times[kind].append(found)
    pairs = list(zip(times["all"], times["least"], strict=True))
    by_cpu = [full[0] / least[0] - 1 for full, least in pairs]
    by_clock = [full[1] / least[1] - 1 for full, least in pairs]
    low, _, high = statistics.quantiles(by_cpu, n=4)
    rate = {
        kind: count * options["batch_size"] / statistics.median(one[1] for one in of_kind)
        for kind, of_kind in times.items()
    }
    row = {
        "case": name,
        "turns": turns,
        "batches per turn": count,
        "samples/s with all": f"{rate['all']:.0f}",
        "samples/s with the least": f"{rate['least']:.0f}",
        "cpu overhead": f"{statistics.median(by_cpu):.4f}",
        "its quartiles": f"{low:.4f} {high:.4f}",
        "clock overhead": f"{statistics.median(by_clock):.4f}",
    }
    print(row, file=sys.stderr)
    for loader in loaders.values():
        loader.close()
    return row


def endless(loader: kinograph.numpy.Loader) -> Iterator[dict[str, Any]]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def turn(
    loader: kinograph.numpy.Loader, batches: Iterator[Any], count: int, *, is_marked: bool
) -> tuple[float, float]:
    """Take this many batches; returns CPU and wall-clock seconds."""
    cpu, clock = time.process_time(), time.perf_counter()
    for _ in range(count):
        next(batches)
        if is_marked:
            loader.compute_begin()
            loader.compute_end()
    return time.process_time() - cpu, time.perf_counter() - clock


def compare(one: kinograph.numpy.Loader, other: kinograph.numpy.Loader) -> None:
    """Compare an epoch of both: the timed work must be the same."""
    for left, right in zip(one, other, strict=True):
        for key, array in left.items():
            if not np.array_equal(array, right[key]):
                sys.exit(f"error: `{key}` differs between the two loaders")
    if one.report().batches == 0 or other.report().timeline:
        sys.exit("error: the loaders do not have the expected meters")


if __name__ == "__main__":
    sys.exit(main())
