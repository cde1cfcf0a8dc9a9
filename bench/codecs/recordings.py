"""The recordings under KINOGRAPH_TEST_DATA as streams, for the benchmarks in this folder.

From a file with several episodes, the longest is read; from a long stream, the frames in its middle, at most MAX_BYTES and
MAX_FRAMES.
"""

import io
import os
import pathlib
import struct
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import h5py
import numpy as np
import pyarrow.parquet
from PIL import Image

try:
    import av
except ImportError:  # decoding videos is optional
    av = None

MAX_FRAMES = 8192
MAX_BYTES = 12_000_000

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("KINOGRAPH_TEST_DATA", ROOT.parent / "shared" / "data"))


class Stream(NamedTuple):
    """Frames of one stream, as an array or as byte strings."""

    recording: str
    name: str
    kind: str
    type: str
    frames: np.ndarray | list[bytes]
    of: int


def stream(recording: str, name: str, array: np.ndarray) -> Stream | None:
    """Numeric values or text as a stream; None for anything else."""
    if array.ndim == 0 or len(array) < 2 or array.size == 0:
        return None
    if array.dtype.kind in "SUO":
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in array.tolist()]
        return Stream(recording, name, "text", "text", texts, len(texts))
    if array.dtype.kind not in "biuf":
        return None
    array = array.astype(array.dtype.newbyteorder("<"))
    frame_bytes = array[0].nbytes
    count = min(len(array), MAX_FRAMES, max(8, MAX_BYTES // frame_bytes))
    start = (len(array) - count) // 2
    sides = ",".join(str(side) for side in array.shape[1:])
    kind = kind_of(array)
    return Stream(
        *(recording, name, kind, f"{array.dtype.name}[{sides}]"),
        *(np.ascontiguousarray(array[start : start + count]), len(array)),
    )


def kind_of(array: np.ndarray) -> str:
    """Choose the list of candidates that suits."""
    if array.ndim >= 3 and array.dtype == np.uint8:
        return "image"
    if array.ndim >= 3:
        return "depth"
    if array.dtype == bool or (
        array.dtype.kind in "iu" and int(array.max()) - int(array.min()) < 2
    ):
        return "flag"
    if array.ndim == 1 and array.dtype == np.int64 and np.all(np.diff(array) >= 0):
        return "time"
    return "vector"


def hdf5(path: pathlib.Path, label: str) -> Iterator[Stream | None]:
    """Every dataset of the longest episode (robomimic's `data/demo_…`, or the whole file)."""
    with h5py.File(path) as file:
        group = file
        if "data" in file and isinstance(file["data"], h5py.Group):
            demos = [demo for demo in file["data"].values() if "actions" in demo]
            group = max(demos, key=lambda demo: len(demo["actions"])) if demos else file
        names: list[str] = []
        group.visititems(
            lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        for name in names:
            yield stream(label, name, group[name][()])


def npz(path: pathlib.Path, label: str) -> Iterator[Stream | None]:
    """Every array that is not a list of names or lengths."""
    with np.load(path) as arrays:
        for name in arrays.files:
            if name not in ("lengths", "cols"):
                yield stream(label, name, arrays[name])


def parquet(path: pathlib.Path, label: str) -> Iterator[Stream | None]:
    """Every column of a LeRobot episode."""
    table = pyarrow.parquet.read_table(path)
    for name in table.column_names:
        yield stream(label, name, np.array(table[name].to_pylist(), dtype=scalar(table[name].type)))


def scalar(arrow_type: object) -> np.dtype:
    """Return the numpy dtype of a column."""
    inner = getattr(arrow_type, "value_type", arrow_type)
    return np.dtype(inner.to_pandas_dtype())


def images(folder: pathlib.Path, pattern: str, label: str) -> Iterator[Stream | None]:
    """Images of a folder, grouped by shape."""
    by_shape: dict[tuple, list[np.ndarray]] = {}
    for path in sorted(folder.glob(pattern)):
        image = np.asarray(Image.open(path))
        if image.dtype == np.int32:  # how Pillow opens 16-bit PNG
            image = image.astype(np.uint16)
        # All in one shape: portrait photographs are rotated.
        if image.ndim == 3 and image.shape[0] > image.shape[1]:
            image = np.rot90(image)
        by_shape.setdefault((image.shape, image.dtype), []).append(image)
    for found in by_shape.values():
        yield stream(
            label, f"{pattern} × {len(found)}", np.stack(found * (2 if len(found) < 2 else 1))
        )


def video(path: pathlib.Path, label: str) -> Iterator[Stream | None]:
    """Decode as much of a video as is measured, if PyAV is installed."""
    if av is None:
        note(f"{label}: skipped, PyAV is not installed")
        return
    frames: list[np.ndarray] = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            frames.append(frame.to_ndarray(format="rgb24"))
            if sum(one.nbytes for one in frames) > 2 * MAX_BYTES:
                break
    yield stream(label, "decoded video", np.stack(frames))


def tfrecord(path: pathlib.Path, label: str) -> Iterator[Stream | None]:
    """Every feature of RLDS episodes, with the steps of all of them joined; JPEG unchanged."""
    joined: dict[str, list] = {}
    data = path.read_bytes()
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        for name, values in example(data[at + 12 : at + 12 + length]).items():
            joined.setdefault(name, []).append(values)
        at += 12 + length + 4
    steps = len(joined["steps/is_first"][0])
    for name, parts in sorted(joined.items()):
        if not name.startswith("steps/") or any(len(part) % steps for part in parts):
            continue
        if isinstance(parts[0], list):
            values = [value for part in parts for value in part]
            if all(value.startswith(b"\xff\xd8") for value in values):
                yield jpegs(label, name, values)
            elif all(len(value) < 1000 for value in values):
                yield stream(label, name, np.array(values, dtype=object))
        else:
            yield stream(label, name, np.concatenate([part.reshape(steps, -1) for part in parts]))


def jpegs(label: str, name: str, values: list[bytes]) -> Stream:
    """JPEG files as a stream; those with another shape than the first are skipped."""

    def shape(value: bytes) -> str:
        image = Image.open(io.BytesIO(value))
        return f"uint8[{image.height},{image.width},{len(image.getbands())}]"

    first = shape(values[0])
    same = [value for value in values if shape(value) == first]
    return Stream(label, name, "bitstream", first, same, len(values))


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a protocol buffer message into length-delimited fields; `Example` has no others."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (message[at] & 0x7F) << shift
            shift += 7
            at += 1
            if message[at - 1] < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        length, at = varint(at)
        yield key >> 3, message[at : at + length]
        at += length


def example(message: bytes) -> dict[str, np.ndarray | list[bytes]]:
    """Read a `tf.train.Example`: names to lists of bytes, floats or integers."""
    found: dict[str, np.ndarray | list[bytes]] = {}
    for _, features in fields(message):
        for _, entry in fields(features):
            parts = dict(fields(entry))
            for kind, values in fields(parts[2]):
                name = parts[1].decode()
                if kind == 1:
                    found[name] = [value for _, value in fields(values)]
                elif kind == 2:
                    packed = b"".join(value for _, value in fields(values))
                    found[name] = np.frombuffer(packed, "<f4")
                else:
                    packed = b"".join(value for _, value in fields(values))
                    found[name] = np.array(varints(packed), dtype=np.int64)
    return found


def varints(packed: bytes) -> list[int]:
    """Packed integers."""
    values, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value - (1 << 64) if value >> 63 else value)
            value = shift = 0
    return values


def note(text: str) -> None:
    """Print a line that is not part of the table."""
    print(f"note: {text}", file=sys.stderr)


READERS: list[tuple[str, Callable[[pathlib.Path, str], Iterator[Stream | None]]]] = [
    ("generated/**/*.hdf5", hdf5),
    ("real/robomimic/*.hdf5", hdf5),
    ("real/npz/*.npz", npz),
    ("real/g1_lerobot/data/**/*.parquet", parquet),
    ("real/g1_lerobot/videos/**/*.mp4", video),
    ("real/video/*.mp4", video),
    ("real/bridge/*.tfrecord*", tfrecord),
    ("real/depth", lambda path, label: images(path, "redwood_depth*.png", label)),
    ("real/depth", lambda path, label: images(path, "TUM_depth.png", label)),
    ("real/depth/*.jpg", lambda path, label: iter([jpegs(label, "color", [path.read_bytes()])])),
    ("real/kodak", lambda path, label: images(path, "*.png", label)),
]


def streams(names: list[str]) -> Iterator[Stream]:
    """Every stream of every recording whose path contains one of the names."""
    for pattern, reader in READERS:
        for path in sorted(DATA.glob(pattern)):
            label = str(path.relative_to(DATA))
            if not names or any(name in label for name in names):
                yield from (found for found in reader(path, label) if found is not None)
