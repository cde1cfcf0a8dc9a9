"""Read a whole recording with its format's own library: `python readers.py FORMAT PATH`, under a Python that has it.

Prints the number of bytes of decoded frames, to show that it read and not just opened. Images are decoded; decoding
that a library does itself is left to it.
"""

# ruff: noqa: PLC0415 (each reader needs the library of its format, and no other)

from __future__ import annotations

import io
import pathlib
import sys
import tarfile
from collections.abc import Callable, Iterator

import numpy as np


def image(data: bytes) -> np.ndarray:
    """Decode a PNG or JPEG file."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)))


def hdf5(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Read every dataset of a file, or of a folder of files."""
    import h5py

    def leaves(group: h5py.Group) -> Iterator[np.ndarray]:
        for item in group.values():
            if isinstance(item, h5py.Dataset):
                yield np.asarray(item[()])
            else:
                yield from leaves(item)

    for file in sorted(path.glob("*.hdf5")) if path.is_dir() else [path]:
        with h5py.File(file) as opened:
            yield from leaves(opened)


def zarr(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Read every array whole, episode by episode."""
    import zarr

    store = zarr.ZipStore(str(path), mode="r") if path.suffix == ".zip" else str(path)
    root = zarr.open(store, mode="r")
    begin = 0
    for end in root["meta/episode_ends"][:]:
        for array in root["data"].values():
            yield array[begin:end]
        begin = end


def webdataset(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Iterate over the decoded samples."""
    import webdataset

    shards = [str(shard) for shard in sorted(path.glob("*.tar"))]
    for sample in webdataset.WebDataset(shards, shardshuffle=False).decode("rgb8"):
        yield from (value for value in sample.values() if isinstance(value, np.ndarray))


def rlds(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Parse every Example of every TFRecord file, without TensorFlow."""
    from tfrecord import example_pb2
    from tfrecord.reader import tfrecord_iterator

    for file in sorted(path.rglob("*.tfrecord-*")):
        for record in tfrecord_iterator(str(file)):
            example = example_pb2.Example()
            example.ParseFromString(bytes(record))
            for feature in example.features.feature.values():
                if feature.HasField("bytes_list"):
                    for value in feature.bytes_list.value:
                        is_image = value[:4] == b"\x89PNG"
                        yield image(value) if is_image else np.frombuffer(value, np.uint8)
                elif feature.HasField("float_list"):
                    yield np.array(feature.float_list.value, np.float32)
                else:
                    yield np.array(feature.int64_list.value, np.int64)


def lerobot(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Read every parquet file with pyarrow, and decode its images."""
    import pyarrow.parquet as pq

    for file in sorted((path / "data").rglob("*.parquet")):
        table = pq.read_table(file)
        for name in table.column_names:
            column = table[name].combine_chunks()
            if str(column.type).startswith("struct"):
                for cell in column.field("bytes"):
                    yield image(cell.as_py())
            elif hasattr(column, "values"):
                yield column.values.to_numpy(zero_copy_only=False)
            else:
                yield column.to_numpy(zero_copy_only=False)


def mcap(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Decode every message, and its image if it has one."""
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    for file in sorted(path.glob("*.mcap")):
        with file.open("rb") as opened:
            reader = make_reader(opened, decoder_factories=[DecoderFactory()])
            for _schema, _channel, _message, decoded in reader.iter_decoded_messages():
                data = getattr(decoded, "data", None)
                if hasattr(decoded, "format"):
                    yield image(bytes(data))  # type: ignore[arg-type]
                elif data is not None:
                    yield np.asarray(data)


def npz(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Load every array."""
    for file in sorted(path.glob("*.npz")):
        yield from np.load(file).values()


def robo(path: pathlib.Path) -> Iterator[np.ndarray]:
    """Load every array of every member."""
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None:
                yield from np.load(io.BytesIO(file.read())).values()


READERS: dict[str, Callable[[pathlib.Path], Iterator[np.ndarray]]] = {
    "robomimic": hdf5,
    "act": hdf5,
    "zarr": zarr,
    "zarr.zip": zarr,
    "webdataset": webdataset,
    "rlds": rlds,
    "lerobot-v2.1": lerobot,
    "lerobot-v3": lerobot,
    "mcap": mcap,
    "npz": npz,
    "robo": robo,
}


if __name__ == "__main__":
    print(sum(array.nbytes for array in READERS[sys.argv[1]](pathlib.Path(sys.argv[2]))))
