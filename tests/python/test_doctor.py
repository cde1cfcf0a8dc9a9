"""The doctor from Python: with the duration of a step, with a step function, and its result."""

import json
import time

import numpy as np
import pytest

import kinograph
import kinograph.numpy

REQUEST = {"actions": range(4), "obs/agentview_image": [0]}
CAUSES = {
    "nothing",
    "slow_step",
    "storage",
    "decode",
    "collate",
    "hand_over",
    "jitter",
    "memory",
    "cpu_share",
}


def test_with_a_slow_step_there_is_nothing_to_fix(lift_path, tmp_path):
    found = kinograph.doctor(
        lift_path, step_s=0.05, target=0.5, seconds=0.4, windows=REQUEST, batch_size=8
    )
    assert found.met
    assert found.cause in {"nothing", "slow_step"}
    assert found.verdict.startswith("Nothing to fix")
    assert found.verdict in str(found)
    assert 0.5 <= found.compute_ratio <= 1
    assert [change.how for change in found.changes] == ["change nothing"]
    page = found.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == page
    assert page.startswith("<!DOCTYPE html>")
    assert json.loads(found.to_json(tmp_path / "found.json"))["evidence"] == found.evidence


def test_a_step_function_gets_real_batches_and_is_also_timed_alone(lift_path):
    seen = []

    def step(batch):
        assert set(batch) >= set(REQUEST)
        assert batch["actions"].shape[1:] == (4, 7)
        seen.append(float(np.abs(batch["actions"]).sum()))
        time.sleep(0.02)

    with kinograph.numpy.Loader(lift_path, windows=REQUEST, batch_size=8, seed=3) as loader:
        first = next(iter(loader))["actions"].copy()
        state = loader.state_dict()
        found = kinograph.doctor(loader, step=step, target=0.5, seconds=0.4)
        assert loader.state_dict() == state
        assert next(iter(loader))["actions"].shape == first.shape
    assert found.cause in CAUSES
    assert found.evidence["step_s"] >= 0.02
    # The step alone ran on one batch repeatedly, the loop on different ones.
    assert len(set(seen)) > 2
    assert len(seen) > len(set(seen))


def test_every_stream_is_read_by_default(lift_path):
    found = kinograph.doctor(lift_path, step_s=0.05, target=0.3, seconds=0.2)
    names = {window.split(" × ")[0] for window in found.evidence["setting"]["windows"]}
    assert names == set(kinograph.open(lift_path).streams)
    assert found.evidence["setting"]["batch"] == 64


def test_an_exception_of_the_step_is_raised(lift_path):
    def step(batch):
        raise ZeroDivisionError("of the step")

    with pytest.raises(ZeroDivisionError, match="of the step"):
        kinograph.doctor(lift_path, step=step, windows=REQUEST, batch_size=8)


def test_invalid_arguments_are_refused(lift_path):
    with pytest.raises(kinograph.InvalidArgumentError, match="step_s"):
        kinograph.doctor(lift_path)
    with pytest.raises(kinograph.InvalidArgumentError, match="exactly one of `step`"):
        kinograph.doctor(lift_path, step=print, step_s=1.0)
    with pytest.raises(kinograph.InvalidArgumentError, match="step is 3"):
        kinograph.doctor(lift_path, step=3)
    with pytest.raises(kinograph.InvalidArgumentError, match=r"0\.95"):
        kinograph.doctor(lift_path, step_s=0.01, target=7.0, windows=REQUEST, batch_size=8)
    with (
        kinograph.numpy.Loader(lift_path, windows=REQUEST, batch_size=8) as loader,
        pytest.raises(kinograph.InvalidArgumentError, match="batch_size"),
    ):
        kinograph.doctor(loader, step_s=0.01, batch_size=8)
