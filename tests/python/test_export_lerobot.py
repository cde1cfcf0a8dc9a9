"""Exports to LeRobot, read with pyarrow and Pillow: the same values that LeRobot wrote into the packed recordings.

LeRobot itself reads them in ``crates/kino_import/tests/fixtures/lerobot/check_export.py``.
"""

import io
import json

import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
from test_import_lerobot import EXPECTED, FIXTURES, check_stream, fixture

import kinograph

VERSIONS = ["lerobot-v2.1", "lerobot-v3"]


def rows_of(root, episode):
    """Return the rows of an episode, as pyarrow reads them, and the schema of its file."""
    for path in sorted(root.glob("data/*/*.parquet")):
        table = pq.read_table(path)
        rows = [row for row in table.to_pylist() if row["episode_index"] == episode]
        if rows:
            return rows, table.schema
    raise AssertionError(f"no file has episode {episode}")


def frames_of(rows, name, expected):
    first = rows[0][name]
    if isinstance(first, dict):
        assert {row[name]["path"] for row in rows} == {None}
        files = [io.BytesIO(row[name]["bytes"]) for row in rows]
        return np.stack([np.asarray(PIL.Image.open(file)) for file in files])
    if isinstance(first, str):
        return [row[name] for row in rows]
    return np.array([row[name] for row in rows], expected["dtype"])


@pytest.mark.parametrize("to", VERSIONS)
@pytest.mark.parametrize("version", EXPECTED)
def test_pyarrow_reads_an_export_like_lerobots_own_file(version, to, tmp_path):
    kinograph.pack(FIXTURES / version, tmp_path / "d.kino")
    exported = kinograph.export(tmp_path / "d.kino", tmp_path / "out", to=to, cameras="images")
    assert not any(defect.lost for defect in exported.defects)
    info = json.loads((tmp_path / "out/meta/info.json").read_text("utf-8"))
    for number, expected in enumerate(EXPECTED[version]["episodes"]):
        rows, schema = rows_of(tmp_path / "out", number)
        names = sorted(info["features"])
        assert schema.names == names
        assert set(expected["streams"]) <= set(names)
        for name, stream in expected["streams"].items():
            check_stream(frames_of(rows, name, stream), stream, name)
        # Hugging Face's reader takes the types from the footer.
        types = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        assert sorted(types) == names
        theirs, schema = rows_of(FIXTURES / version, number)
        theirs = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        for name, described in theirs.items():
            if described["_type"] == "List":  # what newer versions call it
                described["_type"] = "Sequence"
            assert types[name] == described, name


def test_the_tables_of_v3_locate_episodes_and_list_tasks(tmp_path):
    kinograph.pack(FIXTURES / "v3.0", tmp_path / "d.kino")
    kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="lerobot-v3")

    def table(root, name):
        return pq.read_table(root / name).to_pylist()

    name = "meta/tasks.parquet"
    assert table(tmp_path / "out", name) == table(FIXTURES / "v3.0", name)
    name = "meta/episodes/chunk-000/file-000.parquet"
    ours, theirs = table(tmp_path / "out", name), table(FIXTURES / "v3.0", name)
    for mine, their in zip(ours, theirs, strict=True):
        for key in ("episode_index", "tasks", "length", "dataset_from_index", "dataset_to_index"):
            assert mine[key] == their[key], key
        assert mine["data/chunk_index"] == mine["data/file_index"] == 0
        assert np.allclose(mine["stats/action/mean"], their["stats/action/mean"], atol=1e-6)
        assert mine["stats/action/count"] == their["stats/action/count"]
        assert np.shape(mine["stats/observation.images.top/max"]) == (3, 1, 1)


def test_jpeg_files_are_exported_as_they_are(tmp_path):
    kinograph.pack(fixture("act_jpeg.hdf5"), tmp_path / "a.kino")
    kinograph.export(tmp_path / "a.kino", tmp_path / "out", to="lerobot-v3", on_defect="keep")
    (episode,) = kinograph.open(tmp_path / "a.kino")
    rows, schema = rows_of(tmp_path / "out", 0)
    cameras = [name for name in episode if episode[name].kind == "image"]
    assert cameras
    for name in cameras:
        column = "observation.images." + name.rsplit("/", 1)[1]
        for frame, row in enumerate(rows):
            assert row[column]["bytes"] == episode[name].bitstream(frame), name
    assert "observation.state" in schema.names
