"""A shard (spec/format.md): pages, an index per episode, schema, directory, footer.

    header │ episode 0: page 0 │ page 1 │ … │ index │ episode 1 … │ schema │ directory │ footer

Extracts pages and compares their checksums; of the rules in section 9 it checks only what it needs.
"""

from __future__ import annotations

import json
import struct

import numpy as np

from spec.golden import FrameType, Golden, Page, split_codec
from spec.wire import refuse_if

FOOTER = struct.Struct("<QQIIIIHH16xI8s")
ENTRY = struct.Struct("<QQII32s")
INDEX = struct.Struct("<4sIIII12x")
CLOCK_BYTES = 48
STREAM = struct.Struct("<9I4xddQ")
PAGE = struct.Struct("<4I")
NONE = 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Compute CRC32C (Castagnoli), one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def read_episodes(data: bytes) -> list[dict[str, Golden]]:
    """Return the streams of every episode by name, as runs without expected values."""
    footer = data[-FOOTER.size :]
    length, schema_at, schema_len, schema_crc, episodes, _, _, least, crc, magic = FOOTER.unpack(
        footer
    )
    refuse_if(magic != b"KINOEND\n" or crc != crc32c(footer[:52]), "no footer")
    refuse_if(length != len(data) or least > 1, "truncated, or for newer readers")
    text = data[schema_at : schema_at + schema_len]
    refuse_if(crc32c(text) != schema_crc, "the schema is damaged")
    schema = json.loads(text)["streams"]
    at = -(-(schema_at + schema_len) // 8) * 8
    entries = [ENTRY.unpack_from(data, at + ENTRY.size * slot) for slot in range(episodes)]
    return [read_episode(data, entry, schema) for entry in entries]


def read_episode(data: bytes, entry: tuple, schema: list[dict]) -> dict[str, Golden]:
    """Return the streams of one episode. Shared frames (section 5) are only in their base."""
    start, pages_len, index_len, index_crc, _ = entry
    index = data[start + pages_len :][:index_len]
    refuse_if(crc32c(index) != index_crc, "an index is damaged")
    _, clocks, streams, pages, _ = INDEX.unpack_from(index)
    at = INDEX.size + CLOCK_BYTES * clocks
    records = [STREAM.unpack_from(index, at + STREAM.size * idx) for idx in range(streams)]
    at += STREAM.size * streams
    parts = [PAGE.unpack_from(index, at + PAGE.size * idx) for idx in range(pages)]

    def page_bytes(number: int) -> bytes:
        offset, length, _, crc = parts[number]
        page = data[start + 8 * offset :][:length]
        refuse_if(crc32c(page) != crc, "a page is damaged")
        return page

    episode = {}
    for stream, _, frames, _, _, _, first, count, shared, *_ in records:
        entry = schema[stream]
        name, params = split_codec(entry["codec"])
        run = episode[entry["name"]] = Golden(name, params, frame_type(entry))
        run.shared = page_bytes(shared) if shared != NONE else b""
        # A page extends to the first frame of the next one, the last one to the end.
        starts = [parts[first + idx][2] for idx in range(count)] + [frames]
        for idx in range(count):
            page = Page(starts[idx + 1] - starts[idx], page_bytes(first + idx))
            run.pages.append(page)
    return episode


def frame_type(entry: dict) -> FrameType:
    """Return the frame type from the schema."""
    if entry["dtype"] == "text":
        return FrameType()
    dtype = np.dtype(entry["dtype"]).newbyteorder("<")
    return FrameType(dtype, tuple(entry.get("shape", ())))
