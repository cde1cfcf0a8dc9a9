"""What does a training batch cost, compared with its lower bound? `python bench/loader.py [RECORDING]`.

Packs a robomimic recording several times into one dataset, lossless and as JPEG, and runs the example `measure_loader`
on it: robomimic's window of ten steps, two cameras, state and actions, with a pool of a tenth of the decoded dataset and with
one that holds all of it. Every figure is the CPU time of all threads. Writes bench/results/loader.csv.
"""

import csv
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "bench" / "loader"
STREAMS = (
    "obs/agentview_image",
    "obs/robot0_eye_in_hand_image",
    "obs/robot0_eef_pos",
    "obs/robot0_eef_quat",
    "obs/robot0_gripper_qpos",
    "obs/object",
    "actions",
)
REPEATS = 24


def pack(recording: pathlib.Path, name: str, *options: str) -> pathlib.Path:
    """Pack the recording repeatedly, as many demonstrations."""
    target = OUT / name
    shutil.rmtree(target, ignore_errors=True)
    for number in range(REPEATS):
        again = ["--append"] if number else []
        command = ["kinograph", "pack", str(recording), str(target), "--prefix", f"{number}/"]
        subprocess.run([*command, *options, *again], check=True, capture_output=True)
    return target


def measure(dataset: pathlib.Path, batch: int, pool: float) -> dict[str, str]:
    """Run the example, and parse its output."""
    steps = list(range(10))
    windows = [{"stream": stream, "at": {"steps": steps}} for stream in STREAMS]
    request = {"anchor": {"stream": "actions"}, "windows": windows, "masks": "off"}
    (OUT / "request.json").write_text(json.dumps(request))
    program = [
        "cargo",
        "run",
        "--release",
        "-q",
        "-p",
        "kino_loader",
        "--example",
        "measure_loader",
    ]
    arguments = [str(dataset), str(OUT / "request.json"), str(batch), str(pool), "1"]
    answer = subprocess.run(
        [*program, "--", *arguments], check=True, capture_output=True, text=True, cwd=ROOT
    )
    print(answer.stdout)
    found = {
        "cpu_us_per_sample": r"([\d.]+) µs of CPU",
        "samples_per_s": r"([\d.]+) samples/s",
        "first_batch_ms": r"first batch ([\d.]+) ms",
        "floor_decode_us": r"decode once ([\d.]+) µs",
        "floor_copy_us": r"copy ([\d.]+) µs",
        "floor_ratio": r"([\d.]+) of what was measured",
        "pool_peak_mb": r"at most ([\d.]+) MB",
    }
    figures = {}
    for name, pattern in found.items():
        match = re.search(pattern, answer.stdout)
        if match is None:
            sys.exit(f"error: {name} is missing in the output of the example")
        figures[name] = match.group(1)
    return figures


def main() -> None:
    """Measure every combination."""
    recording = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/lift_3demos.hdf5")
    OUT.mkdir(parents=True, exist_ok=True)
    # Named: with `--quality 95`, a camera that is smaller without loss would be lossless.
    jpeg = OUT / "jpeg.toml"
    jpeg.write_text('[[stream]]\nkind = "image"\ncodec = "jpeg:q=95,sub=444"\n')
    plans = {
        "lossless": pack(recording, "lossless.kino"),
        "JPEG 95": pack(recording, "q95.kino", "--plan", str(jpeg)),
    }
    rows = []
    for plan, dataset in plans.items():
        for batch in (16, 64):
            for pool in (0.1, 1.0):
                print(f"== {plan}, batch {batch}, pool {pool:.0%}")
                figures = measure(dataset, batch, pool)
                rows.append({"plan": plan, "batch": batch, "pool": pool} | figures)
    with (ROOT / "bench" / "results" / "loader.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
