"""How long until the first batch of 10 million frames? `python bench/first_batch.py`.

Writes 50,000 episodes of 200 frames, with an 8 × 8 camera and actions: the number of episodes and samples matters here, not bytes. Then a
separate process opens the dataset and takes one batch, warm, several times and with several shuffles. Each batch is
compared with the plain reader. Writes bench/results/first_batch.csv.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import numpy as np

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Kept, because writing it takes longer than everything else.
PATH = ROOT / "target" / "bench" / "ten_million.kino"
EPISODES, FRAMES = 50_000, 200
ROUNDS = 5
SHUFFLES: dict[str, dict] = {
    "automatic": {},
    "groups of 1 %": {"fraction": 0.01},
    "everything": {"shuffle": "global"},
    "everything, little memory": {"shuffle": "global", "memory": "100MB"},
    "none": {"shuffle": False},
}

ONE = """
import json, sys, time
import numpy as np
import kinograph, kinograph.numpy
path, options = sys.argv[1], json.loads(sys.argv[2])
if "fraction" in options:
    options["shuffle"] = kinograph.Shuffle(fraction=options.pop("fraction"))
cpu = time.process_time()
begin = time.perf_counter(); ds = kinograph.open(path); opened = time.perf_counter()
windows = ds.samples({"camera": [-1, 0], "actions": range(8)}); bound = time.perf_counter()
loader = kinograph.numpy.Loader(windows, batch_size=64, seed=3, **options); made = time.perf_counter()
batch = next(iter(loader)); first = time.perf_counter()
used = time.process_time() - cpu
places = loader.order.batch(0)
for slot, place in enumerate(places):
    item = windows[int(place["sample"])]
    assert all(np.array_equal(batch[key][slot], item[key]) for key in item)
print(json.dumps([opened - begin, bound - opened, made - bound, first - made, used, len(windows)]))
"""


def write() -> None:
    """Write many episodes, and rename the dataset into place when complete."""
    PATH.parent.mkdir(parents=True, exist_ok=True)
    path = PATH.with_suffix(".part")
    shutil.rmtree(path, ignore_errors=True)
    camera = np.zeros((FRAMES, 8, 8, 3), np.uint8)
    camera += (np.arange(FRAMES, dtype=np.uint8))[:, None, None, None]
    with kinograph.Writer(path) as writer:
        for number in range(EPISODES):
            actions = np.arange(FRAMES, dtype=np.float32)[:, None] + np.float32(number)
            streams = {"actions": actions, "camera": camera}
            writer.add_episode(streams, rate_hz=20.0)
    path.rename(PATH)


def main() -> None:
    """Measure each shuffle."""
    if not PATH.exists():
        write()
    rows = []
    for name, options in SHUFFLES.items():
        runs = []
        for _ in range(ROUNDS):
            command = [sys.executable, "-c", ONE, str(PATH), json.dumps(options)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append(json.loads(answer.stdout))
        columns = list(zip(*runs, strict=True))
        opened, bound, made, first, cpu = (statistics.median(column) for column in columns[:5])
        rows.append(
            {
                "shuffle": name,
                "windows": columns[5][0],
                "open ms": f"{opened * 1e3:.0f}",
                "windows ms": f"{bound * 1e3:.0f}",
                "make ms": f"{made * 1e3:.0f}",
                "first batch ms": f"{first * 1e3:.0f}",
                "best first batch ms": f"{min(columns[3]) * 1e3:.0f}",
                "cpu ms": f"{cpu * 1e3:.0f}",
                "load": f"{os.getloadavg()[0]:.1f}",
            }
        )
        print(rows[-1], flush=True)
    with (ROOT / "bench/results/first_batch.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
