"""What does an item of robomimic's dataset cost, ours against theirs? `python bench/items.py`.

Repeats the sample recording to 72 demonstrations, as HDF5 and packed, and reads items in shuffled order: ten steps, two cameras of 84 × 84,
four observations, actions, rewards and dones. Every timed item was compared with the recording first. robomimic's own class is
measured if it is installed. CPU time of the reading thread, best of five rounds. Writes bench/results/items.csv.
"""

import csv
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

import kinograph
from kinograph.robomimic import SequenceDataset

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "bench" / "items"
OBS = ["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"]
CAMERAS = ["agentview_image", "robot0_eye_in_hand_image"]
OPTIONS = {"obs_keys": OBS + CAMERAS, "dataset_keys": ["actions", "rewards", "dones"]}
OPTIONS |= {"seq_length": 10, "load_next_obs": False}
DEMOS, ITEMS, ROUNDS = 72, 600, 5


def repeat(recording: pathlib.Path, target: pathlib.Path) -> None:
    """Write the demonstrations of a recording repeatedly, with new numbers."""
    with h5py.File(recording) as old, h5py.File(target, "w") as new:
        data = new.create_group("data")
        data.attrs.update(old["data"].attrs)
        for number in range(DEMOS):
            old.copy(f"data/demo_{number % 3}", data, name=f"demo_{number}")


def read(source: pathlib.Path) -> list[dict[str, np.ndarray]]:
    """Read the observations of every demonstration."""
    with h5py.File(source) as file:
        demos = [file[f"data/demo_{number}/obs"] for number in range(DEMOS)]
        return [{key: demo[key][()] for key in OBS + CAMERAS} for demo in demos]


def check(dataset: Any, demos: list[dict[str, np.ndarray]], places: list[int]) -> None:  # noqa: ANN401 (either class)
    """Compare items with the recording; demonstrations are in numeric order."""
    anchors = [(demo, step) for demo in demos for step in range(len(demo[OBS[0]]))]
    for place in places:
        demo, first = anchors[place]
        steps = np.minimum(np.arange(first, first + 10), len(demo[OBS[0]]) - 1)
        for key, found in dataset[place]["obs"].items():
            np.testing.assert_array_equal(found, demo[key][steps], err_msg=key)


def microseconds(dataset: Any, places: list[int]) -> float:  # noqa: ANN401 (either class)
    """Read all items a few times; returns the best mean."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time()
        for place in places:
            dataset[place]
        best = min(best, (time.thread_time() - start) / len(places))
    return best * 1e6


def datasets(packed: pathlib.Path, source: pathlib.Path) -> Iterator[tuple[str, str, Any]]:
    """Open each dataset in turn."""
    for mode in (None, "low_dim", "all"):
        yield "kinograph", str(mode), SequenceDataset(packed, hdf5_cache_mode=mode, **OPTIONS)
    try:
        from robomimic.utils import dataset, obs_utils  # noqa: PLC0415 (if it is installed)
    except ImportError:
        print("robomimic is not installed: only ours is measured", file=sys.stderr)
        return
    specs = {"obs": {"low_dim": OBS, "rgb": CAMERAS}}
    obs_utils.initialize_obs_utils_with_obs_specs(specs)
    for mode in (None, "low_dim", "all"):
        theirs = dataset.SequenceDataset(str(source), hdf5_cache_mode=mode, **OPTIONS)
        yield "robomimic", str(mode), theirs


def main() -> None:
    """Create the data, check, measure, write."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    source, packed = OUT / "lift.hdf5", OUT / "lift.kino"
    repeat(ROOT / "tests/data/lift_3demos.hdf5", source)
    kinograph.pack(source, packed)
    rows = []
    demos = read(source)
    for reader, mode, dataset in datasets(packed, source):
        places = np.random.default_rng(7).permutation(len(dataset))[:ITEMS].tolist()
        check(dataset, demos, places)
        rows.append({"reader": reader, "cache": mode, "us": f"{microseconds(dataset, places):.1f}"})
        print(rows[-1])
    with (ROOT / "bench" / "results" / "items.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
