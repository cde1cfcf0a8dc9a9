"""What the pages of the specification share: varints, zigzag, and zstd frames."""

from __future__ import annotations

import zstandard


class RefusedError(ValueError):
    """No writer produces these bytes."""


def refuse_if(wrong: bool, what: str) -> None:
    """Refuse the bytes, if they are wrong."""
    if wrong:
        raise RefusedError(what)


class Wire:
    """Bytes that are read from the front. Missing bytes are an error, as are extra bytes."""

    def __init__(self, data: bytes, varint_bytes: int = 5) -> None:
        self.data = data
        self.at = 0
        self.varint_bytes = varint_bytes

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        refuse_if(count > len(self.data) - self.at, "bytes are missing")
        self.at += count
        return self.data[self.at - count : self.at]

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return self.take(len(self.data) - self.at)

    def end(self) -> None:
        """Refuse remaining bytes."""
        refuse_if(self.at != len(self.data), "bytes are left over")

    def u8(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def varint(self) -> int:
        """Read seven bits per byte, lowest first; a set top bit means more follow."""
        value = 0
        for idx in range(self.varint_bytes):
            byte = self.u8()
            value |= (byte & 127) << 7 * idx
            if byte < 128:
                # Of ten bytes, the lowest 64 bits count.
                return value % (1 << 64)
        raise RefusedError("a varint has too many bytes")

    def zigzag(self) -> int:
        """Read a varint that encodes a signed integer."""
        return unzigzag(self.varint())


def unzigzag(z: int) -> int:
    """Turn 0, 1, 2, 3 … into 0, −1, 1, −2 …."""
    return z >> 1 if z % 2 == 0 else -((z + 1) >> 1)


def unzstd(data: bytes, most: int) -> bytes:
    """Return the content of one whole zstd frame that states its size, at most `most`."""
    try:
        header = zstandard.get_frame_parameters(data)
        stated = zstandard.frame_content_size(data)
        # A skippable frame reads as one of size 0, but it has another magic number.
        refuse_if(data[:4] != b"\x28\xb5\x2f\xfd", "not a zstd frame")
        refuse_if(stated < 0 or header.dict_id != 0, "no content size, or a dictionary")
        refuse_if(stated > most or stated > 32768 * len(data), "the content is too large")
        decoder = zstandard.ZstdDecompressor().decompressobj()
        content = decoder.decompress(data)
    except zstandard.ZstdError as error:
        raise RefusedError(f"zstd: {error}") from error
    refuse_if(not decoder.eof, "the zstd frame is not whole")
    refuse_if(decoder.unused_data != b"", "bytes after the zstd frame")
    refuse_if(len(content) != stated, "the zstd frame has a different size than stated")
    return content
