"""`camera` (spec/codecs/camera.md): an image alone, or predicted from the previous one, block by block.

part -> kind, content of the zstd frame -> map, residuals of every plane -> planes -> image
"""

from __future__ import annotations

import numpy as np

from spec.golden import FrameType, Page
from spec.predict import image_sides, restore_plane, to_image
from spec.wire import Wire, refuse_if, unzstd

FROM_BEFORE, ONCE_MORE, PAIRED = 5, 6, 16
ESCAPE = 0x88
SIDE = 8  # of a block
LEFT_IN_MAP = 81


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (frames, *shape)."""
    refuse_if(shared != b"" or page.frames > 64, "a shared part, or too many frames")
    wire = Wire(page.bytes)
    lengths = [wire.varint() for _ in range(page.frames)]
    images, planes = [], None
    for length in lengths:
        planes = restore(frame, wire.take(length), planes)
        images.append(to_image(planes, frame))
    wire.end()
    return np.stack(images)


def restore(frame: FrameType, part: bytes, before: np.ndarray | None) -> np.ndarray:
    """Return the planes of one image."""
    refuse_if(part == b"", "an empty part")
    kind = part[0]
    if kind == ONCE_MORE:
        refuse_if(len(part) > 1 or before is None, "bytes after kind 6, or no previous image")
        return before
    height, width, channels = image_sides(frame)
    is_paired = kind > PAIRED
    predictor = kind - PAIRED if is_paired else kind
    refuse_if(not 1 <= predictor <= FROM_BEFORE, "unknown kind")
    refuse_if(is_paired and channels == 1, "pairs with one channel")
    refuse_if(predictor == FROM_BEFORE and before is None, "no previous image")

    blocks = -(-height // SIDE), -(-width // SIDE)
    map_bytes = blocks[0] * blocks[1] if predictor == FROM_BEFORE else 0
    pixels = height * width
    content = Wire(unzstd(part[1:], map_bytes + pixels * (channels + 1)))
    block_map = np.frombuffer(content.take(map_bytes), np.uint8)
    if is_paired:
        residuals = read_pairs(content, pixels, channels)
    else:
        residuals = np.frombuffer(content.take(pixels * channels), np.uint8)
    content.end()
    residuals = residuals.reshape(channels, height, width)
    if predictor == FROM_BEFORE:
        return restore_blocks(residuals, block_map.reshape(blocks), before)
    return np.stack([restore_plane(plane, predictor) for plane in residuals])


def read_pairs(content: Wire, pixels: int, channels: int) -> np.ndarray:
    """Read the residuals of R − G and B − G from pairs and escapes."""
    green = list(content.take(pixels))
    pairs = content.take(pixels)
    alpha = list(content.take(pixels * (channels - 3)))
    red, blue = [], []
    for pair in pairs:
        if pair == ESCAPE:
            red.append(content.u8())
            blue.append(content.u8())
        else:
            red.append(four_bits(pair >> 4))
            blue.append(four_bits(pair & 15))
    return np.array(green + red + blue + alpha, np.uint8)


def four_bits(nibble: int) -> int:
    """Return a four-bit two's complement integer, modulo 256."""
    return nibble if nibble < 8 else nibble + 240


def restore_blocks(residuals: np.ndarray, block_map: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Restore an image from the previous one, in pixel order: left may be another block."""
    planes = residuals.copy()
    _, height, width = planes.shape
    check_map(block_map, height, width)
    for y in range(height):
        for x in range(width):
            byte = int(block_map[y // SIDE, x // SIDE])
            if byte < LEFT_IN_MAP:
                predicted = before[:, y + byte // 9 - 4, x + byte % 9 - 4]
            elif x > 0:
                predicted = planes[:, y, x - 1]
            elif y > 0:
                predicted = planes[:, y - 1, x]
            else:
                predicted = np.uint8(0)
            planes[:, y, x] += predicted
    return planes


def check_map(block_map: np.ndarray, height: int, width: int) -> None:
    """Refuse blocks whose source is outside the image."""
    for (row, column), byte in np.ndenumerate(block_map):
        refuse_if(byte > LEFT_IN_MAP, "invalid byte in a map")
        if byte == LEFT_IN_MAP:
            continue
        dy, dx = int(byte) // 9 - 4, int(byte) % 9 - 4
        top, left = row * SIDE + dy, column * SIDE + dx
        bottom = min(row * SIDE + SIDE, height) + dy
        right = min(column * SIDE + SIDE, width) + dx
        is_inside = top >= 0 and left >= 0 and bottom <= height and right <= width
        refuse_if(not is_inside, "a block comes from outside the image")
