"""`signal(…)` bounds: the probe turns them into codecs, and plan and dataset keep what was measured."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from optional import optional

import kinograph

SIDE, FRAMES = 32, 20
PROBE = {"chunk": 1, "features": 64, "seeds": 1, "folds": 6, "inputs": ["cam"]}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Twelve episodes of a noisy camera, whose action is where a bright square is, and joints that say nothing."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("bounds") / "noisy.kino"
    with kinograph.Writer(path) as writer:
        for _ in range(12):
            phase, speed = random.uniform(0, 6), random.uniform(0.1, 0.4)
            x = 15.5 + 10 * np.sin(phase + speed * np.arange(FRAMES))
            images = random.integers(40, 52, (FRAMES, SIDE, SIDE, 3))
            near = np.clip(4 - np.abs(np.arange(SIDE) - x[:, None]), 0, 1)
            images = images + (180 * near)[:, None, :, None]
            writer.add_episode(
                {
                    "cam": images.astype("u1"),
                    "joints": random.normal(size=(FRAMES, 2)).astype("f4"),
                    "actions": x[:, None].astype("f4"),
                },
                rate_hz=10.0,
            )
    return path


@pytest.fixture(scope="module")
def choice(path):
    said: list[str] = []
    choice = kinograph.plan(
        path,
        step_s=0.5,
        batch_size=16,
        seconds=0.2,
        bounds={"cam": "signal(99%)", "joints": "signal(99%)"},
        probe=PROBE,
        signal=True,
        progress=said.append,
    )
    assert any("about" in line for line in said), "how long it takes is said before it starts"
    return choice


def test_the_camera_gets_a_codec_and_what_was_measured_is_in_plan_and_dataset(
    choice, path, tmp_path
):
    bounds = {one.stream: one for one in choice.signal_bounds}
    camera = bounds["cam"]
    assert camera.codec is not None
    assert camera.frame_bytes < camera.lossless_frame_bytes
    assert camera.evidence["high"] < 0.99
    assert camera.evidence["codec"] == camera.codec == choice.codecs["cam"]
    assert bounds["joints"].codec is None
    assert "neither sees nor predicts" in bounds["joints"].reason
    kinograph.repack(path, tmp_path / "new.kino", plan=choice)
    streams = kinograph.open(tmp_path / "new.kino").streams
    assert streams["cam"].codecs == (camera.codec,)
    assert streams["cam"].signal == camera.evidence
    assert streams["joints"].signal is streams["actions"].signal is None
    assert streams["cam"].bytes < kinograph.open(path).streams["cam"].bytes
    # A copy keeps it; another encoding does not.
    kinograph.repack(tmp_path / "new.kino", tmp_path / "copy.kino", episodes="0-5")
    assert kinograph.open(tmp_path / "copy.kino").streams["cam"].signal == camera.evidence
    (tmp_path / "raw.toml").write_text('[[stream]]\nmatch = "cam"\ncodec = "raw"\n')
    kinograph.repack(
        tmp_path / "new.kino",
        tmp_path / "raw.kino",
        plan=tmp_path / "raw.toml",
        allow_generation_loss=True,
    )
    assert kinograph.open(tmp_path / "raw.kino").streams["cam"].signal is None


def test_the_probes_verdicts_are_shown_beside_the_plans(choice):
    assert choice.probed is not None
    assert 1 <= len(choice.probed["candidates"]) <= 4
    text = str(choice)
    assert "harm" in text
    assert "What a policy would lose" in text
    assert "`joints`, signal(99%): stays lossless" in text
    assert "What a policy would lose" in choice.to_html()
    again = choice.what_if(step_s=0.001)
    assert again.probed == choice.probed
    assert again.signal_bounds == choice.signal_bounds


def test_nothing_is_written_with_a_bound_that_was_not_measured(path, tmp_path):
    plan = tmp_path / "asked.toml"
    plan.write_text('[[stream]]\nmatch = "cam"\nbound = "signal(2%)"\n')
    with pytest.raises(kinograph.InvalidArgumentError, match="kinograph plan"):
        kinograph.repack(path, tmp_path / "new.kino", plan=plan)
    with pytest.raises(kinograph.InvalidArgumentError, match="kinograph plan"):
        kinograph.Writer(tmp_path / "new.kino", plan=plan)
    with pytest.raises(kinograph.InvalidArgumentError, match="signal"):
        kinograph.probe(path, plan=plan, progress=None, **PROBE)
    assert not (tmp_path / "new.kino").exists()
    with pytest.raises(kinograph.InvalidArgumentError, match=r"signal\(2%\)"):
        kinograph.plan(path, step_s=0.1, bounds={"cam": "signal(2)"})


def test_an_encoder_is_for_verdicts_and_bounds_are_found_with_random_features(path, choice):
    optional("torch")
    asked = {"step_s": 0.5, "batch_size": 16, "seconds": 0.2, "bounds": {"cam": "signal(99%)"}}
    trained = {**PROBE, "encoder": "trained"}
    with pytest.raises(kinograph.InvalidArgumentError, match="bounds are found with random"):
        kinograph.plan(path, probe=trained, progress=None, **asked)
    found = kinograph.plan(path, probe=trained, signal=True, progress=None, **asked)
    assert found.probed["effort"]["set_aside"] == 4
    assert choice.probed["effort"]["set_aside"] == 0
    (camera,) = (one for one in found.signal_bounds if one.stream == "cam")
    (expected,) = (one for one in choice.signal_bounds if one.stream == "cam")
    assert camera.evidence == expected.evidence


def test_the_command_resolves_a_plan_whose_bounds_are_tight_to_lossless(path, tmp_path):
    asked, plan = tmp_path / "asked.toml", tmp_path / "plan.toml"
    asked.write_text('[[stream]]\nkind = "image"\ncodec = "jpeg"\nbound = "signal(0.01%)"\n')
    options = ["--chunk", "1", "--features", "64", "--seeds", "1", "--folds", "6", "--input", "cam"]
    command = [sys.executable, "-m", "kinograph", "plan", str(path), "--step-ms", "100"]
    command += ["--seconds", "0.2", "--bounds", str(asked), *options]
    run = subprocess.run(
        [*command, "--json", "--output", str(plan)], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    (bound,) = found["measured"]["signal"]["streams"]
    assert (bound["stream"], bound["codec"], bound["evidence"]) == ("cam", None, None)
    assert all(one["codec"].startswith("jpeg") for one in found["measured"]["signal"]["looked"])
    assert "about" in run.stderr
    assert "# `cam`, signal(0.01%): stays lossless" in plan.read_text()
    kinograph.repack(path, tmp_path / "new.kino", plan=plan)
    assert kinograph.open(tmp_path / "new.kino").streams["cam"].max_abs_error == 0
