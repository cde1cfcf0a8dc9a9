"""Rolls the policies of lift.py out in robosuite's Lift, on CPU: `target/convergence/record/bin/python bench/signal/lift_rollouts.py`.

Every policy meets the same placements: cube and arm are drawn from a generator that the placement's number seeds. An attempt succeeds
when robosuite says that the cube is lifted, within 120 steps of 50 ms. A row of bench/results/signal_lift.csv is written as a policy
ends, and policies that have one are skipped. `won` has a bit per placement, the first one highest.
"""

from __future__ import annotations

import argparse
import csv
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("MUJOCO_GL", "disabled")

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "convergence"))

from lift import KEYS, make  # noqa: E402 (what was recorded)

FOLDER = ROOT / "target" / "signal" / "lift"
RESULTS = ROOT / "bench" / "results" / "signal_lift.csv"
COLUMNS = ["arm", "seed", "bytes", "error", "placements", "success", "won"]
FIRST_SEED = 100
FIRST_PLACEMENT, PLACEMENTS = 50_000, 50
MOST_STEPS, EXECUTED, ACTIONS = 120, 4, 7


class Runner:
    """A policy of lift.py, which executes the first actions of a chunk before it asks for the next one."""

    def __init__(self, path: pathlib.Path) -> None:
        with np.load(path) as arrays:
            count = sum(name.startswith("w") for name in arrays.files)
            self.layers = [(arrays[f"w{at}"], arrays[f"b{at}"]) for at in range(count)]
            self.error, self.bytes = float(arrays["error"]), int(arrays["bytes"])

    def chunk(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        """Give the next actions."""
        values = np.concatenate([np.asarray(obs[key], np.float64) for key in KEYS.values()])
        for number, (weight, bias) in enumerate(self.layers):
            values = values @ weight + bias
            if number < len(self.layers) - 1:
                values = np.maximum(values, 0)
        return np.clip(values.reshape(-1, ACTIONS)[:EXECUTED], -1, 1)


def attempt(env: Any, runner: Runner, placement: int) -> bool:  # noqa: ANN401 (robosuite has no types)
    """Roll out once, and say whether the cube was lifted."""
    env.rng = env.placement_initializer.rng = np.random.default_rng(placement)
    obs = env.reset()
    for step in range(MOST_STEPS):
        if step % EXECUTED == 0:
            actions = runner.chunk(obs)
        obs, reward, _, _ = env.step(actions[step % EXECUTED])
        if reward > 0:
            return True
    return False


def done() -> set[str]:
    """Name the policies that have a row."""
    if not RESULTS.exists():
        return set()
    with RESULTS.open(newline="") as file:
        return {f"{row['arm']}-{row['seed']}" for row in csv.DictReader(file)}


def append(row: dict[str, object]) -> None:
    """Add a row to the CSV."""
    is_new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    """Roll out what is left, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--placements", type=int, default=PLACEMENTS)
    parser.add_argument(
        "--only", nargs="+", help="policies to try, such as lossless-7; writes nothing"
    )
    options = parser.parse_args()
    env = make(seed=0, horizon=2 * MOST_STEPS)
    found = done()
    trained = [path.stem.rpartition("-") for path in FOLDER.glob("*.npz")]
    # The two arms of all seeds first, then the control.
    trained.sort(key=lambda parts: (parts[0] == "half", int(parts[2]), parts[0]))
    waiting = ["".join(parts) for parts in trained if int(parts[2]) >= FIRST_SEED]
    waiting = [name for name in waiting if name not in found]
    for name in options.only or waiting:
        runner = Runner(FOLDER / f"{name}.npz")
        first = FIRST_PLACEMENT + (1000 if options.only else 0)
        places = range(first, first + options.placements)
        won = np.array([attempt(env, runner, place) for place in places])
        arm, _, seed = name.rpartition("-")
        print(f"{name}: {won.mean():.2f}", file=sys.stderr, flush=True)
        if options.only:
            continue
        row = {"arm": arm, "seed": seed, "bytes": runner.bytes, "error": f"{runner.error:.6f}"}
        row |= {"placements": len(won), "success": f"{won.mean():.4f}"}
        append(row | {"won": np.packbits(won).tobytes().hex()})


if __name__ == "__main__":
    main()
