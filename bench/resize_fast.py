"""JPEG frames that one sample needs, and decoded at the size that is needed: what they cost, and what pixels change.

    python bench/resize_fast.py pixels IMAGE…                         bench/results/resize_fast_pixels.csv
    python bench/resize_fast.py cost --recording episode_0.hdf5       bench/results/resize_fast.csv

`pixels` stores images as JPEG and loads them at several sizes with `resize="exact"` and `resize="fast"`. Both are compared with
each other and with the original, resized without JPEG.

`cost` is workload W2 of `bench/peers`, the newest frame of two cameras of 480 x 640: CPU time per sample of all threads, each system
in turns and alone. Every frame is used once: a global shuffle with memory for a twentieth of the dataset. The JPEG store
is the hand-written one of `bench/peers`, which decodes straight into the batch; its resizing is Pillow's. `--before PATH` adds another
build of the module, a folder with `kinograph` in it, in a second process beside the same store. Results are checked before they are timed.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
sys.path.append(str(ROOT / "bench" / "peers"))

SIDE = (224, 224)
# Options of `kinograph.Images`, per system.
OURS: dict[str, dict[str, Any]] = {
    "full": {},
    "full, chw": {"layout": "chw"},
    "224 exact": {"size": SIDE},
    "224 fast": {"size": SIDE, "resize": "fast"},
}
STORE = ("full", "224 exact", "224 fast")
BATCH = 8


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("pixels")
    part.add_argument("images", nargs="+", type=pathlib.Path)
    part = parts.add_parser("cost")
    part.add_argument("--recording", type=pathlib.Path, required=True)
    part.add_argument("--before", type=pathlib.Path)
    part.add_argument("--rounds", type=int, default=5)
    part.add_argument("--samples", type=int, default=480)
    part = parts.add_parser("rounds")
    part.add_argument("rounds", type=int)
    part.add_argument("samples", type=int)
    part.add_argument("systems", nargs="+")
    options = parser.parse_args()
    if options.part == "pixels":
        pixels(options.images)
    elif options.part == "cost":
        cost(options)
    else:
        rounds(options.systems, options.rounds, options.samples)


def pixels(paths: list[pathlib.Path]) -> None:
    """Compare the pixels of both modes."""
    rows = []
    groups: dict[tuple[str, tuple[int, int]], list[np.ndarray]] = {}
    for path in paths:
        image = np.asarray(Image.open(path).convert("RGB"))
        groups.setdefault((path.parent.name, image.shape[:2]), []).append(image)
    for (name, (height, width)), images in groups.items():
        for codec in ("jpeg:q=95,sub=420", "jpeg:q=95,sub=444", "jpeg:q=75,sub=420"):
            for size in (SIDE, (112, 112), (56, 56)):
                row = {"images": name, "number": len(images), "stored": f"{height}x{width}"}
                row |= {"codec": codec, "loaded": f"{size[0]}x{size[1]}"}
                row |= compare(images, codec, size)
                rows.append(row)
                print(row, flush=True)
    write("resize_fast_pixels.csv", rows)


def compare(images: list[np.ndarray], codec: str, size: tuple[int, int]) -> dict[str, float]:
    """Load images in both modes."""
    import kinograph  # noqa: PLC0415 (the process that starts the others does without)
    import kinograph.numpy  # noqa: PLC0415

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "a.kino"
        plan = {"stream": [{"kind": "image", "codec": codec}]}
        with kinograph.Writer(path, plan=plan) as writer:
            writer.add_episode({"cam": np.stack(images)}, rate_hz=1)
        for mode in ("exact", "fast"):
            loader = kinograph.numpy.Loader(
                kinograph.open(path),
                windows={"cam": 0},
                batch_size=len(images),
                shuffle=False,
                images=kinograph.Images(size=size, resize=mode),
            )
            with loader:
                found[mode] = next(iter(loader))["cam"].copy()
    ideal = np.stack(
        [
            np.asarray(Image.fromarray(one).resize(size[::-1], Image.Resampling.BILINEAR))
            for one in images
        ]
    )
    apart = np.abs(found["exact"].astype(int) - found["fast"])
    return {
        "psnr_db": psnr(found["exact"], found["fast"]),
        "max_difference": int(apart.max()),
        "mean_difference": round(float(apart.mean()), 3),
        "within_4": round(float((apart <= 4).mean()), 4),
        "exact_from_original_db": psnr(found["exact"], ideal),
        "fast_from_original_db": psnr(found["fast"], ideal),
    }


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """Return the PSNR over all images."""
    mean = float(((one.astype(float) - other) ** 2).mean())
    return round(10 * float(np.log10(255**2 / mean)), 2)


def cost(options: argparse.Namespace) -> None:
    """Time every system in turns."""
    build(options.recording)
    store, ours = [f"store, {name}" for name in STORE], [f"ours, {name}" for name in OURS]
    slots = [
        slot | {"build": "after", "run": 1} for slot in run(options, [(ours + store, None)])[0]
    ]
    if options.before is not None:
        same = [system for system in ours + store if "224" not in system]
        after, before = run(options, [(same, None), (same, options.before)])
        slots += [slot | {"build": "after", "run": 2} for slot in after]
        slots += [slot | {"build": "before", "run": 2} for slot in before]
    write("resize_fast.csv", slots)
    summarise(slots)


def run(
    options: argparse.Namespace, jobs: list[tuple[list[str], pathlib.Path | None]]
) -> list[list[dict[str, Any]]]:
    """Time systems in turns, each list of them in a process of its own, all at the same time."""
    started = []
    for systems, module in jobs:
        env = dict(os.environ) if module is None else os.environ | {"PYTHONPATH": str(module)}
        numbers = [str(options.rounds), str(options.samples)]
        command = [sys.executable, __file__, "rounds", *numbers, *systems]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env))
    found = []
    for process in started:
        output, _ = process.communicate()
        if process.returncode:
            sys.exit("error: a process that measured has failed")
        found.append(json.loads(output.splitlines()[-1]))
    return found


def rounds(systems: list[str], count: int, samples: int) -> None:
    """Time each system once per round, in random order."""
    slots = []
    for number in range(count):
        for system in random.Random(number).sample(systems, len(systems)):
            slots.append({"round": number, "system": system} | one(system, samples))
            print(slots[-1], file=sys.stderr, flush=True)
    print(json.dumps(slots))


def summarise(slots: list[dict[str, Any]]) -> None:
    """Print medians, and medians of the ratios within a round."""
    groups = {(slot["run"], slot["build"], slot["system"]): {} for slot in slots}
    for slot in slots:
        groups[slot["run"], slot["build"], slot["system"]][slot["round"]] = slot
    for (number, build_of, system), found in groups.items():
        text = f"{number} {build_of:6} {system:18} {statistics.median(one['cpu_us'] for one in found.values()):7.0f} µs"
        for other in ("store, full", "store, 224 exact", "ours, 224 exact"):
            base = groups.get((number, build_of, other), {})
            ratios = [found[at]["cpu_us"] / base[at]["cpu_us"] for at in found if at in base]
            text += f"  {statistics.median(ratios):.3f} of {other}" if ratios else ""
        floors = [one["floor_us"] / one["cpu_us"] for one in found.values() if one["floor_us"]]
        text += f"  floor / measured {statistics.median(floors):.2f}" if floors else ""
        print(text)


def build(recording: pathlib.Path) -> None:
    """Write the recordings, our dataset and the store, if they are missing."""
    import data  # noqa: PLC0415 (of bench/peers, as all below)
    from contract import WORK, load_recording, parse_workload  # noqa: PLC0415
    from systems.jpeg_store import write_store  # noqa: PLC0415
    from systems.ours import Made  # noqa: PLC0415

    if not (WORK / "data" / "aloha.json").exists():
        (WORK / "data").mkdir(parents=True, exist_ok=True)
        data.make_aloha(recording)
    out = WORK / "built" / "aloha"
    out.mkdir(parents=True, exist_ok=True)
    loaded = load_recording("aloha")
    if not (out / "jpeg.kino").exists():
        Made("ours", "jpeg 0.25").build(loaded, parse_workload("W2:aloha:b8"), out / "jpeg.kino")
    if not (out / "jpeg_store").exists():
        write_store(loaded, out / "jpeg_store")


def one(system: str, samples: int) -> dict[str, float]:
    """Time one system, after some batches."""
    from contract import WORK, load_recording  # noqa: PLC0415

    built, recording = WORK / "built" / "aloha", load_recording("aloha")
    kind, _, name = system.partition(", ")
    if kind == "store":
        batches, floor = of_store(recording, built / "jpeg_store", name), None
    else:
        batches, floor = of_ours(recording, built / "jpeg.kino", name)
    for _ in range(8):
        next(batches)
    start = time.process_time()
    for _ in range(samples // BATCH):
        batch = next(batches)
    spent = (time.process_time() - start) * 1e6 / (samples // BATCH * BATCH)
    assert len(batch["actions"]) == BATCH
    batches.close()
    return {"cpu_us": round(spent, 1), "floor_us": 0.0 if floor is None else round(floor(), 1)}


def of_ours(recording: Any, path: pathlib.Path, name: str) -> tuple[Iterator[Any], Any]:  # noqa: ANN401
    """Load a permutation of all samples, again and again; and the floor."""
    import kinograph.torch  # noqa: PLC0415

    dataset = kinograph.open(path)
    request: dict[str, Any] = {camera: range(1) for camera in recording.cameras}
    request |= {"qpos": kinograph.Window(steps=[0], single=True), "actions": range(50)}
    loader = kinograph.torch.Loader(
        dataset,
        windows=request,
        batch_size=BATCH,
        shuffle="global",
        last_batch="wrap",
        memory=recording.decoded_bytes // 20,
        threads=1,
        images=OURS[name],
    )

    def forever() -> Iterator[Any]:
        with loader:
            while True:
                yield from loader

    check_ours(dataset, loader, recording, name)
    return forever(), lambda: floor_us(dataset, recording, name)


def check_ours(dataset: Any, loader: Any, recording: Any, name: str) -> None:  # noqa: ANN401
    """Compare a batch with the plain reader, resized by Pillow."""
    places = loader.order.batch(0)["sample"]
    windows = loader.order.sources[0].samples
    batch = next(iter(loader))
    for row, place in enumerate(windows.locate(one) for one in places):
        for camera in recording.cameras:
            plain = dataset[place.episode][camera][place.anchor]
            found = batch[camera][row, 0].numpy()
            if "chw" in name:
                found = np.moveaxis(found, 0, -1)
            if "224" not in name:
                assert np.array_equal(found, plain), (camera, place)
                continue
            expected = Image.fromarray(plain).resize(SIDE, Image.Resampling.BILINEAR)
            apart = np.abs(found.astype(int) - np.asarray(expected))
            assert apart.max() <= 1 or ("fast" in name and apart.mean() < 4), (camera, place)


def floor_us(dataset: Any, recording: Any, name: str) -> float:  # noqa: ANN401
    """Decode the frames of a sample one after the other with libjpeg-turbo alone, resized as the loader does."""
    import simplejpeg  # noqa: PLC0415

    files = [
        dataset[episode][camera].bitstream(step)
        for episode in range(2)
        for camera in recording.cameras
        for step in range(0, 100, 5)
    ]
    smaller = {"min_height": SIDE[0], "min_width": SIDE[1]} if "fast" in name else {}
    out = np.empty((*recording.size, 3), np.uint8) if not smaller else None
    best = []
    for _ in range(5):
        start = time.process_time()
        for file in files:
            simplejpeg.decode_jpeg(file, colorspace="RGB", buffer=out, **smaller)
        best.append((time.process_time() - start) * 1e6 / len(files))
    return min(best) * len(recording.cameras)


def of_store(recording: Any, path: pathlib.Path, name: str) -> Iterator[Any]:  # noqa: ANN401
    """Make batches in one thread; those that are resized one image at a time."""
    from batching import in_threads  # noqa: PLC0415
    from contract import parse_workload  # noqa: PLC0415
    from systems.jpeg_store import Decoder  # noqa: PLC0415

    class Resizing(Decoder):
        def __getitems__(self, indices: list[int]) -> Any:  # noqa: ANN401
            import simplejpeg  # noqa: PLC0415
            import torch  # noqa: PLC0415

            rows, batch = self.rows(indices)
            smaller = {"min_height": SIDE[0], "min_width": SIDE[1]} if "fast" in name else {}
            for camera in self.recording.cameras:
                images = torch.empty((len(rows), 1, *SIDE, 3), dtype=torch.uint8)
                for number, row in enumerate(rows):
                    whole = simplejpeg.decode_jpeg(
                        bytes(self.encoded(camera, row[0])), colorspace="RGB", **smaller
                    )
                    small = Image.fromarray(whole).resize(SIDE, Image.Resampling.BILINEAR)
                    images.numpy()[number, 0] = np.asarray(small)
                batch[camera] = images
            return batch

    workload = parse_workload("W2:aloha:b8:f1:c50:u8")
    decoder = (Decoder if name == "full" else Resizing)(recording, workload, path)
    decoder.open()
    check_store(decoder, recording, name)
    return in_threads(decoder.__getitems__, recording, workload, 1)


def check_store(decoder: Any, recording: Any, name: str) -> None:  # noqa: ANN401
    """Compare some samples with Pillow's decoder."""
    batch = decoder.__getitems__([3, 150])
    for camera in recording.cameras:
        for number, row in enumerate((3, 150)):
            image = Image.open(io.BytesIO(bytes(decoder.encoded(camera, row)))).convert("RGB")
            if name != "full":
                image = image.resize(SIDE, Image.Resampling.BILINEAR)
            apart = np.abs(batch[camera][number, 0].numpy().astype(int) - np.asarray(image))
            assert apart.max() <= 1 or ("fast" in name and apart.mean() < 4), (camera, row)


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Write the table."""
    with (RESULTS / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
