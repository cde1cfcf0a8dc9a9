"""Builds, checks or measures one system on one workload, in this process; prints one line of JSON.

    measure_one.py build|check|time SYSTEM WORKLOAD [--seconds 3] [--workers 1]

`run.py` starts it, so that every slot has a separate process. CPU time is that of this process and all its descendants.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from contract import Recording, Workload, index_batches, load_recording, parse_workload, verify
from systems import find
from systems.base import System

TICKS = os.sysconf("SC_CLK_TCK")
CHECKED_BATCHES = 3


def main() -> None:
    """Do one task and print its result."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("task", choices=("build", "check", "time"))
    options.add_argument("system")
    options.add_argument("workload")
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--workers", type=int, default=1)
    arguments = options.parse_args()
    torch.set_num_threads(1)
    workload = parse_workload(arguments.workload)
    recording = load_recording(workload.recording)
    system = find(arguments.system)
    reason = system.refuse(recording, workload)
    if reason is not None:
        finish({"refused": reason})
    try:
        if arguments.task == "build":
            finish(build(system, recording, workload))
        if arguments.task == "check":
            finish(check(system, recording, workload, arguments.workers))
        finish(measure(system, recording, workload, arguments.workers, arguments.seconds))
    except Exception as error:
        # Whatever a peer raises is its result.
        traceback.print_exc()
        finish({"error": f"{type(error).__name__}: {error}"[:300]})


def build(system: System, recording: Recording, workload: Workload) -> dict[str, Any]:
    """Write the system's files, if missing."""
    path = system.path(recording, workload)
    done = path.with_name(path.name + ".done")
    if not done.exists():
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        system.build(recording, workload, path)
        figures = {
            "build_s": time.monotonic() - start,
            "disk_bytes": system.disk_bytes(recording, path),
        }
        done.write_text(json.dumps(figures))
    versions = {package: importlib.metadata.version(package) for package in system.packages}
    return json.loads(done.read_text()) | {"path": str(path), "versions": versions}


def check(system: System, recording: Recording, workload: Workload, workers: int) -> dict[str, Any]:
    """Compare the first batches with the recording."""
    path = system.path(recording, workload)
    given = iter(system.batches(recording, workload, path, workers))
    indices: Iterator[list[int]] = index_batches(recording, workload)
    verdicts = []
    for number in range(CHECKED_BATCHES):
        batch = next(given)
        if hasattr(system, "places"):
            batch |= system.places(number)
        wanted = next(indices) if system.follows_index else None
        verdicts.append(verify(recording, workload, batch, wanted))
    return {
        "psnr_db": min(verdict.psnr_db for verdict in verdicts),
        "problems": sorted({text for verdict in verdicts for text in verdict.problems}),
    }


def measure(
    system: System, recording: Recording, workload: Workload, workers: int, seconds: float
) -> dict[str, Any]:
    """Time batches in the steady state; every tensor is touched, so that no work is deferred."""
    path = system.path(recording, workload)
    start, spent = time.monotonic(), cpu_s()
    given = iter(system.batches(recording, workload, path, workers))
    batch = next(given)
    touch(batch, recording)
    first_batch_s, samples = time.monotonic() - start, len(batch["actions"])
    warmed = 1
    while warmed < system.warm_batches(recording, workload) or time.monotonic() - start < 1.0:
        batch = next(given)
        touch(batch, recording)
        samples += len(batch["actions"])
        warmed += 1
    warm_cpu_s = cpu_s() - spent
    system.mark()
    busy, spent, start = machine_busy_s(), cpu_s(), time.monotonic()
    timed, batches, waits, mixed = 0, 0, [], []
    while time.monotonic() - start < seconds or batches < 4:
        asked = time.monotonic()
        batch = next(given)
        waits.append(time.monotonic() - asked)
        touch(batch, recording)
        timed += len(batch["actions"])
        batches += 1
        if "ep" in batch:
            mixed.append(np.asarray(batch["ep"]))
    elapsed, spent = time.monotonic() - start, cpu_s() - spent
    other = max(0.0, machine_busy_s() - busy - spent) / elapsed
    return {
        "samples": timed,
        "samples_per_s": timed / elapsed,
        "cpu_ms": spent * 1e3 / timed,
        "warm_cpu_ms": warm_cpu_s * 1e3 / samples,
        "first_batch_s": first_batch_s,
        "wait_p50_ms": float(np.percentile(waits, 50)) * 1e3,
        "wait_p99_ms": float(np.percentile(waits, 99)) * 1e3,
        "other_cores": other,
        "vif": vif(recording, mixed) if mixed else None,
    } | system.figures()


def vif(recording: Recording, batches: list[np.ndarray]) -> float:
    """Compare the episodes of batches with independent draws: the variance inflation factor of a mean."""
    share = recording.lengths / recording.lengths.sum()
    size = len(batches[0])
    seen = [np.bincount(batch, minlength=len(share)) / size for batch in batches]
    apart = np.mean([((one - share) ** 2).sum() for one in seen])
    return float(apart / ((share * (1 - share)).sum() / size))


def touch(batch: dict[str, Any], recording: Recording) -> int:
    """Read one byte of every memory page of every requested tensor."""
    total = 0
    for key in recording.cameras + recording.vector_keys:
        # numpy, not torch: the same for all, but a quarter of the time, which matters if a sample takes 100 µs.
        total += int(batch[key].numpy().reshape(-1).view(np.uint8)[::4096].max())
    return total


def cpu_s() -> float:
    """Sum up the CPU time of this process and its descendants, dead or alive."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    dead = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime + dead.ru_utime + dead.ru_stime
    for fields in descendants().values():
        total += sum(int(field) for field in fields[11:15]) / TICKS
    return total


def descendants() -> dict[int, list[str]]:
    """List all processes below this one, with their fields of /proc/PID/stat after the name."""
    children: dict[int, list[tuple[int, list[str]]]] = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            children.setdefault(int(fields[1]), []).append((int(folder.name), fields))
    found: dict[int, list[str]] = {}
    todo = [os.getpid()]
    while todo:
        for process, fields in children.get(todo.pop(), []):
            found[process] = fields
            todo.append(process)
    return found


def machine_busy_s() -> float:
    """Sum up the busy time of all cores."""
    with pathlib.Path("/proc/stat").open() as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def finish(result: dict[str, Any]) -> None:
    """Print, and exit without waiting for threads; worker processes hold our output open, so they are ended first."""
    print("RESULT " + json.dumps(result), flush=True)
    sys.stderr.flush()
    for process in descendants():
        os.kill(process, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
