"""Where to materialise images that training resizes: bytes, CPU time to pack and samples per CPU second of every split point.

    python bench/split_points.py aloha/episode_100steps_480x640.hdf5 --size 224x224 --csv bench/results/split_points.csv

Every split point is packed for real and loaded for one epoch, one frame of every camera per sample, as float32 of `--size`. Figures are CPU time of all threads, because others may use the machine, and the least of several runs,
start of the loader included. Answers are checked: what is lossless gives the batches of the recording as it is, bit for bit, these are within a
level of Pillow's, and the others are as close as their error says.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np
from PIL import Image

import kinograph
import kinograph.numpy

POINTS = {
    "as recorded": "",
    "decoded": '[[stream]]\nkind = "image"\ncodec = "raw"\n',
    "resized, lossless": '[[stream]]\nkind = "image"\nresize = [{height}, {width}]\n',
    "resized, jpeg:q=95": '[[stream]]\nkind = "image"\nresize = [{height}, {width}]\ncodec = "jpeg:q=95"\n',
    "resized, raw": '[[stream]]\nkind = "image"\nresize = [{height}, {width}]\ncodec = "raw"\n',
}
NORMALISED = "normalised float32"

#: An epoch is short: so many for each run, and the one that was disturbed least counts.
EPOCHS = 5


def cpu_s(who: int) -> float:
    """CPU seconds so far, in user mode and in the kernel."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def pack(source: pathlib.Path, target: pathlib.Path, plan: str) -> float:
    """Pack a recording with a plan, in a process of its own; its CPU seconds."""
    toml = target.with_suffix(".toml")
    toml.write_text(plan)
    before = cpu_s(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-m",
        "kinograph",
        "pack",
        str(source),
        str(target),
        "--plan",
        str(toml),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return cpu_s(resource.RUSAGE_CHILDREN) - before


def pack_normalised(resized: pathlib.Path, target: pathlib.Path) -> float:
    """Store the resized images as float32 between 0 and 1; CPU seconds, reading included."""
    before = cpu_s(resource.RUSAGE_SELF)
    ds = kinograph.open(resized)
    cameras = names(ds)
    plan = {"stream": [{"match": name, "codec": "raw"} for name in cameras]}
    with kinograph.Writer(target, plan=plan) as writer:
        for episode in ds:
            streams = {name: episode[name][:] for name in ds.streams}
            for name in cameras:
                streams[name] = streams[name].astype(np.float32) / np.float32(255)
            kinds = dict.fromkeys(cameras, "vector")
            times = {name: episode[name].timestamps_ns for name in streams}
            writer.add_episode(streams, timestamps_ns=times, id=episode.id, kinds=kinds)
    return cpu_s(resource.RUSAGE_SELF) - before


def names(ds: kinograph.Dataset) -> list[str]:
    """Give the streams of cameras."""
    return [name for name, stream in ds.streams.items() if stream.kind == "image"]


def load(
    path: pathlib.Path, cameras: list[str], size: tuple[int, int], dtype: str, **how: object
) -> kinograph.numpy.Loader:
    """Make the loader of the training loop; what is stored as float32 is delivered so."""
    ds = kinograph.open(path)
    images = {"images": {"size": size, "dtype": dtype}} if names(ds) else {}
    windows = dict.fromkeys(cameras, 0)
    return kinograph.numpy.Loader(
        ds, windows=windows, batch_size=16, drop_last=False, **images, **how
    )


def epoch(path: pathlib.Path, cameras: list[str], size: tuple[int, int]) -> tuple[float, int]:
    """CPU seconds of an epoch in which every frame is decoded once, and its samples."""
    before = time.process_time()
    samples = 0
    with load(path, cameras, size, "float32", seed=1) as loader:
        for batch in loader:
            samples += len(batch[cameras[0]])
    return time.process_time() - before, samples


def batches(path: pathlib.Path, cameras: list[str], size: tuple[int, int]) -> dict[str, np.ndarray]:
    """All frames in order, as they come out of the loader."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in cameras}
    with load(path, cameras, size, "uint8", shuffle=False) as loader:
        for batch in loader:
            for name in cameras:
                found[name].append(batch[name])
    return {name: np.concatenate(parts) for name, parts in found.items()}


def check_source(source: pathlib.Path, found: dict[str, np.ndarray], size: tuple[int, int]) -> None:
    """Compare the frames of the first camera with Pillow's."""
    (name, frames) = next(iter(found.items()))
    with h5py.File(source) as file:
        group = file if name in file else file["data/demo_0"]
        recorded = (
            group[name][()] if group[name].dtype == np.uint8 and group[name].ndim == 4 else None
        )
    if recorded is None:
        return
    for image, frame in zip(frames, recorded, strict=False):
        wanted = Image.fromarray(frame).resize(size[::-1], Image.Resampling.BILINEAR)
        if np.abs(np.asarray(wanted).astype(int) - image).max() > 1:
            sys.exit(f"{name} is not what Pillow makes of it")


def check(name: str, found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """Compare with the batches of the recording as it is; the worst PSNR in dB, infinite if they are equal."""
    worst = np.inf
    for stream, frames in found.items():
        exact = wanted[stream]
        if name == NORMALISED:
            if not np.array_equal(frames, exact.astype(np.float32) / np.float32(255)):
                sys.exit(f"{name}: {stream} differs")
        elif name.endswith("jpeg:q=95"):
            error = np.mean((frames.astype(float) - exact) ** 2)
            worst = min(worst, 10 * np.log10(255**2 / max(error, 1e-9)))
            if worst < 30:
                sys.exit(f"{name}: {stream} has {worst:.1f} dB")
        elif not np.array_equal(frames, exact):
            sys.exit(f"{name}: {stream} differs")
    return float(worst)


def measure(
    source: pathlib.Path, size: tuple[int, int], args: argparse.Namespace
) -> list[dict[str, object]]:
    """Pack, check and load every split point of a recording."""
    rows: list[dict[str, object]] = []
    wanted: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for number, name in enumerate([*POINTS, NORMALISED]):
            packed = []
            for run in range(args.repeat):
                path = pathlib.Path(folder) / f"{number}-{run}.kino"
                if name == NORMALISED:
                    packed.append(pack_normalised(pathlib.Path(folder) / "4-0.kino", path))
                else:
                    plan = POINTS[name].format(height=size[0], width=size[1])
                    packed.append(pack(source, path, plan))
            ds = kinograph.open(path)
            cameras = names(kinograph.open(pathlib.Path(folder) / "0-0.kino"))
            found = batches(path, cameras, size)
            if not wanted:
                wanted = found
                check_source(source, found, size)
            psnr = check(name, found, wanted)
            epochs = [epoch(path, cameras, size) for _ in range(EPOCHS * args.repeat)]
            used, samples = min(epochs)
            rows.append(
                {
                    "recording": source.name,
                    "size": f"{size[0]}x{size[1]}",
                    "split_point": name,
                    "codecs": " ".join(sorted({ds.streams[one].codecs[0] for one in cameras})),
                    "bytes": sum(stream.bytes for stream in ds.streams.values()),
                    "pack_cpu_s": round(min(packed), 3),
                    "cpu_ms_per_sample": round(1e3 * used / samples, 4),
                    "samples_per_cpu_s": round(samples / used, 1),
                    "psnr_db": "" if np.isinf(psnr) else round(psnr, 1),
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure all recordings and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path, nargs="+")
    parser.add_argument("--size", default="224x224", help="height and width that training uses")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    parser.add_argument("--csv", type=pathlib.Path, default=None)
    args = parser.parse_args()
    height, width = map(int, args.size.split("x"))
    rows = [row for source in args.source for row in measure(source, (height, width), args)]
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
