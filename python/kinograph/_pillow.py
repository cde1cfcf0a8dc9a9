"""WebP and AVIF through Pillow, as foreign codecs: compared out of the box, and stored if a plan names them.

    webp-80        lossy, quality 1 to 100      avif-80    lossy, quality 1 to 100
    webp-lossless  bit for bit

A page is one file of the format, so any image viewer reads it. Frames are uint8 images of three channels: WebP has no
grey images, and what a decoder returns must have the shape of what was encoded.
"""

from __future__ import annotations

import importlib.util
import io
import re
from typing import Any

import numpy as np
import numpy.typing as npt

# What is compared, of all qualities.
_COMPARED = ("webp-80", "webp-95", "webp-lossless", "avif-60", "avif-80")

_NAME = re.compile(r"(webp|avif)-([1-9][0-9]?|100|lossless)")

# The longest side of a WebP image; AVIF allows more.
_MAX_SIDE = 16383


def names() -> list[str]:
    """List what is worth a comparison, if Pillow is installed.

    >>> from kinograph import _pillow
    >>> "webp-80" in _pillow.names() or "Pillow is not installed, or without WebP"
    True
    """
    return [name for name in _COMPARED if _missing(name) is None]


def find(name: str) -> PillowCodec | None:
    """Find the codec of this name; an error says what is missing if Pillow cannot be used."""
    match = _NAME.fullmatch(name)
    if match is None or name == "avif-lossless":
        return None
    missing = _missing(name)
    if missing is not None:
        raise RuntimeError(f"cannot be used: {missing}")
    return PillowCodec(name, match[1], match[2])


def _missing(name: str) -> str | None:
    """Say what is missing for a format."""
    if importlib.util.find_spec("PIL") is None:
        return "it needs Pillow; `pip install pillow`"
    from PIL import features  # noqa: PLC0415 (optional, and slow to import)

    kind = name.partition("-")[0]
    # Pillow before 11.3 does not know AVIF, and warns if it is asked.
    if kind not in features.get_supported_modules():
        return f"this Pillow has no {kind.upper()}; `pip install --upgrade pillow`"
    return None


class PillowCodec:
    """One format and quality."""

    def __init__(self, name: str, kind: str, quality: str) -> None:
        import PIL  # noqa: PLC0415 (optional, and slow to import)
        from PIL import features  # noqa: PLC0415 (optional, and slow to import)

        self.name = name
        self.lossless = quality == "lossless"
        self.version = f"Pillow {PIL.__version__}, lib{kind} {features.version_module(kind)}"
        self._format = kind.upper()
        self._options: dict[str, Any] = {"lossless": True}
        if not self.lossless:
            self._options = {"quality": int(quality)}
        if kind == "avif":
            # Pages are encoded on many threads already.
            self._options["max_threads"] = 1

    def suits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Take RGB images."""
        is_image = dtype == "uint8" and len(shape) == 3 and shape[2] == 3
        return is_image and all(1 <= side <= _MAX_SIDE for side in shape)

    def encode(self, frames: npt.NDArray[Any]) -> bytes:
        """Encode one image to a file."""
        from PIL import Image  # noqa: PLC0415 (optional, and slow to import)

        file = io.BytesIO()
        Image.fromarray(frames[0]).save(file, self._format, **self._options)
        return file.getvalue()

    def decode(self, data: bytes) -> npt.NDArray[Any]:
        """Decode a file."""
        from PIL import Image  # noqa: PLC0415 (optional, and slow to import)

        # Other formats that Pillow reads are not what was stored.
        with Image.open(io.BytesIO(data), formats=[self._format]) as image:
            return np.asarray(image)[None]
