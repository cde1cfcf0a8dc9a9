"""Does a GPU wait for JPEG images if few CPU cores decode them, and if it decodes them itself? `python bench/gpu_decode.py`, with CUDA.

Three policies (policies/models.py) are trained from one JPEG dataset each, with `decode="cpu"`, `"gpu"` and `"auto"`, on 16, 4, 2 and 1 cores
(a process for each number, which may use no other core). Every frame is decoded in every epoch: memory is for a part of them.

    compute ratio    step time with a batch that stays on the GPU / step time of this feed, in the same process
    next µs          how long the loop was in `next`: median
    cores used       CPU time of the process / time

Before anything is timed, images decoded by GPU and CPU are compared. Writes bench/results/gpu_decode.csv.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "policies"))

import numpy as np
import torch
from models import Act, Batch, Bc, Diffusion
from transfer import endless, images

import kinograph
import kinograph.torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = (16, 4, 2, 1)
WARM = 15
# Policy: model; episodes, frames, height and width; windows; batch; what images are resized to; memory.
POLICIES: dict[str, tuple[Any, ...]] = {
    "act": (
        Act,
        (24, 50, 480, 640),
        {"images": range(1), "observations/qpos": range(1), "actions": range(100)},
        32,
        None,
        "256MB",
    ),
    "diffusion": (
        Diffusion,
        (24, 50, 480, 640),
        {"images": range(-1, 1), "observations/qpos": range(-1, 1), "actions": range(-1, 15)},
        64,
        224,
        "64MB",
    ),
    "bc": (
        Bc,
        (60, 60, 84, 84),
        {"images": range(10), "obs/object": range(10), "actions": range(10)},
        64,
        None,
        "32MB",
    ),
}
SIZES = {"observations/qpos": 14, "obs/object": 10}


def pack(policy: str, folder: pathlib.Path) -> pathlib.Path:
    """Write the dataset of a policy, as JPEG 95."""
    model, (episodes, frames, height, width), windows, *_ = POLICIES[policy]
    target = folder / f"gpu_decode_{policy}.kino"
    if target.exists():
        return target
    actions = 7 if policy == "bc" else 14
    plan = {"stream": [{"kind": "image", "codec": "jpeg:q=95,sub=420"}]}
    rng = np.random.default_rng(0)
    cameras = {camera: images(rng, frames, height, width) for camera in model.cameras}
    with kinograph.Writer(target, plan=plan) as writer:
        for _ in range(episodes):
            streams: dict[str, Any] = dict(cameras)
            for key in windows.keys() - {"images"}:
                size = SIZES.get(key, actions)
                streams[key] = rng.normal(size=(frames, size)).astype(np.float32)
            writer.add_episode(streams, rate_hz=20.0)
    return target


def loader(policy: str, dataset: pathlib.Path, decode: str) -> kinograph.torch.Loader:
    """Make the loader of a policy."""
    model, _, windows, batch, resized, memory = POLICIES[policy]
    seen = dict.fromkeys(model.cameras, windows["images"])
    others = {key: steps for key, steps in windows.items() if key != "images"}
    return kinograph.torch.Loader(
        dataset,
        windows=seen | others,
        batch_size=batch,
        seed=7,
        shuffle=kinograph.Shuffle(fraction=0.1),
        last_batch="wrap",
        images=None if resized is None else kinograph.Images(size=(resized, resized)),
        memory=memory,
        device="cuda",
        decode=decode,
    )


def check(policy: str, dataset: pathlib.Path) -> int:
    """Compare some batches of GPU and CPU; return the largest difference of an image."""
    worst = 0
    with loader(policy, dataset, "cpu") as plain, loader(policy, dataset, "gpu") as other:
        pairs = zip(endless(plain), endless(other), strict=False)
        for wanted, found in itertools.islice(pairs, 12):
            for key, tensor in wanted.items():
                if tensor.dtype == torch.uint8:
                    difference = (tensor.short() - found[key].short()).abs().max()
                    worst = max(worst, int(difference))
                elif not torch.equal(tensor, found[key]):
                    sys.exit(f"error: `{key}` of {policy} differs")
    return worst


def run(batches: Iterator[Batch], train: Callable[[Batch], None], steps: int) -> dict[str, float]:
    """Train for some steps; the GPU is idle before and after."""
    waits = []
    torch.cuda.synchronize()
    cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - asked)
        train(batch)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return {
        "step_ms": seconds / steps * 1e3,
        "next_us_p50": statistics.median(waits) * 1e6,
        "next_us_p95": sorted(waits)[int(len(waits) * 0.95)] * 1e6,
        "cores_used": (time.process_time() - cpu) / seconds,
    }


def measure(
    policy: str, dataset: pathlib.Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train a policy from every feed, alternating with a batch that stays on the GPU."""
    torch.manual_seed(7)
    model = POLICIES[policy][0]().to("cuda", torch.bfloat16)
    for part in model.modules():
        if isinstance(part, torch.nn.LSTM):
            part.flatten_parameters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    forward = torch.compile(model) if options.compile else model

    def train(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        forward(batch).backward()
        optimizer.step()

    with loader(policy, dataset, "cpu") as one:
        batch = {key: tensor.clone() for key, tensor in next(iter(one)).items()}
    resident = itertools.repeat(batch)
    run(resident, train, WARM)
    steps = max(40, min(200, round(options.seconds / run(resident, train, 10)["step_ms"] * 1e3)))
    rows = []
    for decode in options.decode:
        with loader(policy, dataset, decode) as fed:
            batches = endless(fed)
            run(batches, train, WARM)
            alone = run(resident, train, steps // 2)
            row = run(batches, train, steps)
            report = fed.report()
        gpu = report.gpu_decode
        rows.append(
            {
                "policy": policy,
                "compiled": options.compile,
                "cores": len(os.sched_getaffinity(0)),
                "decode": decode,
                "resident_ms": round(alone["step_ms"], 3),
                "compute_ratio": round(alone["step_ms"] / row["step_ms"], 4),
                **{name: round(value, 3) for name, value in row.items()},
                "frames_decoded": report.frames_decoded,
                "engine": gpu and gpu.engine,
                "gpu_share": gpu and round(gpu.share, 3),
                "refused": gpu and gpu.refused,
                "nvjpeg_us_per_image": gpu and round(gpu.decode_s / max(1, gpu.decoded) * 1e6, 2),
                "largest_difference": gpu and gpu.largest_difference,
                "image_mb": gpu and round(gpu.peak_bytes / 1e6, 1),
            }
        )
        print(rows[-1], flush=True)
    return rows


def child(options: argparse.Namespace) -> None:
    """Measure on the cores of this process."""
    rows = []
    for policy in options.policy:
        rows += measure(policy, pack(policy, options.data), options)
    new = not options.csv.exists()
    with options.csv.open("a", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Compare, then measure in a process for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--decode", nargs="+", default=["cpu", "gpu"])
    parser.add_argument("--cores", nargs="+", type=int, default=list(CORES))
    parser.add_argument("--seconds", type=float, default=4.0, help="of steps per feed")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "target" / "bench")
    parser.add_argument(
        "--csv", type=pathlib.Path, default=ROOT / "bench" / "results" / "gpu_decode.csv"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    options.data.mkdir(parents=True, exist_ok=True)
    for policy in options.policy:
        begun = time.perf_counter()
        dataset = pack(policy, options.data)
        packed = time.perf_counter() - begun
        difference = check(policy, dataset)
        print(f"{policy}: packed in {packed:.0f} s; images differ by {difference} of 255 at most")
    available = sorted(os.sched_getaffinity(0))
    for cores in options.cores:
        # Children take over what this thread may use.
        os.sched_setaffinity(0, available[:cores])
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--child"], check=True)


if __name__ == "__main__":
    main()
