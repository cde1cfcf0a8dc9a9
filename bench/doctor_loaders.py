"""Is the doctor right about other loaders? `python bench/doctor_loaders.py [--seconds S]` plants bottlenecks.

Torch `DataLoader`s as people write them, over the sample recording of robomimic: windows of ten steps with two cameras from HDF5, plain
and gzip, and single frames from an MP4 file. Each has a known bottleneck. For each: the verdict of `kinograph.doctor`, the first change
that is an option of the `DataLoader`, and the compute ratio before, as predicted, and after it. Where the recording is
the same, a Kinograph loader runs in the same loop. The step is emulated. Windows are compared with those of Kinograph first. Writes
bench/results/doctor_loaders.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import sys
import tempfile
import time
import warnings
from fractions import Fraction
from typing import Any

import av
import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "data" / "lift_3demos.hdf5"
CAMERAS = ("obs/agentview_image", "obs/robot0_eye_in_hand_image")
KEYS = (*CAMERAS, "actions")
LENGTH, BATCH = 10, 16


class Windows(Dataset):
    """Ten consecutive steps of an HDF5 file, as robomimic's `SequenceDataset` without a cache; padded by the last step."""

    def __init__(self, path: pathlib.Path, open_s: float = 0.0, is_reopened: bool = False) -> None:
        self.path, self.open_s, self.is_reopened = path, open_s, is_reopened
        self.file: h5py.File | None = None
        with h5py.File(path) as file:
            demos = file["data"]
            self.anchors = [
                (name, at) for name in demos for at in range(len(demos[name]["actions"]))
            ]

    def __len__(self) -> int:
        return len(self.anchors)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if self.file is None or self.is_reopened:
            time.sleep(self.open_s)
            self.file = h5py.File(self.path)
        name, at = self.anchors[index]
        demo = self.file["data"][name]
        count = len(demo["actions"])
        rows = np.minimum(np.arange(at, at + LENGTH), count - 1)
        found = {key: demo[key][rows[0] : rows[-1] + 1] for key in KEYS}
        return {key: value[rows - rows[0]] for key, value in found.items()}


class Frames(Dataset):
    """Single frames of a video, by seeking."""

    def __init__(self, path: pathlib.Path, frames: int) -> None:
        self.path, self.frames = path, frames

    def __len__(self) -> int:
        return self.frames

    def __getitem__(self, index: int) -> np.ndarray:
        with av.open(self.path) as container:
            stream = container.streams.video[0]
            container.seek(int(index / 20 / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                if round(float(frame.pts * stream.time_base) * 20) >= index:
                    return frame.to_ndarray(format="rgb24")
        raise IndexError(index)


def floats(items: list[Any]) -> dict[str, torch.Tensor]:
    """Convert to floats, CHW and normalized, in float64 as numpy does it unless told otherwise."""
    batch = default_collate(items)
    for key in CAMERAS:
        images = batch[key].numpy() / 255.0
        images = (images - images.mean((0, 1, 2, 3))) / images.std((0, 1, 2, 3))
        batch[key] = torch.from_numpy(np.moveaxis(images, -1, 2).astype(np.float32))
    return batch


def objects(items: list[Any]) -> list[Any]:
    """Return the numpy arrays as they are: torch passes only tensors through shared memory."""
    return items


def write_gzip(source: pathlib.Path, target: pathlib.Path) -> None:
    """Compress the images, in chunks of one demo, as `h5repack -f GZIP=9` may do it."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:
        for name, demo in old["data"].items():
            for key in KEYS:
                frames = demo[key][()]
                packed = {"compression": "gzip", "chunks": frames.shape} if key in CAMERAS else {}
                new.create_dataset(f"data/{name}/{key}", data=frames, **packed)


def write_video(source: pathlib.Path, target: pathlib.Path) -> int:
    """Write all demos as one video with a keyframe per 40 frames; returns its frames."""
    count = 0
    with h5py.File(source) as file, av.open(target, "w") as container:
        stream = container.add_stream("mpeg4", rate=20)
        stream.width, stream.height, stream.pix_fmt = 336, 336, "yuv420p"
        stream.codec_context.gop_size = 40
        stream.time_base = Fraction(1, 20)
        for demo in file["data"].values():
            for image in demo[CAMERAS[0]][()]:
                large = image.repeat(4, axis=0).repeat(4, axis=1)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(large, format="rgb24")))
                count += 1
        container.mux(stream.encode())
    return count


def check(dataset: Windows, packed: kinograph.Dataset) -> None:
    """Compare some windows with those of Kinograph."""
    samples = packed.samples({key: range(LENGTH) for key in KEYS}, anchor="actions")
    assert len(samples) == len(dataset)
    for index in range(0, len(dataset), 7):
        ours, theirs = samples[index], dataset[index]
        for key in KEYS:
            images = ours[key]
            if key in CAMERAS and images.shape != theirs[key].shape:
                images = np.moveaxis(images, -3, -1)
            np.testing.assert_array_equal(images, theirs[key])
    dataset.file = None


def cases(folder: pathlib.Path) -> list[tuple[str, DataLoader[Any], float, set[str]]]:
    """Build the loaders: what is slow, the loader, the step in seconds, and the acceptable causes."""
    write_gzip(RECORDING, folder / "gzip.hdf5")
    frames = write_video(RECORDING, folder / "a.mp4")
    plain, gzip = Windows(RECORDING), Windows(folder / "gzip.hdf5")
    mount = Windows(RECORDING, open_s=0.01, is_reopened=True)
    video = Frames(folder / "a.mp4", frames)

    def loader(dataset: Dataset[Any], workers: int, **options: Any) -> DataLoader[Any]:  # noqa: ANN401
        return DataLoader(
            dataset, batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True, **options
        )

    computing = {"decode", "workers"}
    return [
        ("HDF5, no workers", loader(plain, 0), 0.03, {"workers"}),
        ("HDF5 with gzip, 2 workers", loader(gzip, 2), 0.01, computing),
        ("video, 2 workers", loader(video, 2), 0.01, computing),
        ("opens that take 10 ms, 2 workers", loader(mount, 2), 0.01, {"storage"}),
        ("floats in collate_fn, 2 workers", loader(plain, 2, collate_fn=floats), 0.01, {"collate", "workers"}),
        ("numpy arrays from 1 worker", loader(plain, 1, collate_fn=objects), 0.001, {"transfer"}),
        ("HDF5, a step of 200 ms", loader(plain, 2), 0.2, {"slow_step", "nothing", "worker_start"}),
    ]  # fmt: skip


def applied(loader: DataLoader[Any], remedy: object) -> DataLoader[Any] | None:
    """Return the loader after a change, or None if it is not an option of it."""
    name, value = next(iter(remedy.items())) if isinstance(remedy, dict) else (str(remedy), True)
    if name not in ("num_workers", "prefetch_factor", "persistent_workers"):
        return None
    options: dict[str, Any] = {"num_workers": loader.num_workers, name: value}
    return DataLoader(
        loader.dataset, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=loader.collate_fn, **options
    )  # fmt: skip


def main() -> None:
    """Examine every loader."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    # More workers than cores are what some changes ask for.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        kinograph.pack(RECORDING, folder / "lift.kino")
        packed = kinograph.open(folder / "lift.kino")
        check(Windows(RECORDING), packed)
        windows = {key: range(LENGTH) for key in KEYS}
        for slow, loader, step_s, right in cases(folder):
            is_same = isinstance(loader.dataset, Windows)
            other = {"dataset": packed, "windows": windows, "anchor": "actions"} if is_same else {}
            found = kinograph.doctor(loader, step_s=step_s, seconds=seconds, **other)
            changes = json.loads(found.to_json())["changes"]
            options = [one for one in changes if applied(loader, one["remedy"]) is not None]
            change = (options or changes)[0]
            after = applied(loader, change["remedy"])
            again = after and kinograph.doctor(after, step_s=step_s, seconds=seconds).compute_ratio
            moved = found.evidence["kinograph"]
            row = {
                "loader": slow,
                "step_ms": step_s * 1e3,
                "cause": found.cause,
                "right": found.cause in right,
                "compute_ratio": round(found.compute_ratio, 3),
                "change": change["how"],
                "predicted": round(change["compute_ratio"], 3),
                "after": "" if again is None else round(again, 3),
                "kinograph": round(moved["fed"]["compute_ratio"], 3) if moved else "",
                "cpu_ms_per_sample": round(found.evidence["whole"]["cpu_s"] / BATCH * 1e3, 3),
                "kinograph_cpu_ms_per_sample": round(moved["whole"]["cpu_s"] / moved["whole"]["samples"] * 1e3, 3) if moved else "",
            }  # fmt: skip
            rows.append(row)
            print(*row.values(), sep="  ", flush=True)
    result = ROOT / "bench" / "results" / "doctor_loaders.csv"
    with result.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    wrong = [row["loader"] for row in rows if not row["right"]]
    if wrong:
        sys.exit(f"error: wrong diagnosis for: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
