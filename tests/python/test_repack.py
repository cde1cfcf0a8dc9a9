"""Repacking: what a plan does not change is bit for bit the same, and what it changes is what the plan says."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import samples
from test_pack import recording

import kinograph

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / "data" / "lift_3demos.hdf5"
JPEG = {"stream": [{"kind": "image", "codec": "jpeg:q=90"}]}


def run(*args):
    command = [sys.executable, "-m", "kinograph", *map(os.fspath, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def files(path, folder="shards"):
    return {file.name: file.read_bytes() for file in (path / folder).iterdir()}


def same_episode(one, other, but=()):
    assert (one.id, one.task, one.splits, one.success) == (
        other.id,
        other.task,
        other.splits,
        other.success,
    )
    assert one.attributes == other.attributes
    assert list(one) == list(other)
    for name in one:
        assert np.array_equal(one[name].timestamps_ns, other[name].timestamps_ns)
        if name in but:
            continue
        found, expected = one[name][:], other[name][:]
        if isinstance(expected, list):
            assert found == expected
        else:
            assert samples.same_bits(found, expected)


def test_a_copy_is_the_same_files(lift_path, tmp_path):
    copied = kinograph.repack(lift_path, tmp_path / "copy.kino")
    assert {stream.action for stream in copied.streams} == {"copied"}
    for folder in ("shards", "stats", "episodes"):
        assert files(tmp_path / "copy.kino", folder) == files(lift_path, folder)
    assert kinograph.verify(tmp_path / "copy.kino", decode=True) == []
    copy, original = kinograph.open(tmp_path / "copy.kino"), kinograph.open(lift_path)
    assert copy.attributes["env_args"] == original.attributes["env_args"]
    assert copy.attributes["repacked_from"][0]["id"] == original.id


def test_lossless_to_lossless_gives_the_same_values(lift_path, tmp_path):
    plan = {
        "stream": [
            {"kind": "image", "codec": "raw"},
            {"kind": "vector", "codec": "zstd", "page_frames": 7},
            {"kind": "text", "codec": "text:level=1"},
        ]
    }
    repacked = kinograph.repack(lift_path, tmp_path / "raw.kino", plan=plan)
    assert {stream.action for stream in repacked.streams} == {"encoded"}
    back = kinograph.repack(tmp_path / "raw.kino", tmp_path / "back.kino", plan={"stream": [{}]})
    assert {stream.codecs[0].split(":")[0] for stream in back.streams} <= {
        "camera",
        "predict",
        "text",
        "vector",
    }
    original = kinograph.open(lift_path)
    for name in ("raw", "back"):
        made = kinograph.open(tmp_path / f"{name}.kino")
        assert kinograph.verify(tmp_path / f"{name}.kino", decode=True) == []
        for one, other in zip(made, original, strict=True):
            same_episode(one, other)


def test_a_lossy_generation_is_measured_against_the_one_before(lift_path, tmp_path):
    first, second = tmp_path / "first.kino", tmp_path / "second.kino"
    kinograph.repack(lift_path, first, plan=JPEG)
    with pytest.raises(kinograph.InvalidArgumentError, match="allow_generation_loss=True"):
        kinograph.repack(first, second, quality=40)
    assert not second.exists()
    repacked = kinograph.repack(first, second, quality=40, allow_generation_loss=True)
    stream = next(one for one in repacked.streams if one.action == "encoded")
    assert stream.codecs == ["jpeg:q=40,sub=444"]
    assert stream.bytes < stream.bytes_before
    a, b = kinograph.open(first), kinograph.open(second)
    differences = [
        one["obs/agentview_image"][:].astype(int) - other["obs/agentview_image"][:]
        for one, other in zip(a, b, strict=True)
    ]
    squares = np.concatenate([difference.ravel() ** 2 for difference in differences])
    assert stream.psnr_db == pytest.approx(10 * np.log10(255**2 / squares.mean()))
    assert stream.max_abs_error == max(abs(difference).max() for difference in differences)
    (earlier,) = stream.generations
    assert earlier.codec == "jpeg:q=90,sub=444"
    assert earlier.psnr_db is not None
    assert kinograph.open(second).streams["obs/agentview_image"].generations == (earlier,)
    for one, other in zip(b, kinograph.open(lift_path), strict=True):
        same_episode(one, other, but=["obs/agentview_image"])
    shown = run("info", second)
    assert "2 lossy generations: jpeg:q=90,sub=444" in shown.stdout


def test_in_place_is_a_new_version_and_the_old_one_stays(lift_streams, tmp_path):
    path = tmp_path / "lift.kino"
    samples.write(path, lift_streams)
    before = kinograph.open(path)
    repacked = kinograph.repack(path, in_place=True, plan=JPEG)
    assert (repacked.version, repacked.episodes) == (2, 3)
    old, new = kinograph.open(path, version=1), kinograph.open(path)
    assert old.id == before.id
    for one, other in zip(old, lift_streams, strict=True):
        assert samples.same_bits(one["obs/agentview_image"][:], other["obs/agentview_image"])
    assert new.streams["obs/agentview_image"].codecs == ("jpeg:q=90,sub=444",)
    for one, other in zip(new, old, strict=True):
        same_episode(one, other, but=["obs/agentview_image"])
    assert kinograph.verify(path, decode=True) == []
    again = kinograph.repack(path, in_place=True, plan=JPEG)
    assert (again.version, again.episodes) == (2, 0)
    # An append to the new version, and a loader on it, work as ever.
    with kinograph.Writer(path, mode="append") as writer:
        writer.add_episode(lift_streams[0], rate_hz=20.0, id="more")
    assert len(kinograph.open(path)) == 4
    with pytest.raises(kinograph.InvalidArgumentError, match="name a target"):
        kinograph.repack(path)


def test_parts_and_progress(lift_path, tmp_path):
    told = []
    kinograph.repack(
        lift_path,
        tmp_path / "part.kino",
        streams=["actions", "language"],
        episodes=[0, 2],
        progress=lambda done, total: told.append((done, total)),
    )
    part = kinograph.open(tmp_path / "part.kino")
    assert [episode.id for episode in part] == ["demo_0", "demo_2"]
    assert list(part[0]) == ["actions", "language"]
    assert kinograph.verify(tmp_path / "part.kino", decode=True) == []
    assert told
    assert all(done <= total for done, total in told)

    def stop(done, _total):
        if done > 0:
            raise RuntimeError("enough")

    target = tmp_path / "stopped.kino"
    with pytest.raises(RuntimeError, match="enough"):
        kinograph.repack(lift_path, target, shard_size=1, threads=1, progress=stop)
    kinograph.repack(lift_path, target, shard_size=1, threads=1, mode="resume")
    assert len(kinograph.open(target)) == 3
    # To a dataset that exists, the episodes of another are added.
    kinograph.repack(lift_path, target, mode="overwrite", episodes="0")
    kinograph.repack(lift_path, target, mode="append", episodes="1-2")
    merged = kinograph.open(target)
    assert [episode.id for episode in merged] == ["demo_0", "demo_1", "demo_2"]
    for one, other in zip(merged, kinograph.open(lift_path), strict=True):
        same_episode(one, other)


def test_the_command_says_what_it_would_do(lift_path, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('[[stream]]\nkind = "image"\ncodec = "raw"\n')
    said = run("repack", lift_path, "--plan", plan, "--exclude", "rewards", "--dry-run", "--json")
    streams = {one["name"]: one for one in json.loads(said.stdout)["streams"]}
    assert streams["rewards"]["action"] == "dropped"
    assert streams["actions"]["action"] == "copied"
    assert streams["obs/agentview_image"]["action"] == "encoded"
    assert not (tmp_path / "raw.kino").exists()
    done = run("repack", lift_path, tmp_path / "raw.kino", "--plan", plan)
    assert done.returncode == 0, done.stderr
    assert "obs/agentview_image is larger than before" in done.stderr
    refused = run("repack", tmp_path / "raw.kino", lift_path, "--quality", "90")
    assert refused.returncode == 1
    assert "already contains a dataset" in refused.stderr
    done = run("repack", tmp_path / "raw.kino", "--in-place", "--quality", "90")
    assert "raw.kino: version 2 with 3 episodes, " in done.stdout


def test_real_jpeg_files_can_be_encoded_again_from_source_and_dataset(tmp_path):
    source = recording("real/bridge")
    options = {"rate_hz": 5.0, "on_defect": "keep"}
    kinograph.pack(source, tmp_path / "carried.kino", **options)
    kinograph.pack(source, tmp_path / "packed.kino", quality=60, **options)
    kinograph.repack(
        tmp_path / "carried.kino", tmp_path / "again.kino", quality=60, allow_generation_loss=True
    )
    packed, again = (kinograph.open(tmp_path / f"{name}.kino") for name in ("packed", "again"))
    # Either way the same pixels are encoded by the same codec.
    for one, other in zip(packed, again, strict=True):
        same_episode(one, other)
    sizes = [
        sum(stream.bytes for stream in kinograph.open(tmp_path / f"{name}.kino").streams.values())
        for name in ("carried", "packed", "again")
    ]
    assert sizes[0] > 1.3 * sizes[1]
    assert sizes[1] == sizes[2]
