"""How long does an import take, and how much memory? `python bench/imports/speed.py [--python VENV/bin/python]`.

One recording in every format (recordings.py) is packed by `kinograph pack`, and read whole by the format's own library
(readers.py, under a Python with the packages of requirements.txt), alternating, each in a separate process. Every packed
dataset is compared with the first, bit for bit. Writes bench/results/imports.csv and prints a table.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import recordings

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
READERS = pathlib.Path(__file__).with_name("readers.py")


# A separate process starts what is measured: a process's peak memory includes that of the process it was forked from.
START = """
import json, os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen(sys.argv[2:], stdout=open(sys.argv[1], "w"))
_, status, usage = os.wait4(process.pid, 0)
figures = {
    "seconds": time.perf_counter() - begin,
    "cpu_s": usage.ru_utime + usage.ru_stime,
    "peak_mb": usage.ru_maxrss / 1000,
    "exit": os.waitstatus_to_exitcode(status),
}
print(json.dumps(figures))
"""


def run(command: list[str]) -> tuple[dict[str, float], str]:
    """Run a process; returns its wall time, CPU time, peak memory and output."""
    with tempfile.NamedTemporaryFile("r") as out:
        starting = [sys.executable, "-S", "-c", START, out.name, *command]
        done = subprocess.run(starting, capture_output=True, text=True, check=True)
        figures: dict[str, float] = json.loads(done.stdout)
        # 3 means that something could not be represented or was skipped.
        if figures.pop("exit") not in (0, 3):
            raise SystemExit(f"error: {' '.join(command)}\n{done.stderr}")
        return figures, out.read()


def check(packed: pathlib.Path, first: kinograph.Dataset) -> None:
    """Compare every stream of every episode with the exported dataset, whatever its name."""
    found = kinograph.open(packed)
    if len(found) != len(first):
        raise SystemExit(f"error: {packed} has {len(found)} episodes, not {len(first)}")
    # Formats name episodes and streams in their own way: every array must be in some episode.
    for episode in found:
        arrays = [
            np.asarray(episode[name][:]) for name in episode if episode[name].dtype is not None
        ]
        lengths = {len(array) for array in arrays}
        if not any(_holds(arrays, other) for other in first if len(other["actions"]) in lengths):
            raise SystemExit(
                f"error: episode {episode.id} of {packed} does not match any exported episode"
            )


def _holds(arrays: list[np.ndarray], episode: kinograph.Episode) -> bool:
    return all(
        any(array.shape == wanted.shape and (array == wanted).all() for array in arrays)
        for wanted in (np.asarray(episode[name][:]) for name in episode)
    )


def measure(
    recording: recordings.Recording, first: kinograph.Dataset, python: str, rounds: int
) -> dict[str, object]:
    """Pack and read one format, alternating."""
    ours, theirs, read = [], [], "0"
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "packed.kino"
        command = [sys.executable, "-m", "kinograph", "pack", str(recording.path), str(target)]
        for _ in range(rounds):
            shutil.rmtree(target, ignore_errors=True)
            rate = str(recordings.RATE_HZ)
            ours.append(run([*command, "--rate", rate, "--on-defect", "keep", "--json"])[0])
            reading = [python, str(READERS), recording.format, str(recording.path)]
            figures, read = run(reading)
            theirs.append(figures)
        check(target, first)
    row: dict[str, object] = {"format": recording.format, "source_mb": recording.size() / 1e6}
    for name, figures_of in (("pack", ours), ("library", theirs)):
        for key in figures_of[0]:
            row[f"{name}_{key}"] = statistics.median(one[key] for one in figures_of)
    return row | {"library_read_mb": int(read) / 1e6}


def main() -> None:
    """Measure every format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", default=sys.executable, help="a Python with the libraries of the formats"
    )
    parser.add_argument("--times", type=int, default=20, help="number of repetitions of the sample")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    work = ROOT / "target" / "bench" / f"imports_{arguments.times}"
    dataset, made = recordings.make(work, arguments.times)
    first = kinograph.open(dataset)
    rows = []
    for recording in made:
        row = measure(recording, first, arguments.python, arguments.rounds)
        rows.append(
            {
                key: round(value, 3) if isinstance(value, float) else value
                for key, value in row.items()
            }
        )
        print(rows[-1], flush=True)
    with (ROOT / "bench" / "results" / "imports.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
