"""Building blocks of the HDF5 cases: small recordings written by h5py, and ways to corrupt them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from harness import PACK, Case, add

ENV_ARGS = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20}})
FRAMES = 8
#: Packs everything that can be kept.
KEEP = (*PACK, "--on-defect", "keep")
#: Refused, or packed with what was lost listed.
LOST = (1, 3)


def start(folder: Path, libver: str = "earliest", **options: Any) -> h5py.File:
    """A recording in robomimic's layout, without demos."""
    file = h5py.File(folder / "demos.hdf5", "w", libver=libver, **options)
    file.create_group("data").attrs["env_args"] = ENV_ARGS
    return file


def demo(file: h5py.File, name: str = "demo_0") -> h5py.Group:
    """A valid demo."""
    group = file["data"].create_group(name)
    group.attrs["num_samples"] = FRAMES
    group["actions"] = np.arange(FRAMES * 2.0).reshape(FRAMES, 2)
    group["obs/joints"] = np.arange(FRAMES * 3.0).reshape(FRAMES, 3)
    return group


def file_case(  # noqa: PLR0913 (each is a separate keyword)
    name: str,
    fill: Callable[[h5py.Group, h5py.File], object],
    *,
    libver: str = "earliest",
    codes: tuple[int, ...] = (1,),
    says: str = "",
    command: tuple[str, ...] = PACK,
) -> None:
    """Registers a file with one valid demo to which `fill` adds something."""

    def build(folder: Path) -> Path:
        with start(folder, libver) as file:
            fill(demo(file), file)
        return folder / "demos.hdf5"

    add(Case("hdf5", name, build, (command,), codes, says))


def patched(  # noqa: PLR0913 (each is a separate keyword)
    name: str,
    change: Callable[[bytearray], object],
    *,
    libver: str = "earliest",
    fill: Callable[[h5py.Group, h5py.File], object] = lambda demo, file: None,
    codes: tuple[int, ...] = (1,),
    says: str = "",
) -> None:
    """Registers a file whose bytes are changed after h5py wrote it."""

    def build(folder: Path) -> Path:
        with start(folder, libver) as file:
            fill(demo(file), file)
        path = folder / "demos.hdf5"
        content = bytearray(path.read_bytes())
        change(content)
        path.write_bytes(content)
        return path

    add(Case("hdf5", name, build, (PACK,), codes, says))


def low_level(
    group: h5py.Group,
    name: str,
    shape: tuple[int, ...],
    *,
    chunk: tuple[int, ...] | None = None,
    dtype: Any = h5py.h5t.NATIVE_FLOAT,
) -> h5py.h5d.DatasetID:
    """A dataset of any size; nothing is written."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunk:
        properties.set_chunk(chunk)
    space = h5py.h5s.create_simple(shape)
    return h5py.h5d.create(group.id, name.encode(), dtype, space, properties)


def fixed_string(size: int) -> h5py.h5t.TypeID:
    made = h5py.h5t.C_S1.copy()
    made.set_size(size)
    return made


def lookup3(data: bytes) -> bytes:
    """HDF5's metadata checksum, so that a changed superblock is still valid."""
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask

    def rotate(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & mask

    while len(data) > 12:
        x, y, z = struct.unpack("<III", data[:12])
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        a = ((a - c) & mask) ^ rotate(c, 4)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ rotate(a, 6)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ rotate(b, 8)
        b = (b + a) & mask
        a = ((a - c) & mask) ^ rotate(c, 16)
        c = (c + b) & mask
        b = ((b - a) & mask) ^ rotate(a, 19)
        a = (a + c) & mask
        c = ((c - b) & mask) ^ rotate(b, 4)
        b = (b + a) & mask
        data = data[12:]
    x, y, z = struct.unpack("<III", data.ljust(12, b"\0"))
    a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
    for shift in (14, 11, 25, 16, 4, 14, 24):
        c, a, b = a, b, ((c ^ b) - rotate(b, shift)) & mask
    return struct.pack("<I", b)
