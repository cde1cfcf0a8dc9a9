"""Does a GPU wait for video if few CPU cores decode it, and if it decodes it itself? `python bench/gpu_video.py`, with CUDA.

ACT (policies/models.py) is trained from H.264 of two cameras, 480 x 640, with `decode="cpu"` and `"gpu"`, on 16, 4, 2 and 1 cores (a process
for each number, which may use no other core). Every frame is decoded in every epoch: memory is for a part of them.

    g2     groups of two frames, as LeRobot writes video
    g30    groups of thirty: a fraction of the bytes

    compute ratio    step time with a batch that stays on the GPU / step time of this feed, in the same process
    next us          how long the loop was in `next`: median
    cores used       CPU time of the process / time

Before anything is timed, batches of GPU and CPU are compared: every pixel must be equal. The datasets are packed first, which needs
PyAV; `--pack-only` ends there, and `--data` names a folder with what was packed elsewhere. Writes bench/results/gpu_video.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "policies"))

import numpy as np
import torch
from gpu_decode import run
from models import Act, Batch
from transfer import endless, images

import kinograph
import kinograph.torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = (16, 4, 2, 1)
WARM = 15
EPISODES, FRAMES, HEIGHT, WIDTH = 24, 60, 480, 640
BATCH = 32
#: What a loader may keep: a part of the frames.
MEMORY = "700MB"
GROUPS = {"g2": 2, "g30": 30}


def write_video(path: pathlib.Path, shots: np.ndarray, group: int) -> None:
    """Write the frames of all episodes."""
    import av  # noqa: PLC0415 (only to pack)

    path.parent.mkdir(parents=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=20, options={"g": str(group), "crf": "23"})
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        for t in range(EPISODES * FRAMES):
            frame = av.VideoFrame.from_ndarray(shots[t % FRAMES], format="rgb24")
            frame.pts = t
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def pack(kind: str, folder: pathlib.Path) -> pathlib.Path:
    """Pack a LeRobot dataset whose videos are stored as they are."""
    target = folder / f"gpu_video_{kind}.kino"
    if target.exists():
        return target
    import pyarrow as pa  # noqa: PLC0415 (only to pack)
    import pyarrow.parquet as pq  # noqa: PLC0415 (only to pack)

    total, rng = EPISODES * FRAMES, np.random.default_rng(0)
    frame = list(range(FRAMES)) * EPISODES
    vectors = pa.list_(pa.float32())
    columns = {
        "timestamp": pa.array([t / 20 for t in frame], pa.float32()),
        "frame_index": pa.array(frame, pa.int64()),
        "episode_index": pa.array(np.repeat(np.arange(EPISODES), FRAMES), pa.int64()),
        "index": pa.array(range(total), pa.int64()),
        "task_index": pa.array([0] * total, pa.int64()),
        "actions": pa.array(list(rng.normal(size=(total, 14)).astype(np.float32)), vectors),
        "observations/qpos": pa.array(
            list(rng.normal(size=(total, 14)).astype(np.float32)), vectors
        ),
    }
    episodes: dict[str, Any] = {
        "episode_index": list(range(EPISODES)),
        "tasks": [["pour"]] * EPISODES,
        "length": [FRAMES] * EPISODES,
        "data/chunk_index": [0] * EPISODES,
        "data/file_index": [0] * EPISODES,
    }
    features = {}
    with tempfile.TemporaryDirectory() as source:
        root = pathlib.Path(source)
        for camera in Act.cameras:
            features[camera] = {"dtype": "video", "shape": [HEIGHT, WIDTH, 3]}
            starts = [nr * FRAMES / 20 for nr in range(EPISODES + 1)]
            episodes[f"videos/{camera}/chunk_index"] = [0] * EPISODES
            episodes[f"videos/{camera}/file_index"] = [0] * EPISODES
            episodes[f"videos/{camera}/from_timestamp"] = starts[:-1]
            episodes[f"videos/{camera}/to_timestamp"] = starts[1:]
            video = root / f"videos/{camera}/chunk-000/file-000.mp4"
            write_video(video, images(rng, FRAMES, HEIGHT, WIDTH), GROUPS[kind])
        info = {
            "codebase_version": "v3.0",
            "fps": 20,
            "features": features,
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        }
        for part in ("meta/episodes/chunk-000", "data/chunk-000"):
            (root / part).mkdir(parents=True)
        pq.write_table(pa.table(columns), root / "data/chunk-000/file-000.parquet")
        pq.write_table(pa.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
        pq.write_table(pa.table({"task_index": [0], "task": ["pour"]}), root / "meta/tasks.parquet")
        (root / "meta/info.json").write_text(json.dumps(info))
        kinograph.pack(root, target)
    return target


def loader(dataset: pathlib.Path, decode: str) -> kinograph.torch.Loader:
    """Make the loader of the policy."""
    seen = dict.fromkeys(Act.cameras, range(1))
    return kinograph.torch.Loader(
        dataset,
        windows=seen | {"observations/qpos": range(1), "actions": range(100)},
        batch_size=BATCH,
        seed=7,
        shuffle=kinograph.Shuffle(fraction=0.1),
        last_batch="wrap",
        memory=MEMORY,
        device="cuda",
        decode=decode,
    )


def check(dataset: pathlib.Path) -> None:
    """Compare an epoch of GPU and CPU: nothing may differ."""
    with loader(dataset, "cpu") as plain, loader(dataset, "gpu") as other:
        for number, (wanted, found) in enumerate(zip(plain, other, strict=True)):
            for key, tensor in wanted.items():
                if not torch.equal(tensor, found[key]):
                    sys.exit(f"error: `{key}` of batch {number} of {dataset} differs")
        video = other.report().gpu_decode.video
    print(f"{dataset.name}: {number + 1} batches are equal; {video}", flush=True)
    if video.decoded == 0:
        sys.exit("error: the GPU decoded nothing")


def measure(kind: str, dataset: pathlib.Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train the policy from every feed, alternating with a batch that stays on the GPU."""
    torch.manual_seed(7)
    model = Act().to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def train(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        model(batch).backward()
        optimizer.step()

    with loader(dataset, "cpu") as one:
        batch = {key: tensor.clone() for key, tensor in next(iter(one)).items()}
    resident = itertools.repeat(batch)
    run(resident, train, WARM)
    steps = max(40, min(200, round(options.seconds / run(resident, train, 10)["step_ms"] * 1e3)))
    rows = []
    for decode in options.decode:
        with loader(dataset, decode) as fed:
            batches = endless(fed)
            run(batches, train, WARM)
            alone = run(resident, train, steps // 2)
            row = run(batches, train, steps)
            report = fed.report()
        gpu = report.gpu_decode
        video = gpu and gpu.video
        rows.append(
            {
                "video": kind,
                "memory": MEMORY,
                "cores": len(os.sched_getaffinity(0)),
                "decode": decode,
                "resident_ms": round(alone["step_ms"], 3),
                "compute_ratio": round(alone["step_ms"] / row["step_ms"], 4),
                **{name: round(value, 3) for name, value in row.items()},
                "frames_decoded": report.frames_decoded,
                "gpu_share": gpu and round(gpu.share, 3),
                "gpu_decoded": video and video.decoded,
                "gpu_refused": video and video.refused,
                "engines": video and video.engines,
                "nvdec_us_per_frame": video
                and round(video.decode_s / max(1, video.decoded) * 1e6, 1),
                "cpu_us_per_frame": video and video.cpu_s and round(video.cpu_s * 1e6, 1),
                "gpu_us_per_frame": video and video.gpu_s and round(video.gpu_s * 1e6, 1),
                "image_mb": gpu and round(gpu.peak_bytes / 1e6, 1),
                "decoder_mb": video and round(video.decoder_bytes / 1e6, 1),
            }
        )
        print(rows[-1], flush=True)
    return rows


def child(options: argparse.Namespace) -> None:
    """Measure on the cores of this process."""
    rows = []
    for kind in options.video:
        rows += measure(kind, pack(kind, options.data), options)
    new = not options.csv.exists()
    with options.csv.open("a", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Compare, then measure in a process for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--video", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--decode", nargs="+", default=["cpu", "gpu"])
    parser.add_argument("--cores", nargs="+", type=int, default=list(CORES))
    parser.add_argument("--seconds", type=float, default=4.0, help="of steps per feed")
    parser.add_argument("--pack-only", action="store_true", help="only write the datasets")
    parser.add_argument("--check-only", action="store_true", help="only compare batches")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "target" / "bench")
    parser.add_argument(
        "--csv", type=pathlib.Path, default=ROOT / "bench" / "results" / "gpu_video.csv"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    options.data.mkdir(parents=True, exist_ok=True)
    datasets = [pack(kind, options.data) for kind in options.video]
    if options.pack_only:
        return
    for dataset in datasets:
        check(dataset)
    if options.check_only:
        return
    available = sorted(os.sched_getaffinity(0))
    for cores in options.cores:
        # Children take over what this thread may use.
        os.sched_setaffinity(0, available[:cores])
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--child"], check=True)


if __name__ == "__main__":
    main()
