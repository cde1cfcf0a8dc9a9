"""HDF5 files with unusual filters, types, texts, shapes and layouts."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
from harness import MIB, case
from hdf5_files import FRAMES, KEEP, LOST, demo, file_case, fixed_string, low_level, start

# Filters.


def bomb(demo: h5py.Group, file: h5py.File) -> None:
    """64 MiB of zeros in 64 kB, in chunks of 8 MiB."""
    demo.create_dataset(
        "x",
        data=np.zeros((FRAMES, 1 << 21), "f4"),
        chunks=(1, 1 << 21),
        compression="gzip",
        compression_opts=9,
    )


file_case("deflate_bomb", bomb, codes=(0,))


@case("hdf5", codes=LOST, commands=(KEEP,))
def deflate_bomb_in_a_chunk(folder: Path) -> Path:
    """A chunk that inflates to 1000 times its size."""
    with start(folder) as file:
        demo(file)
        group = demo(file, "demo_1")
        group.create_dataset("x", (FRAMES, 100), "f4", chunks=(FRAMES, 100), compression="gzip")
        packed = zlib.compress(bytes(64 * MIB), 9)
        group["x"].id.write_direct_chunk((0, 0), packed)
    return folder / "demos.hdf5"


@case("hdf5", codes=LOST, commands=(KEEP,))
def deflate_that_is_not_deflate(folder: Path) -> Path:
    with start(folder) as file:
        demo(file)
        group = demo(file, "demo_1")
        group.create_dataset("x", (FRAMES, 100), "f4", chunks=(FRAMES, 100), compression="gzip")
        group["x"].id.write_direct_chunk((0, 0), b"\x00" * 500)
    return folder / "demos.hdf5"


@case("hdf5", codes=LOST, commands=(KEEP,))
def fletcher_that_does_not_add_up(folder: Path) -> Path:
    with start(folder) as file:
        demo(file)
        group = demo(file, "demo_1")
        group.create_dataset("x", (FRAMES, 10), "f4", chunks=(FRAMES, 10), fletcher32=True)
        group["x"].id.write_direct_chunk((0, 0), bytes(FRAMES * 40) + b"\x01\x02\x03\x04")
    return folder / "demos.hdf5"


@case("hdf5", codes=LOST, commands=(KEEP,))
def chunk_that_is_too_short(folder: Path) -> Path:
    with start(folder) as file:
        demo(file)
        group = demo(file, "demo_1")
        group.create_dataset("x", (FRAMES, 10), "f4", chunks=(FRAMES, 10), compression="lzf")
        group["x"].id.write_direct_chunk((0, 0), b"\x05abcdef")
    return folder / "demos.hdf5"


@case("hdf5", says="is compressed with filter 32015 (zstd)")
def filter_that_is_not_available(folder: Path) -> Path:
    with start(folder) as file:
        group = demo(file)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((FRAMES,))
        properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((FRAMES,))
        h5py.h5d.create(group.id, b"x", h5py.h5t.NATIVE_FLOAT, space, properties)
    return folder / "demos.hdf5"


# Types.


def types(demo: h5py.Group, file: h5py.File) -> None:
    demo["compound"] = np.zeros(FRAMES, [("x", "f4"), ("y", "i8", 3)])
    demo.create_dataset("references", data=[demo.ref] * FRAMES, dtype=h5py.ref_dtype)
    demo["opaque"] = np.zeros(FRAMES, "V7")
    demo.create_dataset("any_length", (FRAMES,), dtype=h5py.vlen_dtype("f4"))
    low_level(demo, "bits", (FRAMES,), dtype=h5py.h5t.STD_B8LE)
    odd = h5py.h5t.STD_I32LE.copy()
    odd.set_precision(17)
    low_level(demo, "seventeen_bits", (FRAMES,), dtype=odd)
    low_level(demo, "time", (FRAMES,), dtype=h5py.h5t.UNIX_D32LE)


file_case(
    "types_that_are_not_frames", types, command=KEEP, codes=(3,), says="contains compound values"
)
file_case("types_that_are_not_frames_refused", types, says="contains references")
file_case(
    "enum_that_is_no_bool",
    lambda demo, file: demo.create_dataset(
        "x", data=np.arange(FRAMES) % 3, dtype=h5py.enum_dtype({"A": 0, "B": 1, "C": 2}, "u1")
    ),
    codes=(0,),
)
file_case(
    "named_type",
    lambda demo, file: demo.update({"type": np.dtype("f8")}),
    says="is a named datatype, not data",
)
file_case(
    "array_type_of_2_to_28_values",
    lambda demo, file: low_level(
        demo, "x", (FRAMES,), dtype=h5py.h5t.array_create(h5py.h5t.NATIVE_FLOAT, (1 << 14, 1 << 14))
    ),
    says="the limit is 67108864",
)
file_case(
    "string_of_2_to_31_bytes",
    lambda demo, file: low_level(demo, "x", (FRAMES,), dtype=fixed_string((1 << 31) - 1)),
    says="the limit is 67108864",
)
file_case(
    "bool_that_is_neither",
    lambda demo, file: demo.create_dataset("x", data=np.full(FRAMES, 7, "u1").view(bool)),
    codes=LOST,
    command=KEEP,
)
file_case(
    "text_that_is_not_utf8",
    lambda demo, file: demo.create_dataset("x", (FRAMES,), h5py.string_dtype("ascii")).write_direct(
        np.array([b"\xff\xfe"] * FRAMES, object)
    ),
    says="row 0 is not UTF-8 text",
)
file_case(
    "fixed_text_that_is_not_utf8",
    lambda demo, file: demo.create_dataset("x", data=np.array([b"\xff\xfe"] * FRAMES, "S4")),
    says="row 0 is not UTF-8 text",
)


@case("hdf5", codes=LOST, says="bytes in the rows")
def one_text_40000_times(folder: Path) -> Path:
    with start(folder) as file:
        group = file["data"].create_group("demo_0")
        group["actions"] = np.zeros(40_000, "f4")
        group.create_dataset("text", (40_000,), h5py.string_dtype())
        group["text"][0] = "x" * 100_000
        file.flush()
        offset = group["text"].id.get_offset()
    path = folder / "demos.hdf5"
    content = bytearray(path.read_bytes())
    content[offset : offset + 640_000] = content[offset : offset + 16] * 40_000
    path.write_bytes(content)
    return path


@case("hdf5", codes=LOST, says="a string is not where its reference says")
def text_from_nowhere(folder: Path) -> Path:
    with start(folder) as file:
        group = demo(file)
        group.create_dataset("text", data=["a long enough text"] * FRAMES)
        file.flush()
        offset = group["text"].id.get_offset()
    path = folder / "demos.hdf5"
    content = bytearray(path.read_bytes())
    content[offset : offset + 4] = struct.pack("<I", 0xFFFFFFF0)
    path.write_bytes(content)
    return path


# Shapes and layouts.

file_case("scalars", lambda demo, file: demo.update({"x": 1.5, "y": "text"}), codes=(0,))
file_case(
    "no_values",
    lambda demo, file: demo.create_dataset("x", data=np.zeros((FRAMES, 0))),
    codes=(0, 3),
)
file_case("null_space", lambda demo, file: demo.update({"x": h5py.Empty("f4")}), codes=(0,))
file_case(
    "unequal_lengths",
    lambda demo, file: demo.create_dataset("obs/x", data=np.zeros(FRAMES - 1)),
    says="has 7 frames, but `num_samples` says 8",
)
file_case(
    "num_samples_of_2_to_63",
    lambda demo, file: demo.attrs.create("num_samples", np.uint64(1 << 63)),
    says="the limit is 4294967294 per stream",
)
file_case(
    "num_samples_below_zero",
    lambda demo, file: demo.attrs.create("num_samples", -5),
    codes=(0,),
)
file_case(
    "demo_without_actions",
    lambda demo, file: demo.__delitem__("actions"),
    says="has no dataset `actions`",
)
file_case(
    "rate_of_nothing",
    lambda demo, file: file["data"].attrs.create(
        "env_args", json.dumps({"env_kwargs": {"control_freq": -1e308}})
    ),
    says="pass --rate HZ",
)
file_case(
    "mask_of_numbers",
    lambda demo, file: file.create_dataset("mask/train", data=np.arange(5)),
    says="is not a list of names",
)
file_case(
    "mask_of_2_to_40_names",
    lambda demo, file: low_level(
        file.create_group("mask"), "train", (1 << 40,), dtype=fixed_string(8)
    ),
    says="is not a list of names",
)


@case("hdf5", says="stores its values in another file")
def values_in_another_file(folder: Path) -> Path:
    with start(folder) as file:
        demo(file).create_dataset("x", (FRAMES,), "f4", external=[("/etc/passwd", 0, 4 * FRAMES)])
    return folder / "demos.hdf5"


@case("hdf5", says="is a virtual dataset")
def virtual_dataset(folder: Path) -> Path:
    with start(folder, "v114") as file:
        layout = h5py.VirtualLayout((FRAMES,), "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", (FRAMES,))
        demo(file).create_virtual_dataset("x", layout)
    return folder / "demos.hdf5"


@case("hdf5", codes=LOST)
def dataset_that_grows_along_two_axes(folder: Path) -> Path:
    with start(folder, "v114") as file:
        demo(file).create_dataset("x", data=np.zeros((FRAMES, 3)), maxshape=(None, None))
    return folder / "demos.hdf5"
