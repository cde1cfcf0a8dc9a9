"""HDF5 files that lie: links, attributes, sizes, filters, types, names, and bytes that are not what they say.

Most are written by h5py; what h5py does not write is patched into the file afterwards.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from harness import MIB, PACK, Case, add, case

ENV_ARGS = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20}})
FRAMES = 8
#: Packs everything that can be kept.
KEEP = (*PACK, "--on-defect", "keep")
#: Refused, or packed with what was lost listed.
LOST = (1, 3)


def start(folder: Path, libver: str = "earliest", **options: Any) -> h5py.File:
    """A recording of robomimic's layout without a demo."""
    file = h5py.File(folder / "demos.hdf5", "w", libver=libver, **options)
    file.create_group("data").attrs["env_args"] = ENV_ARGS
    return file


def demo(file: h5py.File, name: str = "demo_0") -> h5py.Group:
    """A good demo."""
    group = file["data"].create_group(name)
    group.attrs["num_samples"] = FRAMES
    group["actions"] = np.arange(FRAMES * 2.0).reshape(FRAMES, 2)
    group["obs/joints"] = np.arange(FRAMES * 3.0).reshape(FRAMES, 3)
    return group


def file_case(
    name: str,
    fill: Callable[[h5py.Group, h5py.File], object],
    *,
    libver: str = "earliest",
    codes: tuple[int, ...] = (1,),
    says: str = "",
    command: tuple[str, ...] = PACK,
) -> None:
    """Registers a file with one good demo to which `fill` adds something."""

    def build(folder: Path) -> Path:
        with start(folder, libver) as file:
            fill(demo(file), file)
        return folder / "demos.hdf5"

    add(Case("hdf5", name, build, (command,), codes, says))


def patched(
    name: str,
    change: Callable[[bytearray], object],
    *,
    libver: str = "earliest",
    fill: Callable[[h5py.Group, h5py.File], object] = lambda demo, file: None,
    codes: tuple[int, ...] = (1,),
    says: str = "",
) -> None:
    """Registers a file whose bytes are changed after h5py has written it."""

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


# Links.

for style in ("earliest", "v114"):
    file_case(
        f"soft_link_to_nothing_{style}",
        lambda demo, file: demo.update({"obs/x": h5py.SoftLink("/nowhere")}),
        libver=style,
        says="/data/demo_0/obs/x: is a soft link to `/nowhere`, which does not exist",
    )
    file_case(
        f"soft_link_to_itself_{style}",
        lambda demo, file: demo.update({"obs/x": h5py.SoftLink("x")}),
        libver=style,
        says="links that lead to each other",
    )
    file_case(
        f"hard_link_to_the_group_above_{style}",
        lambda demo, file: demo.update({"obs/above": file["data"]}),
        libver=style,
        says="is a link to a group that contains it",
    )
    file_case(
        f"external_link_to_nothing_{style}",
        lambda demo, file: demo.update({"obs/x": h5py.ExternalLink("no.h5", "/x")}),
        libver=style,
        says="is an external link to `/x` of `no.h5`, which is not there",
    )
    file_case(
        f"demo_behind_a_dangling_link_{style}",
        lambda demo, file: file.update({"data/demo_1": h5py.SoftLink("/real/demo_1")}),
        libver=style,
        command=KEEP,
        codes=(3,),
        says="/data/demo_1",
    )
file_case(
    "external_link_to_a_secret",
    lambda demo, file: demo.update({"obs/x": h5py.ExternalLink("/etc/passwd", "/x")}),
    says="outside the folder of the recording",
)
file_case(
    "external_link_up_and_out",
    lambda demo, file: demo.update({"obs/x": h5py.ExternalLink("../../../../etc/passwd", "/x")}),
    says="outside the folder of the recording",
)
file_case(
    "external_link_to_a_device",
    lambda demo, file: demo.update({"obs/x": h5py.ExternalLink("/dev/zero", "/x")}),
    says="outside the folder of the recording",
)
file_case(
    "external_link_to_itself",
    lambda demo, file: demo.update({"obs/x": h5py.ExternalLink("demos.hdf5", "/data")}),
    says="is a link to a group that contains it",
)


@case("hdf5", says="a named pipe")
def external_link_to_a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.h5")
    with start(folder) as file:
        demo(file)["obs/x"] = h5py.ExternalLink("pipe.h5", "/x")
    return folder / "demos.hdf5"


@case("hdf5", says="more than")
def soft_links_that_multiply(folder: Path) -> Path:
    """Each link passes the one before it many times."""
    with start(folder, "v114") as file:
        group = demo(file)
        group["l0"] = h5py.SoftLink(".")
        for level in range(12):
            group[f"l{level + 1}"] = h5py.SoftLink("/".join([f"l{level}"] * 200))
    return folder / "demos.hdf5"


def bush(levels: int, fan: int, leaf: Callable[[h5py.Group], object]) -> Callable[[Path], Path]:
    """Groups that all link to the same next one, several times."""

    def build(folder: Path) -> Path:
        with start(folder) as file:
            demo(file)
            below = file.create_group("leaf")
            leaf(below)
            for level in range(levels):
                group = file.create_group(f"level_{level}")
                for branch in range(fan):
                    group[f"b{branch}"] = below
                below = group
            file["data/demo_0/obs/bush"] = below
        return folder / "demos.hdf5"

    return build


def with_attribute(group: h5py.Group) -> None:
    group.attrs["a"] = np.zeros(60_000, "u1")


for levels, fan in ((12, 3), (15, 2), (4, 60)):
    add(
        Case(
            "hdf5",
            f"bush_of_{levels}_levels_{fan}_links",
            bush(levels, fan, with_attribute),
            says="links lead to the same objects over and over",
        )
    )
add(
    Case(
        "hdf5",
        "bush_of_datasets",
        bush(13, 3, lambda group: group.create_dataset("x", data=np.zeros((FRAMES, 100)))),
        says="links lead to the same objects over and over",
    )
)


@case("hdf5", codes=(3,), commands=(KEEP,), says="is deeper than 16 groups")
def groups_in_groups(folder: Path) -> Path:
    with start(folder) as file:
        demo(file).create_group("/".join(["g"] * 200))
    return folder / "demos.hdf5"


# Attributes.


def huge_attribute(demo: h5py.Group, file: h5py.File) -> None:
    demo.attrs["huge"] = np.zeros(16 * MIB, "u1")


file_case(
    "attribute_of_16_mib", huge_attribute, libver="v114", says="attributes of more than 4 MiB"
)
file_case(
    "attribute_of_16_mib_kept",
    huge_attribute,
    libver="v114",
    command=KEEP,
    codes=(3,),
    says="4 MiB",
)
file_case(
    "attribute_of_16_mib_of_text",
    lambda demo, file: demo.attrs.create("huge", "x" * (16 * MIB)),
    says="attributes of more than 4 MiB",
)
file_case(
    "attribute_of_json_that_swells",
    lambda demo, file: demo.attrs.create("json", "[" + "0," * 1_900_000 + "0]"),
    says="more than 4 MiB of them",
)
file_case(
    "attribute_of_deep_json",
    lambda demo, file: demo.attrs.create("json", "[" * 60_000 + "]" * 60_000),
    codes=(0,),
)
file_case(
    "attribute_that_is_not_utf8",
    lambda demo, file: demo.attrs.create("a", b"\xff\xfe", dtype=h5py.string_dtype()),
    says="is an attribute of text that is not UTF-8",
)
file_case(
    "attribute_of_a_compound",
    lambda demo, file: demo.attrs.create("a", np.zeros(3, [("x", "f4"), ("y", "i8")])),
    says="no form in JSON",
)
file_case(
    "attribute_of_references",
    lambda demo, file: demo.attrs.create("a", demo.ref, dtype=h5py.ref_dtype),
    says="no form in JSON",
)
file_case(
    "attribute_of_arrays_of_any_length",
    lambda demo, file: demo.attrs.create(
        "a", np.array([np.arange(3), np.arange(2)], object), dtype=h5py.vlen_dtype("i4")
    ),
    codes=LOST,
)
file_case(
    "attributes_1000",
    lambda demo, file: [demo.attrs.create(f"a{n}", n) for n in range(1000)],
    libver="v114",
    codes=(0,),
)


def shared_text(demo: h5py.Group, file: h5py.File) -> None:
    """One long text that 3000 places of an attribute name."""
    demo.attrs.create("texts", ["x" * 1_000_000] + [""] * 3000, dtype=h5py.string_dtype())


def share(content: bytearray) -> None:
    """Every reference becomes the first."""
    empty = struct.pack("<I", 0)
    first = content.find(struct.pack("<I", 1_000_000))
    reference = content[first : first + 16]
    for number in range(1, 3001):
        place = first + 16 * number
        if content[place : place + 4] == empty:
            content[place : place + 16] = reference


patched("attribute_of_one_text_3000_times", share, fill=shared_text, says="4 MiB")

# Sizes that are not there.

ROWS = {"2_to_32_less_2": (1 << 32) - 2, "2_to_40": 1 << 40, "2_to_60": 1 << 60}
for title, rows in ROWS.items():

    def unwritten(folder: Path, rows: int = rows) -> Path:
        with start(folder) as file:
            group = file["data"].create_group("demo_0")
            low_level(group, "actions", (rows,))
        return folder / "demos.hdf5"

    def unwritten_chunks(folder: Path, rows: int = rows) -> Path:
        with start(folder) as file:
            group = file["data"].create_group("demo_0")
            low_level(group, "actions", (rows,), chunk=(1024,))
        return folder / "demos.hdf5"

    says = "were never written" if rows < 1 << 32 else "the limit of a stream is 4294967294"
    add(Case("hdf5", f"unwritten_rows_{title}", unwritten, says=says))
    add(Case("hdf5", f"unwritten_chunks_{title}", unwritten_chunks, says=says))
file_case(
    "unwritten_chunk_of_1_gib",
    lambda demo, file: low_level(demo, "x", (FRAMES, 1 << 25), chunk=(FRAMES, 1 << 25)),
    says="the limit is 16777216, a quarter of the memory",
)
file_case(
    "unwritten_frames_of_256_mib",
    lambda demo, file: low_level(demo, "x", (FRAMES, 1 << 26)),
    says="has frames of 268435456 bytes, the limit is 67108864",
)
file_case(
    "unwritten_frames_of_32_mib",
    lambda demo, file: low_level(demo, "x", (FRAMES, 1 << 23)),
    says="were never written, or many links lead to them",
)
file_case(
    "frame_of_2_to_56_values",
    lambda demo, file: low_level(demo, "x", (FRAMES, 1 << 28, 1 << 28)),
    says="the limit is 67108864",
)
file_case(
    "chunks_of_one_value",
    lambda demo, file: demo.create_dataset("x", data=np.zeros((FRAMES, 1000)), chunks=(1, 1)),
    codes=(0,),
)


@case("hdf5", says="many links lead to them")
def four_thousand_links_to_one_dataset(folder: Path) -> Path:
    with start(folder, "v114") as file:
        group = demo(file)
        group["x"] = np.zeros((FRAMES, 1 << 14), "f4")
        for number in range(4000):
            group[f"obs/l{number}"] = group["x"]
        # 4000 times half a mebibyte, of a file of one.
        for number in range(4):
            file[f"data/demo_{number + 1}"] = group
    return folder / "demos.hdf5"


@case("hdf5", says="has 5001 streams, the limit of an episode is 4096")
def datasets_5000(folder: Path) -> Path:
    with start(folder, "v114") as file:
        group = file["data"].create_group("demo_0")
        group["actions"] = np.zeros((2, 1), "f4")
        space = h5py.h5s.create_simple((2,))
        for number in range(5000):
            h5py.h5d.create(group.id, f"d{number}".encode(), h5py.h5t.NATIVE_FLOAT, space)
    return folder / "demos.hdf5"


@case("hdf5", codes=(0,))
def datasets_2000(folder: Path) -> Path:
    """Time must not grow with the square of their number."""
    with start(folder) as file:
        group = file["data"].create_group("demo_0")
        group["actions"] = np.zeros((2, 1), "f4")
        space = h5py.h5s.create_simple((2,))
        for number in range(2000):
            h5py.h5d.create(group.id, f"d{number}".encode(), h5py.h5t.NATIVE_FLOAT, space)
    return folder / "demos.hdf5"


@case("hdf5", codes=(0,))
def demos_500(folder: Path) -> Path:
    with start(folder) as file:
        for number in range(500):
            group = file["data"].create_group(f"demo_{number}")
            group["actions"] = np.zeros((2, 1), "f4")
    return folder / "demos.hdf5"


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
    import zlib

    with start(folder) as file:
        demo(file)
        group = demo(file, "demo_1")
        group.create_dataset("x", (FRAMES, 100), "f4", chunks=(FRAMES, 100), compression="gzip")
        packed = zlib.compress(bytes(64 * MIB), 9)
        group["x"].id.write_direct_chunk((0, 0), packed)
    return folder / "demos.hdf5"


@case("hdf5", codes=LOST, commands=(KEEP,))
def deflate_that_is_no_deflate(folder: Path) -> Path:
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
def filter_that_is_not_there(folder: Path) -> Path:
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


file_case("types_that_are_no_frames", types, command=KEEP, codes=(3,), says="holds compound values")
file_case("types_that_are_no_frames_refused", types, says="holds references")
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
    says="is a named type, not data",
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


def fixed_string(size: int) -> h5py.h5t.TypeID:
    made = h5py.h5t.C_S1.copy()
    made.set_size(size)
    return made


@case("hdf5", codes=LOST, says="bytes of text in the rows")
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
    says="has 7 frames, `num_samples` says 8",
)
file_case(
    "num_samples_of_2_to_63",
    lambda demo, file: demo.attrs.create("num_samples", np.uint64(1 << 63)),
    says="the limit of a stream is 4294967294",
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


@case("hdf5", says="keeps its values in another file")
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
patched("name_with_a_slash", rename(b"joints", b"jo/nts"), says="is not a name in HDF5")
patched("name_that_is_empty", rename(b"joints", b"\x00oints"), says="is not a name in HDF5")
patched(
    "name_that_is_a_dot", rename(b"joints\x00", b".\x00\x00\x00\x00\x00\x00"), says="is not a name"
)


def twice(content: bytearray) -> None:
    rename(b"second", b"joints")(content)


patched(
    "two_of_one_name",
    twice,
    fill=lambda demo, file: demo.create_dataset("obs/second", data=np.zeros(FRAMES)),
    says="is the second object of this name",
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
    "superblock_that_ends_beyond_the_file", put(40, struct.pack("<Q", 1 << 50)), says="is cut short"
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


patched("tree_that_contains_itself", lambda content: loop_tree(content))
patched("tree_of_level_200", field(b"TREE", 5, b"\xc8"))
patched("tree_with_65535_children", field(b"TREE", 6, b"\xff\xff"))
patched("node_with_65535_entries", field(b"SNOD", 6, b"\xff\xff"))
patched("heap_of_2_to_60_bytes", field(b"HEAP", 8, struct.pack("<Q", 1 << 60)))
patched("heap_far_away", field(b"HEAP", 24, struct.pack("<Q", 1 << 60)))
patched("no_trees", everywhere(b"TREE", b"EERT"))


def loop_tree(content: bytearray) -> None:
    place = content.find(b"TREE")
    content[place + 5] = 1
    content[place + 6 : place + 8] = struct.pack("<H", 1)
    content[place + 32 : place + 40] = struct.pack("<Q", place)


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
    """Every symbol of a group leads into the middle of the file."""
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


def lookup3(data: bytes) -> bytes:
    """HDF5's checksum of metadata, so that a changed superblock is a sound one."""
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


# What is no file.


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


@case("hdf5", says="leads out of the source")
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
