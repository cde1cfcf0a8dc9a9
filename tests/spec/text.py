"""`text` (spec/codecs/text.md): each distinct string of a page once, then runs of them."""

from __future__ import annotations

from spec.golden import FrameType, Page
from spec.wire import RefusedError, Wire, refuse_if, unzstd

MIB = 1 << 20


def decode(frame: FrameType, params: dict[str, str], shared: bytes, page: Page) -> list[str]:
    """Decode one page, to a string per frame."""
    refuse_if(shared != b"" or page.frames > MIB, "a shared part, or too many frames")
    wire = Wire(unzstd(page.bytes, 64 * MIB))
    distinct = wire.varint()
    refuse_if(distinct > page.frames, "more strings than frames")
    lengths = [wire.varint() for _ in range(distinct)]
    refuse_if(max(lengths, default=0) > MIB, "a string that is too long")
    which = []
    # The runs end where they add up to the number of frames.
    while len(which) < page.frames:
        string, run = wire.varint(), wire.varint()
        refuse_if(string >= distinct, "unknown string")
        refuse_if(not 0 < run <= page.frames - len(which), "an empty or too long run")
        which += [string] * run
    refuse_if(sum(lengths[string] for string in which) > 256 * MIB, "too much text")
    try:
        strings = [wire.take(length).decode("utf-8") for length in lengths]
    except UnicodeDecodeError as error:
        raise RefusedError("a string that is not UTF-8") from error
    wire.end()
    return [strings[string] for string in which]
