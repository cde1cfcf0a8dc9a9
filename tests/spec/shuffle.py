"""`shuffle` (spec/codecs/shuffle.md): bytes or bits of equal significance, back in their elements."""

from __future__ import annotations

import numpy as np

from spec.golden import FrameType, Page
from spec.wire import refuse_if


def to_frames(frame: FrameType, params: dict[str, str], page: Page, content: bytes) -> np.ndarray:
    """Return the frames whose grouped bytes are `content`."""
    value = params["shuffle"]
    is_bits = value.startswith("bits")
    width = int(value.removeprefix("bits"))
    refuse_if(frame.bytes % width != 0, "frames that are not whole elements")
    refuse_if(len(content) != page.frames * frame.bytes, "content of the wrong length")
    packed = unshuffle_bits(content, width) if is_bits else unshuffle_bytes(content, width)
    return np.frombuffer(packed, frame.dtype).reshape(page.frames, *frame.shape)


def unshuffle_bytes(content: bytes, width: int) -> bytes:
    """Byte b of element i is at b × E + i."""
    return np.frombuffer(content, np.uint8).reshape(width, -1).T.tobytes()


def unshuffle_bits(content: bytes, width: int) -> bytes:
    """Row r holds bit r of all elements except the last E mod 8, which follow unchanged."""
    grouped = len(content) // width // 8 * 8
    rows = np.frombuffer(content[: grouped * width], np.uint8).reshape(8 * width, -1)
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes() + content[grouped * width :]
