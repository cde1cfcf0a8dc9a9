"""Records demonstrations of robosuite's Lift with a scripted policy: `python bench/convergence/lift.py OUT.hdf5 --demos 100`.

    data/demo_0/actions                    [T, 7]
    data/demo_0/obs/robot0_eef_pos, …      what robomimic trains on for Lift, without images
    mask/train, mask/valid                 the last fifth is held out

The layout is robomimic's. The physics are MuJoCo's; nothing is rendered. The policy reaches, aligns, descends, grasps and lifts,
and each demonstration draws its own speed, gain, drift, hesitation and a point on the way, so that episodes differ as those of people
do: samples of one episode are alike, and an order that reads few episodes at a time has something to get wrong.
"""

import argparse
import json
import os
import pathlib
import sys
import time
from typing import Any

os.environ.setdefault("MUJOCO_GL", "disabled")

import h5py
import numpy as np
import robosuite
from robosuite.controllers import load_composite_controller_config

KEYS = {
    "robot0_eef_pos": "robot0_eef_pos",
    "robot0_eef_quat": "robot0_eef_quat",
    "robot0_gripper_qpos": "robot0_gripper_qpos",
    "object": "object-state",
}
MOST_STEPS, LEAST_STEPS = 150, 30
PHASES = 5
RATE_HZ = 20
CLOSED, OPEN = 1.0, -1.0


def make(seed: int, horizon: int) -> Any:  # noqa: ANN401 (robosuite has no types)
    """Make Lift without rendering."""
    return robosuite.make(
        "Lift",
        robots="Panda",
        controller_configs=load_composite_controller_config(controller="BASIC", robot="Panda"),
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        control_freq=RATE_HZ,
        horizon=horizon,
        ignore_done=True,
        seed=seed,
    )


class Operator:
    """A scripted policy with habits drawn for one demonstration."""

    def __init__(self, random: np.random.Generator, cube: np.ndarray) -> None:
        self.random = random
        self.speed = random.uniform(0.22, 1.0)
        self.gain = random.uniform(6, 14)
        self.drift = random.uniform(0.02, 0.12)
        self.hesitation = random.uniform(0, 0.06)
        self.via = cube + np.append(random.normal(0, 0.05, 2), random.uniform(0.08, 0.14))
        self.wander = np.zeros(6)
        self.phase = self.held = 0

    def act(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        """Give the next action, and go on to the next phase where this one is reached."""
        hand, cube = obs["robot0_eef_pos"], obs["cube_pos"]
        targets = [self.via, cube + np.array([0, 0, 0.05]), cube, cube, np.array([*hand[:2], 0.96])]
        apart = targets[self.phase] - hand
        action = np.zeros(7)
        action[:3] = np.clip(apart * self.gain, -1, 1) * self.speed
        if self.phase == 3:
            action[:3] *= 0.2
        if self.phase < 3:
            action[5] = np.clip(2 * turn(obs), -0.4, 0.4)
        scale = self.drift * np.array([1, 1, 1, 0.3, 0.3, 0.3])
        self.wander += -0.15 * self.wander + self.random.normal(0, scale)
        action[:6] += self.wander * (0.35 if self.phase in (2, 3) else 1.0)
        if self.random.random() < self.hesitation:
            action[:6] *= 0.15
        action[6] = CLOSED if self.phase >= 3 else OPEN
        self.phase += self._reached(apart)
        return np.clip(action, -1, 1)

    def _reached(self, apart: np.ndarray) -> bool:
        far = np.linalg.norm(apart)
        if self.phase == 0:
            return bool(far < 0.03)
        if self.phase == 1:
            return bool(np.linalg.norm(apart[:2]) < 0.012 and abs(apart[2]) < 0.02)
        if self.phase == 2:
            return bool(far < 0.012)
        self.held += 1
        return self.phase < PHASES - 1 and self.held > 3 + int(self.random.integers(0, 4))


def turn(obs: dict[str, np.ndarray]) -> float:
    """Give the smallest turn about the vertical that lines the gripper up with a face of the cube."""
    x, y, z, w = np.stack([obs["cube_quat"], obs["robot0_eef_quat"]], axis=-1)
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return float((yaw[0] - yaw[1] + np.pi / 4) % (np.pi / 2) - np.pi / 4)


def record(env: object, random: np.random.Generator) -> dict[str, np.ndarray] | None:
    """Play one demonstration; none if the cube was not lifted."""
    obs = env.reset()
    operator = Operator(random, obs["cube_pos"])
    frames, actions, end = [], [], MOST_STEPS
    for step in range(MOST_STEPS):
        frames.append({name: np.array(obs[key], np.float64) for name, key in KEYS.items()})
        actions.append(operator.act(obs))
        obs, reward, _, _ = env.step(actions[-1])
        if reward > 0:
            end = min(end, step + 3)
        if step >= end:
            break
    if end == MOST_STEPS or len(actions) < LEAST_STEPS:
        return None
    found = {f"obs/{name}": np.stack([frame[name] for frame in frames]) for name in KEYS}
    return {"actions": np.stack(actions), **found}


def main() -> None:
    """Record until there are enough, and split them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="where the recording goes")
    parser.add_argument("--demos", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    env = make(options.seed, 2 * MOST_STEPS)
    random = np.random.default_rng(options.seed)
    begin, names, steps = time.monotonic(), [], 0
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(options.out, "w") as file:
        while len(names) < options.demos:
            demo = record(env, random)
            if demo is None:
                continue
            group = file.create_group(f"data/demo_{len(names)}")
            for name, values in demo.items():
                group[name] = values
            group.attrs["num_samples"] = len(demo["actions"])
            steps += len(demo["actions"])
            names.append(group.name.rpartition("/")[2])
            if len(names) % 10 == 0:
                seconds = time.monotonic() - begin
                print(f"{len(names)} of {options.demos} in {seconds:.0f} s", file=sys.stderr)
        file["data"].attrs["total"] = steps
        file["data"].attrs["env_args"] = json.dumps(
            {"env_name": "Lift", "type": 1, "env_kwargs": {"control_freq": RATE_HZ}}
        )
        held_out = options.demos // 5
        file["mask/train"] = np.array(names[:-held_out], dtype="S")
        file["mask/valid"] = np.array(names[-held_out:], dtype="S")


if __name__ == "__main__":
    main()
