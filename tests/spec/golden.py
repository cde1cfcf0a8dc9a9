"""A golden file: a run as the library once wrote it, and the values it must decode to.

    codec depth:level=3      shared 0401…   (hexadecimal)
    dtype uint16             page 1 8f02…   (number of frames, bytes; one line per page)
    shape 24,30              values 0000…   (all frames of the run, packed)

A text stream has `dtype text` and a line `text …` per frame in place of `values`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "crates/kino_codec/tests/golden"


@dataclass
class FrameType:
    """What one frame is: a dtype and a shape, or text."""

    dtype: np.dtype | None = None
    shape: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """The number of values in a frame."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def bytes(self) -> int:
        """`frame_bytes` in the specification."""
        return self.elements * self.dtype.itemsize


@dataclass
class Page:
    """A page's bytes, and its number of frames, from a shard's index."""

    frames: int
    bytes: bytes


@dataclass
class Golden:
    """One golden file."""

    name: str
    params: dict[str, str] = field(default_factory=dict)
    frame: FrameType = field(default_factory=FrameType)
    shared: bytes = b""
    pages: list[Page] = field(default_factory=list)
    values: bytes = b""
    texts: list[str] = field(default_factory=list)


def split_codec(text: str) -> tuple[str, dict[str, str]]:
    """Split a codec string into name and parameters."""
    name, _, params = text.partition(":")
    pairs = (param.partition("=") for param in params.split(",") if param)
    return name, {key: value for key, _, value in pairs}


def read(path: Path) -> Golden:
    """Read one file."""
    golden = Golden("")
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, rest = line.partition(" ")
        if key == "codec":
            golden.name, golden.params = split_codec(rest)
        elif key == "dtype" and rest != "text":
            golden.frame.dtype = np.dtype(rest).newbyteorder("<")
        elif key == "shape":
            golden.frame.shape = tuple(int(side) for side in rest.split(",") if side)
        elif key == "shared":
            golden.shared = bytes.fromhex(rest)
        elif key == "page":
            frames, _, digits = rest.partition(" ")
            golden.pages.append(Page(int(frames), bytes.fromhex(digits)))
        elif key == "values":
            golden.values = bytes.fromhex(rest)
        elif key == "text":
            golden.texts.append(rest)
    return golden
