"""What does a sample of a LeRobot dataset cost, in LeRobot and here? `python bench/video.py SOURCE [--rounds 3]`.

SOURCE is a LeRobot dataset with AV1 videos, such as Unitree's G1 sample. Its episodes are packed several times and
exported again, with the same packets, as a LeRobot v3.0 dataset; a second one has the same frames as H.264 with FFmpeg's
defaults (groups of 250, B-frames). Both are read by LeRobot's own class with torchcodec and a DataLoader, and by
Kinograph from datasets that carry their packets, beside other plans. Before anything is timed, items of both are compared.

    checked: identical packets, equal items      rounds: one slot per system, in a new order, each in a process of its own

CPU is user and system time of all threads and workers, per sample. Needs an environment with lerobot, torchcodec and a
release build of kinograph. Writes bench/results/video.csv.
"""

import argparse
import csv
import json
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import time
from typing import Any

import av
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "bench" / "video"
RESULTS = ROOT / "bench" / "results" / "video.csv"
COPIES = 12
BATCH = 8
CHUNK = 50
WORKERS = 2
#: Part of the decoded dataset that a shuffled group has; two of them fit in the memory.
FRACTION = 0.25
OURS = {
    "kinograph, carried AV1": ("av1", None),
    "kinograph, carried H.264": ("h264", None),
    "kinograph, linked AV1": ("av1", "link"),
    "kinograph, linked AV1 with --trust": ("av1", "trust"),
    "kinograph, AV1 in groups of 30": ("av1", "av1:psnr=40"),
    "kinograph, JPEG 95": ("av1", "jpeg:q=95,sub=420"),
    "kinograph, lossless": ("av1", "camera"),
}
THEIRS = {"LeRobot, AV1": "av1", "LeRobot, H.264": "h264"}


def plan(codec: str | None) -> dict[str, Any] | None:
    """Return a plan that has images with this codec."""
    return None if codec is None else {"stream": [{"kind": "image", "codec": codec}]}


def path_of(system: str) -> pathlib.Path:
    """Return where the files of a system are."""
    if system in THEIRS:
        return OUT / f"lerobot-{THEIRS[system]}"
    return OUT / (system.removeprefix("kinograph, ").replace(" ", "_") + ".kino")


def prepare(source: pathlib.Path) -> dict[str, float]:
    """Make all datasets; return the seconds that packing took."""
    import kinograph  # noqa: PLC0415 (the processes that measure import what they need)

    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    first = OUT / "first.kino"
    kinograph.pack(source, first, on_defect="drop-episode", prefix="0/")
    for copy in range(1, COPIES):
        kinograph.pack(source, first, on_defect="drop-episode", prefix=f"{copy}/", mode="append")
    kinograph.export(first, OUT / "lerobot-av1", to="lerobot-v3", on_defect="keep")
    shutil.copytree(OUT / "lerobot-av1", OUT / "lerobot-h264")
    for file in (OUT / "lerobot-h264").rglob("*.mp4"):
        to_h264(file)
    info = OUT / "lerobot-h264/meta/info.json"
    info.write_text(info.read_text().replace('"av1"', '"h264"'))
    seconds = {}
    for system, (coding, codec) in OURS.items():
        began = time.perf_counter()
        source = OUT / f"lerobot-{coding}"
        if codec in ("link", "trust"):
            kinograph.link(source, path_of(system), trust=codec == "trust")
        else:
            kinograph.pack(source, path_of(system), plan=plan(codec))
        seconds[system] = time.perf_counter() - began
    return seconds


def to_h264(path: pathlib.Path) -> None:
    """Encode a file again with FFmpeg's defaults for H.264."""
    new = path.with_suffix(".new.mp4")
    with av.open(str(path)) as given, av.open(str(new), "w") as made:
        before = given.streams.video[0]
        stream = made.add_stream("libx264", rate=before.average_rate)
        stream.width, stream.height, stream.pix_fmt = before.width, before.height, "yuv420p"
        for number, frame in enumerate(given.decode(before)):
            frame.pts = number
            frame.time_base = 1 / before.average_rate
            frame.pict_type = av.video.frame.PictureType.NONE
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    new.replace(path)


def packets(path: pathlib.Path) -> list[bytes]:
    """Return all packets of a file."""
    with av.open(str(path)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def check(source: pathlib.Path) -> dict[str, Any]:
    """Compare packets with the source, and items with LeRobot's."""
    found: dict[str, Any] = {"packets": 0, "items": 0}
    sources = [packets(path) for path in source.rglob("*.mp4")]
    for path in (OUT / "lerobot-av1").rglob("*.mp4"):
        exported = packets(path)
        if exported not in sources:
            raise SystemExit(f"{path} has other packets than the source")
        found["packets"] += len(exported)
    for theirs, ours in [
        ("LeRobot, AV1", "kinograph, carried AV1"),
        ("LeRobot, H.264", "kinograph, carried H.264"),
    ]:
        found["items"] += compare(theirs, ours)
    return found


def compare(theirs: str, ours: str) -> int:
    """Compare random items of LeRobot's dataset with ours: every value must be equal."""
    import kinograph  # noqa: PLC0415 (see prepare)

    dataset, camera = lerobot(path_of(theirs), frames=2)
    mine = kinograph.open(path_of(ours))
    lengths = [mine[number].frames for number in range(len(mine))]
    ends = np.cumsum(lengths)
    for index in random.Random(5).sample(range(len(dataset)), 24):
        item = dataset[index]
        episode = int(np.searchsorted(ends, index, side="right"))
        frame = index - int(ends[episode] - lengths[episode])
        for place, at in enumerate((max(frame - 1, 0), frame)):
            given = (item[camera][place].numpy() * 255).round().astype(np.uint8)
            if not np.array_equal(given.transpose(1, 2, 0), mine[episode][camera][at]):
                raise SystemExit(f"item {index} of {theirs} differs from ours")
        stop = min(frame + CHUNK, lengths[episode])
        action = mine[episode]["action"][frame:stop]
        if not np.array_equal(item["action"].numpy()[: stop - frame], action):
            raise SystemExit(f"the actions of item {index} differ")
    return 24


def lerobot(path: pathlib.Path, frames: int) -> tuple[Any, str]:
    """Open a dataset with LeRobot's own class; return it and the name of its camera."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: PLC0415 (see prepare)

    info = json.loads((path / "meta/info.json").read_text())
    camera = next(key for key, value in info["features"].items() if value["dtype"] == "video")
    deltas = {"action": [step / info["fps"] for step in range(CHUNK)]}
    if frames > 1:
        deltas[camera] = [step / info["fps"] for step in range(1 - frames, 1)]
    made = LeRobotDataset(
        "bench/video", root=path, delta_timestamps=deltas, video_backend="torchcodec"
    )
    return made, camera


def cpu() -> float:
    """Return the CPU seconds of this process and of children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run_theirs(system: str, frames: int) -> dict[str, float]:
    """Time LeRobot in a DataLoader; its workers end with the iterator, so that their CPU time is counted."""
    import torch  # noqa: PLC0415 (see prepare)

    dataset, _ = lerobot(path_of(system), frames)
    samples = 600
    picked = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(3))[:samples]
    before, began = cpu(), time.perf_counter()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.Subset(dataset, picked.tolist()), batch_size=BATCH, num_workers=WORKERS
    )
    count = sum(len(batch["action"]) for batch in loader)
    return {"samples": count, "cpu_s": cpu() - before, "wall_s": time.perf_counter() - began}


def run_ours(system: str, frames: int) -> dict[str, float]:
    """Time an epoch of the loader after another one, so that as much is decoded ahead before it as in it."""
    import kinograph.torch  # noqa: PLC0415 (see prepare)

    dataset = kinograph.open(path_of(system))
    camera = next(name for name, stream in dataset.streams.items() if stream.kind == "image")
    decoded = dataset.streams[camera].raw_bytes
    samples = dataset.samples({camera: range(1 - frames, 1), "action": range(CHUNK)})
    loader = kinograph.torch.Loader(
        samples,
        batch_size=BATCH,
        shuffle=kinograph.Shuffle(fraction=FRACTION),
        memory=int(decoded * (2.1 * FRACTION + 0.1)),
        threads=WORKERS,
        images=kinograph.Images(layout="chw", dtype="float32"),
    )
    for _ in loader:
        pass
    warm, before, began = loader.report(), cpu(), time.perf_counter()
    count = sum(len(batch["action"]) for batch in loader)
    decoded_frames = loader.report().frames_decoded - warm.frames_decoded
    took = {"samples": count, "cpu_s": cpu() - before, "wall_s": time.perf_counter() - began}
    frames_all = dataset.streams[camera].frames + dataset.streams["action"].frames
    return took | {"decodes": decoded_frames / frames_all}


def slot(system: str, frames: int) -> dict[str, float]:
    """Run a system in a process of its own."""
    command = [sys.executable, __file__, "--slot", system, "--frames", str(frames)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def size(path: pathlib.Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def main() -> None:
    """Prepare, check, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="use the datasets of the last run")
    parser.add_argument("--slot")
    parser.add_argument("--frames", type=int, default=1)
    given = parser.parse_args()
    if given.slot:
        run = run_theirs if given.slot in THEIRS else run_ours
        print(json.dumps(run(given.slot, given.frames)))
        return
    times = OUT / "pack_s.json"
    if not given.keep:
        times.write_text(json.dumps(prepare(given.source)))
    seconds = json.loads(times.read_text())
    print(check(given.source))
    draw = random.Random(1)
    rows = []
    for number in range(given.rounds):
        slots = [(system, frames) for system in (*THEIRS, *OURS) for frames in (1, 2)]
        draw.shuffle(slots)
        for system, frames in slots:
            took = slot(system, frames)
            row = {
                "round": number,
                "system": system,
                "frames": frames,
                "cpu_ms": round(1000 * took["cpu_s"] / took["samples"], 3),
                "samples_per_s": round(took["samples"] / took["wall_s"], 1),
                "decodes_per_frame": round(took.get("decodes", 0.0), 2),
                "bytes": size(path_of(system)),
                "pack_s": round(seconds.get(system, 0.0), 1),
            }
            rows.append(row)
            print(row, flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
