"""Measure every codec on every stream of every recording: `python bench/codecs/all_streams.py`.

Prints a Markdown table, then a summary by kind of stream, and writes bench/results/codecs.csv. What is timed is checked by
`crates/kino_codec/examples/measure`, which does the work: lossless codecs bit for bit, bounded ones against their bound.

Recordings come from KINOGRAPH_TEST_DATA (default ../shared/data beside the checkout). `recordings.py`
says which frames of them are measured.
A name or two as arguments (`kodak`, `mixed`) measure only the recordings whose path has them, and write no CSV.

A new codec is a new line in CANDIDATES. Codecs that the build does not have are named and passed over.
"""

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

# Codecs by kind of stream. `{w}` is the size of one number in bytes.
CANDIDATES: dict[str, list[str]] = {
    "vector": [
        "raw",
        "lz4:shuffle={w}",
        "zstd:level=3",
        "zstd:level=3,shuffle={w}",
        "zstd:level=3,shuffle=bits{w}",
        "deflate:level=6,shuffle={w}",
        "pco:level=8",
        "vector",
        "vector:abs=1e-6",
        "vector:abs=1e-4",
    ],
    "time": [
        "raw",
        "lz4:shuffle={w}",
        "zstd:level=3,shuffle={w}",
        "deflate:level=6",
        "pco:level=8",
        "vector",
    ],
    "flag": ["raw", "lz4", "zstd:level=3", "zstd:level=3,shuffle=bits{w}", "pco:level=8"],
    "image": [
        "raw",
        "lz4",
        "zstd:level=3",
        "deflate:level=6",
        "deflate:level=6,strategy=filtered",
        "predict:level=3",
        "camera",
        "jpeg:q=95,sub=444",
        "jpeg:q=85,sub=420",
        "jpeg:psnr=42",
        "av1",
    ],
    "depth": [
        "raw",
        "lz4:shuffle=2",
        "zstd:level=3",
        "zstd:level=3,shuffle=2",
        "zstd:level=3,shuffle=bits2",
        "zstd:level=9",
        "deflate:level=6,shuffle=2",
        "depth",
        "depth:abs=1",
    ],
    "text": ["text:level=3"],
    "bitstream": ["jpeg:carry"],
}

SECONDS = 0.03  # for each figure of each codec

CSV = ROOT / "bench" / "results" / "codecs.csv"
HEADS = [
    *("recording", "stream", "kind", "type", "frames", "of", "codec", "bytes", "ratio"),
    *("encode MB/s", "decode MB/s", "frame µs", "window µs", "max error", "PSNR dB"),
]

# Streams on which a codec failed or did not keep what it promises.
FAILED: list[str] = []


def build() -> str:
    """Build the program that measures, where cargo builds."""
    command = ["cargo", "build", "--release", "-p", "kino_codec", "--example", "measure"]
    done = subprocess.run(
        [*command, "--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(
        message["executable"]
        for message in messages
        if message.get("executable") and message["target"]["name"] == "measure"
    )


def measure(program: str, found: Stream, texts: list[str], folder: pathlib.Path) -> list[dict]:
    """Give one object for each codec."""
    path = folder / "frames.bin"
    options = ["--json", "--seconds", str(SECONDS)]
    if isinstance(found.frames, list):
        path.write_bytes(b"".join(struct.pack("<I", len(one)) + one for one in found.frames))
        options.append("--strings")
        width = 1
    else:
        found.frames.tofile(path)
        width = found.frames.dtype.itemsize
    codecs = [text.format(w=width) for text in texts]
    command = [program, *options, found.type, str(path), *dict.fromkeys(codecs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        FAILED.append(f"{found.recording}: `{found.name}`")
    return [json.loads(line) for line in done.stdout.splitlines()]


def row(found: Stream, figures: dict) -> dict:
    """Make a row of the table."""
    error, psnr = figures["max_error"], figures["psnr_db"]
    return dict(
        zip(
            HEADS,
            [
                *(found.recording, found.name, found.kind, found.type, len(found.frames), found.of),
                *(figures["codec"], figures["bytes"], f"{figures['ratio']:.3f}"),
                *(f"{figures['encode_mb_s']:.1f}", f"{figures['decode_mb_s']:.1f}"),
                *(f"{figures['frame_us']:.2f}", f"{figures['window_us']:.2f}"),
                "0" if not error else f"{error:.4g}",
                "" if psnr is None else f"{psnr:.2f}",
            ],
            strict=True,
        )
    )


def show(rows: list[dict], heads: list[str]) -> None:
    """Rows as Markdown."""
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for one in rows:
        print("| " + " | ".join(str(one[head]) for head in heads) + " |")


def summary(rows: list[dict]) -> list[dict]:
    """Means over the streams of a kind: of ratios and rates, geometric."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for one in rows:
        # The element size follows from the stream: one line for all.
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
            "codec": codec,
            "all bytes": sum(one["bytes"] for one in found),
            "ratio": f"{mean(found, 'ratio'):.2f}",
            "encode MB/s": f"{mean(found, 'encode MB/s'):.0f}",
            "decode MB/s": f"{mean(found, 'decode MB/s'):.0f}",
        }
        for (kind, codec), found in groups.items()
    ]


def main() -> None:
    """Measure, print, write."""
    names = sys.argv[1:]
    if not DATA.exists():
        sys.exit(f"error: no recordings at {DATA}\nhint: set KINOGRAPH_TEST_DATA")
    program = build()
    begin = time.perf_counter()
    rows, told = [], set()
    with tempfile.TemporaryDirectory() as folder:
        for found in streams(names):
            for figures in measure(program, found, CANDIDATES[found.kind], pathlib.Path(folder)):
                if "error" not in figures:
                    rows.append(row(found, figures))
                elif (figures["codec"], found.kind) not in told:
                    told.add((figures["codec"], found.kind))
                    note(f"`{figures['codec']}` for {found.kind}: {figures['error']}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    show(rows, [head for head in HEADS if head != "kind"])
    print("\n### By kind of stream: means are geometric\n")
    means = summary(rows)
    show(means, list(means[0]))
    seconds = time.perf_counter() - begin
    note(
        f"{len({(one['recording'], one['stream']) for one in rows})} streams, {len(rows)} rows, {seconds:.0f} s"
    )
    if not names:
        CSV.parent.mkdir(parents=True, exist_ok=True)
        with CSV.open("w", newline="") as file:
            writer = csv.DictWriter(file, HEADS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if FAILED:
        sys.exit("error: a codec failed, see the notes: " + ", ".join(FAILED))


if __name__ == "__main__":
    main()
