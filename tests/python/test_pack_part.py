"""Packing a part of a recording, a dry run, Ctrl-C, and tars of one npz per demo, as a user meets them."""

import io
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import h5py
import numpy as np
import pytest

import kinograph

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "lift_3demos.hdf5"


def run(*arguments, **options):
    command = [sys.executable, "-m", "kinograph", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_a_part_of_a_recording_is_what_h5py_reads_of_it(tmp_path):
    target = tmp_path / "d.kino"
    kinograph.pack(
        SAMPLE, target, streams=["obs/*", "actions"], exclude="obs/*_image", episodes=[0, "demo_2"]
    )
    ds = kinograph.open(target)
    assert [episode.id for episode in ds] == ["demo_0", "demo_2"]
    with h5py.File(SAMPLE) as file:
        wanted = {"actions"} | {
            f"obs/{name}" for name in file["data/demo_0/obs"] if not name.endswith("_image")
        }
        assert set(ds.streams) == wanted
        for episode in ds:
            for name in wanted:
                expected = file["data"][episode.id][name][()]
                assert episode[name][:].tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streams": "agentview_image"}, "did you mean `obs/agentview_image`"),
        ({"exclude": ["wrist"]}, "--exclude `wrist` matches no stream"),
        ({"episodes": range(3, 5)}, "--episodes `3` matches no episode"),
        ({"episodes": []}, "episodes is empty"),
        ({"streams": [1.5]}, "an item of streams is 1.5"),
    ],
)
def test_what_matches_nothing_is_refused(tmp_path, options, message):
    with pytest.raises(kinograph.InvalidArgumentError, match=message):
        kinograph.pack(SAMPLE, tmp_path / "d.kino", **options)
    assert not (tmp_path / "d.kino").exists()


def test_an_iterable_has_no_parts(tmp_path):
    with pytest.raises(
        kinograph.InvalidArgumentError, match="streams applies to recordings on disk"
    ):
        kinograph.pack([], tmp_path / "d.kino", streams="x")


@pytest.mark.parametrize("url", ["s3://bucket/q.kino", "hf://datasets/x/y", "https://host/q"])
def test_a_url_is_refused_and_no_folder_is_made(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    scheme = url.partition(":")[0]
    samples = tmp_path / "d.kino"
    kinograph.pack(SAMPLE, samples, exclude="obs/*_image")
    for use in (
        lambda: kinograph.pack(url, tmp_path / "e.kino"),
        lambda: kinograph.export(samples, url, to="robomimic"),
    ):
        with pytest.raises(
            kinograph.InvalidArgumentError,
            match=f"{scheme}://.* only datasets can be remote",
        ):
            use()
    for write in (
        lambda: kinograph.pack(SAMPLE, "https://h/q"),
        lambda: kinograph.Writer("https://h/q"),
    ):
        with pytest.raises(kinograph.InvalidArgumentError, match="https://h/q can only be read"):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["d.kino"]


def faulty(folder):
    """Copy the sample with a NaN in one demo."""
    path = folder / "faulty.hdf5"
    shutil.copy(SAMPLE, path)
    with h5py.File(path, "a") as file:
        file["data/demo_1/actions"][5, 0] = np.nan
    return path


@pytest.mark.parametrize(
    ("policy", "episodes", "code", "said"),
    [
        ("error", 3, 1, "nothing would be packed"),
        ("drop-episode", 2, 3, "would be dropped: "),
        ("keep", 3, 0, "would be kept: "),
    ],
)
def test_a_dry_run_shows_what_the_policy_would_do(tmp_path, policy, episodes, code, said):
    words = ("pack", faulty(tmp_path), tmp_path / "d.kino", "--dry-run", "--on-defect", policy)
    done = run(*words, "--json")
    assert (done.returncode, json.loads(done.stdout)["episodes"]) == (code, episodes)
    assert said in done.stderr
    assert "contains NaN" in done.stderr
    shown = run(*words).stdout
    assert f"{episodes} episodes" in shown
    assert not (tmp_path / "d.kino").exists()


def test_many_defects_of_a_kind_are_one_line(tmp_path):
    path = tmp_path / "many.hdf5"
    with h5py.File(path, "w") as file:
        for number in range(12):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"] = np.full((5, 2), np.nan)
    with pytest.raises(kinograph.CorruptDataError) as raised:
        kinograph.pack(path, tmp_path / "d.kino", rate_hz=10.0)
    lines = [line for line in str(raised.value).splitlines() if "contains NaN" in line]
    assert len(lines) == 1
    assert lines[0].strip().startswith("12 episodes: ")
    assert "demo_0–11" in lines[0]
    assert "fix them, or import the rest" in str(raised.value)


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path):
    rng = np.random.default_rng(7)
    with h5py.File(tmp_path / "noise.hdf5", "w") as file:
        for number in range(6):
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/image"] = rng.integers(0, 256, (60, 240, 320, 3), np.uint8)
            demo["actions"] = np.zeros((60, 2))
    words = [
        "pack",
        tmp_path / "noise.hdf5",
        tmp_path / "d.kino",
        "--rate",
        "10",
        "--shard-size",
        "0B",
    ]
    command = [sys.executable, "-m", "kinograph", *map(str, words), "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    # Until the first episode is finished; the others take as long again each.
    while not list((tmp_path / "d.kino").glob("shards/*")) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "interrupted: " in said
    assert "with `--resume` to continue" in said
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(tmp_path / "d.kino")
    again = run(*words, "--threads", "1", "--resume")
    assert again.returncode == 0, again.stderr
    assert "were finished by the interrupted pack" in again.stdout
    assert len(kinograph.open(tmp_path / "d.kino")) == 6


def robo(path, masks, attrs):
    """Write a tar of one npz per demo, with masks and attributes beside them."""

    def add(tar, name, data):
        member = tarfile.TarInfo(name)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))

    def npz(**arrays):
        out = io.BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()

    with tarfile.open(path, "w") as tar:
        for number in range(3):
            actions = np.full((4 + number, 2), float(number))
            add(tar, f"demo_{number}.npz", npz(actions=actions, joints=actions * 2))
        add(tar, "mask.npz", npz(**masks))
        add(tar, "attrs.json", json.dumps(attrs).encode())
        add(tar, "env_args.json", json.dumps({"env_name": "Lift", "control_freq": 20}).encode())


@pytest.mark.parametrize(
    "masks",
    [
        {"train": np.array(["demo_0", "demo_2"]), "valid": np.array(["demo_1"])},
        {"train": np.array([b"demo_0", b"demo_2"]), "valid": np.array([b"demo_1"])},
        {"train": np.array([0, 2]), "valid": np.array([1])},
        {"train": np.array([True, False, True]), "valid": np.array([False, True, False])},
    ],
)
def test_the_mask_of_a_robo_tar_gives_splits_and_not_an_episode(tmp_path, masks):
    attrs = {f"demo_{number}": {"num_samples": 4 + number} for number in range(3)}
    robo(tmp_path / "lift.robo", masks, attrs)
    packed = kinograph.pack(tmp_path / "lift.robo", tmp_path / "d.kino")
    assert packed.defects == []
    ds = kinograph.open(tmp_path / "d.kino")
    assert [(episode.id, list(episode.splits)) for episode in ds] == [
        ("demo_0", ["train"]),
        ("demo_1", ["valid"]),
        ("demo_2", ["train"]),
    ]
    assert [episode.attributes["num_samples"] for episode in ds] == [4, 5, 6]
    assert np.array_equal(ds["demo_2"]["joints"][:], np.full((6, 2), 4.0))
    assert ds["demo_0"]["actions"].rate_hz == 20.0


def test_a_mask_that_lists_absent_demos_is_a_defect(tmp_path):
    robo(tmp_path / "lift.robo", {"train": np.array(["demo_0", "demo_9"])}, {})
    with pytest.raises(kinograph.CorruptDataError, match=r"mask\.npz:train: lists 1 episodes"):
        kinograph.pack(tmp_path / "lift.robo", tmp_path / "d.kino")
