"""Several encodings of a camera: a progressive JPEG that is read in part, or a stream per quality?

    python bench/variants.py encodings RECORDING...     sizes, bytes read, decode CPU, PSNR of each level

``encodings`` writes every 10th image of each camera as one progressive JPEG, whose first scans are a cheap variant, and
as baseline JPEG of several qualities, which are separate streams. Decoding is Pillow's, which is libjpeg-turbo, the
library of the codec `jpeg`; a prefix is decoded like a file that ends after its last complete scan. CPU time is the process's, the
least of several rounds.

The results are added to bench/results/variants.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image, ImageFile, features

RESULTS = Path(__file__).parent / "results"
QUALITIES = (90, 60, 30)
ROUNDS = 5
EVERY = 10
COLUMNS = ("recording", "images", "kept_as", "level", "stored_bytes", "read_bytes", "decode_cpu_ms", "psnr_db")
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    encodings = commands.add_parser("encodings", help="progressive JPEG against separate streams")
    encodings.add_argument("recordings", nargs="+", type=Path)
    args = parser.parse_args()
    if not features.check_feature("libjpeg_turbo"):
        raise SystemExit("this Pillow was built without libjpeg-turbo; its speed says nothing about kinograph's")
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
    streams = {quality: [encode(image, quality, progressive=False) for image in images] for quality in QUALITIES}
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
    Image.fromarray(image).save(out, "jpeg", quality=quality, progressive=progressive, subsampling=0, optimize=True)
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


def mean_bytes(files: list[bytes]) -> int:
    """Give the mean length."""
    return round(sum(map(len, files)) / len(files))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    main()
