"""Sources that are good but odd: values as independent readers give them, and one bad thing that costs only itself."""

import csv
import io
import json
import random
import struct
import tarfile
import zlib

import numpy as np
import pytest
from mcap.writer import Writer
from PIL import Image

import kinograph


def write_csv(path, names, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def read_csv(path):
    """The columns of a table, as Python's csv module reads them."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names, *rows = list(csv.reader(file))
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def pack_one(source, target, **options):
    packed = kinograph.pack(source, target, rate_hz=10.0, **options)
    (episode,) = kinograph.open(target)
    return packed, episode


CELLS = {
    "whole": lambda at: str(at - 5),
    "stamp_ns": lambda at: str(1_700_000_000_123_456_789 + at),
    "unsigned": lambda at: str(2**64 - 1 - at),
    "float": lambda at: repr(0.1 * at),
    "exponent": lambda at: f"{at}.5E-3",
    "infinite": lambda at: ["inf", "-inf"][at % 2],
    "truth": lambda at: ["true", "False"][at % 2],
    "zeros": lambda at: f"{at:05d}",
    "text": lambda at: ['a, "b"', "c\nd", "", "é"][at % 4],
}
TYPES = {
    "whole": np.int64,
    "stamp_ns": np.int64,
    "unsigned": np.uint64,
    "float": np.float64,
    "exponent": np.float64,
    "infinite": np.float64,
    "truth": np.bool_,
}


@pytest.mark.parametrize("rows", [1, 9, 5000])
def test_every_kind_of_column_is_what_the_csv_module_reads(rows, tmp_path):
    path = tmp_path / "take.csv"
    write_csv(path, CELLS, [[cell(at) for cell in CELLS.values()] for at in range(rows)])
    packed, episode = pack_one(path, tmp_path / "d.kino")
    for name, cells in read_csv(path).items():
        found = episode[name][:]
        if name in TYPES:
            convert = {"truth": lambda cell: cell.lower() == "true"}.get(name, TYPES[name])
            assert found.dtype == TYPES[name], name
            assert found.tolist() == [
                convert(cell).item() if name in {"float", "exponent"} else convert(cell)
                for cell in cells
            ], name
        else:
            assert list(found) == cells, name
    notes = [defect for defect in packed.defects if "leading zeros" in defect.what]
    assert [(note.place, note.action) for note in notes] == [("take.csv:/zeros", "note")]


def test_columns_of_many_groups_are_what_the_csv_module_reads(tmp_path):
    # More than fits into one group of columns, so that the file is gone through several times.
    rows, width = 600_000, 9
    columns = [np.arange(rows) * (at + 1) for at in range(width)]
    path = tmp_path / "take.csv"
    lines = "\n".join(
        map(",".join, zip(*(map(str, column.tolist()) for column in columns), strict=True))
    )
    path.write_text(",".join(f"c{at}" for at in range(width)) + "\n" + lines + "\n")
    _, episode = pack_one(path, tmp_path / "d.kino")
    for at, column in enumerate(columns):
        assert np.array_equal(episode[f"c{at}"][:], column)


def test_the_index_that_pandas_writes_has_a_name(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [0.5, 1.5], "index": [7, 8]})
    frame.to_csv(tmp_path / "take.csv")
    packed, episode = pack_one(tmp_path / "take.csv", tmp_path / "d.kino")
    assert sorted(episode.streams) == ["index", "index.1", "x"]
    assert episode["index"][:].tolist() == [7, 8]
    assert episode["index.1"][:].tolist() == [0, 1]
    assert [defect.action for defect in packed.defects] == ["note"]


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (["1700000000123456789", "", "1700000000123456791"], "no value on line 3"),
        (["1", "", "3"], "without a value on line 3"),
        (["-1", "9223372036854775808", "0"], "line 2"),
        (["1", "2", "18446744073709551616"], "line 4"),
        (["1700000000123456789", "0.5", "1"], "fraction on line 3"),
        (["0.5", "1e999", "2"], "line 3"),
    ],
)
def test_a_number_that_would_change_is_a_defect_with_its_line(cells, line, tmp_path):
    write_csv(tmp_path / "take.csv", ["n", "x"], [[at, cell] for at, cell in enumerate(cells)])
    with pytest.raises(kinograph.CorruptDataError, match=line):
        pack_one(tmp_path / "take.csv", tmp_path / "d.kino")
    assert not (tmp_path / "d.kino").exists()
    packed, episode = pack_one(tmp_path / "take.csv", tmp_path / "d.kino", on_defect="keep")
    (defect, *_) = [defect for defect in packed.defects if line in defect.what]
    if defect.action == "lost":
        assert list(episode.streams) == ["n"]
    else:
        wanted = [float(cell) if cell else np.nan for cell in cells]
        assert np.array_equal(episode["x"][:], wanted, equal_nan=True)


def test_names_that_a_dataset_refuses_are_replaced_and_listed(tmp_path):
    write_csv(tmp_path / "take.csv", ["obs/..", "a\\b", "_"], [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(kinograph.CorruptDataError, match=r"obs/\.\.") as error:
        pack_one(tmp_path / "take.csv", tmp_path / "d.kino")
    assert "a\\" in str(error.value), "all are listed, not the first"
    assert not (tmp_path / "d.kino").exists()
    packed, episode = pack_one(tmp_path / "take.csv", tmp_path / "d.kino", on_defect="keep")
    assert {name: episode[name][:].tolist() for name in episode.streams} == {
        "obs/_": [1, 4],
        "a_b": [2, 5],
        "_": [3, 6],
    }
    assert {defect.action for defect in packed.defects} == {"kept"}


def test_one_episode_of_another_type_costs_that_stream_of_it(tmp_path):
    source = tmp_path / "takes"
    source.mkdir()
    for at in range(4):
        write_csv(source / f"take_{at}.csv", ["x", "y"], [[at, "text" if at == 2 else 0.5]] * 3)
    with pytest.raises(kinograph.CorruptDataError, match="in 3 other episodes"):
        kinograph.pack(source, tmp_path / "d.kino", rate_hz=10.0)
    packed = kinograph.pack(source, tmp_path / "d.kino", rate_hz=10.0, on_defect="keep")
    assert packed.episodes == 4
    streams = {
        episode.id: sorted(episode.streams) for episode in kinograph.open(tmp_path / "d.kino")
    }
    assert streams == {f"take_{at}": ["x"] if at == 2 else ["x", "y"] for at in range(4)}
    packed = kinograph.pack(source, tmp_path / "e.kino", rate_hz=10.0, on_defect="drop-episode")
    assert [episode.id for episode in kinograph.open(tmp_path / "e.kino")] == [
        "take_0",
        "take_1",
        "take_3",
    ]


def png(width, height):
    file = io.BytesIO()
    Image.new("L", (width, height), 70).save(file, "PNG")
    return file.getvalue()


def test_a_broken_image_stops_the_pack_with_its_episode_or_costs_the_episode(tmp_path):
    for at in range(3):
        camera = tmp_path / "takes" / f"take_{at}" / "front"
        camera.mkdir(parents=True)
        for frame in range(3):
            body = png(8, 6)
            (camera / f"{frame}.png").write_bytes(body[:-20] if (at, frame) == (1, 1) else body)
    with pytest.raises(kinograph.CorruptDataError, match=r"episode `take_1`.*1\.png"):
        kinograph.pack(tmp_path / "takes", tmp_path / "d.kino", rate_hz=10.0)
    assert not (tmp_path / "d.kino").exists(), "nothing is left to resume"
    for on_defect in ("keep", "drop-episode"):
        target = tmp_path / f"{on_defect}.kino"
        packed = kinograph.pack(tmp_path / "takes", target, rate_hz=10.0, on_defect=on_defect)
        assert [episode.id for episode in kinograph.open(target)] == ["take_0", "take_2"]
        assert [(defect.episode, defect.action) for defect in packed.defects] == [
            ("take_1", "dropped")
        ]


def webdataset(path, broken):
    jpeg = io.BytesIO()
    Image.new("RGB", (16, 16), (9, 9, 9)).save(jpeg, "JPEG")
    good = jpeg.getvalue()
    with tarfile.open(path, "w") as archive:
        for episode in range(3):
            for step in range(3):
                # The header is sound: only the codec that decodes the image sees that it is cut short.
                body = good[: len(good) // 2] if (episode, step) in broken else good
                info = tarfile.TarInfo(f"ep{episode}_t{step}.front.jpg")
                info.size = len(body)
                archive.addfile(info, io.BytesIO(body))


def test_what_a_codec_refuses_costs_its_episode_and_no_other(tmp_path):
    webdataset(tmp_path / "shard.tar", {(1, 1)})
    with pytest.raises(kinograph.KinographError):
        kinograph.pack(tmp_path / "shard.tar", tmp_path / "d.kino", rate_hz=10.0)
    packed = kinograph.pack(
        tmp_path / "shard.tar", tmp_path / "e.kino", rate_hz=10.0, on_defect="keep"
    )
    assert [episode.id for episode in kinograph.open(tmp_path / "e.kino")] == ["ep0", "ep2"]
    assert [defect.episode for defect in packed.defects] == ["ep1"]


def test_when_nothing_is_left_it_says_why_for_every_episode(tmp_path):
    webdataset(tmp_path / "shard.tar", {(0, 0), (1, 1), (2, 2)})
    with pytest.raises(kinograph.CorruptDataError, match="no episode can be imported") as error:
        kinograph.pack(tmp_path / "shard.tar", tmp_path / "d.kino", rate_hz=10.0, on_defect="keep")
    assert "3 defects in 3 episodes" in str(error.value)
    assert str(error.value).count("\n  ") == 3
    assert not (tmp_path / "d.kino").exists()


@pytest.mark.parametrize("seed", range(8))
def test_arrays_are_what_numpy_reads(seed, tmp_path):
    draw = random.Random(seed)
    kinds = ["<f4", ">f8", "<i2", ">u4", "|u1", "|b1", "<f2", "<i8"]
    arrays = {}
    for at in range(5):
        shape = (7, *(draw.randint(1, 4) for _ in range(draw.randint(0, 3))))
        values = (
            np.random.default_rng(seed * 10 + at).integers(0, 2, shape).astype(draw.choice(kinds))
        )
        arrays[f"a{at}"] = np.asfortranarray(values) if draw.random() < 0.5 else values
    save = np.savez_compressed if seed % 2 else np.savez
    save(tmp_path / "take.npz", **arrays)
    _, episode = pack_one(tmp_path / "take.npz", tmp_path / "d.kino", on_defect="keep")
    with np.load(tmp_path / "take.npz") as loaded:
        for name in loaded.files:
            assert np.array_equal(episode[name][:], loaded[name]), name
            assert episode[name].dtype == loaded[name].dtype.newbyteorder("="), name


def test_a_zarr_of_fortran_order_and_the_other_byte_order_is_what_numpy_wrote(tmp_path):
    root = tmp_path / "replay.zarr"
    values = np.random.default_rng(3).normal(size=(10, 3, 2))
    about = {
        "zarr_format": 2,
        "compressor": {"id": "zlib", "level": 1},
        "fill_value": 0,
        "filters": None,
    }

    def array(name, array, chunks, order):
        (root / name).mkdir(parents=True)
        said = about | {
            "shape": array.shape,
            "chunks": chunks,
            "dtype": array.dtype.str,
            "order": order,
        }
        (root / name / ".zarray").write_text(json.dumps(said))
        for at in range(0, len(array), chunks[0]):
            piece = np.zeros(chunks, dtype=array.dtype)
            piece[: len(array[at : at + chunks[0]])] = array[at : at + chunks[0]]
            key = ".".join([str(at // chunks[0]), *["0"] * (array.ndim - 1)])
            (root / name / key).write_bytes(zlib.compress(piece.tobytes(order)))

    array("data/x", values.astype(">f8"), (4, 3, 2), "F")
    array("meta/episode_ends", np.array([4, 10], dtype="<i8"), (2,), "C")
    for group in ("", "data", "meta"):
        (root / group / ".zgroup").write_text('{"zarr_format": 2}')
    kinograph.pack(root, tmp_path / "d.kino", rate_hz=10.0)
    found = [episode["x"][:] for episode in kinograph.open(tmp_path / "d.kino")]
    assert np.array_equal(np.concatenate(found), values)
    assert [len(part) for part in found] == [4, 6]


def test_attributes_over_a_mebibyte_are_skipped_and_listed(tmp_path):
    path = tmp_path / "take.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema = writer.register_schema("Point", "jsonschema", b'{"type": "object"}')
        big = {"calibration": "x" * (2 << 20), "camera": "left"}
        channel = writer.register_channel("/arm", "json", schema, big)
        for step in range(3):
            writer.add_message(
                channel, step * 10**8, json.dumps({"x": step}).encode(), step * 10**8
            )
        writer.finish()
    with pytest.raises(kinograph.CorruptDataError, match="calibration"):
        kinograph.pack(path, tmp_path / "d.kino")
    packed = kinograph.pack(path, tmp_path / "d.kino", on_defect="keep")
    (episode,) = kinograph.open(tmp_path / "d.kino")
    assert episode["arm/x"][:].tolist() == [0, 1, 2]
    assert any(
        defect.action == "lost" and "calibration" in defect.what for defect in packed.defects
    )


def test_an_array_that_is_cut_short_costs_its_episode(tmp_path):
    bodies = [struct.pack("<3f", *([at] * 3)) for at in range(3)]
    source = tmp_path / "takes"
    source.mkdir()
    for at, body in enumerate(bodies):
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }\n"
        file = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body
        folder = source / f"take_{at}"
        folder.mkdir()
        (folder / "x.npy").write_bytes(file[:-4] if at == 1 else file)
    packed = kinograph.pack(source, tmp_path / "d.kino", rate_hz=10.0, on_defect="keep")
    found = {
        episode.id: episode["x"][:].tolist() for episode in kinograph.open(tmp_path / "d.kino")
    }
    assert found == {"take_0": [[0.0] * 3], "take_2": [[2.0] * 3]}
    assert any(defect.episode == "take_1" for defect in packed.defects)
