"""Does the training loop ever wait? `python bench/steady.py [straggler] [accelerator]` (default: both).

    straggler     episodes of 3 s to 45 s, with a small camera and a lossless one with 20 times its pixels; a loop with a steady
                  step: batch time p99 / p50 at the prefetch depth that the loader chose, and at fixed ones
    accelerator   emulated: a core that spins for 20, 50, 100 and 200 ms per step, with a batch size at which the
                  loader could deliver 1.5 times as many; compute ratio

The loop spins and does not sleep, so it occupies a core as a training loop does, and the loader has the rest: on two
cores, one decoding thread. A run waits for a quiet machine, but not for long. Some batches are compared with the plain reader.
A busy machine disturbs the figures; `pressure` is the fraction of time in which some process waited for a core, from
/proc/pressure/cpu. Writes bench/results/straggler.csv and accelerator.csv.
"""

from __future__ import annotations

import csv
import multiprocessing
import pathlib
import statistics
import sys
import time

import numpy as np

import kinograph
import kinograph.numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
RATE_HZ = 20.0
SHORTEST_S, LONGEST_S, EPISODES = 3.0, 45.0, 14
SMALL, LARGE = 56, 250
REQUEST = {"large": [0], "small": [-1, 0], "actions": range(8)}
# A fifth of the dataset is shuffled at a time: every frame is decoded in every epoch.
GROUP = kinograph.Shuffle(fraction=0.2)
ROUNDS = 3
# A machine is quiet if processes wait for a core for less than this fraction of the time.
QUIET = 0.2
# How much faster than the accelerator the loader could be; 1.15 is what counts, and machines are noisy.
MARGIN = 1.5


def image(frames: int, side: int, seed: int) -> np.ndarray:
    """Create a smooth moving image with camera noise: neither flat nor random."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((side, side + frames)) / side
    scene = 128 + 90 * np.sin(7 * rows + seed) * np.cos(5 * columns)
    channels = np.stack([scene, scene * 0.8 + 20, 220 - scene * 0.7], axis=-1)
    noise = rng.normal(0, 1.5, (side, side, 3))
    out = np.empty((frames, side, side, 3), np.uint8)
    for frame in range(frames):
        shifted = np.roll(noise, frame * 7, axis=(0, 1))
        out[frame] = np.clip(channels[:, frame : frame + side] + shifted, 0, 255)
    return out


def write(path: pathlib.Path) -> None:
    """Write episodes from the shortest to the longest."""
    with kinograph.Writer(path) as writer:
        for number in range(EPISODES):
            length_s = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** (number / (EPISODES - 1))
            frames = round(length_s * RATE_HZ)
            # An action identifies its frame, so that a batch can be checked.
            actions = number * 1000.0 + np.arange(frames)[:, None] + np.zeros(7)
            streams = {
                "actions": actions,
                "small": image(frames, SMALL, number),
                "large": image(frames, LARGE, number),
            }
            writer.add_episode(streams, rate_hz=RATE_HZ)


class Spinner:
    """A busy core, like that of a training loop: a separate process, because of the GIL."""

    def __enter__(self) -> None:
        self._process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
        self._process.start()

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.join()


def _spin() -> None:
    while True:
        pass


def spin(seconds: float) -> None:
    """Compute for this long in wall-clock time."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def pressure_s() -> float:
    """Seconds in which some process waited for a core, since boot; 0 if the kernel does not count them."""
    file = pathlib.Path("/proc/pressure/cpu")
    if not file.exists():
        return 0.0
    return int(file.read_text().split("\n")[0].rsplit("=", 1)[1]) / 1e6


def wait_for_quiet(limit_s: float = 20.0) -> None:
    """Wait until other processes leave the cores idle, but not forever."""
    until = time.perf_counter() + limit_s
    while time.perf_counter() < until:
        before = pressure_s()
        time.sleep(0.5)
        if (pressure_s() - before) / 0.5 < QUIET:
            return


def make(path: pathlib.Path, **options: object) -> kinograph.numpy.Loader:
    """Make a loader with the defaults but for the groups."""
    return kinograph.numpy.Loader(path, windows=REQUEST, seed=7, shuffle=GROUP, **options)  # type: ignore[arg-type]


def check(loader: kinograph.numpy.Loader, kept: dict[int, np.ndarray]) -> None:
    """Compare the actions of some batches with those of the plain reader."""
    windows = loader.order.sources[0].samples
    for step, actions in kept.items():
        for place, found in list(zip(loader.order.batch(step), actions, strict=True))[:3]:
            if not np.array_equal(windows[int(place["sample"])]["actions"], found):
                sys.exit(f"error: batch {step} differs from the order")


def measure(path: pathlib.Path, steps: int, step_s: float, **options: object) -> dict:
    """Train with a steady step; returns batch times, and the loader's report.

    A batch's time is the step plus the wait for the batch: time that others take from the loop's core is not the loader's.
    """
    with make(path, **options) as loader:
        waits: list[float] = []
        kept: dict[int, np.ndarray] = {}
        pressure = begin = 0.0
        batches = iter(loader)
        for number in range(steps + WARM):
            if number == WARM:
                pressure, begin = pressure_s(), time.perf_counter()
            asked = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            came = time.perf_counter()
            if number >= WARM:
                waits.append(came - asked)
            if number % 64 == 0:
                kept[number] = batch["actions"].copy()
            del batch
            spin(step_s - (time.perf_counter() - came))
        elapsed = time.perf_counter() - begin
        report = loader.report()
        check(loader, kept)
    times = np.array(waits) + step_s
    p50, p99 = np.percentile(times, [50, 99])
    return {
        "p50_ms": float(p50) * 1e3,
        "p99_ms": float(p99) * 1e3,
        "p99_over_p50": float(p99 / p50),
        "slowest_ms": float(times.max()) * 1e3,
        "compute_ratio": float(step_s / times.mean()),
        "depth": report.prefetch_depth,
        "depths": " ".join(f"{batch}:{depth}" for batch, depth in report.prefetch_changes),
        "pressure": (pressure_s() - pressure) / elapsed,
    }


# Batches made before anything is measured: threads start, and the first group is decoded.
WARM = 24


def capacity(path: pathlib.Path, batch_size: int, seconds: float) -> float:
    """Batches per second that the loader delivers next to a spinning core."""
    with Spinner(), make(path, batch_size=batch_size) as loader:
        count, begin = 0, 0.0
        while True:
            for _ in loader:
                if count == WARM:
                    begin = time.perf_counter()
                count += 1
                if count > WARM + 8 and time.perf_counter() - begin > seconds:
                    return (count - WARM - 1) / (time.perf_counter() - begin)


def save(name: str, rows: list[dict]) -> None:
    """Print rows and write them as CSV."""
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    with (ROOT / "bench/results" / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def middle(runs: list[dict]) -> dict:
    """Take the median of each figure, and the text fields of the last run."""
    return {
        key: statistics.median(run[key] for run in runs) if not isinstance(value, str) else value
        for key, value in runs[-1].items()
    }


def straggler(path: pathlib.Path) -> None:
    """Batch times with the chosen depth and with fixed ones, alternating."""
    batch_size = 32
    wait_for_quiet()
    step_s = 2 / capacity(path, batch_size, 6)
    depths: list[int | None] = [2, 4, None]
    runs: dict[int | None, list[dict]] = {depth: [] for depth in depths}
    for _ in range(ROUNDS):
        for depth in depths:
            wait_for_quiet()
            found = measure(path, 240, step_s, batch_size=batch_size, prefetch=depth)
            print(f"straggler, prefetch {depth}: {found}", flush=True)
            runs[depth].append(found)
    rows = []
    for depth in depths:
        found = middle(runs[depth])
        rows.append(
            {
                "prefetch": "chosen" if depth is None else depth,
                "step ms": f"{step_s * 1e3:.1f}",
                "batch p50 ms": f"{found['p50_ms']:.1f}",
                "batch p99 ms": f"{found['p99_ms']:.1f}",
                "p99 / p50": f"{found['p99_over_p50']:.2f}",
                "each run": " ".join(f"{run['p99_over_p50']:.2f}" for run in runs[depth]),
                "slowest ms": f"{found['slowest_ms']:.1f}",
                "compute ratio": f"{found['compute_ratio']:.4f}",
                "depth": f"{found['depth']:.0f}",
                "depth by batch": found["depths"],
                "pressure": f"{found['pressure']:.2f}",
            }
        )
    save("straggler", rows)


def accelerator(path: pathlib.Path) -> None:
    """Compute ratio for several step lengths, where the loader could be faster than needed."""
    rows = []
    for step_ms in (20, 50, 100, 200):
        step_s = step_ms / 1e3
        wait_for_quiet()
        per_s = capacity(path, 32, 3) * 32
        batch_size = max(1, int(per_s * step_s / MARGIN))
        runs, margins = [], []
        for _ in range(ROUNDS):
            wait_for_quiet()
            before = capacity(path, batch_size, 2)
            runs.append(measure(path, max(60, int(8 / step_s)), step_s, batch_size=batch_size))
            # The load by other processes may have changed.
            margins.append(min(before, capacity(path, batch_size, 2)) * step_s)
            print(f"accelerator, {step_ms} ms: {margins[-1]:.2f}, {runs[-1]}", flush=True)
        owed = [
            run["compute_ratio"]
            for run, margin in zip(runs, margins, strict=True)
            if margin >= 1.15
        ]
        found = middle(runs)
        rows.append(
            {
                "step ms": step_ms,
                "batch": batch_size,
                "capacity / demand": " ".join(f"{margin:.2f}" for margin in margins),
                "compute ratio": " ".join(f"{run['compute_ratio']:.4f}" for run in runs),
                "median where 1.15": f"{statistics.median(owed):.4f}" if owed else "none",
                "depth": f"{found['depth']:.0f}",
                "pressure": f"{found['pressure']:.2f}",
            }
        )
    save("accelerator", rows)


def main() -> None:
    """Run what was requested; the dataset is kept under target/bench."""
    requested = sys.argv[1:] or ["straggler", "accelerator"]
    path = ROOT / "target" / "bench" / "straggler.kino"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
    for name in requested:
        {"straggler": straggler, "accelerator": accelerator}[name](path)


if __name__ == "__main__":
    main()
