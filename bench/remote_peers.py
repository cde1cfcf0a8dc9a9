"""The first epoch from an object store behind a slow link: Kinograph, MosaicML Streaming, LitData and WebDataset.

    python bench/peers/setup.py
    target/peers/venv/bin/python bench/remote_peers.py

One recording, the same JPEG files for all, one server (`s3_server.py`, in a process of its own on this machine), a fresh process
and an empty disk for each run. The clock starts after the imports. Every image is compared with Pillow's decoding of the source
file, and every sample must come exactly once.

The peers read whole shards of their default size (or of 8 MB, in rows that say so) and decode with Pillow in two workers of a
torch DataLoader; Kinograph reads ranges, decodes in its own threads, and has no disk cache.
"""

import argparse
import csv
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import s3_server
from PIL import Image

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "target" / "remote_peers"
BATCH, EPISODES, FRAMES, SIDE = 64, 16, 250, 224
LINKS = ((50, 20),)
SYSTEMS = ["Kinograph", "MosaicML Streaming", "LitData", "WebDataset"]
PACKAGES = dict(
    zip(SYSTEMS, ["kinograph", "mosaicml-streaming", "litdata", "webdataset"], strict=True)
)
Batches = Iterator[tuple[np.ndarray, np.ndarray]]


def recording() -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Give the number, the JPEG file and the action of each frame: a gradient that moves, and noise."""
    random = np.random.default_rng(1)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for number in range(EPISODES * FRAMES):
        wave = np.sin((rows + 3 * number) / 17.0) + np.cos((columns + 2 * number) / 23.0)
        image = np.stack([128 + 40 * wave, 90 + 30 * wave, 160 - 35 * wave], axis=-1)
        image += random.normal(scale=9.0, size=image.shape)
        file = io.BytesIO()
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        action = np.array([number, *random.normal(size=6)], np.float32)
        yield number, file.getvalue(), action


def item(row: tuple[int, bytes, np.ndarray]) -> dict[str, Any]:
    """Give a row to LitData."""
    return {"image": row[1], "action": row[2].tobytes()}


def make() -> dict[str, Any]:
    """Write the recording for each loader, and what is expected."""
    import h5py  # noqa: PLC0415 (as all packages that only one step needs)
    import litdata  # noqa: PLC0415
    import streaming  # noqa: PLC0415
    import webdataset  # noqa: PLC0415

    import kinograph  # noqa: PLC0415

    shutil.rmtree(DATA, ignore_errors=True)
    store, source = DATA / "store", DATA / "source"
    store.mkdir(parents=True)
    source.mkdir()
    rows = list(recording())
    for episode in range(EPISODES):
        of_episode = rows[episode * FRAMES : (episode + 1) * FRAMES]
        width = max(len(file) for _, file, _ in of_episode)
        padded = [np.frombuffer(file.ljust(width, b"\0"), np.uint8) for _, file, _ in of_episode]
        with h5py.File(source / f"episode_{episode}.hdf5", "w") as file:
            file.attrs["compress"] = True
            file["observations/images/cam"] = np.stack(padded)
            file["compress_len"] = np.array([[len(one) for _, one, _ in of_episode]], np.int64)
            file["action"] = np.stack([action for _, _, action in of_episode])
    kinograph.pack(source, store / "camera.kino", rate_hz=20.0, on_defect="keep")
    for name, size in (("default", 1 << 26), ("small", 8 << 20)):
        columns = {"image": "bytes", "action": "bytes"}
        with streaming.MDSWriter(
            out=str(store / f"mds-{name}"), columns=columns, size_limit=size
        ) as out:
            for row in rows:
                out.write(item(row))
        litdata.optimize(
            item,
            rows,
            str(store / f"litdata-{name}"),
            num_workers=1,
            chunk_bytes=size,
            keep_data_ordered=True,
        )
        folder = store / f"wds-{name}"
        folder.mkdir()
        pattern = str(folder / "%06d.tar")
        with webdataset.ShardWriter(pattern, maxsize=size, verbose=0) as out:
            for number, file, action in rows:
                out.write({"__key__": f"{number:06d}", "jpg": file, "action.bin": action.tobytes()})
    images = [np.asarray(Image.open(io.BytesIO(file))) for _, file, _ in rows]
    expected = {
        "checksums": [zlib.crc32(image.tobytes()) for image in images],
        "bytes": sum(len(file) + action.nbytes for _, file, action in rows),
    }
    (DATA / "expected.json").write_text(json.dumps(expected))
    return expected


def kinograph_batches(_url: str, _folder: Path, _shards: str) -> Batches:
    """Kinograph, with its default options."""
    import kinograph  # noqa: PLC0415

    dataset = kinograph.open("s3://lab/camera.kino", cache=False)
    windows = {"observations/images/cam": [0], "action": [0]}
    with kinograph.numpy.Loader(dataset, windows=windows, batch_size=BATCH, seed=1) as loader:
        for batch in loader:
            yield batch["observations/images/cam"][:, 0], batch["action"][:, 0]


def decoded(one: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Decode a sample of a peer, in its worker."""
    image = one.get("image", one.get("jpg"))
    action = one.get("action", one.get("action.bin"))
    return np.asarray(Image.open(io.BytesIO(image))), np.frombuffer(action, np.float32)


def stacked(samples: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Make a batch in a worker."""
    images, actions = zip(*map(decoded, samples), strict=True)
    return np.stack(images), np.stack(actions)


def mosaic_batches(_url: str, folder: Path, shards: str) -> Batches:
    """MosaicML Streaming, shuffled."""
    import streaming  # noqa: PLC0415
    import torch  # noqa: PLC0415

    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(
        remote=f"s3://lab/mds-{shards}", local=str(folder), shuffle=True, batch_size=BATCH
    )
    yield from torch.utils.data.DataLoader(dataset, BATCH, num_workers=2, collate_fn=stacked)


def litdata_batches(url: str, folder: Path, shards: str) -> Batches:
    """LitData, shuffled; without obstore installed, which takes https alone, it reads with boto3."""
    import litdata  # noqa: PLC0415

    options = {"endpoint_url": url, "aws_access_key_id": "x", "aws_secret_access_key": "x"}
    dataset = litdata.StreamingDataset(
        f"s3://lab/litdata-{shards}", cache_dir=str(folder), shuffle=True, storage_options=options
    )
    yield from litdata.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=2, collate_fn=stacked
    )


def webdataset_batches(url: str, _folder: Path, shards: str) -> Batches:
    """WebDataset by curl, with shuffled shards and a buffer of 1000 samples."""
    import torch  # noqa: PLC0415
    import webdataset  # noqa: PLC0415

    tars = sorted(path.name for path in (DATA / "store" / f"wds-{shards}").glob("*.tar"))
    urls = [f"pipe:curl -s {url}/lab/wds-{shards}/{name}" for name in tars]
    dataset = webdataset.WebDataset(
        urls, shardshuffle=len(urls), workersplitter=webdataset.split_by_worker
    )
    workers = min(2, len(urls))
    yield from torch.utils.data.DataLoader(
        dataset.shuffle(1000), BATCH, num_workers=workers, collate_fn=stacked
    )


BATCHES: dict[str, Callable[[str, Path, str], Batches]] = dict(
    zip(
        SYSTEMS,
        [kinograph_batches, mosaic_batches, litdata_batches, webdataset_batches],
        strict=True,
    )
)
IMPORTS = {
    "Kinograph": ["kinograph"],
    "MosaicML Streaming": ["torch", "streaming"],
    "LitData": ["torch", "litdata"],
}


def measure(system: str, shards: str, url: str) -> dict[str, Any]:
    """Read one epoch in this process."""
    for name in IMPORTS.get(system, ["torch", "webdataset"]):
        __import__(name)
    expected = json.loads((DATA / "expected.json").read_text())
    seen, wrong, first = [], 0, None
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        for images, actions in BATCHES[system](url, Path(folder), shards):
            if first is None:
                first, in_first = time.monotonic(), len(images)
            for image, action in zip(np.asarray(images), np.asarray(actions), strict=True):
                number = int(action[0])
                seen.append(number)
                wrong += zlib.crc32(np.ascontiguousarray(image)) != expected["checksums"][number]
        ended = time.monotonic()
    return {
        "first_batch_s": round(first - began, 2),
        "samples_per_s": round((len(seen) - in_first) / max(ended - first, 1e-9)),
        "epoch_s": round(ended - began, 2),
        "samples": len(seen),
        "once_each": sorted(seen) == list(range(EPISODES * FRAMES)),
        "wrong": wrong,
    }


def measure_all(options: argparse.Namespace) -> None:
    """Measure each loader at each link."""
    expected = json.loads((DATA / "expected.json").read_text())
    rows = []
    for milliseconds, link in LINKS:
        with s3_server.serving(DATA / "store", milliseconds / 1000, link * 1e6) as url:
            variables = os.environ | s3_server.environment(url) | {"S3_ENDPOINT_URL": url}
            for system in SYSTEMS:
                for shards in ("default",) if system == "Kinograph" else ("default", "small"):
                    command = [sys.executable, __file__, "--one", system, shards, url]
                    counts(url)
                    try:
                        done = subprocess.run(
                            command,
                            env=variables,
                            capture_output=True,
                            text=True,
                            timeout=120,
                            check=True,
                        )
                    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failed:
                        # Standard error says why, if it ended.
                        print(f"{system}: {failed}: {str(failed.stderr)[-800:]}", file=sys.stderr)
                        continue
                    found = counts(url)
                    row = {
                        "loader": system,
                        "release": importlib.metadata.version(PACKAGES[system]),
                        "shards": shards,
                        "latency_ms": milliseconds,
                        "link_mb_per_s": link,
                        **json.loads(done.stdout.splitlines()[-1]),
                        "gets": found.get("GET", 0),
                        "fetched_per_used": round(found.get("bytes", 0) / expected["bytes"], 3),
                    }
                    rows.append(row)
                    print(row, flush=True)
                    save(options.csv, rows)


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write what is there."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def counts(url: str) -> dict[str, int]:
    """Ask the server what was requested since the last time."""
    with urllib.request.urlopen(f"{url}/-/counts") as answer:
        found: dict[str, int] = json.load(answer)
    return found


def main() -> None:
    """Make the data if they are not there, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--one", nargs=3, metavar=("LOADER", "SHARDS", "URL"))
    parser.add_argument("--csv", type=Path, default=HERE / "results" / "remote_peers.csv")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    if not (DATA / "expected.json").exists():
        make()
    measure_all(options)


if __name__ == "__main__":
    main()
