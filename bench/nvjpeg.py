"""Does nvJPEG decode right, how fast, and without touching anyone's memory? `python bench/nvjpeg.py` on a machine with CUDA.

    pixels       against the CPU's decoder: the largest and the mean difference, at three chroma subsamplings
    rates        128 frames at a time, with the seconds of CPU that takes
    stream bug   1,000 times: memory of torch's allocator that is freed while a late kernel still reads it, and a slot of ours that is
                 dropped while a late kernel still reads it, with a decode behind each. nvJPEG's engine in hardware does not keep
                 a stream's order, so a decoder that relies on it overwrites both (134 of 200 in a published reproduction).
    bare         40 times: nvJPEG called without our decoder, into memory that a late kernel of the same stream still reads, with
                 and without a wait of the host before it

Writes bench/results/nvjpeg.csv. `--folder` is where libnvjpeg.so is, if the system does not find it.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import pathlib
import time
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack
from transfer import images

import kinograph
from kinograph import _core

ROOT = pathlib.Path(__file__).resolve().parent.parent
FRAMES, BATCH, ITERATIONS, BARE = 16, 128, 1000, 40
INTERLEAVED = 5
BACKENDS = {"hardware": 3, "default": 0}


class Image(ctypes.Structure):
    """`nvjpegImage_t`."""

    _fields_ = (("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4))


def frames_of(
    folder: pathlib.Path, sub: str, size: tuple[int, int]
) -> tuple[list[bytes], np.ndarray]:
    """Return JPEG files, as a dataset stores them, and what the CPU makes of them."""
    target = folder / f"nvjpeg_{sub}_{size[0]}.kino"
    if not target.exists():
        plan = {"stream": [{"match": "x", "codec": f"jpeg:q=95,sub={sub}"}]}
        with kinograph.Writer(target, plan=plan) as writer:
            writer.add_episode({"x": images(np.random.default_rng(1), FRAMES, *size)}, rate_hz=10.0)
    shard = b"".join(path.read_bytes() for path in sorted(target.rglob("*.kshard")))
    files: list[bytes] = []
    at = 0
    while len(files) < FRAMES:
        start = shard.index(b"\xff\xd8\xff", at)
        at = shard.index(b"\xff\xd9", start) + 2
        files.append(shard[start:at])
    return files, np.asarray(kinograph.open(target)[0]["x"][:FRAMES])


def measure(decoder: _core.CudaJpeg, files: list[bytes], wanted: np.ndarray) -> dict[str, Any]:
    """Compare pixels, and time batches."""
    size = wanted.shape[1:3]
    found = from_dlpack(decoder.decode(files, size, 0)).cpu().numpy().astype(np.int16)
    difference = np.abs(found - wanted)
    many = [files[k % FRAMES] for k in range(BATCH)]
    times = []
    for _ in range(5):
        begin, cpu = time.perf_counter(), time.process_time()
        decoder.decode(many, size, 0)
        times.append((time.perf_counter() - begin, time.process_time() - cpu))
    wall, cpu = min(times)
    return {
        "largest_difference": int(difference.max()),
        "mean_difference": round(float(difference.mean()), 5),
        "frames_per_s": round(BATCH / wall),
        "cpu_ms_per_frame": round(cpu / BATCH * 1e3, 4),
    }


def corrupted(decoder: _core.CudaJpeg, files: list[bytes], wanted: np.ndarray) -> dict[str, int]:
    """Count how often a late kernel saw other bytes than those of its time."""
    size, stream = wanted.shape[1:3], torch.cuda.current_stream().cuda_stream
    weights = torch.arange(1, FRAMES + 1, device="cuda").view(-1, 1, 1, 1)

    def total(frames: torch.Tensor) -> torch.Tensor:
        return (frames.to(torch.int64) * weights).sum()

    turns = [files[shift:] + files[:shift] for shift in range(4)]
    right = [int(total(from_dlpack(decoder.decode(turn, size, stream)))) for turn in turns]
    busy = torch.randn(3072, 3072, device="cuda")
    seen = []
    for number in range(ITERATIONS):
        victim = torch.full((FRAMES, *size, 3), 7, dtype=torch.uint8, device="cuda")
        for _ in range(3):
            busy = (busy @ busy).clamp(-1, 1)
        kept, pixels = victim.to(torch.int64).sum(), victim.numel()
        del victim
        frames = from_dlpack(decoder.decode(turns[number % 4], size, stream))
        busy = (busy @ busy).clamp(-1, 1)
        seen.append((kept, 7 * pixels, total(frames), right[number % 4]))
        del frames
    return {
        "iterations": ITERATIONS,
        "others_corrupted": sum(int(kept) != was for kept, was, _, _ in seen),
        "frames_corrupted": sum(int(found) != was for _, _, found, was in seen),
    }


def library(folders: list[str]) -> ctypes.CDLL:
    """Load nvJPEG as the decoder does."""
    names = ("libnvjpeg.so.13", "libnvjpeg.so.12")
    for path in [*(f"{folder}/{name}" for folder in folders for name in names), *names]:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise SystemExit("nvJPEG was not found; say with --folder where it is")


def overwritten(
    lib: ctypes.CDLL, engine: str, files: list[bytes], wanted: np.ndarray
) -> dict[str, int]:
    """Count how often the bare library overwrites what its stream has still to read, without and with a wait before it."""
    handle, state, stream = ctypes.c_void_p(), ctypes.c_void_p(), torch.cuda.Stream()
    count, row = len(files), wanted.shape[2] * 3

    def check(code: int) -> None:
        if code:
            raise SystemExit(f"nvJPEG failed with error {code}")

    check(lib.nvjpegCreateEx(BACKENDS[engine], None, None, 0, ctypes.byref(handle)))
    check(lib.nvjpegJpegStateCreate(handle, ctypes.byref(state)))
    check(lib.nvjpegDecodeBatchedInitialize(handle, state, count, 1, INTERLEAVED))
    starts = (ctypes.c_char_p * count)(*files)
    lengths = (ctypes.c_size_t * count)(*map(len, files))
    busy, found = torch.randn(4096, 4096, device="cuda"), {}
    for name, waits in (("no_wait_corrupted", False), ("wait_corrupted", True)):
        bad = 0
        for _ in range(BARE):
            out = torch.full(wanted.shape, 1, dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                for _ in range(4):
                    busy = (busy @ busy).clamp(-1, 1)
                # Asked of the stream before the decode, so it must still see ones.
                seen = out.clone()
            if waits:
                stream.synchronize()
            places = (Image * count)()
            for place, image in zip(places, out, strict=True):
                place.channel[0], place.pitch[0] = image.data_ptr(), row
            handles = (handle, state, starts, lengths, places)
            check(lib.nvjpegDecodeBatched(*handles, ctypes.c_void_p(stream.cuda_stream)))
            torch.cuda.synchronize()
            bad += int((seen != 1).any())
        found[name] = bad
    lib.nvjpegJpegStateDestroy(state)
    lib.nvjpegDestroy(handle)
    return {"bare_iterations": BARE} | found


def main() -> None:
    """Measure both engines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "target" / "bench")
    parser.add_argument(
        "--csv", type=pathlib.Path, default=ROOT / "bench" / "results" / "nvjpeg.csv"
    )
    given = parser.parse_args()
    given.data.mkdir(parents=True, exist_ok=True)
    rows, lib = [], library(given.folder)
    for engine in BACKENDS:
        decoder = _core.CudaJpeg(0, given.folder, engine)
        for sub in ("444", "420", "422"):
            for size in ((480, 640), (224, 224), (84, 84)):
                files, wanted = frames_of(given.data, sub, size)
                row: dict[str, Any] = {
                    "engine": engine,
                    "subsampling": sub,
                    "size": f"{size[0]}x{size[1]}",
                }
                row |= measure(decoder, files, wanted)
                if size == (84, 84):
                    row |= corrupted(decoder, files, wanted)
                if size == (480, 640):
                    row |= overwritten(lib, engine, files * 4, np.tile(wanted, (4, 1, 1, 1)))
                rows.append(row)
                print(row, flush=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with given.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
