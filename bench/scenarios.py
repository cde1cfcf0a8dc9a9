"""One recording, one model, one slow volume, three ways to store it: raw, generic compression, the plan that is chosen.

    python bench/scenarios.py          # on a machine with CUDA; writes bench/results/scenarios.csv

The sample recording, repeated; the network and the windows of ``bench/gpu.py``. Storage is emulated: a network volume with the
share of the bandwidth that one of several GPUs gets. Memory holds a quarter of the decoded frames, as it does with a dataset
that is larger than memory. The compute ratio is the time of a step on a batch that is on the GPU already ÷ the time of a
step on the loader's batches, after an epoch, in turns.
"""

from __future__ import annotations

import csv
import itertools
import os
import pathlib
import shutil
import statistics
import sys

import torch
from gpu import RECORDING, ROOT, WARM, WINDOWS, Network, check, endless, seconds

import kinograph
import kinograph.torch

REPEATS, STEPS, ROUNDS, BATCH, WIDTH = 48, 60, 3, 64, 32
# Batches before anything is timed: an epoch and a half, in which the loader settles.
FIRST = 150
MEMORY = "72MB"
VOLUMES = ("100MB/s,8ms", "20MB/s,8ms", "10MB/s,8ms")
SHUFFLE = kinograph.Shuffle(fraction=0.05)


def pack(name: str, plan: str | None) -> pathlib.Path:
    """Pack the recording repeatedly, as many demonstrations."""
    target = ROOT / "target" / "bench" / f"scenario_{name}.kino"
    shutil.rmtree(target, ignore_errors=True)
    file = target.with_suffix(".toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(plan or "")
    for number in range(REPEATS):
        mode = "append" if number else "new"
        kinograph.pack(RECORDING, target, mode=mode, plan=file, prefix=f"{number}/")
    return target


def every(codec: str) -> str:
    """Write a plan that gives all streams a codec."""
    return f'[[stream]]\nmatch = "**"\ncodec = "{codec}"\n'


class Trained:
    """A network, and one step of it."""

    def __init__(self) -> None:
        self.network = Network(WIDTH).to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-4, fused=True)

    def step(self, batch: dict[str, torch.Tensor]) -> None:
        """Train on a batch."""
        self.optimizer.zero_grad(set_to_none=True)
        self.network(batch).backward()
        self.optimizer.step()


DEVICE = "cuda" if torch.cuda.is_available() else None


def loader(dataset: kinograph.Dataset, device: str | None = DEVICE) -> kinograph.torch.Loader:
    """Make the loader of every scenario."""
    return kinograph.torch.Loader(
        dataset,
        windows=WINDOWS,
        batch_size=BATCH,
        seed=7,
        shuffle=SHUFFLE,
        memory=MEMORY,
        device=device,
    )


def check_loader(dataset: kinograph.Dataset, path: pathlib.Path) -> None:
    """Compare the first batch with the plain reader."""
    with loader(dataset) as one:
        check(one, kinograph.open(path).samples(WINDOWS))


def measure(dataset: kinograph.Dataset) -> dict[str, float]:
    """Train on a resident batch and on the loader's batches, in turns."""
    trained = Trained()
    with loader(dataset) as one:
        batches = endless(one)
        still = next(batches)
        seconds(WARM, itertools.repeat(still), trained.step)
        seconds(FIRST, batches, trained.step)
        ratios, step_ms = [], []
        for _ in range(ROUNDS):
            alone = seconds(STEPS, itertools.repeat(still), trained.step)
            fed = seconds(STEPS, batches, trained.step)
            ratios.append(alone / fed)
            step_ms.append(alone / STEPS * 1e3)
    return {
        "step_ms": round(statistics.median(step_ms), 2),
        "compute_ratio": round(statistics.median(ratios), 4),
        "least": round(min(ratios), 4),
    }


def main() -> None:
    """Measure every volume with every way to store the recording."""
    if not torch.cuda.is_available():
        sys.exit("error: this benchmark needs CUDA")
    torch.backends.cudnn.benchmark = True
    default = pack("default", None)
    trained = Trained()
    with loader(kinograph.open(default)) as one:
        still = next(iter(one))
        seconds(WARM, itertools.repeat(still), trained.step)
        step_s = seconds(STEPS, itertools.repeat(still), trained.step) / STEPS
        exact = kinograph.plan(one, step_s=step_s)
        lossy = kinograph.plan(one, step_s=step_s, bounds={"obs/*_image": "psnr(40)"})
    plans = {"raw": every("raw"), "zstd": every("zstd:level=3")}
    rows = []
    stored: dict[str, pathlib.Path] = {}
    for volume in VOLUMES:
        chosen = {
            "chosen, lossless": exact.what_if(storage=volume),
            "chosen, images at 40 dB": lossy.what_if(storage=volume),
        }
        texts = {**plans, **{name: choice.to_toml() for name, choice in chosen.items()}}
        for name, text in texts.items():
            if text not in stored:
                stored[text] = pack(str(len(stored)), text)
            path = stored[text]
            size = sum(stream.bytes for stream in kinograph.open(path).streams.values())
            row = {
                "volume": volume,
                "plan": name,
                "cores": len(os.sched_getaffinity(0)),
                "bytes": size,
            }
            row["predicted"] = round(chosen[name].compute_ratio, 4) if name in chosen else ""
            dataset = kinograph.open(path)
            dataset._core = dataset._core.on_storage(volume)
            check_loader(dataset, path)
            row |= measure(dataset)
            rows.append(row)
            print(row, flush=True)
    with (ROOT / "bench" / "results" / "scenarios.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
