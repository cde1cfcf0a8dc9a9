"""A second opinion on `av1`: dav1d (through PyAV) must decode the golden pages to the values recorded with them.

    pip install av numpy
    python bench/codecs/check_av1.py

Run it when a golden page of `av1` is added; `cargo test` then checks every later decoder against those values. Pages
are parsed and pixels converted by spec/codecs/av1.md alone.
"""

import io
import pathlib

import av
import numpy as np
from video import plane_of, to_rgb

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "crates/kino_codec/tests/golden"


def varint(page: bytes, at: int) -> tuple[int, int]:
    """Read a varint; returns the value and the offset after it."""
    value = shift = 0
    while True:
        value |= (page[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if page[at - 1] < 0x80:
            return value, at


def units(page: bytes, frames: int) -> bytes:
    """All units of a page; empty if it has exact frames."""
    at = total = 0
    for _ in range(frames):
        size, at = varint(page, at)
        if size % 2:
            return b""
        total += size // 2
    assert at + total == len(page)
    return page[at:]


def images(stream: bytes, height: int, width: int) -> list[np.ndarray]:
    """Decode a stream with dav1d, without the padding at the edges."""
    decoded = []
    with av.open(io.BytesIO(stream), format="obu") as video:
        for frame in video.decode(video=0):
            y, *channels = [plane_of(plane) for plane in frame.planes]
            half = frame.format.name.endswith("420p")
            channels = [
                c.repeat(2, 0).repeat(2, 1)[: len(y), : y.shape[1]] if half else c for c in channels
            ]
            decoded.append((to_rgb(y, *channels) if channels else y)[:height, :width])
    return decoded


def main() -> None:
    """Compare every golden page that has no exact frames."""
    for path in sorted(GOLDEN.glob("av1*.txt")):
        lines = [line.split(" ", 1) for line in path.read_text().splitlines()]
        fields = dict(lines)
        shape = [int(side) for side in fields["shape"].split(",")]
        pages = [value.split(" ") for key, value in lines if key == "page"]
        parts = [units(bytes.fromhex(data), int(frames)) for frames, data in pages]
        if not all(parts):
            print(f"{path.name}: skipped: it has exact frames, which are pages of `predict`")
            continue
        decoded = np.stack([image for part in parts for image in images(part, *shape[:2])])
        recorded = np.frombuffer(bytes.fromhex(fields["values"]), np.uint8).reshape(-1, *shape)
        assert np.array_equal(decoded.reshape(recorded.shape), recorded), path
        print(f"{path.name}: {len(recorded)} frames equal dav1d's bit for bit")


if __name__ == "__main__":
    main()
