"""Measure every codec on every stream of every recording, with `kinograph bench codecs`.

    cargo build --release -p kino_cli
    python bench/codecs/all_streams.py

Prints means by kind of stream; writes every row to bench/results/codecs.csv, and the tables of docs/measurements/codecs/streams.md.
What is timed is checked: lossless codecs bit for bit, bounded ones against their bound.

Recordings come from KINOGRAPH_TEST_DATA (default ../shared/data next to the checkout), the command from `--program` or
KINOGRAPH (default target/release/kinograph). `recordings.py` selects the frames to measure.
Names as arguments (`kodak`, `mixed`) measure only the recordings whose path contains one of them, and write nothing.

A new codec is a new line in CANDIDATES. Codecs that the build lacks, or that do not suit a stream, are listed and skipped.
"""

import argparse
import csv
import json
import math
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from recordings import DATA, ROOT, Stream, note, streams

# Codecs by kind of stream. `{w}` is the dtype size in bytes.
CANDIDATES: dict[str, list[str]] = {
    "vector": [
        "raw",
        "lz4:shuffle={w}",
        "zstd:level=3,shuffle={w}",
        "zstd:level=3,shuffle=bits{w}",
        "pco:level=8",
        "vector",
        "vector:abs=1e-4",
    ],
    "time": ["raw", "lz4:shuffle={w}", "zstd:level=3,shuffle={w}", "pco:level=8", "vector"],
    "flag": ["raw", "lz4", "zstd:level=3", "pco:level=8", "vector"],
    "image": [
        "raw",
        "lz4",
        "zstd:level=3",
        "predict:level=3",
        "camera",
        "jpeg:q=95,sub=444",
        "jpeg:psnr=42,sub=420",
        "av1:psnr=40",
    ],
    "depth": [
        "raw",
        "lz4:shuffle={w}",
        "zstd:level=3",
        "zstd:level=3,shuffle={w}",
        "depth",
        "depth:abs=1",
    ],
    "text": ["text:level=3"],
    "bitstream": ["jpeg:carry"],
}

# The tables in the docs: a title, and the lossy codecs shown next to the smallest lossless one.
TABLES: list[tuple[str, str, list[str]]] = [
    ("image", "Images", ["jpeg:q=95,sub=444", "jpeg:psnr=42,sub=420", "av1:psnr=40"]),
    ("bitstream", "Images that are JPEG already", []),
    ("depth", "Depth", ["depth:abs=1"]),
    ("vector", "Vectors", ["vector:abs=1e-4"]),
    ("time", "Timestamps", []),
    ("flag", "Flags", []),
    ("text", "Text", []),
]

SECONDS = 0.02  # per measurement of each codec

# Codecs that take seconds per megabyte, and how many frames they get: one group.
SLOW = {"av1:psnr=40": 30}

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAM = os.environ.get("KINOGRAPH", str(TARGET / "release" / "kinograph"))
CSV = ROOT / "bench" / "results" / "codecs.csv"
PAGE = ROOT / "docs" / "measurements" / "codecs" / "streams.md"
HEADS = [
    *("recording", "stream", "kind", "type", "frames", "of", "codec", "bytes", "ratio"),
    *("encode MB/s", "decode MB/s", "frame µs", "window µs", "max error", "PSNR dB"),
]

# Streams on which a codec failed or broke its guarantee.
FAILED: list[str] = []


def measure(program: str, found: Stream, texts: list[str], folder: pathlib.Path) -> list[dict]:
    """Return one object per codec."""
    slow = [text for text in texts if text in SLOW]
    if slow and len(texts) > 1:
        rows = measure(program, found, [text for text in texts if text not in SLOW], folder)
        for text in slow:
            part = found._replace(frames=found.frames[: SLOW[text]])
            rows += measure(program, part, [text], folder)
        return rows
    path = folder / "frames.bin"
    options = ["--json", "--no-cache", "--seconds", str(SECONDS), "--max-size", "1GB"]
    if isinstance(found.frames, list):
        path.write_bytes(b"".join(struct.pack("<I", len(one)) + one for one in found.frames))
        options.append("--strings")
        width = 1
    else:
        found.frames.tofile(path)
        width = found.frames.dtype.itemsize
    for text in dict.fromkeys(text.format(w=width) for text in texts):
        options += ["--codec", text]
    command = [program, "bench", "codecs", "--frames", str(path), "--type", found.type, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 1 means that a codec has no figures: its row has the reason.
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"error: {found.recording}: `{found.name}`: {done.stderr}")
    rows = json.loads(done.stdout)["streams"][0]["codecs"]
    if any("please report it" in one.get("error", "") for one in rows):
        FAILED.append(f"{found.recording}: `{found.name}`")
    return rows


def row(found: Stream, figures: dict) -> dict:
    """Make a row of the table."""
    error, psnr = figures["max_abs_error"], figures["psnr_db"]
    return dict(
        zip(
            HEADS,
            [
                *(found.recording, found.name, found.kind, found.type, figures["frames"], found.of),
                *(figures["codec"], figures["bytes"], f"{figures['ratio']:.3f}"),
                *(f"{figures['encode_mb_s']:.1f}", f"{figures['decode_mb_s']:.1f}"),
                *(f"{figures['frame_us']:.2f}", f"{figures['window_us']:.2f}"),
                "0" if not error else f"{error:.4g}",
                "" if psnr is None else f"{psnr:.2f}",
            ],
            strict=True,
        )
    )


def table(rows: list[dict]) -> str:
    """Rows as Markdown."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(one[head]) for head in heads) + " |" for one in rows]
    return "\n".join(lines)


def rate(value: str | float) -> str:
    """MB/s for display."""
    number = float(value)
    return f"{number:,.{int(number < 9.95)}f}"


def summary(rows: list[dict]) -> list[dict]:
    """Geometric means of ratios and rates over the streams of a kind."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for one in rows:
        # The element size follows from the stream: one row for all sizes.
        codec = one["codec"]
        for width in "1248":
            codec = codec.replace(f"shuffle=bits{width}", "shuffle=bitsW")
            codec = codec.replace(f"shuffle={width}", "shuffle=W" if width != "1" else "shuffle=1")
        groups.setdefault((one["kind"], codec), []).append(one)

    def mean(found: list[dict], head: str) -> float:
        return math.exp(statistics.fmean(math.log(float(one[head])) for one in found))

    return [
        {
            "kind": kind,
            "streams": len(found),
            "codec": f"`{codec}`",
            "all, kB": f"{sum(one['bytes'] for one in found) / 1e3:,.1f}",
            "ratio": f"{mean(found, 'ratio'):.2f}",
            "encode MB/s": rate(mean(found, "encode MB/s")),
            "decode MB/s": rate(mean(found, "decode MB/s")),
        }
        for (kind, codec), found in groups.items()
    ]


def chosen(rows: list[dict], kind: str, lossy: list[str]) -> list[dict]:
    """Return the smallest lossless row of each stream of a kind, and those of the lossy codecs."""
    by_stream: dict[tuple[str, str], list[dict]] = {}
    for one in rows:
        if one["kind"] == kind:
            by_stream.setdefault((one["recording"], one["stream"]), []).append(one)
    found = []
    for (recording, name), all_of_it in by_stream.items():
        exact = [one for one in all_of_it if not is_one_of(one, lossy)]
        best = min(exact, key=lambda one: one["bytes"])
        shown = [best, *(one for one in all_of_it if is_one_of(one, lossy))]
        found += [
            {
                "recording, stream": f"{short(recording)} `{name}`" if one is best else "",
                "frames": f"{one['frames']} × {one['type']}"
                if one is best
                else (f"the first {one['frames']}" if one["frames"] != best["frames"] else ""),
                "codec": f"`{one['codec']}`",
                "kB": f"{one['bytes'] / 1e3:,.1f}",
                "ratio": f"{float(one['ratio']):.2f}",
                "encode MB/s": rate(one["encode MB/s"]),
                "decode MB/s": rate(one["decode MB/s"]),
                **({"error": error_of(one)} if lossy else {}),
            }
            for one in shown
        ]
    return found


def is_one_of(one: dict, codecs: list[str]) -> bool:
    """Whether a row belongs to one of these codecs; their parameters may be incomplete."""

    def parts(text: str) -> set[str]:
        name, _, parameters = text.partition(":")
        return {name, *parameters.split(",")} - {""}

    return any(parts(text) <= parts(one["codec"]) for text in codecs)


def short(recording: str) -> str:
    """Drop the uninformative parts of a path."""
    drop = ("generated", "real", "data", "videos", "chunk-000")
    path = pathlib.PurePath(recording)
    return "/".join(part for part in (*path.parts[:-1], path.stem) if part not in drop)


def error_of(one: dict) -> str:
    """Format the error of decoded values."""
    if one["PSNR dB"]:
        return f"{float(one['PSNR dB']):.1f} dB"
    return "none" if one["max error"] == "0" else f"≤ {one['max error']}"


def page(rows: list[dict]) -> str:
    """Render the tables of the docs."""
    streams_of = {(one["recording"], one["stream"]) for one in rows}
    text = [
        "# Every stream of every recording",
        "    cargo build --release -p kino_cli\n    python bench/codecs/all_streams.py",
        f"{len(streams_of)} streams, {len(rows)} rows. For each stream: the smallest lossless codec, and the lossy ones"
        "\nmeant for its kind. All rows, with the time of a random frame and of a 100-frame window:"
        "\n[`bench/results/codecs.csv`](../../../bench/results/codecs.csv). The error is measured, not what the codec was"
        "\nasked for. General codecs on the same streams: [general.md](general.md).",
        f"One thread of {os.cpu_count()} shared cores (load {os.getloadavg()[0]:.1f}), the best of few passes of {SECONDS} s: sizes are exact,"
        "\nspeeds are rough. MB are of decoded values; short streams (a few kB) mostly measure the cost of a call."
        "\nFrom a file with several episodes the longest is used, from a long stream at most 8192 frames and 12 MB from its middle;"
        "\n`av1` gets the first group of these, so its total covers fewer frames; [video.md](video.md) has the full figures.",
        "## Means by kind\n\nGeometric means over the streams; *all* is the sum of the encoded bytes. `W` is the size of one value.",
        table(summary(rows)),
    ]
    for kind, title, lossy in TABLES:
        found = chosen(rows, kind, lossy)
        if found:
            text += [f"## {title}", table(found)]
    return "\n\n".join(text) + "\n"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="only recordings whose path contains one of these")
    parser.add_argument("--program", default=PROGRAM, help="the kinograph command")
    args = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"error: no recordings at {DATA}\nhint: set KINOGRAPH_TEST_DATA")
    begin = time.perf_counter()
    rows, reported = [], set()
    with tempfile.TemporaryDirectory() as folder:
        for found in streams(args.names):
            texts = CANDIDATES[found.kind]
            for figures in measure(args.program, found, texts, pathlib.Path(folder)):
                if "error" not in figures:
                    rows.append(row(found, figures))
                elif (figures["codec"], found.kind) not in reported:
                    reported.add((figures["codec"], found.kind))
                    note(f"`{figures['codec']}` for {found.kind}: {figures['error']}")
    print(page(rows) if args.names else table(summary(rows)))
    seconds = time.perf_counter() - begin
    note(f"{len(rows)} rows, {seconds:.0f} s")
    if not args.names:
        CSV.parent.mkdir(parents=True, exist_ok=True)
        with CSV.open("w", newline="") as file:
            writer = csv.DictWriter(file, HEADS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        PAGE.write_text(page(rows))
    if FAILED:
        sys.exit("error: a codec broke its guarantee: " + ", ".join(FAILED))


if __name__ == "__main__":
    main()
