"""Hostile LeRobot datasets: metadata that lies, parquet bombs, images and videos that are not what they claim."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import PACK, Case, add
from PIL import Image

ROWS = 10
KEEP = ((*PACK, "--on-defect", "keep"),)
#: Packed, refused, or packed with something skipped: any of these is fine as long as nothing breaks.
ANY = (0, 1, 3)


def info(**changes: Any) -> dict[str, Any]:
    """An `info.json` of v2.1."""
    return {
        "codebase_version": "v2.1",
        "robot_type": "toy",
        "total_episodes": 1,
        "total_frames": ROWS,
        "fps": 10,
        "chunks_size": 1000,
        "splits": {"train": "0:1"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {"action": {"dtype": "float32", "shape": [2], "names": None}},
        **changes,
    }


def columns(rows: int = ROWS) -> dict[str, Any]:
    """The columns of an episode."""
    return {
        "action": pa.array([[float(row), 0.5] for row in range(rows)], pa.list_(pa.float32())),
        "timestamp": pa.array([row / 10 for row in range(rows)], pa.float32()),
        "frame_index": pa.array(range(rows), pa.int64()),
        "episode_index": pa.array([0] * rows, pa.int64()),
        "index": pa.array(range(rows), pa.int64()),
        "task_index": pa.array([0] * rows, pa.int64()),
    }


def put(path: Path, content: bytes | str) -> Path:
    """Writes a file, and the folders around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(*objects: Any) -> str:
    """JSON, one object per line."""
    return "".join(json.dumps(found) + "\n" for found in objects)


def table(path: Path, of_columns: dict[str, Any], **options: Any) -> Path:
    """Writes a parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(of_columns), path, **options)
    return path


def toy(folder: Path) -> Path:
    """A valid v2.1 dataset with one episode."""
    root = folder / "toy"
    put(root / "meta/info.json", json.dumps(info()))
    put(root / "meta/episodes.jsonl", lines({"episode_index": 0, "tasks": ["go"], "length": ROWS}))
    put(root / "meta/tasks.jsonl", lines({"task_index": 0, "task": "go"}))
    put(root / "meta/episodes_stats.jsonl", lines({"episode_index": 0, "stats": {}}))
    table(root / DATA, columns())
    return root


DATA = "data/chunk-000/episode_000000.parquet"


def toy_v3(folder: Path, episodes: int = 3) -> Path:
    """A valid v3.0 dataset."""
    root = folder / "toy"
    paths = {
        "codebase_version": "v3.0",
        "total_episodes": episodes,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "splits": {"train": f"0:{episodes}"},
    }
    put(root / "meta/info.json", json.dumps(info(**paths)))
    table(root / "meta/tasks.parquet", {"task_index": [0], "task": ["go"]})
    table(root / "meta/episodes/chunk-000/file-000.parquet", of_episodes(episodes))
    rows = episodes * ROWS
    all_rows = columns(rows)
    all_rows["episode_index"] = pa.array(np.arange(rows) // ROWS, pa.int64())
    all_rows["frame_index"] = pa.array(np.arange(rows) % ROWS, pa.int64())
    all_rows["timestamp"] = pa.array((np.arange(rows) % ROWS / 10).astype("f4"))
    table(root / "data/chunk-000/file-000.parquet", all_rows)
    return root


def of_episodes(episodes: int) -> dict[str, Any]:
    """The rows of `meta/episodes`."""
    return {
        "episode_index": pa.array(range(episodes), pa.int64()),
        "tasks": [["go"]] * episodes,
        "length": [ROWS] * episodes,
        "data/chunk_index": pa.array([0] * episodes, pa.int64()),
        "data/file_index": pa.array([0] * episodes, pa.int64()),
    }


def hostile(  # noqa: PLR0913 (each is a separate keyword)
    change: Callable[[Path], object],
    name: str = "",
    *,
    base: Callable[[Path], Path] = toy,
    codes: tuple[int, ...] = (1,),
    commands: tuple[tuple[str, ...], ...] = (PACK,),
    says: str = "",
) -> None:
    """Registers a valid dataset that `change` makes hostile."""

    def build(folder: Path) -> Path:
        root = base(folder)
        change(root)
        return root

    name = name or change.__name__
    add(Case("lerobot", name, build, commands, codes, says))


def case(**options: Any) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    """Registers the decorated change."""

    def register(change: Callable[[Path], object]) -> Callable[[Path], object]:
        hostile(change, **options)
        return change

    return register


hostile(lambda root: None, "good_v2", codes=(0,))
hostile(lambda root: None, "good_v3", base=toy_v3, codes=(0,))


# What `info.json` claims.


def changed_info(name: str, codes: tuple[int, ...] = (1,), says: str = "", **changes: Any) -> None:
    """Registers a dataset with changes to `info.json`."""
    hostile(
        lambda root: put(root / "meta/info.json", json.dumps(info(**changes))),
        f"info_{name}",
        codes=codes,
        says=says,
    )


changed_info("fps_0", fps=0, says="fps")
changed_info("fps_negative", fps=-30, says="fps")
changed_info("fps_text", fps="30", says="fps")
changed_info("fps_huge", fps=1e300)
changed_info("fps_tiny", fps=1e-300)
changed_info("fps_nan", fps=float("nan"))
changed_info("chunks_size_0", chunks_size=0, codes=ANY)
changed_info("chunks_size_huge", chunks_size=1 << 63, codes=ANY)
changed_info("version_9", codebase_version="v9.0", says="codebase_version")
changed_info("version_list", codebase_version=[1], codes=ANY)
changed_info("data_path_up", data_path="../../{episode_index}.parquet", says="leads out")
changed_info("data_path_root", data_path="/etc/passwd", says="leads out")
changed_info("data_path_field", data_path="{__class__}/{episode_index}", says="unknown field")
changed_info("data_path_width", data_path="{episode_index:0999999999d}", says="pads")
changed_info("data_path_open", data_path="data/{episode_index", says="without")
changed_info("data_path_nul", data_path="data/\0/x.parquet")
changed_info("data_path_folder", data_path="data")
changed_info("splits_words", splits={"train": "all of them"})
changed_info("splits_huge", splits={"train": "0:99999999999999999999"})
changed_info("splits_many", splits={f"s{number}": "0:1" for number in range(20_000)}, codes=ANY)
changed_info(
    "total_huge", total_episodes=1 << 62, codes=(0,), says="says 4611686018427387904 episodes"
)
changed_info("features_list", features=[1, 2], codes=ANY)
changed_info("features_missing", features={"ghost": {"dtype": "float32", "shape": [1]}})
changed_info(
    "features_many",
    features={f"f{number}": {"dtype": "video"} for number in range(5000)},
)
changed_info("feature_up", features={"../../../../etc": {"dtype": "video", "shape": [1, 1, 3]}})
changed_info("escape_name", features={"\x1b]0;x\x07": {"dtype": "float32", "shape": [1]}})


def written_info(
    name: str, text: str | bytes, codes: tuple[int, ...] = (1,), says: str = ""
) -> None:
    """Registers a dataset with another text as its `info.json`."""
    hostile(
        lambda root: put(root / "meta/info.json", text),
        f"info_{name}",
        codes=codes,
        says=says,
    )


written_info("empty", "")
written_info("list", "[]")
written_info("bytes", bytes(range(256)))
written_info("cut", json.dumps(info())[:200])
written_info("deep", '{"a":' * 200_000 + "1" + "}" * 200_000)
written_info("deep_list", "[" * 1_000_000)
written_info("digits", '{"fps": ' + "9" * 1_000_000 + "}")
written_info("lance", json.dumps(info(storage_format="lance")), says="lance")


@case(says="more values")
def info_numbers(root: Path) -> None:
    """Parsed numbers take seventy times the memory of their text."""
    put(root / "meta/info.json", '{"fps": 10, "a": [' + "0," * 4_000_000 + "0]}")


@case(says="more values")
def info_objects(root: Path) -> None:
    """Parsed objects take even more."""
    put(root / "meta/info.json", '{"fps": 10, "a": [' + '{"":0},' * 1_000_000 + "0]}")


@case(says="is longer than")
def info_long(root: Path) -> None:
    """Sparse, so that it costs nothing to send."""
    with (root / "meta/info.json").open("r+b") as file:
        file.truncate(1 << 29)


@case(codes=ANY)
def stats_numbers(root: Path) -> None:
    """Next to `info.json`."""
    put(root / "meta/stats.json", '{"a": [' + "0," * 4_000_000 + "0]}")


@case(codes=ANY)
def modality_deep(root: Path) -> None:
    """Next to `info.json`."""
    put(root / "meta/modality.json", '{"a":' * 100_000)


# Lists of episodes and tasks.


@case()
def episodes_million(root: Path) -> None:
    """A million episodes without data."""
    rows = (f'{{"episode_index":{n},"tasks":["go"]}}' for n in range(1_000_000))
    put(root / "meta/episodes.jsonl", "\n".join(rows))


@case(says="more values")
def episodes_say_much(root: Path) -> None:
    """All metadata of an episode is kept."""
    row = '{"episode_index": %d, "x": [' + "0," * 2000 + "0]}\n"
    put(root / "meta/episodes.jsonl", "".join(row % number for number in range(3000)))


@case()
def episodes_same(root: Path) -> None:
    """One episode repeated very often."""
    put(root / "meta/episodes.jsonl", '{"episode_index": 0}\n' * 300_000)


@case()
def episodes_no_json(root: Path) -> None:
    """Lines that are not JSON."""
    put(root / "meta/episodes.jsonl", "x\n" * 500_000)


@case()
def episodes_one_line(root: Path) -> None:
    """An endless line."""
    put(root / "meta/episodes.jsonl", '{"episode_index": 0, "tasks": ["' + "x" * 15_000_000)


@case()
def episodes_index_huge(root: Path) -> None:
    """An index without a file."""
    put(root / "meta/episodes.jsonl", lines({"episode_index": (1 << 64) - 1}))


@case()
def episodes_index_odd(root: Path) -> None:
    """Values that are not indices."""
    rows = [{"episode_index": odd} for odd in (-1, 1.5, "0", None, [], {}, 1 << 70)]
    put(root / "meta/episodes.jsonl", lines(*rows))


@case(codes=ANY)
def episodes_length_huge(root: Path) -> None:
    """More frames than exist."""
    put(root / "meta/episodes.jsonl", lines({"episode_index": 0, "length": 1 << 63}))


@case(codes=ANY)
def episodes_missing(root: Path) -> None:
    """No list at all."""
    (root / "meta/episodes.jsonl").unlink()


@case(codes=ANY)
def task_long(root: Path) -> None:
    """A task of 900 kB."""
    put(root / "meta/tasks.jsonl", lines({"task_index": 0, "task": "x" * 900_000}))


@case(codes=ANY)
def task_escape(root: Path) -> None:
    """A task that sends escape codes to the terminal."""
    put(root / "meta/tasks.jsonl", lines({"task_index": 0, "task": "\x1b[31m\x1b]0;x\x07"}))


@case(codes=ANY)
def task_long_and_changing(root: Path) -> None:
    """A long task in every second frame becomes a text per frame."""
    tasks = [{"task_index": n, "task": f"{n}" + "x" * 200_000} for n in range(2)]
    put(root / "meta/tasks.jsonl", lines(*tasks))
    rows = 20_000
    found = columns(rows)
    found["task_index"] = pa.array(np.arange(rows) % 2, pa.int64())
    table(root / DATA, found)


@case(codes=ANY)
def tasks_many(root: Path) -> None:
    """Many unused tasks."""
    rows = (f'{{"task_index": {n}, "task": "t{n}"}}' for n in range(200_000))
    put(root / "meta/tasks.jsonl", "\n".join(rows))


@case(codes=ANY)
def episode_stats_dense(root: Path) -> None:
    """Statistics made of small objects."""
    row = '{"episode_index": 0, "stats": [' + '{"":0},' * 100_000 + "0]}\n"
    put(root / "meta/episodes_stats.jsonl", row * 10)


# Tables.


@case(commands=KEEP, codes=(1, 3))
def text_dictionary_bomb(root: Path) -> None:
    """One text of 100 kB in a dictionary, 40,000 rows."""
    found = columns(40_000)
    text = pa.array(["x" * 100_000])
    found["note"] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(40_000, "i4")), text)
    table(root / DATA, found)


@case(commands=KEEP, codes=(1, 3))
def text_dictionary_bomb_million(root: Path) -> None:
    """One text of 100 kB in a dictionary, a million rows."""
    rows = 1_000_000
    text = pa.array(["x" * 100_000])
    note = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, "i4")), text)
    table(root / DATA, {"note": note})


@case(commands=KEEP, codes=(1, 3))
def binary_dictionary_bomb(root: Path) -> None:
    """An image file of 1 MB, referenced 100,000 times."""
    rows = 100_000
    file = pa.array([b"\xff\xd8\xff" + bytes(1_000_000) + b"\xff\xd9"])
    indices = pa.array(np.zeros(rows, "i4"))
    found = columns(rows)
    found["cam"] = pa.DictionaryArray.from_arrays(indices, file)
    table(root / DATA, found)


@case(codes=ANY)
def text_of_10_mb(root: Path) -> None:
    """Long texts that are really stored."""
    found = columns()
    found["note"] = ["x" * 10_000_000] + ["y"] * (ROWS - 1)
    table(root / DATA, found, compression="zstd")


def bomb(codec: str) -> None:
    """Registers a page of 1 GB of zeros."""

    def change(root: Path) -> None:
        found = columns()
        zeros = np.zeros(1_000_000 * ROWS)
        offsets = pa.array(np.arange(ROWS + 1) * 1_000_000, pa.int32())
        found["wide"] = pa.ListArray.from_arrays(offsets, zeros)
        table(root / DATA, found, compression=codec, use_dictionary=False, data_page_size=1 << 30)

    hostile(change, f"page_{codec}_bomb", commands=KEEP, codes=(1, 3))


for name in ("zstd", "snappy", "gzip"):
    bomb(name)


def rewritten(root: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes of the table."""
    file = (root / DATA).read_bytes()
    assert old in file
    put(root / DATA, file.replace(old, new))


@case(commands=KEEP, codes=(1, 3))
def gzip_page_longer_than_it_states(root: Path) -> None:
    """The crate unpacks gzip to its end."""
    table(
        root / DATA,
        {"note": pa.array(["y" * 3000 for _ in range(ROWS)])},
        compression="gzip",
        use_dictionary=False,
    )
    file = (root / DATA).read_bytes()
    start = file.index(b"\x1f\x8b")
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packed.compress(bytes(1 << 28)) + packed.flush()
    # The pages of the file end where they did before: bytes after them are not read.
    put(root / DATA, file[:start] + body[: max(0, len(file) - start - 800)] + file[-800:])


@case()
def parquet_empty(root: Path) -> None:
    """An empty file."""
    put(root / DATA, b"")


@case()
def parquet_magic(root: Path) -> None:
    """Only the magic bytes."""
    put(root / DATA, b"PAR1" * 3)


@case()
def parquet_footer_huge(root: Path) -> None:
    """A footer longer than the file."""
    put(root / DATA, b"PAR1" + bytes(100) + struct.pack("<I", 0xFFFFFFF0) + b"PAR1")


@case()
def parquet_footer_noise(root: Path) -> None:
    """A footer of noise."""
    noise = np.random.default_rng(0).bytes(100_000)
    put(root / DATA, b"PAR1" + noise + struct.pack("<I", len(noise)) + b"PAR1")


@case()
def parquet_cut(root: Path) -> None:
    """A truncated file."""
    file = (root / DATA).read_bytes()
    put(root / DATA, file[: len(file) // 2])


@case(codes=ANY)
def parquet_flips(root: Path) -> None:
    """Every hundredth byte is changed."""
    file = bytearray((root / DATA).read_bytes())
    for at in range(4, len(file) - 8, 100):
        file[at] ^= 0x55
    put(root / DATA, bytes(file))


@case(codes=ANY)
def parquet_no_rows(root: Path) -> None:
    """An episode without rows."""
    table(root / DATA, {name: found.slice(0, 0) for name, found in columns().items()})


@case(codes=ANY)
def parquet_no_columns(root: Path) -> None:
    """A table without columns."""
    table(root / DATA, {})


@case(codes=ANY)
def parquet_many_columns(root: Path) -> None:
    """3,000 columns."""
    table(root / DATA, {f"c{number}": [0.5] * ROWS for number in range(3000)})


@case(codes=ANY)
def parquet_many_groups(root: Path) -> None:
    """A row group per row."""
    table(root / DATA, columns(3000), row_group_size=1)


@case(codes=ANY)
def parquet_long_names(root: Path) -> None:
    """Names that are not allowed for streams."""
    found = columns()
    for name in ("x" * 300, "a/../b", "..", "", "a\nb", "a\x1b[31mb", "\u202etxt", "a//b"):
        found[name] = [0.5] * ROWS
    table(root / DATA, found)


@case(codes=ANY)
def parquet_same_names(root: Path) -> None:
    """Two columns with the same name."""
    root.joinpath("data/chunk-000").mkdir(parents=True, exist_ok=True)
    found = pa.table([pa.array([0.5] * ROWS)] * 2, names=["a", "a"])
    pq.write_table(found, root / DATA)


@case(commands=KEEP, codes=ANY)
def parquet_ragged(root: Path) -> None:
    """Rows of different lengths."""
    found = columns()
    found["ragged"] = [[0.5] * row for row in range(ROWS)]
    table(root / DATA, found)


@case(commands=KEEP, codes=ANY)
def parquet_ragged_inside(root: Path) -> None:
    """Rows of one length but different shapes."""
    found = columns()
    found["shapes"] = [[[1.0, 2.0], [3.0, 4.0]], [[1.0], [2.0, 3.0, 4.0]]] * (ROWS // 2)
    table(root / DATA, found)


@case(commands=KEEP, codes=ANY)
def parquet_nulls(root: Path) -> None:
    """Nulls everywhere."""
    found = columns()
    found["null"] = pa.array([None] * ROWS)
    found["number"] = pa.array([None, 1.0] * (ROWS // 2))
    found["text"] = pa.array([None, "x"] * (ROWS // 2))
    found["list"] = pa.array([None, [1.0]] * (ROWS // 2))
    table(root / DATA, found)


@case(codes=ANY)
def parquet_deep_lists(root: Path) -> None:
    """Lists in lists, 40 deep."""
    value: Any = 0.5
    kind = pa.float64()
    for _ in range(40):
        value, kind = [value], pa.list_(kind)
    table(root / DATA, {**columns(), "deep": pa.array([value] * ROWS, kind)})


@case(codes=ANY)
def parquet_odd_types(root: Path) -> None:
    """Types that frames cannot have."""
    found = columns()
    found["struct"] = [{"a": 1, "b": [{"c": "x"}]}] * ROWS
    found["map"] = pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64()))
    found["decimal"] = pa.array([1] * ROWS, pa.decimal128(38, 2))
    found["time"] = pa.array([1] * ROWS, pa.timestamp("ns"))
    found["bytes"] = pa.array([b"\xff\xfe"] * ROWS)
    table(root / DATA, found)


@case(commands=KEEP, codes=ANY)
def parquet_json_list_bomb(root: Path) -> None:
    """A list of a million texts in one row, from a dictionary with one entry."""
    text = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(1_000_000, "i4")), pa.array(["x" * 10_000])
    )
    offsets = pa.array([0] * ROWS + [1_000_000], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, text)
    table(root / DATA, {**columns(), "events": lists})


@case(commands=KEEP, codes=ANY)
def parquet_wide_rows(root: Path) -> None:
    """A frame of 40 MB of zeros."""
    wide = pa.array(np.zeros(10_000_000, "f4"))
    offsets = pa.array([0, 10_000_000], pa.int32())
    found = {name: column.slice(0, 1) for name, column in columns().items()}
    table(root / DATA, {**found, "wide": pa.ListArray.from_arrays(offsets, wide)})


@case(codes=ANY)
def parquet_delta(root: Path) -> None:
    """Encodings whose decoders trust what they read."""
    options = {"use_dictionary": False, "column_encoding": {"index": "DELTA_BINARY_PACKED"}}
    table(root / DATA, columns(), **options)


@case(codes=ANY)
def parquet_not_utf8(root: Path) -> None:
    """Text that is not UTF-8."""
    note = pa.array([b"\xff\xfe"] * ROWS).view(pa.string())
    table(root / DATA, {**columns(), "note": note})


# v3.0.


@case(base=toy_v3, codes=ANY)
def v3_episodes_alternate(root: Path) -> None:
    """Two episodes that alternate row by row."""
    rows = 300_000
    found = columns(rows)
    found["episode_index"] = pa.array(np.arange(rows) % 2, pa.int64())
    table(root / "data/chunk-000/file-000.parquet", found)


@case(base=toy_v3, codes=ANY)
def v3_file_index_huge(root: Path) -> None:
    """Missing files; those that exist state which episodes they hold."""
    rows = of_episodes(3) | {"data/file_index": pa.array([1 << 60] * 3, pa.int64())}
    table(root / "meta/episodes/chunk-000/file-000.parquet", rows)


@case(base=toy_v3, codes=ANY)
def v3_stats_list_bomb(root: Path) -> None:
    """Statistics of a million numbers in one row."""
    zeros = pa.array(np.zeros(1_000_000))
    offsets = pa.array([0, 0, 0, 1_000_000], pa.int32())
    rows = of_episodes(3) | {"stats/action/min": pa.ListArray.from_arrays(offsets, zeros)}
    table(root / "meta/episodes/chunk-000/file-000.parquet", rows)


@case(base=toy_v3, codes=ANY)
def v3_text_bomb(root: Path) -> None:
    """A text of 1 MB for each of 20,000 episodes, from a dictionary."""
    count = 20_000
    note = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, "i4")), pa.array(["x" * 1_000_000])
    )
    rows = of_episodes(count) | {"note": note}
    table(root / "meta/episodes/chunk-000/file-000.parquet", rows)


@case(base=toy_v3, codes=ANY)
def v3_episodes_missing(root: Path) -> None:
    """An empty folder."""
    (root / "meta/episodes/chunk-000/file-000.parquet").unlink()


@case(base=toy_v3, codes=ANY)
def v3_tasks_noise(root: Path) -> None:
    """A task list of noise."""
    put(root / "meta/tasks.parquet", np.random.default_rng(0).bytes(5000))


def good_v3_many(folder: Path) -> Path:
    """A valid dataset of 4,000 episodes: some end where a page of the table does."""
    return toy_v3(folder, 4_000)


add(Case("lerobot", "good_v3_of_4000_episodes", good_v3_many, ((*PACK, "--dry-run"),), (0,)))


# Images in tables.


def png(width: int, height: int, mode: str = "RGB") -> bytes:
    """A PNG file of a single color, which is very small."""
    kind, bytes_per_pixel = {"RGB": (2, 3), "L": (0, 1)}[mode]
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    packed = zlib.compressobj(9)
    row = bytes(1 + width * bytes_per_pixel)
    parts = [packed.compress(row) for _ in range(height)]
    body = b"".join(parts) + packed.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def chunk(name: bytes, body: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def small(kind: str, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> bytes:
    """A small image file."""
    out = io.BytesIO()
    Image.new(mode, size).save(out, kind)
    return out.getvalue()


def images(name: str, make: Callable[[], list[Any]], codes: tuple[int, ...] = (1, 3)) -> None:
    """Registers a dataset whose camera holds these files."""

    def change(root: Path) -> None:
        files = make()
        found = columns(len(files))
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        rows = [file if isinstance(file, dict) else {"bytes": file, "path": None} for file in files]
        found["cam"] = pa.array(rows, kind)
        table(root / DATA, found)
        feature = {"cam": {"dtype": "image", "shape": [8, 8, 3], "names": None}}
        put(root / "meta/info.json", json.dumps(info(features=feature)))

    hostile(change, f"image_{name}", codes=codes, commands=KEEP)


images("good_png", lambda: [small("PNG")] * ROWS, codes=(0,))
images("good_jpeg", lambda: [small("JPEG")] * ROWS, codes=(0,))
images("png_16000", lambda: [png(16_000, 16_000, "L")] * 2)
images("png_20000_rgb", lambda: [png(20_000, 3000)] * 2)
images("png_3200", lambda: [png(3200, 3200)] * 4, codes=ANY)
images("png_65535_tall", lambda: [png(1, 65_535, "L")] * ROWS, codes=ANY)
images("png_two_sizes", lambda: [small("PNG"), small("PNG", (9, 8))] * 5)
images("png_two_modes", lambda: [small("PNG"), small("PNG", mode="L")] * 5)
images("png_and_jpeg", lambda: [small("PNG"), small("JPEG")] * 5)
images("png_cut", lambda: [small("PNG")] * 9 + [small("PNG")[:-20]])
images("png_noise", lambda: [small("PNG")] * 9 + [small("PNG")[:40] + bytes(100)])
images("png_no_size", lambda: [small("PNG")[:16] + bytes(8) + small("PNG")[24:]] * ROWS)
images("jpeg_cut", lambda: [small("JPEG")] * 9 + [small("JPEG")[:-30]])
images("jpeg_padded", lambda: [small("JPEG") + bytes(1_000_000)] * ROWS, codes=ANY)
images("null", lambda: [small("PNG")] * 9 + [{"bytes": None, "path": None}])
images("path_up", lambda: [{"bytes": None, "path": "../../../../etc/passwd"}] * ROWS)
images("path_missing", lambda: [{"bytes": None, "path": "images/none.png"}] * ROWS)
images("text", lambda: [b"no image"] * ROWS)


# Videos.


def video(
    path: Path, codec: str = "libx264", frames: int = ROWS, size: tuple[int, int] = (64, 48)
) -> bytes:
    """Writes a video of noise, and returns its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for _ in range(frames):
            shot = noise.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shot, format="rgb24")))
        container.mux(stream.encode(None))
    return path.read_bytes()


VIDEO = "videos/chunk-000/cam/episode_000000.mp4"


def videos(name: str, make: Callable[[Path], object], codes: tuple[int, ...] = (1, 3)) -> None:
    """Registers a dataset with a video that `make` writes at a path."""

    def change(root: Path) -> None:
        (root / VIDEO).parent.mkdir(parents=True)
        make(root / VIDEO)
        feature = {"cam": {"dtype": "video", "shape": [48, 64, 3], "names": None}}
        put(root / "meta/info.json", json.dumps(info(features=feature)))

    hostile(change, f"video_{name}", codes=codes, commands=KEEP)


def flipped(path: Path) -> None:
    """A bit in the middle of every packet."""
    file = bytearray(video(path))
    with av.open(str(path)) as container:
        spans = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    for start, size in spans:
        file[start + size // 2] ^= 0x10
    path.write_bytes(file)


videos("good", video, codes=(0,))
videos("short", lambda path: video(path, frames=3))
videos("long", lambda path: video(path, frames=30))
videos("cut", lambda path: put(path, video(path)[:-5000]))
videos("empty", lambda path: put(path, b""))
videos("noise", lambda path: put(path, np.random.default_rng(0).bytes(50_000)))
videos("flipped", flipped)
videos("is_png", lambda path: put(path, small("PNG")))
videos("playlist", lambda path: put(path, "#EXTM3U\n#EXTINF:1,\n/etc/passwd\n"))
videos("concat", lambda path: put(path, "ffconcat version 1.0\nfile '/etc/passwd'\n"))
videos("of_8000", lambda path: video(path, "mpeg4", 2, (8000, 4000)))
