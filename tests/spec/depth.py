"""`depth` (spec/codecs/depth.md): keys of depths, or ranks among the image's levels.

kinds 1, 2, 4      planes of residuals -> keys -> values
kinds 17, 18, 20   levels; planes of residuals -> ranks -> keys -> values
kinds 24, 25       levels; choices among neighbours -> ranks -> keys -> values
kind 26            levels; steps from the row above -> ranks -> keys -> values
"""

from __future__ import annotations

import numpy as np

from spec.golden import FrameType, Page
from spec.predict import predict
from spec.wire import Wire, refuse_if, unzigzag, unzstd

RANKS, FULL_DETAIL, LITTLE_DETAIL, STEPS = 16, 24, 25, 26
GUESSES = (1, 2, 4)
MOST_LEVELS = 65536


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (1, *shape)."""
    refuse_if(shared != b"" or page.frames != 1, "a shared part, or more than one frame")
    height, width = frame.shape[:2]
    pixels, size = height * width, frame.dtype.itemsize
    wire = Wire(page.bytes)
    kind = wire.u8()
    if kind in GUESSES:
        keys = read_planes(wire, height, width, size, kind)
    else:
        is_choices = kind in (FULL_DETAIL, LITTLE_DETAIL)
        is_known = is_choices or kind == STEPS or kind - RANKS in GUESSES
        refuse_if(not is_known, "unknown kind")
        levels = read_levels(wire, size, pixels)
        if is_choices:
            choices = Choices(wire, 3 * pixels + 4 * height, kind == FULL_DETAIL)
            ranks = choices.ranks(height, width, len(levels))
        elif kind == STEPS:
            ranks = read_steps(wire, height, width)
        else:
            rank_bytes = 1 if len(levels) <= 256 else 2
            ranks = read_planes(wire, height, width, rank_bytes, kind - RANKS)
        refuse_if(max(ranks) >= len(levels), "a rank without a level")
        keys = [levels[rank] for rank in ranks]
    wire.end()
    return from_keys(keys, frame.dtype).reshape(1, *frame.shape)


def read_stream(wire: Wire, most: int) -> bytes:
    """Read one stream; one of length 0 has no zstd frame and no content."""
    length = wire.varint()
    return unzstd(wire.take(length), most) if length else b""


def read_planes(wire: Wire, height: int, width: int, size: int, predictor: int) -> list[int]:
    """Read values of `size` bytes: residuals in byte planes."""
    planes = [read_stream(wire, height * width) for _ in range(size)]
    refuse_if(any(len(plane) != height * width for plane in planes), "a plane of another length")
    modulus = 1 << (8 * size)
    x = []
    for idx, z in enumerate(zip(*planes, strict=True)):
        row, column = divmod(idx, width)
        a = x[idx - 1] if column > 0 else 0
        b = x[idx - width] if row > 0 else 0
        if row == 0:
            predicted = a
        elif column == 0:
            predicted = b
        else:
            predicted = predict(predictor, a, b, x[idx - width - 1])
        x.append((predicted + unzigzag(int.from_bytes(bytes(z), "little"))) % modulus)
    return x


def read_levels(wire: Wire, size: int, pixels: int) -> list[int]:
    """Read the keys of the image's distinct values."""
    content = read_stream(wire, size * min(pixels, MOST_LEVELS))
    refuse_if(content == b"" or len(content) % size != 0, "no levels, or not whole ones")
    count = len(content) // size
    levels, key = [], 0
    for idx in range(count):
        key = (key + int.from_bytes(content[idx::count], "little")) % (1 << (8 * size))
        levels.append(key)
    return levels


def from_keys(keys: list[int], dtype: np.dtype) -> np.ndarray:
    """Turn keys back into values."""
    bits = np.array(keys, f"<u{dtype.itemsize}")
    if dtype.kind == "f":
        top = bits.dtype.type(1 << (8 * dtype.itemsize - 1))
        bits = np.where(bits >= top, bits - top, ~bits)
    return bits.view(dtype)


class Choices:
    """The streams of choices, each read from its start to its end."""

    def __init__(self, wire: Wire, most: int, full_detail: bool) -> None:
        self.contexts = 16 if full_detail else 2
        streams = []
        for _ in range(self.contexts + 3):
            streams.append(read_stream(wire, most))
            most -= len(streams[-1])
        runs, quiet, *groups, lower, upper = (Wire(stream) for stream in streams)
        # Context 0: zeros before the next byte, and that byte. After the last there are only zeros.
        self.quiet = [(read_run(runs), byte) for byte in quiet.rest()][::-1]
        runs.end()
        self.groups, self.lower, self.upper = groups, lower, upper

    def ranks(self, height: int, width: int, levels: int) -> list[int]:
        """Return the ranks of an image."""
        refuse_if(width > 65532, "choices of an image that is too wide")
        # Rows are whole groups here: pixels beyond the image are restored, but not output.
        ranks, above = [], [0] * (-(-width // 4) * 4)
        for _ in range(height):
            above = self.row(above)
            refuse_if(max(above) >= levels, "a rank without a level")
            ranks += above[:width]
        for stream in (*self.groups, self.lower, self.upper):
            stream.end()
        refuse_if(self.quiet != [], "bytes of context 0 are left over")
        return ranks

    def row(self, above: list[int]) -> list[int]:
        """Return the ranks of one row from those of the row above."""
        row = []
        for x in range(0, len(above), 4):
            b = (above + above[-1:])[x : x + 5]
            context = sum((b[i] != b[i + 1]) << i for i in range(4))
            byte = self.next_group(context if self.contexts == 16 else min(context, 1))
            for i in range(4):
                left = row[-1] if row else above[0]
                choice = byte >> 2 * i & 3
                row.append(self.rank(choice, b[i], left, b[i + 1]))
        return row

    def rank(self, choice: int, above: int, left: int, above_right: int) -> int:
        """Return the rank of one pixel."""
        if choice < 3:
            return (above, left, above_right)[choice]
        z = self.lower.u8() + 256 * self.upper.u8()
        return (left + unzigzag(z)) % 65536

    def next_group(self, context: int) -> int:
        """Return the next byte of a context."""
        if context > 0:
            return self.groups[context - 1].u8()
        if not self.quiet:
            return 0
        zeros, byte = self.quiet.pop()
        if zeros == 0:
            return byte
        self.quiet.append((zeros - 1, byte))
        return 0


def read_steps(wire: Wire, height: int, width: int) -> list[int]:
    """Read ranks as steps from the row above."""
    refuse_if(width > 65532, "steps of an image that is too wide")
    groups = -(-width // 4)
    choices = read_stream(wire, height * groups)
    refuse_if(len(choices) != height * groups, "a wrong number of groups")
    lower, upper = (Wire(read_stream(wire, height * width)) for _ in range(2))
    ranks, above, escape = [], [0] * width, 0
    for y in range(height):
        row = []
        for x in range(4 * groups):
            choice = choices[y * groups + x // 4] >> 2 * (x % 4) & 3
            if x >= width:
                refuse_if(choice != 0, "a choice beyond the end of a row")
                continue
            three = [above[max(x - 1, 0)], above[x], above[min(x + 1, width - 1)]]
            if choice == 3:
                escape = (escape + unzigzag(lower.u8() + 256 * upper.u8())) % 65536
                row.append(escape)
            else:
                row.append((sorted(three)[1] + (0, 1, -1)[choice]) % 65536)
        ranks += row
        above = row
    lower.end()
    upper.end()
    return ranks


def read_run(runs: Wire) -> int:
    """Read 255s, which continue the run, then a byte below 255."""
    total = 0
    while (byte := runs.u8()) == 255:
        total += 255
    return total + byte
