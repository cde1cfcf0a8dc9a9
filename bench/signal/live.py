"""What a policy is fed at test: frames as they are rendered, or after the round trip of an arm.

Pillow's JPEG has the very pixels of the codec `jpeg`; `check` compares them. Imported by every worker process, so it must
not import torch.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[Any]
SUBSAMPLING = {"444": 0, "420": 2}


def live(arm: str) -> Callable[[Array], Array]:
    """Give the round trip of a live frame."""
    if arm == "raw":
        return same
    name, _, chroma = arm.partition("-")
    quality = int(name.removeprefix("jpeg"))
    return functools.partial(jpeg, quality=quality, subsampling=SUBSAMPLING[chroma or "420"])


def same(frame: Array) -> Array:
    """Pass a frame through."""
    return frame


def jpeg(frame: Array, *, quality: int, subsampling: int) -> Array:
    """Encode and decode a frame."""
    file = io.BytesIO()
    Image.fromarray(frame).save(file, "JPEG", quality=quality, subsampling=subsampling)
    return np.asarray(Image.open(file))


def check(arm: str, before: Array, after: Array) -> None:
    """Raise an error if live frames would not look like the training frames of an arm."""
    trip = live(arm)
    if any(np.any(trip(one) != other) for one, other in zip(before, after, strict=True)):
        raise RuntimeError(f"{arm}: Pillow and the stored frames differ")
