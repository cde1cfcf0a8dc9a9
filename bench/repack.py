"""How fast is a repack beside a pack? `python bench/repack.py [FOLDER OF RECORDINGS]`.

Per recording: pack it, copy the dataset page by page (`repack` without a plan), encode its vectors again with a bound and copy the
cameras, and encode its cameras again as JPEG. Rounds are interleaved, so that a busy moment hits all of them; best of three. Every
copy is compared with its original file by file, every other result is verified. Writes bench/results/repack.csv.
"""

import csv
import filecmp
import pathlib
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "bench" / "repack"
RECORDINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("Lift, 3 demos (ships here)", "", {}),
    ("Lift, 10 demos, gzip", "generated/lift/lift_10demos_gzip.hdf5", {}),
    ("ALOHA 480×640, gzip", "generated/aloha/episode_100steps_480x640.hdf5", {}),
    ("PushT, 206 episodes", "real/pusht/pusht_cchi_v7_replay.zarr.zip", {"rate_hz": 10.0}),
    ("Bridge, JPEG files", "real/bridge", {"rate_hz": 5.0, "on_defect": "keep"}),
    ("Unitree G1, video", "real/g1_lerobot", {"on_defect": "keep"}),
    (
        "ALOHA 480×640, stored raw",
        "generated/aloha/episode_100steps_480x640.hdf5",
        {"plan": {"stream": [{"kind": "image", "codec": "raw"}]}},
    ),
]
VECTORS = {"stream": [{"kind": "vector", "bound": "abs(1e-4)"}]}
CAMERAS = {"stream": [{"kind": "image", "codec": "jpeg:q=90"}]}
ROUNDS = 3


def timed(target: pathlib.Path, work: Callable[[], object]) -> float:
    """Time work that makes a dataset anew, in seconds."""
    shutil.rmtree(target, ignore_errors=True)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def same_files(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Whether two datasets have the same shards and statistics."""
    compared = [filecmp.dircmp(one / folder, other / folder) for folder in ("shards", "stats")]
    return all(not (found.left_only or found.right_only or found.diff_files) for found in compared)


def measure(source: pathlib.Path, options: dict[str, Any]) -> dict[str, float]:
    """Measure a recording: the best times, and the size of its frames and pages."""
    packed, copied, vectors, cameras = (
        OUT / f"{name}.kino" for name in ("packed", "copied", "vectors", "cameras")
    )
    allow: dict[str, Any] = {"allow_generation_loss": True}
    works: dict[pathlib.Path, Callable[[], object]] = {
        packed: lambda: kinograph.pack(source, packed, **options),
        copied: lambda: kinograph.repack(packed, copied),
        vectors: lambda: kinograph.repack(packed, vectors, plan=VECTORS, **allow),
        cameras: lambda: kinograph.repack(packed, cameras, plan=CAMERAS, **allow),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for target, work in works.items():
            best[target] = min(best[target], timed(target, work))
    if not same_files(packed, copied):
        raise SystemExit(f"{copied} differs from {packed}")
    for target in works:
        if damage := kinograph.verify(target, decode=True):
            raise SystemExit(f"{target}: {damage}")
    streams = kinograph.open(packed).streams.values()
    sizes = {
        "raw_mb": sum(stream.raw_bytes for stream in streams) / 1e6,
        "pages_mb": sum(stream.bytes for stream in streams) / 1e6,
    }
    return sizes | {f"{target.stem}_s": seconds for target, seconds in best.items()}


def main() -> None:
    """Measure every recording that is there."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    OUT.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, path, options in RECORDINGS:
        source = folder / path if path and folder else ROOT / "tests/data/lift_3demos.hdf5"
        if (path and not folder) or not source.exists():
            print(f"{name}: not here", file=sys.stderr)
            continue
        row = {"recording": name} | measure(source, options)
        rows.append(row)
        raw = row["raw_mb"]
        speeds = {
            key[:-2]: raw / row[key] for key in ("packed_s", "copied_s", "vectors_s", "cameras_s")
        }
        shown = "  ".join(f"{key} {value:.0f} MB/s" for key, value in speeds.items())
        print(f"{name}: {raw:.1f} MB raw, {row['pages_mb']:.2f} MB of pages: {shown}")
        copied = row["pages_mb"] / row["copied_s"]
        print(f"    a copy moves {copied:.0f} MB/s of pages")
    with (ROOT / "bench/results/repack.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        for row in rows:
            short = {key: round(value, 4) for key, value in row.items() if key != "recording"}
            writer.writerow({"recording": row["recording"]} | short)


if __name__ == "__main__":
    main()
