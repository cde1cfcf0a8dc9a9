"""How stored bytes become throughput: one recording, many codecs, three kinds of storage.

    python bench/compression.py                 # measures; writes bench/results/compression.csv
    python bench/compression.py --tables        # makes the tables of docs/measurements/compression.md from that file
    python bench/compression.py --only lossless 'WebP 75' --csv two_cores.csv    # a few codecs, on another machine

The cameras of the sample recording are stored raw, with general codecs (zstd, and zlib's five strategies as foreign codecs),
lossless, and as JPEG and WebP of falling quality; everything else as by default. Per codec and storage: the bytes of the cameras,
the loader alone (samples/s, CPU time), and, for codecs of images on a machine with CUDA, the compute ratio of the training
loop of ``bench/scenarios.py``. Memory holds a quarter of the decoded frames; an epoch and a half goes before all times.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import pathlib
import statistics
import time
import zlib
from collections.abc import Iterable

import numpy as np
import torch
from gpu import CAMERAS, ROOT, endless
from scenarios import BATCH, FIRST, STEPS, check_loader, loader, measure, pack

import kinograph

RESULTS = ROOT / "bench" / "results" / "compression.csv"
STORAGES = {"page cache": None, "500 MB/s": "500MB/s,1ms", "100 MB/s, 8 ms": "100MB/s,8ms"}
QUALITIES = {"JPEG": (95, 85, 75, 50, 25, 10), "WebP": (95, 75, 25)}
# Samples of the dataset that the time budgets are computed for: about 140 hours at 20 Hz.
SAMPLES = 10_000_000
HOURS = (10,)
# Byte budgets, as shares of the lossless cameras.
SHARES = (0.5, 0.25, 0.1)


class Zlib:
    """Deflate at level 6, with one of zlib's strategies."""

    lossless = True

    def __init__(self, name: str, strategy: int) -> None:
        self.name, self.strategy = f"zlib-{name}", strategy

    def encode(self, frames: np.ndarray) -> bytes:
        """Compress frames; the shape comes first."""
        maker = zlib.compressobj(6, zlib.DEFLATED, 15, 8, self.strategy)
        shape = np.array(frames.shape, "<u4").tobytes()
        return bytes([frames.ndim]) + shape + maker.compress(frames.tobytes()) + maker.flush()

    def decode(self, data: bytes) -> np.ndarray:
        """Decompress frames."""
        end = 1 + 4 * data[0]
        shape = np.frombuffer(data[1:end], "<u4")
        return np.frombuffer(zlib.decompress(data[end:]), np.uint8).reshape(shape)

    def suits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Take bytes only."""
        return dtype == "uint8"


def general() -> dict[str, str]:
    """Name the codecs that know nothing of images."""
    strategies = {
        "default": zlib.Z_DEFAULT_STRATEGY,
        "filtered": zlib.Z_FILTERED,
        "huffman": zlib.Z_HUFFMAN_ONLY,
        "rle": zlib.Z_RLE,
        "fixed": zlib.Z_FIXED,
    }
    codecs = {f"zstd {level}": f"zstd:level={level}" for level in (1, 3, 9)}
    for name, strategy in strategies.items():
        codecs[f"zlib {name}"] = kinograph.register_codec(Zlib(name, strategy))
    return {"raw": "raw", **codecs}


def images() -> dict[str, str]:
    """Name the codecs of images, the finest first."""
    codecs = {"lossless": "camera"}
    forms = {"JPEG": "jpeg:q={},sub=420", "WebP": "external:name=webp-{}"}
    for name, qualities in QUALITIES.items():
        codecs |= {f"{name} {quality}": forms[name].format(quality) for quality in qualities}
    return codecs


def alone(dataset: kinograph.Dataset) -> dict[str, float]:
    """Time the loader alone, in host memory, after its first batches."""
    with loader(dataset, device=None) as one:
        batches = endless(one)
        _take(batches, FIRST)
        rates, cpu_s = [], time.process_time()
        for _ in range(3):
            began = time.perf_counter()
            _take(batches, STEPS)
            rates.append(STEPS * BATCH / (time.perf_counter() - began))
        cpu_s = time.process_time() - cpu_s
    return {
        "samples_per_s": round(statistics.median(rates), 1),
        "cpu_ms_per_sample": round(cpu_s / (3 * STEPS * BATCH) * 1e3, 4),
    }


def _take(batches: Iterable[object], count: int) -> None:
    for _ in itertools.islice(batches, count):
        pass


def run(path: pathlib.Path, kinds: list[str], only: list[str]) -> None:
    """Measure the codecs of these kinds, or only some of them, with every storage, and write the table."""
    codecs = {
        (kind, name): codec
        for kind in kinds
        for name, codec in KINDS[kind]().items()
        if not only or name in only
    }
    if missing := {*only} - {name for _, name in codecs}:
        raise SystemExit(f"error: no codec {', '.join(sorted(missing))}")
    rows: list[dict[str, object]] = [
        dict(row) for row in read(path) if (row["kind"], row["codec"]) not in codecs
    ]
    for (kind, name), codec in codecs.items():
        plan = f'[[stream]]\nmatch = "obs/*_image"\ncodec = "{codec}"\n'
        began = time.process_time()
        stored = pack("compression", plan)
        pack_s = time.process_time() - began
        for storage, emulated in STORAGES.items():
            row = {"kind": kind, "codec": name, "storage": storage}
            row["cores"] = len(os.sched_getaffinity(0))
            row |= {"pack_cpu_s": round(pack_s, 2)} | one(stored, emulated, kind)
            rows.append(row)
            print(row, flush=True)
            write(path, rows)


KINDS = {"general": general, "image": images}


def read(path: pathlib.Path) -> list[dict[str, str]]:
    """Read the rows of earlier runs."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: pathlib.Path, rows: list[dict[str, object]]) -> None:
    """Write all rows; after each, so that a run that is cut short is not lost."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def one(path: pathlib.Path, emulated: str | None, kind: str) -> dict[str, object]:
    """Measure a dataset on a storage."""
    dataset = kinograph.open(path)
    streams = [dataset.streams[name] for name in CAMERAS]
    row: dict[str, object] = {
        "camera_bytes": sum(stream.bytes for stream in streams),
        "decoded_bytes": sum(stream.frames * math.prod(stream.shape) for stream in streams),
    }
    if emulated is not None:
        dataset._core = dataset._core.on_storage(emulated)
    check_loader(dataset, path)
    row |= alone(dataset)
    is_trained = kind == "image" and torch.cuda.is_available()
    trained = measure(dataset) if is_trained else {}
    return row | {key: trained.get(key, "") for key in ("step_ms", "compute_ratio")}


Cells = dict[tuple[str, str], dict[str, str]]


def tables(path: pathlib.Path) -> None:
    """Print the tables of docs/measurements/compression.md."""
    rows = read(path)
    by = {(row["codec"], row["storage"]): row for row in rows}
    names = list(dict.fromkeys(row["codec"] for row in rows))
    _throughput(by, names)
    _time_budget(by, names)
    _byte_budget(by, names)
    _correlation(rows)


def _size(row: dict[str, str]) -> float:
    return float(row["camera_bytes"]) / float(row["decoded_bytes"])


def _line(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def _head(*cells: object) -> None:
    print()
    _line(*cells)
    print("|" + "---|" * len(cells))


def _throughput(by: Cells, names: list[str]) -> None:
    _head("codec of the cameras", "bytes ÷ raw", "CPU ms per sample", *STORAGES)
    for name in names:
        cells = []
        for storage in STORAGES:
            found = by.get((name, storage))
            if found is None:
                cells.append("–")
                continue
            gain = _alone(found) / _alone(by["lossless", storage])
            ratio = f", {float(found['compute_ratio']):.2f}" if found["compute_ratio"] else ""
            cells.append(f"{_alone(found):.0f} ({gain:.2f}){ratio}")
        row = by[name, "page cache"]
        _line(name, f"{_size(row):.3f}", f"{float(row['cpu_ms_per_sample']):.3f}", *cells)


def _alone(row: dict[str, str]) -> float:
    return float(row["samples_per_s"])


def _time_budget(by: Cells, names: list[str]) -> None:
    """Print the epochs that a time buys: the slower of the loader and the model decides."""
    storage = list(STORAGES)[-1]
    steps = [float(row["step_ms"]) for row in by.values() if row["step_ms"]]
    if not steps:
        return
    step_ms = statistics.median(steps)
    models = {f"{step_ms:.1f} ms": step_ms, f"{step_ms / 4:.1f} ms": step_ms / 4}
    title = f"epochs of {SAMPLES:,} samples on {storage}"
    _head(title, *(f"{hours} h, steps of {model}" for model in models for hours in HOURS))
    for name in names:
        if (name, storage) not in by:
            continue
        rates = [min(_alone(by[name, storage]), BATCH / ms * 1e3) for ms in models.values()]
        _line(name, *(f"{h * 3600 * rate / SAMPLES:.1f}" for rate in rates for h in HOURS))


def _byte_budget(by: Cells, names: list[str]) -> None:
    """Print what each codec keeps of the episodes, if only a share of the lossless bytes fits."""
    lossless = _size(by["lossless", "page cache"])
    _head("share of the episodes that fits", *(f"{share:.0%} of the bytes" for share in SHARES))
    for name in names:
        size = _size(by[name, "page cache"])
        _line(name, *(f"{min(1.0, share * lossless / size):.0%}" for share in SHARES))


def _correlation(rows: list[dict[str, str]]) -> None:
    _head("codecs", "storage", "ratio and samples/s, rank correlation", "ratio and CPU")
    for kind in ("general", "image"):
        for storage in STORAGES:
            here = [row for row in rows if row["kind"] == kind and row["storage"] == storage]
            ratio = [1 / _size(row) for row in here]
            rate = [float(row["samples_per_s"]) for row in here]
            cpu = [float(row["cpu_ms_per_sample"]) for row in here]
            _line(kind, storage, f"{_ranked(ratio, rate):+.2f}", f"{_ranked(ratio, cpu):+.2f}")


def _ranked(a: list[float], b: list[float]) -> float:
    """Spearman's correlation."""
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(ranks)[0, 1])


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true", help="print the tables of a measurement")
    parser.add_argument("--kind", choices=KINDS, help="measure only these codecs")
    parser.add_argument("--only", nargs="+", default=[], help="measure only these codecs, by name")
    parser.add_argument("--csv", type=pathlib.Path, default=RESULTS)
    given = parser.parse_args()
    if not given.tables:
        run(given.csv, [given.kind] if given.kind else list(KINDS), given.only)
    if {row["kind"] for row in read(given.csv)} == set(KINDS):
        tables(given.csv)


if __name__ == "__main__":
    main()
