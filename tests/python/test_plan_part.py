"""Planning for a part of a recording or a dataset, and for one whose episodes differ in their streams."""

import json
import os
import pty
import subprocess
import sys

import h5py
import numpy as np
import pytest
import samples

import kinograph

FRAMES = 30
QUICK = {"step_s": 0.02, "batch_size": 8, "seconds": 0.1}


def write_robomimic(path, images):
    """One demo per item, with these cameras; all of them have joints and actions."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps(
            {"env_name": "Lift", "env_kwargs": {"control_freq": 20}}
        )
        for number, cameras in enumerate(images):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = FRAMES
            demo["actions"] = rng.normal(size=(FRAMES, 7))
            demo["obs/joints"] = np.cumsum(rng.normal(size=(FRAMES, 7)), axis=0)
            for camera in cameras:
                demo[f"obs/{camera}"] = samples.image(FRAMES, 24, 32, seed=number)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Four demos, two of them without the front camera, as in a LeRobot dataset whose videos were lost."""
    path = tmp_path_factory.mktemp("partly") / "partly.hdf5"
    write_robomimic(path, [["front_image"], [], ["front_image"], []])
    return path


@pytest.fixture(scope="module")
def dataset(recording, tmp_path_factory):
    """The same, packed."""
    path = tmp_path_factory.mktemp("packed") / "partly.kino"
    kinograph.pack(recording, path, on_defect="keep")
    return path


def run(*arguments, cwd):
    command = [sys.executable, "-m", "kinograph", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.parametrize("source", ["recording", "dataset"])
def test_only_episodes_with_every_requested_stream_are_loaded(source, request, tmp_path):
    source = request.getfixturevalue(source)
    choice = kinograph.plan(source, folder=tmp_path, verify=True, **QUICK)
    whole = choice.measured["whole"]
    assert (whole["episodes"], whole["incomplete"]) == (4, 2)
    assert whole["lacking"] == {"obs/front_image": 2}
    assert whole["frames"]["actions"] == 4 * FRAMES
    assert whole["complete_frames"]["actions"] == 2 * FRAMES
    assert choice.measured["loader"]["samples"] == 2 * FRAMES
    assert "2 of 4 episodes lack frames of `obs/front_image` (2)" in str(choice)
    # All of them are stored.
    store = kinograph.repack if source.suffix == ".kino" else kinograph.pack
    store(source, tmp_path / "p.kino", plan=choice)
    ds = kinograph.open(tmp_path / "p.kino")
    assert len(ds) == 4
    stored = sum(stream.bytes for stream in ds.streams.values())
    assert choice.chosen.bytes == pytest.approx(stored, rel=0.15)
    (verified,) = choice.verified
    assert verified.measured_bytes == pytest.approx(stored, rel=0.15)


@pytest.mark.parametrize("source", ["recording", "dataset"])
def test_what_is_not_requested_may_be_missing(source, request, tmp_path):
    source = request.getfixturevalue(source)
    joints = {"obs/joints": [-1, 0], "a": kinograph.Window(stream="actions", steps=range(4))}
    choice = kinograph.plan(source, windows=joints, folder=tmp_path, **QUICK)
    assert choice.measured["whole"]["incomplete"] == 0
    assert choice.measured["loader"]["samples"] == 4 * FRAMES
    assert "obs/front_image" in choice.codecs
    assert "lack" not in str(choice)


@pytest.mark.parametrize("source", ["recording", "dataset"])
def test_a_part_is_planned_as_it_is_packed(source, request, tmp_path):
    source = request.getfixturevalue(source)
    part = {"exclude": "obs/*_image", "episodes": ["0-1", "demo_3"]}
    choice = kinograph.plan(source, folder=tmp_path, verify=True, **part, **QUICK)
    assert set(choice.codecs) == {"actions", "obs/joints"}
    whole = choice.measured["whole"]
    assert (whole["episodes"], whole["incomplete"]) == (3, 0)
    assert whole["frames"] == {"actions": 3 * FRAMES, "obs/joints": 3 * FRAMES}
    only = kinograph.plan(source, folder=tmp_path, streams="actions", **QUICK)
    assert set(only.codecs) == {"actions"}


def test_where_no_episode_has_all_streams_the_error_says_what_they_lack(tmp_path):
    write_robomimic(tmp_path / "r.hdf5", [["front_image"], ["side_image"]])
    kinograph.pack(tmp_path / "r.hdf5", tmp_path / "r.kino", on_defect="keep")
    for source in ("r.hdf5", "r.kino"):
        with pytest.raises(kinograph.InvalidArgumentError, match="no episode has all") as error:
            kinograph.plan(tmp_path / source, folder=tmp_path, **QUICK)
        assert "1 of 2 lack `obs/side_image`" in str(error.value)
        assert "--exclude" in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"streams": "obs/font_image"}, "did you mean `obs/front_image`"),
        ({"episodes": 7}, "episodes"),
        ({"episodes": "demo_7"}, "--episodes `demo_7` matches no episode"),
        ({"format": "hdf5"}, "`format` cannot be combined with a dataset"),
        ({"keep_dtype": True, "rate_hz": 20}, "`rate_hz` and `keep_dtype` cannot be combined"),
        ({"exclude": "actions", "windows": {"actions": [0]}}, "leaves it out"),
    ],
)
def test_what_a_dataset_does_not_take_is_refused(dataset, options, words):
    with pytest.raises(kinograph.InvalidArgumentError, match=words):
        kinograph.plan(dataset, **options, **QUICK)


def test_a_recording_is_read_as_pack_reads_it(recording, tmp_path):
    with pytest.raises(kinograph.KinographError, match=r"meta/info\.json"):
        kinograph.plan(recording, format="lerobot", folder=tmp_path, **QUICK)
    (tmp_path / "m.toml").write_text("[[stream]\n")
    with pytest.raises(kinograph.InvalidArgumentError, match=r"m\.toml"):
        kinograph.plan(recording, mapping=tmp_path / "m.toml", folder=tmp_path, **QUICK)


def test_a_loader_has_its_streams_already(dataset):
    with (
        kinograph.numpy.Loader(dataset, windows={"actions": [0]}, batch_size=4) as loader,
        pytest.raises(kinograph.InvalidArgumentError, match="`streams` cannot be combined"),
    ):
        kinograph.plan(loader, step_s=0.02, streams="actions")


def test_the_command_takes_the_options_of_pack(recording, dataset, tmp_path):
    quick = ["--step-ms", 20, "--batch-size", 8, "--seconds", 0.1, "--json"]
    done = run("plan", recording, "--streams", "obs/*", "--episodes", "0-2", *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert {stream["name"] for stream in measured["streams"]} == {"obs/front_image", "obs/joints"}
    assert (measured["whole"]["episodes"], measured["whole"]["incomplete"]) == (3, 1)
    done = run("plan", dataset, "--exclude", "obs/*", "--verify", *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [stream["name"] for stream in json.loads(done.stdout)["measured"]["streams"]] == [
        "actions"
    ]
    wrong = run("plan", dataset, "--format", "hdf5", *quick, cwd=tmp_path)
    assert wrong.returncode == 1
    assert "--format is for recordings" in wrong.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_shows_the_progress_of_the_sample(dataset, tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kinograph", "plan", dataset, "--verify", "--step-ms", "20"]
    command += ["--batch-size", "8", "--seconds", "0.1", "--window", "obs/front_image=0:1"]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, cwd=tmp_path) as one:
        os.close(theirs)
        shown = b""
        while one.poll() is None or shown[-1:] != b"":
            try:
                shown += os.read(ours, 1 << 16)
            except OSError:  # the other end was closed
                break
    os.close(ours)
    assert one.returncode == 0, shown
    assert b"sample [" in shown


def test_pack_auto_takes_the_options_of_plan(recording, tmp_path):
    options = ["--auto", "--batch-size", "8", "--seconds", "0.1", "--image-size", "12x16"]
    options += ["--allow-resize", "--on-defect", "keep", "--window", "obs/front_image=0:1"]
    wrong = run("pack", recording, "r.kino", *options, cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--step-ms" in wrong.stderr
    wrong = run("pack", recording, "r.kino", "--allow-resize", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--auto" in wrong.stderr
    done = run("pack", recording, "r.kino", *options, "--step-ms", "20", cwd=tmp_path)
    assert done.returncode in (0, 3), done.stderr
    assert "2 of 4 episodes lack frames" in done.stderr
    assert "resize = [12, 16]" in (tmp_path / "r.kino.plan.toml").read_text()
    ds = kinograph.open(tmp_path / "r.kino")
    assert ds.streams["obs/front_image"].resized_from == ((24, 32),)
    assert len(ds) == 4
    refused = run("pack", recording, "r.kino", *options, "--step-ms", "20", cwd=tmp_path)
    assert refused.returncode == 1
    assert "already contains a dataset" in refused.stderr
    assert "sample" not in refused.stderr, "nothing is measured for a target that is refused"


def test_where_memory_is_the_limit_the_loader_gets_advice(tmp_path):
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:80, :80]
    slope = np.stack([3 * x, 3 * y, x + y], -1)
    noisy = [{"camera": (slope + rng.integers(0, 4, (20, 80, 80, 3))).astype(np.uint8)}] * 80
    path = tmp_path / "short.kino"
    samples.write(path, [one | {"actions": np.zeros((20, 7))} for one in noisy])
    windows = {"camera": range(-7, 1), "actions": [0]}
    how = {"windows": windows, "batch_size": 32, "seconds": 0.3, "memory": "9MB"}
    choice = kinograph.plan(path, step_s=0.02, **how)
    # Codecs that predict are the smallest and the slowest; a step takes a quarter of a batch.
    small = {"max_size": min(plan.bytes for plan in choice.plans if plan.is_allowed) + 1}
    choice = choice.what_if(**small, step_s=choice.what_if(**small).chosen.batch_s / 4)
    memory, groups = choice.fewer_decodes
    assert memory.option.startswith('memory="')
    assert not memory.mixes_less
    # 2.3 times this many episodes of 384 kB, and 1 MiB, fit into the memory.
    assert groups.option == "shuffle=kinograph.Shuffle(episodes=8)"
    assert groups.mixes_less
    for one in choice.fewer_decodes:
        assert one.decodes <= 1 < choice.measured["loader"]["decodes"]
        assert one.compute_ratio > choice.compute_ratio + 0.02
        assert one.option in str(choice)
    # With the memory that is recommended there is nothing to recommend.
    enough = kinograph.plan(path, step_s=0.02, **how | {"memory": memory.option.split('"')[1]})
    assert enough.measured["loader"]["decodes"] <= 1
    assert enough.what_if(step_s=1e-4).fewer_decodes == ()
