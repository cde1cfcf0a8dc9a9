"""Brings the states and actions of a Unitree G1 into robomimic's layout, as the other recordings of this study.

    python bench/quantise/g1.py g1_state_action.npz target/quantise/g1.hdf5

The recording is YifanTian07/G1-policy-train: 80 episodes of human teleoperation at 30 Hz, 26 joints of two arms and two hands, with the arrays
`state`, `action` and `lengths`. The last fifth of the episodes is held out.
"""

from __future__ import annotations

import argparse
import pathlib

import h5py
import numpy as np


def main() -> None:
    """Split the arrays into episodes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    with np.load(options.recording) as arrays, h5py.File(options.out, "w") as file:
        ends = np.cumsum(arrays["lengths"])
        names = [f"demo_{number}" for number in range(len(ends))]
        state, action = arrays["state"], arrays["action"]
        for name, begin, end in zip(names, [0, *ends[:-1]], ends, strict=True):
            group = file.create_group(f"data/{name}")
            group["actions"], group["obs/state"] = action[begin:end], state[begin:end]
            group.attrs["num_samples"] = end - begin
        held_out = len(names) // 5
        file["mask/train"] = np.array(names[:-held_out], dtype="S")
        file["mask/valid"] = np.array(names[-held_out:], dtype="S")


if __name__ == "__main__":
    main()
