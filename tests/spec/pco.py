"""`pco` (spec/codecs/pco.md): every element of the vector is a column, and a pcodec chunk."""

from __future__ import annotations

import numpy as np
from pcodec.wrapped import FileDecompressor

from spec.golden import FrameType, Page
from spec.wire import RefusedError, Wire, refuse_if


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> np.ndarray:
    """Decode one page, to an array of (frames, *shape)."""
    dtype = np.dtype(np.uint8) if frame.dtype.kind == "b" else frame.dtype
    values = np.zeros((frame.elements, page.frames), dtype)
    try:
        chunks = parse_shared(shared, values)
        wire = Wire(page.bytes)
        # The last column extends to the end.
        lengths = [wire.varint() for _ in chunks[1:]]
        for idx, (element, chunk) in enumerate(chunks):
            part = wire.take(lengths[idx]) if idx < len(lengths) else wire.rest()
            progress, used = chunk.read_page_into(part, page.frames, values[element])
            is_whole = progress.n_processed == page.frames and used == len(part)
            refuse_if(not is_whole, "a column of the wrong length")
    except RuntimeError as error:
        raise RefusedError(f"pcodec: {error}") from error
    wire.end()
    return values.T.copy().view(frame.dtype).reshape(page.frames, *frame.shape)


def parse_shared(shared: bytes, values: np.ndarray) -> list[tuple]:
    """Fill in the constants; return element and chunk of the other columns."""
    wire = Wire(shared)
    header = wire.take(2)
    refuse_if(header[0] != 4 or header[1] > 1, "another version of pcodec")
    file, _ = FileDecompressor.new(header)
    elements, dtype = len(values), values.dtype
    constant = wire.take((elements + 7) // 8)
    chunks = []
    for element in range(elements):
        if constant[element // 8] >> element % 8 & 1:
            values[element] = np.frombuffer(wire.take(dtype.itemsize), dtype)[0]
            continue
        meta = wire.data[wire.at :]
        refuse_if(len(meta) < 2 or meta[0] % 16 > 3, "bytes are missing, or a dictionary mode")
        chunk, used = file.chunk_decompressor(meta, f"{dtype.kind}{8 * dtype.itemsize}")
        wire.take(used)
        chunks.append((element, chunk))
    wire.end()
    return chunks
