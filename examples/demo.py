"""Pack a recording, read it back, train a small policy from it, and show where the time went: `make demo`.

Everything it writes goes to target/demo. The recording is three demonstrations of robosuite's Lift task
in robomimic's HDF5 layout: two cameras and fifteen vector streams.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np
from train import train

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = pathlib.Path("tests/data/lift_3demos.hdf5")
OUT = pathlib.Path("target/demo")
CAMERA = "obs/agentview_image"


def pack(name: str, *options: str) -> pathlib.Path:
    """Pack the recording with the command line, as a user would; it prints its own table."""
    packed = OUT / name
    command = ["kinograph", "pack", str(RECORDING), str(packed), *options]
    print("\n$", " ".join(command), flush=True)
    subprocess.run(command, check=True)
    return packed


def pack_seconds(*options: str) -> dict[str, float]:
    """Pack once more on one thread, so that the times of the parts add up."""
    packed = OUT / "timed.kino"
    shutil.rmtree(packed, ignore_errors=True)
    command = ["kinograph", "pack", str(RECORDING), str(packed), "--threads", "1", "--json"]
    answer = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE)
    report = json.loads(answer.stdout)
    parts = {"encode vectors": 0.0, "encode images": 0.0, "decode and compare": 0.0}
    for stream in report["streams"]:
        kind = "encode images" if stream["kind"] == "image" else "encode vectors"
        parts[kind] += stream["encode_s"]
        parts["decode and compare"] += stream["decode_s"]
    return parts | {"read, write and sync": report["seconds"] - sum(parts.values())}


def count_equal_streams(ds: kinograph.Dataset, recording: h5py.File) -> int:
    """Compare every stream of every episode with the recording, bit for bit."""
    count = 0
    for episode in ds:
        original = recording["data"][episode.id]
        for name in episode.streams:
            expected = original[name][()]
            found = episode[name][:]
            same = found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
            if not same:
                sys.exit(
                    f"error: stream `{name}` of episode {episode.id} differs from the recording"
                )
            count += 1
    return count


def psnr_db(ds: kinograph.Dataset, recording: h5py.File) -> float:
    """Return the PSNR of the camera; 40 dB and more cannot be told apart by eye."""
    squared, pixels = 0.0, 0
    for episode in ds:
        difference = episode[CAMERA][:].astype(float) - recording["data"][episode.id][CAMERA][()]
        squared += float(np.square(difference).sum())
        pixels += difference.size
    return float(10 * np.log10(255**2 * pixels / squared))


def microseconds_per_frame(ds: kinograph.Dataset) -> float:
    """Read the camera in windows of ten frames, as training does; the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        frames = 0
        start = time.perf_counter()
        for episode in ds:
            camera = episode[CAMERA]
            for first in range(0, len(camera) - 10, 10):
                frames += len(camera[first : first + 10])
        best = min(best, (time.perf_counter() - start) / frames)
    return best * 1e6


def show_reading(ds: kinograph.Dataset) -> None:
    """Show what a user types, and what is printed."""
    print(f"\nIn Python:\n>>> ds = kinograph.open('{ds.path}')\n{ds!r}")
    print(f">>> ds[0]\n{ds[0]!r}")
    window = ds[0][CAMERA][10:20]
    print(f">>> ds[0]['{CAMERA}'][10:20]      # by frame\n{window.dtype} {window.shape}")
    window = ds[0][CAMERA][0.5:1.0]
    print(f">>> ds[0]['{CAMERA}'][0.5:1.0]    # by seconds\n{window.dtype} {window.shape}")


def show_times(datasets: dict[str, kinograph.Dataset], options: dict[str, list[str]]) -> None:
    """Show where the time of packing and reading went."""
    print("\nWhere the time went:")
    for name, ds in datasets.items():
        start = time.perf_counter()
        kinograph.open(ds.path)
        open_ms = (time.perf_counter() - start) * 1e3
        print(f"  {name}")
        for part, seconds in pack_seconds(*options[name]).items():
            print(f"    pack: {part:22}{seconds * 1e3:8.1f} ms")
        print(f"    open: {open_ms:30.1f} ms")
        print(f"    read the camera: {microseconds_per_frame(ds):19.1f} µs per frame")


def main() -> None:
    """Pack twice, read, compare, train, report."""
    os.chdir(ROOT)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    options = {"lossless": [], "JPEG quality 80": ["--quality", "80"]}
    lossless = kinograph.open(pack("lift.kino", *options["lossless"]))
    lossy = kinograph.open(pack("lift_q80.kino", *options["JPEG quality 80"]))

    show_reading(lossless)
    with h5py.File(RECORDING) as recording:
        count = count_equal_streams(lossless, recording)
        quality = psnr_db(lossy, recording)
    print(f"\n{count} streams compared with the recording: every one is bit-equal.")
    print(f"JPEG quality 80: {quality:.1f} dB on the camera.")
    show_times(dict(zip(options, (lossless, lossy), strict=True)), options)

    print("\nBehaviour cloning from the lossless dataset (examples/train.py):")
    losses = train(lossless.path)
    if not losses[-1] < losses[0]:
        sys.exit("error: the policy did not learn")


if __name__ == "__main__":
    main()
