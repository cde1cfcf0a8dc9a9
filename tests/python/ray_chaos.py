"""A recording for packs in parts, and a thread that kills the workers of a local Ray cluster."""

import contextlib
import os
import pathlib
import random
import signal
import threading

import h5py
import numpy as np


def write_recording(path, episodes, frames=30, side=32, seed=0):
    """Write a robomimic file of drifting noise: joints, actions and a camera."""
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = (
            '{"env_name": "lift", "type": 1, "env_kwargs": {"control_freq": 20}}'
        )
        for number in range(episodes):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = frames
            steps = rng.normal(size=(frames, 7)).cumsum(0).astype(np.float32)
            demo["actions"] = steps
            demo["obs/joints"] = np.tanh(steps)
            base = rng.integers(0, 200, (side, side, 3))
            noise = rng.integers(0, 20, (frames, side, side, 3))
            demo["obs/front_image"] = (base + noise).astype(np.uint8)


def _workers():
    """Return the processes of Ray's workers that run a task, below this process only."""
    parents, names = {}, {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = (folder / "stat").read_text()
                pid = int(folder.name)
                parents[pid] = int(stat.rpartition(")")[2].split()[1])
                names[pid] = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()

    def is_ours(pid):
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    # Not Ray's own agents (`ray::DashboardAgent`), nor workers without a task (`ray::IDLE`).
    tasks = [pid for pid, name in names.items() if name.startswith("ray::part")]
    return [pid for pid in tasks if is_ours(pid)]


class Chaos:
    """Kills a worker every now and then, until it has killed ``most``."""

    def __init__(self, most, every_s, seed=0):
        self.kills = 0
        self._most, self._every_s, self._random = most, every_s, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while self.kills < self._most and not self._stop.wait(
            self._random.uniform(0, 2 * self._every_s)
        ):
            workers = _workers()
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._random.choice(workers), signal.SIGKILL)
                    self.kills += 1
