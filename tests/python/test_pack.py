"""Packed recordings against the originals, read by h5py: every array of every episode, bit for bit."""

import os
import pathlib
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
import samples

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "lift_3demos.hdf5"
MORE = pathlib.Path(os.environ.get("KINOGRAPH_TEST_DATA", ROOT.parent / "shared" / "data"))

ROBOMIMIC = [
    "generated/lift/lift_3demos_v15.hdf5",
    "generated/lift/lift_1demo_nextobs.hdf5",
    "generated/lift/lift_10demos_gzip.hdf5",
    "real/robomimic/lift_ph_low_dim.hdf5",
]
ALOHA = [
    "generated/aloha/episode_0.hdf5",
    "generated/aloha/episode_1.hdf5",
    "generated/aloha/episode_100steps_480x640.hdf5",
]


def recording(name):
    path = MORE / name
    if not path.exists():
        pytest.skip(f"no {path}; KINOGRAPH_TEST_DATA names the folder of recordings")
    return path


def arrays_of(group):
    """Every array below a group, by its path."""
    found = {}
    group.visititems(
        lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None
    )
    return found


def check_episode(episode, group):
    """Compare an episode with the group it was packed from; gives how many arrays there were."""
    frames = episode.frames
    originals = {
        name: array for name, array in arrays_of(group).items() if array.shape[:1] == (frames,)
    }
    assert sorted(episode.streams) == sorted(originals)
    for name, original in originals.items():
        found, expected = episode[name][:], original[()]
        assert found.dtype == expected.dtype, name
        assert found.shape == expected.shape, name
        assert found.tobytes() == expected.tobytes(), name
    return len(originals)


def check_robomimic(ds, path):
    count = 0
    with h5py.File(path) as file:
        demos = file["data"]
        assert sorted(episode.id for episode in ds) == sorted(demos)
        for name, group in demos.items():
            episode = ds[name]
            assert episode.frames == group.attrs["num_samples"]
            count += check_episode(episode, group)
            for key, value in group.attrs.items():
                assert episode.attributes[key] == (
                    value.item() if isinstance(value, np.generic) else value
                )
        for split, names in file.get("mask", {}).items():
            expected = {name.decode() for name in names[()]} & set(demos)
            assert {episode.id for episode in ds if split in episode.splits} == expected
    return count


def test_the_sample_comes_back_bit_for_bit(tmp_path):
    seen = []
    packed = kinograph.pack(
        SAMPLE, tmp_path / "d.kino", progress=lambda done, total: seen.append((done, total))
    )
    ds = kinograph.open(tmp_path / "d.kino")
    assert (packed.version, packed.id, packed.episodes, packed.defects) == (1, ds.id, 3, [])
    assert check_robomimic(ds, SAMPLE) == 51
    assert kinograph.verify(tmp_path / "d.kino", decode=True) == []
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == sum(ds.episodes["raw_bytes"])


def test_the_sample_comes_back_bit_for_bit_from_the_command(tmp_path):
    command = [sys.executable, "-m", "kinograph", "pack", str(SAMPLE), str(tmp_path / "d.kino")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert check_robomimic(kinograph.open(tmp_path / "d.kino"), SAMPLE) == 51


@pytest.mark.parametrize("name", ROBOMIMIC)
def test_robomimic_recordings_come_back_bit_for_bit(tmp_path, name):
    path = recording(name)
    # The genuine file is a part of a larger one, whose masks it kept.
    defects = kinograph.pack(path, tmp_path / "d.kino", rate_hz=20.0, on_defect="keep").defects
    assert all(":/mask/" in defect.place and name.startswith("real/") for defect in defects)
    assert check_robomimic(kinograph.open(tmp_path / "d.kino"), path) > 0


def faulty(folder):
    """Copy the sample with a NaN in one demo and a mask that names a demo which is not there."""
    path = folder / "faulty.hdf5"
    shutil.copy(SAMPLE, path)
    with h5py.File(path, "a") as file:
        file["data/demo_1/actions"][5, 0] = np.nan
        del file["mask/valid"]
        file["mask/valid"] = np.array([b"demo_7"])
    return path


def test_defects_are_refused_with_the_whole_list(tmp_path):
    with pytest.raises(kinograph.CorruptDataError) as raised:
        kinograph.pack(faulty(tmp_path), tmp_path / "d.kino")
    text = str(raised.value)
    assert "2 defects; nothing was written" in text
    assert "/data/demo_1, stream `actions`: contains NaN in 1 of" in text
    assert "/mask/valid: names 1 demos that are not in the file: demo_7" in text
    assert not (tmp_path / "d.kino").exists()


@pytest.mark.parametrize(
    ("on_defect", "episodes"),
    [("keep", ["demo_0", "demo_1", "demo_2"]), ("drop-episode", ["demo_0", "demo_2"])],
)
def test_defects_are_kept_or_dropped_and_remembered(tmp_path, on_defect, episodes):
    packed = kinograph.pack(faulty(tmp_path), tmp_path / "d.kino", on_defect=on_defect)
    ds = kinograph.open(tmp_path / "d.kino")
    assert list(ds.episodes["id"]) == episodes
    by_action = {defect.action: defect for defect in packed.defects}
    assert by_action["lost"].episode is None
    assert by_action["kept" if on_defect == "keep" else "dropped"].episode == "demo_1"
    stored = ds.attributes["sources"][0]["defects"]
    assert [defect["place"] for defect in stored] == [defect.place for defect in packed.defects]


def test_the_command_tells_by_its_exit_code_that_something_was_left_out(tmp_path):
    command = [sys.executable, "-m", "kinograph", "pack", str(faulty(tmp_path))]
    for policy, code in (("error", 1), ("drop-episode", 3)):
        words = [*command, str(tmp_path / policy), "--on-defect", policy]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "contains NaN" in done.stderr


@pytest.mark.parametrize("name", ALOHA)
def test_aloha_recordings_come_back_bit_for_bit(tmp_path, name):
    path = recording(name)
    assert kinograph.pack(path, tmp_path / "d.kino").defects == []
    (episode,) = kinograph.open(tmp_path / "d.kino")
    with h5py.File(path) as file:
        assert check_episode(episode, file) == len(arrays_of(file))


@pytest.mark.parametrize("number", range(3))
def test_sessions_of_many_clocks_come_back_bit_for_bit(tmp_path, number):
    path = recording(f"generated/mixed/session_{number:02}.hdf5")
    with h5py.File(path) as file:
        arrays = {name: array[()] for name, array in arrays_of(file).items()}
    times = {
        name.removesuffix("/t"): array for name, array in arrays.items() if name.endswith("/t")
    }
    streams = {name: arrays[f"{name}/data"] for name in times}
    streams["language"] = [text.decode() for text in streams["language"]]
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(streams, timestamps_ns=times)
    (episode,) = kinograph.open(tmp_path / "d.kino")
    assert sorted(episode) == sorted(streams)
    assert episode["cam_front/depth"].kind == "depth"
    for name, expected in streams.items():
        assert np.array_equal(episode[name].timestamps_ns, times[name])
        found = episode[name][:]
        assert found == expected if name == "language" else samples.same_bits(found, expected)
    start = min(clock[0] for clock in times.values())
    second = (times["ft"] >= start + 500_000_000) & (times["ft"] < start + 1_500_000_000)
    assert samples.same_bits(episode["ft"][0.5:1.5], streams["ft"][second])


def test_statistics_of_the_sample_are_those_that_numpy_computes(tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "d.kino")
    ds = kinograph.open(tmp_path / "d.kino")
    with h5py.File(SAMPLE) as file:
        for name, stats in ds.stats.items():
            values = np.concatenate([file["data"][episode.id][name][()] for episode in ds]).astype(
                float
            )
            values = values.reshape(-1, 3) if ds.streams[name].kind == "image" else values
            for quantity in ("mean", "std", "min", "max"):
                expected = getattr(np, quantity)(values, axis=0)
                np.testing.assert_allclose(
                    getattr(stats, quantity), expected, rtol=1e-11, atol=1e-12
                )
            for percent in (1, 10, 50, 90, 99):
                expected = np.quantile(values, percent / 100, axis=0)
                np.testing.assert_allclose(
                    getattr(stats, f"q{percent:02}"), expected, rtol=1e-11, atol=1e-12
                )


def test_packing_ends_when_the_progress_callback_raises_and_can_be_resumed(tmp_path):
    class EnoughError(Exception):
        pass

    def stop(done, total):
        if done > total / 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        kinograph.pack(SAMPLE, tmp_path / "d.kino", shard_size=1, progress=stop)
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(tmp_path / "d.kino")
    packed = kinograph.pack(SAMPLE, tmp_path / "d.kino", mode="resume", shard_size=1)
    assert packed.version == 1
    assert check_robomimic(kinograph.open(tmp_path / "d.kino"), SAMPLE) == 51


def test_a_recording_is_appended_to_a_dataset(tmp_path):
    samples.write(tmp_path / "d.kino", [{"x": np.arange(5.0)}])
    with h5py.File(tmp_path / "more.hdf5", "w") as file:
        group = file.create_group("data/demo_9")
        group.attrs["num_samples"] = 4
        group["actions"] = np.ones((4, 2))
    assert (
        kinograph.pack(
            tmp_path / "more.hdf5", tmp_path / "d.kino", mode="append", rate_hz=5.0
        ).version
        == 2
    )
    ds = kinograph.open(tmp_path / "d.kino")
    assert [episode.id for episode in ds] == ["demo_0", "demo_9"]
    assert ds["demo_9"]["actions"].rate_hz == 5.0


def test_what_cannot_be_packed_is_refused_with_the_reason(tmp_path):
    target = tmp_path / "d.kino"
    with pytest.raises(kinograph.NotFoundError, match=r"nothing\.hdf5: no such file or folder"):
        kinograph.pack(tmp_path / "nothing.hdf5", target)
    with h5py.File(tmp_path / "strange.hdf5", "w") as file:
        file["speech"] = np.zeros(5)
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"strange\.hdf5: the file has no rate"
    ):
        kinograph.pack(tmp_path / "strange.hdf5", target)
    (tmp_path / "notes.hdf5").write_text("not HDF5")
    with pytest.raises(kinograph.KinographError, match=r"notes\.hdf5"):
        kinograph.pack(tmp_path / "notes.hdf5", target)
    with pytest.raises(kinograph.InvalidArgumentError, match="rate -1 Hz is not a rate"):
        kinograph.pack(SAMPLE, target, rate_hz=-1.0)
    with pytest.raises(kinograph.InvalidArgumentError, match="seed is -1"):
        kinograph.pack(SAMPLE, target, seed=-1)
    samples.write(target, [{"x": np.arange(5)}])
    with pytest.raises(kinograph.ConflictError, match="already contains a dataset"):
        kinograph.pack(SAMPLE, target)


def test_a_mapping_that_the_format_does_not_read_is_refused(tmp_path):
    mapping = tmp_path / "mapping.toml"
    mapping.write_text('[[stream]]\nname = "joints"\nfield = "joints"\n')
    replay = tmp_path / "replay.zarr"
    (replay / "data").mkdir(parents=True)
    (replay / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(kinograph.InvalidArgumentError, match="does not take a mapping"):
        kinograph.pack(replay, tmp_path / "a.kino", mapping=mapping)
    assert not (tmp_path / "a.kino").exists()


def test_a_recording_that_is_written_to_while_it_is_packed_is_not_committed(tmp_path):
    source = tmp_path / "lift.hdf5"
    shutil.copy(SAMPLE, source)
    target = tmp_path / "a.kino"

    def overwrite(done, total):
        # Same bytes, written again: whether they differ is not for the reader to guess.
        with source.open("r+b") as file:
            file.write(SAMPLE.read_bytes()[:4096])
        os.utime(source, ns=(0, source.stat().st_mtime_ns + 1_000_000_000))

    with pytest.raises(
        kinograph.InvalidArgumentError, match="was modified while it was being packed"
    ):
        kinograph.pack(source, target, progress=overwrite)
    assert not list(target.glob("versions/*"))
    assert kinograph.pack(source, target, mode="resume").episodes == 3
