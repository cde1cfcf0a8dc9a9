"""A copy of only the shards that a selection needs: the same version, which says what it does not have."""

import json
import subprocess
import sys

import numpy as np
import pytest

import kinograph


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Eight episodes in several shards; the last two are of another split."""
    path = tmp_path_factory.mktemp("partial") / "all.kino"
    random = np.random.default_rng(4)
    with kinograph.Writer(path, shard_size="600KB") as writer:
        for number in range(8):
            camera = random.integers(0, 255, (30, 48, 64, 3), dtype=np.uint8)
            splits = ["train"] if number < 6 else ["valid"]
            streams = {"camera": camera, "actions": random.normal(size=(30, 7))}
            writer.add_episode(streams, rate_hz=20.0, id=f"e{number}", splits=splits)
    return path


def run(*arguments):
    command = [sys.executable, "-m", "kinograph", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def batches(place, **selection):
    samples = kinograph.open(place).samples(windows={"camera": [0], "actions": [0, 1]}, **selection)
    with kinograph.numpy.Loader(samples, batch_size=16, seed=2) as loader:
        return [[value.tobytes() for value in batch.values()] for batch in loader]


def shards(place):
    return {file.name for file in place.glob("shards/*")}


def test_a_loader_with_the_selection_gives_the_same_batches(path, tmp_path):
    staged = tmp_path / "staged.kino"
    source = kinograph.open(path)
    copied = source.copy(staged, split="valid")
    assert (copied.id, len(copied)) == (source.id, len(source))
    assert 0 < len(shards(staged)) < len(shards(path))
    assert batches(staged, split="valid") == batches(path, split="valid")
    assert copied.stats["actions"].mean == pytest.approx(source.stats["actions"].mean)
    with pytest.raises(kinograph.NotFoundError, match=r"partial copy of .*all\.kino"):
        copied["e0"]["actions"][:]
    assert kinograph.verify(staged) == []


def test_the_same_copy_takes_more_shards_and_is_complete_in_the_end(path, tmp_path):
    staged = tmp_path / "staged.kino"
    command = ["copy", path, staged, "--shards", "needed-by", "--json"]
    first = json.loads(run(*command, "--episodes", "e1").stdout)
    assert (first["shards"], first["missing"]) == (1, len(shards(path)) - 1)
    verified = run("verify", staged)
    assert verified.returncode == 0
    assert "partial copy without" in verified.stdout
    again = json.loads(run(*command, "--where", "frames >= 30", "--episodes", "e1").stdout)
    assert (again["shards"], again["kept"], again["missing"]) == (0, 1, first["missing"])
    second = json.loads(run(*command, "--split", "valid").stdout)
    assert second["missing"] < first["missing"]
    assert (staged / "partial.json").exists()
    text = run("copy", path, staged).stdout
    assert "partial" not in text
    assert shards(staged) == shards(path)
    assert not (staged / "partial.json").exists()
    assert batches(staged) == batches(path)
    assert run("verify", staged).stdout.count(": valid (") == 1


def test_a_shard_that_is_lost_is_damage_and_not_a_partial_copy(path, tmp_path):
    staged = tmp_path / "staged.kino"
    kinograph.open(path).copy(staged)
    next(staged.glob("shards/*")).unlink()
    with pytest.raises(kinograph.CorruptDataError, match="copy it again"):
        [episode["actions"][:] for episode in kinograph.open(staged)]
    assert run("verify", staged).returncode == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--split", "valid"], "--shards needed-by"),
        (["--shards", "needed-by"], "add --split, --episodes or --where"),
        (["--shards", "needed-by", "--split", "test"], "no split `test`"),
        (["--shards", "needed-by", "--episodes", "e99"], "no episode `e99`"),
    ],
)
def test_a_selection_that_says_nothing_or_nonsense_is_refused(path, tmp_path, options, says):
    refused = run("copy", path, tmp_path / "staged.kino", *options)
    assert refused.returncode == 1
    assert says in refused.stderr
    assert not shards(tmp_path / "staged.kino")
