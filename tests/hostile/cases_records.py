"""Streams of records: MCAP and RLDS (TFRecord)."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard
from harness import PACK, Case, add

RATE = (*PACK, "--rate", "10")
KEEP = (*RATE, "--on-defect", "keep")


# MCAP, written by hand: the library does not write invalid files.

MAGIC = b"\x89MCAP0\r\n"


def entry(kind: int, body: bytes) -> bytes:
    return struct.pack("<BQ", kind, len(body)) + body


def text(value: str | bytes) -> bytes:
    body = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(body)) + body


def schema(
    number: int = 1,
    name: str = "Point",
    encoding: str = "jsonschema",
    data: bytes = b'{"type": "object"}',
) -> bytes:
    return entry(3, struct.pack("<H", number) + text(name) + text(encoding) + text(data))


def channel(
    number: int = 1,
    of: int = 1,
    topic: str | bytes = "/arm",
    encoding: str = "json",
    metadata: bytes = b"",
) -> bytes:
    return entry(4, struct.pack("<HH", number, of) + text(topic) + text(encoding) + text(metadata))


def message(body: bytes, number: int = 1, log_ns: int = 0) -> bytes:
    return entry(5, struct.pack("<HIQQ", number, 0, log_ns, log_ns) + body)


def messages(count: int = 5, body: Callable[[int], object] | None = None) -> bytes:
    body = body or (lambda step: {"x": step, "y": [1.5, 2.5]})
    return b"".join(
        message(json.dumps(body(step)).encode(), log_ns=step * 10**8) for step in range(count)
    )


def block(
    content: bytes,
    compression: str = "",
    *,
    length: int | None = None,
    crc: int = 0,
    stored: bytes | None = None,
) -> bytes:
    if stored is None:
        stored = zstandard.compress(content) if compression == "zstd" else content
    length = len(content) if length is None else length
    head = (
        struct.pack("<QQQI", 0, 10**9, length, crc)
        + text(compression)
        + struct.pack("<Q", len(stored))
    )
    return entry(6, head + stored)


HEADER = entry(1, text("") + text("test"))
END = entry(15, bytes(4)) + entry(2, bytes(20)) + MAGIC
VALID = schema() + channel() + messages()


def mcap(
    name: str,
    body: bytes | Callable[[], bytes],
    codes: tuple[int, ...] = (1,),
    command: tuple[str, ...] = PACK,
    says: str = "",
) -> None:
    def build(folder: Path) -> Path:
        path = folder / "take.mcap"
        content = body if isinstance(body, bytes) else body()
        path.write_bytes(MAGIC + HEADER + content + (b"" if isinstance(body, Cut) else END))
        return path

    add(Case("records", f"mcap_{name}", build, (command,), codes, says))


class Cut(bytes):
    """What an interrupted recorder leaves: nothing follows it."""


MCAP_KEEP = (*PACK, "--on-defect", "keep")


def bomb(blocks: int, length: int = 128 << 20) -> bytes:
    """Blocks of zeros."""
    stored = zstandard.compress(bytes(128 << 20))
    return VALID + block(b"", "zstd", length=length, stored=stored) * blocks


def padding() -> bytes:
    """Blocks of one entry that a reader skips."""
    stored = zstandard.compress(entry(0x80, bytes((64 << 20) - 9)))
    return VALID + block(b"", "zstd", length=64 << 20, stored=stored) * 200


mcap("valid", VALID, (0,))
mcap("valid_in_a_block", block(VALID, "zstd"), (0,))
mcap("blocks_of_25_gib_of_zeros", lambda: bomb(200))
mcap("blocks_of_25_gib_kept", lambda: bomb(200), (3,), MCAP_KEEP)
mcap("blocks_of_padding", padding, (3,), MCAP_KEEP, "far more than the file")
mcap("block_of_256_mib", lambda: bomb(1, 256 << 20), says="the limit is")
mcap("block_longer_than_it_says", lambda: bomb(1, 100))
mcap("block_shorter_than_it_says", block(VALID, "zstd", length=1 << 20))
mcap("block_is_noise", VALID + block(b"", "zstd", length=100, stored=os.urandom(90)))
mcap("block_lz4_is_noise", VALID + block(b"", "lz4", length=100, stored=os.urandom(90)))
mcap("block_unknown_compression", VALID + block(VALID, "rot13"), says="rot13")
mcap("block_wrong_checksum", VALID + block(messages(3), crc=1), says="checksum")
mcap("block_stored_length_lies", VALID + block(b"x")[:-9] + struct.pack("<Q", 1 << 60) + b"x")
mcap("block_inside_a_block", block(block(VALID)), (1,))
mcap(
    "million_messages",
    lambda: block(schema() + channel() + message(b"{}") * 1_500_000, "zstd"),
    (1,),
    says="more messages",
)
mcap("no_end", Cut(VALID), says="footer")
mcap("no_end_kept", Cut(VALID), (0,), MCAP_KEEP)
mcap("cut_in_a_message", Cut(VALID + message(b"x" * 100)[:50]))
mcap("entry_of_exabytes", VALID + struct.pack("<BQ", 5, 1 << 62))
mcap("entry_of_kind_0", VALID + entry(0, b""))
mcap("only_zeros", Cut(bytes(1 << 20)))
mcap("unknown_channel", VALID + message(b"{}", number=7), (0, 1, 3))
mcap("unknown_schema", schema() + channel(of=9) + messages(), (0, 1, 3))
mcap("channel_twice", VALID + channel(topic="/other") + messages(), (0, 1, 3))
mcap("topic_not_utf_8", schema() + channel(topic=b"\xff\xfe") + messages())
mcap("topic_control", schema() + channel(topic="/a\x1b]0;x\x07") + messages(), (1,))
mcap("topic_dots", schema() + channel(topic="/../..") + messages(), (1,))
mcap("topic_empty", schema() + channel(topic="") + messages(), (0, 1, 3))
mcap("topic_of_100_kb", schema() + channel(topic="x" * 100_000) + messages(), (1, 3), MCAP_KEEP)
mcap(
    "20000_channels",
    schema() + b"".join(channel(n, topic=f"/t{n}") for n in range(1, 20_000)) + messages(),
    (0, 1, 3),
)
mcap(
    "5000_topics",
    schema()
    + b"".join(channel(n, topic=f"/t{n}") + message(b'{"x": 1}', n) for n in range(1, 5_000)),
    says="4096",
)
mcap("metadata_map_lies", schema() + channel(metadata=b"\xff\xff\xff\xff") + messages(), (0, 1, 3))
mcap("time_of_2_64", schema() + channel() + message(b'{"x": 1}', log_ns=2**64 - 1) * 2, (0, 1))
mcap(
    "time_goes_back",
    schema() + channel() + message(b'{"x": 1}', log_ns=10) + message(b'{"x": 2}', log_ns=5),
    (0, 1),
)
mcap(
    "json_deep",
    schema() + channel() + message(b"[" * 100_000 + b"]" * 100_000) * 2,
    (1, 3),
    MCAP_KEEP,
)
mcap("json_broken", schema() + channel() + messages(2) + message(b"{") + messages(2), (1,))
mcap(
    "json_field_comes_and_goes",
    schema() + channel() + messages(4, lambda step: {"x": 1, f"y{step}": 2}),
    (1,),
)
mcap(
    "json_other_lengths",
    schema() + channel() + messages(4, lambda step: {"x": [1] * step, "z": 1}),
    (1,),
)
mcap(
    "json_other_types",
    schema() + channel() + messages(4, lambda step: {"x": "a" if step % 2 else 1, "z": 1}),
    (1,),
)
mcap(
    "json_5000_fields",
    schema() + channel() + messages(2, lambda step: {f"f{n}": 1 for n in range(5_000)}),
    (1,),
)
mcap(
    "json_names",
    schema() + channel() + messages(3, lambda step: {"..": 1, "a/b": 2, "\n": 3, "": 4}),
    (0, 1, 3),
    MCAP_KEEP,
)
mcap(
    "json_huge_numbers",
    schema() + channel() + message(b'{"x": 1e999, "y": 123456789012345678901234567890}') * 3,
    (0, 1, 3),
)
ros = b"Point p\n================\nMSG: pkg/Point\nPoint p\nfloat64 x\n"
mcap(
    "ros_recursive",
    schema(1, "pkg/msg/Point", "ros2msg", ros) + channel(encoding="cdr") + message(bytes(64)) * 3,
    (1,),
)
mcap(
    "ros_is_noise",
    schema(1, "pkg/msg/Point", "ros2msg", os.urandom(200))
    + channel(encoding="cdr")
    + message(bytes(64)) * 3,
    (1,),
)
array = b"float64[] x\n"
mcap(
    "ros_array_of_4_billion",
    schema(1, "pkg/msg/A", "ros2msg", array)
    + channel(encoding="cdr")
    + message(b"\0\1\0\0" + b"\xff" * 8) * 3,
    (1,),
)
mcap(
    "ros_array_of_a_fixed_exabyte",
    schema(1, "pkg/msg/A", "ros2msg", b"float64[999999999999999] x\n")
    + channel(encoding="cdr")
    + message(b"\0\1\0\0" + bytes(8)) * 3,
    (1,),
)
mcap(
    "ros_cut_short",
    schema(1, "pkg/msg/A", "ros2msg", b"float64 x\nfloat64 y\n")
    + channel(encoding="cdr")
    + message(b"\0\1\0\0" + bytes(8)) * 3,
    (1,),
)
mcap(
    "protobuf_is_noise",
    schema(1, "a.B", "protobuf", os.urandom(300))
    + channel(encoding="protobuf")
    + message(os.urandom(40)) * 3,
    (1,),
)
mcap(
    "protobuf_descriptor_deep",
    schema(1, "a.B", "protobuf", b"\x0a\xff\xff\xff\xff\x0f" * 1000)
    + channel(encoding="protobuf")
    + message(b"") * 3,
    (1,),
)

image = (
    b"std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data\n"
    b"================\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    b"================\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)


def cdr_image(height: int, width: int, step: int, data: bytes) -> bytes:
    body = struct.pack("<iI", 1, 0) + struct.pack("<I", 1) + b"\0" + bytes(3)
    body += struct.pack("<II", height, width) + struct.pack("<I", 5) + b"rgb8\0" + b"\0" + bytes(2)
    return b"\0\1\0\0" + body + struct.pack("<II", step, len(data)) + data


def ros_image(name: str, body: bytes, codes: tuple[int, ...] = (1,)) -> None:
    mcap(
        name,
        schema(1, "sensor_msgs/msg/Image", "ros2msg", image)
        + channel(encoding="cdr")
        + message(body) * 2,
        codes,
    )


ros_image("image_sound", cdr_image(2, 2, 6, bytes(12)), (0, 1))
ros_image("image_of_4_billion_rows", cdr_image(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, bytes(12)))
ros_image("image_step_too_small", cdr_image(2, 2, 1, bytes(12)))
ros_image("image_of_nothing", cdr_image(0, 0, 0, b""))


def mcap_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "take.mcap")
    return folder / "take.mcap"


add(Case("records", "mcap_pipe", mcap_pipe, (PACK,), (1,), ""))


# RLDS.

CRC = []
for number in range(256):
    value = number
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    CRC.append(value)


def masked(body: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in body:
        crc = CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record(body: bytes, *, length: int | None = None, crc: int | None = None) -> bytes:
    head = struct.pack("<Q", len(body) if length is None else length)
    return (
        head
        + struct.pack("<I", masked(head))
        + body
        + struct.pack("<I", masked(body) if crc is None else crc)
    )


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def floats(values: list[float]) -> bytes:
    return field(2, field(1, np.array(values, dtype="<f4").tobytes()))


def texts(values: list[bytes]) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))


def example(**features: bytes) -> bytes:
    pairs = [field(1, field(1, name.encode()) + field(2, body)) for name, body in features.items()]
    return field(1, b"".join(pairs))


def tensor(dtype: str, *shape: int) -> dict:
    return {
        "pythonClassName": "x.Tensor",
        "tensor": {
            "shape": {"dimensions": [str(dim) for dim in shape]},
            "dtype": dtype,
            "encoding": "none",
        },
    }


def features(**of_steps: dict) -> dict:
    steps = {"pythonClassName": "x.FeaturesDict", "featuresDict": {"features": of_steps}}
    dataset = {"pythonClassName": "x.Dataset", "sequence": {"feature": steps, "length": "-1"}}
    return {"pythonClassName": "x.FeaturesDict", "featuresDict": {"features": {"steps": dataset}}}


ACTION = features(action=tensor("float32", 3))
GOOD = record(example(**{"steps/action": floats([1.0] * 12)}))


def under(schema: dict | bytes) -> Callable[..., None]:
    """Registers cases of a `features.json`."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()

    def register(
        name: str,
        body: bytes,
        codes: tuple[int, ...] = (1,),
        command: tuple[str, ...] = RATE,
        says: str = "",
    ) -> None:
        def build(folder: Path) -> Path:
            source = folder / "toy" / "1.0.0"
            source.mkdir(parents=True)
            (source / "features.json").write_bytes(text)
            (source / "toy-train.tfrecord-00000-of-00001").write_bytes(body)
            return source

        add(Case("records", f"rlds_{name}", build, (command,), codes, says))

    return register


rlds = under(ACTION)
bad = record(example(**{"steps/action": floats([1.0] * 11)}))
rlds("valid", GOOD * 2, (0,))
rlds("length_of_exabytes", GOOD + record(b"", length=1 << 62))
rlds("length_beyond_the_end", GOOD + record(b"", length=1 << 20))
rlds("length_with_a_wrong_checksum", GOOD + bytes(100))
rlds("body_with_a_wrong_checksum", GOOD + record(b"x" * 100, crc=1) + GOOD)
rlds("body_with_a_wrong_checksum_kept", GOOD + record(b"x" * 100, crc=1) + GOOD, (3,), KEEP)
rlds("cut_short", GOOD + GOOD[:-3])
rlds("body_empty", GOOD + record(b"") + GOOD, (3,), KEEP)
rlds("body_is_noise", GOOD + record(os.urandom(200)) + GOOD, (3,), KEEP)
rlds("other_number_of_values", GOOD + bad, (1,))
rlds("other_number_of_values_kept", GOOD + bad, (3,), KEEP)
rlds("varint_too_long", GOOD + record(b"\x0a" + b"\xff" * 40), (3,), KEEP)
rlds("nested_10000_times", GOOD + record(b"\x0a\x04" * 10_000), (3,), KEEP)
rlds("feature_missing", GOOD + record(example(other=floats([1.0]))), (3,), KEEP)
rlds(
    "feature_of_another_type",
    GOOD + record(example(**{"steps/action": texts([b"a"] * 12)})),
    (3,),
    KEEP,
)
under(features(note={"pythonClassName": "x.Text", "text": {}}))(
    "million_empty_texts", record(example(**{"steps/note": texts([b""] * 1_000_000)})), (0, 1, 3)
)
under(features(note={"pythonClassName": "x.Text", "text": {}}))(
    "text_not_utf_8", record(example(**{"steps/note": texts([b"\xff\xfe"] * 3)}))
)
image_feature = {
    "pythonClassName": "x.Image",
    "image": {"shape": {"dimensions": ["8", "8", "3"]}, "dtype": "uint8", "encodingFormat": "png"},
}
under(features(image=image_feature))(
    "image_is_noise", record(example(**{"steps/image": texts([os.urandom(90)] * 3)}))
)
under(features(action=tensor("float32", 1 << 40, 1 << 40)))("shape_of_exabytes", GOOD)
under(features(action=tensor("float32", -5)))("shape_negative", GOOD, codes=(0, 1))
under(features(action=tensor("float1024", 3)))("dtype_unknown", GOOD)
under(features(**{"a\nb": tensor("float32", 3)}))(
    "name_control", record(example(**{"steps/a\nb": floats([1.0] * 12)})), (0,), KEEP
)
under(features(**{"..": tensor("float32", 3)}))(
    "name_dots", record(example(**{"steps/..": floats([1.0] * 12)})), (0,), KEEP
)
under(b"{" * 1000)("features_is_not_json", GOOD)
under(b'{"featuresDict": ' * 5_000 + b"{}" + b"}" * 5_000)("features_is_deep", GOOD)
under(json.dumps(ACTION).encode()[:-1] + b', "x": [' + b"0," * (5 << 20) + b"0]}")(
    "features_of_10_mb", GOOD, codes=(0, 1)
)
rlds("no_records", b"")
under(features(**{f"f{n}": tensor("float32") for n in range(5_000)}))(
    "5000_features",
    record(example(**{f"steps/f{n}": floats([1.0]) for n in range(5_000)})),
    says="4096",
)


def rlds_pipe(folder: Path) -> Path:
    source = folder / "toy" / "1.0.0"
    source.mkdir(parents=True)
    (source / "features.json").write_text(json.dumps(ACTION))
    os.mkfifo(source / "toy-train.tfrecord-00000-of-00001")
    return source


add(Case("records", "rlds_pipe", rlds_pipe, (RATE,), (1,), ""))
