"""`camera` (spec/codecs/camera.md): an image alone, or from the one before it, block by block.

part -> kind, content of the zstd frame -> map, remainders of every plane -> planes -> image
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
    """Give the planes of one image."""
    refuse_if(part == b"", "a part without a byte")
    kind = part[0]
    if kind == ONCE_MORE:
        refuse_if(len(part) > 1 or before is None, "bytes behind kind 6, or no image before")
        return before
    height, width, channels = image_sides(frame)
    is_paired = kind > PAIRED
    guess = kind - PAIRED if is_paired else kind
    refuse_if(not 1 <= guess <= FROM_BEFORE, "no such kind")
    refuse_if(is_paired and channels == 1, "pairs of one channel")
    refuse_if(guess == FROM_BEFORE and before is None, "no image before")

    blocks = -(-height // SIDE), -(-width // SIDE)
    map_bytes = blocks[0] * blocks[1] if guess == FROM_BEFORE else 0
    pixels = height * width
    content = Wire(unzstd(part[1:], map_bytes + pixels * (channels + 1)))
    block_map = np.frombuffer(content.take(map_bytes), np.uint8)
    if is_paired:
        remainders = read_pairs(content, pixels, channels)
    else:
        remainders = np.frombuffer(content.take(pixels * channels), np.uint8)
    content.end()
    remainders = remainders.reshape(channels, height, width)
    if guess == FROM_BEFORE:
        return restore_blocks(remainders, block_map.reshape(blocks), before)
    return np.stack([restore_plane(plane, guess) for plane in remainders])


def read_pairs(content: Wire, pixels: int, channels: int) -> np.ndarray:
    """Take the remainders of R − G and B − G out of pairs and escapes."""
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
    """Give a two's complement number of four bits, modulo 256."""
    return nibble if nibble < 8 else nibble + 240


def restore_blocks(remainders: np.ndarray, block_map: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Restore an image from the one before, in the order of pixels: left may be another block."""
    planes = remainders.copy()
    _, height, width = planes.shape
    check_map(block_map, height, width)
    for y in range(height):
        for x in range(width):
            byte = int(block_map[y // SIDE, x // SIDE])
            if byte < LEFT_IN_MAP:
                guess = before[:, y + byte // 9 - 4, x + byte % 9 - 4]
            elif x > 0:
                guess = planes[:, y, x - 1]
            elif y > 0:
                guess = planes[:, y - 1, x]
            else:
                guess = np.uint8(0)
            planes[:, y, x] += guess
    return planes


def check_map(block_map: np.ndarray, height: int, width: int) -> None:
    """Refuse blocks that come from outside the image."""
    for (row, column), byte in np.ndenumerate(block_map):
        refuse_if(byte > LEFT_IN_MAP, "no such byte in a map")
        if byte == LEFT_IN_MAP:
            continue
        dy, dx = int(byte) // 9 - 4, int(byte) % 9 - 4
        top, left = row * SIDE + dy, column * SIDE + dx
        bottom = min(row * SIDE + SIDE, height) + dy
        right = min(column * SIDE + SIDE, width) + dx
        is_inside = top >= 0 and left >= 0 and bottom <= height and right <= width
        refuse_if(not is_inside, "a block comes from outside the image")
