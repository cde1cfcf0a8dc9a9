"""What JPEG at random costs the loader: CPU time per image, and the memory that the cache takes per frame.

    python bench/random_jpeg.py

Camera images of the sample recording, enlarged and with a sensor's noise (a std of 4 levels). All frames are in the cache,
one thread collates, every image is compressed (`p=1`) at a quality from 30 to 95, 4:2:0. CPU time of the whole process over an
epoch, the least of several; Pillow on the same images in a plain loop, for comparison. Compressed images are compared with
Pillow's before anything is timed. Writes bench/results/random_jpeg.csv.
"""

from __future__ import annotations

import csv
import io
import pathlib
import resource
import tempfile
from collections.abc import Callable

import h5py
import numpy as np
from PIL import Image

import kinograph
import kinograph.numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = ROOT / "tests" / "data" / "lift_3demos.hdf5"
SIZES = [(84, 84), (224, 224), (480, 640)]
TRAINED = (224, 224)
FRAMES = 64
EPOCHS = 7
QUALITY = (30, 95)


def cpu_s() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def camera(height: int, width: int) -> np.ndarray:
    """Images of the recording's first demonstration in this size."""
    with h5py.File(RECORDING) as file:
        frames = file["data/demo_0/obs/agentview_image"][:FRAMES]
    rng = np.random.default_rng(0)
    images = []
    for frame in np.resize(frames, (FRAMES, *frames.shape[1:])):
        image = Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC)
        noisy = np.asarray(image) + rng.normal(0, 4, (height, width, 3))
        images.append(noisy.round().clip(0, 255).astype(np.uint8))
    return np.stack(images)


def through_pillow(image: np.ndarray, quality: int) -> np.ndarray:
    """Compress and decode an image."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return np.asarray(Image.open(file))


def least_us(work: Callable[[], object]) -> float:
    """CPU microseconds per frame, the least of several runs."""
    times = []
    for _ in range(EPOCHS):
        before = cpu_s()
        work()
        times.append(cpu_s() - before)
    return min(times) / FRAMES * 1e6


def loader(dataset: kinograph.Dataset, **images: object) -> kinograph.numpy.Loader:
    """One frame per sample, all of them cached."""
    return kinograph.numpy.Loader(
        dataset, windows={"cam": [0]}, batch_size=8, threads=1, images=images, seed=1
    )


def measure(dataset: kinograph.Dataset, **images: object) -> tuple[float, int]:
    """CPU microseconds per image, and bytes of the cache per frame."""
    with loader(dataset, **images) as one:
        list(one)  # decodes everything
        us = least_us(lambda: [None for _ in one])
        return us, one.report().cache_peak_bytes // FRAMES


def check(dataset: kinograph.Dataset) -> None:
    """Compare a batch with Pillow's."""
    jpeg = kinograph.RandomJpeg(quality=75, p=1)
    with loader(dataset) as plain, loader(dataset, random_jpeg=jpeg) as compressed:
        for before, after in zip(
            next(iter(plain))["cam"], next(iter(compressed))["cam"], strict=True
        ):
            np.testing.assert_array_equal(after[0], through_pillow(before[0], 75))


def main() -> None:
    """Measure and write."""
    rows = []
    jpeg = kinograph.RandomJpeg(quality=QUALITY, p=1)
    late = kinograph.RandomJpeg(quality=QUALITY, p=1, before_resize=False)
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            frames = camera(*size)
            path = pathlib.Path(folder) / f"{size[0]}.kino"
            with kinograph.Writer(path) as writer:
                writer.add_episode({"cam": frames}, rate_hz=20.0)
            dataset = kinograph.open(path)
            check(dataset)
            asked: list[tuple[str, dict[str, object]]] = [
                ("no JPEG", {}),
                ("JPEG", {"random_jpeg": jpeg}),
            ]
            if size[0] > TRAINED[0]:
                resized = {"size": TRAINED}
                asked += [
                    ("resized, no JPEG", resized),
                    ("JPEG, then resized", {**resized, "random_jpeg": jpeg}),
                    ("resized, then JPEG", {**resized, "random_jpeg": late}),
                ]
            for name, images in asked:
                us, frame_bytes = measure(dataset, **images)
                rows.append((f"{size[0]}x{size[1]}", name, f"{us:.0f}", frame_bytes))
                print(*rows[-1], sep="\t")
            qualities = np.linspace(*QUALITY, FRAMES).astype(int).tolist()
            pairs = list(zip(frames, qualities, strict=True))
            us = least_us(lambda pairs=pairs: [through_pillow(*pair) for pair in pairs])
            rows.append((f"{size[0]}x{size[1]}", "Pillow", f"{us:.0f}", ""))
            print(*rows[-1], sep="\t")
    with (ROOT / "bench" / "results" / "random_jpeg.csv").open("w", newline="") as file:
        writer_ = csv.writer(file, lineterminator="\n")
        writer_.writerow(["stored", "images", "cpu_us_per_image", "cache_bytes_per_frame"])
        writer_.writerows(rows)


if __name__ == "__main__":
    main()
