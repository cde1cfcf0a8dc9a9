"""The examples run, learn, and do what they claim."""

import pathlib
import re
import subprocess
import sys

import pytest
from optional import optional

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    kinograph.pack(ROOT / "tests/data/lift_3demos.hdf5", folder / "lift.kino")
    kinograph.pack(ROOT / "tests/data/aloha", folder / "aloha.kino")
    return folder


def run(example, *arguments):
    optional("torch")
    command = [sys.executable, ROOT / "examples" / example, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def losses(text, name="loss"):
    return [float(loss) for loss in re.findall(rf"{name} (\d+\.\d+)", text)]


def check_ratio(text):
    (ratio,) = re.findall(r"compute ratio (\d\.\d+)", text)
    assert 0 <= float(ratio) <= 1


def test_a_recurrent_policy_generalises_to_the_validation_split(datasets):
    text = run("bc_rnn.py", datasets / "lift.kino")
    valid = losses(text, "valid loss")
    assert valid[-1] < 0.6 * valid[0]
    check_ratio(text)


def test_action_chunks_mask_padding(datasets):
    text = run("act_chunks.py", datasets / "aloha.kino")
    found = losses(text)
    assert found[-1] < 0.7 * found[0]
    # Two episodes of 120 steps: the last 24 anchors of each have 1 to 24 actions of 25 past the end.
    assert f"{2 * 24 * 25 // 2} of {240 * 25} actions" in text
    check_ratio(text)


def test_a_denoiser_learns_to_act(datasets):
    text = run("diffusion_window.py", datasets / "lift.kino")
    found = losses(text)
    assert found[-1] < 0.5 * found[0]
    # 36, 45 and 51 steps, less the last seven of each.
    assert f"{36 + 45 + 51 - 3 * 7} samples: 2 steps seen, 16 predicted, 8 executed" in text
    before, after = re.findall(r"(\d\.\d+) (?:before|after)", text)
    assert float(after) < 0.5 * float(before)
    check_ratio(text)


def test_two_ranks_have_the_same_weights(datasets):
    assert "2 ranks, weights equal" in run("ddp.py", datasets / "lift.kino")


def test_a_killed_run_resumes_with_the_same_losses(datasets):
    assert "24 losses, all equal" in run("resume.py", datasets / "lift.kino")
