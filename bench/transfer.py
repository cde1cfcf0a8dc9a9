"""What does it cost to bring batches to the GPU? `python bench/transfer.py` on a machine with CUDA.

Batches of the shapes of three policies go to the GPU on three ways, in one run, alternating:

    threads   a thread of Python pins each batch and copies it (what loaders with transforms still do)
    core      assembled in page-locked memory, copied by the core
    fixed     the same, and copied on the device to addresses that stay, for CUDA graphs

For each: CPU cores that the process uses, how long `next()` takes in the training thread, and the compute ratio (step time with a batch
that is already on the GPU / with batches from the loader). Steps of a given length are matrix products, with one synchronisation
each as a loop that logs its loss has, or a captured graph without. All frames are decoded and in memory after the first epoch.
Before anything is timed, the batches of an epoch are compared with the CPU loader's. `--cores` restricts the process; writes
bench/results/transfer.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import kinograph
import kinograph.torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM = 15
Batch = dict[str, Any]

# Policy: episodes, frames, cameras, height, width; windows of images, state and actions; batch.
SHAPES = {
    "ACT": ((4, 24, 4, 480, 640), (range(1), range(1), range(20)), 8),
    "diffusion policy": ((6, 40, 2, 96, 96), (range(2), range(2), range(16)), 64),
    "BC-RNN": ((6, 60, 2, 84, 84), (range(10), range(10), range(10)), 16),
}
# Policy, milliseconds of a step, whether the loop waits for the GPU in every step, steps.
LOOPS = [
    ("ACT", 22.0, True, 40),
    ("ACT", 5.0, False, 100),
    ("diffusion policy", 20.0, True, 40),
    ("BC-RNN", 6.0, True, 100),
    ("BC-RNN", 4.0, False, 150),
]


class Threads(kinograph.torch.Loader):
    """Copies in a thread of Python."""

    def _to_sent(self, core: object) -> None:
        return None


def images(rng: np.random.Generator, frames: int, height: int, width: int) -> np.ndarray:
    """Draw a textured background that moves, and a square that moves over it."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = [
        128 + 70 * np.sin(rng.uniform(0.01, 0.06) * x) + 50 * np.cos(rng.uniform(0.01, 0.06) * y)
        for _ in range(3)
    ]
    base = np.stack(waves, axis=-1) + rng.normal(0, 3, (height, width, 3))
    found = np.stack(
        [np.roll(base.clip(0, 255).astype(np.uint8), 3 * t, axis=1) for t in range(frames)]
    )
    side = height // 5
    for t, frame in enumerate(found):
        top, left = height // 4 + t % 20, width // 4 + 2 * t % 40
        frame[top : top + side, left : left + side] = (30, 100, 170)
    return found


def pack(policy: str, folder: pathlib.Path) -> pathlib.Path:
    """Write the dataset of a policy, as JPEG."""
    (episodes, frames, cameras, height, width), _, _ = SHAPES[policy]
    target = folder / f"transfer_{policy.replace(' ', '_')}.kino"
    if target.exists():
        return target
    plan = {"stream": [{"kind": "image", "codec": "jpeg:q=95,sub=420"}]}
    with kinograph.Writer(target, plan=plan) as writer:
        for episode in range(episodes):
            rng = np.random.default_rng(episode)
            streams = {f"camera{k}": images(rng, frames, height, width) for k in range(cameras)}
            streams["actions"] = rng.normal(size=(frames, 14)).astype(np.float32)
            streams["state"] = rng.normal(size=(frames, 14))
            writer.add_episode(streams, rate_hz=20.0)
    return target


def options(policy: str) -> dict[str, Any]:
    """Return the options of a policy's loader."""
    (_, _, cameras, _, _), (seen, state, actions), batch = SHAPES[policy]
    windows = {f"camera{k}": seen for k in range(cameras)} | {"state": state, "actions": actions}
    return {
        "windows": windows,
        "batch_size": batch,
        "seed": 7,
        "memory": "2GB",
        "last_batch": "drop",
    }


def endless(loader: kinograph.torch.Loader) -> Iterator[Batch]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def check(policy: str, dataset: pathlib.Path) -> None:
    """Compare an epoch of each way with the CPU loader's."""
    for kind, fixed in (
        (Threads, False),
        (kinograph.torch.Loader, False),
        (kinograph.torch.Loader, True),
    ):
        given = options(policy)
        with (
            kinograph.torch.Loader(dataset, **given) as plain,
            kind(dataset, **given, device="cuda", fixed_addresses=fixed) as loader,
        ):
            for number, (wanted, found) in enumerate(zip(plain, loader, strict=True)):
                for key, tensor in wanted.items():
                    if not torch.equal(found[key].cpu(), tensor):
                        sys.exit(f"error: `{key}` of batch {number} of {policy} differs")


def to_step(milliseconds: float, *, is_graph: bool) -> Callable[[], None]:
    """Make work that takes the GPU this long."""
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def times(count: int) -> None:
        for _ in range(count):
            matrix @ matrix

    times(20)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    times(100)
    torch.cuda.synchronize()
    count = max(1, round(milliseconds / ((time.perf_counter() - begin) * 10)))
    if not is_graph:
        return lambda: times(count)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        times(count)
    return graph.replay


def run(
    batches: Iterator[Batch], step: Callable[[], None], steps: int, *, synchronises: bool
) -> tuple[float, float, list[float]]:
    """Time steps: seconds, CPU seconds of the process, and seconds of each `next()`."""
    waits = []
    torch.cuda.synchronize()
    cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        # Kept until the next one is there, as in a `for`.
        batch = next(batches)
        waits.append(time.perf_counter() - asked)
        step()
        if synchronises:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    del batch
    return time.perf_counter() - begin, time.process_time() - cpu, waits


def measure(
    loop: tuple[str, float, bool, int], dataset: pathlib.Path, rounds: int
) -> list[dict[str, Any]]:
    """Run a loop on every way, alternating."""
    policy, milliseconds, synchronises, steps = loop
    step = to_step(milliseconds, is_graph=not synchronises)
    given = options(policy) | {"device": "cuda"}
    loaders = {
        "threads": Threads(dataset, **given),
        "core": kinograph.torch.Loader(dataset, **given),
        "fixed": kinograph.torch.Loader(dataset, **given, fixed_addresses=True),
    }
    feeds: dict[str, Iterator[Batch]] = {way: endless(one) for way, one in loaders.items()}
    resident = {key: tensor.clone() for key, tensor in next(feeds["core"]).items()}
    feeds["resident"] = itertools.repeat(resident)
    for batches in feeds.values():
        run(batches, step, WARM, synchronises=synchronises)
    found: dict[str, list[tuple[float, float, list[float]]]] = {way: [] for way in feeds}
    ways = list(feeds)
    for _ in range(rounds):
        for way in ways:
            found[way].append(run(feeds[way], step, steps, synchronises=synchronises))
        # Another one is the first: the GPU becomes warm.
        ways = [*ways[1:], ways[0]]
    for loader in loaders.values():
        loader.close()
    alone = [wall for wall, _, _ in found["resident"]]
    size = sum(tensor.nbytes for tensor in resident.values())
    rows = []
    for way, runs in found.items():
        waits = sorted(itertools.chain.from_iterable(waits for _, _, waits in runs))
        rows.append(
            {
                "policy": policy,
                "batch_mb": round(size / 1e6, 2),
                "loop": "synchronises" if synchronises else "graph",
                "cores": len(os.sched_getaffinity(0)),
                "way": way,
                "step_ms": round(statistics.median(w for w, _, _ in runs) / steps * 1e3, 3),
                "cores_used": round(statistics.median(c / w for w, c, _ in runs), 3),
                "cpu_ms_per_step": round(statistics.median(c for _, c, _ in runs) / steps * 1e3, 3),
                "next_us_p50": round(waits[len(waits) // 2] * 1e6, 1),
                "next_us_p90": round(waits[len(waits) * 9 // 10] * 1e6, 1),
                "compute_ratio": round(
                    statistics.median(a / w for a, (w, _, _) in zip(alone, runs, strict=True)), 4
                ),
            }
        )
    return rows


def main() -> None:
    """Check and measure every loop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cores", type=int, help="use so many CPU cores only")
    parser.add_argument("--rounds", type=int, default=3, help="measure everything so often")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "target" / "bench")
    parser.add_argument(
        "--csv", type=pathlib.Path, default=ROOT / "bench" / "results" / "transfer.csv"
    )
    given = parser.parse_args()
    if given.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    given.data.mkdir(parents=True, exist_ok=True)
    datasets = {policy: pack(policy, given.data) for policy in SHAPES}
    for policy, dataset in datasets.items():
        check(policy, dataset)
    rows = []
    for loop in LOOPS:
        for row in measure(loop, datasets[loop[0]], given.rounds):
            rows.append(row)
            print(row, flush=True)
    with given.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
