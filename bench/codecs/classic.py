"""The classic comparison: zlib's strategies and levels against zstd, lz4 and the specialised codecs.

    cargo build --release -p kino_cli
    python bench/codecs/classic.py

One Markdown table for photographs, one for joints and one for sensors.
The last column is what zlib itself (Python's) makes of the same pages: `deflate` is written by zlib-rs, whose levels follow
zlib-ng. Its level 1 uses fixed codes only, and up to level 6 `filtered` is `default`.
"""

import pathlib
import re
import tempfile
import zlib

from all_streams import PROGRAM, measure
from recordings import Stream, streams

STRATEGIES = ["default", "filtered", "huffman", "rle", "fixed"]
LEVELS = [1, 6, 9]

DEFLATE = [f"deflate:level={level},strategy={name}" for name in STRATEGIES for level in LEVELS]
# Neither huffman nor rle searches further at a higher level: one row is enough.
DEFLATE = [text for text in DEFLATE if not ("huffman" in text or "rle" in text) or "=6" in text]
ZSTD = [f"zstd:level={level}" for level in (1, 3, 9, 19)]
SHUFFLED = [
    f"{name},shuffle={shuffle}"
    for name in ("deflate:level=6,strategy=default", "zstd:level=3")
    for shuffle in ("{w}", "bits{w}")
]

TABLES = [
    (
        "Photographs: Kodak, uint8, one image per page",
        *("real/kodak", "*.png × 4"),
        ["raw", *DEFLATE, *ZSTD, "lz4", "predict:level=3", "camera"],
    ),
    (
        "Joints: G1 state, float32 × 26 at 30 Hz",
        *("real/npz/g1_state_action.npz", "state"),
        ["raw", *DEFLATE, *ZSTD, "lz4", *SHUFFLED, "lz4:shuffle={w}", "pco:level=8", "vector"],
    ),
    (
        "Joints: mixed session, float64 × 7 at 500 Hz",
        *("generated/mixed/session_02.hdf5", "joint/pos/data"),
        ["raw", *DEFLATE, *ZSTD, "lz4", *SHUFFLED, "lz4:shuffle={w}", "pco:level=8", "vector"],
    ),
    (
        "Sensors: PX4 flight, float32 × 13 at 248 Hz",
        *("real/npz/px4_sample.npz", "sensor_combined"),
        ["raw", *DEFLATE, *ZSTD, "lz4", *SHUFFLED, "lz4:shuffle={w}", "pco:level=8", "vector"],
    ),
]


ZLIB = {
    "default": zlib.Z_DEFAULT_STRATEGY,
    "filtered": zlib.Z_FILTERED,
    "huffman": zlib.Z_HUFFMAN_ONLY,
    "rle": zlib.Z_RLE,
    "fixed": zlib.Z_FIXED,
}


def ratio_of_zlib(found: Stream, figures: dict) -> str:
    """Compress the same pages with zlib, if the codec is deflate without shuffle."""
    match = re.fullmatch(r"deflate:level=(\d),strategy=(\w+),shuffle=1", figures["codec"])
    if match is None:
        return ""
    level, strategy = int(match[1]), ZLIB[match[2]]
    per_page = figures["page_frames"]
    size = 0
    for start in range(0, len(found.frames), per_page):
        stream = zlib.compressobj(level, zlib.DEFLATED, 15, 8, strategy)
        page = found.frames[start : start + per_page].tobytes()
        size += len(stream.compress(page)) + len(stream.flush())
    return f"{found.frames.nbytes / size:.3f}"


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        for title, recording, name, texts in TABLES:
            for found in streams([recording]):
                if found.name != name:
                    continue
                print(f"\n### {title}, {len(found.frames)} frames\n")
                print(
                    "| codec | ratio | encode MB/s | decode MB/s | ratio, zlib |\n|---|---|---|---|---|"
                )
                for one in measure(PROGRAM, found, texts, pathlib.Path(folder)):
                    if "error" not in one:
                        print(
                            f"| `{one['codec']}` | {one['ratio']:.3f} | {one['encode_mb_s']:.0f} |"
                            f" {one['decode_mb_s']:.0f} | {ratio_of_zlib(found, one)} |"
                        )


if __name__ == "__main__":
    main()
