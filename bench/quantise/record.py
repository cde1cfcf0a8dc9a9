"""Meta-World: records demonstrations of its scripted expert, and rolls policies out.

    python bench/quantise/record.py pick-place-v3 target/quantise/pick-place.hdf5 --demos 100

    data/demo_0/actions       [T, 4]     change of the hand's position, gripper
    data/demo_0/obs/hand      [T, 4]     position, opening of the gripper
    data/demo_0/obs/object    [T, 14]    position and quaternion of up to two objects
    data/demo_0/obs/goal      [T, 3]
    mask/train, mask/valid               the last fifth is held out

The layout is robomimic's, nothing is rendered. The expert is disturbed: every demonstration draws a speed and a drift, so that
recordings also show how one comes back. Attempts that fail are not recorded.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator

os.environ.setdefault("MUJOCO_GL", "disabled")

import h5py
import metaworld
import numpy as np
import numpy.typing as npt
from metaworld.policies import ENV_POLICY_MAP

Floats = npt.NDArray[np.float64]
#: What a policy sees of Meta-World's 39 numbers: the present, and the goal. The others repeat the step before.
STREAMS = {"obs/hand": slice(0, 4), "obs/object": slice(4, 18), "obs/goal": slice(36, 39)}
SEEN = np.r_[0:18, 36:39]
RATE_HZ = 80
MOST_STEPS, LEAST_STEPS = 150, 20
#: Placements of a task that Meta-World draws from one seed.
PLACEMENTS = 50


class Task:
    """A task of Meta-World, with placements that follow from a seed."""

    def __init__(self, name: str, seed: int, count: int) -> None:
        self.name = name
        self._placements = []
        for number in range(-(-count // PLACEMENTS)):
            drawn = metaworld.MT1(name, seed=seed + number)
            self._placements += drawn.train_tasks
        self._placements = self._placements[:count]
        self._env = drawn.train_classes[name](render_mode=None)

    def __len__(self) -> int:
        return len(self._placements)

    def begin(self, number: int) -> Floats:
        """Place everything, and give the first observation."""
        self._env.set_task(self._placements[number])
        return self._env.reset()[0]

    def step(self, action: Floats) -> tuple[Floats, bool]:
        """Act, and give the observation and whether the task is done."""
        seen, _, _, _, info = self._env.step(action)
        return seen, info["success"] > 0

    def attempt(self, number: int, act: Callable[[Floats], Floats]) -> bool:
        """Roll a policy out, and give whether it succeeds."""
        seen = self.begin(number)
        for _ in range(MOST_STEPS):
            seen, done = self.step(act(seen[SEEN]))
            if done:
                return True
        return False


def record(task: Task, number: int, random: np.random.Generator) -> dict[str, Floats] | None:
    """Play one demonstration; none if it fails."""
    expert = ENV_POLICY_MAP[task.name]()
    seen = task.begin(number)
    speed, drift = random.uniform(0.6, 1.0), random.uniform(0.01, 0.08)
    wander = np.zeros(3)
    frames, actions, end = [], [], MOST_STEPS
    for step in range(MOST_STEPS):
        frames.append(seen)
        action = np.clip(expert.get_action(seen), -1, 1).astype(np.float64)
        wander += -0.15 * wander + random.normal(0, drift, 3)
        action[:3] = np.clip(action[:3] * speed + wander, -1, 1)
        actions.append(action)
        seen, done = task.step(action)
        # Some steps after success, so that policies see that it lasts.
        end = min(end, step + 5) if done else end
        if step >= end:
            break
    if end == MOST_STEPS or len(actions) < LEAST_STEPS:
        return None
    stacked = np.stack(frames)
    return {"actions": np.stack(actions), **{key: stacked[:, at] for key, at in STREAMS.items()}}


def demonstrations(name: str, demos: int, seed: int) -> Iterator[dict[str, Floats]]:
    """Play until there are enough demonstrations."""
    random = np.random.default_rng(seed)
    # Some attempts fail.
    task = Task(name, seed, 3 * demos // 2)
    found = 0
    for number in range(len(task)):
        demo = record(task, number, random)
        if demo is not None:
            yield demo
            found += 1
        if found == demos:
            return
    raise SystemExit(f"{name}: only {found} of {len(task)} attempts succeeded")


def main() -> None:
    """Record, and split."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task", help="a task of Meta-World, such as pick-place-v3")
    parser.add_argument("out", type=pathlib.Path, help="where the recording goes")
    parser.add_argument("--demos", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # Its experts ask for more than 1, which the environment clips.
    warnings.filterwarnings("ignore", message="Constant")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    names = []
    with h5py.File(options.out, "w") as file:
        for demo in demonstrations(options.task, options.demos, options.seed):
            names.append(f"demo_{len(names)}")
            group = file.create_group(f"data/{names[-1]}")
            for key, values in demo.items():
                group[key] = values
            group.attrs["num_samples"] = len(demo["actions"])
        held_out = options.demos // 5
        file["mask/train"] = np.array(names[:-held_out], dtype="S")
        file["mask/valid"] = np.array(names[-held_out:], dtype="S")
    print(f"{len(names)} demonstrations in {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
