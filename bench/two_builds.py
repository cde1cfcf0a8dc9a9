"""Does a change cost CPU time? `python bench/two_builds.py OLD NEW [ROUNDS]`.

OLD and NEW are two builds of the example `measure_loader`, of the same profile. Both load the same datasets in turns, the
other one first every second time, with one decode thread and 16 epochs. On a busy machine single figures differ by a tenth;
what counts is the median of the ratios of neighbouring runs. Writes bench/results/two_builds.csv.
"""

import csv
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from loader import OUT, STREAMS, pack  # noqa: E402

EPOCHS = 16
# Plan, frames of each window, batch, and how much of the decoded dataset fits.
CASES = (
    ("lossless", 10, 16, 0.1),
    ("lossless", 10, 64, 1.0),
    ("JPEG 95", 1, 64, 0.1),
    ("JPEG 95", 10, 64, 0.1),
)


def cpu_us(program: str, dataset: pathlib.Path, case: tuple[str, int, int, float]) -> float:
    """Microseconds of CPU time per sample."""
    _, steps, batch, pool = case
    windows = [{"stream": name, "at": {"steps": list(range(steps))}} for name in STREAMS]
    request = OUT / "two_builds.json"
    request.write_text(
        json.dumps({"anchor": {"stream": "actions"}, "windows": windows, "masks": "off"})
    )
    command = [program, str(dataset), str(request), str(batch), str(pool), "1", str(EPOCHS)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    match = re.search(r"([\d.]+) µs of CPU", answer.stdout)
    if match is None:
        sys.exit(f"error: no CPU time in the output of {program}")
    return float(match.group(1))


def main() -> None:
    """Measure both builds in turns."""
    if len(sys.argv) < 3:
        sys.exit("usage: two_builds.py OLD NEW [ROUNDS]")
    builds, rounds = sys.argv[1:3], int(sys.argv[3]) if len(sys.argv) > 3 else 7
    OUT.mkdir(parents=True, exist_ok=True)
    jpeg = OUT / "jpeg.toml"
    jpeg.write_text('[[stream]]\nkind = "image"\ncodec = "jpeg:q=95,sub=444"\n')
    recording = ROOT / "tests" / "data" / "lift_3demos.hdf5"
    plans = {
        "lossless": pack(recording, "lossless.kino"),
        "JPEG 95": pack(recording, "q95.kino", "--plan", str(jpeg)),
    }
    rows = []
    for number in range(rounds):
        for case in CASES:
            order = (0, 1) if number % 2 == 0 else (1, 0)
            found = {idx: cpu_us(builds[idx], plans[case[0]], case) for idx in order}
            rows.append((*case, number, found[0], found[1]))
            print(*rows[-1])
    for case in CASES:
        ratios = [row[6] / row[5] for row in rows if row[:4] == case]
        print(*case, f"new / old {statistics.median(ratios):.3f}")
    with (ROOT / "bench" / "results" / "two_builds.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["plan", "steps", "batch", "pool", "round", "old_us", "new_us"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
