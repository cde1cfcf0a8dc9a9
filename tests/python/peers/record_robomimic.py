"""Record the output of robomimic's own SequenceDataset on tests/data/lift_3demos.hdf5.

Run from the root of the repository. robomimic's requirements include a simulator, so they are not installed:

    python3 -m venv /tmp/robomimic
    /tmp/robomimic/bin/pip install torch==2.10.0 numpy==2.2.6 h5py==3.16.0 tqdm termcolor
    /tmp/robomimic/bin/pip install --no-deps robomimic==0.3.0
    /tmp/robomimic/bin/python tests/python/peers/record_robomimic.py

It takes half a minute and writes tests/data/peers/robomimic_lift.json:

    {"versions": {package: version},
     "keys": {"dataset": [...], "obs": [...]},
     "low_dim": changes by hdf5_cache_mode="low_dim", {key: [dtype without, dtype with]}
     "shorter_than_frame_stack": the result for a demo of 2 steps with frame_stack 3 and no padding at the start
     "settings": [{"seq_length", "frame_stack", "pad_seq_length", "pad_frame_stack",
                   "len": number of items,
                   "sample": [digest per item]      dataset keys, obs and pad masks
                   "next_obs": [digest per item]    next_obs alone, with its pad mask
                   "goal_obs": {demo: digest}}      goal_obs alone, the same for every item of a demo
                  or, instead of the last four, "error": the error that robomimic raised]}

Digests are computed by digest.py over keys such as "actions", "obs/object", "obs/pad_mask". The recording has no next_obs,
which goal_mode="last" needs, so a copy with next_obs is used: next_obs[i] is obs[i + 1], and the last one is obs[0], so
that it differs from all frames nearby.
"""

import importlib.metadata
import itertools
import shutil
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
from digest import digest, flatten
from lines import to_lines
from robomimic.utils import obs_utils
from robomimic.utils.dataset import SequenceDataset

ROOT = Path(__file__).resolve().parents[3]
RECORDING = ROOT / "tests/data/lift_3demos.hdf5"
RESULT = ROOT / "tests/data/peers/robomimic_lift.json"

PACKAGES = ("robomimic", "torch", "h5py", "numpy")
DATASET_KEYS = ("actions", "rewards", "dones")
# Only one of the two cameras: the other one adds nothing, and hashing takes most of the time.
IMAGE_KEYS = ("agentview_image",)
LOW_DIM_KEYS = ("object", "robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")


def main() -> None:
    """Record all settings."""
    obs_utils.initialize_obs_utils_with_obs_specs(
        {"obs": {"low_dim": list(LOW_DIM_KEYS), "rgb": list(IMAGE_KEYS)}}
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lift.hdf5"
        add_next_obs(RECORDING, path)
        settings = [
            record(path, seq_length, frame_stack, pad_seq_length, pad_frame_stack)
            for seq_length, frame_stack, pad_seq_length, pad_frame_stack in itertools.product(
                (1, 2, 10, 60), (1, 3), (True, False), (True, False)
            )
        ]
        head = {
            "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
            "keys": {"dataset": DATASET_KEYS, "obs": LOW_DIM_KEYS + IMAGE_KEYS},
            "low_dim": low_dim_changes(path),
            "shorter_than_frame_stack": try_short_demo(path, Path(folder) / "short.hdf5"),
        }
    text = to_lines(head, {"settings": settings})
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    print(f"{RESULT}: {len(settings)} settings, {len(text)} bytes", file=sys.stderr)


def add_next_obs(source: Path, path: Path) -> None:
    """Copy a recording and add next_obs to each demonstration."""
    shutil.copyfile(source, path)
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            for key, obs in demo["obs"].items():
                demo[f"next_obs/{key}"] = np.concatenate([obs[1:], obs[:1]])


def open_dataset(path: Path, **options: object) -> SequenceDataset:
    """Open robomimic's dataset with all optional outputs enabled."""
    return SequenceDataset(
        hdf5_path=str(path),
        obs_keys=LOW_DIM_KEYS + IMAGE_KEYS,
        dataset_keys=DATASET_KEYS,
        get_pad_mask=True,
        goal_mode="last",
        load_next_obs=True,
        # SWMR needs a file in the newest HDF5 layout, which h5py did not write here.
        hdf5_use_swmr=False,
        **{"hdf5_cache_mode": None, **options},
    )


def record(
    path: Path, seq_length: int, frame_stack: int, pad_seq_length: bool, pad_frame_stack: bool
) -> dict[str, object]:
    """Record every item under one setting."""
    setting: dict[str, object] = {
        "seq_length": seq_length,
        "frame_stack": frame_stack,
        "pad_seq_length": pad_seq_length,
        "pad_frame_stack": pad_frame_stack,
    }
    try:
        dataset = open_dataset(path, **setting)
    except AssertionError:
        return setting | {"error": "AssertionError in load_demo_info: num_sequences >= 1"}
    goals: dict[str, set[str]] = {}
    samples, next_obs = [], []
    for index in range(len(dataset)):
        item = dataset[index]
        goal = digest({"goal_obs": item.pop("goal_obs")})
        goals.setdefault(dataset._index_to_demo_id[index], set()).add(goal)
        next_obs.append(digest({"next_obs": item.pop("next_obs")}))
        samples.append(digest(item))
    assert all(len(found) == 1 for found in goals.values()), "a goal differs within a demo"
    return setting | {
        "len": len(dataset),
        "sample": samples,
        "next_obs": next_obs,
        "goal_obs": {demo: found.pop() for demo, found in goals.items()},
    }


def low_dim_changes(path: Path) -> dict[str, list[str]]:
    """Find the keys whose dtype differs when low-dimensional data is cached."""
    plain = flatten(open_dataset(path)[0])
    cached = flatten(open_dataset(path, hdf5_cache_mode="low_dim")[0])
    assert plain.keys() == cached.keys()
    return {
        key: [str(plain[key].dtype), str(cached[key].dtype)]
        for key in plain
        if plain[key].dtype != cached[key].dtype
    }


def try_short_demo(source: Path, path: Path) -> dict[str, object]:
    """Request more frames than a demonstration has."""
    with h5py.File(source, "r") as whole, h5py.File(path, "w") as file:
        demo = file.create_group("data/demo_0")
        demo.attrs["num_samples"] = 2
        for key in DATASET_KEYS:
            demo[key] = whole[f"data/demo_0/{key}"][:2]
        for key in LOW_DIM_KEYS + IMAGE_KEYS:
            for group in ("obs", "next_obs"):
                demo[f"{group}/{key}"] = whole[f"data/demo_0/{group}/{key}"][:2]
    dataset = open_dataset(path, frame_stack=3, pad_frame_stack=False)
    try:
        dataset[0]
    except AssertionError:
        return {"len": len(dataset), "item 0": "AssertionError: index_in_demo < demo_length"}
    return {"len": len(dataset), "item 0": "given"}


if __name__ == "__main__":
    main()
