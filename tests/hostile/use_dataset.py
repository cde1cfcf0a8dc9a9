"""Reads a dataset as a training program does, and reports the result as its exit code.

0 everything was read and is correct, 1 a KinographError, 4 data that differs from the episodes.

    python use_dataset.py loader DATASET      every stream through a loader
    python use_dataset.py skip DATASET        the same with on_error="skip"
    python use_dataset.py statistics DATASET  the statistics
    python use_dataset.py append DATASET      one more episode, which must be present afterwards
"""

from __future__ import annotations

import sys

import numpy as np

import kinograph
import kinograph.numpy


def load(path: str, on_error: str) -> bool:
    """Whether every batch holds frames of the episodes and, with `raise`, all of them in order."""
    ds = kinograph.open(path)
    for name in ds.streams:
        windows = ds.samples({name: [0]}, anchor=name)
        loader = kinograph.numpy.Loader(windows, batch_size=1, shuffle=False, on_error=on_error)
        got = [batch[name][0][0] for batch in loader]
        held = []
        for episode in ds:
            if on_error == "raise" or episode[name].dtype == ds.streams[name].dtype:
                held.extend(episode[name][:])
        if on_error == "raise":
            right = len(got) == len(held) and all(map(np.array_equal, got, held))
        else:
            right = all(any(np.array_equal(one, other) for other in held) for one in got)
        if not right:
            return False
    return True


def append(path: str) -> bool:
    """Whether an acknowledged episode is present."""
    with kinograph.Writer(path, mode="append") as writer:
        writer.add_episode({"joints": np.ones((4, 3), np.float32)}, rate_hz=10.0, id="late")
    return np.array_equal(kinograph.open(path)["late"]["joints"][:], np.ones((4, 3)))


def stats(path: str) -> bool:
    """Whether the statistics can be read and are numbers."""
    found = kinograph.open(path).stats
    return all(np.all(np.isfinite(one.mean)) for one in found.values())


def main(way: str, path: str) -> int:
    """Runs as the command line requests."""
    try:
        if way in ("loader", "skip"):
            right = load(path, {"loader": "raise", "skip": "skip"}[way])
        else:
            right = {"append": append, "statistics": stats}[way](path)
    except kinograph.KinographError as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    print("right" if right else "DATA DIFFERS FROM THE EPISODES")
    return 0 if right else 4


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
