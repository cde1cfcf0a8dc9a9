"""Is the doctor right? `python bench/doctor.py [--seconds S]` plants faults and checks its diagnosis.

For each fault: the verdict of `kinograph doctor`, the change that it ranks first, and the compute ratio before the change, as
predicted, and after. The faults are real work, except for storage, which is slowed down. The same faults with planted sleeps are
tests (crates/kino_advisor/tests/planted.rs), because sleeps do not depend on how busy a machine is; these figures do. Batches are
compared with the plain reader first, by `kinograph bench loader`. Writes bench/results/doctor.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
LITTLE = {"--pool": "none", "--memory": "3MB"}
CAMERA = {"--window": ["camera=0:1", "actions=0:8"], "--batch-size": "32"}
SEQUENCE = {"--window": ["camera=-9:1", "actions=0:8"], "--batch-size": "32"}
# The fault, the options, and the acceptable causes.
FAULTS: list[tuple[str, dict[str, object], set[str]]] = [
    ("little bandwidth", {**CAMERA, **LITTLE, "--step-ms": "20", "--emulate-storage": "3MB/s"}, {"storage"}),
    ("latency", {**CAMERA, **LITTLE, "--step-ms": "20", "--emulate-storage": "30ms"}, {"storage"}),
    ("a heavy codec", {**CAMERA, **LITTLE, "--step-ms": "2"}, {"decode"}),
    ("frames decoded again", {**SEQUENCE, **LITTLE, "--step-ms": "10"}, {"memory"}),
    ("floats of large images", {**SEQUENCE, "--image-dtype": "float32", "--step-ms": "4"}, {"collate"}),
    ("a share of the cpu", {**CAMERA, **LITTLE, "--step-ms": "20", "--cpu": "0.1"}, {"cpu_share"}),
    (
        "stalls, two batches ahead",
        {**CAMERA, **LITTLE, "--batch-size": "8", "--step-ms": "40", "--prefetch": "2", "--emulate-storage": "stall=200ms"},
        {"jitter"},
    ),
    ("a slow step", {**CAMERA, "--step-ms": "200"}, {"slow_step", "nothing"}),
    ("everything in memory", {**CAMERA, "--step-ms": "20"}, {"slow_step", "nothing"}),
    ("a step of nothing", {**CAMERA, "--step-ms": "0.003"}, {"hand_over"}),
]  # fmt: skip


def write(path: pathlib.Path) -> None:
    """Write episodes with a smooth image and camera noise."""
    rng = np.random.default_rng(7)
    rows, columns = np.indices((120, 160)) / 160
    with kinograph.Writer(path) as writer:
        for number in range(6):
            steps = np.arange(60)
            scene = 128 + 90 * np.sin(7 * rows + number + steps[:, None, None] / 9) * np.cos(
                5 * columns
            )
            noise = rng.normal(0, 1.5, (60, 120, 160, 3))
            camera = np.clip(scene[..., None] + noise, 0, 255).astype(np.uint8)
            actions = np.sin(steps[:, None] * np.arange(1, 8) / 10)
            writer.add_episode({"actions": actions, "camera": camera}, rate_hz=20.0)


def run(*options: str) -> dict:
    """Run the command; returns its JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "kinograph", *options, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 4):
        sys.exit(f"error: kinograph {' '.join(options)}: {done.stderr}")
    return json.loads(done.stdout)


def examine(path: pathlib.Path, options: dict[str, object], seconds: float) -> dict:
    """Run the doctor."""
    flat = [
        part
        for name, value in options.items()
        for each in (value if isinstance(value, list) else [value])
        for part in (name, str(each))
    ]
    return run("doctor", str(path), "--seconds", str(seconds), *flat)


def applied(options: dict[str, object], remedy: object) -> dict[str, object] | None:
    """Return the options after a change, or None if no option applies it."""
    name, value = next(iter(remedy.items())) if isinstance(remedy, dict) else (str(remedy), None)
    option_of = {
        "staging": "--emulate-storage",
        "cpu_share": "--cpu",
        "prefetch": "--prefetch",
        "threads": "--threads",
        "memory": "--memory",
        "pool": "--pool",
        "bytes": "--image-dtype",
        "smaller_images": "--image-size",
    }
    option = option_of.get(name)
    value = {"bytes": "uint8", "smaller_images": "60x80"}.get(name, value)
    if option is None:
        return None
    if value is None:
        return {key: old for key, old in options.items() if key != option}
    return options | {option: value}


def main() -> None:
    """Plant every fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "made.kino"
        write(path)
        run("bench", "loader", str(path), "--seconds", "0.5")
        for fault, options, right in FAULTS:
            found = examine(path, options, seconds)
            cause, change = found["verdict"]["cause"], found["changes"][0]
            after = applied(options, change["remedy"])
            again = examine(path, after, seconds) if after is not None else None
            row = {
                "fault": fault,
                "cause": cause,
                "right": cause in right,
                "compute_ratio": round(found["evidence"]["fed"]["compute_ratio"], 3),
                "first_change": change["how"],
                "predicted": round(change["compute_ratio"], 3),
                "after": round(again["evidence"]["fed"]["compute_ratio"], 3) if again else "",
            }
            rows.append(row)
            print(*row.values(), sep="  ", flush=True)
    result = ROOT / "bench" / "results" / "doctor.csv"
    with result.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    wrong = [row["fault"] for row in rows if not row["right"]]
    if wrong:
        sys.exit(f"error: wrong diagnosis for: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
