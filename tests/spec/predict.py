"""`predict` (spec/codecs/predict.md): planes of channels minus green, each value minus a prediction."""

from __future__ import annotations

import numpy as np

from spec.golden import FrameType, Page
from spec.wire import refuse_if, unzstd

LEFT, UP, AVERAGE, MEDIAN = 1, 2, 3, 4


def image_sides(frame: FrameType) -> tuple[int, int, int]:
    """Return height, width and number of channels."""
    height, width, *channels = frame.shape
    return height, width, channels[0] if channels else 1


def predict(predictor: int, a: int, b: int, c: int) -> int:
    """Predict a value from those to the left, above, and above left."""
    if predictor == LEFT:
        return a
    if predictor == UP:
        return b
    if predictor == AVERAGE:
        return (a + b) // 2
    if c >= max(a, b):
        return min(a, b)
    if c <= min(a, b):
        return max(a, b)
    return a + b - c


def restore_plane(residuals: np.ndarray, predictor: int) -> np.ndarray:
    """Turn the residuals of one plane into values. Predictions use values, not residuals."""
    height, width = residuals.shape
    rows = residuals.tolist()
    for y in range(height):
        for x in range(width):
            if y == 0:
                predicted = rows[0][x - 1] if x > 0 else 0
            elif x == 0:
                predicted = rows[y - 1][0]
            else:
                predicted = predict(predictor, rows[y][x - 1], rows[y - 1][x], rows[y - 1][x - 1])
            rows[y][x] = (rows[y][x] + predicted) % 256
    return np.array(rows, np.uint8)


def to_image(planes: np.ndarray, frame: FrameType) -> np.ndarray:
    """Add green to red and blue, and return the packed image."""
    if len(planes) == 1:
        return planes.reshape(frame.shape)
    g, r, b, *alpha = planes
    return np.stack([g + r, g, g + b, *alpha], axis=-1)


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (1, *shape)."""
    refuse_if(shared != b"" or page.frames != 1, "a shared part, or more than one frame")
    refuse_if(page.bytes[:1] not in (b"\1", b"\2", b"\3", b"\4"), "unknown predictor")
    height, width, channels = image_sides(frame)
    content = unzstd(page.bytes[1:], frame.bytes)
    refuse_if(len(content) != frame.bytes, "the planes have the wrong length")
    residuals = np.frombuffer(content, np.uint8).reshape(channels, height, width)
    planes = np.stack([restore_plane(plane, page.bytes[0]) for plane in residuals])
    return to_image(planes, frame)[None]
