"""Measures `kinograph link` beside `kinograph pack`: CPU time, bytes written, and CPU time per sample.

    .venv/bin/python bench/link/measure.py --episodes 8      # after `make build PROFILE=release`

Writes ACT episodes with two JPEG cameras of 480x640 into a temporary folder, packs and links them, and reads one epoch of
each dataset. The files are in the page cache: what differs is work, not the disk. CPU time is that of all threads, so that
a busy machine does not matter much.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import tempfile
import time

import h5py
import numpy as np
from PIL import Image

import kinograph
import kinograph.numpy

FRAMES = 200


def jpeg(rng: np.random.Generator) -> bytes:
    """Make an image about as large as that of a camera."""
    coarse = rng.integers(0, 255, size=(30, 40, 3), dtype="u1")
    image = Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC)
    noisy = np.asarray(image) + rng.integers(0, 6, size=(480, 640, 3), dtype="u1")
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=90)
    return file.getvalue()


def write(path: pathlib.Path, seed: int) -> None:
    """Write an episode."""
    rng = np.random.default_rng(seed)
    few = [[jpeg(rng) for _ in range(20)] for _ in range(2)]
    with h5py.File(path, "w") as file:
        file.attrs["compress"] = True
        file["action"] = rng.normal(size=(FRAMES, 14))
        file["observations/qpos"] = rng.normal(size=(FRAMES, 14))
        for name, files in zip(("top", "wrist"), few, strict=True):
            longest = max(map(len, files))
            rows = [np.frombuffer(f.ljust(longest, b"\0"), "u1") for f in files]
            file[f"observations/images/{name}"] = np.stack([rows[i % 20] for i in range(FRAMES)])


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--episodes", type=int, default=8)
    episodes = arguments.parse_args().episodes
    with tempfile.TemporaryDirectory() as folder:
        recording = pathlib.Path(folder) / "recording"
        recording.mkdir()
        for number in range(episodes):
            write(recording / f"episode_{number}.hdf5", number)
        size = sum(path.stat().st_size for path in recording.iterdir())
        print(f"source: {size / 1e6:.0f} MB, {episodes * FRAMES * 2} images")
        for name in ("pack", "link", "link --trust"):
            target = pathlib.Path(folder) / f"{name}.kino"
            begin = time.process_time()
            if name == "pack":
                kinograph.pack(recording, target)
            else:
                kinograph.link(recording, target, trust="trust" in name)
            seconds = time.process_time() - begin
            stored = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
            samples = kinograph.open(target).samples(
                {
                    "observations/images/top": [0],
                    "observations/images/wrist": [0],
                    "action": range(50),
                }
            )
            costs = []
            for _ in range(3):
                # A new loader each time: the old one has decoded frames in its cache.
                loader = kinograph.numpy.Loader(samples, batch_size=16, seed=0)
                begin = time.process_time()
                count = sum(len(batch["action"]) for batch in loader)
                costs.append((time.process_time() - begin) / count)
            print(
                f"{name:13} {seconds:6.2f} s of CPU  {stored / 1e6:8.2f} MB written  "
                f"{1e3 * sorted(costs)[1]:6.2f} ms of CPU per sample"
            )


if __name__ == "__main__":
    main()
