"""Datasets of very many episodes through a URL: opening, memory, and the first batch.

    make build PROFILE=release
    python bench/many_episodes.py --csv bench/results/many_episodes.csv

Episodes are tiny (five frames of one value), so that what grows with their number is all there is: the table, the memory for it,
and what the loader plans before its first batch. The server (`s3_server.py`) is on this machine.
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
import s3_server

import kinograph

CHILD = """
import json, sys, time
import kinograph
def memory():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3
before, start = memory(), time.perf_counter()
dataset = kinograph.open(sys.argv[1], cache=False)
opened, after = time.perf_counter() - start, memory()
read = dict(dataset.storage or {})
start = time.perf_counter()
with kinograph.numpy.Loader(dataset, windows={"action": [0]}, batch_size=256, seed=1) as loader:
    next(iter(loader))
    first = time.perf_counter() - start
    after_first = dict(dataset.storage or {})
print(json.dumps({
    "open_s": round(opened, 2), "open_gets": read.get("gets", ""), "open_mb": round(read.get("bytes_read", 0) / 1e6, 1),
    "open_memory_mb": round(after - before), "first_batch_s": round(first, 2),
    "first_batch_gets": after_first.get("gets", 0) - read.get("gets", 0), "all_memory_mb": round(memory() - before),
}))
"""


def write(path: Path, episodes: int) -> None:
    """Write a dataset."""
    step = np.arange(5, dtype=np.float32)
    with kinograph.Writer(path) as writer:
        for number in range(episodes):
            streams = {"action": step + number}
            writer.add_episode(streams, rate_hz=20.0, id=f"episode_{number:08d}", task="synthetic")


def measure(place: str | Path, variables: dict[str, str]) -> dict[str, Any]:
    """Open in a process of its own."""
    command = [sys.executable, "-c", CHILD, str(place)]
    environment = os.environ | variables
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure each number of episodes, locally and behind links."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--episodes", type=int, nargs="+", default=[100_000, 1_000_000])
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
            }
            rows.append({**sizes, "storage": "folder", **measure(path, {})})
            print(rows[-1], flush=True)
            for milliseconds, link in ((50, 20), (50, 200)):
                with s3_server.serving(Path(folder), milliseconds / 1000, link * 1e6) as url:
                    found = measure("s3://lab/many.kino", s3_server.environment(url))
                storage = f"s3, {milliseconds} ms, {link} MB/s"
                rows.append({**sizes, "storage": storage, **found})
                print(rows[-1], flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
