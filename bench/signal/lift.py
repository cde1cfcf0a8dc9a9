"""Trains policies of Lift on a lossless dataset, and on what `signal(2%)` makes of it.

    python bench/signal/lift.py target/convergence/lift.hdf5                        # chooses the plan, stores, trains
    target/convergence/record/bin/python bench/signal/lift_rollouts.py              # rolls the policies out, in robosuite

    target/signal/lift/lossless.kino, planned.kino                the arms
    target/signal/lift/lossless-100.npz, planned-100.npz, …       weights by arm and training seed, for the rollouts

Arms, tests and contrasts were fixed before the runs (preregistration_lift.md). The network is that of bench/quantise. Trained policies are
plain arrays, because robosuite and torch want different versions of NumPy. A policy that is there already is not trained again.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "quantise"))

from policy import Samples, to_samples, train  # noqa: E402 (of the study of rounding)

FOLDER = ROOT / "target" / "signal" / "lift"
SEEN = ("obs/robot0_eef_pos", "obs/robot0_eef_quat", "obs/robot0_gripper_qpos", "obs/object")
ACTIONS = "actions"
BOUND = "signal(2%)"
ARMS = ["lossless", "planned"]
#: A positive control: every second demonstration of the lossless arm.
CONTROL = "half"
FIRST_SEED, SEEDS = 100, 10


def store(recording: pathlib.Path) -> None:
    """Pack the recording without loss, and with the plan that the bound leads to."""
    lossless, planned = map(path_of, ARMS)
    if not lossless.exists():
        kinograph.pack(recording, lossless, rate_hz=20)
    if planned.exists():
        return
    found = kinograph.plan(
        lossless,
        step_s=0.1,
        bounds=dict.fromkeys(["obs/*", ACTIONS], BOUND),
        probe={"inputs": SEEN, "targets": [ACTIONS], "seconds": 60},
        seconds=0.5,
    )
    for one in found.signal_bounds:
        print(one.stream, one.codec or "lossless", one.reason)
    kinograph.repack(lossless, planned, plan=found)


def path_of(arm: str) -> pathlib.Path:
    """Say where an arm is stored."""
    return FOLDER / f"{ARMS[0] if arm == CONTROL else arm}.kino"


def bytes_of(arm: str) -> int:
    """Give the stored bytes of all streams of an arm."""
    streams = kinograph.open(path_of(arm)).streams
    return sum(streams[name].bytes for name in (ACTIONS, *SEEN)) // (2 if arm == CONTROL else 1)


def samples_of(arm: str, split: str) -> Samples:
    """Read the samples of a split as an arm has them."""
    episodes = [one for one in kinograph.open(path_of(arm)) if split in one.splits]
    episodes = episodes[:: 2 if arm == CONTROL else 1]
    read = [
        (np.concatenate([one[name][:] for name in SEEN], axis=1), one[ACTIONS][:])
        for one in episodes
    ]
    return to_samples(read)


def train_all(seeds: Sequence[int]) -> None:
    """Train what is missing, all arms of a seed before the next seed."""
    samples = {arm: samples_of(arm, "train") for arm in [*ARMS, CONTROL]}
    held_out = samples_of("lossless", "valid")
    for seed in seeds:
        for arm, own in samples.items():
            path = FOLDER / f"{arm}-{seed}.npz"
            if path.exists():
                continue
            policy = train(own, seed)
            error = np.abs(policy.predict(held_out.seen) - held_out.chunks).mean()
            weights = {f"w{at}": weight for at, (weight, _) in enumerate(policy.layers)}
            biases = {f"b{at}": bias for at, (_, bias) in enumerate(policy.layers)}
            np.savez(path, error=error, bytes=bytes_of(arm), **weights, **biases)
            print(arm, seed, f"held-out error {error:.4f}", flush=True)


def main() -> None:
    """Store the arms, and train."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "recording", type=pathlib.Path, help="what bench/convergence/lift.py recorded"
    )
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    store(options.recording)
    train_all(range(options.first_seed, options.first_seed + options.seeds))


if __name__ == "__main__":
    main()
