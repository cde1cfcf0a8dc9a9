"""HDF5 files whose links, attributes and sizes lie."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from harness import MIB, Case, add, case
from hdf5_files import FRAMES, KEEP, LOST, demo, file_case, low_level, patched, start

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
        says="or a cycle",
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
        says="is an external link to `/x` of `no.h5`, which does not exist",
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
    """Each link goes through the previous one many times."""
    with start(folder, "v114") as file:
        group = demo(file)
        group["l0"] = h5py.SoftLink(".")
        for level in range(12):
            group[f"l{level + 1}"] = h5py.SoftLink("/".join([f"l{level}"] * 200))
    return folder / "demos.hdf5"


def bush(levels: int, fan: int, leaf: Callable[[h5py.Group], object]) -> Callable[[Path], Path]:
    """Groups that all link to the same next group, several times."""

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


@case("hdf5", codes=(3,), commands=(KEEP,), says="is nested deeper than 16 groups")
def groups_in_groups(folder: Path) -> Path:
    with start(folder) as file:
        demo(file).create_group("/".join(["g"] * 200))
    return folder / "demos.hdf5"


# Attributes.


def huge_attribute(demo: h5py.Group, file: h5py.File) -> None:
    demo.attrs["huge"] = np.zeros(16 * MIB, "u1")


file_case(
    "attribute_of_16_mib", huge_attribute, libver="v114", says="more than 4 MiB of attributes"
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
    says="more than 4 MiB of attributes",
)
file_case(
    "attribute_of_json_that_swells",
    lambda demo, file: demo.attrs.create("json", "[" + "0," * 1_900_000 + "0]"),
    says="more than 4 MiB of attributes",
)
file_case(
    "attribute_of_deep_json",
    lambda demo, file: demo.attrs.create("json", "[" * 60_000 + "]" * 60_000),
    codes=(0,),
)
file_case(
    "attribute_that_is_not_utf8",
    lambda demo, file: demo.attrs.create("a", b"\xff\xfe", dtype=h5py.string_dtype()),
    says="is a text attribute that is not UTF-8",
)
file_case(
    "attribute_of_a_compound",
    lambda demo, file: demo.attrs.create("a", np.zeros(3, [("x", "f4"), ("y", "i8")])),
    says="JSON cannot represent",
)
file_case(
    "attribute_of_references",
    lambda demo, file: demo.attrs.create("a", demo.ref, dtype=h5py.ref_dtype),
    says="JSON cannot represent",
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
    """One long text, referenced 3000 times by an attribute."""
    demo.attrs.create("texts", ["x" * 1_000_000] + [""] * 3000, dtype=h5py.string_dtype())


def share(content: bytearray) -> None:
    """Every reference is replaced by the first."""
    empty = struct.pack("<I", 0)
    first = content.find(struct.pack("<I", 1_000_000))
    reference = content[first : first + 16]
    for number in range(1, 3001):
        place = first + 16 * number
        if content[place : place + 4] == empty:
            content[place : place + 16] = reference


patched("attribute_of_one_text_3000_times", share, fill=shared_text, says="4 MiB")

# Sizes without data.

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

    says = "were never written" if rows < 1 << 32 else "the limit is 4294967294 per stream"
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
    says="has frames of 268435456 bytes; the limit is 67108864",
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
        # 4000 times half a MiB, in a file of one MiB.
        for number in range(4):
            file[f"data/demo_{number + 1}"] = group
    return folder / "demos.hdf5"


@case("hdf5", says="has 5001 streams; the limit is 4096 per episode")
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
    """Time must not grow quadratically."""
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
