"""Every exception: its class, its built-in base classes, and its message."""

import errno
import json
import os
import pickle
import shutil

import numpy as np
import pytest
import samples

import kinograph


@pytest.fixture
def copy(lift_path, tmp_path):
    """A copy of a dataset that a test may damage."""
    return shutil.copytree(lift_path, tmp_path / "copy.kino")


def only(folder):
    (file,) = folder.iterdir()
    return file


@pytest.mark.parametrize(
    ("error", "also"),
    [
        (kinograph.CorruptDataError, ()),
        (kinograph.UnsupportedError, ()),
        (kinograph.InvalidArgumentError, (ValueError,)),
        (kinograph.NotFoundError, (KeyError, IndexError, LookupError)),
        (kinograph.ConflictError, ()),
        (kinograph.StorageError, (OSError,)),
    ],
)
def test_every_exception_is_a_kinograph_error_and_a_built_in_one(error, also):
    assert issubclass(error, kinograph.KinographError)
    assert all(issubclass(error, base) for base in also)
    assert error.__module__ == "kinograph"
    assert str(error("what went wrong")) == "what went wrong"
    copied = pickle.loads(pickle.dumps(error("what went wrong")))
    assert (type(copied), str(copied)) == (error, "what went wrong")


def test_a_missing_dataset_is_not_found(tmp_path):
    with pytest.raises(kinograph.NotFoundError, match=r"nothing\.kino does not exist$"):
        kinograph.open(tmp_path / "nothing.kino")
    with pytest.raises(
        kinograph.NotFoundError, match=r"is not a Kinograph dataset.*kinograph pack"
    ):
        kinograph.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(kinograph.NotFoundError, match="is a file, not a dataset folder"):
        kinograph.open(tmp_path / "file")


def test_a_missing_episode_stream_or_column_is_not_found_and_the_message_lists_the_others(lift):
    for look, message in [
        (
            lambda: lift["demo_9"],
            "there is no episode `demo_9`; the dataset has 3 episodes, such as demo_0, demo_1, demo_2",
        ),
        (lambda: lift[3], "no episode 3; the dataset has 3"),
        (lambda: lift[-4], "no episode -4; the dataset has 3"),
        (
            lambda: lift[0]["obs/x"],
            "episode `demo_0` has no stream `obs/x`; there are actions, dones, ",
        ),
        (lambda: lift.streams["obs/x"], "no stream `obs/x`; there are actions, dones, "),
        (lambda: lift.stats["language"], "no stream `language`; there are actions, dones, "),
        (lambda: lift.episodes["x"], "no column `x`; the table has episode, id, frames"),
    ]:
        with pytest.raises(kinograph.NotFoundError) as caught:
            look()
        assert str(caught.value).startswith(message)
        with pytest.raises(KeyError):
            look()
        with pytest.raises(IndexError):
            look()


def test_a_missing_version_is_not_found(lift_path):
    with pytest.raises(kinograph.NotFoundError, match=r"has no version 7; its versions are \[1\]"):
        kinograph.open(lift_path, version=7)
    for version in (0, -1, 1.0, True, "1", [1]):
        with pytest.raises(
            kinograph.InvalidArgumentError, match="is not a version; versions count from 1"
        ):
            kinograph.open(lift_path, version=version)


def test_a_meaningless_key_is_an_invalid_argument(lift):
    for key in (1.0, None, True, (0, 1), [0]):
        with pytest.raises(kinograph.InvalidArgumentError, match="a number, an id or a slice"):
            lift[key]
    with pytest.raises(kinograph.InvalidArgumentError, match="indexed by the name of a stream"):
        lift[0][0]


def test_a_damaged_page_is_named_with_its_stream_and_frames(copy):
    shard = only(copy / "shards")
    whole = bytearray(shard.read_bytes())
    # The last third holds only images.
    whole[len(whole) * 5 // 6] ^= 0xFF
    shard.write_bytes(whole)
    ds = kinograph.open(copy)
    message = r"kshard, episode `demo_\d`, stream `obs/agentview_image`, frames from \d+ is damaged: bytes .*checksum.*kinograph verify"
    with pytest.raises(kinograph.CorruptDataError, match=message):
        [episode["obs/agentview_image"][:] for episode in ds]
    assert len(ds[0]["actions"][:]) == 60
    (damage,) = kinograph.verify(copy)
    assert str(damage) == f"{damage.place}: {damage.what}"
    assert "stream `obs/agentview_image`, frames" in str(damage)
    assert "checksum" in str(damage)
    assert kinograph.verify(copy, decode=True)[0] == damage


def test_a_truncated_shard_is_damage(copy):
    shard = only(copy / "shards")
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(kinograph.CorruptDataError, match="it is truncated"):
        kinograph.open(copy)[0]
    assert "1.66 MB raw" in repr(kinograph.open(copy))
    assert len(kinograph.verify(copy)) >= 1


def test_a_missing_shard_is_damage(copy):
    only(copy / "shards").unlink()
    with pytest.raises(kinograph.CorruptDataError, match=r"\.kshard is damaged: it is missing"):
        kinograph.open(copy)[0]


def test_a_damaged_manifest_table_or_statistics_are_damage(copy):
    for folder, use in [
        ("stats", lambda: kinograph.open(copy).stats),
        ("episodes", lambda: kinograph.open(copy)),
        ("versions", lambda: kinograph.open(copy)),
    ]:
        file = only(copy / folder)
        whole = bytearray(file.read_bytes())
        whole[len(whole) // 2] ^= 1
        file.write_bytes(whole)
        with pytest.raises(kinograph.CorruptDataError, match=rf"{file.name} is damaged"):
            use()


def test_the_manifest_is_plain_json(lift_path, lift):
    manifest = json.loads(only(lift_path / "versions").read_text())
    assert manifest["id"] == lift.id
    assert manifest["episodes"]["count"] == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read and write everything")
def test_a_file_without_read_permission_is_a_storage_error(copy):
    only(copy / "shards").chmod(0)
    with pytest.raises(kinograph.StorageError, match=r"cannot read .*denied") as caught:
        kinograph.open(copy)[0]
    assert isinstance(caught.value, OSError)


def test_a_folder_that_cannot_be_created_is_a_storage_error_with_its_errno(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        kinograph.StorageError, match=r"cannot create .*d\.kino: .*directory"
    ) as caught:
        kinograph.Writer(tmp_path / "file" / "d.kino")
    assert caught.value.errno == errno.ENOTDIR
    assert not str(caught.value).startswith("[Errno")


def test_a_message_has_every_cause_once(tmp_path):
    path = tmp_path / "d.kino"
    with kinograph.Writer(path, plan={"stream": [{"codec": "jpeg:q=90"}]}) as writer:
        with pytest.raises(kinograph.InvalidArgumentError) as caught:
            writer.add_episode({"x": np.arange(3.0)}, rate_hz=20.0)
        assert str(caught.value).count("8-bit images") == 1
        writer.add_episode({"x": samples.image(3, 8, 8)}, rate_hz=20.0)
