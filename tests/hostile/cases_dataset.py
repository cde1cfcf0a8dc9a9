"""Datasets that lie: correct hashes everywhere, and one thing that is not true.

`info` and `cat` may believe a lie or refuse it, but must not crash, hang or use memory because of it. `verify --decode` must
find it. A program that trains on it must get the episodes' own frames or a `KinographError`, never other data.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import forge
import harness
import pyarrow as pa
from forge import Forge

READ = (
    ("info", "{src}", "--episodes"),
    ("cat", "{src}", "ep1", "joints"),
)
VERIFY = ("verify", "{src}", "--decode")
#: Many lies are found without decoding a frame.
VERIFY_BYTES = ("verify", "{src}")
PROGRAM = str(Path(__file__).with_name("use_dataset.py"))

Lie = Callable[[Forge], object]


def add(name: str, lie: Lie, *, codes: tuple[int, ...] = (1,), says: str = "") -> None:
    """A case that the commands read and verify."""
    verify = VERIFY if name.endswith("_decoded") else VERIFY_BYTES
    harness.add(harness.Case("dataset", name, forged(lie), (*READ, verify), codes, says))


def use(name: str, way: str, lie: Lie, *, codes: tuple[int, ...] = (1,), says: str = "") -> None:
    """A case that a program uses."""
    commands = (("python", PROGRAM, way, "{src}"),)
    harness.add(harness.Case("dataset", f"{way}_{name}", forged(lie), commands, codes, says))


def forged(lie: Lie) -> Callable[[Path], Path]:
    """Builds a copy of the valid dataset with a lie in it."""

    def build(folder: Path) -> Path:
        one = Forge.open(forge.copy(folder, forge.base()))
        if lie(one) != "saved":
            one.save()
        return one.folder

    return build


# No lie here: this shows that the forger itself adds none, so what is found below is the lie and nothing else.
add("an_honest_copy_decoded", lambda f: None, codes=(0,), says="")


# The manifest.


def manifest_number(part: str, member: str, value: int) -> Lie:
    def lie(f: Forge) -> None:
        f.manifest[part][member] = value
        f.keeps.add("count" if member == "count" else part)

    return lie


for part in ("episodes", "stats"):
    add(f"{part}_of_2_62_bytes", manifest_number(part, "bytes", 1 << 62), says=part)
    add(f"{part}_of_no_bytes", manifest_number(part, "bytes", 0), says=part)
    add(f"{part}_of_2_64_bytes", manifest_number(part, "bytes", (1 << 64) - 1), says="versions")
add("more_rows_than_there_are", manifest_number("episodes", "count", 3), says="rows")


def stream_member(member: str, value: object) -> Lie:
    return lambda f: f.stream("joints").update({member: value})


for dtype in ("uint64", "int32", "float64", "text", "float99"):
    add(f"dtype_{dtype}", stream_member("dtype", dtype))
for shape in ([2], [64], [2, 2, 3], [1 << 40], [0], []):
    add(f"shape_{'x'.join(map(str, shape)) or 'none'}", stream_member("shape", shape))
add("kind_image", stream_member("kind", "image"), says="`type`")
add("kind_that_is_none", stream_member("kind", "hologram"))
add("codecs_none", stream_member("codecs", []), says="`codecs`")
add("codecs_another", stream_member("codecs", ["raw"]), says="`codecs`")
for member in ("episodes", "frames", "bytes", "raw_bytes", "stored_values"):
    add(
        f"stream_{member}_off_by_one",
        lambda f, member=member: f.stream("joints").update(
            {member: f.stream("joints")[member] + 1}
        ),
        says=f"`{member}`",
    )
add("stream_frames_2_64", stream_member("frames", (1 << 64) - 1), says="add up")
add("stream_frames_negative", stream_member("frames", -1))
add("protected_frames_without_events", stream_member("protected_frames", 7))
add("negative_error", stream_member("max_abs_error", -1.0))
add("stream_missing", lambda f: f.manifest["streams"].pop(), says="not listed")
add(
    "stream_invented",
    lambda f: f.manifest["streams"].append(f.stream("joints") | {"name": "invented"}),
    says="no episode has it",
)
add(
    "stream_twice",
    lambda f: f.manifest["streams"].append(f.stream("joints")),
    says="listed twice",
)
add("no_streams", lambda f: f.manifest["streams"].clear(), says="not listed")


def second_shard(member: str, value: object) -> Lie:
    return lambda f: f.manifest["shards"][1].update({member: value})


add("shard_twice", lambda f: f.manifest["shards"].append(f.manifest["shards"][0]), says="twice")
add("shard_unlisted", lambda f: f.manifest["shards"].pop(), says="does not list")
add("shard_of_other_length", second_shard("bytes", 1 << 40), says="truncated")
add("shards_of_2_64_bytes", second_shard("bytes", (1 << 64) - 1), says="add up")
add("shard_episodes", second_shard("episodes", 2), says="episodes, not 2")
add("shard_gone", lambda f: f.shards.pop(f.manifest["shards"][0]["blake3"]), says="missing")


def unused_shard(f: Forge) -> None:
    extra = Forge.open(forge.other())
    f.manifest["shards"] += extra.manifest["shards"]
    f.shards |= extra.shards


add("shard_that_no_row_uses", unused_shard, says="no episode refers to shard")
add("not_a_dataset", lambda f: f.manifest.update(kinograph="image"))
add("reader_of_the_future", lambda f: f.manifest.update(min_reader=99), says="upgrade")
add("another_version_number", lambda f: f.manifest.update(version=2), says="version 2")


def deep(f: Forge) -> str:
    f.save()
    body = b'{"kinograph": "dataset", "a": ' + b"[" * 200_000
    f.name(1).write_bytes(forge.sealed(body))
    return "saved"


add("deep_json", deep)


# The names of versions.


def renamed(name: str, version: int) -> Lie:
    def lie(f: Forge) -> str:
        f.manifest["version"] = version
        f.save()
        f.name(1).rename(f.folder / "versions" / name)
        return "saved"

    return lie


add("version_2_64", renamed(f"{(1 << 64) - 1}.json", (1 << 64) - 1), says="version number")
add("version_2_53", renamed(f"{1 << 53}.json", 1 << 53), says="version number")
add("version_of_40_digits", renamed(f"{'9' * 40}.json", 1), says="version number")
add("version_without_zeros", renamed("1.json", 1), says="no versions")


# The table.


def column(name: str, change: Callable[[int, object], object]) -> Lie:
    """Changes a column row by row."""
    return lambda f: f.set_column(
        name, lambda values: [change(row, value) for row, value in enumerate(values)]
    )


for name in ("frames", "start_ns", "bytes", "raw_bytes"):
    add(f"table_{name}", column(name, lambda row, value: value + row), says=f"`{name}`")
add("table_episode", column("episode", lambda row, _: 1 - row), says="`episode`")
add("table_duration", column("duration_s", lambda row, value: value * 2), says="`duration_s`")
add("table_duration_nan", column("duration_s", lambda *_: float("nan")), says="`duration_s`")
add("table_slot", column("slot", lambda row, _: row), says="no such slot")
add("table_slot_2_31", column("slot", lambda *_: (1 << 31) - 1), says="no such slot")
add("table_hash", column("hash", lambda *_: "ab" * 32), says="another hash")
add("table_shard", column("shard", lambda *_: "ab" * 32), says="does not list")
add("table_id", column("id", lambda row, _: f"ep{1 - row}"), says="belong to episode")
add("table_id_twice", column("id", lambda *_: "ep0"), says="two episodes")
add("table_frames_2_62", column("frames", lambda *_: 1 << 62), says="add up")
add("table_frames_negative", column("frames", lambda *_: -1), says="`frames`")


def rows_twice(f: Forge) -> None:
    f.table = pa.concat_tables([f.table, f.table])
    f.set_column("id", lambda ids: [f"ep{row}" for row in range(len(ids))])
    f.set_column("episode", lambda numbers: list(range(len(numbers))))


add("table_rows_twice", rows_twice, says="the same episode")
add("table_without_success", lambda f: setattr(f, "table", f.table.drop_columns(["success"])))
add(
    "table_of_one_row",
    lambda f: setattr(f, "table", f.table.slice(0, 1)),
    says="no episode refers to",
)


# The statistics.


def stats_member(member: str, value: object) -> Lie:
    return lambda f: f.stats["joints"].update({member: value})


def quantiles(f: Forge) -> None:
    f.stats["joints"]["quantiles"]["q10"] = [1e6] * 3


add("stats_empty", lambda f: f.stats.clear(), says="missing")
add("stats_a_list", lambda f: setattr(f, "stats", []))
add("stats_without_q01", lambda f: f.stats["joints"]["quantiles"].pop("q01"), says="incomplete")
add("stats_without_mean", lambda f: f.stats["joints"].pop("mean"), says="mean")
add("stats_of_one_channel", stats_member("mean", [1.0]), says="lengths")
add("stats_negative_std", stats_member("std", [-1.0] * 3), says="`std`")
add("stats_min_above_max", stats_member("min", [1e6] * 3), says="`min`")
add("stats_null", stats_member("min", [None] * 3), says="`min`")
add("stats_falling_quantiles", quantiles, says="quantiles")
add("stats_of_more_frames", stats_member("frames", 21), says="`frames`")
add("stats_of_more_values", stats_member("count", [21] * 3), says="channel 0")
add("stats_invented", lambda f: f.stats.update(invented=f.stats["joints"]), says="no episode")
add("stats_mean_decoded", stats_member("mean", [14.0] * 3), says="`mean`")
add("stats_max_decoded", stats_member("max", [29.0, 29.5, 30.5]), says="`max`")


# The shards.


def flipped(f: Forge) -> None:
    def flip(data: bytearray) -> None:
        data[40] ^= 1

    f.set_shard(0, flip)


def longer_stream(f: Forge) -> None:
    """One frame more in the index than in the pages; every checksum and hash is correct."""
    digest = b""

    def change(index: bytearray, streams: int) -> None:
        clock = struct.unpack_from("<I", index, streams + 4)[0]
        for at in (32 + 48 * clock + 28, streams + 8):
            struct.pack_into("<I", index, at, struct.unpack_from("<I", index, at)[0] + 1)

    def shard(data: bytearray) -> None:
        nonlocal digest
        digest = forge.set_index(data, change)

    f.set_shard(0, shard)
    f.set_column("hash", lambda hashes: [digest.hex(), hashes[1]])


def smaller_error(f: Forge) -> None:
    """The index records a loss; the manifest records none."""
    digest = b""

    def change(index: bytearray, streams: int) -> None:
        struct.pack_into("<d", index, streams + 40, 0.5)

    def shard(data: bytearray) -> None:
        nonlocal digest
        digest = forge.set_index(data, change)

    f.set_shard(0, shard)
    f.set_column("hash", lambda hashes: [digest.hex(), hashes[1]])


def exchanged(f: Forge) -> None:
    first, second = (shard["blake3"] for shard in f.manifest["shards"])
    f.shards[first], f.shards[second] = f.shards[second], f.shards[first]


add("shard_page", flipped, says="checksum")
add("shard_longer_stream", longer_stream)
add("shard_error", smaller_error, says="max_abs_error")
add("shards_exchanged", exchanged)


# Things that are not files.


def special(part: str, make: Callable[[Path], object]) -> Lie:
    """Replaces the first file of a folder."""

    def lie(f: Forge) -> str:
        f.save()
        path = sorted((f.folder / part).iterdir())[0]
        path.unlink()
        make(path)
        return "saved"

    return lie


def bind(path: Path) -> None:
    # A socket path has at most 107 bytes.
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


for part in ("versions", "episodes", "stats", "shards"):
    add(f"fifo_in_{part}", special(part, os.mkfifo), says="not a regular file")
    add(
        f"zeros_in_{part}",
        special(part, lambda path: path.symlink_to("/dev/zero")),
        says="not a regular file",
    )
add("socket_in_shards", special("shards", bind), says="not a regular file")
add("folder_in_stats", special("stats", Path.mkdir), says="not a regular file")


def linked(f: Forge) -> str:
    """Links to blobs, as download caches store datasets."""
    f.save()
    for path in [path for path in f.folder.rglob("*") if path.is_file()]:
        blob = f.folder.parent / f"{path.parent.name}-{path.name}"
        path.rename(blob)
        path.symlink_to(blob)
    return "saved"


add("links_to_blobs_decoded", linked, codes=(0,))


# Training on it, and appending to it.

use("an_honest_copy", "loader", lambda f: None, codes=(0,))
use("an_honest_copy", "append", lambda f: None, codes=(0,))
use("an_honest_copy", "statistics", lambda f: None, codes=(0,))
for dtype in ("uint64", "int32", "float64"):
    use(f"dtype_{dtype}", "loader", stream_member("dtype", dtype), says="CorruptDataError")
for shape in ([2], [64]):
    use(f"shape_{shape[0]}", "loader", stream_member("shape", shape), says="CorruptDataError")
use(
    "an_image",
    "loader",
    lambda f: f.stream("joints").update(kind="image", dtype="uint8", shape=[2, 2, 3]),
    says="CorruptDataError",
)


def two_types(f: Forge) -> None:
    """An episode whose stream has another dtype than in the manifest, as two racing writers once produced it."""
    extra = Forge.open(forge.other())
    f.table = pa.concat_tables([f.table, extra.table])
    f.set_column("episode", lambda numbers: list(range(len(numbers))))
    f.manifest["shards"] += extra.manifest["shards"]
    f.shards |= extra.shards
    stream = f.stream("joints")
    stream["episodes"] += 1
    stream["frames"] += 10
    # Only this stream is in all episodes.
    f.manifest["streams"] = [stream]


use("two_types", "loader", two_types, says="CorruptDataError")
use("two_types", "skip", two_types, codes=(0,))
add("two_types", two_types, says="float64[3] in episode `other`")


def more_frames(f: Forge) -> None:
    f.set_column("frames", lambda frames: [1000 for _ in frames])
    for stream in f.manifest["streams"]:
        stream["frames"] = 2000


use("more_frames", "loader", more_frames, says="CorruptDataError")
use("fifo", "loader", special("shards", os.mkfifo), says="CorruptDataError")
use(
    "without_q01", "statistics", lambda f: f.stats["joints"]["quantiles"].pop("q01"), says="Corrupt"
)
use("fifo", "statistics", special("stats", os.mkfifo), says="CorruptDataError")
use("version_2_64", "append", renamed(f"{(1 << 64) - 1}.json", (1 << 64) - 1))
use("last_version", "append", renamed(f"{(1 << 53) - 1}.json", (1 << 53) - 1), says="version")
use("frames_2_63", "append", stream_member("frames", (1 << 63) - 30), says="add up")
