"""`kinograph.probe`: what it takes, what it gives; what it sees is tested in the core."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from optional import optional

import kinograph

SIDE, FRAMES = 16, 20


def record(path, episodes):
    """Episodes whose action is where a bright square is; noise makes every frame another."""
    random = np.random.default_rng(0)
    with kinograph.Writer(path) as writer:
        for _ in range(episodes):
            phase, speed = random.uniform(0, 6), random.uniform(0.1, 0.4)
            x = 7.5 + 5 * np.sin(phase + speed * np.arange(FRAMES))
            images = random.integers(40, 44, (FRAMES, SIDE, SIDE, 3))
            near = np.clip(3 - np.abs(np.arange(SIDE) - x[:, None]), 0, 1)
            images = images + (180 * near)[:, None, :, None]
            joints = random.normal(size=(FRAMES, 2)).astype("f4")
            writer.add_episode(
                {
                    "cam": images.astype("u1"),
                    "joints": joints,
                    "actions": x[:, None].astype("f4"),
                },
                rate_hz=10.0,
            )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("probe") / "square.kino"
    record(path, episodes=12)
    return path


QUICK = {"chunk": 1, "features": 64, "seeds": 1, "folds": 6, "progress": None}


def test_codecs_functions_plans_and_datasets_are_candidates(path, tmp_path):
    other = tmp_path / "other.kino"
    plan = tmp_path / "plan.toml"
    plan.write_text('[[stream]]\nmatch = "cam"\ncodec = "jpeg:q=5"\n')
    kinograph.repack(path, other, plan=plan)
    shapes = []

    def flat(frames):
        shapes.append((frames.shape[1:], frames.dtype))
        return np.broadcast_to(frames.mean(axis=2, keepdims=True), frames.shape).astype("u1")

    found = kinograph.probe(
        path,
        plan=plan,
        against=other,
        candidates={
            "flat": {"cam": flat},
            "lossless": {"**": "lossless"},
            "db": {"cam": "psnr(45)"},
        },
        **QUICK,
    )
    assert [one.name for one in found.candidates] == ["flat", "lossless", "db", "plan", "against"]
    assert set(shapes) == {((SIDE, SIDE, 3), np.dtype("u1"))}
    assert found["flat"].verdict() == "harm"
    assert found["flat"].verdict("information") == "harm"
    assert found["lossless"].verdict() == "identical"
    (outcome,) = found["lossless"].outcomes("mismatch")
    assert outcome.increase == kinograph._probe.Interval(0.0, 0.0, 0.0)
    # What was stored and what a codec alone does are the same frames.
    increases = [
        [one.increase for one in found[name].arms[-1].outcomes] for name in ("plan", "against")
    ]
    assert increases[0] == increases[1]
    assert set(found.inputs) == {"cam", "joints"}
    assert found.targets == ("actions",)
    assert 0 < found.skill[0].unexplained < 0.5
    with pytest.raises(KeyError, match="flat, lossless"):
        found["jpeg"]


def test_probe_has_the_options_and_defaults_that_it_passes_on():
    shared = inspect.signature(kinograph._probe_options.to_probe).parameters
    own = inspect.signature(kinograph.probe).parameters
    assert {name: own[name].default for name in shared} == {
        name: parameter.default for name, parameter in shared.items()
    }
    assert kinograph._probe_options.ProbeOptions.__optional_keys__ == set(shared)


def test_what_was_found_is_shown_as_text_json_and_html(path, tmp_path):
    said = []
    found = kinograph.probe(
        path, codecs={"cam": "jpeg:q=60"}, inputs=["cam"], **{**QUICK, "progress": said.append}
    )
    assert any("about" in line for line in said)
    assert str(found).startswith("codecs: ")
    assert json.loads(found.to_json(tmp_path / "probe.json"))["effort"]["episodes"] == 12
    assert "<svg" in found.to_html(tmp_path / "probe.html")
    assert "<svg" in found._repr_html_()
    assert found["codecs"].changes[0].codec.startswith("jpeg:q=60")
    assert found["codecs"].verdict("mismatch") in ("harm", "no_harm_above", "cannot_tell")


def test_a_function_that_fails_or_gives_something_else_ends_the_probe(path):
    def fails(frames):
        raise RuntimeError("no such frame")

    with pytest.raises(RuntimeError, match="no such frame"):
        kinograph.probe(path, codecs={"cam": fails}, **QUICK)
    with pytest.raises(kinograph.InvalidArgumentError, match="must return frames of uint8"):
        kinograph.probe(path, codecs={"cam": lambda frames: frames[:, ::2]}, **QUICK)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "give a `plan`"),
        ({"codecs": {}}, "names no stream"),
        ({"codecs": {"cam": 5}}, "must map patterns"),
        ({"codecs": {"cam": "jpeg", "joints": np.abs}}, "mixes"),
        ({"codecs": {"side": "jpeg"}}, "cam"),
        ({"codecs": {"cam": "jpeg"}, "inputs": "cam"}, "list of streams"),
        ({"codecs": {"cam": "jpeg"}, "inputs": {"joints": [7]}}, "none with the number 7"),
        ({"codecs": {"cam": "jpeg"}, "images": {"size": {"cam": (8, 8)}}}, "one size"),
    ],
)
def test_what_cannot_be_probed_is_refused(path, options, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        kinograph.probe(path, **options, **QUICK)


def batches(dataset):
    windows = {"cam": [0], "actions": [0]}
    return kinograph.numpy.Loader(dataset, windows=windows, batch_size=12, shuffle=False)


def brightest(batch):
    """A policy: the action is the brightest column."""
    images = batch["cam"][:, 0].astype("f4").mean(axis=(1, 3)) - 42
    guess = (images * np.arange(SIDE)).sum(axis=1) / images.sum(axis=1)
    return float(((guess - batch["actions"][:, 0, 0]) ** 2).mean())


def test_a_policy_is_compared_on_the_same_batches(path, tmp_path):
    found = kinograph.probe_policy(
        path,
        policy=brightest,
        loader=batches,
        candidates={"jpeg": {"cam": "jpeg:q=20"}, "lossless": {"cam": "raw"}},
        episodes=range(2, 12),
        folder=tmp_path,
    )
    assert found.control.verdict == found["jpeg"].verdict == "harm"
    assert found["lossless"].verdict == "identical"
    # The same frames, by hand.
    images = np.concatenate([kinograph.open(path)[one]["cam"][:] for one in range(2, 12)])
    assert found.batches == -(-len(images) // 12)
    assert found["jpeg"].increase.mean == pytest.approx(found["jpeg"].loss / found.raw_loss - 1)
    assert "jpeg: harm" in str(found)
    blind = kinograph.probe_policy(
        path,
        policy=lambda batch: 1 + 1e-6 * batch["cam"].mean(),
        loader=batches,
        codecs={"cam": "jpeg:q=90"},
    )
    assert blind["codecs"].verdict == "cannot_tell"
    assert str(blind).startswith("cam=jpeg:q=90: cannot tell")
    assert "control, all images as JPEG 5: " in str(blind)
    assert "even with JPEG 5" in str(blind)
    assert not list(tmp_path.iterdir())


def test_large_shares_have_no_exponent():
    shown = [kinograph._probe.one_percent(share) for share in (163.4, 1.0, 0.999, 0.02, -0.0012)]
    assert shown == ["16340 %", "100 %", "100 %", "2 %", "-0.12 %"]


def test_progress_of_a_policy_is_on_stderr(path, tmp_path, capsys):
    kinograph.probe_policy(
        path, policy=brightest, loader=batches, codecs={"cam": "jpeg"}, folder=tmp_path
    )
    parts = ["raw frames", "control, all images as JPEG 5", "cam=jpeg"]
    expected = [f"kinograph probe_policy: {part}" for part in parts]
    assert capsys.readouterr().err.splitlines() == expected


@pytest.mark.parametrize(
    ("policy", "episodes", "says"),
    [
        (brightest, [0], r"the loader gives 2 batches; at least 10 are needed"),
        (lambda _: float("nan"), None, "the mean loss on raw frames is nan"),
        (lambda _: 0.0, None, "the mean loss on raw frames is 0; it must be finite and above 0"),
        (lambda _: np.ones(12), None, r"policy returned ndarray of shape \(12,\); return the loss"),
        (lambda _: None, None, "policy returned NoneType; return the loss as one number"),
    ],
)
def test_a_policy_without_a_usable_loss_is_refused(path, tmp_path, policy, episodes, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        kinograph.probe_policy(
            path,
            policy=policy,
            loader=batches,
            codecs={"cam": "raw"},
            episodes=episodes,
            folder=tmp_path,
            progress=None,
        )
    assert not list(tmp_path.iterdir())


def test_a_candidate_that_changes_no_stream_is_refused(path, tmp_path):
    plan, other = tmp_path / "plan.toml", tmp_path / "other.kino"
    plan.write_text('[[stream]]\nmatch = "image"\ncodec = "jpeg"\n')
    with kinograph.Writer(other) as writer:
        writer.add_episode({"image": np.zeros((2, 4, 4, 3), "u1")}, rate_hz=10.0)
    there = "joints, actions, cam"
    for options, says in [
        (
            {"codecs": {"image": "jpeg"}},
            f"'codecs' changes no stream: 'image' matches none; there are {there}",
        ),
        ({"plan": plan}, f"'plan' changes no stream: 'image' matches none; there are {there}"),
        (
            {"candidates": {"a": {"image": "psnr(40)"}}},
            "'a' changes no stream: 'image' matches none",
        ),
        ({"codecs": {"cam": "jpeg", "image": "jpeg"}}, "'codecs': 'image' matches no stream"),
        ({"against": other}, f"'against' changes no stream: it has none of {there}"),
    ]:
        with pytest.raises(kinograph.InvalidArgumentError) as error:
            kinograph.probe_policy(path, policy=brightest, loader=batches, **options)
        assert says in str(error.value)


def test_the_command_probes_codecs_and_datasets(path, tmp_path):
    other, report = tmp_path / "other.kino", tmp_path / "probe.html"
    plan = tmp_path / "plan.toml"
    plan.write_text('[[stream]]\nmatch = "cam"\ncodec = "jpeg:q=5"\n')
    kinograph.repack(path, other, plan=plan)
    options = ["--chunk", "1", "--features", "64", "--seeds", "1", "--folds", "6", "--input", "cam"]
    command = [sys.executable, "-m", "kinograph", "probe", str(path), *options]
    candidates = ["--codec", "cam=jpeg:q=5", "--against", str(other), "--plan", str(plan)]
    run = subprocess.run(
        [*command, *candidates, "--json", "--html", str(report)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(run.stdout)["candidates"]
    assert [one["name"] for one in found] == ["cam=jpeg:q=5", str(plan), str(other)]
    assert found[0]["arms"] == found[1]["arms"] == found[2]["arms"]
    assert "12 episodes" in run.stderr
    assert "<svg" in report.read_text()
    run = subprocess.run(
        [*command, "--seconds", "20", "--codec", "cam=raw"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "exactly 0" in run.stdout
    run = subprocess.run([*command, "--codec", "cam"], capture_output=True, text=True, check=False)
    assert (run.returncode, "PATTERN=CODEC" in run.stderr) == (1, True)
    bound = [*command, "--codec", "cam=psnr=38"]
    run = subprocess.run(bound, capture_output=True, text=True, check=False)
    assert (run.returncode, "for a bound write `psnr(38)`" in run.stderr) == (1, True)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("trained") / "square.kino"
    record(path, episodes=30)
    return path


def sideways(frames):
    """Keep brightness, lose where the square is."""
    return np.broadcast_to(frames.mean(axis=2, keepdims=True), frames.shape).astype("u1")


class Seen:
    """Which frames a network learns from, and which it turns into features."""

    def __init__(self, monkeypatch):
        network = importlib.import_module("kinograph._probe_network").Network
        self.learned, self.encoded = [], []
        prepare, encode = network.prepare, network.encode

        def keep_learned(own, cameras, *rest):
            for frames, shape, _ in cameras.values():
                self.learned += split(frames, shape)
            return prepare(own, cameras, *rest)

        def keep_encoded(own, stream, frames):
            self.encoded += split(frames, (SIDE, SIDE, 3))
            return encode(own, stream, frames)

        monkeypatch.setattr(network, "prepare", keep_learned)
        monkeypatch.setattr(network, "encode", keep_encoded)


def split(frames, shape):
    return [frame.tobytes() for frame in np.frombuffer(frames, "u1").reshape(-1, *shape)]


def test_a_network_sees_a_planted_loss_and_learns_from_episodes_that_are_set_aside(
    many, monkeypatch
):
    torch = optional("torch")
    seen = Seen(monkeypatch)
    said = []
    candidates = {"sideways": {"cam": sideways}, "lossless": {"**": "lossless"}}
    options = {**QUICK, "encoder": "trained", "progress": said.append}
    found = kinograph.probe(many, candidates=candidates, **options)
    for contrast in ("total", "information", "mismatch"):
        assert found["sideways"].verdict(contrast) == "harm"
        (outcome,) = found["lossless"].outcomes(contrast)
        assert outcome.verdict == "identical"
    assert found.skill[0].over_constant.low > 0.5
    assert (found.effort["set_aside"], found.effort["episodes"]) == (10, 20)
    assert "trained on raw frames of 10 other episodes" in str(found)
    # Ten whole episodes, and not one of their frames among those of the folds.
    assert len(set(seen.learned)) == 10 * FRAMES
    raw = {
        frame
        for episode in kinograph.open(many)
        for frame in split(episode["cam"][:].tobytes(), (SIDE, SIDE, 3))
    }
    assert set(seen.learned) <= raw
    assert len(raw & set(seen.encoded)) == 20 * FRAMES
    assert not set(seen.learned) & set(seen.encoded)
    assert "a network learns features from 10 episodes that are set aside" in said[0]
    assert any(line.startswith("training 1 networks on 200 frames, 300 steps") for line in said)
    # The same seed gives the same, and leaves the random numbers and gradients of the caller as they are.
    torch.manual_seed(5)
    with torch.no_grad():
        again = kinograph.probe(many, candidates=candidates, **options)
        assert not torch.is_grad_enabled()
    assert (again.candidates, again.skill) == (found.candidates, found.skill)
    drawn = torch.rand(3)
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_without_torch_a_network_is_refused_and_auto_is_random(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "kinograph._probe_network", raising=False)
    with pytest.raises(ImportError, match=r"pip install torch.*encoder 'random'"):
        kinograph.probe(path, codecs={"cam": "raw"}, encoder="trained", **QUICK)
    found = kinograph.probe(path, codecs={"cam": "jpeg:q=20"}, encoder="auto", **QUICK)
    assert found.effort["set_aside"] == 0
    expected = kinograph.probe(path, codecs={"cam": "jpeg:q=20"}, **QUICK)
    assert found.candidates == expected.candidates
    with pytest.raises(kinograph.InvalidArgumentError, match="'random', 'trained' or 'auto'"):
        kinograph.probe(path, codecs={"cam": "raw"}, encoder="deep", **QUICK)


def test_an_exception_while_a_network_learns_is_raised_as_it_is(many, monkeypatch):
    optional("torch")
    network = importlib.import_module("kinograph._probe_network").Network

    def stopped(own):
        raise KeyboardInterrupt

    monkeypatch.setattr(network, "learn", stopped)
    with pytest.raises(KeyboardInterrupt):
        kinograph.probe(many, codecs={"cam": "jpeg"}, encoder="trained", **QUICK)


def run_probe(path, *options, environment=None):
    """Run `kinograph probe` as a user does."""
    command = [sys.executable, "-m", "kinograph", "probe", str(path), "--codec", "cam=jpeg:q=20"]
    quick = ["--chunk", "1", "--features", "64", "--seeds", "1", "--folds", "6"]
    return subprocess.run(
        [*command, *quick, *options],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_finds_with_a_network_what_the_function_finds(many):
    optional("torch")
    run = run_probe(many, "--encoder", "trained", "--json")
    assert run.returncode == 0, run.stderr
    found = kinograph.probe(many, codecs={"cam": "jpeg:q=20"}, encoder="trained", **QUICK)
    expected = json.loads(found.to_json())
    told = json.loads(run.stdout)
    assert [one["arms"] for one in told["candidates"]] == [
        one["arms"] for one in expected["candidates"]
    ]
    assert (told["skill"], told["effort"]["set_aside"]) == (expected["skill"], 10)
    assert "probing: training 1 networks on 200 frames" in run.stderr


def test_the_command_says_what_a_network_needs_before_anything_is_measured(path, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('a machine without torch')")
    without = {"PYTHONPATH": str(tmp_path)}
    refused = run_probe(path, "--encoder", "trained", environment=without)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: --encoder trained: ")
    assert "run `pip install torch`, or use the encoder 'random'" in refused.stderr
    assert "probing" not in refused.stderr
    assert run_probe(path, "--encoder", "auto", environment=without).returncode == 0
    assert "random, trained, auto" in run_probe(path, "--encoder", "deep").stderr


def test_a_network_needs_episodes_to_set_aside(tmp_path):
    optional("torch")
    record(tmp_path / "few.kino", episodes=7)
    with pytest.raises(kinograph.InvalidArgumentError, match="7 episodes are too few to set 2"):
        kinograph.probe(tmp_path / "few.kino", codecs={"cam": "jpeg"}, encoder="trained", **QUICK)
