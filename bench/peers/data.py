"""Creates the recordings of the comparison: `python bench/peers/data.py --aloha episode_0.hdf5`.

    target/peers/data/lift.hdf5            demonstrations of a robomimic file, repeated, as distinct episodes
    target/peers/data/aloha/episode_*.hdf5 the same for an ACT recording
    target/peers/data/{lift,aloha}.json    their contents: see `contract.Recording`

Both are written uncompressed, as robomimic and ACT write theirs. Lift is by default the sample that ships with this
repository. No recording with images of 480 × 640 ships here, so without `--aloha` W2 is skipped.
"""

import argparse
import json
import pathlib
import sys

import h5py
from contract import ROOT, WORK

LIFT_CAMERAS = ["agentview_image", "robot0_eye_in_hand_image"]
LIFT_VECTORS = ["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"]
LIFT_EPISODES = 201
ALOHA_EPISODES = 12


def main() -> None:
    """Create what is missing."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sample = ROOT / "tests" / "data" / "lift_3demos.hdf5"
    options.add_argument("--lift", type=pathlib.Path, default=sample, help="a robomimic file")
    options.add_argument("--aloha", type=pathlib.Path, help="an episode of ACT, 480 × 640")
    arguments = options.parse_args()
    (WORK / "data").mkdir(parents=True, exist_ok=True)
    make_lift(arguments.lift)
    if arguments.aloha is not None:
        make_aloha(arguments.aloha)
    elif not (WORK / "data" / "aloha.json").exists():
        print(
            "data: no recording with images of 480 × 640: W2 is skipped, W1 and W3 continue; "
            "`make peers ALOHA=episode_0.hdf5` (`data.py --aloha`) adds it",
            file=sys.stderr,
        )


def make_lift(source: pathlib.Path) -> None:
    """Repeat the demonstrations of a robomimic file, with the keys used for training."""
    target = WORK / "data" / "lift.hdf5"
    lengths = []
    with h5py.File(source, "r") as read, h5py.File(target, "w") as write:
        demos = sorted(read["data"], key=lambda name: int(name.rpartition("_")[2]))
        write.create_group("data").attrs["total"] = 0
        for key, value in read["data"].attrs.items():
            write["data"].attrs[key] = value
        for number in range(LIFT_EPISODES):
            demo = read["data"][demos[number % len(demos)]]
            episode = write.create_group(f"data/demo_{number}")
            episode.attrs["num_samples"] = len(demo["actions"])
            episode["actions"] = demo["actions"][:]
            for key in LIFT_CAMERAS + LIFT_VECTORS:
                episode[f"obs/{key}"] = demo[f"obs/{key}"][:]
            lengths.append(len(demo["actions"]))
        first = write["data/demo_0"]
        about = {
            "name": "lift",
            "layout": "robomimic",
            "path": str(target),
            "cameras": LIFT_CAMERAS,
            "vectors": {key: first[f"obs/{key}"].shape[1] for key in LIFT_VECTORS},
            "action_dim": first["actions"].shape[1],
            "size": first[f"obs/{LIFT_CAMERAS[0]}"].shape[1:3],
            "rate_hz": 20,
            "lengths": lengths,
            "episodes": [f"demo_{number}" for number in range(LIFT_EPISODES)],
        }
    (WORK / "data" / "lift.json").write_text(json.dumps(about))


def make_aloha(source: pathlib.Path) -> None:
    """Repeat an episode of ACT, one file each."""
    folder = WORK / "data" / "aloha"
    folder.mkdir(exist_ok=True)
    names = [f"episode_{number}.hdf5" for number in range(ALOHA_EPISODES)]
    with h5py.File(source, "r") as read:
        actions, qpos = read["action"][:], read["observations/qpos"][:]
        images = {camera: one[:] for camera, one in read["observations/images"].items()}
        cameras = sorted(images)
        height, width = images[cameras[0]].shape[1:3]
        for name in names:
            with h5py.File(folder / name, "w") as write:
                write.attrs["sim"] = True
                write["action"], write["observations/qpos"] = actions, qpos
                for camera in cameras:
                    write.create_dataset(
                        f"observations/images/{camera}",
                        data=images[camera],
                        chunks=(1, height, width, 3),
                    )
    about = {
        "name": "aloha",
        "layout": "act",
        "path": str(folder),
        "cameras": cameras,
        "vectors": {"qpos": qpos.shape[1]},
        "action_dim": actions.shape[1],
        "size": [height, width],
        "rate_hz": 50,
        "lengths": [len(actions)] * len(names),
        "episodes": names,
    }
    (WORK / "data" / "aloha.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
