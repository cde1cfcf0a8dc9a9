"""Start and end loaders in every possible way: `python bench/starts.py [--starts 1000] [--interrupts 200]`.

    starts       child processes by fork (while other threads read), forkserver and spawn; in each, loaders that end by close, an early
                 break, an exception in the loop, garbage collection, a cycle of references, and the end of Python
    interrupts   SIGINT at random moments, while the loop waits for a batch and while it works; the loop continues afterwards

After each: the first batch is correct, no loader thread is left (by /proc/self/task), and the process exits normally.
A process that hangs prints the stack of every thread and fails the run. Writes bench/results/starts.csv after a complete run.
"""

from __future__ import annotations

import argparse
import csv
import faulthandler
import gc
import multiprocessing
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import kinograph
import kinograph.numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = ("fork", "forkserver", "spawn")
ENDINGS = ("close", "break", "exception", "collect", "cycle", "exit")
# A child that takes longer than this has hung.
LIMIT_S = 120
REQUEST = {"camera": range(-1, 1), "actions": range(4)}


def write(path: pathlib.Path) -> None:
    """Write a dataset of a few episodes."""
    rng = np.random.default_rng(0)
    with kinograph.Writer(path) as writer:
        for frames in (40, 60, 90, 120):
            camera = rng.integers(0, 256, (frames, 24, 32, 3), dtype=np.uint8)
            streams = {"actions": rng.normal(size=(frames, 7)), "camera": camera}
            writer.add_episode(streams, rate_hz=20.0)


def make(path: pathlib.Path, **options: float) -> kinograph.numpy.Loader:
    """Make a loader; its first batch is always the same."""
    return kinograph.numpy.Loader(
        path,
        windows=REQUEST,
        batch_size=8,
        seed=3,
        shuffle=kinograph.Shuffle(fraction=0.5),
        **options,
    )


def own_threads() -> int:
    """Count the loader threads in this process."""
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return sum((task / "comm").read_text().startswith("kino-") for task in tasks)


def wait_for_no_thread() -> None:
    """Fail if a loader thread is left."""
    # A joined thread stays in /proc for a moment.
    until = time.monotonic() + 2
    while own_threads() and time.monotonic() < until:
        time.sleep(0.005)
    if own_threads():
        raise SystemExit("a loader thread is left")


def start_and_end(path: pathlib.Path, ending: str, first: float, batches: int) -> None:
    """Create a loader, take some batches, and end in the given way."""
    loader = make(path)
    try:
        for number, batch in enumerate(loader):
            if number == 0 and batch["actions"].sum() != first:
                raise SystemExit("the first batch is wrong")
            if number == batches:
                if ending == "exception":
                    raise RuntimeError("in the loop")
                break
    except RuntimeError:
        loader.close()
    if ending == "close":
        loader.close()
    if ending == "cycle":
        loader.myself = loader  # type: ignore[attr-defined]
    if ending == "exit":
        # Kept alive until the interpreter is gone.
        sys.modules["kept"] = loader  # type: ignore[assignment]
        return
    del loader
    gc.collect()
    wait_for_no_thread()


def child(path: pathlib.Path, endings: list[str], first: float, seed: int) -> None:
    """Start loaders one after the other."""
    faulthandler.dump_traceback_later(LIMIT_S - 20, exit=True)
    draw = random.Random(seed)
    for ending in endings:
        start_and_end(path, ending, first, draw.randrange(4))


def run_starts(path: pathlib.Path, starts: int, first: float) -> dict[str, int]:
    """Start loaders in child processes; returns how many by each method."""
    done = dict.fromkeys(METHODS, 0)
    number = 0
    with make(path) as mine:
        batches = iter(mine)
        while sum(done.values()) < starts:
            method = METHODS[number % len(METHODS)]
            # The parent's threads are working while it forks.
            next(batches, None)
            endings = [ENDINGS[(number + place) % (len(ENDINGS) - 1)] for place in range(5)]
            endings = [*endings, "exit"][-min(6, starts - sum(done.values())) :]
            context = multiprocessing.get_context(method)
            process = context.Process(target=child, args=(path, endings, first, number))
            process.start()
            process.join(LIMIT_S)
            if process.exitcode != 0:
                sys.exit(f"error: child {number} by {method}, {endings}: {process.exitcode}")
            done[method] += len(endings)
            number += 1
            if next(batches, None) is None:
                batches = iter(mine)
    wait_for_no_thread()
    return done


# Runs until it is interrupted; the state after each interrupt is checked.
INTERRUPTED = """
import faulthandler, signal, sys, time
sys.path.insert(0, {here!r})
# A shell may ignore it for background jobs.
signal.signal(signal.SIGINT, signal.default_int_handler)
import starts
path, times, first = {path!r}, {times}, {first!r}
faulthandler.dump_traceback_later(100, exit=True)
slow, loader = None, starts.make(path)
for turn in range(times):
    try:
        print("ready", flush=True)
        if turn % 2:
            # So little CPU that the loop waits for batches.
            slow = starts.make(path, cpu=0.01)
            while True:
                for batch in slow: pass
        while True:
            for batch in loader: time.sleep(0.001)
    except KeyboardInterrupt:
        pass
    if slow is not None:
        slow.close()
    loader.close()
    slow = None
    starts.wait_for_no_thread()
    loader.load_state_dict(starts.make(path).state_dict())
    if next(iter(loader))["actions"].sum() != first:
        raise SystemExit("the first batch is wrong")
print("ready", flush=True)
while True:
    for batch in loader: pass
"""


def run_interrupts(path: pathlib.Path, interrupts: int, first: float) -> tuple[int, float]:
    """Interrupt loops at random moments; returns how many, and the longest time until a process continued or ended."""
    draw = random.Random(1)
    done, slowest = 0, 0.0
    while done < interrupts:
        times = min(10, interrupts - done) - 1
        here = str(pathlib.Path(__file__).resolve().parent)
        script = INTERRUPTED.format(here=here, path=str(path), times=times, first=first)
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        for turn in range(times + 1):
            wait_for_line(process)
            time.sleep(draw.uniform(0.0, 0.15))
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            if turn == times:
                # The last one is not caught: it ends the process.
                _, errors = process.communicate(timeout=LIMIT_S)
                if process.returncode != -signal.SIGINT or b"KeyboardInterrupt" not in errors:
                    sys.exit(f"error: ended with {process.returncode}\n{errors.decode()}")
            elif select.select([process.stdout], [], [], LIMIT_S)[0] == []:
                process.kill()
                sys.exit("error: an interrupted process does not continue")
            slowest = max(slowest, time.monotonic() - sent)
            done += 1
    return done, slowest


def wait_for_line(process: subprocess.Popen[bytes]) -> None:
    """Wait until the child can be interrupted."""
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        _, errors = process.communicate(timeout=LIMIT_S)
        sys.exit(f"error: an interrupted process failed\n{errors.decode()}")


def main() -> None:
    """Run everything in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--interrupts", type=int, default=200)
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "d.kino"
        write(path)
        with make(path) as loader:
            first = float(next(iter(loader))["actions"].sum())
        by_method = run_starts(path, options.starts, first)
        done, slowest = run_interrupts(path, options.interrupts, first)
    row = by_method | {
        "interrupts": done,
        "slowest to go on s": f"{slowest:.2f}",
        "hangs": 0,
        "threads left": 0,
        "seconds": f"{time.monotonic() - begin:.0f}",
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    print(", ".join(f"{name}: {value}" for name, value in row.items()))
    if (options.starts, options.interrupts) == (1000, 200):
        with (ROOT / "bench/results/starts.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, row)
            writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
