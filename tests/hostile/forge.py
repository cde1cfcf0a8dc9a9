"""Datasets that lie with correct hashes: splits one into parts, lets a case change them, and reassembles it.

Every hash, length and checksum is recomputed, from spec/format.md alone, so what a case changes is the only error.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

import kinograph


@cache
def base() -> Path:
    """A small valid dataset: two episodes, each in a separate shard."""
    path = Path(tempfile.mkdtemp(prefix="kino-forge-")) / "base.kino"
    with kinograph.Writer(path, shard_size=1) as writer:
        for number in range(2):
            steps = np.arange(30, dtype=np.float32).reshape(10, 3)
            streams = {
                "joints": steps + number,
                "force": np.linspace(-1, 1, 20).reshape(10, 2) * (number + 1),
                "camera": np.arange(10 * 8 * 8 * 3, dtype=np.uint8).reshape(10, 8, 8, 3),
                "words": ["lift", "the cube"] * 5,
            }
            writer.add_episode(streams, rate_hz=10.0, id=f"ep{number}", task="lift")
    return path


@cache
def other() -> Path:
    """Another one, whose `joints` are float64."""
    path = Path(tempfile.mkdtemp(prefix="kino-forge-")) / "other.kino"
    with kinograph.Writer(path) as writer:
        writer.add_episode({"joints": np.ones((10, 3))}, rate_hz=10.0, id="other")
    return path


@dataclass
class Forge:
    """A dataset in parts."""

    folder: Path
    manifest: dict[str, Any]
    table: pa.Table
    stats: Any
    shards: dict[str, bytes]
    #: What a case sets here is not recomputed.
    keeps: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, folder: Path) -> Forge:
        """Splits the newest version into parts."""
        manifest = json.loads(sorted((folder / "versions").iterdir())[-1].read_bytes())
        del manifest["id"]
        shards = {
            shard["blake3"]: (folder / "shards" / f"{shard['blake3'][:32]}.kshard").read_bytes()
            for shard in manifest["shards"]
        }
        table = folder / "episodes" / f"{manifest['episodes']['blake3'][:32]}.parquet"
        stats = folder / "stats" / f"{manifest['stats']['blake3'][:32]}.json"
        return cls(folder, manifest, pq.read_table(table), json.loads(stats.read_bytes()), shards)

    def stream(self, name: str) -> dict[str, Any]:
        """The manifest entry of a stream."""
        return next(one for one in self.manifest["streams"] if one["name"] == name)

    def set_column(self, name: str, change: Callable[[list[Any]], list[Any]]) -> None:
        """Changes the values of a table column."""
        place = self.table.schema.get_field_index(name)
        kind = self.table.schema.field(place)
        values = pa.array(change(self.table.column(name).to_pylist()), kind.type)
        self.table = self.table.set_column(place, kind, values)

    def set_shard(self, number: int, change: Callable[[bytearray], None]) -> None:
        """Changes the bytes of a shard, whose name changes with them everywhere."""
        listed = self.manifest["shards"][number]
        old = listed["blake3"]
        data = bytearray(self.shards.pop(old))
        change(data)
        new = blake3(data).hexdigest()
        self.shards[new] = bytes(data)
        listed |= {"blake3": new, "bytes": len(data)}
        self.set_column("shard", lambda hashes: [new if one == old else one for one in hashes])

    def save(self) -> Path:
        """Writes all parts, replacing the old ones."""
        version = json.loads(sorted((self.folder / "versions").iterdir())[-1].read_bytes())[
            "version"
        ]
        for part in ("versions", "episodes", "stats", "shards"):
            shutil.rmtree(self.folder / part)
            (self.folder / part).mkdir()
        for name, data in self.shards.items():
            (self.folder / "shards" / f"{name[:32]}.kshard").write_bytes(data)
        sink = pa.BufferOutputStream()
        pq.write_table(
            self.table, sink, compression="none", use_dictionary=False, store_schema=False
        )
        table = sink.getvalue().to_pybytes()
        self.put("episodes", "parquet", table)
        if "count" not in self.keeps:
            self.manifest["episodes"]["count"] = self.table.num_rows
        self.put("stats", "json", json.dumps(self.stats).encode())
        body = json.dumps(self.manifest, indent=2, ensure_ascii=False).encode()
        body = body.removesuffix(b"\n}")
        self.name(version).write_bytes(sealed(body))
        return self.folder

    def put(self, part: str, ending: str, data: bytes) -> None:
        """Writes a file named after its hash, and puts the hash into the manifest."""
        name = blake3(data).hexdigest()
        (self.folder / part / f"{name[:32]}.{ending}").write_bytes(data)
        self.manifest[part]["blake3"] = name
        if part not in self.keeps:
            self.manifest[part]["bytes"] = len(data)

    def name(self, version: int) -> Path:
        """The path of a version's manifest."""
        return self.folder / "versions" / f"{version:08}.json"


def sealed(body: bytes) -> bytes:
    """A manifest with its id."""
    return body + b',\n  "id": "' + blake3(body).hexdigest().encode() + b'"\n}\n'


def copy(folder: Path, of: Path) -> Path:
    """A copy of a dataset, to be changed."""
    return Path(shutil.copytree(of, folder / "src.kino"))


def crc32c(data: bytes) -> int:
    """The checksum of section 1."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def set_index(data: bytearray, change: Callable[[bytearray, int], None]) -> bytes:
    """Changes the index of the first episode of a shard and all checksums over it; returns the episode's new hash.

    `change` gets the index and the offset of its first stream record in it.
    """
    footer = len(data) - 64
    schema_start, schema_len = struct.unpack_from("<QI", data, footer + 8)
    directory = (schema_start + schema_len + 7) // 8 * 8
    start, pages, index = struct.unpack_from("<QQI", data, directory)
    place = slice(start + pages, start + pages + index)
    changed = bytearray(data[place])
    clocks = struct.unpack_from("<I", changed, 4)[0]
    change(changed, 32 + 48 * clocks)
    data[place] = changed
    struct.pack_into("<I", data, directory + 20, crc32c(changed))
    digest = blake3(bytes(data[start : place.stop])).digest()
    data[directory + 24 : directory + 56] = digest
    struct.pack_into("<I", data, footer + 28, crc32c(bytes(data[directory:footer])))
    struct.pack_into("<I", data, footer + 52, crc32c(bytes(data[footer : footer + 52])))
    return digest
