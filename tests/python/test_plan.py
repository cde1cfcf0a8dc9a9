"""The planner: it chooses for this data, storage, machine and model, and pack takes what it chose."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import samples

import kinograph

LIFT = pathlib.Path(__file__).parents[1] / "data" / "lift_3demos.hdf5"
WINDOWS = {"obs/agentview_image": [-1, 0], "actions": range(8)}


@pytest.fixture(scope="module")
def choice(tmp_path_factory):
    """What is chosen for a recording of three episodes, with memory for a third of its frames."""
    return kinograph.plan(
        LIFT,
        step_s=0.02,
        windows=WINDOWS,
        batch_size=16,
        memory="1MB",
        quality=80,
        seconds=0.3,
        folder=tmp_path_factory.mktemp("folder"),
        verify=True,
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A dataset of one small camera and actions."""
    path = tmp_path_factory.mktemp("small") / "small.kino"
    y, x = np.mgrid[:32, :40]
    frames = np.stack([np.stack([6 * x + t, 5 * y, x + y + 2 * t], -1) for t in range(40)])
    rng = np.random.default_rng(0)
    with kinograph.Writer(path) as writer:
        for _ in range(3):
            actions = np.cumsum(rng.normal(size=(40, 7)), axis=0)
            streams = {"camera": frames.astype(np.uint8), "actions": actions}
            writer.add_episode(streams, rate_hz=20.0)
    return path


def test_every_stream_gets_a_codec_and_the_bytes_are_those_of_the_pack(choice, tmp_path):
    kinograph.pack(LIFT, tmp_path / "lift.kino", plan=choice)
    ds = kinograph.open(tmp_path / "lift.kino")
    assert set(choice.codecs) == set(ds.streams)
    for name, stream in ds.streams.items():
        assert stream.codecs == (choice.codecs[name],), name
    stored = sum(stream.bytes for stream in ds.streams.values())
    assert abs(choice.chosen.bytes / stored - 1) < 0.15


def test_the_choice_is_the_smallest_of_the_best(choice):
    allowed = [plan for plan in choice.plans if plan.is_allowed]
    best = max(plan.compute_ratio for plan in allowed)
    good = [plan for plan in allowed if plan.compute_ratio >= best * 0.995]
    assert choice.chosen.bytes == min(plan.bytes for plan in good)
    assert choice.within_limits
    assert sorted(plan.bytes for plan in choice.plans) == [plan.bytes for plan in choice.plans]


def test_a_sample_of_the_plan_was_loaded_and_nothing_is_left_behind(choice):
    (verified,) = choice.verified
    assert verified.predicted == choice.compute_ratio
    assert 0 < verified.measured <= 1
    assert abs(verified.predicted_bytes / verified.measured_bytes - 1) < 0.15


def test_slower_storage_gets_no_more_bytes_and_less_than_nothing_is_not_chosen(choice):
    fast = choice.what_if(storage="10GB/s", step_s=0.001)
    slow = choice.what_if(storage="1MB/s,10ms", step_s=0.001)
    assert slow.chosen.bytes <= fast.chosen.bytes
    assert slow.compute_ratio < fast.compute_ratio
    # Nothing was measured again.
    assert slow.measured["streams"] == choice.measured["streams"]


def test_loss_must_be_allowed(small):
    choice = kinograph.plan(small, step_s=0.02, batch_size=16, seconds=0.2)
    assert choice.chosen.is_lossless
    assert any(not plan.is_allowed for plan in choice.plans)
    bounds = {"actions": "abs(1e-2)"}
    bound = kinograph.plan(small, step_s=0.02, batch_size=16, seconds=0.2, bounds=bounds)
    assert not bound.chosen.is_lossless
    assert bound.chosen.bytes < choice.chosen.bytes
    assert "abs=0.01" in bound.codecs["actions"]
    assert kinograph.open(small).streams["camera"].codecs == (bound.codecs["camera"],)


def test_limits_are_kept_or_reported(choice):
    smallest = min(plan.bytes for plan in choice.plans if plan.is_allowed)
    tight = choice.what_if(max_size=smallest + 1)
    assert tight.within_limits
    assert tight.chosen.bytes == smallest
    none = choice.what_if(max_size=1)
    assert not none.within_limits
    assert none.chosen.bytes == smallest


def test_a_dataset_may_stay_as_it_is(small, tmp_path):
    ds = kinograph.open(small)
    choice = kinograph.plan(
        ds, step_s=0.5, batch_size=16, seconds=0.2, verify=True, folder=tmp_path
    )
    (verified,) = choice.verified
    assert verified.measured_bytes == pytest.approx(verified.predicted_bytes, rel=0.2)
    assert list(tmp_path.iterdir()) == []
    assert ds.streams["camera"].codecs == (choice.codecs["camera"],)
    stored = sum(stream.bytes for stream in ds.streams.values())
    as_it_is = [plan for plan in choice.plans if plan.pack_s == 0]
    assert [plan.bytes for plan in as_it_is] == [stored]


def test_the_step_is_timed_or_read_from_a_report(small, tmp_path):
    calls = []

    def step(batch):
        calls.append(batch["actions"].shape)
        np.linalg.svd(np.ones((50, 50)))

    with kinograph.numpy.Loader(small, windows={"actions": range(8)}, batch_size=16) as loader:
        choice = kinograph.plan(loader, step=step, seconds=0.2)
        assert set(calls) == {(16, 8, 7)}
        assert json.loads(choice.to_json())["question"]["step_s"] > 0
        for _, batch in zip(range(4), loader, strict=False):
            with loader.compute():
                step(batch)
        report = loader.report()
    path = tmp_path / "report.json"
    report.to_json(path)
    for given in (report, path):
        choice = kinograph.plan(small, report=given, batch_size=16, seconds=0.2)
        found = json.loads(choice.to_json())["question"]["step_s"]
        assert found == report.loop.compute.p50_s


def test_text_html_and_a_notebook_show_the_choice(choice, tmp_path):
    text = str(choice)
    assert "chosen" in text
    assert "obs/agentview_image" in text
    choice.to_html(tmp_path / "plan.html")
    assert "<svg" in (tmp_path / "plan.html").read_text()
    assert choice._repr_html_().startswith("<div")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of"),
        ({"step_s": 0.1, "report": "x.json"}, "exactly one of"),
        ({"step_s": 0}, "step time must be above 0"),
        ({"step_s": 0.1, "ranks": 0}, "ranks"),
        ({"step_s": 0.1, "storage": "fast"}, "100MB/s"),
        ({"step_s": 0.1, "bounds": {"**": "fine"}}, "fine"),
        ({"step_s": 0.1, "quality": 0}, "quality"),
        ({"step_s": 0.1, "max_size": "much"}, "max_size"),
    ],
)
def test_wrong_arguments_are_named(options, words, tmp_path):
    with pytest.raises(kinograph.InvalidArgumentError, match=words):
        kinograph.plan(LIFT, folder=tmp_path, windows=WINDOWS, **options)


def test_the_command_writes_a_plan_and_says_when_no_plan_keeps_the_limits(small, tmp_path):
    def run(source, *arguments):
        command = [sys.executable, "-m", "kinograph", "plan", str(source)]
        command += ["--step-ms", "20", "--seconds", "0.2", "--window", "actions=0:8", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)

    bound = "obs/*_image=psnr(38)"
    done = run(
        LIFT, "--json", "--verify", "-o", "plan.toml", "--html", "plan.html", "--bound", bound
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["is_within_limits"]
    assert 0 < found["verified"][0]["measured"] <= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.html", "plan.toml"]
    head = (tmp_path / "plan.toml").read_text().splitlines()[0]
    assert re.match(r"# Chosen by `kinograph plan` .*ratio [01]\.\d+, \d[\d.]* kB\.$", head), head
    missed = run(small, "--max-size", "1kB", "--hours", "2")
    assert missed.returncode == 4, missed.stderr
    assert "No plan keeps the limits" in missed.stdout
    assert re.search(r"^In 2 h: \d+\.\d epochs\.$", missed.stdout, re.MULTILINE)
    assert " of memory for 1 rank, " in missed.stdout
    unused = ["--bound", "actionz=abs(0.1)", "--allow-resize", "--probe-seconds", "9"]
    noted = run(small, "--max-size", "1kB", *unused)
    assert "`actionz` (abs(0.1)) matches no stream; did you mean `actions`?" in noted.stderr
    assert "--allow-resize changes nothing without --image-size" in noted.stderr
    assert "note: " not in missed.stderr
    wrong = run(small, "--max-pack-time", "2")
    assert wrong.returncode == 2
    assert "for example 2h or 2min" in wrong.stderr
    wrong = run(small, "--bound", "psnr(38)")
    assert wrong.returncode == 1
    assert "PATTERN=BOUND" in wrong.stderr


def test_pack_chooses_the_plan_itself_and_keeps_it(tmp_path):
    command = [sys.executable, "-m", "kinograph", "pack", str(LIFT), "lift.kino", "--auto"]
    wrong = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--step-ms" in wrong.stderr
    command += ["--step-ms", "20", "--window", "actions=0:8", "--streams", "actions", "rewards"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the loop would compute" in done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["lift.kino", "lift.kino.plan.toml"]
    ds = kinograph.open(tmp_path / "lift.kino")
    assert set(ds.streams) == {"actions", "rewards"}
    text = (tmp_path / "lift.kino.plan.toml").read_text()
    assert all(stream.codecs[0] in text for stream in ds.streams.values())


@pytest.fixture(scope="module")
def textured(tmp_path_factory):
    """A camera whose images are smaller if they have fewer pixels."""
    path = tmp_path_factory.mktemp("textured") / "textured.kino"
    streams = [{"camera": samples.image(40, 32, 40, seed=seed)} for seed in range(3)]
    samples.write(path, [one | {"actions": np.zeros((40, 7))} for one in streams])
    return path


def test_what_resizing_once_would_bring_is_shown_and_done_only_if_allowed(textured, tmp_path):
    options = {"step_s": 0.02, "batch_size": 16, "seconds": 0.2, "images": {"size": (16, 20)}}
    choice = kinograph.plan(textured, **options)
    assert choice.chosen.sizes == {}
    assert "resize" not in choice.to_toml()
    points = {point.name: point for point in choice.split_points}
    assert list(points) == [
        "as recorded",
        "decoded",
        "resized, lossless",
        "resized, lossy",
        "resized, raw",
        "normalised float32",
    ]
    assert [name for name, point in points.items() if point.is_resized] == list(points)[2:]
    assert not any(point.is_allowed for point in points.values() if point.is_resized)
    # Four bytes for one, and a quarter of the pixels.
    frames, pixels = 3 * 40, 16 * 20 * 3
    ours = {name: point.bytes for name, point in points.items()}
    assert abs(ours["normalised float32"] - ours["resized, raw"] - 3 * frames * pixels) <= 2
    assert abs(ours["decoded"] - ours["resized, raw"] - 3 * frames * pixels) <= 2
    assert ours["resized, lossless"] < ours["as recorded"]
    assert "--allow-resize" in str(choice)
    allowed = kinograph.plan(textured, allow_resize=True, **options)
    assert allowed.chosen.sizes == {"camera": (16, 20)}
    assert "resize = [16, 20]" in allowed.to_toml()
    assert not allowed.chosen.is_lossless
    kinograph.repack(textured, tmp_path / "r.kino", plan=allowed)
    ds = kinograph.open(tmp_path / "r.kino")
    assert ds.streams["camera"].shape == (16, 20, 3)
    assert ds.streams["camera"].resized_from == ((32, 40),)
    stored = sum(stream.bytes for stream in ds.streams.values())
    assert abs(allowed.chosen.bytes / stored - 1) < 0.15
    # It has the size that is loaded now: there is nothing left to split.
    assert kinograph.plan(ds, **options).split_points == ()


def test_the_command_writes_a_plan_that_resizes(textured, tmp_path):
    command = [
        sys.executable,
        "-m",
        "kinograph",
        "plan",
        textured,
        "--step-ms",
        "20",
        "--batch-size",
        "16",
    ]
    command += [
        "--seconds",
        "0.2",
        "--image-size",
        "16x20",
        "--allow-resize",
        "--output",
        tmp_path / "p.toml",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Split points" in done.stdout
    assert "allowed here" in done.stdout
    assert "resize = [16, 20]" in (tmp_path / "p.toml").read_text()


def test_the_command_resizes_only_images_and_writes_sizes_with_a_unit(textured, tmp_path):
    plan = tmp_path / "plan.toml"
    options = ["--step-ms", "20", "--batch-size", "16", "--seconds", "0.1", "--image-size", "16x20"]
    done = subprocess.run(
        [sys.executable, "-m", "kinograph", "plan", textured, *options, "--output", plan],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "codecs of `camera` at 16 × 20" in done.stderr
    assert "`actions` at" not in done.stderr
    assert " for 1 rank, " in done.stdout
    assert re.search(r"compute ratio \d\.\d+, [\d.]+ kB\.$", plan.read_text().splitlines()[0])
