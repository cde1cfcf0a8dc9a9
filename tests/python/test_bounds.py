"""Lossy streams: bounds hold, frames around events stay exact, and both are recorded."""

import numpy as np
import pytest

import kinograph

FRAMES = 600


def recording():
    """A force sensor with contact at 3 s, swinging joints, and a gripper that closes at 4 s."""
    rng = np.random.default_rng(0)
    seconds = np.arange(FRAMES) / 100
    force = rng.normal(scale=0.1, size=(FRAMES, 6)).astype(np.float32)
    force[seconds >= 3, 2] += 8
    return {
        "obs/force": force,
        "obs/joints": np.sin(seconds[:, None] + np.arange(7)).astype(np.float32),
        "actions": np.where(seconds < 4, 1.0, -1.0),
    }


def write(path, plan, **options):
    with kinograph.Writer(path, plan=plan) as writer:
        writer.add_episode(recording(), rate_hz=100.0, **options)
    return kinograph.open(path)


PLAN = {
    "stream": [{"match": "obs/*", "bound": "abs(1e-3)", "protect": ["*"]}],
    "event": [
        {"name": "contact", "stream": "obs/force", "detect": "onset", "elements": [0, 1, 2]},
        {"name": "gripper", "stream": "actions", "detect": "transition"},
    ],
}


def test_frames_around_events_are_exact_and_all_others_within_the_bound(tmp_path):
    ds = write(tmp_path / "d.kino", PLAN, protect=[(0.5, 0.6)])
    expected = recording()
    episode = ds[0]
    found = {
        (part.event, round(part.start_s, 3), round(part.end_s, 3)) for part in episode.protected
    }
    assert found == {("given", 0.5, 0.6), ("contact", 2.8, 3.2), ("gripper", 3.79, 4.2)}
    assert [rule["name"] for rule in episode.events] == ["contact", "gripper"]
    seconds = np.arange(FRAMES) / 100
    exact = np.zeros(FRAMES, bool)
    for part in episode.protected:
        exact |= (seconds >= part.start_s - 1e-9) & (seconds <= part.end_s + 1e-9)
    for name in ("obs/force", "obs/joints"):
        values = episode[name][:]
        assert np.abs(values.astype(float) - expected[name].astype(float)).max() <= 1e-3
        assert values[exact].tobytes() == expected[name][exact].tobytes()
        assert (values[~exact] != expected[name][~exact]).mean() > 0.5, "the rest is lossy"
    assert np.array_equal(episode["actions"][:], expected["actions"])


def test_every_dimension_has_its_own_bound(tmp_path):
    plan = {"stream": [{"match": "obs/joints", "bound": "abs(1e-2x3/0x2/1e-4x2)"}]}
    joints = write(tmp_path / "d.kino", plan)[0]["obs/joints"][:]
    errors = np.abs(joints.astype(float) - recording()["obs/joints"].astype(float)).max(axis=0)
    assert (errors <= [1e-2, 1e-2, 1e-2, 0, 0, 1e-4, 1e-4]).all()
    assert (errors[:3] > 1e-4).all(), "the bound is used up"


def test_nan_and_infinities_survive_any_bound(tmp_path):
    values = np.linspace(0, 1, 100)
    values[[3, 50, 99]] = [np.nan, np.inf, -np.inf]
    plan = {"stream": [{"bound": "abs(0.01)"}]}
    with kinograph.Writer(tmp_path / "d.kino", plan=plan) as writer:
        writer.add_episode({"x": values}, rate_hz=10.0)
    found = kinograph.open(tmp_path / "d.kino")[0]["x"][:]
    assert np.array_equal(np.isfinite(found), np.isfinite(values))
    assert found[[3, 50, 99]].tobytes() == values[[3, 50, 99]].tobytes()
    finite = np.isfinite(values)
    assert np.abs(found[finite] - values[finite]).max() <= 0.01


def test_unit_quaternions_stay_unit_quaternions(tmp_path):
    t = np.linspace(0, 5, 500)
    pose = np.stack([t, t**2, -t, np.sin(t), np.cos(t) * 0.6, np.cos(t) * 0.8, 0 * t], axis=1)
    pose[:, 3:] /= np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
    plan = {"stream": [{"codec": "vector:quat=3", "bound": "abs(1e-3)"}]}
    with kinograph.Writer(tmp_path / "d.kino", plan=plan) as writer:
        writer.add_episode({"pose": pose}, rate_hz=100.0)
    found = kinograph.open(tmp_path / "d.kino")[0]["pose"][:]
    assert np.abs(found - pose).max() <= 1e-3
    assert (found != pose).mean() > 0.5, "it is lossy"
    assert np.abs(np.linalg.norm(found[:, 3:], axis=1) - 1).max() < 1e-12


def test_images_and_depth_keep_their_bounds(tmp_path):
    y, x = np.mgrid[:64, :80]
    image = (127 + 60 * np.sin(x / 9) * np.cos(y / 7)).astype(np.uint8)
    images = np.stack([np.roll(np.dstack([image] * 3), step, axis=1) for step in range(10)])
    depth = (900 + 3 * x + y + 7 * np.sin(x * y)).astype(np.uint16)[None].repeat(10, axis=0)
    depth[:, 10:20, 30:40] = 0
    plan = {
        "stream": [{"kind": "image", "bound": "psnr(40)"}, {"kind": "depth", "bound": "mm(1)"}],
    }
    with kinograph.Writer(tmp_path / "d.kino", plan=plan) as writer:
        streams = {"camera": images, "depth": depth}
        writer.add_episode(streams, rate_hz=10.0, kinds={"depth": "depth"})
    episode = kinograph.open(tmp_path / "d.kino")[0]
    for found, expected in zip(episode["camera"][:], images, strict=True):
        error = np.mean((found.astype(float) - expected) ** 2)
        assert 10 * np.log10(255**2 / error) >= 40
    found = episode["depth"][:]
    assert np.abs(found.astype(int) - depth).max() == 1
    assert np.array_equal(found == 0, depth == 0), "holes are exact, and no new ones appear"


def test_invalid_protected_intervals_are_refused(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        for bad in [(2, 1), (-1, 1), (1,), 3, ("a", "b"), (0, float("inf")), (float("nan"), 1)]:
            with pytest.raises(kinograph.InvalidArgumentError, match="protect has"):
                writer.add_episode({"x": np.arange(5.0)}, rate_hz=10.0, protect=[bad])
        writer.add_episode({"x": np.arange(5.0)}, rate_hz=10.0)
