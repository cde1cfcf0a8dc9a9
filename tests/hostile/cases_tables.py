"""Tables, arrays and folders of images: CSV, npz, npy."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import PACK, Case, add

RATE = (*PACK, "--rate", "10")
KEEP = (*RATE, "--on-defect", "keep")
DROP = (*RATE, "--on-defect", "drop-episode")

#: Nanosecond timestamps that float64 cannot tell apart.
STAMPS = ("1700000000123456789", "1700000000123456790", "1700000000123456791")


def table(
    name: str,
    text: str | bytes,
    command: tuple[str, ...] = RATE,
    codes: tuple[int, ...] = (1,),
    says: str = "",
) -> None:
    """A case of one CSV file."""

    def build(folder: Path) -> Path:
        path = folder / "take.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    add(Case("tables", name, build, (command,), codes, says))


def rows(header: str, *cells: str) -> str:
    return header + "\n" + "".join(f"{number},{cell}\n" for number, cell in enumerate(cells))


# The type of a column: never a silent change.
table("csv_stamps_with_a_gap", rows("n,t", STAMPS[0], "", STAMPS[2]), says="no value on line 3")
table("csv_stamps_with_a_gap_kept", rows("n,t", STAMPS[0], "", STAMPS[2]), KEEP, (3,), "line 3")
table("csv_stamps_with_a_fraction", rows("n,t", *STAMPS, "0.5"), says="a fraction on line 5")
table("csv_small_numbers_with_a_gap", rows("n,x", "1", "", "3"), says="line 3")
table("csv_small_numbers_with_a_gap_kept", rows("n,x", "1", "", "3"), KEEP, (0,), "line 3")
table("csv_uint64", rows("n,x", "9223372036854775808", "1"), codes=(0,))
table("csv_over_uint64", rows("n,x", "18446744073709551616", "1"), says="line 2")
table("csv_negative_and_uint64", rows("n,x", "-1", "9223372036854775808"), says="uint64")
table("csv_leading_zeros", rows("n,x", "007", "012"), codes=(0,), says="leading zeros on line 2")
table("csv_overflow", rows("n,x", "0.5", "1e999"), says="line 3")
table("csv_overflow_kept", rows("n,x", "0.5", "1e999"), KEEP, (0,), "line 3")
table("csv_underflow", rows("n,x", "0.5", "1e-999"), says="line 3")
table("csv_infinity_as_a_word", rows("n,x", "inf", "-Infinity"), codes=(0,))
table("csv_nan", rows("n,x", "0.5", "nan"), says="NaN")
table("csv_bool", rows("n,x", "true", "False"), codes=(0,))
table("csv_bool_with_a_gap", rows("n,x", "true", ""), codes=(0,))
table("csv_number_and_text", rows("n,x", "1", "one"), codes=(0,))
table("csv_empty_column", rows("n,x", "", ""), says="NaN")
table("csv_pandas_index", ",x\n0,1.5\n1,2.5\n", codes=(0,), says="named `index`")
# The shape of a file.
table("csv_unnamed_column", "a,,b\n0,1,2\n1,2,3\n", codes=(0,), says="named `column_1`")
table("csv_two_of_a_name", "a,a\n0,1\n1,2\n", says="two columns")
table("csv_two_of_a_name_kept", "a,a\n0,1\n1,2\n", KEEP, (0,), "a.1")
table("csv_bom_and_crlf", b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4\r\n", codes=(0,))
table("csv_quotes", 'a,b\n1,"x, ""y""\nz"\n2,w\n', codes=(0,))
table("csv_open_quote", 'a,b\n1,"x\n2,w\n', codes=(0,))
table("csv_latin_1", b"a,b\n1,\xe9\n2,x\n")
table("csv_ragged", "a,b\n1,2\n3\n")
table("csv_nul_bytes", b"a,b\n1,\0\n2,\0\n", codes=(0,))
table("csv_no_rows", "a,b\n")
table("csv_empty", "")
table("csv_only_newlines", "\n" * 100_000)
table("csv_binary", bytes(range(256)) * 64)
table("csv_name_dots", "a,..\n1,2\n3,4\n", says="not a valid stream name")
table("csv_name_dots_kept", "a,..\n1,2\n3,4\n", KEEP, (0,), "renamed to `_`")
table("csv_name_control", "a,\x1b]0;x\x07\n1,2\n3,4\n", KEEP, (0,))
table("csv_name_long", "a," + "x" * 70_000 + "\n1,2\n3,4\n", KEEP, (0,))
table("csv_name_backslash", "a,b\\c\n1,2\n3,4\n", says="not a valid stream name")
table(
    "csv_60000_columns",
    ",".join(f"c{number}" for number in range(60_000)) + ("\n" + ",".join(["1"] * 60_000)) * 2,
    says="60000 streams",
)
table(
    "csv_4000_columns",
    ",".join(f"c{number}" for number in range(4_000)) + ("\n" + ",".join(["1"] * 4_000)) * 20,
    codes=(0,),
)
table("csv_cell_of_18_mb", "a,b\n1," + "x" * (18 << 20) + "\n2,y\n", says="a row of more than")
table("csv_text_of_2_mb", "a,b\n1," + "x" * (2 << 20) + "\n2,y\n", says="a text of 2097152 bytes")
table(
    "csv_text_of_2_mb_kept",
    "a,b\n1," + "x" * (2 << 20) + "\n2,y\n",
    KEEP,
    (1,),
    "no episode can be",
)
table("csv_4_million_rows", b"a\n" + b"1\n" * 4_000_000, codes=(0,))
table("csv_rate_too_high", "a\n1\n2\n", (*PACK, "--rate", "1e12"), says="rate")
table(
    "csv_rate_of_nothing",
    "a\n1\n2\n",
    (*PACK, "--rate", "1e-9", "--on-defect", "keep"),
    says="rate",
)
table("csv_time_goes_back", "time_s,a\n1,1\n0,2\n", PACK, says="goes back")
table("csv_time_overflows", "time_s,a\n1,1\n1e300,2\n", PACK, says="time")


def add_case(
    name: str,
    build: Callable[[Path], Path],
    command: tuple[str, ...] = RATE,
    codes: tuple[int, ...] = (1,),
    says: str = "",
) -> None:
    add(Case("tables", name, build, (command,), codes, says))


def of_three(odd: Callable[[Path], None]) -> Callable[[Path], Path]:
    """Three episodes, the second of them odd."""

    def build(folder: Path) -> Path:
        source = folder / "takes"
        source.mkdir()
        for number in range(3):
            path = source / f"take_{number}.csv"
            path.write_text("x,y\n1,2.5\n3,4.5\n")
            if number == 1:
                odd(path)
        return source

    return build


add_case(
    "csv_one_of_another_type",
    of_three(lambda path: path.write_text("x,y\n1,a\n2,b\n")),
    says="in 2 other episodes",
)
add_case(
    "csv_one_of_another_type_kept",
    of_three(lambda path: path.write_text("x,y\n1,a\n2,b\n")),
    KEEP,
    (3,),
    "stream `y`",
)
add_case(
    "csv_one_of_another_type_dropped",
    of_three(lambda path: path.write_text("x,y\n1,a\n2,b\n")),
    DROP,
    (3,),
    "take_1",
)
add_case(
    "csv_one_ragged_kept", of_three(lambda path: path.write_text("x,y\n1\n")), KEEP, (3,), "take_1"
)
add_case("csv_one_empty_kept", of_three(lambda path: path.write_text("")), KEEP, (3,), "take_1")
add_case(
    "csv_one_of_a_long_id",
    of_three(lambda path: path.rename(path.with_name("x" * 240 + "\n.csv"))),
    KEEP,
    (0,),
    "control",
)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


add_case("csv_pipe", of_three(pipe), says="pipe")
add_case("csv_link_to_a_device", of_three(device), says="link")


# Arrays.


def npy(header: str, body: bytes = b"", version: int = 1) -> bytes:
    """An npy file with an arbitrary header."""
    text = header.encode("latin-1")
    size = struct.pack("<H", len(text)) if version == 1 else struct.pack("<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + body


def says(shape: object, descr: str = "'<f4'", fortran: bool = False) -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def array(
    name: str, file: bytes, codes: tuple[int, ...] = (1,), command: tuple[str, ...] = RATE
) -> None:
    def build(folder: Path) -> Path:
        episode = folder / "takes" / "take_0"
        episode.mkdir(parents=True)
        (episode / "x.npy").write_bytes(file)
        return episode.parent

    add_case(f"npy_{name}", build, command, codes)


def saved(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


array("shape_of_terabytes", npy(says((1 << 40, 1 << 20)), b"\0" * 64))
array("shape_overflows", npy(says((1 << 62, 1 << 62, 1 << 62)), b"\0" * 64))
array("shape_negative", npy(says((-5, 3)), b"\0" * 64))
array("shape_deep", npy(says("(" * 5000 + ")" * 5000), b"\0" * 64))
array("header_of_4_gib", b"\x93NUMPY\x02\0\xff\xff\xff\xff" + b" " * 1000)
array("header_is_code", npy("__import__('os').system('true')\n"))
array("no_header", b"\x93NUMPY")
array("other_magic", b"PK\x03\x04" + b"\0" * 100)
array("objects", saved(np.array([{"a": 1}, None], dtype=object)))
array("records", saved(np.zeros(4, dtype=[("a", "f4"), ("b", "i2")])))
array("complex", saved(np.zeros((4, 2), dtype=np.complex64)))
array("dates", saved(np.zeros(4, dtype="datetime64[ns]")))
array("no_axes", saved(np.array(1.0)))
array("no_frames", saved(np.zeros((0, 3), dtype=np.float32)))
array("frames_of_nothing", saved(np.zeros((5, 0), dtype=np.float32)), (0, 1))
array("bool_of_other_bytes", npy(says((4,), "'|b1'"), bytes([0, 1, 2, 255])))
array("text_not_unicode", npy(says((2,), "'<U1'"), struct.pack("<2I", 0x110000, 0xD800)))
array("big_endian", saved(np.arange(12, dtype=">f4").reshape(4, 3)), (0,))
array("fortran", saved(np.asfortranarray(np.arange(12.0).reshape(4, 3))), (0,))
array("cut_short", saved(np.zeros((100, 10)))[:-8])
array("frames_of_300_mib", npy(says((2, 75 << 20))), (1,))


def sparse_array(folder: Path) -> Path:
    episode = folder / "takes" / "take_0"
    episode.mkdir(parents=True)
    with (episode / "x.npy").open("wb") as file:
        file.write(npy(says((1 << 38,))))
        file.truncate(1 << 40)
    return episode.parent


add_case("npy_sparse_terabyte", sparse_array, says="sparse")


def npz(
    name: str,
    make: Callable[[Path], None],
    codes: tuple[int, ...] = (1,),
    command: tuple[str, ...] = RATE,
    text: str = "",
) -> None:
    def build(folder: Path) -> Path:
        path = folder / "take.npz"
        make(path)
        return path

    add_case(f"npz_{name}", build, command, codes, text)


def members(path: Path, *files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, body in files:
            archive.writestr(name, body)


def zeros_member(path: Path, mib: int) -> None:
    """An array of zeros, compressed to a thousandth of its size."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy(says((mib * 64, 4096))))
        for _ in range(mib):
            file.write(bytes(1 << 20))


def flip(path: Path, at: int) -> None:
    body = bytearray(path.read_bytes())
    body[at] ^= 0xFF
    path.write_bytes(body)


good = saved(np.arange(12, dtype=np.float32).reshape(4, 3))
npz("bomb", lambda path: zeros_member(path, 400), (0, 1))
npz("names_that_lead_out", lambda path: members(path, ("../../x.npy", good), ("y.npy", good)))
npz(
    "names_that_lead_out_kept",
    lambda path: members(path, ("../../x.npy", good), ("y.npy", good)),
    (0,),
    KEEP,
)
npz("name_is_empty", lambda path: members(path, (".npy", good), ("y.npy", good)), (0,), KEEP)
npz(
    "cut_short",
    lambda path: (members(path, ("x.npy", good)), path.write_bytes(path.read_bytes()[:-30])),
)
npz("no_zip", lambda path: path.write_bytes(b"PK\x05\x06" + b"\xff" * 18))
npz(
    "a_flipped_byte",
    lambda path: (members(path, ("x.npy", good), method=zipfile.ZIP_STORED), flip(path, 140)),
    (0, 1),
)
npz("a_flipped_byte_deflated", lambda path: (members(path, ("x.npy", good)), flip(path, 60)))
npz("pickle", lambda path: members(path, ("x.npy", saved(np.array([{"a": 1}], dtype=object)))))
npz("no_members", members)
npz(
    "20000_members",
    lambda path: members(path, *((f"a{number}.npy", b"") for number in range(20_000)), method=0),
)


def two_of_a_name(path: Path) -> None:
    other = saved(np.zeros((4, 3), dtype=np.float32))
    members(path, ("x.npy", good), ("y.npy", other), method=0)
    path.write_bytes(path.read_bytes().replace(b"y.npy", b"x.npy"))


npz("two_of_a_name", two_of_a_name, (0, 1))


# Images.


def png(width: int, height: int, body: bytes | None = None) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    if body is None:
        body = zlib.compress((b"\0" + b"\x40" * width) * height)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def images(
    name: str,
    second: bytes,
    codes: tuple[int, ...] = (1,),
    command: tuple[str, ...] = RATE,
    text: str = "",
) -> None:
    """Two episodes of three images; the second image of the second is odd."""

    def build(folder: Path) -> Path:
        for episode in range(2):
            camera = folder / "takes" / f"take_{episode}" / "front"
            camera.mkdir(parents=True)
            for frame in range(3):
                is_odd = (episode, frame) == (1, 1)
                (camera / f"{frame}.png").write_bytes(second if is_odd else png(8, 6))
        return folder / "takes"

    add_case(f"images_{name}", build, command, codes, text)


images("broken", png(8, 6)[:-20], text="episode `take_1`")
images("broken_dropped", png(8, 6)[:-20], (3,), DROP, "take_1")
images("broken_kept", png(8, 6)[:-20], (3,), KEEP, "take_1")
images("of_another_size", png(8, 7), (3,), KEEP, "size differs from the first")
images("a_bomb", png(60_000, 60_000, zlib.compress(bytes(1 << 20))), (3,), KEEP)
images("a_body_that_lies", png(8, 6, zlib.compress(bytes(64 << 20))), (3, 0), KEEP)
images("not_an_image", b"GIF89a" + b"\0" * 40, (3,), KEEP)
images("empty", b"", (3,), KEEP)


def first_is_huge(folder: Path) -> Path:
    camera = folder / "takes" / "take_0" / "front"
    camera.mkdir(parents=True)
    (camera / "0.png").write_bytes(png(30_000, 30_000, zlib.compress(bytes(1 << 20))))
    return folder / "takes"


add_case("images_first_is_huge", first_is_huge)
