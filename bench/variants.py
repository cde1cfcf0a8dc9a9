"""Several encodings of a camera: a progressive JPEG that is read in part, against a stream per quality.

    python bench/variants.py encodings RECORDING...     sizes, bytes read, decode CPU, PSNR of each level
    python bench/variants.py regimens RECORDING...      bytes read and samples per CPU second of loaders

``encodings`` writes every 10th image of each camera as one progressive JPEG, whose first scans are a cheap variant, and
as baseline JPEG of several qualities, which are separate streams. Decoding is Pillow's, which is libjpeg-turbo, the
library of the codec `jpeg`; a prefix is decoded like a file that ends after its last complete scan. CPU time is the process's, the
least of several rounds.

``regimens`` packs each recording with a fine and a cheap JPEG stream of every camera and trains nothing on it for some
epochs: with the fine streams, with the cheap ones, and with the cheap ones for the first half of the epochs. Rounds are
interleaved, and the best counts. The loaders keep hardly anything in memory, as with a dataset that is larger than it, and
the last batch is compared with the stored streams.

The results are written to bench/results/variants.csv and variants_regimens.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image, ImageFile, features

import kinograph
import kinograph.numpy

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
OUT = ROOT / "target" / "bench" / "variants"
QUALITIES = (90, 60, 30)
ROUNDS = 5
EVERY = 10
COLUMNS = (
    "recording",
    "images",
    "kept_as",
    "level",
    "stored_bytes",
    "read_bytes",
    "decode_cpu_ms",
    "psnr_db",
)
REGIMEN_COLUMNS = (
    "recording",
    "read",
    "epochs",
    "read_mb_per_epoch",
    "samples_per_cpu_s",
)
EPOCHS = 6
FINE, CHEAP = "jpeg:q=90", "jpeg:q=30"
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    encodings = commands.add_parser("encodings", help="progressive JPEG against separate streams")
    encodings.add_argument("recordings", nargs="+", type=Path)
    regimens = commands.add_parser("regimens", help="one quality against a regimen")
    regimens.add_argument("recordings", nargs="+", type=Path)
    args = parser.parse_args()
    if args.command == "regimens":
        rows = [row for path in args.recordings for row in measure_regimens(path)]
        write(RESULTS / "variants_regimens.csv", REGIMEN_COLUMNS, rows)
        return
    if not features.check_feature("libjpeg_turbo"):
        raise SystemExit(
            "this Pillow was built without libjpeg-turbo; its speed says nothing about kinograph's"
        )
    rows = [row for path in args.recordings for row in measure_encodings(path)]
    write(RESULTS / "variants.csv", COLUMNS, rows)


def write(path: Path, columns: tuple[str, ...], rows: list[dict[str, object]]) -> None:
    """Write the results as CSV, and print them."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(*(row[column] for column in columns))


def measure_encodings(path: Path) -> Iterator[dict[str, object]]:
    """Encode the images of a recording in both ways; all figures are means per image."""
    images = list(read_images(path))
    progressive = [encode(image, QUALITIES[0], progressive=True) for image in images]
    scans = min(len(scan_ends(file)) for file in progressive)
    # The first scan alone, the first approximation of all coefficients, and all.
    for level in (1, 5, scans):
        prefixes = [prefix(file, level) for file in progressive]
        yield {
            "recording": path.stem,
            "images": len(images),
            "kept_as": f"progressive q{QUALITIES[0]}",
            "level": f"{level} of {scans} scans",
            "stored_bytes": mean_bytes(progressive),
            "read_bytes": mean_bytes(prefixes),
            **quality_and_cost(images, prefixes),
        }
    streams = {
        quality: [encode(image, quality, progressive=False) for image in images]
        for quality in QUALITIES
    }
    stored = sum(mean_bytes(files) for files in streams.values())
    for quality, files in reversed(streams.items()):
        yield {
            "recording": path.stem,
            "images": len(images),
            "kept_as": "streams",
            "level": f"baseline q{quality}",
            "stored_bytes": stored,
            "read_bytes": mean_bytes(files),
            **quality_and_cost(images, files),
        }


def read_images(path: Path) -> Iterator[Pixels]:
    """Give every 10th image of each camera of an HDF5 recording."""
    cameras: list[h5py.Dataset] = []
    with h5py.File(path) as file:

        def visit(name: str, item: object) -> None:
            is_camera = isinstance(item, h5py.Dataset) and item.ndim == 4 and "next_obs" not in name
            if is_camera:
                cameras.append(item)

        file.visititems(visit)
        for camera in cameras:
            yield from camera[::EVERY]


def encode(image: Pixels, quality: int, *, progressive: bool) -> bytes:
    """Write a JPEG with all of the chroma, as the codec `jpeg` does by default."""
    out = io.BytesIO()
    Image.fromarray(image).save(
        out, "jpeg", quality=quality, progressive=progressive, subsampling=0, optimize=True
    )
    return out.getvalue()


def scan_ends(file: bytes) -> list[int]:
    """Find where each scan of a JPEG ends: the offset of the marker that follows its entropy-coded data."""
    ends, at, in_scan = [], 2, False
    while at < len(file):
        if file[at] != 0xFF or file[at + 1] == 0 or 0xD0 <= file[at + 1] <= 0xD7:
            at += 1
            continue
        if in_scan:
            ends.append(at)
        marker = file[at + 1]
        if marker == 0xD9:
            break
        in_scan = marker == 0xDA
        at += 2 + int.from_bytes(file[at + 2 : at + 4], "big")
    # Tables between scans belong to the scan after them.
    return ends


def prefix(file: bytes, scans: int) -> bytes:
    """Cut a progressive JPEG after some of its scans."""
    ends = scan_ends(file)
    return file[: ends[scans - 1]] + b"\xff\xd9" if scans < len(ends) else file


def decode(file: bytes) -> Pixels:
    """Decode a JPEG with libjpeg-turbo."""
    return np.asarray(Image.open(io.BytesIO(file)))


def quality_and_cost(images: list[Pixels], files: list[bytes]) -> dict[str, object]:
    """Decode all files several times; the CPU time is that of the fastest round."""
    squared, values = 0.0, 0
    for image, file in zip(images, files, strict=True):
        error = decode(file).astype(np.float64) - image
        squared, values = squared + float((error * error).sum()), values + image.size
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for file in files:
            decode(file)
        times.append(time.process_time() - began)
    psnr = 10 * math.log10(255 * 255 * values / squared) if squared else math.inf
    return {
        "decode_cpu_ms": round(min(times) * 1000 / len(files), 3),
        "psnr_db": round(psnr, 1),
    }


def measure_regimens(path: Path) -> Iterator[dict[str, object]]:
    """Load a recording with each regimen."""
    packed = OUT / f"{path.stem}.kino"
    shutil.rmtree(packed, ignore_errors=True)
    rules = [
        {"kind": "image", "codec": FINE},
        {"kind": "image", "variant": "cheap", "codec": CHEAP},
    ]
    kinograph.pack(path, packed, plan={"stream": rules})
    dataset = kinograph.open(packed)
    regimens: dict[str, Any] = {
        "fine": None,
        "cheap": {"**": "cheap"},
        f"cheap, fine from epoch {EPOCHS // 2}": {"**": {0: "cheap", EPOCHS // 2: None}},
    }
    best: dict[str, dict[str, float]] = {}
    for _ in range(ROUNDS):
        for name, variants in regimens.items():
            found = load(dataset, variants)
            if name not in best or found["samples_per_cpu_s"] > best[name]["samples_per_cpu_s"]:
                best[name] = found
    for name, found in best.items():
        shown = {key: round(value, 3) for key, value in found.items()}
        yield {"recording": path.stem, "read": name, "epochs": EPOCHS} | shown


def load(dataset: kinograph.Dataset, variants: Any) -> dict[str, float]:  # noqa: ANN401 (as a loader takes them)
    """Go through the epochs of a loader of all cameras."""
    streams = dataset.streams.items()
    cameras = [
        name
        for name, one in streams
        if one.kind == "image" and one.variant_of is None and "next" not in name
    ]
    loader = kinograph.numpy.Loader(
        dataset,
        windows={name: [0] for name in cameras},
        include=["episode", "frame"],
        variants=variants,
        batch_size=16,
        shuffle="global",
        memory="1MB",
        threads=1,
        cpu=None,
        seed=1,
    )
    with loader:
        cpu, samples = time.process_time(), 0
        for epoch in range(EPOCHS):
            for batch in loader:
                samples += len(batch["frame"])
                if epoch == EPOCHS - 1:
                    last = batch
        cpu = time.process_time() - cpu
        report = loader.report()
    is_cheap = variants == {"**": "cheap"}
    check(dataset, last, cameras, "@cheap" if is_cheap else "")
    read = next(stage.bytes for stage in report.stages if stage.name == "fetch")
    return {
        "read_mb_per_epoch": read / 1e6 / EPOCHS,
        "samples_per_cpu_s": samples / cpu,
    }


def check(
    dataset: kinograph.Dataset, batch: dict[str, Any], cameras: list[str], suffix: str
) -> None:
    """Compare a batch with the stored streams."""
    for row, (episode, frame) in enumerate(
        zip(batch["episode_index"], batch["frame"], strict=True)
    ):
        for name in cameras:
            if not np.array_equal(
                batch[name][row, 0], dataset[int(episode)][name + suffix][int(frame)]
            ):
                raise SystemExit(
                    f"{name} of episode {episode}, frame {frame} differs from {name}{suffix}"
                )


def mean_bytes(files: list[bytes]) -> int:
    """Give the mean length."""
    return round(sum(map(len, files)) / len(files))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    main()
