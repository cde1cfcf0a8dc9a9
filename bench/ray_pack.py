"""Packing on a local Ray cluster: throughput for 1, 2 and 4 workers, and kills of workers; versions are compared.

    make build PROFILE=release
    python bench/ray_pack.py --csv bench/results/ray_pack.csv

A row per run: seconds, episodes and decoded bytes per second, the same per worker, kills, and the version id, which must be that of
`kinograph.pack`. A cluster of the machine's own cores shows what Ray and parts cost, not how several machines scale. The second
pack of each cluster finds its workers running; `--kills 0` leaves the kills out.
"""

import argparse
import csv
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # or it writes a token into the home folder

import ray

import kinograph
import kinograph.ray
from kinograph._defects import Packed

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))

from ray_chaos import Chaos, write_recording  # noqa: E402 (needs the path above)

CREATED = "2026-11-19T12:00:00Z"
FIELDS = [
    "run",
    "workers",
    "episodes",
    "raw_mb",
    "seconds",
    "mb_per_s",
    "mb_per_s_per_worker",
    "episodes_per_s_per_worker",
    "kills",
    "id",
]


def main() -> None:
    """Run all, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--every", type=float, default=0.4, help="mean seconds between kills")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        recording = folder / "demos.hdf5"
        write_recording(recording, args.episodes, frames=args.frames, side=96)
        options = {"shard_size": "512KB", "created": CREATED}
        raw = args.episodes * args.frames * (96 * 96 * 3 + 2 * 7 * 4) / 1e6

        def row(run: str, workers: int, seconds: float, kills: int, packed: Packed) -> None:
            rate = raw / seconds
            rows.append(
                [
                    run,
                    workers,
                    args.episodes,
                    round(raw),
                    round(seconds, 1),
                    round(rate, 1),
                    round(rate / workers, 1),
                    round(args.episodes / seconds / workers, 2),
                    kills,
                    packed.id,
                ]
            )
            print(*rows[-1], flush=True)

        for threads in (1, 2):
            begin = time.perf_counter()
            whole = kinograph.pack(
                recording, folder / f"whole{threads}.kino", threads=threads, **options
            )
            row(f"kinograph.pack threads={threads}", threads, time.perf_counter() - begin, 0, whole)
        for workers in (1, 2, 4):
            ray.init(
                address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False
            )
            for which in ("first", "second"):
                begin = time.perf_counter()
                packed = kinograph.ray.pack(recording, folder / f"{workers}{which}.kino", **options)
                row(f"kinograph.ray.pack, {which}", workers, time.perf_counter() - begin, 0, packed)
            ray.shutdown()
        if args.kills:
            kill(folder, recording, args, whole, row)
    assert {row[-1] for row in rows} == {whole.id}
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*FIELDS, "machine"])
            writer.writerows([*row, f"{os.cpu_count()} cores"] for row in rows)


def kill(
    folder: pathlib.Path,
    recording: pathlib.Path,
    args: argparse.Namespace,
    whole: Packed,
    row: Callable[..., None],
) -> None:
    """Pack while workers are killed, until enough were."""
    options = {"shard_size": "512KB", "created": CREATED}
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    with Chaos(most=args.kills, every_s=args.every) as chaos:
        begin, rounds = time.perf_counter(), 0
        # The pack may be over before that many are killed: the next one goes on.
        while chaos.kills < args.kills:
            target = folder / f"chaos{rounds}.kino"
            packed = kinograph.ray.pack(recording, target, max_retries=1000, **options)
            assert packed.id == whole.id, (packed.id, whole.id)
            rounds += 1
    row(
        f"kinograph.ray.pack {rounds} times, workers killed",
        4,
        (time.perf_counter() - begin) / rounds,
        chaos.kills,
        packed,
    )
    ray.shutdown()
    assert kinograph.verify(target, decode=True) == []


if __name__ == "__main__":
    main()
