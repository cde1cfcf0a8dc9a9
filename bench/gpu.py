"""How long does the GPU wait? `python bench/gpu.py` on a machine with CUDA.

A network of ResNet's size is trained on robomimic's window of ten steps with two cameras (20 images of 84 × 84 per sample), from the
sample recording repeated 24 times, as JPEG and lossless, with a tenth of the decoded dataset shuffled at a time.

    compute ratio    step time with a batch that is already on the GPU / step time with batches from the loader

Both are wall-clock times of the same number of steps in one process, alternating, each with one synchronisation at its end.
The loader's own wait is printed next to it. The first batches are compared with the plain reader. Writes bench/results/gpu.csv.
"""

from __future__ import annotations

import csv
import itertools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn

import kinograph
import kinograph.torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "data" / "lift_3demos.hdf5"
REPEATS, STEPS, ROUNDS, WARM = 24, 150, 3, 20
CAMERAS = ("obs/agentview_image", "obs/robot0_eye_in_hand_image")
WINDOWS = {name: range(10) for name in (*CAMERAS, "obs/object", "actions")}
Batch = dict[str, torch.Tensor]
# Widths of the network's first layer, which set the step time.
WIDTHS = (16, 32, 64)


class Network(nn.Module):
    """Residual layers over every image, and one action per step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        layers = [nn.Conv2d(3, width, 7, stride=2, padding=3), nn.BatchNorm2d(width), nn.ReLU()]
        for size, larger in itertools.pairwise(sizes):
            stride = 1 if size == larger else 2
            layers += [nn.Conv2d(size, larger, 3, stride=stride, padding=1)]
            layers += [nn.BatchNorm2d(larger), nn.ReLU()]
            layers += [nn.Conv2d(larger, larger, 3, padding=1), nn.BatchNorm2d(larger), nn.ReLU()]
        self.images = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.actions = nn.Linear(2 * sizes[-1] + 10, 7)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch."""
        found = []
        for camera in CAMERAS:
            images = batch[camera].flatten(0, 1).movedim(-1, 1)
            found.append(self.images(images.to(torch.bfloat16) / 255 - 0.5))
        state = batch["obs/object"].flatten(0, 1).to(torch.bfloat16)
        actions = self.actions(torch.cat([*found, state], dim=1))
        return (actions - batch["actions"].flatten(0, 1).to(torch.bfloat16)).square().mean()


def pack(quality: int | None) -> pathlib.Path:
    """Pack the recording repeatedly, as many demonstrations."""
    target = ROOT / "target" / "bench" / f"gpu_{quality}.kino"
    # Named: with a quality, a camera that is smaller without loss would be lossless.
    plan = quality and {"stream": [{"kind": "image", "codec": f"jpeg:q={quality},sub=444"}]}
    if not target.exists():
        for number in range(REPEATS):
            mode = "append" if number else "new"
            kinograph.pack(RECORDING, target, mode=mode, plan=plan or None, prefix=f"{number}/")
    return target


def check(loader: kinograph.torch.Loader, windows: kinograph.Samples) -> None:
    """Compare a batch with the plain reader's samples."""
    batch = next(iter(loader))
    for row, place in enumerate(loader.order.batch(0)):
        sample = windows[int(place["sample"])]
        for key in WINDOWS:
            if not (batch[key][row].cpu().numpy() == sample[key]).all():
                sys.exit(f"error: row {row} of `{key}` differs from the plain reader")


def seconds(steps: int, batches: Iterable[Batch], train: Callable[[Batch], None]) -> float:
    """Time this many steps, and end with the GPU idle."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for batch in itertools.islice(batches, steps):
        train(batch)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def endless(loader: kinograph.torch.Loader) -> Iterator[Batch]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def measure(dataset: pathlib.Path, width: int, batch_size: int) -> dict[str, float]:
    """Train on a resident batch and on the loader's batches, alternating."""
    network = Network(width).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)

    def train(batch: dict[str, torch.Tensor]) -> None:
        optimizer.zero_grad(set_to_none=True)
        network(batch).backward()
        optimizer.step()

    with kinograph.torch.Loader(
        dataset,
        windows=WINDOWS,
        batch_size=batch_size,
        seed=7,
        shuffle=kinograph.Shuffle(fraction=0.1),
        device="cuda",
    ) as loader:
        batches = endless(loader)
        still = next(batches)
        seconds(WARM, itertools.repeat(still), train)
        seconds(WARM, batches, train)
        ratios, step_ms = [], []
        for _ in range(ROUNDS):
            alone = seconds(STEPS, itertools.repeat(still), train)
            fed = seconds(STEPS, batches, train)
            ratios.append(alone / fed)
            step_ms.append(alone / STEPS * 1e3)
        report = loader.report()
    return {
        "width": width,
        "batch": batch_size,
        "step_ms": round(statistics.median(step_ms), 2),
        "compute_ratio": round(statistics.median(ratios), 4),
        "least": round(min(ratios), 4),
        "prefetch": report.prefetch_depth,
    }


def main() -> None:
    """Measure every plan and width."""
    torch.backends.cudnn.benchmark = True
    rows = []
    for plan, quality in (("JPEG 95", 95), ("lossless", None)):
        dataset = pack(quality)
        windows = kinograph.open(dataset).samples(WINDOWS)
        with kinograph.torch.Loader(
            windows, batch_size=64, seed=7, shuffle=kinograph.Shuffle(fraction=0.1), device="cuda"
        ) as one:
            check(one, windows)
        for width in WIDTHS:
            row = {"plan": plan, "cores": len(os.sched_getaffinity(0))}
            row |= measure(dataset, width, 64)
            rows.append(row)
            print(row, flush=True)
    with (ROOT / "bench" / "results" / "gpu.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
