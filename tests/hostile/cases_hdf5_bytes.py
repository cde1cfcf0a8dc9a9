"""HDF5 files with odd names and inconsistent bytes, and files that are not HDF5 at all."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from harness import case
from hdf5_files import FRAMES, LOST, demo, file_case, lookup3, patched, start

# Names.

NAMES = {
    "dots": "..",
    "escape": "\x1b]0;x\x07",
    "newline": "a\nb",
    "300_bytes": "n" * 300,
    "bidi": "\u202eabc",
    "spaces": "   ",
}
for title, odd_name in NAMES.items():
    file_case(
        f"stream_name_of_{title}",
        lambda demo, file, name=odd_name: demo.create_dataset(f"obs/{name}", data=np.zeros(FRAMES)),
        codes=(0, 1),
    )
    file_case(
        f"demo_name_of_{title}",
        lambda demo, file, name=odd_name: file.move("data/demo_0", f"data/{name}"),
        codes=(0, 1),
    )


def rename(old: bytes, new: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        assert len(old) == len(new)
        place = content.find(old)
        content[place : place + len(old)] = new

    return change


patched("name_that_is_not_utf8", rename(b"joints", b"\xff\xfe\xfdnts"), says="damaged")
patched("name_with_a_slash", rename(b"joints", b"jo/nts"), says="is not valid in HDF5")
patched("name_that_is_empty", rename(b"joints", b"\x00oints"), says="is not valid in HDF5")
patched(
    "name_that_is_a_dot",
    rename(b"joints\x00", b".\x00\x00\x00\x00\x00\x00"),
    says="is not valid in HDF5",
)


def twice(content: bytearray) -> None:
    rename(b"second", b"joints")(content)


patched(
    "two_of_one_name",
    twice,
    fill=lambda demo, file: demo.create_dataset("obs/second", data=np.zeros(FRAMES)),
    says="is a second object of the same name",
)

# Bytes.


def put(place: int, value: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[place : place + len(value)] = value

    return change


def cut(fraction: float) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        del content[int(len(content) * fraction) :]

    return change


for fraction in (0.02, 0.3, 0.7, 0.99):
    patched(f"cut_at_{fraction}", cut(fraction))
patched("superblock_of_version_9", put(8, b"\x09"))
patched("superblock_with_offsets_of_1_byte", put(13, b"\x01"))
patched(
    "superblock_that_ends_beyond_the_file", put(40, struct.pack("<Q", 1 << 50)), says="is truncated"
)
patched("superblock_with_a_base_far_away", put(24, struct.pack("<Q", 1 << 62)))
patched("root_in_the_superblock", put(64, struct.pack("<Q", 0)))
patched("root_beyond_the_file", put(64, struct.pack("<Q", 1 << 62)))
patched("superblock_with_a_wrong_checksum", put(44, b"\x00\x00\x00\x00"), libver="v114")


def everywhere(old: bytes, new: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[:] = content.replace(old, new)

    return change


def field(signature: bytes, offset: int, value: bytes) -> Callable[[bytearray], None]:
    """Overwrites a field of every structure with this signature."""

    def change(content: bytearray) -> None:
        place = content.find(signature)
        assert place >= 0, signature
        while place >= 0:
            content[place + offset : place + offset + len(value)] = value
            place = content.find(signature, place + 1)

    return change


def loop_tree(content: bytearray) -> None:
    place = content.find(b"TREE")
    content[place + 5] = 1
    content[place + 6 : place + 8] = struct.pack("<H", 1)
    content[place + 32 : place + 40] = struct.pack("<Q", place)


patched("tree_that_contains_itself", loop_tree)
patched("tree_of_level_200", field(b"TREE", 5, b"\xc8"))
patched("tree_with_65535_children", field(b"TREE", 6, b"\xff\xff"))
patched("node_with_65535_entries", field(b"SNOD", 6, b"\xff\xff"))
patched("heap_of_2_to_60_bytes", field(b"HEAP", 8, struct.pack("<Q", 1 << 60)))
patched("heap_far_away", field(b"HEAP", 24, struct.pack("<Q", 1 << 60)))
patched("no_trees", everywhere(b"TREE", b"EERT"))


def wide(demo: h5py.Group, file: h5py.File) -> None:
    for number in range(40):
        demo[f"obs/d{number}"] = np.zeros(FRAMES)


for signature in (b"FRHP", b"BTHD", b"BTLF", b"OHDR"):
    patched(
        f"flipped_bit_in_{signature.decode().lower()}",
        field(signature, 9, b"\xff"),
        libver="v114",
        fill=wide,
        says="damaged",
    )


def wrong_object(content: bytearray) -> None:
    """Every symbol of a group points into the middle of the file."""
    place = content.find(b"SNOD")
    while place >= 0:
        content[place + 16 : place + 24] = struct.pack("<Q", 600)
        place = content.find(b"SNOD", place + 1)


patched("links_into_the_middle_of_something", wrong_object)


@case("hdf5", codes=(0,))
def user_block(folder: Path) -> Path:
    with start(folder, userblock_size=4096) as file:
        demo(file)
    path = folder / "demos.hdf5"
    content = bytearray(path.read_bytes())
    content[:4096] = b"#!/bin/sh\n" * 409 + b"######"
    path.write_bytes(content)
    return path


@case("hdf5", says="is marked as being written")
def marked_as_being_written(folder: Path) -> Path:
    with start(folder, "v110") as file:
        demo(file)
    path = folder / "demos.hdf5"
    content = bytearray(path.read_bytes())
    content[11] = 5
    content[44:48] = lookup3(bytes(content[:44]))
    path.write_bytes(content)
    return path


# Things that are not files.


@case("hdf5", says="a named pipe")
def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "demos.hdf5")
    return folder / "demos.hdf5"


@case("hdf5", says="a named pipe")
def pipe_in_a_folder(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    os.mkfifo(source / "demos.hdf5")
    return source


@case("hdf5", says="a device")
def link_to_dev_zero(folder: Path) -> Path:
    (folder / "demos.hdf5").symlink_to("/dev/zero")
    return folder / "demos.hdf5"


@case("hdf5", says="is a link out of the source")
def link_to_dev_zero_in_a_folder(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    (source / "demos.hdf5").symlink_to("/dev/zero")
    return source


@case("hdf5", says="is sparse")
def hole_of_a_terabyte(folder: Path) -> Path:
    with start(folder) as file:
        demo(file)
    os.truncate(folder / "demos.hdf5", 1 << 40)
    return folder / "demos.hdf5"


@case("hdf5")
def empty_file(folder: Path) -> Path:
    (folder / "demos.hdf5").write_bytes(b"")
    return folder / "demos.hdf5"


@case("hdf5")
def only_a_signature(folder: Path) -> Path:
    (folder / "demos.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n")
    return folder / "demos.hdf5"


@case("hdf5")
def text_file(folder: Path) -> Path:
    (folder / "demos.hdf5").write_text("not HDF5\n" * 1000)
    return folder / "demos.hdf5"


# ALOHA's layout.


def aloha(folder: Path, frames: int = FRAMES) -> h5py.File:
    file = h5py.File(folder / "episode_0.hdf5", "w")
    file["action"] = np.zeros((frames, 14))
    file["observations/qpos"] = np.zeros((frames, 14))
    return file


@case("hdf5", says="does not start with a JPEG file")
def aloha_compress_without_jpeg(folder: Path) -> Path:
    with aloha(folder) as file:
        file.attrs["compress"] = True
        file["observations/images/top"] = np.zeros((FRAMES, 500), "u1")
    return folder / "episode_0.hdf5"


@case("hdf5", codes=LOST, says="JPEG")
def aloha_jpeg_of_65535_squared(folder: Path) -> Path:
    header = b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03" + b"\x01\x11\x00" * 3
    row = np.frombuffer((header + b"\xff\xd9").ljust(500, b"\0"), "u1")
    with aloha(folder) as file:
        file.attrs["compress"] = True
        file["observations/images/top"] = np.tile(row, (FRAMES, 1))
    return folder / "episode_0.hdf5"


@case("hdf5", says="is a soft link to `/nowhere`")
def aloha_behind_a_dangling_link(folder: Path) -> Path:
    with aloha(folder) as file:
        file["observations/qvel"] = h5py.SoftLink("/nowhere")
    return folder / "episode_0.hdf5"


@case("hdf5", says="has no frames")
def aloha_without_frames(folder: Path) -> Path:
    with aloha(folder, 0):
        pass
    return folder / "episode_0.hdf5"
