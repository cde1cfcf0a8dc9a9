"""How close is the engine to its lower bound? `python bench/peers/floor.py`, after `run.py --check-only` built the datasets.

Runs the example `measure_loader` on the datasets of the comparison. The lower bound is the time to decode every needed frame once and
to copy the batch once, on one thread; the engine is measured alone, without Python. Writes bench/results/peers_floor.csv.
"""

import argparse
import csv
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "target" / "peers"
FIGURES = {
    "cpu_us": r"([\d.]+) µs of CPU",
    "floor_decode_us": r"decode once ([\d.]+) µs",
    "floor_copy_us": r"copy ([\d.]+) µs",
    "floor_ratio": r"([\d.]+) of what was measured",
}
# Workload → batch, first and last step of an image, steps of the actions, plans, fractions of the dataset in the pool.
CASES = {
    "W1 batch 16": ("lift", 16, range(10), range(10), ("jpeg", "lossless"), (0.1, 1.0)),
    "W1 batch 64": ("lift", 64, range(10), range(10), ("jpeg", "lossless"), (0.1, 1.0)),
    "W2 one frame": ("aloha", 8, range(1), range(50), ("av1", "jpeg", "lossless"), (0.25,)),
    "W2 two frames": ("aloha", 8, range(-1, 1), range(50), ("av1", "jpeg", "lossless"), (0.25,)),
}


def main() -> None:
    """Measure every case several times; the run with the median ratio counts."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--rounds", type=int, default=3)
    rounds = options.parse_args().rounds
    rows = []
    for name, (recording, batch, frames, actions, plans, pools) in CASES.items():
        about_path = WORK / "data" / f"{recording}.json"
        if not about_path.exists():
            continue
        about = json.loads(about_path.read_text())
        windows = [_window(camera, frames) for camera in about["cameras"]]
        vectors = frames if recording == "lift" else range(1)
        windows += [_window(key, vectors) for key in about["vectors"]]
        windows.append(_window("actions", actions))
        request = {"anchor": {"stream": "actions"}, "windows": windows, "masks": "off"}
        (WORK / "request.json").write_text(json.dumps(request))
        for plan in plans:
            for pool in pools:
                found = [measure(recording, plan, batch, pool) for _ in range(rounds)]
                found.sort(key=lambda one: one["floor_ratio"])
                rows.append({"case": name, "plan": plan, "pool": pool, **found[rounds // 2]})
                print(rows[-1], flush=True)
    with (ROOT / "bench" / "results" / "peers_floor.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _window(stream: str, steps: range) -> dict[str, object]:
    return {"stream": stream, "at": {"steps": list(steps)}}


def measure(recording: str, plan: str, batch: int, pool: float) -> dict[str, float]:
    """Run the example once and parse its output."""
    dataset = WORK / "built" / recording / f"{plan}.kino"
    example = [
        "cargo",
        "run",
        "--release",
        "--locked",
        "-q",
        "-p",
        "kino_loader",
        "--example",
        "measure_loader",
        *["--no-default-features"] * (ROOT / ".tools" / "no-nasm").exists(),
        "--",
    ]
    arguments = [str(dataset), str(WORK / "request.json"), str(batch), str(pool), "1"]
    answer = subprocess.run(
        [*example, *arguments], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    found = {name: re.search(pattern, answer.stdout) for name, pattern in FIGURES.items()}
    return {name: float(match.group(1)) for name, match in found.items() if match}


if __name__ == "__main__":
    main()
