"""Many processes append to one dataset at once; every acknowledged episode must be in it with its values.

    python tests/hostile/appenders.py [--processes 16] [--rounds 8] [--repeats 4] [--kill 0.0]

Half of the appends let the library choose the id. With `--kill P` each append is killed with probability P while it runs,
and its finished episodes are resumed at the end: nothing that was acknowledged or could be resumed may be missing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import random
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import kinograph

FRAMES = 20


def values(process: int, round_: int) -> np.ndarray:
    """What an append writes: different values for every append."""
    return np.random.default_rng(process * 1000 + round_).normal(size=(FRAMES, 3))


def append(path: Path, process: int, round_: int) -> str:
    """Append one episode; returns what went wrong, or an empty string."""
    named = f"p{process}-r{round_}" if (process + round_) % 2 else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with kinograph.Writer(path, mode="append", shard_size=1, memory=1) as writer:
                writer.add_episode({"x": values(process, round_)}, rate_hz=20.0, id=named)
    except kinograph.KinographError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def work(path: Path, process: int, rounds: int, kill: float, done: multiprocessing.Queue) -> None:
    """Append once per round; with `kill`, some rounds in a child that is killed."""
    chance = random.Random(process)
    for round_ in range(rounds):
        if chance.random() >= kill:
            done.put((process, round_, append(path, process, round_)))
            continue
        child = os.fork()
        if child == 0:
            append(path, process, round_)
            os._exit(0)
        time.sleep(chance.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def run(path: Path, options: argparse.Namespace) -> tuple[int, int, list[str]]:
    """One repeat: acknowledged appends, episodes present, and what was wrong."""
    with kinograph.Writer(path) as writer:
        writer.add_episode({"x": np.zeros((FRAMES, 3))}, rate_hz=20.0, id="base")
    fork = multiprocessing.get_context("fork")
    done = fork.Queue()
    workers = [
        fork.Process(target=work, args=(path, process, options.rounds, options.kill, done))
        for process in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    answers = []
    while any(worker.is_alive() for worker in workers) or not done.empty():
        try:
            answers.append(done.get(timeout=0.1))
        except queue.Empty:
            continue
    wrong = [f"{process}/{round_}: {what}" for process, round_, what in answers if what]
    wrong += [f"exit code {worker.exitcode}" for worker in workers if worker.exitcode]
    # Killed rounds may have committed, or left something to resume.
    before = len(kinograph.open(path))
    if options.kill:
        writer = kinograph.Writer(path, mode="resume", shard_size=1, memory=1)
        waiting = len(writer.resumed)
        writer.commit("resume") if waiting else writer.abandon()
        if len(kinograph.open(path)) != before + waiting:
            wrong.append(
                f"{waiting} episodes could be resumed, {len(kinograph.open(path)) - before} were"
            )
    dataset = kinograph.open(path)
    there = [dataset[row]["x"][:] for row in range(len(dataset))]
    stored = {array.tobytes() for array in there}
    for process, round_, what in answers:
        if not what and values(process, round_).tobytes() not in stored:
            wrong.append(f"{process}/{round_} was acknowledged but is missing")
    known = {
        values(p, r).tobytes() for p in range(options.processes) for r in range(options.rounds)
    }
    known.add(np.zeros((FRAMES, 3)).tobytes())
    wrong += [
        "an episode holds values that were never written"
        for array in there
        if array.tobytes() not in known
    ]
    if len(stored) != len(there):
        wrong.append("an episode is present twice")
    wrong += [f"{damage}" for damage in kinograph.verify(path, decode=True)]
    if garbage := kinograph.gc(path).files:
        message = f"{len(garbage)} files are garbage"
        wrong += [] if options.kill else [message]
    return len(answers), len(dataset), wrong


def main() -> int:
    """Run as the command line requests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--kill", type=float, default=0.0)
    options = parser.parse_args()
    failed = 0
    for repeat in range(options.repeats):
        with tempfile.TemporaryDirectory(prefix="kino-append-") as folder:
            acknowledged, episodes, wrong = run(Path(folder) / "a.kino", options)
        failed += bool(wrong)
        print(
            f"repeat {repeat}: {acknowledged} appends acknowledged, {episodes} episodes present, {len(wrong)} wrong"
        )
        for what in wrong[:10]:
            print(f"  {what}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
