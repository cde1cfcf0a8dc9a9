"""`deflate` (spec/codecs/deflate.md): a page is one zlib stream, grouped as set by `shuffle`."""

from __future__ import annotations

import zlib

import numpy as np

from spec.golden import FrameType, Page
from spec.shuffle import to_frames
from spec.wire import RefusedError, refuse_if


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (frames, *shape)."""
    refuse_if(shared != b"", "a shared part")
    size = page.frames * frame.bytes
    refuse_if(size > 1032 * len(page.bytes) + 1031, "the content is too large")
    decoder = zlib.decompressobj()
    try:
        content = decoder.decompress(page.bytes, size + 1)
    except zlib.error as error:
        raise RefusedError(f"zlib: {error}") from error
    refuse_if(not decoder.eof or decoder.unused_data != b"", "not one whole zlib stream")
    return to_frames(frame, params, page, content)
