"""What the pages of the specification share: varints, zigzag, and zstd frames as they are used here."""

from __future__ import annotations

import zstandard


class RefusedError(ValueError):
    """The bytes are none that a writer makes."""


def refuse_if(wrong: bool, what: str) -> None:
    """Refuse the bytes, if they are wrong."""
    if wrong:
        raise RefusedError(what)


class Wire:
    """Bytes that are read from the front. Bytes missing are an error, as are bytes left over."""

    def __init__(self, data: bytes, varint_bytes: int = 5) -> None:
        self.data = data
        self.at = 0
        self.varint_bytes = varint_bytes

    def take(self, count: int) -> bytes:
        """Give the next bytes."""
        refuse_if(count > len(self.data) - self.at, "bytes are missing")
        self.at += count
        return self.data[self.at - count : self.at]

    def rest(self) -> bytes:
        """Give all bytes that are left."""
        return self.take(len(self.data) - self.at)

    def end(self) -> None:
        """Refuse bytes that are left."""
        refuse_if(self.at != len(self.data), "bytes are left over")

    def u8(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def varint(self) -> int:
        """Read seven bits per byte, lowest first; the top bit says "more follow"."""
        value = 0
        for idx in range(self.varint_bytes):
            byte = self.u8()
            value |= (byte & 127) << 7 * idx
            if byte < 128:
                # Of ten bytes the lowest 64 bits count.
                return value % (1 << 64)
        raise RefusedError("a varint has too many bytes")

    def zigzag(self) -> int:
        """Read a varint that stands for a signed number."""
        return unzigzag(self.varint())


def unzigzag(z: int) -> int:
    """Turn 0, 1, 2, 3 … into 0, −1, 1, −2 …."""
    return z >> 1 if z % 2 == 0 else -((z + 1) >> 1)


def unzstd(data: bytes, most: int) -> bytes:
    """Give the content of one whole zstd frame that states its size, which is `most` at most."""
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
    refuse_if(decoder.unused_data != b"", "bytes behind the zstd frame")
    refuse_if(len(content) != stated, "the zstd frame is of another size than stated")
    return content
