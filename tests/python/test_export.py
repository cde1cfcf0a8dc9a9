"""Exports, read with each format's own library: the same values as in the recording that was packed."""

import io
import json
import pathlib
import subprocess
import sys
import tarfile

import h5py
import numpy as np
import pytest
from optional import optional

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "lift_3demos.hdf5"
FIXTURES = ROOT / "crates" / "kino_import" / "tests" / "fixtures"
ROBOMIMIC = [
    SAMPLE,
    FIXTURES / "robomimic" / "libero.hdf5",
    FIXTURES / "robomimic" / "v15.hdf5",
    FIXTURES / "robomimic" / "low_dim_v01.hdf5",
]


def contents(group):
    """Return every array below a group, by its path."""
    found = {}
    group.visititems(
        lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None
    )
    return found


def check_same(found, expected):
    assert found.shape == expected.shape, expected.name
    if expected.dtype.kind in "SO":
        assert found[()].tolist() == expected[()].tolist(), expected.name
        return
    assert found.dtype == expected.dtype, expected.name
    assert found[()].tobytes() == expected[()].tobytes(), expected.name


@pytest.mark.parametrize("path", ROBOMIMIC, ids=lambda path: path.stem)
def test_h5py_reads_a_robomimic_export_like_the_original(path, tmp_path):
    kinograph.pack(path, tmp_path / "a.kino")
    exported = kinograph.export(tmp_path / "a.kino", tmp_path / "out.hdf5", to="robomimic")
    assert exported.defects == []
    with h5py.File(path) as before, h5py.File(tmp_path / "out.hdf5") as after:
        originals, copies = contents(before), contents(after)
        assert sorted(copies) == sorted(originals)
        for name, original in originals.items():
            check_same(copies[name], original)
        before_args, after_args = (file["data"].attrs["env_args"] for file in (before, after))
        assert json.loads(before_args) == json.loads(after_args)
        for demo in before["data"]:
            for name, value in before["data"][demo].attrs.items():
                found = after["data"][demo].attrs[name]
                if isinstance(value, str) and value.startswith("{"):
                    found, value = json.loads(found), json.loads(value)  # noqa: PLW2901
                assert np.array_equal(found, value), (demo, name)


def test_an_act_export_has_the_same_jpeg_files(tmp_path):
    kinograph.pack(FIXTURES / "act_jpeg.hdf5", tmp_path / "a.kino")
    kinograph.export(tmp_path / "a.kino", tmp_path / "out", to="act")
    with (
        h5py.File(FIXTURES / "act_jpeg.hdf5") as before,
        h5py.File(tmp_path / "out" / "act_jpeg.hdf5") as after,
    ):
        assert after.attrs["compress"]
        for name, original in contents(before).items():
            found, expected = after[name][()], original[()]
            if name.startswith("observations/images/"):
                found, expected = (
                    [np.asarray(row).tobytes().rstrip(b"\0") for row in rows]
                    for rows in (found, expected)
                )
                assert found == expected, name
            else:
                assert np.array_equal(found, expected), name


def test_tarfile_and_numpy_read_a_webdataset_export(tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "a.kino")
    exported = kinograph.export(tmp_path / "a.kino", tmp_path / "out", to="webdataset")
    assert not any(defect.lost for defect in exported.defects)
    with tarfile.open(tmp_path / "out" / "shard-000000.tar") as tar, h5py.File(SAMPLE) as before:
        members = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
        assert all(member.mtime == 0 for member in tar.getmembers())
        for demo in before["data"]:
            about = json.loads(members[f"{demo}.kinograph.json"])
            assert about["id"] == demo
            actions = np.load(io.BytesIO(members[f"{demo}.actions.npy"]))
            check_same_array(actions, before["data"][demo]["actions"])
            assert members[f"{demo}.obs.agentview_image.00000.png"].startswith(b"\x89PNG")


def check_same_array(found, expected):
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected[()].tobytes()


@pytest.mark.parametrize(
    ("to", "needs"),
    [
        ("webdataset", ["webdataset"]),
        ("rlds", ["tensorflow_datasets", "google_crc32c"]),
        ("mcap", ["mcap_ros2"]),
    ],
)
def test_the_libraries_of_a_format_read_its_export(to, needs, tmp_path):
    for library in needs:
        optional(library)
    kinograph.pack(SAMPLE, tmp_path / "a.kino")
    kinograph.export(tmp_path / "a.kino", tmp_path / "out", to=to)
    script = FIXTURES / f"check_export_{to}.py"
    subprocess.run([sys.executable, script, SAMPLE, tmp_path / "out"], check=True)


@pytest.mark.parametrize("to", ["webdataset", "rlds", "mcap"])
def test_packing_an_export_gives_the_same_dataset(to, tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "a.kino")
    kinograph.export(tmp_path / "a.kino", tmp_path / "out", to=to)
    kinograph.pack(tmp_path / "out", tmp_path / "b.kino")
    before, after = (kinograph.open(tmp_path / name) for name in ("a.kino", "b.kino"))
    for episode in before:
        other = after[episode.id]
        assert (other.task, other.splits) == (episode.task, episode.splits)
        for name in episode.streams:
            assert other[name].rate_hz == episode[name].rate_hz
            assert np.array_equal(other[name][:], episode[name][:])


def test_a_long_attribute_survives(tmp_path):
    text = "<mujoco>" + "x" * 200_000
    with kinograph.Writer(tmp_path / "a.kino") as writer:
        writer.add_episode(
            {"actions": np.zeros((3, 2))},
            id="demo_0",
            rate_hz=20.0,
            attributes={"model_file": text},
        )
    kinograph.export(tmp_path / "a.kino", tmp_path / "out.hdf5", to="robomimic")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file["data/demo_0"].attrs["model_file"] == text
        args = json.loads(file["data"].attrs["env_args"])
        assert args["env_kwargs"]["control_freq"] == 20


def test_data_that_a_format_cannot_represent_is_refused_or_listed(tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "a.kino")
    dataset = kinograph.open(tmp_path / "a.kino")
    with pytest.raises(kinograph.UnsupportedError, match="cannot be stored"):
        kinograph.export(dataset, tmp_path / "out", to="act")
    assert not (tmp_path / "out").exists()
    exported = kinograph.export(dataset, tmp_path / "out", to="act", on_defect="keep", episodes=[1])
    assert exported.episodes == 1
    assert any(defect.lost for defect in exported.defects)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["demo_1.hdf5"]


def test_a_callback_that_raises_aborts_the_export(tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "a.kino")

    def stop(done, total):
        raise RuntimeError(f"{done} of {total}")

    with pytest.raises(RuntimeError, match=" of "):
        kinograph.export(tmp_path / "a.kino", tmp_path / "out", to="robomimic", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["a.kino"]


def test_a_target_that_appears_during_the_export_is_not_replaced(tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "a.kino")
    target = tmp_path / "out"
    with pytest.raises(kinograph.ConflictError, match="while this export ran"):
        kinograph.export(
            tmp_path / "a.kino",
            target,
            to="zarr",
            on_defect="keep",
            progress=lambda done, total: target.mkdir(exist_ok=True),
        )
    assert list(target.iterdir()) == []
    with pytest.raises(kinograph.ConflictError, match="already exists"):
        kinograph.export(tmp_path / "a.kino", target, to="zarr", on_defect="keep")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.kino", "out"]


def test_a_target_inside_the_dataset_is_refused(tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "a.kino")
    before = sorted((tmp_path / "a.kino").rglob("*"))
    for target in ("a.kino/out", "a.kino/shards/new/out"):
        with pytest.raises(kinograph.InvalidArgumentError, match="inside the dataset"):
            kinograph.export(tmp_path / "a.kino", tmp_path / target, to="robomimic")
    assert sorted((tmp_path / "a.kino").rglob("*")) == before
