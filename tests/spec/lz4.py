"""`lz4` (spec/codecs/lz4.md): a page is one LZ4 block, grouped as set by `shuffle`."""

from __future__ import annotations

import lz4.block
import numpy as np

from spec.golden import FrameType, Page
from spec.shuffle import to_frames
from spec.wire import RefusedError, refuse_if


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (frames, *shape)."""
    refuse_if(shared != b"", "a shared part")
    size = page.frames * frame.bytes
    refuse_if(size > 255 * len(page.bytes) + 254, "the content is too large")
    try:
        # The caller must know the size: it is not stored before the block.
        content = lz4.block.decompress(page.bytes, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise RefusedError(f"lz4: {error}") from error
    return to_frames(frame, params, page, content)
