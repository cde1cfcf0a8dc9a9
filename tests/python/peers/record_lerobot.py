"""Record the output of LeRobot's own LeRobotDataset on a small dataset written by LeRobot itself.

Run from the root of the repository:

    python3 -m venv /tmp/lerobot
    /tmp/lerobot/bin/pip install lerobot==0.4.4
    HF_HUB_OFFLINE=1 /tmp/lerobot/bin/python tests/python/peers/record_lerobot.py

It takes half a minute and writes, in tests/data/peers/:

    lerobot_source.npz    the frames that were written: "<episode>/<key>", images as uint8 (N, H, W, 3)
    lerobot.json          {"versions": {package: version}, "fps", "keys": [...], "lengths": [frames per episode],
                           "settings": [{"name", "delta_timestamps", "len", "items": [digest per item]}],
                           "types": {dtype of a feature: dtype in an item},
                           "tolerance": [[seconds, fps, tolerance_s, accepted, step]]}

Digests are computed by digest.py over the keys of the dataset and their `_is_pad` masks; LeRobot's own columns (`index`,
`timestamp`, `task`, …) are checked here but not recorded. Images in an item are float32 (3, H, W) from 0 to 1; they are
converted back to uint8, after a check that this is lossless.
"""

import importlib.metadata
import itertools
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from digest import digest
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.utils import check_delta_timestamps, get_delta_indices
from lines import to_lines

FOLDER = Path(__file__).resolve().parents[3] / "tests/data/peers"
PACKAGES = ("lerobot", "torch", "datasets", "numpy")

FPS = 30
# The second episode is shorter than any window of more than one frame.
LENGTHS = (9, 1, 23)
SIDE = 32
CAMERA = "observation.images.top"
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (6,), "names": None},
    "action": {"dtype": "float32", "shape": (4,), "names": None},
    "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    CAMERA: {"dtype": "image", "shape": (SIDE, SIDE, 3), "names": ["height", "width", "channels"]},
}

SETTINGS = {
    "none": None,
    "past": {"observation.state": [-2 / FPS, -1 / FPS, 0.0]},
    "future": {"action": [step / FPS for step in range(16)]},
    "policy": {
        "observation.state": [-1 / FPS, 0.0],
        CAMERA: [-1 / FPS, 0.0],
        "action": [step / FPS for step in range(-1, 15)],
    },
    "unsorted": {"action": [0.1, -0.1, 0.0, 0.5, -1 / FPS], CAMERA: [2 / FPS, 0.0, 1 / FPS]},
    "duplicated": {"observation.state": [0.0, 0.0, -1 / FPS, -1 / FPS], "next.done": [0.0, 0.0]},
    "single": {"observation.state": [0.0], "action": [1 / FPS], CAMERA: [-1 / FPS]},
    "beyond both ends": {
        key: [-100 / FPS, -1.0, 0.0, 1.0, 100 / FPS] for key in ("action", CAMERA, "next.done")
    },
    "rounded": {"observation.state": [-0.0667, -0.0333, 0.0, 0.03333, 0.0667]},
    "hour": {"action": [-3600.0, 3600.0]},
}


def main() -> None:
    """Write the dataset, record all settings and the table of tolerances."""
    episodes = [make_episode(number, length) for number, length in enumerate(LENGTHS)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "dataset"
        write(root, episodes)
        settings = [record(root, *setting) for setting in SETTINGS.items()]
        types = item_types(Path(folder) / "types")
    head = {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "fps": FPS,
        "keys": list(FEATURES),
        "lengths": LENGTHS,
        "types": types,
    }
    FOLDER.mkdir(exist_ok=True)
    arrays = {
        f"{number}/{key}": values
        for number, episode in enumerate(episodes)
        for key, values in episode.items()
    }
    np.savez_compressed(FOLDER / "lerobot_source.npz", **arrays)
    text = to_lines(head, {"settings": settings, "tolerance": tolerance_table()})
    (FOLDER / "lerobot.json").write_text(text, encoding="utf-8")
    print(f"{FOLDER}: {len(settings)} settings, {len(text)} bytes", file=sys.stderr)


def make_episode(number: int, length: int) -> dict[str, np.ndarray]:
    """Generate frames that are all different, and images that compress well."""
    rng = np.random.default_rng([7, number])
    row, column, channel, time = np.ogrid[:SIDE, :SIDE, :3, :length]
    images = (3 * row + 5 * column + 40 * channel + 7 * time + 100 * number) % 256
    return {
        "observation.state": np.cumsum(rng.normal(size=(length, 6)), axis=0).astype(np.float32),
        "action": rng.normal(size=(length, 4)).astype(np.float32),
        "next.done": np.arange(length) == length - 1,
        CAMERA: np.moveaxis(images, -1, 0).astype(np.uint8),
    }


def write(root: Path, episodes: list[dict[str, np.ndarray]]) -> None:
    """Write the episodes with LeRobot's writer."""
    dataset = LeRobotDataset.create(
        "kinograph/peers", fps=FPS, features=FEATURES, root=root, use_videos=False
    )
    for episode in episodes:
        for frame in range(len(episode["action"])):
            values = {key: stream[frame] for key, stream in episode.items()}
            values["next.done"] = np.array([values["next.done"]])
            dataset.add_frame({**values, "task": "touch the cube"})
        dataset.save_episode()
    dataset.finalize()


def record(
    root: Path, name: str, delta_timestamps: dict[str, list[float]] | None
) -> dict[str, object]:
    """Record every item under one setting."""
    dataset = LeRobotDataset("kinograph/peers", root=root, delta_timestamps=delta_timestamps)
    places = [(number, frame) for number, length in enumerate(LENGTHS) for frame in range(length)]
    digests = []
    for index, (number, frame) in enumerate(places):
        item = dataset[index]
        assert int(item["index"]) == index
        assert (int(item["episode_index"]), int(item["frame_index"])) == (number, frame)
        item[CAMERA] = to_bytes(item[CAMERA])
        keys = [*FEATURES, *(f"{key}_is_pad" for key in delta_timestamps or {})]
        digests.append(digest({key: np.asarray(item[key]) for key in keys}))
    return {
        "name": name,
        "delta_timestamps": delta_timestamps,
        "len": len(dataset),
        "items": digests,
    }


def to_bytes(images: torch.Tensor) -> np.ndarray:
    """Convert float CHW images back to uint8 HWC."""
    values = torch.round(images * 255).to(torch.uint8)
    assert torch.equal(values.to(torch.float32) / 255, images), "an image was not made of bytes"
    return np.moveaxis(values.numpy(), -3, -1)


def item_types(root: Path) -> dict[str, str]:
    """Find the dtype in an item of a feature of each dtype."""
    dtypes = ("bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
    features = {
        f"{dtype} {shape}": {"dtype": dtype, "shape": shape, "names": None}
        for dtype, shape in itertools.product(dtypes, ((1,), (2,)))
    }
    dataset = LeRobotDataset.create("kinograph/types", fps=FPS, features=features, root=root)
    for _ in range(2):
        frame = {
            name: np.ones(each["shape"], dtype=each["dtype"]) for name, each in features.items()
        }
        dataset.add_frame({**frame, "task": "none"})
    dataset.save_episode()
    dataset.finalize()
    item = LeRobotDataset("kinograph/types", root=root)[0]
    return {name: f"{np.asarray(item[name]).dtype} {tuple(item[name].shape)}" for name in features}


def tolerance_table() -> list[list[object]]:
    """Record which offsets LeRobot's own check accepts, and which step it converts them to."""
    offsets = [0.0, 1e-9, 0.001, 0.0166, 1 / 60, 0.0167, 0.02, 0.0332, 0.0333, 0.03333, 1 / 30]
    offsets += [0.0334, 0.035, 0.04, 0.05, 2.5 / 30, 0.1, 0.10005, 0.1001, 0.1002, 0.3, 0.7]
    offsets += [1.0, 1.00009, 1.00011, 3600.0, 3600.0001, 3600.001, 86400.0 + 1 / 30]
    rows: list[list[object]] = []
    for fps, tolerance_s in itertools.product((10, 15, 24, 30, 50, 60), (1e-6, 1e-4, 1e-3, 0.02)):
        for value in sorted({*offsets, *(-offset for offset in offsets)}):
            deltas = {"x": [value]}
            accepted = check_delta_timestamps(deltas, fps, tolerance_s, raise_value_error=False)
            step = get_delta_indices(deltas, fps)["x"][0] if accepted else None
            rows.append([value, fps, tolerance_s, accepted, step])
    return rows


if __name__ == "__main__":
    main()
