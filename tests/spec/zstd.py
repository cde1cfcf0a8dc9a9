"""`zstd` (spec/codecs/zstd.md): a page is one zstd frame, grouped as set by `shuffle`."""

from __future__ import annotations

import numpy as np

from spec.golden import FrameType, Page
from spec.shuffle import to_frames
from spec.wire import refuse_if, unzstd


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (frames, *shape)."""
    refuse_if(shared != b"", "a shared part")
    return to_frames(frame, params, page, unzstd(page.bytes, page.frames * frame.bytes))
