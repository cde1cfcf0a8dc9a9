"""How busy is a GPU that trains a policy? `python bench/policies/run.py --aloha EPISODE.hdf5` on a machine with CUDA.

Three policies (models.py) are trained on the same samples from three feeds (feeds.py), alternating: a round gives each feed a number of
steps, and batches that a feed had ready before its turn are consumed first. Written to bench/results/policies.csv:

    compute ratio    step time of the synthetic feed / step time of this feed, in the same round
    wait             how long the loop blocked in `next`: median, 95th and 99th percentile
    gpu              the driver's utilisation, averaged over ten readings per second

Vectors are compared exactly with HDF5 before anything is timed; images are JPEG 95 on our side, and their mean difference is printed.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import feeds
from models import Batch

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "lift_3demos.hdf5"
OUT = ROOT / "target" / "bench" / "policies"
# The sample has three demonstrations, an ALOHA file has one.
TIMES = {"lift": 24, "aloha": 24}
WARM = 12


class Utilisation:
    """The GPU utilisation reported by the driver, sampled by another process while the block runs."""

    def __enter__(self) -> Utilisation:
        query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
        self._process = subprocess.Popen(["nvidia-smi", *query], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        text, _ = self._process.communicate()
        samples = [int(line) for line in text.split() if line.strip().isdigit()]
        self.percent = statistics.fmean(samples) if samples else float("nan")


def prepare(recording: str, source: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Create the large HDF5 file, and pack it."""
    OUT.mkdir(parents=True, exist_ok=True)
    large, packed = OUT / f"{recording}.hdf5", OUT / f"{recording}.kino"
    if not large.exists():
        feeds.repeat(source, large, TIMES[recording])
    if not packed.exists():
        # Named: with `quality=95`, a camera that is smaller without loss would be lossless.
        plan = {"stream": [{"kind": "image", "codec": "jpeg:q=95,sub=444"}]}
        kinograph.pack(large, packed, plan=plan)
    return large, packed


def run(
    batches: Iterator[Batch],
    steps: int,
    train: Callable[[Batch], None],
    limit_s: float = float("inf"),
) -> dict[str, float]:
    """Train for some steps, or for some time; the GPU is idle before and after."""
    waits: list[float] = []
    with Utilisation() as gpu:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            asked = time.perf_counter()
            batch = next(batches)
            waits.append(time.perf_counter() - asked)
            train(batch)
            if asked - begin > limit_s:
                break
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    percentiles = statistics.quantiles(waits, n=100)
    return {
        "steps": len(waits),
        "step_ms": seconds / len(waits) * 1e3,
        "wait_p50_ms": percentiles[49] * 1e3,
        "wait_p95_ms": percentiles[94] * 1e3,
        "wait_p99_ms": percentiles[98] * 1e3,
        "gpu_percent": gpu.percent,
    }


def measure(
    policy: feeds.Policy, source: pathlib.Path, seconds: float, rounds: int
) -> list[dict[str, Any]]:
    """Train one policy from every feed, alternating."""
    large, packed = prepare(policy.recording, source)
    difference = feeds.check(packed, large, policy)
    print(
        f"{policy.name}: vectors equal HDF5's, images differ by {difference:.2f} of 255 on average"
    )
    torch.manual_seed(7)
    model = policy.model().to("cuda", torch.bfloat16)
    for part in model.modules():
        if isinstance(part, torch.nn.LSTM):
            part.flatten_parameters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def train(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        model(batch).backward()
        optimizer.step()

    cores = len(os.sched_getaffinity(0))
    with feeds.ours(packed, policy) as loader:
        ways: dict[str, Iterator[Batch]] = {"kinograph": feeds.endless(loader)}
        ways["synthetic"] = itertools.repeat(next(ways["kinograph"]))
        run(ways["synthetic"], WARM, train)
        one_s = run(ways["synthetic"], WARM, train)["step_ms"] / 1e3
        steps = max(100, round(seconds / one_s))
        rows = []
        for number in range(rounds):
            for name in ("synthetic", "kinograph", "hdf5"):
                # Its workers live for its turn only: they would keep filling their queues in the others' turns.
                batches = feeds.hdf5(large, policy, cores) if name == "hdf5" else ways[name]
                # Batches that were ready before: up to four per worker.
                ready = {"synthetic": 0, "kinograph": WARM, "hdf5": 4 * cores}[name]
                run(batches, ready + WARM, train, 2 * seconds)
                row = {"policy": policy.name, "feed": name, "round": number}
                row |= {"batch": policy.batch_size, "cores": cores}
                row |= run(batches, steps, train, 3 * seconds)
                rows.append(row)
                print(
                    *(
                        f"{value:.3f}" if isinstance(value, float) else value
                        for value in row.values()
                    ),
                    flush=True,
                )
                del batches
        print(loader.report())
    for row in rows:
        alone = next(
            one for one in rows if one["round"] == row["round"] and one["feed"] == "synthetic"
        )
        row["compute_ratio"] = alone["step_ms"] / row["step_ms"]
    return rows


def main() -> None:
    """Measure the given policies, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--aloha", type=pathlib.Path, required=True, help="an episode in ACT's layout, 480 × 640"
    )
    parser.add_argument(
        "--seconds", type=float, default=10, help="duration of a feed's round at full speed"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("policies", nargs="*", help="bc, act, diffusion")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    sources = {"lift": SAMPLE, "aloha": arguments.aloha}
    rows = []
    for policy in feeds.POLICIES:
        if not arguments.policies or policy.name in arguments.policies:
            rows += measure(policy, sources[policy.recording], arguments.seconds, arguments.rounds)
            write(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """Write the results so far."""
    with (ROOT / "bench" / "results" / "policies.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        for row in rows:
            short = {key: round(value, 4) for key, value in row.items() if isinstance(value, float)}
            writer.writerow(row | short)


if __name__ == "__main__":
    main()
