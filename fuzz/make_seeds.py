"""Writes the seeds of the targets of importers, of H.264 and of parity: small recordings of every kind, as they expect them.

    .venv/bin/python fuzz/make_seeds.py      # in the root of the repository, after `make setup`

Its packages are those of scripts/requirements-dev.txt; `lz4` comes with `mcap`, which depends on it.

Some are cut out of the fixtures of `kino_import` and `kino_codec`, which the original tools wrote. The result is committed in `seeds/`.
"""

import gzip
import io
import json
import pathlib
import struct
import sys
import tarfile
import zipfile
import zlib

import h5py
import lz4.block
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from mcap.writer import CompressionType, IndexType, Writer
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crates/kino_import/tests/fixtures"))

from pack import fixture

HERE = pathlib.Path(__file__).parent
NEXT = b"<<NEXT FILE>>"

# A key frame and the next, by x264, x265, SVT-AV1 and libvpx: gray images of 32 × 32 or 64 × 64.
VIDEO = {
    "h264": [
        "000000016742c00ad9096840000003004000000c83c489920000000168cb83cb20000000016588840af26280008bbc9d75e0",
        "00000001419a3815f37fffc3d1400040ffe27cfe7f",
    ],
    "h265": [
        "0000000140010c01ffff01600000030090000003000003001e9280900000000142010101600000030090000003000003001ea042085964ab932b9a020000030002000003003210000000014401c173d089000000012801af1d80ee238fff86eb80",
        "000000010201d0097e10c63be88e55ae",
    ],
    "av1": [
        "12000a0a00000002afff8d5f3008320f1000b082051420810000080095d1d2",
        "120032113002040924923b18000002000000001f16",
    ],
    "vp9": [
        "824983420001f001f60038241c184a00003060000010dffff64e0000",
        "860040929c005000000360000019b5c000",
    ],
}


def seed(target: str, name: str, *parts: bytes | str) -> None:
    path = HERE / "seeds" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(NEXT.join(part.encode() if isinstance(part, str) else part for part in parts))


def image(format: str, mode: str = "RGB", size: tuple[int, int] = (16, 16)) -> bytes:
    out = io.BytesIO()
    numbers = (np.arange(size[0] * size[1] * 3) % 251).astype(np.uint8).reshape(*size, 3)
    pixels = Image.fromarray(numbers)
    if mode == "I;16":
        pixels = Image.fromarray((np.arange(size[0] * size[1]).astype(np.uint16) * 7).reshape(size))
    elif mode != "RGB":
        pixels = pixels.convert(mode)
    pixels.save(out, format)
    return out.getvalue()


def hdf5() -> None:
    def write(name: str, fill, **options) -> None:
        out = io.BytesIO()
        with h5py.File(out, "w", **options) as file:
            fill(file)
        seed("import_hdf5", name, out.getvalue())

    def robomimic(file: h5py.File, **storage) -> None:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps(
            {"env_name": "Lift", "env_kwargs": {"control_freq": 20}}
        )
        for number in range(2):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = 3
            demo.create_dataset("actions", data=np.arange(6.0).reshape(3, 2), **storage)
            demo.create_dataset("obs/front_image", data=np.ones((3, 4, 4, 3), np.uint8), **storage)
        file.create_dataset("mask/train", data=np.array([b"demo_0"]))

    def act(file: h5py.File) -> None:
        file.attrs["sim"] = False
        file.create_dataset("action", data=np.zeros((2, 3), np.float32))
        file.create_dataset("observations/qpos", data=np.ones((2, 3), ">f4"))
        jpeg = np.frombuffer(image("JPEG", size=(8, 8)), np.uint8)
        file.create_dataset("observations/images/top", data=np.stack([jpeg, jpeg]))

    def generic(file: h5py.File) -> None:
        text = h5py.string_dtype()
        file.create_dataset("task", data=["lift", "place"], dtype=text)
        file.create_dataset("half", data=np.arange(2, dtype=np.float16))
        file.create_dataset(
            "depth",
            data=np.ones((2, 4, 4), np.uint16),
            chunks=(1, 4, 4),
            compression="gzip",
            shuffle=True,
        )
        file.create_dataset("scaled", data=np.arange(2), scaleoffset=0, chunks=(2,))
        file.create_dataset("ragged", (2,), dtype=h5py.vlen_dtype(np.int32))[0] = [1, 2]
        file.create_dataset("pair", data=np.zeros(2, [("x", "<f4"), ("y", "<i2")]))
        file.create_dataset("flag", data=np.array([True, False]))
        file["link"] = h5py.SoftLink("/depth")
        file["far"] = h5py.ExternalLink("other.hdf5", "/x")
        file.attrs["names"] = ["a", "b"]

    def many(file: h5py.File) -> None:
        group = file.create_group("data/demo_0")
        for number in range(12):
            group.create_dataset(f"x{number}", data=np.arange(2.0))
            group.attrs[f"note{number}"] = "n" * 3

    def labs(file: h5py.File) -> None:
        robomimic(file)
        file.attrs["lang"] = "lift"
        file["ends"] = [1, 3]
        file["t"] = [0, 10, 25]
        file["x"] = np.arange(6.0).reshape(3, 2)
        file["cameras"] = np.ones((3, 2, 3, 2, 2), np.uint8)

    def attributes(file: h5py.File) -> None:
        demo = file.create_group("data/demo_0")
        demo["actions"] = np.arange(3.0)
        for number in range(12):
            demo.attrs[f"n{number}"] = number

    def stored(fill, **options) -> bytearray:
        out = io.BytesIO()
        with h5py.File(out, "w", **options) as file:
            fill(file)
        return bytearray(out.getvalue())

    # A tree that claims 60,000 levels and whose root is its own child; the target corrects its checksum.
    file = stored(attributes, libver=("v110", "v110"))
    tree, node = file.index(b"BTHD\0\x08"), len(file)
    struct.pack_into("<H", file, tree + 12, 60_000)
    struct.pack_into("<QH", file, tree + 16, node, 1)
    child = struct.pack("<QB8x", node, 1)
    file += b"BTIN\0\x08" + bytes(17) + 2 * child + bytes(500)
    struct.pack_into("<Q", file, 28, len(file))
    seed("import_hdf5", "high_tree", bytes(file))

    # A tree of chunks with eight levels, in which each node has ten times the same child.
    file = stored(
        lambda file: file.create_dataset(
            "data/demo_0/actions", data=np.zeros((2, 2)), chunks=(1, 2)
        )
    )
    tree, start = file.index(b"TREE\x01"), len(file)
    struct.pack_into("<Q", file, file.index(struct.pack("<Q", tree)), start)
    for level in range(8, -1, -1):
        children, below = (10 if level else 0), start + (9 - level) * 456
        entries = struct.pack("<II3QQ", 16, 0, 0, 0, 0, below) * children
        node = b"TREE\x01" + struct.pack("<BH", level, children) + b"\xff" * 16 + entries
        file += (node + struct.pack("<II3Q", 16, 0, 2, 0, 0)).ljust(456, b"\0")
    struct.pack_into("<Q", file, 40, len(file))
    seed("import_hdf5", "shared_chunks", bytes(file))

    write("labs", labs)
    write("robomimic", robomimic)
    write("robomimic_v2", robomimic, libver=("v110", "v110"))
    write(
        "chunked",
        lambda file: robomimic(file, chunks=True, compression="gzip", fletcher32=True),
        libver=("v110", "v110"),
    )
    write("act", act)
    write("generic", generic)
    write("generic_v2", generic, libver=("v110", "v110"))
    write("dense", many, libver=("v110", "v110"))


def mcap() -> None:
    def write(name: str, compression: CompressionType, **options) -> None:
        out = io.BytesIO()
        writer = Writer(out, compression=compression, enable_crcs=False, chunk_size=400, **options)
        writer.start(profile="", library="")
        schema = writer.register_schema(
            "Joints", "jsonschema", b'{"type":"object","properties":{"position":{"type":"array"}}}'
        )
        topics = [
            writer.register_channel(topic, "json", schema)
            for topic in ("/joints", "/episode", "/camera")
        ]
        for step in range(4):
            values = [
                {"position": [step, 0.5]},
                {"data": "start" if step % 2 == 0 else "stop"},
                {"data": [step]},
            ]
            for channel, value in zip(topics, values, strict=True):
                writer.add_message(channel, step * 10**8, json.dumps(value).encode(), step * 10**8)
        writer.add_metadata("robot", {"name": "toy"})
        writer.add_attachment(0, 0, "notes.txt", "text/plain", b"a note")
        writer.finish()
        seed("import_mcap", name, out.getvalue())

    write("json", CompressionType.NONE)
    write("json_zstd", CompressionType.ZSTD)
    write("json_lz4", CompressionType.LZ4)
    write(
        "json_plain",
        CompressionType.NONE,
        use_chunking=False,
        index_types=IndexType.NONE,
        use_statistics=False,
    )

    def cdr(format: str, *values) -> bytes:
        return b"\x00\x01\x00\x00" + struct.pack("<" + format, *values)

    header = "std_msgs/Header header\n"
    more = (
        "\n"
        + "=" * 80
        + "\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
        + "=" * 80
        + "\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec"
    )
    stamp = (1, 500, 1, 0)
    joints = cdr("iIIB3xII2dI4xd", *stamp, 0, 2, 0.5, 1.5, 1, 2.5)
    seed(
        "import_mcap_messages",
        "ros2_joints",
        b"\0sensor_msgs/msg/JointState",
        header + "string[] name\nfloat64[] position\nfloat64[] velocity" + more,
        joints,
        joints,
    )
    message = (
        cdr("iIIB3xII", *stamp, 2, 2)
        + struct.pack("<I", 5)
        + b"rgb8\0"
        + b"\0"
        + b"\0\0"
        + struct.pack("<II", 6, 12)
        + bytes(12)
    )
    seed(
        "import_mcap_messages",
        "ros2_image",
        b"\0sensor_msgs/msg/Image",
        header
        + "uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
        + more,
        message,
    )
    video = (
        "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n"
        + "=" * 80
        + "\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec"
    )
    for form, frames in VIDEO.items():
        messages = []
        for step, frame in enumerate(frames):
            data = bytes.fromhex(frame)
            stored = cdr("iIIB3xI", step, 500, 1, 0, len(data)) + data
            stored += bytes(-len(stored) % 4) + struct.pack("<I", len(form) + 1)
            messages.append(stored + form.encode() + b"\0")
        name = b"\0foxglove_msgs/msg/CompressedVideo"
        seed("import_mcap_messages", f"ros2_{form}", name, video, *messages)
    seed(
        "import_mcap_messages",
        "ros2_types",
        b"\0toy/msg/All",
        "bool a\nint8 B=3\nuint8[2] c\nint16[<=3] d\nfloat32 e 0.5\nstring<=9 f\nwstring g\nPoint[] h\n"
        "================\nMSG: toy/Point\nfloat64 x\nfloat64 y",
        cdr("BBBxI1h2xfI2s2xIII4xdd", 1, 2, 3, 1, 7, 0.5, 2, b"a\0", 0, 1, 0, 1, 2),
    )

    def field(number: int, wire: int, value: bytes | int) -> bytes:
        def varint(value: int) -> bytes:
            out = b""
            while value > 127:
                out += bytes([value & 127 | 128])
                value >>= 7
            return out + bytes([value])

        head = varint(number << 3 | wire)
        return head + (
            varint(value) if isinstance(value, int) else varint(len(value)) * (wire == 2) + value
        )

    def proto_field(
        name: str, number: int, kind: int, label: int = 1, type_name: str = ""
    ) -> bytes:
        body = (
            field(1, 2, name.encode())
            + field(3, 0, number)
            + field(4, 0, label)
            + field(5, 0, kind)
        )
        return field(2, 2, body + (field(6, 2, type_name.encode()) if type_name else b""))

    finger = field(
        4, 2, field(1, 2, b"Finger") + proto_field("width", 1, 2) + proto_field("touch", 2, 8)
    )
    fields = [
        ("force", 1),
        ("gain", 2),
        ("ticks", 3),
        ("total", 4),
        ("count", 5),
        ("ready", 8),
        ("note", 9),
        ("raw", 12),
        ("drift", 18),
    ]
    outer = field(1, 2, b"Reading") + b"".join(
        proto_field(name, idx + 1, kind) for idx, (name, kind) in enumerate(fields)
    )
    outer += (
        proto_field("joints", 20, 1, 3)
        + proto_field("finger", 21, 11, 3, ".toy.Finger")
        + proto_field("state", 22, 14, 1, ".toy.State")
    )
    state = field(5, 2, field(1, 2, b"State") + field(2, 2, field(1, 2, b"IDLE") + field(2, 0, 0)))
    file = (
        field(1, 2, b"toy.proto")
        + field(2, 2, b"toy")
        + finger
        + field(4, 2, outer)
        + state
        + field(12, 2, b"proto3")
    )
    message = (
        field(1, 1, struct.pack("<d", 0.5))
        + field(2, 5, struct.pack("<f", 1.5))
        + field(3, 0, 7)
        + field(6, 0, 1)
        + field(7, 2, b"a note")
        + field(8, 2, b"raw")
        + field(20, 2, struct.pack("<2d", 1, 2))
        + field(21, 2, field(1, 5, struct.pack("<f", 3)))
        + field(22, 0, 1)
    )
    seed("import_mcap_messages", "protobuf", b"\1toy.Reading", field(1, 2, file), message, message)
    schema = json.dumps(
        {
            "type": "object",
            "properties": {
                "a": {"type": "number"},
                "b": {"type": "array", "items": {"type": "number"}},
            },
        }
    )
    body = json.dumps(
        {
            "timestamp": {"sec": 1, "nsec": 5},
            "a": 1.5,
            "b": [1, 2, 3],
            "c": {"d": True, "e": "text"},
            "data": "AAAA",
        }
    )
    seed("import_mcap_messages", "json", b"\2Reading", schema, body, body)


def zarr() -> None:
    def array(
        shape: list[int], dtype: str, compressor: object = None, filters: object = None
    ) -> str:
        return json.dumps(
            {
                "zarr_format": 2,
                "shape": shape,
                "chunks": shape,
                "dtype": dtype,
                "order": "C",
                "fill_value": 0,
                "compressor": compressor,
                "filters": filters,
            }
        )

    ends = array([2], "<i8"), struct.pack("<2q", 1, 3)
    values = np.arange(6, dtype=np.float32).tobytes()
    seed("import_zarr", "plain", array([3, 2], "<f4"), values, *ends, "{}")
    seed(
        "import_zarr",
        "zlib",
        array([3, 2], "<f4", {"id": "zlib", "level": 1}),
        zlib.compress(values),
        *ends,
        '{"fps": 10}',
    )
    seed("import_zarr", "fortran", array([3, 2], ">f4").replace('"C"', '"F"'), values, *ends)
    seed(
        "import_zarr",
        "split",
        array([3, 2], "<f4").replace('"chunks": [3, 2]', '"chunks": [2, 2]'),
        values[:16],
        *ends,
    )
    # One byte chooses type (% 5) and compressor (/ 5); one frame per chunk.
    row = np.arange(60, dtype=np.float32).tobytes()
    for idx, chunk in enumerate(
        [
            row,
            None,
            zlib.compress(row),
            gzip.compress(row, mtime=0),
            zstandard.compress(row),
            struct.pack("<I", 240) + lz4.block.compress(row, store_size=False),
        ]
    ):
        if chunk is not None:
            seed("import_zarr_chunk", f"compressor_{idx}", bytes([idx * 5]) + chunk)
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]:
        for shuffle in range(3):
            chunk = (
                fixture("zarr/compressors.zarr") / f"data/blosc_{cname}_{shuffle}/0.0"
            ).read_bytes()
            seed("import_zarr_chunk", f"blosc_{cname}_{shuffle}", bytes([5]) + chunk)
    seed(
        "import_zarr_chunk",
        "blosc_stored",
        bytes([5]) + struct.pack("<BBBBIII", 2, 1, 2, 4, 240, 240, 256) + row,
    )
    seed("import_zarr_chunk", "text", bytes([2]) + struct.pack("<II", 1, 4) + b"lift")
    seed("import_zarr_chunk", "fixed_text", bytes([3]) + "lift".encode("utf-32-le") + bytes(16))
    seed("import_zarr_chunk", "bool", bytes([4, 0, 1, 1, 0]))
    seed("import_zarr_chunk", "jpeg", bytes([7 * 5 + 1]) + image("JPEG", size=(32, 32)))
    with zipfile.ZipFile(fixture("zarr/umi.zarr.zip")) as umi:
        seed(
            "import_zarr_chunk",
            "jpeg_xl",
            bytes([6 * 5 + 1]) + umi.read("data/camera0_rgb/0.0.0.0"),
        )


def zips() -> None:
    def npz(compression: int) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name in ["state", "action"]:
                member = zipfile.ZipInfo(f"{name}.npy")
                archive.writestr(member, npy(np.arange(6.0).reshape(3, 2)), compression)
        return out.getvalue()

    seed("import_zip", "npz_stored", b"\1" + npz(zipfile.ZIP_STORED))
    seed("import_zip", "npz_deflated", b"\1" + npz(zipfile.ZIP_DEFLATED))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ["", "data/", "meta/"]:
            archive.writestr(zipfile.ZipInfo(f"{name}.zgroup"), '{"zarr_format": 2}')
        parts = (HERE / "seeds/import_zarr/plain").read_bytes().split(NEXT)
        for name, part in zip(
            ["data/x/.zarray", "data/x/0.0", "meta/episode_ends/.zarray", "meta/episode_ends/0"],
            parts,
            strict=False,
        ):
            archive.writestr(zipfile.ZipInfo(name), part)
    seed("import_zip", "zarr", b"\0" + out.getvalue())


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def folders() -> None:
    for name, array in {
        "float": np.arange(6.0).reshape(3, 2),
        "fortran": np.asfortranarray(np.arange(6, dtype=">i4").reshape(3, 2)),
        "image": np.zeros((2, 4, 4, 3), np.uint8),
        "text": np.array(["lift", "it"]),
        "bytes": np.array([b"lift", b"it"]),
        "bool": np.array([True, False]),
        "half": np.arange(3, dtype=np.float16),
        "empty": np.zeros((0, 2)),
    }.items():
        seed("import_npy", name, npy(array))
    seed(
        "import_csv",
        "numbers",
        'time_s,joint.0,joint.1,note\n0.0,1.5,2,a\n0.1,-1e-3,3,"b, c"\n0.2,nan,4,\n',
    )
    seed("import_csv", "mixed", "step;done;x\r\n0;true;1\r\n1;false;\r\n")
    seed(
        "import_csv",
        "stamps",
        '\ufefftime,text\n2026-01-01T00:00:00Z,"two\nlines"\n2026-01-01T00:00:01.5Z,x\n',
    )
    for name, format, mode in [
        ("rgb.png", "PNG", "RGB"),
        ("grey.png", "PNG", "L"),
        ("depth.png", "PNG", "I;16"),
        ("palette.png", "PNG", "P"),
        ("alpha.png", "PNG", "RGBA"),
        ("rgb.jpg", "JPEG", "RGB"),
        ("grey.jpg", "JPEG", "L"),
        ("cmyk.jpg", "JPEG", "CMYK"),
    ]:
        seed("import_image", name, image(format, mode, (8, 8)))


def tars() -> None:
    members = {
        "ep0_t0.front.png": image("PNG", size=(4, 4)),
        "ep0_t0.state.npy": npy(np.arange(2.0)),
        "ep0_t0.json": b'{"fps": 10, "success": true}',
        "ep0_t0.task.txt": b"lift",
        "ep0_t0.cls": b"3",
        "ep0_t1.front.png": image("PNG", size=(4, 4)),
        "ep0_t1.state.npy": npy(np.ones(2)),
        "ep0_t1.json": b"{}",
        "ep0_t1.task.txt": b"",
        "ep0_t1.cls": b"4",
    }
    arrays = {
        "env_args.json": b'{"env_name": "Lift", "env_kwargs": {"control_freq": 20}}',
        "demo_0.npz": (HERE / "seeds/import_zip/npz_stored").read_bytes()[1:],
    }
    whole = {
        "ep0.front.0.jpg": image("JPEG", size=(8, 8)),
        "ep0.front.1.jpg": image("JPEG", size=(8, 8)),
        "ep0.action.npy": npy(np.zeros((2, 3))),
        "ep0.json": b'{"rate_hz": 5, "task": "lift"}',
    }
    for name, files in {"steps": members, "arrays": arrays, "episodes": whole}.items():
        seed(
            "import_webdataset",
            name,
            *[path.encode() + b"\n" + content for path, content in files.items()],
        )
    for name, format in {
        "ustar": tarfile.USTAR_FORMAT,
        "gnu": tarfile.GNU_FORMAT,
        "pax": tarfile.PAX_FORMAT,
    }.items():
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as archive:
            for path, content in [
                ("ep0_t0.state.npy", npy(np.arange(2.0))),
                ("ep0_t1.state.npy", npy(np.ones(2))),
                ("long/" * (20 if format else 10) + "ep0_t1.task.txt", b"lift"),
            ]:
                info = tarfile.TarInfo(path)
                info.size = len(content)
                if format == tarfile.PAX_FORMAT:
                    info.pax_headers = {"comment": "ä"}
                archive.addfile(info, io.BytesIO(content))
        seed("import_tar", name, out.getvalue()[: 512 * 12])


def rlds() -> None:
    def tensor(dtype: str, *shape: int) -> dict:
        dims = {"dimensions": [str(size) for size in shape]} if shape else {}
        return {
            "pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
            "tensor": {"dtype": dtype, "encoding": "none", "shape": dims},
        }

    def dictionary(features: dict) -> dict:
        return {
            "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
            "featuresDict": {"features": features},
        }

    text = {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}}
    feature = {
        "pythonClassName": "tensorflow_datasets.core.features.image_feature.Image",
        "image": {
            "dtype": "uint8",
            "encodingFormat": "png",
            "shape": {"dimensions": ["4", "4", "3"]},
        },
    }
    step = dictionary(
        {
            "action": tensor("float32", 2),
            "is_last": tensor("bool"),
            "count": tensor("int64"),
            "words": text,
            "observation": dictionary({"image": feature}),
        }
    )
    features = dictionary(
        {
            "steps": {
                "pythonClassName": "tensorflow_datasets.core.features.dataset_feature.Dataset",
                "sequence": {"feature": step, "length": "-1"},
            },
            "episode_metadata": dictionary({"file_path": text, "success": tensor("bool")}),
        }
    )

    def message(number: int, body: bytes) -> bytes:
        size = len(body)
        head = bytes([number << 3 | 2])
        while size > 127:
            head += bytes([size & 127 | 128])
            size >>= 7
        return head + bytes([size]) + body

    def feature(name: str, value: bytes) -> bytes:
        return message(1, message(1, name.encode()) + message(2, value))

    def texts(values):
        return message(1, b"".join(message(1, value) for value in values))

    def floats(values):
        return message(2, message(1, struct.pack(f"<{len(values)}f", *values)))

    def ints(values):
        return message(3, message(1, bytes(values)))

    episode = message(
        1,
        feature("steps/action", floats([1, 2, 3, 4]))
        + feature("steps/is_last", ints([0, 1]))
        + feature("steps/count", ints([5, 6]))
        + feature("steps/words", texts([b"lift", b"lift"]))
        + feature("steps/observation/image", texts([image("PNG", size=(4, 4))] * 2))
        + feature("episode_metadata/file_path", texts([b"a/b"]))
        + feature("episode_metadata/success", ints([1])),
    )
    seed("import_rlds", "toy", json.dumps(features, separators=(",", ":")), episode, episode)


def mds() -> None:
    def index(columns: dict[str, tuple[str, int | None]], samples: int, packed: bool) -> str:
        entry = {
            "format": "mds",
            "version": 2,
            "column_names": list(columns),
            "column_encodings": [kind for kind, _ in columns.values()],
            "column_sizes": [size for _, size in columns.values()],
            "samples": samples,
            "size_limit": 67108864,
            "hashes": [],
            "compression": "zstd:3" if packed else None,
            "raw_data": {"basename": "shard.00000.mds", "bytes": "@BYTES@", "hashes": {}},
            "zip_data": {"basename": "shard.00000.mds.zstd", "bytes": "@PACKED@", "hashes": {}}
            if packed
            else None,
        }
        return (
            json.dumps({"version": 2, "shards": [entry]})
            .replace('"@BYTES@"', "@BYTES@")
            .replace('"@PACKED@"', "@PACKED@")
        )

    def shard(rows: list[list[tuple[bytes, bool]]]) -> bytes:
        bodies = []
        for row in rows:
            sizes = b"".join(struct.pack("<I", len(value)) for value, fixed in row if not fixed)
            bodies.append(sizes + b"".join(value for value, _ in row))
        config = b'{"columns": []}'
        start = 4 + 4 * (len(bodies) + 1) + len(config)
        offsets = [start]
        for body in bodies:
            offsets.append(offsets[-1] + len(body))
        return (
            struct.pack(f"<{1 + len(offsets)}I", len(bodies), *offsets) + config + b"".join(bodies)
        )

    columns = {
        "action": ("ndarray:float32:2", 8),
        "episode": ("str", None),
        "front": ("png", None),
        "step": ("int", 8),
        "state": ("ndarray", None),
        "note": ("json", None),
    }
    state = bytes([66, 1 << 2, 2]) + np.arange(2.0).tobytes()

    def row(step):
        return [
            (struct.pack("<2f", step, 1), True),
            (b"ep0", False),
            (image("PNG", size=(4, 4)), False),
            (struct.pack("<q", step), True),
            (state, False),
            (b'{"a": 1}', False),
        ]

    plain = shard([row(0), row(1)])
    seed("import_mds", "steps", index(columns, 2, False), plain)
    seed("import_mds", "zstd", index(columns, 2, True), plain)
    columns = {
        "action": ("ndarray:float64", None),
        "front": ("list[jpeg]", None),
        "name": ("str", None),
        "pkl": ("pkl", None),
    }
    files = [image("JPEG", size=(8, 8))] * 2
    listed = struct.pack("<2I", 0, 2) + struct.pack("<2I", *map(len, files)) + b"".join(files)
    array = bytes([2 << 2, 2, 2]) + np.arange(4.0).tobytes()
    seed(
        "import_mds",
        "episodes",
        index(columns, 1, False),
        shard([[(array, False), (listed, False), (b"ep0", False), (b"N.", False)]]),
    )


def mp4() -> None:
    for name in (
        "av1.mp4",
        "color.mp4",
        "cut_after_wait.mp4",
        "fragments.mp4",
        "fragments_and_moov.mp4",
        "fragments_dash.mp4",
        "h264_b_frames.mp4",
        "mjpeg.mov",
        "negative_offsets.mp4",
        "opencv.mp4",
        "phone.mov",
        "quicktime.mov",
        "vp9.mp4",
    ):
        seed("import_mp4", name, fixture(f"mp4/files/{name}").read_bytes())


def h264() -> None:
    streams = HERE.parent / "crates/kino_codec/tests/fixtures/h264/streams"
    for path in sorted(streams.glob("*.bin")):
        seed("codec_h264", path.stem, path.read_bytes())


def video() -> None:
    """Pages of `video`: the golden one, and pages around the H.264 streams of the tests."""

    def varint(value: int) -> bytes:
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    def page_seed(name: str, kind: int, frames: int, page: bytes) -> None:
        head = bytes([kind, 0, frames]) + frames.to_bytes(2, "little") + bytes(3)
        seed("codec_video", name, head + page)

    golden = HERE.parent / "crates/kino_codec/tests/golden/video-av1.txt"
    for line in golden.read_text().splitlines():
        if line.startswith("page "):
            _, frames, page = line.split()
            page_seed("av1", 0, int(frames), bytes.fromhex(page))
    packets = [b"\0\0\0\1\x65", b"\0\0\0\1\x41"]
    table = varint(2) + varint(2 * 5 + 1) + varint(1) + varint(2 * 5) + varint(2)
    page_seed("h264", 1, 2, varint(3) + b"avc" + b"\0" + table + b"".join(packets))


def lerobot() -> None:
    def parquet(columns: dict, **options) -> bytes:
        out = io.BytesIO()
        pq.write_table(pa.table(columns), out, **options)
        return out.getvalue()

    features = {
        "action": {"dtype": "float32", "shape": [2], "names": ["a", "b"]},
        "top": {"dtype": "image", "shape": [4, 4, 3], "names": ["height", "width", "channels"]},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        "frame_index": {"dtype": "int64", "shape": [1], "names": None},
        "episode_index": {"dtype": "int64", "shape": [1], "names": None},
        "index": {"dtype": "int64", "shape": [1], "names": None},
        "task_index": {"dtype": "int64", "shape": [1], "names": None},
    }
    info = {
        "codebase_version": "v2.1",
        "robot_type": "toy",
        "total_episodes": 1,
        "total_frames": 2,
        "total_tasks": 1,
        "total_videos": 0,
        "total_chunks": 1,
        "chunks_size": 1000,
        "fps": 10,
        "splits": {"train": "0:1"},
        "video_path": None,
        "features": features,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    }
    cell = {"bytes": image("PNG", size=(4, 4)), "path": "frame.png"}
    rows = {
        "action": pa.array([[0.5, 1.5], [2.5, 3.5]], pa.list_(pa.float32(), 2)),
        "top": [cell, cell],
        "timestamp": pa.array([0, 0.1], pa.float32()),
        "frame_index": [0, 1],
        "episode_index": [0, 0],
        "index": [0, 1],
        "task_index": [0, 0],
    }
    episodes = json.dumps({"episode_index": 0, "tasks": ["lift"], "length": 2})
    tasks = json.dumps({"task_index": 0, "task": "lift"})
    for name, options in {
        "snappy": {},
        "plain": {"compression": "none", "use_dictionary": False},
        "zstd": {"compression": "zstd", "data_page_version": "2.0"},
    }.items():
        seed("import_lerobot_v2", name, json.dumps(info), episodes, tasks, parquet(rows, **options))
    info |= {
        "codebase_version": "v3.0",
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 500,
    }
    del info["total_chunks"], info["total_videos"]
    listing = {
        "episode_index": [0],
        "tasks": [["lift"]],
        "length": [2],
        "data/chunk_index": [0],
        "data/file_index": [0],
        "dataset_from_index": [0],
        "dataset_to_index": [2],
        "meta/episodes/chunk_index": [0],
        "meta/episodes/file_index": [0],
    }
    for name, options in {
        "snappy": {},
        "plain": {"compression": "none", "use_dictionary": False},
    }.items():
        seed(
            "import_lerobot_v3",
            name,
            json.dumps(info),
            parquet({"task_index": [0], "__index_level_0__": ["lift"]}, **options),
            parquet(listing, **options),
            parquet(rows, **options),
        )


def texts() -> None:
    seed(
        "mapping_hdf5",
        "groups",
        'episodes = "data/demo_*"\nrate_hz = 20.0\ntask = { from = "/@lang" }\nsplit = "train"\nsuccess = { from = "num_samples" }\nlicence = "CC-BY-4.0"\n\n'
        '[[stream]]\nfrom = "obs/*"\n\n[[stream]]\nname = "a"\nfrom = "/data/{episode}/actions"\nkind = "vector"\noptional = true\n',
    )
    seed(
        "mapping_hdf5",
        "rows",
        'episode_ends = "ends"\ntimestamps = "t"\ntimestamps_unit = "ms"\n\n[[stream]]\nname = "front"\n'
        'from = "cameras"\nkind = "image"\nlayout = "chw"\nindex = 0\nunit = "m"\n',
    )
    seed(
        "mapping_folder",
        "takes",
        'episodes = "session_*/take_*"\ntimestamps = "states.csv/time_s"\ntimestamps_unit = "s"\ntask = "open"\n\n'
        '[[stream]]\nname = "joints"\nfrom = "states.csv/joint.*"\nkind = "vector"\n\n[[stream]]\nname = "front"\nfrom = "front"\nrate_hz = 5.0\n',
    )
    seed(
        "mapping_folder",
        "rate",
        'episodes = "**"\nrate_hz = 10\n[[stream]]\nname = "s"\nfrom = "state.npy"\n',
    )
    seed(
        "mapping_mcap",
        "topic",
        'task = { topic = "/episode", field = "data" }\nothers = "keep"\n\n[episodes]\nby = "topic"\ntopic = "/episode"\nfield = "data"\n'
        'start = "start"\nstop = "stop"\n\n[[stream]]\nname = "joints"\ntopic = "/joints"\nfields = ["position"]\nkind = "vector"\nclock = "log"\n',
    )
    seed(
        "mapping_mcap",
        "gap",
        '[episodes]\nby = "gap"\ngap_s = 0.15\n\n[[stream]]\nname = "c"\ntopic = "/camera"\nfield = "data"\nclock = "publish"\n',
    )
    seed(
        "plan",
        "rules",
        'quality = 90\n\n[[stream]]\nmatch = "obs/*"\ncodec = "zstd:level=3"\npage_frames = 8\n\n[[stream]]\nkind = "vector"\nbound = "abs(1e-3)"\n'
        'protect = ["grip", "*"]\n\n[[event]]\nname = "grip"\nstream = "action"\nelements = [6]\ndetect = "transition"\nbefore_s = 0.2\n',
    )
    seed(
        "plan",
        "bounds",
        '[[stream]]\nkind = "depth"\nbound = "mm(1)"\nunit_mm = 0.5\n[[stream]]\nkind = "image"\nbound = "psnr(42)"\n[[stream]]\nbound = "lossless"\n'
        '[[event]]\nname = "touch"\nstream = "**"\ndetect = "onset"\nthreshold = 2.0\nhold = 3\n',
    )
    seed(
        "request",
        "steps",
        '{"anchor": {"stream": "actions"}, "windows": [{"stream": "actions", "at": {"steps": [-1, 0, 1]}, "before": "zero", "after": "drop"}], "skip_first": 1}',
    )
    seed(
        "request",
        "times",
        '{"anchor": {"rate_hz": [29, 2]}, "windows": [{"key": "j", "stream": "obs/joints", "at": {"times_ns": [-100000000, 0]}, '
        '"resolve": {"linear": {"max_staleness_ns": 50000000}}, "latency_ns": 5}, {"stream": "actions", "at": "last", "stack": "single"}], "masks": "octo", "include": ["episode"]}',
    )
    seed(
        "request",
        "whole",
        '{"anchor": "episode", "windows": [{"stream": "actions", "at": "all"}, {"stream": "obs/joints", "at": {"from_end": 2}, "resolve": "hold"}], "masks": "off"}',
    )
    seed(
        "request",
        "lerobot",
        '{"anchor": null, "keys": ["actions"], "delta_timestamps": [["actions", [0.0, 0.1]]], "tolerance_s": 0.05}',
    )
    seed(
        "request",
        "robomimic",
        '{"dataset_keys": ["actions"], "obs_keys": ["joints"], "seq_length": 3, "frame_stack": 2, "after": "edge", "before": "edge", "masks": "pad_mask", "goal": "last", "next_obs": "load"}',
    )
    seed(
        "stats",
        "points",
        '{"frames":2,"count":[2],"nonfinite":[0],"mean":[1.5],"std":[0.5],"min":[1.0],"max":[2.0],"quantiles":{"q01":[1.0],"q50":[1.5]},"sketch":{"points":[[1.0,2.0]]}}\n'
        '{"frames":1,"count":[1],"nonfinite":[1],"mean":[1.5],"std":[0.0],"min":[1.5],"max":[1.5],"quantiles":{},"sketch":{"points":[[1.5]]}}',
    )
    seed(
        "stats",
        "counts",
        '{"frames":2,"count":[3],"nonfinite":[0],"mean":[1.5],"std":[0.5],"min":[1.0],"max":[2.0],"quantiles":{},"sketch":{"counts":[[[1,2],[5,1]]]}}',
    )
    seed(
        "selection",
        "filter",
        'success and frames >= 7 and task in ["lift", "can"] and not `odd name` and operator != null and has("obs/joints")',
    )
    seed(
        "selection",
        "json",
        '{"splits": ["train"], "episodes": ["ep-1", "ep-0"], "filter": "operator < 1.5"}',
    )
    seed("selection", "rows", '{"split": "valid", "episodes": [2]}')
    seed("part", "lists", "joint* note\n*.1\n0-1,episode_2 2")
    for name, text in {
        "size": "1.5 GiB",
        "cpu": "50%",
        "storage": "100MB/s,5ms,stall=200ms",
        "image": "224x224",
        "pattern": "obs/*_im**\nobs/front_image",
        "settings": '{"seed": 7, "batch_size": 4, "lanes": 2, "shuffle": {"groups": {"size": {"fraction": 0.5}, "unit": "shards"}}, "last_batch": "wrap"}',
        "options": '{"rank": 1, "world_size": 2, "memory": "1GB", "threads": 2, "cpu": "50%", "images": {"size": [8, 8]}, "on_error": "skip"}',
    }.items():
        seed("option_text", name, text)
    state = {
        "format": 1,
        "algorithm": "kino-order-2",
        "order": "9f2c",
        "data": "41d0",
        "seed": 7,
        "batch_size": 4,
        "lanes": 2,
        "last_batch": "short",
        "epoch_size": None,
        "next_index": 8,
        "receipt": "c5a1",
    }
    for name, shuffle in {
        "global": "global",
        "sequential": "sequential",
        "groups": {"groups": {"size": {"episodes": 2}, "unit": "episodes"}},
    }.items():
        seed("order_state", name, json.dumps(state | {"shuffle": shuffle}))
    settings = {
        "seed": 7,
        "batching": {"budget": {"frames": 24}},
        "step": 2,
        "spread": None,
        "last_batch": "repeat",
        "oversize": "alone",
    }
    seed(
        "order_state",
        "lengths",
        json.dumps(
            {
                "format": 1,
                "algorithm": "kino-order-2",
                "order": "9f2c",
                "data": "41d0",
                "settings": settings,
                "cursor": {"epoch": 3, "done": 1},
                "receipt": "c5a1",
            }
        ),
    )


def links() -> None:
    """The indexes of a golden shard whose pages are linked: see section 3 of spec/format.md."""
    golden = HERE.parent / "crates/kino_format/tests/golden/v2_linked.kshard"
    shard = golden.read_bytes()
    episodes = int.from_bytes(shard[-40:-36], "little")
    directory = len(shard) - 64 - 56 * episodes
    for slot in range(episodes):
        entry = shard[directory + 56 * slot :][:56]
        start, pages = (int.from_bytes(entry[at : at + 8], "little") for at in (0, 8))
        index = shard[start + pages :][: int.from_bytes(entry[16:20], "little")]
        seed("links", f"episode_{slot}", index)


def parity() -> None:
    """Parity files of a camera and of a vector, as `ds.parity(reference=True).save(path)` writes them."""
    figures = {
        "brightness": 215.0,
        "contrast": 60.0,
        "darkest": 24.6,
        "brightest": 254.0,
        "red_green": 3.5,
        "blue_green": -2.5,
        "sharpness": -1.0,
        "noise": 1.5,
        "blocking": 0.1,
        "flat": 0.4,
    }
    looks = {
        "frames": 66,
        "episodes": 3,
        "figures": {
            name: {"mean": mean, "std": 1.5, "limit": 7.5} for name, mean in figures.items()
        },
        "red_blue": [[11.7, 1.0], [3.5, 1.4]] * 8,
        "red_blue_limit": 3.0,
        "borders": [[0, 0], [0, 2], [0, 0], [1, 3]],
        "max": 255,
        "jpeg": {"quality": 60, "fit": 0.8, "sigmas": 20.0},
        "jpeg_fit": 0.9,
    }
    camera = {
        "stream": "front",
        "kind": "image",
        "dtype": "uint8",
        "shape": [32, 24, 3],
        "resized_from": [[48, 40]],
        "earlier": ["jpeg:q=90,sub=444"],
        "codec": "jpeg:q=60,sub=420",
        "is_lossy": True,
        "fidelity": "exact",
        "notes": ["a note"],
    }
    joints = {
        "stream": "joints",
        "kind": "vector",
        "dtype": "float64",
        "shape": [3],
        "is_lossy": False,
        "fidelity": "unchanged",
    }
    normal = {"offset": [0.5, 0.25, 0.0], "scale": [0.2, 1.0, 2.0]}
    loaded = {
        "bare": ({}, {}),
        "float": (
            {
                "size": [20, 20],
                "crop": [16, 12],
                "layout": "chw",
                "dtype": "float32",
                "normal": normal,
            },
            {"vector_dtype": "float32", "normal": normal},
        ),
    }
    for name, (of_camera, of_joints) in loaded.items():
        keys = [
            {"key": "front", "stored": camera, "loaded": of_camera},
            {"key": "joints", "stored": joints, "loaded": of_joints},
        ]
        file = {
            "kinograph": "parity",
            "format": 1,
            "tool": "kinograph 0.1.0",
            "dataset": ["a.kino", 1, "1052a45f"],
            "keys": keys,
            "reference": {"streams": {"front": looks}},
        }
        seed("parity", name, json.dumps(file))


def jpeg() -> None:
    """JPEG files of several qualities and ways to sample chroma."""
    pixels = Image.fromarray((np.arange(24 * 32 * 3).reshape(24, 32, 3) % 251).astype(np.uint8))
    for name, options in {
        "q75_420": {"quality": 75},
        "q95_444": {"quality": 95, "subsampling": 0},
        "q30_422_progressive": {"quality": 30, "subsampling": 1, "progressive": True},
    }.items():
        file = io.BytesIO()
        pixels.save(file, "JPEG", **options)
        seed("jpeg_estimate", name, file.getvalue())
    file = io.BytesIO()
    pixels.convert("L").save(file, "JPEG", quality=50)
    seed("jpeg_estimate", "q50_gray", file.getvalue())


for write in [
    hdf5,
    mcap,
    zarr,
    folders,
    zips,
    tars,
    rlds,
    mds,
    mp4,
    h264,
    video,
    lerobot,
    texts,
    links,
    parity,
    jpeg,
]:
    write()
