"""`vector` (spec/codecs/vector.md): columns of integers, predicted, in pcodec classes.

shared -> columns (kind, predictor, class, gate, map, starts), steps, classes (pcodec chunks)
page   -> residuals of every class -> integers of every column -> values
       -> renormalised quaternions -> exceptions
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pcodec.wrapped import ChunkDecompressor, FileDecompressor

from spec.golden import FrameType, Page
from spec.wire import RefusedError, Wire, refuse_if

CONSTANT, COPY, ORDERED, TIMES, OVER, NARROW, AFFINE = range(7)
PCODEC_DTYPES = [("i16", np.int16), ("i32", np.int32), ("i64", np.int64)]


@dataclass
class Column:
    """How one element of the vector is stored, in all pages of a run."""

    kind: int
    predictor: int
    two_zeros: bool
    value: bytes = b""  # CONSTANT
    element: int = 0  # COPY
    class_: int = 0  # all other kinds: stored
    gate: int = 0  # 0 for none, else 1 + its index
    step: int = 0  # TIMES, OVER: an index into the steps
    factor: int = 0  # AFFINE
    offset: int = 0  # AFFINE
    starts: list[tuple[int, int]] = field(default_factory=list)  # least, bits

    @property
    def is_stored(self) -> bool:
        """Whether pages store integers of this column."""
        return self.kind >= ORDERED


@dataclass
class Class:
    """Columns with similar residuals. Without a chunk, no page has residuals of it."""

    chunk: ChunkDecompressor | None
    dtype: type


@dataclass
class Shared:
    """What was learned from a run."""

    gates: int
    steps: list[float]
    columns: list[Column]
    classes: list[Class]


def wrap(number: int, bits: int = 64) -> int:
    """Return the low bits as a signed integer: all arithmetic wraps."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def stored_dtype(frame: FrameType) -> np.dtype:
    """Return the dtype; bool is uint8."""
    return np.dtype(np.uint8) if frame.dtype.kind == "b" else frame.dtype


def parse_shared(frame: FrameType, shared: bytes) -> Shared:
    """Read the shared part."""
    wire = Wire(shared, varint_bytes=10)
    header = wire.take(2)
    refuse_if(header[0] != 4 or header[1] > 1, "another version of pcodec")
    file, _ = FileDecompressor.new(header)
    gates, classes, steps = wire.varint(), wire.varint(), wire.varint()
    refuse_if(gates > 16 or classes > 255, "too many gates or classes")
    refuse_if(gates > 0 and classes == 0, "gates without a class")
    refuse_if(steps > frame.elements, "more steps than elements")
    step_list = np.frombuffer(wire.take(8 * steps), "<f8").tolist()
    run = Shared(gates, step_list, [], [])
    for _ in range(frame.elements):
        run.columns.append(parse_column(wire, frame, run, classes))
    for _ in range(classes):
        run.classes.append(parse_class(wire, file))
    wire.end()
    return run


def parse_column(wire: Wire, frame: FrameType, run: Shared, classes: int) -> Column:
    """Read how one column is stored."""
    dtype = stored_dtype(frame)
    head = wire.u8()
    column = Column(kind=head % 8, predictor=head // 8 % 16, two_zeros=head >= 128)
    refuse_if(column.kind > AFFINE or column.predictor > 13, "unknown kind or predictor")
    refuse_if(
        column.two_zeros and column.kind not in (TIMES, OVER), "two zeros in a kind that has none"
    )
    if not column.is_stored:
        refuse_if(column.predictor != 0, "a predictor where nothing is stored")
    if column.kind == CONSTANT:
        column.value = wire.take(dtype.itemsize)
        return column
    if column.kind == COPY:
        column.element = wire.varint()
        before = run.columns[: column.element + 1]
        refuse_if(len(before) <= column.element, "a copy of an element that is not before it")
        refuse_if(not before[-1].is_stored, "a copy of an element that is not stored")
        return column
    is_for_dtype = {
        ORDERED: True,
        TIMES: dtype.kind == "f",
        OVER: dtype.kind == "f",
        NARROW: dtype == np.float64,
        AFFINE: dtype.kind != "f",
    }
    refuse_if(not is_for_dtype[column.kind], "a kind that is not for the dtype")
    column.class_, column.gate = wire.varint(), wire.varint()
    refuse_if(column.class_ >= classes or column.gate > run.gates, "unknown class or gate")
    refuse_if(run.gates > 0 and column.class_ == 0, "a column in the class of gates")
    if column.kind in (TIMES, OVER):
        column.step = wire.varint()
        refuse_if(column.step >= len(run.steps), "unknown step")
        step = run.steps[column.step]
        refuse_if(step == 0 or not np.isfinite(step), "an invalid step")
    if column.kind == AFFINE:
        column.factor, column.offset = wire.varint(), wire.zigzag()
    for _ in range(min(column.predictor, 2)):
        column.starts.append((wire.zigzag(), wire.u8()))
        refuse_if(column.starts[-1][1] > 64, "a start of more than 64 bits")
    return column


def parse_class(wire: Wire, file: FileDecompressor) -> Class:
    """Read one class; pcodec determines the length of its chunk metadata."""
    width = wire.u8()
    refuse_if(width > 3, "unknown class")
    if width == 3:
        return Class(None, np.int64)
    meta = wire.data[wire.at :]
    refuse_if(len(meta) < 2, "bytes are missing")
    # pcodec's format: mode and delta encoding share the first byte, 4 bits each; then 4 bits of table size.
    refuse_if(meta[0] != 0, "not of classic mode without delta encoding")
    refuse_if(meta[1] % 16 > 12, "an ANS table of more than 2^12 states")
    name, dtype = PCODEC_DTYPES[width]
    try:
        chunk, used = file.chunk_decompressor(meta, name)
    except RuntimeError as error:
        raise RefusedError(f"pcodec: {error}") from error
    wire.take(used)
    return Class(chunk, dtype)


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (frames, *shape)."""
    refuse_if(page.frames > 65536, "too many frames")
    run = parse_shared(frame, shared)
    wire = Wire(page.bytes, varint_bytes=10)
    # The last class extends to the end; without classes there is nothing.
    lengths = [wire.varint() for _ in run.classes[1:]]
    marks = [wire.varint() for _ in range(run.gates)]
    refuse_if(any(count >= page.frames for count in marks), "a gate opens too often")
    exceptions = read_exceptions(wire, page.frames * frame.elements)
    counts = [1 + marks[c.gate - 1] if c.gate else page.frames for c in run.columns]
    starts = read_starts(wire, run.columns, counts)
    residuals = read_classes(wire, run, lengths, marks, counts)
    openings = [read_gate(residuals[0], count, page.frames) for count in marks]

    values = np.zeros((frame.elements, page.frames), stored_dtype(frame))
    for element, column in enumerate(run.columns):
        if column.kind == CONSTANT:
            values[element] = np.frombuffer(column.value, values.dtype)[0]
        elif column.kind == COPY:
            values[element] = values[column.element]
        else:
            x = undo_prediction(column, starts[element], residuals[column.class_], counts[element])
            if column.gate:
                x = hold(x, openings[column.gate - 1], page.frames)
            values[element] = to_values(column, run.steps, x, values.dtype)
    if "quat" in params:
        for first in (params["quat"] or "0").split("/"):
            restore_length(values[int(first) : int(first) + 4])
    correct(values, exceptions)
    return values.T.copy().view(frame.dtype).reshape(page.frames, *frame.shape)


def read_exceptions(wire: Wire, positions: int) -> list[tuple[int, int]]:
    """Read the exceptions as (position, correction)."""
    exceptions, at = [], 0
    for _ in range(wire.varint()):
        at += wire.varint()
        length = wire.varint() + 1
        refuse_if(at + length > positions, "an exception outside the page")
        for _ in range(length):
            exceptions.append((at, wire.zigzag()))
            at += 1
    return exceptions


def read_starts(wire: Wire, columns: list[Column], counts: list[int]) -> list[list[int]]:
    """Read the start values of every column: one bit string for all, padded at its end."""
    widths = [
        [bits for _, bits in column.starts[:count]]
        for column, count in zip(columns, counts, strict=True)
    ]
    total = sum(map(sum, widths))
    bits = int.from_bytes(wire.take((total + 7) // 8), "little")
    starts = []
    for column, column_widths in zip(columns, widths, strict=True):
        numbers = []
        for (least, _), width in zip(column.starts, column_widths, strict=False):
            number = least + bits % (1 << width)
            bits >>= width
            # Integer 1 is stored as its difference from integer 0.
            numbers.append(wrap(number + numbers[0] if numbers else number))
        starts.append(numbers)
    refuse_if(bits != 0, "padding bits are not zero")
    return starts


def read_classes(
    wire: Wire, run: Shared, lengths: list[int], marks: list[int], counts: list[int]
) -> list[list[int]]:
    """Decode the residuals of every class, reversed, so that `pop` gives the next one."""
    wanted = [0] * len(run.classes)
    for column, count in zip(run.columns, counts, strict=True):
        if column.is_stored:
            wanted[column.class_] += count - min(count, len(column.starts))
    if run.gates:
        wanted[0] = sum(marks)
    residuals = []
    for idx, (class_, count) in enumerate(zip(run.classes, wanted, strict=True)):
        part = wire.take(lengths[idx]) if idx < len(lengths) else wire.rest()
        residuals.append(read_class(class_, part, count)[::-1])
    wire.end()
    return residuals


def read_class(class_: Class, part: bytes, count: int) -> list[int]:
    """Decode one pcodec page; a class without residuals in the page has no bytes."""
    if count == 0:
        refuse_if(part != b"", "bytes of a class without residuals")
        return []
    refuse_if(class_.chunk is None, "residuals in a class that has none")
    numbers = np.zeros(count, class_.dtype)
    try:
        progress, used = class_.chunk.read_page_into(part, count, numbers)
    except RuntimeError as error:
        raise RefusedError(f"pcodec: {error}") from error
    refuse_if(progress.n_processed != count or used != len(part), "a class of the wrong length")
    return numbers.tolist()


def read_gate(distances: list[int], count: int, frames: int) -> list[int]:
    """Return the frames in which a gate opens."""
    at, openings = 0, []
    for _ in range(count):
        distance = distances.pop()
        at += distance
        refuse_if(distance < 1 or at >= frames, "a gate opens outside the page or twice")
        openings.append(at)
    return openings


def undo_prediction(column: Column, starts: list[int], residuals: list[int], n: int) -> list[int]:
    """Return the n integers of a column."""
    p = column.predictor
    w = p - 1 if p < 10 else 9 - p
    x = list(starts)
    while len(x) < n:
        number = residuals.pop()
        if p != 0:
            number += x[-1]
        if w != 0 and p != 0:
            d = wrap(x[-1] - x[-2])
            number += d if w == 8 else wrap(w * d + 4) >> 3
        x.append(wrap(number))
    return x


def hold(x: list[int], openings: list[int], frames: int) -> list[int]:
    """Return an integer for every frame: that of the last frame in which the gate opened."""
    opened = np.zeros(frames, int)
    opened[openings] = 1
    return [x[idx] for idx in np.cumsum(opened)]


def to_values(column: Column, steps: list[float], x: list[int], dtype: np.dtype) -> np.ndarray:
    """Turn integers into values with the column's map."""
    if column.kind == ORDERED:
        return from_ordered(x, dtype)
    if column.kind == NARROW:
        with np.errstate(all="ignore"):
            return from_ordered(x, np.dtype("<f4")).astype(dtype)
    if column.kind == AFFINE:
        return from_ordered([column.offset + k * column.factor for k in x], dtype)
    # With two zeros, a negative k is the negative of −1 − k.
    is_negative = np.array([column.two_zeros and k < 0 for k in x])
    k = np.array([-1 - k if negative else k for k, negative in zip(x, is_negative, strict=True)])
    step = steps[column.step]
    with np.errstate(all="ignore"):
        doubles = (
            k.astype(np.float64) * step if column.kind == TIMES else k.astype(np.float64) / step
        )
    return nearest(np.where(is_negative, -doubles, doubles), dtype)


def restore_length(quaternion: np.ndarray) -> None:
    """Normalise the four rows to unit length, in frames where they are close to it."""
    a, b, c, d = quaternion.astype(np.float64)
    with np.errstate(all="ignore"):
        n = ((a * a + b * b) + c * c) + d * d
        is_near = np.abs(n - 1) <= 1 / 16
        for row, old in zip(quaternion, (a, b, c, d), strict=True):
            row[is_near] = nearest((old / np.sqrt(n))[is_near], quaternion.dtype)


def nearest(doubles: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the nearest values of the dtype; for float16, through float32."""
    with np.errstate(all="ignore"):
        return (
            doubles.astype(np.float32).astype(dtype)
            if dtype.itemsize == 2
            else doubles.astype(dtype)
        )


def to_ordered(value: np.generic) -> int:
    """Return the ordered integer of a value."""
    bits = 8 * value.dtype.itemsize
    number = wrap(int.from_bytes(value.tobytes(), "little"), bits)
    if value.dtype.kind == "f" and number < 0:
        number ^= (1 << (bits - 1)) - 1
    return number


def from_ordered(numbers: list[int], dtype: np.dtype) -> np.ndarray:
    """Return the values of ordered integers, of which only the low bits count."""
    size = dtype.itemsize
    packed = bytearray()
    for number in numbers:
        signed = wrap(number, 8 * size)
        if dtype.kind == "f" and signed < 0:
            signed ^= (1 << (8 * size - 1)) - 1
        packed += signed.to_bytes(size, "little", signed=True)
    return np.frombuffer(bytes(packed), dtype)


def correct(values: np.ndarray, exceptions: list[tuple[int, int]]) -> None:
    """Correct the ordered integers of the exceptions; positions run over frames, then over elements."""
    flat = values.reshape(-1)
    for position, correction in exceptions:
        number = to_ordered(flat[position]) + correction
        flat[position : position + 1] = from_ordered([number], values.dtype)
