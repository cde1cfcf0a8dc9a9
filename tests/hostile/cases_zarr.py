"""Replay buffers in zarr version 2: folders and zip files."""

from __future__ import annotations

import gzip
import json
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

#: The keys of a store.
Store = dict[str, bytes]

X = np.arange(20, dtype="<f4").reshape(10, 2)


def meta(
    shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str = "<f4", **more: object
) -> bytes:
    said: dict[str, object] = {
        "zarr_format": 2,
        "shape": shape,
        "chunks": chunks,
        "dtype": dtype,
        "compressor": None,
        "fill_value": 0,
        "filters": None,
        "order": "C",
    }
    return json.dumps(said | more).encode()


def buffer(ends: np.ndarray | None = None) -> Store:
    """A valid replay buffer of two episodes."""
    ends = np.array([4, 10], dtype="<i8") if ends is None else ends
    group = json.dumps({"zarr_format": 2}).encode()
    return {
        ".zgroup": group,
        "data/.zgroup": group,
        "meta/.zgroup": group,
        "meta/episode_ends/.zarray": meta(ends.shape, (max(len(ends), 1),), ends.dtype.str),
        "meta/episode_ends/0": ends.tobytes(),
        "data/x/.zarray": meta(X.shape, X.shape),
        "data/x/0.0": X.tobytes(),
    }


def write(store: Store, root: Path) -> Path:
    for key, body in store.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return root


def case(
    name: str,
    change: Callable[[Store], object],
    codes: tuple[int, ...] = (1,),
    command: tuple[str, ...] = RATE,
    says: str = "",
) -> None:
    """A buffer in a folder, with something changed."""

    def build(folder: Path) -> Path:
        store = buffer()
        changed = change(store)
        return write(changed if isinstance(changed, dict) else store, folder / "replay.zarr")

    add(Case("zarr", name, build, (command,), codes, says))


def x(
    shape: tuple[int, ...] = X.shape,
    chunks: tuple[int, ...] = X.shape,
    body: bytes | Callable[[], bytes] | None = None,
    dtype: str = "<f4",
    **more: object,
) -> Callable[[Store], None]:
    """Another array `x`."""

    def change(store: Store) -> None:
        store["data/x/.zarray"] = meta(shape, chunks, dtype, **more)
        if body is not None:
            store["data/x/0.0"] = body if isinstance(body, bytes) else body()

    return change


def zeros(mib: int) -> bytes:
    packer = zlib.compressobj(1)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(mib)) + packer.flush()


ZLIB = {"id": "zlib", "level": 1}
case("valid", lambda store: None, (0,))
case(
    "piece_of_a_gibibyte",
    x((10, 1 << 25), (10, 1 << 25), zlib.compress(bytes(1000)), compressor=ZLIB),
    says="128 MiB",
)
case(
    "piece_of_65_mib_of_zeros",
    x((10, 13 << 17), (10, 13 << 17), lambda: zeros(65), compressor=ZLIB),
    (0, 1),
)
case("piece_longer_than_it_says", x(body=lambda: zeros(64), compressor=ZLIB))
case("piece_shorter_than_it_says", x(body=zlib.compress(bytes(10)), compressor=ZLIB))
case("piece_is_noise", x(body=os.urandom(80), compressor=ZLIB))
case("piece_raw_too_long", x(body=bytes(4 << 20)))
case("piece_raw_too_short", x(body=bytes(7)))
case("gzip_without_an_end", x(body=gzip.compress(X.tobytes())[:-6], compressor={"id": "gzip"}))
case("gzip_flags", x(body=b"\x1f\x8b\x08\xff" + bytes(60), compressor={"id": "gzip"}))
case(
    "zstd_claims_exabytes",
    x(body=b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 20, compressor={"id": "zstd"}),
)
case("lz4_claims_4_gib", x(body=b"\xff\xff\xff\xff" + b"\xff" * 40, compressor={"id": "lz4"}))


def blosc(length: int, block: int, stored: int, flags: int = 0x21, start: int = 20) -> bytes:
    return struct.pack("<BBBBIIII", 2, 1, flags, 4, length, block, stored, start) + b"\x01" * 80


BLOSC = {"id": "blosc", "cname": "lz4"}
case("blosc_other_length", x(body=blosc(1 << 31, 80, 100), compressor=BLOSC))
case("blosc_block_of_nothing", x(body=blosc(80, 0, 100), compressor=BLOSC))
case("blosc_block_of_4_gib", x(body=blosc(80, 0xFFFFFFFF, 100), compressor=BLOSC))
case("blosc_starts_outside", x(body=blosc(80, 80, 100, start=0xFFFFFF00), compressor=BLOSC))
case("blosc_unknown_codec", x(body=blosc(80, 80, 100, flags=0xE1), compressor=BLOSC))
case("blosc_snappy", x(body=blosc(80, 80, 100, flags=0x41), compressor=BLOSC))
case("blosc_header_only", x(body=b"\x02\x01\x21\x04", compressor=BLOSC))
case(
    "jpegxl_is_noise",
    x((10, 8, 8, 3), (1, 8, 8, 3), os.urandom(90), "|u1", compressor={"id": "imagecodecs_jpegxl"}),
)
case("compressor_unknown", x(compressor={"id": "pickle"}), says="pickle")
case("compressor_is_a_list", x(compressor=[[[]]]))
case("filter_pickle", x(dtype="|O", filters=[{"id": "pickle"}]), says="pickle")
case("filter_delta_of_floats", x(filters=[{"id": "delta", "dtype": "<f4"}]))
case(
    "texts_are_noise",
    x((10,), (10,), os.urandom(90), "|O", filters=[{"id": "vlen-utf8"}], fill_value=""),
    (0, 1, 3),
)
case("shape_of_exarows", x((1 << 60, 2), (1 << 40, 2)))
case("shape_overflows", x((1 << 62, 1 << 62), (1, 1)))
case("shape_negative", x((-10, 2), (10, 2)))
case(
    "shape_of_floats",
    lambda store: store.update(
        {"data/x/.zarray": meta((10, 2), (10, 2)).replace(b"[10, 2]", b"[1e1, 2]")}
    ),
)
case("shape_of_40_axes", x((10,) + (1,) * 40, (10,) + (1,) * 40))
case("pieces_of_nothing", x(chunks=(0, 2)))
case("a_billion_absent_pieces", x((10, 1 << 26), (1, 1)))
case("dtype_of_2_gib", x(dtype="|S2147483647"))
case("dtype_is_odd", x(dtype="<f16"))
case("dtype_is_records", x(dtype="[('a', '<f4')]"))
case("fill_is_text", x(fill_value="zero"))
case(
    "fill_nan",
    lambda store: (x(fill_value="NaN")(store), store.pop("data/x/0.0")),
    says="none of its chunks",
)
case("piece_is_absent", lambda store: store.pop("data/x/0.0"), says="none of its chunks")
case("piece_is_absent_kept", lambda store: store.pop("data/x/0.0"), (1,), KEEP)
case("order_f", x(body=np.asfortranarray(X).tobytes("F"), order="F"), (0,))
case("big_endian", x(body=X.astype(">f4").tobytes(), dtype=">f4"), (0,))
case("zarray_is_not_json", lambda store: store.update({"data/x/.zarray": b"{" * 100_000}))
case(
    "zarray_is_deep",
    lambda store: store.update({"data/x/.zarray": b"[" * 100_000 + b"]" * 100_000}),
)
case(
    "zarray_of_20_mb",
    lambda store: store.update({"data/x/.zarray": b'{"a": [' + b"0," * (10 << 20) + b"0]}"}),
)
case(
    "zattrs_of_10_mb",
    lambda store: store.update({"data/x/.zattrs": json.dumps({"a": "x" * (10 << 20)}).encode()}),
    (0, 1, 3),
    KEEP,
)
case("zarr_3", lambda store: {"zarr.json": b'{"zarr_format": 3, "node_type": "group"}'})
case(
    "name_of_newlines",
    lambda store: store.update(
        {"data/a\nb/.zarray": store["data/x/.zarray"], "data/a\nb/0.0": store["data/x/0.0"]}
    ),
)
case(
    "name_of_newlines_kept",
    lambda store: store.update(
        {"data/a\nb/.zarray": store["data/x/.zarray"], "data/a\nb/0.0": store["data/x/0.0"]}
    ),
    (0,),
    KEEP,
)
case("ends_go_back", lambda store: buffer(np.array([8, 4, 10])))
case("ends_beyond_the_rows", lambda store: buffer(np.array([4, 1 << 62])))
case("ends_negative", lambda store: buffer(np.array([-4, 10])))
case("ends_are_floats", lambda store: buffer(np.array([4.5, np.nan])))
case("ends_are_nothing", lambda store: buffer(np.array([], dtype="<i8")))
case(
    "ends_many_of_nothing",
    lambda store: buffer(np.r_[np.zeros(100_000, dtype="<i8"), 10]),
    (0, 1, 3),
    KEEP,
)
case(
    "no_meta",
    lambda store: {key: body for key, body in store.items() if not key.startswith("meta")},
)
case("other_number_of_rows", x((9, 2), (9, 2), X[:9].tobytes()))


def pipe(folder: Path) -> Path:
    root = write(buffer(), folder / "replay.zarr")
    (root / "data/x/0.0").unlink()
    os.mkfifo(root / "data/x/0.0")
    return root


def link_out(folder: Path) -> Path:
    root = write(buffer(), folder / "replay.zarr")
    (folder / "secret").write_bytes(X.tobytes())
    (root / "data/x/0.0").unlink()
    (root / "data/x/0.0").symlink_to(folder / "secret")
    return root


def piece_is_a_folder(folder: Path) -> Path:
    root = write(buffer(), folder / "replay.zarr")
    (root / "data/x/0.0").unlink()
    (root / "data/x/0.0").mkdir()
    return root


def loop(folder: Path) -> Path:
    root = write(buffer(), folder / "replay.zarr")
    (root / "data/loop").symlink_to(root / "data")
    return root


for build, said in (
    (pipe, "pipe"),
    (link_out, "link out of the source"),
    (piece_is_a_folder, ""),
    (loop, ""),
):
    add(Case("zarr", build.__name__, build, (RATE,), (0, 1), said))


# In a zip file.


def zipped(
    name: str,
    make: Callable[[Path], None],
    codes: tuple[int, ...] = (1,),
    command: tuple[str, ...] = RATE,
    says: str = "",
) -> None:
    def build(folder: Path) -> Path:
        path = folder / "replay.zarr.zip"
        make(path)
        return path

    add(Case("zarr", f"zip_{name}", build, (command,), codes, says))


def pack(path: Path, store: Store, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for key, body in store.items():
            archive.writestr(key, body)


def bomb(path: Path) -> None:
    """A deflated member of 200 MiB instead of 80 bytes."""
    store = buffer()
    store.pop("data/x/0.0")
    pack(path, store)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("data/x/0.0", "w") as file,
    ):
        for _ in range(200):
            file.write(bytes(1 << 20))


def leads_out(path: Path) -> None:
    pack(path, buffer() | {"../../x": b"1", "/etc/x": b"1", "data/../../y": b"2"})


def two_of_a_key(path: Path) -> None:
    store = buffer()
    pack(path, store | {"data/x/9.9": bytes(80)})
    path.write_bytes(path.read_bytes().replace(b"data/x/9.9", b"data/x/0.0"))


def lying(at: int, value: bytes) -> Callable[[Path], None]:
    """A lie in the end header, at an offset from the end."""

    def make(path: Path) -> None:
        pack(path, buffer())
        body = bytearray(path.read_bytes())
        body[len(body) - at : len(body) - at + len(value)] = value
        path.write_bytes(body)

    return make


def wrong_checksum(path: Path) -> None:
    pack(path, buffer())
    body = path.read_bytes()
    path.write_bytes(body.replace(X.tobytes(), X[::-1].tobytes()))


zipped("valid", lambda path: pack(path, buffer()), (0,))
zipped("sound_deflated", lambda path: pack(path, buffer(), zipfile.ZIP_DEFLATED), (0,))
zipped("bomb", bomb, says="expected")
zipped("leads_out", leads_out, (0, 1))
zipped("two_of_a_key", two_of_a_key, (0, 1))
zipped("list_beyond_the_end", lying(6, b"\xff\xff\xff\x7f"))
# The reader goes by the number of entries and their own lengths, so that this size is never used.
zipped("list_of_4_gib", lying(10, b"\xff\xff\xff\xff"), (0,))
zipped("count_lies", lying(12, b"\xff\x7f"))
zipped("wrong_checksum", wrong_checksum, says="checksum")
zipped("cut_short", lambda path: (pack(path, buffer()), path.write_bytes(path.read_bytes()[:-100])))
zipped("bzip2", lambda path: pack(path, buffer(), zipfile.ZIP_BZIP2), says="method")
zipped(
    "20000_keys",
    lambda path: pack(path, buffer() | {f"data/x/{n}.7": b"" for n in range(20_000)}),
    (0, 1, 3),
)
