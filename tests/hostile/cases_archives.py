"""Tar files of samples (WebDataset, npz per demo), and MosaicML shards (MDS)."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import zstandard
from harness import PACK, Case, add
from PIL import Image

RATE = (*PACK, "--rate", "10")
KEEP = (*RATE, "--on-defect", "keep")
DROP = (*RATE, "--on-defect", "drop-episode")


def saved(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def jpeg(width: int = 16, height: int = 12, shade: int = 80) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (shade, 0, 0)).save(file, "JPEG")
    return file.getvalue()


#: The files of a tar, in order.
Members = list[tuple[str, bytes]]


def samples(episodes: int = 2, steps: int = 3) -> Members:
    out: Members = []
    for episode in range(episodes):
        for step in range(steps):
            key = f"ep{episode}_t{step}"
            out.append((f"{key}.front.jpg", jpeg()))
            out.append((f"{key}.action.npy", saved(np.full(3, step, dtype=np.float32))))
    return out


def tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))


def case(
    name: str,
    make: Callable[[Path], object],
    codes: tuple[int, ...] = (1,),
    command: tuple[str, ...] = RATE,
    says: str = "",
) -> None:
    def build(folder: Path) -> Path:
        source = folder / "source"
        source.mkdir()
        make(source / "shard-000000.tar")
        return source

    add(Case("archives", name, build, (command,), codes, says))


def changed(name: str, body: bytes) -> Callable[[Path], None]:
    """The usual samples with one file replaced."""
    return lambda path: tar(
        path, [(known, body if known == name else old) for known, old in samples()]
    )


def more(*members: tuple[str, bytes]) -> Callable[[Path], None]:
    return lambda path: tar(path, [*samples(), *members])


def patched(at: int, value: bytes) -> Callable[[Path], None]:
    """A header that lies with a correct checksum."""

    def make(path: Path) -> None:
        tar(path, samples())
        body = bytearray(path.read_bytes())
        body[at : at + len(value)] = value
        body[148:156] = b" " * 8
        body[148:156] = b"%06o\0 " % sum(body[:512])
        path.write_bytes(body)

    return make


def link(path: Path) -> None:
    tar(path, samples())
    with tarfile.open(path, "a") as archive:
        info = tarfile.TarInfo("ep0_t9.action.npy")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)


second = "ep1_t1.front.jpg"
case("tar_sound", lambda path: tar(path, samples()), (0,))
case("tar_size_of_exabytes", patched(124, b"\x80" + b"\xff" * 11))
case("tar_size_negative", patched(124, b"\xff" * 12))
case("tar_size_is_text", patched(124, b"not a number"))
case("tar_size_beyond_the_end", patched(124, b"77777777777\0"))
case("tar_wrong_checksum", lambda path: (tar(path, samples()), flip(path, 10)))
case(
    "tar_cut_short",
    lambda path: (tar(path, samples()), path.write_bytes(path.read_bytes()[:2000])),
    (1, 3),
)
case(
    "tar_name_leads_out",
    more(("../../ep0_t9.action.npy", saved(np.zeros(3)))),
    (1,),
    says="leads out",
)
case("tar_name_of_the_root", more(("/etc/ep0_t9.action.npy", saved(np.zeros(3)))), (1,))
case(
    "tar_name_of_100_kb", more(("x" * 100_000 + ".action.npy", saved(np.zeros(3)))), (0, 1, 3), KEEP
)
case("tar_link", link, says="link")
case("tar_of_nothing", lambda path: path.write_bytes(bytes(10240)))
case("tar_empty", lambda path: path.write_bytes(b""))
case("tar_of_noise", lambda path: path.write_bytes(os.urandom(10_240)))
case("tar_20000_members", more(*((f"x{number}", b"") for number in range(20_000))), (0, 1, 3), KEEP)
case("tar_json_deep", more(("ep0.json", b"[" * 100_000 + b"]" * 100_000)), (0, 1, 3))
case(
    "tar_json_of_numbers",
    more(("ep0.json", b'{"a": [' + b"0," * (4 << 20) + b"0]}")),
    (0, 1, 3),
    KEEP,
)
case(
    "tar_npy_lies",
    changed("ep1_t1.action.npy", saved(np.zeros(3)).replace(b"(3,)", b"(9999999999,)")),
    (1,),
)
case("tar_npy_lies_kept", changed("ep1_t1.action.npy", b"\x93NUMPY"), (3,), KEEP)
case("tar_npy_pickle", changed("ep1_t1.action.npy", saved(np.array([{}], dtype=object))), (1,))
case(
    "tar_npy_of_another_type",
    changed("ep1_t1.action.npy", saved(np.zeros(4, dtype=np.int8))),
    (3,),
    KEEP,
)
case("tar_jpeg_cut_short", changed(second, jpeg()[:200]), (0, 1))
case("tar_jpeg_without_an_image", changed(second, jpeg()[:2] + b"\xff\xd9"), (1,))
case("tar_jpeg_of_noise", changed(second, jpeg()[:300] + os.urandom(300)), (0, 1))
case("tar_jpeg_of_noise_dropped", changed(second, b"\xff\xd8" + os.urandom(300)), (3,), DROP, "ep1")
case("tar_jpeg_of_another_size", changed(second, jpeg(20, 20)), (3,), KEEP, "ep1")
case(
    "tar_jpeg_of_65535",
    changed(second, jpeg().replace(struct.pack(">HH", 12, 16), b"\xff\xff\xff\xff")),
    (3,),
    KEEP,
)
case("tar_png_in_a_jpeg", changed(second, b"\x89PNG\r\n\x1a\n" + bytes(100)), (3,), KEEP)
case("tar_name_control", more(("ep2_t0.a\x1b]0;x\x07.npy", saved(np.zeros(3)))), (0, 1, 3), KEEP)
case(
    "tar_step_missing",
    lambda path: tar(path, [m for m in samples() if not m[0].startswith("ep1_t1")]),
    (0, 1),
)
case("tar_step_twice", more(*samples()[:2]), (0, 1))
case(
    "tar_step_of_1e18",
    more(("ep0_t999999999999999999999.action.npy", saved(np.zeros(3, dtype="f4")))),
    (0, 1, 3),
    KEEP,
)


def flip(path: Path, at: int) -> None:
    body = bytearray(path.read_bytes())
    body[at] ^= 0xFF
    path.write_bytes(body)


def demos(path: Path) -> None:
    """An npz file per demo, one of them broken."""
    body = io.BytesIO()
    np.savez_compressed(body, x=np.arange(12.0).reshape(4, 3))
    good = body.getvalue()
    files = [("demo_0.npz", good), ("demo_1.npz", good[:-40]), ("demo_2.npz", good)]
    tar(path, [*files, ("env_args.json", b'{"env_kwargs": {"control_freq": 20}}')])


case("tar_npz_demo_broken", demos, (1,))
case("tar_npz_demo_broken_kept", demos, (3,), KEEP)


# MDS.


def shard(rows: list[list[bytes]], sizes: list[int | None]) -> bytes:
    """A shard of samples: the sizes of variable-size columns, then the values."""
    bodies = []
    for row in rows:
        head = b"".join(
            struct.pack("<I", len(value))
            for value, size in zip(row, sizes, strict=True)
            if size is None
        )
        bodies.append(head + b"".join(row))
    start = 4 + 4 * (len(rows) + 1)
    offsets = np.cumsum([start] + [len(body) for body in bodies]).astype("<u4")
    return struct.pack("<I", len(rows)) + offsets.tobytes() + b"".join(bodies)


def steps() -> tuple[dict[str, object], bytes]:
    """The index entry and the bytes of two episodes of three steps."""
    rows = [
        [
            struct.pack("<q", episode),
            np.full(3, step, dtype="<f4").tobytes(),
            f"step {step}".encode(),
        ]
        for episode in range(2)
        for step in range(3)
    ]
    sizes: list[int | None] = [8, 12, None]
    body = shard(rows, sizes)
    entry: dict[str, object] = {
        "format": "mds",
        "version": 2,
        "column_names": ["episode", "action", "note"],
        "column_encodings": ["int64", "ndarray:float32:3", "str"],
        "column_sizes": sizes,
        "samples": len(rows),
        "compression": None,
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(body), "hashes": {}},
        "zip_data": None,
        "size_limit": 1 << 26,
    }
    return entry, body


def mds(
    name: str,
    change: Callable[[dict, dict[str, bytes]], object],
    codes: tuple[int, ...] = (1,),
    command: tuple[str, ...] = RATE,
    says: str = "",
) -> None:
    def build(folder: Path) -> Path:
        source = folder / "source"
        source.mkdir()
        entry, body = steps()
        files = {"shard.00000.mds": body}
        index = change(entry, files)
        for file, content in files.items():
            (source / file).write_bytes(content)
        text = (
            index
            if isinstance(index, bytes)
            else json.dumps({"version": 2, "shards": [entry]}).encode()
        )
        (source / "index.json").write_bytes(text)
        return source

    add(Case("archives", f"mds_{name}", build, (command,), codes, says))


def packed(
    entry: dict, files: dict[str, bytes], *, claims: int, holds: bytes | None = None
) -> None:
    body = holds if holds is not None else files["shard.00000.mds"]
    content = zstandard.compress(body)
    files.clear()
    files["shard.00000.mds.zstd"] = content
    entry["compression"] = "zstd"
    entry["raw_data"]["bytes"] = claims
    entry["zip_data"] = {"basename": "shard.00000.mds.zstd", "bytes": len(content), "hashes": {}}


def set_body(entry: dict, files: dict[str, bytes], at: int, value: bytes) -> None:
    body = bytearray(files["shard.00000.mds"])
    body[at : at + len(value)] = value
    files["shard.00000.mds"] = bytes(body)


raw = steps()[1]
mds("valid", lambda entry, files: None, (0,))
mds("zstd_sound", lambda entry, files: packed(entry, files, claims=len(raw)), (0,))
mds(
    "zstd_claims_4_gib",
    lambda entry, files: packed(entry, files, claims=1 << 32, holds=bytes(64 << 20)),
    says="the limit is",
)
mds(
    "zstd_of_100_mib",
    lambda entry, files: packed(entry, files, claims=100 << 20, holds=bytes(100 << 20)),
)
mds(
    "zstd_unpacks_to_more",
    lambda entry, files: packed(entry, files, claims=100, holds=bytes(300 << 20)),
)
mds("zstd_unpacks_to_less", lambda entry, files: packed(entry, files, claims=1 << 20))
mds(
    "zstd_is_noise",
    lambda entry, files: (
        packed(entry, files, claims=100),
        files.update({"shard.00000.mds.zstd": os.urandom(entry["zip_data"]["bytes"])}),
    ),
)
mds(
    "packed_otherwise",
    lambda entry, files: (packed(entry, files, claims=100), entry.update(compression="br")),
    says="br",
)
mds("shard_missing", lambda entry, files: files.clear())
mds("shard_of_another_length", lambda entry, files: entry["raw_data"].update(bytes=7))
mds(
    "shard_of_another_hash",
    lambda entry, files: entry["raw_data"].update(hashes={"sha1": "0" * 40}),
    says="sha1",
)
mds("hash_unknown", lambda entry, files: entry["raw_data"].update(hashes={"md9": "00"}), (0,))
mds(
    "name_leads_out",
    lambda entry, files: entry["raw_data"].update(basename="../../etc/passwd"),
    says="beside",
)
mds("name_of_a_nul", lambda entry, files: entry["raw_data"].update(basename="a\0b"))
mds(
    "samples_of_4_billion",
    lambda entry, files: (entry.update(samples=0xFFFFFFFF), set_body(entry, files, 0, b"\xff" * 4)),
)
mds("samples_negative", lambda entry, files: entry.update(samples=-1))
mds("offsets_go_back", lambda entry, files: set_body(entry, files, 8, b"\0\0\0\0"))
mds("offsets_beyond_the_end", lambda entry, files: set_body(entry, files, 12, b"\xff\xff\xff\xff"))
mds("sizes_beyond_the_sample", lambda entry, files: set_body(entry, files, 32, b"\xff\xff\xff\xff"))
mds(
    "column_is_a_pickle",
    lambda entry, files: entry["column_encodings"].__setitem__(2, "pkl"),
    (3,),
    KEEP,
)
mds("column_of_another_size", lambda entry, files: entry["column_sizes"].__setitem__(1, 1 << 40))
mds(
    "column_shape_of_exabytes",
    lambda entry, files: entry["column_encodings"].__setitem__(
        1, "ndarray:float32:9999999999,9999999999"
    ),
)
mds(
    "column_name_control",
    lambda entry, files: entry["column_names"].__setitem__(2, "\x1b]0;x\x07"),
    (0,),
    KEEP,
)
mds("column_twice", lambda entry, files: entry["column_names"].__setitem__(2, "action"), (3,), KEEP)
mds("text_not_utf_8", lambda entry, files: set_body(entry, files, len(raw) - 4, b"\xff\xfe"))
mds("other_format", lambda entry, files: entry.update(format="jsonl"), says="mds 2")
mds("index_is_deep", lambda entry, files: b'{"shards": ' + b"[" * 100_000 + b'"column_encodings"')
mds(
    "index_of_numbers",
    lambda entry, files: (
        json.dumps({"version": 2, "shards": [entry]}).encode()[:-1]
        + b', "x": ['
        + b"0," * (8 << 20)
        + b"0]}"
    ),
    (0,),
)
mds(
    "index_of_30_mb",
    lambda entry, files: json.dumps({"shards": [entry]}).encode() + b" " * (30 << 20),
)
mds(
    "index_of_no_shards",
    lambda entry, files: b'{"version": 2, "shards": [], "column_encodings": []}',
)


def mds_pipe(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    entry, _ = steps()
    (source / "index.json").write_text(json.dumps({"version": 2, "shards": [entry]}))
    os.mkfifo(source / "shard.00000.mds")
    return source


add(Case("archives", "mds_pipe", mds_pipe, (RATE,), (1,)))
