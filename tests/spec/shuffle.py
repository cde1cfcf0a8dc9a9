"""`shuffle` (spec/codecs/shuffle.md): bytes of equal significance, back in their elements."""

from __future__ import annotations

import numpy as np

from spec.golden import FrameType, Page
from spec.wire import refuse_if


def to_frames(frame: FrameType, params: dict[str, str], page: Page, content: bytes) -> np.ndarray:
    """Return the frames whose grouped bytes are `content`."""
    width = int(params["shuffle"])
    refuse_if(frame.bytes % width != 0, "frames that are not whole elements")
    refuse_if(len(content) != page.frames * frame.bytes, "content of the wrong length")
    packed = unshuffle_bytes(content, width)
    return np.frombuffer(packed, frame.dtype).reshape(page.frames, *frame.shape)


def unshuffle_bytes(content: bytes, width: int) -> bytes:
    """Byte b of element i is at b × E + i."""
    return np.frombuffer(content, np.uint8).reshape(width, -1).T.tobytes()
