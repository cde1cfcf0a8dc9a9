"""`raw` (spec/codecs/raw.md): the values unchanged."""

from __future__ import annotations

import numpy as np

from spec.golden import FrameType, Page
from spec.wire import refuse_if


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (frames, *shape)."""
    refuse_if(shared != b"", "a shared part")
    refuse_if(len(page.bytes) != page.frames * frame.bytes, "a page of the wrong length")
    return np.frombuffer(page.bytes, frame.dtype).reshape(page.frames, *frame.shape)
