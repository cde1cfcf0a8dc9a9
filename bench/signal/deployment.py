"""How often `kinograph.check_deployment` finds a mistake, and how often it finds one where there is none.

    python bench/signal/deployment.py rates NAME=RECORDING...       detection and false alarms, on episodes that were held out
    python bench/signal/deployment.py parity [--before FOLDER]      what a live frame costs

``rates`` packs each recording without loss of its own, takes every fifth episode away (or one of less than ten, in turn), and passes frames of
it as if they were live: as they are, and after the usual mistakes, made with Pillow and numpy. A handful is ten frames spread over
the episode, or ten in a row. A mistake counts as *found* if there is any warning, and as *named* if the right one is among them.

``parity`` also times what no JPEG can do without: one call of libjpeg-turbo to encode and one to decode (`pip install simplejpeg`). FOLDER
has another build of the package ``kinograph``; the builds take turns, each in processes of its own, and medians are over all turns.

The results are written to bench/results/deployment.csv and deployment_parity.csv.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import kinograph

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
OUT = ROOT / "target" / "bench" / "deployment"
FRAMES = 10
MOST_EPISODES = 20
PARITY_COLUMNS = ("size", "plan", "before_ms", "cpu_ms", "library_ms")
TURNS = 5
COLUMNS = ("recording", "camera", "size", "change", "frames", "handfuls", "found", "named")
Pixels = npt.NDArray[np.uint8]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    rates = commands.add_parser("rates")
    rates.add_argument("recordings", nargs="+", metavar="NAME=RECORDING")
    parity = commands.add_parser("parity")
    parity.add_argument("--before", type=Path, help="a folder with another build of the package")
    commands.add_parser("slot").add_argument("parity", type=Path)
    options = parser.parse_args()
    if options.command == "slot":
        print(json.dumps(times_ms(kinograph.Parity(options.parity)["cam"])))
        return
    if options.command == "parity":
        timed = list(measure_parity(options.before))
        write("deployment_parity.csv", PARITY_COLUMNS, timed)
        return
    rows: list[dict[str, Any]] = []
    for text in options.recordings:
        name, _, path = text.partition("=")
        for row in measure_rates(name, Path(path)):
            print(*row.values(), sep="\t", flush=True)
            rows.append(row)
    write("deployment.csv", COLUMNS, rows)


def write(name: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Write a table."""
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def jpeg(quality: int) -> Callable[[Pixels], Pixels]:
    """Compress as a camera driver does: 4:2:0."""

    def change(frame: Pixels) -> Pixels:
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file))

    return change


def blur(frame: Pixels) -> Pixels:
    """Halve and double: what a wrong resize, or a lens out of focus, does."""
    height, width = frame.shape[:2]
    small = Image.fromarray(frame).resize((width // 2, height // 2), Image.Resampling.BILINEAR)
    return np.asarray(small.resize((width, height), Image.Resampling.BILINEAR))


def swap(frame: Pixels) -> Pixels:
    """Take BGR for RGB."""
    return frame[..., ::-1]


def smaller(frame: Pixels) -> Pixels:
    """Deliver four fifths of the size."""
    height, width = frame.shape[:2]
    return np.asarray(Image.fromarray(frame).resize((width * 4 // 5, height * 4 // 5)))


def brighter(frame: Pixels) -> Pixels:
    """Expose 20 % longer."""
    return (frame * 1.2).clip(0, 255).astype(np.uint8)


def same(frame: Pixels) -> Pixels:
    """Leave a frame as it is."""
    return frame


CHANGES: dict[str, tuple[Callable[[Pixels], Pixels], tuple[str, ...]]] = {
    "none": (same, ()),
    "JPEG 95": (jpeg(95), ("codec",)),
    "JPEG 75": (jpeg(75), ("codec",)),
    "JPEG 40": (jpeg(40), ("codec",)),
    "blur": (blur, ("sharpness",)),
    "BGR": (swap, ("channel order",)),
    "resize mismatch": (smaller, ("size",)),
    "exposure +20 %": (brighter, ("brightness", "contrast", "value range")),
}


def measure_rates(name: str, recording: Path) -> Iterator[dict[str, Any]]:
    """Pack a recording, hold episodes out in turn, and count."""
    shutil.rmtree(OUT / name, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    # Neither PushT's replay buffer nor Bridge's records say their rate.
    rate_hz = {"pusht": 10.0, "bridge": 5.0}.get(name)
    episodes = f"0-{MOST_EPISODES - 1}" if name == "pusht" else None
    kinograph.pack(recording, OUT / name, on_defect="keep", rate_hz=rate_hz, episodes=episodes)
    dataset = kinograph.open(OUT / name)
    for camera, stream in dataset.streams.items():
        if stream.kind != "image":
            continue
        counts: dict[tuple[str, str], list[int]] = {}
        for held, core in folds(dataset, camera):
            frames = dataset[held][camera]
            for kind, places in handfuls(len(frames)):
                live = frames[places]
                for change, (function, checks) in CHANGES.items():
                    changed = np.ascontiguousarray(np.stack([function(frame) for frame in live]))
                    report = kinograph.check_deployment({camera: changed}, core)
                    named = any(one.check in checks for one in report.warnings)
                    count = counts.setdefault((change, kind), [0, 0, 0])
                    count[0] += 1
                    count[1] += not report.ok
                    count[2] += named
        size = "×".join(map(str, stream.shape[:2]))
        for (change, kind), (tried, found, named) in counts.items():
            yield dict(
                zip(COLUMNS, (name, camera, size, change, kind, tried, found, named), strict=True)
            )


def folds(dataset: kinograph.Dataset, camera: str) -> Iterator[tuple[int, kinograph.Parity]]:
    """Give each episode that is held out, and the reference of the others; every fifth is held out together."""
    rows = [row for row in range(len(dataset)) if camera in dataset[row]][:MOST_EPISODES]
    count = 5 if len(rows) >= 10 else len(rows)
    for fold in range(count):
        others = [row for place, row in enumerate(rows) if place % count != fold]
        core = dataset.parity(streams=[camera], reference=False)._core
        parity = kinograph.Parity._of(core.with_reference(dataset._core, others))
        for place, row in enumerate(rows):
            if place % count == fold:
                yield row, parity


def handfuls(frames: int) -> Iterator[tuple[str, list[int]]]:
    """Ten frames spread over an episode, and ten in a row from its middle."""
    count = min(FRAMES, frames)
    yield "spread", [(2 * number + 1) * frames // (2 * count) for number in range(count)]
    start = (frames - count) // 2
    yield "in a row", list(range(start, start + count))


def noisy_frames() -> npt.NDArray[np.uint8]:
    """Make noise over waves, which is harder to compress than most camera images."""
    rng = np.random.default_rng(0)
    rows, columns, waves = np.mgrid[0:480, 0:640, 0:3].astype(float)
    moving = [
        127 + 60 * np.sin((rows * (waves + 1) + 2 * columns + 5 * step) / 40) for step in range(8)
    ]
    return (np.stack(moving) + rng.normal(0, 3, (8, 480, 640, 3))).clip(0, 255).astype(np.uint8)


def times_ms(one: Callable[[Pixels], object], size: int | None = None) -> list[float]:
    """Take the CPU time of one frame at a time, of a corner of this size."""
    frames = [np.ascontiguousarray(frame[:size, :size]) for frame in noisy_frames()]
    times = []
    for step in range(50):
        start = time.process_time()
        one(frames[step % 8])
        times.append(1000 * (time.process_time() - start))
    return times[10:]


def library(codec: str) -> Callable[[Pixels], object] | None:
    """Give what a JPEG needs at least: encode and decode, each one call of libjpeg-turbo."""
    if not codec.startswith("jpeg") or importlib.util.find_spec("simplejpeg") is None:
        return None
    import simplejpeg  # noqa: PLC0415 (optional)

    quality = int(codec.partition("q=")[2].partition(",")[0])
    chroma = "420" if "sub=420" in codec else "444"

    def pass_through(frame: Pixels) -> object:
        file = simplejpeg.encode_jpeg(frame, quality, "RGB", chroma, fastdct=False)
        return simplejpeg.decode_jpeg(file, "RGB", fastdct=False, fastupsample=False)

    return pass_through


def measure_parity(before: Path | None) -> Iterator[dict[str, Any]]:
    """Time each plan with every build in turn, and the library between them."""
    plans: dict[str, dict[str, Any]] = {
        "jpeg:q=95,sub=420": {"codec": "jpeg:q=95,sub=420"},
        "jpeg:q=95,sub=444": {"codec": "jpeg:q=95"},
        "jpeg:q=75,sub=420": {"codec": "jpeg:q=75,sub=420"},
        "resize 224×224, jpeg:q=90,sub=444": {"codec": "jpeg:q=90", "resize": [224, 224]},
        "resize 224×224, lossless": {"codec": "predict", "resize": [224, 224]},
        "lossless": {"codec": "predict"},
    }
    builds = {"cpu_ms": Path(kinograph.__file__).parents[1]}
    if before is not None:
        builds["before_ms"] = before.resolve()
    for name, rule in plans.items():
        path = OUT / "timing.kino"
        with kinograph.Writer(
            path, mode="overwrite", plan={"stream": [{"kind": "image", **rule}]}
        ) as writer:
            writer.add_episode({"cam": noisy_frames()}, rate_hz=20.0)
        kinograph.open(path).parity(reference=False).save(OUT / "timing.json")
        found: dict[str, list[float]] = {}
        bare = library(rule["codec"])
        for _ in range(TURNS):
            for column, folder in builds.items():
                found.setdefault(column, []).extend(slot(folder))
            if bare is not None:
                found.setdefault("library_ms", []).extend(
                    times_ms(bare, rule.get("resize", [None])[0])
                )
        medians = {column: round(float(np.median(one)), 2) for column, one in found.items()}
        row = {"size": "480×640", "plan": name, **medians}
        print(*row.values(), sep="\t", flush=True)
        yield row


def slot(folder: Path) -> list[float]:
    """Time the saved parity in a process of its own, with the package of this folder."""
    command = [sys.executable, __file__, "slot", str(OUT / "timing.json")]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    times: list[float] = json.loads(run.stdout)
    return times


if __name__ == "__main__":
    main()
