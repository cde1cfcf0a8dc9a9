"""Trains policies on quantised recordings, scores them on raw held-out episodes, and rolls them out.

    target/quantise/env/bin/python bench/quantise/study.py pick-place         # Meta-World, with rollouts
    target/quantise/env/bin/python bench/quantise/study.py lift               # robosuite's Lift, offline
    target/quantise/env/bin/python bench/quantise/study.py g1                 # a Unitree G1, offline

One thread. The arms, tests and contrasts were fixed before the runs (preregistration.md). A run is one arm and training seed; all arms
of a part come before the next seed. Each is written to bench/results/quantise.csv when it ends and skipped if it is there already:
stop at any time, and continue. `won` has a bit per placement, the first one highest.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from arms import ARMS, FIRST, SECOND, STORED_ONLY, Arms, Floats, Recording
from policy import Policy, Runner, to_samples, train

if TYPE_CHECKING:
    from record import Task

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "target"
RUNS = ROOT / "bench" / "results" / "quantise.csv"
ARMS_CSV = ROOT / "bench" / "results" / "quantise_arms.csv"
COLUMNS = [
    "task",
    "arm",
    "seed",
    "mode",
    "error",
    "error_near",
    "error_elsewhere",
    "success",
    "won",
]
#: Placements of the rollouts: Meta-World's of this seed, which neither demonstrations nor tuning used.
PLACEMENTS, PLACEMENT_SEED = 50, 9000
FIRST_SEED, SEEDS = 100, 10
#: Further tests of the same weights: on live observations that are rounded as the stored ones of that many bits.
ROUNDED = {"raw": [4, 3], "seen4": [4], "seen3": [3]}
META_WORLD = ("obs/hand", "obs/object", "obs/goal")
LIFT = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
RECORDINGS = {
    "pick-place": Recording(WORK / "quantise" / "pick-place.hdf5", 80, META_WORLD, 3, 40),
    "lift": Recording(WORK / "convergence" / "lift.hdf5", 20, LIFT, 6, 80),
    # Its right index finger.
    "g1": Recording(WORK / "quantise" / "g1.hdf5", 30, ("obs/state",), 23, 64),
}
#: Tasks that can be rolled out, and what Meta-World calls them.
ROLLED_OUT = {"pick-place": "pick-place-v3"}

Row = dict[str, str]


class Study:
    """The arms of a task, and the tests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arms = Arms(RECORDINGS[name], WORK / "quantise" / name)
        self._near = np.concatenate([episode.near for episode in self.arms.held_out()])
        self._held_out = to_samples([(one.seen, one.actions) for one in self.arms.held_out()])
        self._task: Task | None = None
        if name in ROLLED_OUT:
            from record import Task  # noqa: PLC0415 (Lift needs no simulator)

            self._task = Task(ROLLED_OUT[name], PLACEMENT_SEED, PLACEMENTS)

    def run(self, arm: str, seed: int) -> list[Row]:
        """Train once, and test."""
        every = 2 if arm == "frames/2" else 1
        episodes = [(one.seen, one.actions) for one in self.arms.train(arm)]
        policy = train(to_samples(episodes, every), seed)
        apart = np.abs(policy.predict(self._held_out.seen) - self._held_out.chunks).mean(
            axis=(1, 2)
        )
        errors = {
            "error": apart.mean(),
            "error_near": apart[self._near].mean(),
            "error_elsewhere": apart[~self._near].mean(),
        }
        row = {"task": self.name, "arm": arm, "seed": str(seed), "mode": "raw"}
        row |= {name: f"{value:.6f}" for name, value in errors.items()}
        if self._task is None:
            return [row | {"success": "", "won": ""}]
        rows = [row | self._roll_out(self._task, policy, np.zeros(1))]
        for bits in ROUNDED.get(arm, []):
            tested = self._roll_out(self._task, policy, self.arms.rounding(bits))
            rows.append(row | dict.fromkeys(errors, "") | tested | {"mode": f"seen{bits}"})
        return rows

    def _roll_out(self, task: Task, policy: Policy, steps: Floats) -> Row:
        won = []
        for placement in range(len(task)):
            won.append(task.attempt(placement, Runner(policy, steps).act))
        return {"success": f"{np.mean(won):.4f}", "won": np.packbits(won).tobytes().hex()}

    def write_arms(self) -> None:
        """Write what each arm takes on disk, also of the streams that it rounds, and how far its frames are from raw ones."""
        kept = [row for row in read(ARMS_CSV) if row["task"] != self.name]
        near = np.concatenate([one.near for one in self.arms.train("raw")])
        for arm in [*ARMS, *STORED_ONLY]:
            sizes = {
                "frame_bytes": self.arms.frame_bytes(arm),
                "rounded_bytes": self.arms.frame_bytes(arm, of=arm),
                "lossless_bytes": self.arms.frame_bytes("raw", of=arm),
                "distance": self.arms.distance(arm),
                "near": near.mean(),
            }
            row = {"task": self.name, "arm": arm}
            kept.append(row | {name: f"{value:.4f}" for name, value in sizes.items()})
        with ARMS_CSV.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(kept[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)


def read(path: pathlib.Path) -> list[Row]:
    """Read a CSV file; no rows if it is missing."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(rows: list[Row]) -> None:
    """Add the rows of a run."""
    fresh = not RUNS.exists()
    with RUNS.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


@dataclasses.dataclass(frozen=True)
class Run:
    """One training."""

    arm: str
    seed: int


def planned(first_seed: int, seeds: int) -> Iterator[Run]:
    """List the runs in order: the first part seed by seed, then the second."""
    for part in (FIRST, SECOND):
        for seed in range(first_seed, first_seed + seeds):
            yield from (Run(arm, seed) for arm in part)


def main() -> None:
    """Run what is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("task", choices=RECORDINGS)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--sizes", action="store_true", help="pack the arms, and train nothing")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so many")
    options = parser.parse_args()
    study = Study(options.task)
    study.write_arms()
    if options.sizes:
        return
    done = {(row["arm"], int(row["seed"])) for row in read(RUNS) if row["task"] == options.task}
    left = [
        one for one in planned(options.first_seed, options.seeds) if (one.arm, one.seed) not in done
    ]
    begin = time.monotonic()
    for number, one in enumerate(left):
        if time.monotonic() - begin > 60 * options.minutes:
            print(f"{len(left) - number} runs left; run again to continue", file=sys.stderr)
            return
        rows = study.run(one.arm, one.seed)
        append(rows)
        tested = ", ".join(f"{row['mode']} {row['success']}" for row in rows)
        print(
            f"{number + 1} of {len(left)}: {one.arm}, {one.seed}: {rows[0]['error']}, {tested}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
