"""Samples against what robomimic and LeRobot themselves gave; peers/README.md says how that was recorded.

Each test runs on the reference too: the requests are written out here, and so is what a peer's arguments mean.
"""

import functools
import json
import pathlib

import numpy as np
import pytest
import windows_api
from peers.digest import digest
from windows_reference import regular

import kinograph

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
ROBOMIMIC = json.loads((DATA / "peers/robomimic_lift.json").read_text(encoding="utf-8"))
LEROBOT = json.loads((DATA / "peers/lerobot.json").read_text(encoding="utf-8"))

DATASET_KEYS = ROBOMIMIC["keys"]["dataset"]
OBS_KEYS = ROBOMIMIC["keys"]["obs"]
LIFT_HZ = 20.0


def setting_name(setting):
    pads = "".join(f"-{name}" for name in ("pad_seq_length", "pad_frame_stack") if setting[name])
    return f"seq{setting['seq_length']}-stack{setting['frame_stack']}{pads}"


def to_episode(streams, rate_hz):
    return {name: regular(rate_hz, 0, values) for name, values in streams.items()}


def write(path, episodes, rate_hz):
    with kinograph.Writer(path) as writer:
        for streams in episodes:
            writer.add_episode(streams, rate_hz=rate_hz)
    return kinograph.open(path)


@pytest.fixture(scope="module")
def lift_arrays(tmp_path_factory):
    """The streams of the Lift recording, and next_obs as the recorder made it."""
    path = tmp_path_factory.mktemp("lift") / "lift.kino"
    kinograph.pack(DATA / "lift_3demos.hdf5", path)
    episodes = []
    for episode in kinograph.open(path):
        streams = {key: episode[key][:] for key in DATASET_KEYS}
        for key in OBS_KEYS:
            obs = episode[f"obs/{key}"][:]
            streams[f"obs/{key}"] = obs
            streams[f"next_obs/{key}"] = np.concatenate([obs[1:], obs[:1]])
        episodes.append(streams)
    return episodes


@pytest.fixture(scope="module")
def lift_with_next_obs(tmp_path_factory, lift_arrays):
    return write(tmp_path_factory.mktemp("lift") / "next.kino", lift_arrays, LIFT_HZ)


@pytest.fixture(scope="module")
def lerobot_arrays():
    with np.load(DATA / "peers/lerobot_source.npz") as arrays:
        return [
            {key: arrays[f"{number}/{key}"] for key in LEROBOT["keys"]}
            for number in range(len(LEROBOT["lengths"]))
        ]


@pytest.fixture(scope="module", params=["reference", "kinograph"])
def lift_reader(request, tmp_path_factory, lift_arrays):
    """A function from a request to its samples on Lift."""
    return reader(request.param, tmp_path_factory, lift_arrays, LIFT_HZ)


@pytest.fixture(scope="module", params=["reference", "kinograph"])
def lerobot_reader(request, tmp_path_factory, lerobot_arrays):
    """A function from a request to its samples on the dataset that LeRobot wrote."""
    return reader(request.param, tmp_path_factory, lerobot_arrays, float(LEROBOT["fps"]))


def reader(kind, tmp_path_factory, arrays, rate_hz):
    if kind == "reference":
        episodes = [to_episode(streams, rate_hz) for streams in arrays]
        return lambda request: windows_api.Reference(episodes, request)
    dataset = write(tmp_path_factory.mktemp("peers") / "d.kino", arrays, rate_hz)
    return lambda request: windows_api.bind(dataset, request)


def robomimic_request(setting):
    """Say in windows what robomimic's arguments mean, without the goal."""
    steps = list(range(1 - setting["frame_stack"], setting["seq_length"]))
    pads = {
        "before": "edge" if setting["pad_frame_stack"] else "drop",
        "after": "edge" if setting["pad_seq_length"] else "drop",
    }
    streams = [*DATASET_KEYS]
    streams += [f"{group}/{key}" for group in ("obs", "next_obs") for key in OBS_KEYS]
    return {
        "anchor": {"stream": "actions"},
        "windows": [
            {"key": stream, "stream": stream, "at": {"steps": steps}, **pads} for stream in streams
        ],
        "masks": "pad_mask",
    }


def robomimic_parts(sample):
    """Cut a sample in the parts that have a digest, each with the mask that robomimic puts into it."""
    sample = dict(sample)
    next_obs = {key: sample.pop(key) for key in list(sample) if key.startswith("next_obs/")}
    mask = sample["pad_mask"]
    return (
        digest({**sample, "obs/pad_mask": mask}),
        digest({**next_obs, "next_obs/pad_mask": mask}),
    )


@pytest.mark.parametrize("setting", ROBOMIMIC["settings"], ids=setting_name)
def test_windows_are_those_of_robomimic(lift_reader, setting):
    if "error" in setting:
        # robomimic refuses the dataset: every demonstration is too short.
        assert windows_api.count(lambda: lift_reader(robomimic_request(setting))) == 0
        return
    windows = lift_reader(robomimic_request(setting))
    assert len(windows) == setting["len"]
    found = [robomimic_parts(windows[index]) for index in range(len(windows))]
    assert [sample for sample, _ in found] == setting["sample"]
    assert [next_obs for _, next_obs in found] == setting["next_obs"]


def test_the_goal_is_robomimics(lift_reader):
    windows = lift_reader(
        {
            "anchor": "episode",
            "windows": [
                {
                    "key": f"goal_obs/{key}",
                    "stream": f"next_obs/{key}",
                    "at": "last",
                    "stack": "single",
                }
                for key in OBS_KEYS
            ],
        }
    )
    goals = {
        f"demo_{number}": digest({**windows[number], "goal_obs/pad_mask": np.array([True])})
        for number in range(len(windows))
    }
    padded = [s for s in ROBOMIMIC["settings"] if "len" in s and s["pad_seq_length"]]
    assert all(setting["goal_obs"] == goals for setting in padded)


def test_robomimics_goal_is_earlier_where_the_end_is_not_padded(lift_arrays):
    unpadded = [s for s in ROBOMIMIC["settings"] if "len" in s and not s["pad_seq_length"]]
    assert {setting["seq_length"] for setting in unpadded} == {1, 2, 10}
    for setting in unpadded:
        for number, streams in enumerate(lift_arrays):
            frame = len(streams["actions"]) - setting["seq_length"]
            goal = {f"goal_obs/{key}": streams[f"next_obs/{key}"][frame] for key in OBS_KEYS}
            expected = digest({**goal, "goal_obs/pad_mask": np.array([True])})
            assert setting["goal_obs"][f"demo_{number}"] == expected


def lerobot_request(delta_timestamps):
    """Say in windows what LeRobot's offsets mean."""
    deltas = delta_timestamps or {}
    windows = []
    for key in LEROBOT["keys"]:
        steps = [round(delta * LEROBOT["fps"]) for delta in deltas.get(key, [0.0])]
        stack = "stacked" if key in deltas else "single"
        windows.append({"key": key, "stream": key, "at": {"steps": steps}, "stack": stack})
    return {"anchor": {"stream": "action"}, "windows": windows, "masks": "is_pad"}


@pytest.mark.parametrize("setting", LEROBOT["settings"], ids=lambda setting: setting["name"])
def test_windows_are_those_of_lerobot(lerobot_reader, setting):
    windows = lerobot_reader(lerobot_request(setting["delta_timestamps"]))
    assert len(windows) == setting["len"]
    assert [digest(windows[index]) for index in range(len(windows))] == setting["items"]


@pytest.mark.parametrize("setting", LEROBOT["settings"], ids=lambda setting: setting["name"])
def test_offsets_in_nanoseconds_are_the_same_windows(lerobot_reader, setting):
    request = lerobot_request(setting["delta_timestamps"])
    for window in request["windows"]:
        offsets = (setting["delta_timestamps"] or {}).get(window["key"], [0.0])
        window["at"] = {"times_ns": [round(offset * 1e9) for offset in offsets]}
    windows = lerobot_reader(request)
    assert len(windows) == setting["len"]
    assert [digest(windows[index]) for index in range(len(windows))] == setting["items"]


@pytest.mark.parametrize("setting", ROBOMIMIC["settings"], ids=setting_name)
def test_robomimics_arguments_are_translated(lift_with_next_obs, setting):
    names = ("seq_length", "frame_stack", "pad_seq_length", "pad_frame_stack")
    options = {
        "obs_keys": OBS_KEYS,
        "dataset_keys": DATASET_KEYS,
        "get_pad_mask": True,
        "load_next_obs": True,
        "goal_mode": "last",
        **{name: setting[name] for name in names},
    }
    if "error" in setting:
        bind = functools.partial(windows_api.bind_robomimic, lift_with_next_obs, **options)
        assert windows_api.count(bind) == 0
        return
    windows = windows_api.bind_robomimic(lift_with_next_obs, **options)
    assert len(windows) == setting["len"]
    for index in range(0, len(windows), 7):
        sample = dict(windows[index])
        goal = {key: sample.pop(key) for key in list(sample) if key.startswith("goal_obs/")}
        expected = (setting["sample"][index], setting["next_obs"][index])
        assert robomimic_parts(sample) == expected
        assert (
            digest({**goal, "goal_obs/pad_mask": np.array([True])}) in setting["goal_obs"].values()
        )


@pytest.mark.parametrize("setting", LEROBOT["settings"], ids=lambda setting: setting["name"])
def test_lerobots_arguments_are_translated(tmp_path, lerobot_arrays, setting):
    dataset = write(tmp_path / "d.kino", lerobot_arrays, float(LEROBOT["fps"]))
    windows = windows_api.bind_lerobot(dataset, delta_timestamps=setting["delta_timestamps"])
    assert len(windows) == setting["len"]
    assert [digest(windows[index]) for index in range(len(windows))] == setting["items"]


@pytest.mark.parametrize("fps", sorted({row[1] for row in LEROBOT["tolerance"]}))
def test_the_offsets_that_lerobot_takes_are_taken(tmp_path, fps):
    frames = np.arange(5)
    dataset = write(tmp_path / "d.kino", [{"x": frames}], float(fps))
    for value, _, tolerance_s, accepted, step in (
        row for row in LEROBOT["tolerance"] if row[1] == fps
    ):
        options = {"delta_timestamps": {"x": [value]}, "tolerance_s": tolerance_s}
        if not accepted:
            with pytest.raises(kinograph.InvalidArgumentError, match="x"):
                windows_api.bind_lerobot(dataset, **options)
            continue
        windows = windows_api.bind_lerobot(dataset, **options)
        found = [int(windows[index]["x"][0]) for index in range(len(windows))]
        assert found == np.clip(frames + step, 0, 4).tolist(), (value, tolerance_s)


def test_the_tolerance_is_one_of_seconds_in_float64():
    for value, fps, tolerance_s, accepted, step in LEROBOT["tolerance"]:
        assert accepted == (abs(value * fps - round(value * fps)) / fps <= tolerance_s)
        assert step == (round(value * fps) if accepted else None)
