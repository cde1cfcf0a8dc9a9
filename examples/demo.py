"""Pack a recording, read it back, and show what it cost: `make demo`.

Everything it writes goes to target/demo. The recording is three demonstrations of robosuite's Lift task
in robomimic's HDF5 layout: two cameras, thirteen vectors per step, actions and rewards.
"""

import pathlib
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "data" / "lift_3demos.hdf5"
OUT = ROOT / "target" / "demo"
CAMERA = "obs/agentview_image"


def pack(name: str, *options: str) -> tuple[pathlib.Path, float]:
    """Pack the recording with the command line; gives the dataset and the seconds it took."""
    packed = OUT / name
    command = ["kinograph", "pack", str(RECORDING), str(packed), *options]
    print("\n$", " ".join(command).replace(f"{ROOT}/", ""), flush=True)
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return packed, time.perf_counter() - start


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
                sys.exit(f"error: stream `{name}` of episode {episode.id} is not what was packed")
            count += 1
    return count


def psnr_db(ds: kinograph.Dataset, recording: h5py.File) -> float:
    """How close the camera's pixels are to the recording's; 40 dB and more cannot be told apart by eye."""
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


def main() -> None:
    """Pack twice, read, compare, report."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    lossless, lossless_s = pack("lift.kino")
    lossy, lossy_s = pack("lift_q95.kino", "--quality", "95")

    print("\nIn Python:")
    start = time.perf_counter()
    ds = kinograph.open(lossless)
    open_ms = (time.perf_counter() - start) * 1e3
    print(f">>> ds = kinograph.open('{lossless.relative_to(ROOT)}')\n{ds!r}")
    episode = ds[0]
    print(f">>> ds[0]\n{episode!r}")
    window = episode[CAMERA][10:20]
    print(f">>> ds[0]['{CAMERA}'][10:20]        # by frame\n{window.dtype} {window.shape}")
    window = episode[CAMERA][0.5:1.0]
    print(f">>> ds[0]['{CAMERA}'][0.5:1.0]      # by seconds\n{window.dtype} {window.shape}")

    ds_lossy = kinograph.open(lossy)
    with h5py.File(RECORDING) as recording:
        count = count_equal_streams(ds, recording)
        quality = psnr_db(ds_lossy, recording)
    print(f"\n{count} streams compared with the recording: every one is bit-equal.")
    print(f"JPEG quality 95: {quality:.1f} dB on the camera.")

    print("\nWhere the time went:")
    print(f"  pack, lossless          {lossless_s * 1e3:8.0f} ms")
    print(f"  pack, JPEG quality 95   {lossy_s * 1e3:8.0f} ms")
    print(f"  open                    {open_ms:8.2f} ms")
    print(f"  read, lossless          {microseconds_per_frame(ds):8.1f} µs per frame")
    print(f"  read, JPEG quality 95   {microseconds_per_frame(ds_lossy):8.1f} µs per frame")


if __name__ == "__main__":
    main()
