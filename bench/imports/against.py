"""Has an import become slower, or larger in memory? `python bench/imports/against.py OLD_KINOGRAPH NEW_KINOGRAPH`.

Two builds of the command pack the same recording in every format (recordings.py), alternating, each in a separate
process; what the new one packed is compared with the exported dataset, bit for bit. Writes
bench/results/imports_against.csv: medians of both, and new ÷ old.
"""

from __future__ import annotations

import argparse
import csv
import pathlib
import shutil
import statistics
import tempfile

import recordings
import speed

import kinograph


def pack(command: str, recording: recordings.Recording, target: pathlib.Path) -> dict[str, float]:
    """Pack once into an empty folder."""
    shutil.rmtree(target, ignore_errors=True)
    rate = str(recordings.RATE_HZ)
    words = [command, "pack", str(recording.path), str(target), "--rate", rate]
    return speed.run([*words, "--on-defect", "keep", "--json"])[0]


def compare(
    commands: tuple[str, str],
    recording: recordings.Recording,
    first: kinograph.Dataset,
    rounds: int,
) -> dict[str, object]:
    """Pack one format with both builds, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "packed.kino"
        measured = [
            [pack(command, recording, target) for command in commands] for _ in range(rounds)
        ]
        speed.check(target, first)
    row: dict[str, object] = {"format": recording.format, "rounds": rounds}
    for key in ("cpu_s", "peak_mb"):
        old, new = (statistics.median(pair[side][key] for pair in measured) for side in (0, 1))
        ratios = [pair[1][key] / pair[0][key] for pair in measured]
        row |= {f"old_{key}": round(old, 3), f"new_{key}": round(new, 3)}
        row[f"{key}_ratio"] = round(statistics.median(ratios), 3)
    return row


def main() -> None:
    """Compare every format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", help="the `kinograph` command of the earlier build")
    parser.add_argument("new", help="the `kinograph` command of the later build")
    parser.add_argument("--times", type=int, default=10, help="number of repetitions of the sample")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    work = speed.ROOT / "target" / "bench" / f"imports_{arguments.times}"
    dataset, made = recordings.make(work, arguments.times)
    first = kinograph.open(dataset)
    rows = []
    for recording in made:
        commands = (arguments.old, arguments.new)
        rows.append(compare(commands, recording, first, arguments.rounds))
        print(rows[-1], flush=True)
    with (speed.ROOT / "bench" / "results" / "imports_against.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
