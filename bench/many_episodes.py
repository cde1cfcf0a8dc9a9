"""Datasets of very many episodes through a URL: opening, memory, and the first batch.

    make build PROFILE=release
    python bench/many_episodes.py --csv bench/results/many_episodes.csv

Episodes are tiny (five frames of one value), so that what grows with their number is all there is: the table, the manifest, the
memory for them, and what the loader plans before its first batch. 20,000 of them are packed; the table then names each of them as
often as it takes, under ids of its own, and the manifest lists a shard for every 25 episodes (128 MB of 5 MB each), as it would.
Readers check both like any other. The server (`s3_server.py`) is on this machine.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import s3_server
from blake3 import blake3

import kinograph

CHILD = """
import json, sys, time
import kinograph
def memory(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1e3
cache = sys.argv[2] or False
before, start, used = memory("VmRSS"), time.perf_counter(), time.process_time()
dataset = kinograph.open(sys.argv[1], cache=cache)
opened, cpu = time.perf_counter() - start, time.process_time() - used
peak, held = memory("VmHWM"), memory("VmRSS")
read = dict(dataset.storage or {})
start, used = time.perf_counter(), time.process_time()
with kinograph.numpy.Loader(dataset, windows={"action": [0]}, batch_size=256, seed=1) as loader:
    next(iter(loader))
    first, first_cpu = time.perf_counter() - start, time.process_time() - used
    after_first = dict(dataset.storage or {})
    whole = memory("VmRSS")
print(json.dumps({
    "open_s": round(opened, 2), "open_cpu_s": round(cpu, 2), "open_gets": read.get("gets", ""),
    "open_mb": round(read.get("bytes_read", 0) / 1e6, 1), "open_peak_mb": round(peak - before),
    "open_held_mb": round(held - before), "first_batch_s": round(first, 2), "first_batch_cpu_s": round(first_cpu, 2),
    "first_batch_gets": after_first.get("gets", 0) - (read.get("gets") or 0),
    "first_batch_peak_mb": round(memory("VmHWM") - before), "held_mb": round(whole - before),
}))
"""

#: Episodes that are really packed.
PACKED = 20_000

#: Of a manifest's end.
TRAILER = ',\n  "id": "{}"\n}}\n'


def write(path: Path, episodes: int) -> None:
    """Write a dataset."""
    step = np.arange(5, dtype=np.float32)
    packed = min(PACKED, episodes)
    with kinograph.Writer(path) as writer:
        for number in range(packed):
            streams = {"action": step + number}
            writer.add_episode(streams, rate_hz=20.0, id=f"episode_{number:08d}", task="synthetic")
    if episodes > packed:
        enlarge(path, episodes)


def enlarge(path: Path, episodes: int) -> None:
    """Name each episode often enough, in the table and the manifest of a new version."""
    (manifest_path,) = (path / "versions").iterdir()
    manifest = json.loads(manifest_path.read_text())
    (small,) = (path / "episodes").iterdir()
    large = path / "episodes" / "large"
    rows = pq.read_table(small)
    schema = rows.schema.remove_metadata()
    unique = {"episode", "id", "start_ns", "hash"}
    options = {
        "compression": "zstd",
        "use_dictionary": [name for name in schema.names if name not in unique],
        "store_schema": False,
    }
    with pq.ParquetWriter(large, schema, **options) as writer:
        for start in range(0, episodes, 1 << 16):
            numbers = np.arange(start, min(episodes, start + (1 << 16)))
            part = rows.take(pa.array(numbers % len(rows)))
            ids = pa.array([f"episode_{number:08d}" for number in numbers])
            part = part.set_column(0, schema.field("episode"), pa.array(numbers))
            part = part.set_column(1, schema.field("id"), ids)
            writer.write_table(part.cast(schema), row_group_size=1 << 16)
    content = large.read_bytes()
    digest = blake3(content).hexdigest()
    large.rename(path / "episodes" / f"{digest[:32]}.parquet")
    small.unlink()
    manifest["episodes"] = {"blake3": digest, "bytes": len(content), "count": episodes}
    for stream in manifest["streams"]:
        for name in ("episodes", "frames", "raw_bytes", "bytes", "stored_values"):
            stream[name] = stream[name] * episodes // len(rows)
    for number in range(episodes // 25):
        name = blake3(number.to_bytes(8, "little")).hexdigest()
        manifest["shards"].append({"blake3": name, "bytes": 128_000_000, "episodes": 25})
    del manifest["id"]
    body = json.dumps(manifest, indent=2, ensure_ascii=False).removesuffix("\n}")
    manifest_path.write_text(body + TRAILER.format(blake3(body.encode()).hexdigest()))


def measure(place: str | Path, variables: dict[str, str], cache: str = "") -> dict[str, Any]:
    """Open in a process of its own."""
    command = [sys.executable, "-c", CHILD, str(place), cache]
    environment = os.environ | variables
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def link_of(text: str) -> tuple[int, int]:
    """Parse milliseconds and MB/s, such as `50,20`."""
    milliseconds, megabytes = text.split(",")
    return int(milliseconds), int(megabytes)


def main() -> None:
    """Measure each number of episodes, locally and behind links."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--episodes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--links", type=link_of, nargs="+", default=[(50, 20), (50, 200)])
    options = parser.parse_args()
    rows = []
    for episodes in options.episodes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "many.kino"
            write(path, episodes)
            tables = (path / "episodes").iterdir()
            sizes = {
                "episodes": episodes,
                "table_mb": round(sum(file.stat().st_size for file in tables) / 1e6, 1),
                "manifest_mb": round((path / "versions/00000001.json").stat().st_size / 1e6, 1),
            }
            rows.append({**sizes, "storage": "folder", **measure(path, {})})
            print(rows[-1], flush=True)
            for milliseconds, link in options.links:
                with (
                    s3_server.serving(Path(folder), milliseconds / 1000, link * 1e6) as url,
                    tempfile.TemporaryDirectory() as cache,
                ):
                    for name in ("", ", cache empty", ", cached"):
                        variables = s3_server.environment(url)
                        found = measure("s3://lab/many.kino", variables, cache if name else "")
                        storage = f"s3, {milliseconds} ms, {link} MB/s{name}"
                        rows.append({**sizes, "storage": storage, **found})
                        print(rows[-1], flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
