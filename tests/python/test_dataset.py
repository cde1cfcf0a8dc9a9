"""Metadata, statistics and the episode table of an open dataset."""

import numpy as np
import pytest
import samples

import kinograph


def test_the_repr_summarises_dataset_episode_and_stream(lift, lift_path):
    text = repr(lift)
    assert text.startswith(
        f"Dataset('{lift_path}', version 1: 3 episodes, 178 frames at 20 Hz, 6 streams, "
    )
    raw = sum(lift.episodes["raw_bytes"])
    files = [*lift_path.glob("shards/*"), *lift_path.glob("episodes/*"), *lift_path.glob("stats/*")]
    stored = sum(file.stat().st_size for file in files)
    assert text.endswith(
        f"{raw / 1e6:.2f} MB raw → {stored / 1e3:.0f} kB on disk ({raw / stored:.1f}×))"
    )
    assert repr(lift[0]) == "Episode('demo_0': 60 frames, 2.95 s at 20 Hz, 6 streams)"
    camera = lift[0]["obs/agentview_image"]
    assert repr(camera).startswith(
        "Stream('obs/agentview_image': 60 frames of uint8[48, 64, 3] at 20 Hz, image, camera"
    )
    assert repr(lift[0]["rewards"]).startswith("Stream('rewards': 60 frames of float64 at 20 Hz")
    assert repr(lift[0]["language"]).startswith(
        "Stream('language': 60 frames of text at 20 Hz, text"
    )


def test_the_repr_of_many_rates_gives_the_range(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(
            {"a": np.arange(10), "b": np.arange(100)}, rate_hz={"a": 29.97, "b": 500.0}
        )
    ds = kinograph.open(tmp_path / "d.kino")
    assert "1 episode, 100 frames at 29.97 to 500 Hz" in repr(ds)


def test_episodes_are_found_by_index_and_by_id(lift):
    assert len(lift) == 3
    assert [episode.id for episode in lift] == ["demo_0", "demo_1", "demo_2"]
    assert lift[-1].id == lift[np.int64(2)].id == lift["demo_2"].id == "demo_2"
    assert [episode.index for episode in lift[::-1]] == [2, 1, 0]
    assert "demo_1" in lift
    assert "demo_9" not in lift
    assert lift[1]["actions"].name == "actions"


def test_an_episode_is_a_mapping_of_streams(lift, lift_streams):
    episode = lift[1]
    assert list(episode) == episode.streams == list(lift_streams[1])
    assert len(episode) == 6
    assert "actions" in episode
    assert "nothing" not in episode
    assert episode.get("nothing") is None
    assert {name: len(stream) for name, stream in episode.items()} == dict.fromkeys(episode, 45)
    assert episode == episode  # noqa: PLR0124
    assert episode != lift[1]
    assert len({episode, lift[1]}) == 2


def test_episode_metadata_comes_back(lift):
    first, second, third = lift
    assert first.task == "lift the cube"
    assert (first.success, second.success, third.success) == (True, None, False)
    assert (first.splits, second.splits) == (["train", "small"], ["valid"])
    assert first.attributes == {"num_samples": 60, "model_file": "<mujoco/>"}
    assert (first.labels, third.labels) == ({}, {"operator": "ana", "attempt": 2, "score": 1.0})
    assert first.duration_s == pytest.approx(59 / 20)
    assert first.start_ns == 0
    assert lift.attributes == {"env_args": {"env_name": "Lift"}}


def test_stream_summaries_match_the_data(lift, lift_streams):
    streams = lift.streams
    assert list(streams) == list(lift_streams[0])
    for name, summary in streams.items():
        assert summary.name == name
        assert summary.episodes == 3
        assert summary.frames == 178
        assert summary.max_abs_error == 0
        assert summary.psnr_db is None
        assert summary.ratio == summary.raw_bytes / summary.bytes
        if name != "language":
            arrays = [original[name] for original in lift_streams]
            assert summary.dtype == arrays[0].dtype
            assert summary.shape == arrays[0].shape[1:]
            assert summary.raw_bytes == sum(array.nbytes for array in arrays)
    assert streams["language"].dtype is None
    assert streams["actions"].codecs[0].startswith("vector")


def test_statistics_match_numpy(lift, lift_streams):
    for name in ("actions", "dones", "obs/joints", "rewards", "obs/agentview_image"):
        stats = lift.stats[name]
        values = np.concatenate([streams[name] for streams in lift_streams]).astype(float)
        if name == "obs/agentview_image":
            values = values.reshape(-1, 3)
        assert stats.frames == 178
        assert np.array_equal(stats.count, np.full(values.shape[1:], len(values)))
        assert not stats.nonfinite.any()
        assert np.array_equal(stats.min, values.min(axis=0))
        assert np.array_equal(stats.max, values.max(axis=0))
        np.testing.assert_allclose(stats.mean, values.mean(axis=0), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(stats.std, values.std(axis=0), rtol=1e-12, atol=1e-14)
        for quantile in (1, 10, 50, 90, 99):
            expected = np.quantile(values, quantile / 100, axis=0)
            found = getattr(stats, f"q{quantile:02}")
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_statistics_broadcast_against_frames_of_every_shape(tmp_path):
    streams = {
        "scalar": np.arange(20.0),
        "matrix": samples.numbers("float32", (20, 3, 4), seed=4),
        "grey": samples.image(20, 8, 8, channels=1),
        "obs/depth": np.arange(20 * 64, dtype=np.uint16).reshape(20, 8, 8),
        "huge": np.arange(20 * 5000.0).reshape(20, 5000),
    }
    ds = samples.write(tmp_path / "d.kino", [streams])
    for name, array in streams.items():
        stats = ds.stats[name]
        assert (ds[0][name][:] - stats.mean).shape == array.shape
        assert stats.min.min() == np.min(
            array.astype(float), initial=np.inf, where=np.isfinite(array)
        )
    assert ds.stats["scalar"].mean.shape == ()
    assert ds.stats["matrix"].mean.shape == (3, 4)
    assert ds.stats["matrix"].nonfinite.sum() == 4
    assert "language" not in ds.stats


def test_the_table_has_a_row_per_episode(lift):
    table = lift.episodes
    assert len(table) == 3
    assert table["episode"].tolist() == [0, 1, 2]
    assert table["frames"].tolist() == [60, 45, 73]
    assert table["frames"].dtype == np.int64
    assert table["duration_s"].dtype == np.float64
    assert (table["task"] == "lift the cube").all()
    assert table["success"].tolist() == [True, None, False]
    assert table["splits"].tolist() == [["train", "small"], ["valid"], ["valid"]]
    assert table["operator"].tolist() == [None, "ana", "ana"]
    assert table["attempt"].tolist() == [None, 1, 2]
    assert np.isnan(table["score"][0])
    assert table["score"][1:].tolist() == [0.5, 1.0]
    assert list(table) == table.columns
    assert "operator" in table
    assert "nothing" not in table
    assert repr(table).startswith("EpisodeTable(3 episodes; columns: episode, id, frames")


def test_the_table_is_the_same_in_pandas_arrow_and_on_disk(lift, lift_path):
    pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    frame, table = lift.episodes.to_pandas(), lift.episodes.to_arrow()
    (file,) = (lift_path / "episodes").iterdir()
    on_disk = parquet.read_table(file)
    assert list(frame.columns) == table.column_names == on_disk.column_names
    assert table.to_pylist() == on_disk.to_pylist()
    assert table.schema.field("splits").type == arrow.list_(arrow.string())
    assert table.schema.field("attempt").type == arrow.int64()
    assert len(frame) == 3
    assert frame["frames"].tolist() == table["frames"].to_pylist()
    assert frame[frame["task"] == "lift the cube"]["frames"].sum() == 178
    assert frame["splits"].tolist() == table["splits"].to_pylist()


@pytest.mark.parametrize(("method", "module"), [("to_pandas", "pandas"), ("to_arrow", "pyarrow")])
def test_a_missing_optional_package_is_named_with_the_command(lift, monkeypatch, method, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ImportError, match=rf"{module} is not installed.*kinograph\[table\]"):
        getattr(lift.episodes, method)()


def test_old_versions_do_not_change(tmp_path):
    path = tmp_path / "d.kino"
    samples.write(path, [{"x": np.arange(5)}])
    first = kinograph.open(path)
    with kinograph.Writer(path, mode="append") as writer:
        writer.add_episode({"x": np.arange(9)}, rate_hz=20.0, id="more")
    newest = kinograph.open(path)
    assert (first.version, newest.version) == (1, 2)
    assert first.versions == newest.versions == [1, 2]
    assert (len(first), len(newest)) == (1, 2)
    assert first.id == kinograph.open(path, version=1).id != newest.id
    assert newest.stats["x"].frames == 14
    assert first.stats["x"].frames == 5


def test_paths_are_str_or_path_objects(lift_path):
    assert kinograph.open(str(lift_path)).id == kinograph.open(lift_path).id
    assert kinograph.open(lift_path).path == lift_path


def test_verify_finds_nothing_in_an_intact_dataset(lift_path):
    assert kinograph.verify(lift_path) == []
    assert kinograph.verify(str(lift_path), decode=True) == []
