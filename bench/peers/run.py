"""Runs every loader on the same samples, alternating, and writes what each cost: `python bench/peers/run.py`.

    setup.py → data.py → run.py: build, check, then rounds of one short slot per system → report.py
                                                                    bench/results/peers{,_systems}.csv → docs/measurements/comparison.md

A round gives each system one slot, in a newly drawn order, each in a separate process. Other load on the machine
affects all of them equally, so ratios are computed within a round. A system whose batches are wrong is not timed.
"""

import argparse
import csv
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "bench" / "results"
CHECKED = ROOT / "target" / "peers" / "checked.json"
PYTHON = ROOT / "target" / "peers" / "venv" / "bin" / "python"

OURS = [
    f"kinograph {plan}, {pool}" for plan in ("JPEG 95", "lossless") for pool in ("a tenth", "all")
]
# Systems with a target are timed in every round, those of `RARE` only in the first ones.
PLAN: dict[str, list[str]] = {
    "W1:lift:b16:u8": [
        *OURS,
        "np.memmap, threads",
        "JPEG store, threads",
        "WebDataset",
        "DALI",
        "robomimic, low_dim cache",
    ],
    "W1:lift:b64:u8": [
        *OURS,
        "np.memmap, threads",
        "JPEG store, threads",
        "WebDataset",
        "robomimic, low_dim cache",
    ],
    "W2:aloha:b8:f1:c50:u8": [
        "kinograph JPEG 95, a quarter",
        "kinograph lossless, a quarter",
        "h5py (ACT)",
    ],
    "W2:aloha:b8:f2:c50:u8": [
        "kinograph JPEG 95, a quarter",
        "kinograph lossless, a quarter",
        "h5py (ACT)",
    ],
    "W2:aloha:b8:f1:c50:f32": ["kinograph AV1, a quarter", "LeRobot AV1", "LeRobot H.264"],
    "W2:aloha:b8:f2:c50:f32": ["kinograph AV1, a quarter", "LeRobot AV1", "LeRobot H.264"],
    "W3:lift:b8:u8": [],
}
RARE: dict[str, list[str]] = {
    "W1:lift:b16:u8": [
        "kinograph lossless groups, a tenth",
        "kinograph lossless groups, all",
        "kinograph JPEG 95, a twentieth",
        "kinograph lossless, a twentieth",
        "np.memmap, DataLoader",
        "JPEG store, DataLoader",
        "SPDL",
        "MDS",
        "LitData",
        "Lance",
        "Grain",
        "zarr lz4",
        "FFCV JPEG, frames",
        "FFCV raw, windows",
        "robodm H.264",
        "robomimic, no cache",
        "robomimic, all cached",
    ],
    "W1:lift:b64:u8": ["DALI"],
    "W2:aloha:b8:f1:c50:u8": [
        "kinograph AV1, a quarter",
        "np.memmap, threads",
        "JPEG store, threads",
        "WebDataset",
        "DALI",
        "FFCV JPEG, frames",
        "robodm H.264",
    ],
    "W2:aloha:b8:f2:c50:u8": [
        "kinograph AV1, a quarter",
        "np.memmap, threads",
        "JPEG store, threads",
        "FFCV JPEG, frames",
    ],
    "W2:aloha:b8:f1:c50:f32": ["np.memmap, threads"],
    "W2:aloha:b8:f2:c50:f32": ["np.memmap, threads"],
    "W3:lift:b8:u8": [
        "kinograph JPEG 95, a tenth",
        "kinograph lossless, a tenth",
        "np.memmap, threads",
        "JPEG store, threads",
        "WebDataset",
        "DALI",
        "robodm H.264",
        "robomimic, low_dim cache",
        "robomimic, no cache",
    ],
}
# Libraries' own threads: every system gets exactly the number of workers of the comparison.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
SLOT_FIELDS = [
    "workload",
    "system",
    "round",
    "samples",
    "cpu_ms",
    "samples_per_s",
    "first_batch_s",
    "wait_p50_ms",
    "wait_p99_ms",
    "warm_cpu_ms",
    "peak_mb",
    "private_mb",
    "other_cores",
    "vif",
    "epochs",
    "frames_decoded",
    "frames_used",
    "pool_peak_mb",
    "memory_mb",
    "decoded_mb",
    "stages_us",
]
SYSTEM_FIELDS = ["workload", "system", "disk_bytes", "psnr_db", "build_s", "versions", "state"]


def main() -> None:
    """Build, check and measure."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--rare-rounds", type=int, default=2, help="rounds for systems without a target"
    )
    options.add_argument(
        "--seconds", type=float, default=3, help="duration of each slot's timed part"
    )
    options.add_argument("--workloads", nargs="*", help="only these", choices=PLAN)
    options.add_argument("--systems", nargs="*", help="only these")
    options.add_argument("--check-only", action="store_true", help="build and check, time nothing")
    options.add_argument(
        "--keep-checks", action="store_true", help="skip systems that earlier runs checked"
    )
    options.add_argument(
        "--append", action="store_true", help="add rounds to those of earlier runs"
    )
    options.add_argument(
        "--results", type=pathlib.Path, default=RESULTS, help="folder for the CSV files"
    )
    arguments = options.parse_args()
    plan = {
        workload: [
            name
            for name in systems + RARE[workload]
            if not arguments.systems or name in arguments.systems
        ]
        for workload, systems in PLAN.items()
        if workload in (arguments.workloads or PLAN) and has_recording(workload)
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    if not arguments.keep_checks:
        CHECKED.unlink(missing_ok=True)
    systems = build_and_check(plan)
    # Also for workloads that this run skips: its rounds may be added to theirs.
    every = json.loads(CHECKED.read_text()).values()
    write(arguments.results / "peers_systems.csv", SYSTEM_FIELDS, list(every))
    if arguments.check_only:
        return
    good = [(row["workload"], row["system"]) for row in systems if row["state"] == "checked"]
    # Systems that could not be built have none.
    paths = {(row["workload"], row["system"]): row.get("path", "") for row in systems}
    slots = read(arguments.results / "peers.csv") if arguments.append else []
    first = max((int(slot["round"]) + 1 for slot in slots), default=0)
    for number in range(first, first + arguments.rounds):
        for workload, wanted in plan.items():
            turn = [
                system
                for at, system in good
                if at == workload
                and system in wanted
                and (number < first + arguments.rare_rounds or system in PLAN[workload])
            ]
            random.Random(f"{number} {workload}").shuffle(turn)
            for system in turn:
                read_through(pathlib.Path(paths[workload, system]))
                found = start("time", system, workload, "--seconds", str(arguments.seconds))
                if "error" in found:
                    print(f"{workload} {system}: {found['error']}", file=sys.stderr)
                    continue
                slots.append({"workload": workload, "system": system, "round": number, **found})
                print(
                    f"{number} {workload:24} {system:30} {found['cpu_ms']:8.3f} ms {found['samples_per_s']:8.0f}/s "
                    f"(others {found['other_cores']:.1f} cores)",
                    flush=True,
                )
            # After every slot, so that an interrupted run keeps its results.
            write(arguments.results / "peers.csv", SLOT_FIELDS, slots)


def has_recording(workload: str) -> bool:
    """Whether a workload's recording exists."""
    return (ROOT / "target" / "peers" / "data" / f"{workload.split(':')[1]}.json").exists()


def build_and_check(plan: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Build every system's files and compare its first batches with the recording."""
    known: dict[str, dict[str, Any]] = json.loads(CHECKED.read_text()) if CHECKED.exists() else {}
    rows = []
    for workload, systems in plan.items():
        for system in systems:
            if (known_row := known.get(f"{workload} {system}")) is not None:
                rows.append(known_row)
                continue
            row = {"workload": workload, "system": system, **start("build", system, workload)}
            if "error" not in row and "refused" not in row:
                row |= start("check", system, workload)
            problem = row.get("refused") or row.get("error") or "; ".join(row.get("problems", []))
            row["state"] = problem or "checked"
            print(f"{workload:24} {system:30} {row['state']}", flush=True)
            rows.append(row)
            known[f"{workload} {system}"] = row
            CHECKED.write_text(json.dumps(known))
    return rows


def start(task: str, system: str, workload: str, *options: str) -> dict[str, Any]:
    """Run `measure_one.py`, watch its memory, and return its answer."""
    command = [str(PYTHON), str(HERE / "measure_one.py"), task, system, workload, *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ONE_THREAD | {"HF_HUB_OFFLINE": "1"},
    )
    peaks = [0, 0]
    done = threading.Event()
    watch = threading.Thread(target=watch_memory, args=(process.pid, peaks, done))
    watch.start()
    try:
        output, complaint = process.communicate(timeout=1800 if task == "build" else 180)
    except subprocess.TimeoutExpired:
        process.kill()
        output, complaint = process.communicate()
        output += '\nRESULT {"error": "took too long"}'
    finally:
        done.set()
        watch.join()
    answers = [line[7:] for line in output.splitlines() if line.startswith("RESULT ")]
    if not answers:
        return {"error": f"ended without a result: {complaint.strip()[-300:]}"}
    found: dict[str, Any] = json.loads(answers[-1])
    if "error" in found:
        print(complaint[-2000:], file=sys.stderr)
    return found | {"peak_mb": peaks[0] / 1024, "private_mb": peaks[1] / 1024}


def watch_memory(process: int, peaks: list[int], done: threading.Event) -> None:
    """Track the peak of resident and of private (or shared, but not file-backed) kilobytes of a process tree."""
    while not done.wait(0.25):
        parents, sizes = {}, {}
        for folder in pathlib.Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                lines = dict(
                    line.split(":", 1) for line in (folder / "status").read_text().splitlines()
                )
            except (OSError, ValueError):
                continue  # it has ended
            parents[int(folder.name)] = int(lines["PPid"])
            kilobytes = [
                int(lines.get(key, "0").split()[0]) for key in ("VmRSS", "RssAnon", "RssShmem")
            ]
            sizes[int(folder.name)] = (kilobytes[0], kilobytes[1] + kilobytes[2])
        family = {process}
        while grown := {one for one, parent in parents.items() if parent in family} - family:
            family |= grown
        for place in range(2):
            total = sum(sizes[one][place] for one in family if one in sizes)
            peaks[place] = max(peaks[place], total)


def read_through(path: pathlib.Path) -> None:
    """Load a system's files into the page cache: everything here is measured warm."""
    for file in [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]:
        with file.open("rb", buffering=0) as opened:
            while opened.read(1 << 22):
                pass


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Read a CSV file of an earlier run."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: pathlib.Path, fields: list[str], rows: list[dict[str, Any]]) -> None:
    """Write a CSV; dicts as JSON."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _cell(row.get(key)) for key in fields})


def _cell(value: Any) -> Any:  # noqa: ANN401 (a JSON value)
    if isinstance(value, dict):
        return json.dumps(value)
    return round(value, 6) if isinstance(value, float) else value


if __name__ == "__main__":
    start_s = time.monotonic()
    main()
    print(f"{time.monotonic() - start_s:.0f} s", file=sys.stderr)
