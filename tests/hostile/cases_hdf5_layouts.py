"""HDF5 files of no known layout whose episodes, times and images lie."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
from harness import PACK, case
from hdf5_files import LOST

AT_20_HZ = (*PACK, "--rate", "20")


def flat(folder: Path, rows: int) -> h5py.File:
    """Arrays of so many rows, that compress to nothing."""
    file = h5py.File(folder / "flat.h5", "w")
    for name in ("action", "state"):
        chunks = (min(rows, 1 << 16), 2)
        file.create_dataset(name, (rows, 2), "f4", chunks=chunks, compression="gzip")
        file[name][0] = 1
    return file


@case("hdf5", commands=(AT_20_HZ,), says="cannot hold more than")
def an_episode_per_row(folder: Path) -> Path:
    with flat(folder, 1 << 20) as file:
        index = np.arange(1 << 20, dtype="i4")
        file.create_dataset("episode_index", data=index, compression="gzip", shuffle=True)
    return folder / "flat.h5"


@case("hdf5", commands=(AT_20_HZ,), says="more than half of the memory")
def ends_of_episodes_that_were_never_written(folder: Path) -> Path:
    with flat(folder, 1 << 10) as file:
        file.create_dataset("episode_ends", (1 << 40,), "i8", chunks=(1 << 16,))
    return folder / "flat.h5"


@case("hdf5", commands=(AT_20_HZ,), says="decreases at index 1")
def ends_of_episodes_that_overflow(folder: Path) -> Path:
    with flat(folder, 1 << 10) as file:
        file["episode_ends"] = np.array([np.iinfo("i8").max, np.iinfo("i8").min, 1024])
    return folder / "flat.h5"


@case("hdf5", says="ends the last episode at row")
def lengths_of_episodes_that_overflow(folder: Path) -> Path:
    with flat(folder, 1 << 10) as file:
        file["episode_lengths"] = np.array([np.iinfo("i8").max] * 3)
    return folder / "flat.h5"


@case("hdf5", codes=LOST, says="more than half of the memory")
def a_billion_times(folder: Path) -> Path:
    with h5py.File(folder / "times.h5", "w") as file:
        file["demo_0/action"] = np.zeros((40, 7))
        times = file.create_dataset(
            "demo_0/time_s", (1 << 30,), "f8", chunks=(1 << 20,), compression="gzip"
        )
        times[:1024] = 1
    return folder / "times.h5"


@case("hdf5", codes=LOST, commands=(AT_20_HZ,), says="bytes in the rows")
def one_image_file_40000_times(folder: Path) -> Path:
    jpeg = (
        b"\xff\xd8\xff\xc0\0\x0b\x08\0\x08\0\x08\x01\x01\x11\0\xff\xda"
        + b"\1" * 100_000
        + b"\xff\xd9"
    )
    with h5py.File(folder / "images.h5", "w") as file:
        file["demo_0/action"] = np.zeros((40_000, 1), "f4")
        made = file.create_dataset("demo_0/front", (40_000,), h5py.vlen_dtype(np.uint8))
        made[0] = np.frombuffer(jpeg, "u1")
        file.flush()
        offset = made.id.get_offset()
    path = folder / "images.h5"
    content = bytearray(path.read_bytes())
    content[offset : offset + 640_000] = content[offset : offset + 16] * 40_000
    path.write_bytes(content)
    return path


@case("hdf5", codes=LOST, commands=(AT_20_HZ,))
def png_files_of_gigapixels(folder: Path) -> Path:
    def part(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", header)
        + part(b"IDAT", zlib.compress(b""))
        + part(b"IEND", b"")
    )
    with h5py.File(folder / "images.h5", "w") as file:
        file["demo_0/action"] = np.zeros((40, 7))
        file["demo_0/front"] = np.stack([np.frombuffer(png.ljust(200, b"\0"), "u1")] * 40)
    return folder / "images.h5"


@case("hdf5", commands=(("pack", "--suggest-mapping", "{src}"),), codes=(0,))
def a_draft_of_50000_groups(folder: Path) -> Path:
    with h5py.File(folder / "wide.h5", "w", libver="v114") as file:
        for number in range(50_000):
            file.create_group(f"demo_{number}")
        file["demo_0/action"] = np.zeros((40, 7))
    return folder / "wide.h5"
