"""Remote storage: time to the first batch, throughput against latency and bandwidth, and reads under faults.

    python bench/remote.py latency   kinograph.numpy.Loader from an S3 server with emulated latency and bandwidth (s3_server.py)
    python bench/remote.py faults    random ranges by our client and by the stock client of object_store
    python bench/remote.py writers   rival writers on an S3 server (s3_server.py): one winner each, nothing lost

The server runs in a process of its own, on this machine: the figures depend on the emulated link and on its cores.
"""

import argparse
import collections
import csv
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import kinograph

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "python")]
import s3_server  # noqa: E402 (beside this file)
from remote_servers import Faults, Web, serving  # noqa: E402 (the tests' servers)

RESULTS = HERE / "results"


class Link:
    """A link that all answers share."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, count: int) -> None:
        """Wait until so many bytes have passed."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + count / self.bytes_per_s
            until = self._free_at
        time.sleep(max(0.0, until - time.monotonic()))


class Slow(Web):
    """A web server behind a link: each piece of an answer waits for its turn."""

    link = Link(1e9)

    def reply(
        self, status: int, headers: dict[str, str], body: bytes, *, with_body: bool = True
    ) -> None:
        """Answer, piece by piece."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for start in range(0, len(body) if with_body else 0, 64 << 10):
            piece = body[start : start + (64 << 10)]
            self.link.wait(len(piece))
            self.wfile.write(piece)


def serve(folder: Path, settings: dict[str, Any], pipe: Connection) -> None:
    """Run a server until the other process says so."""
    settings = dict(settings)
    link = Link(settings.pop("bytes_per_s", 1e9))
    faults = Faults(**settings.pop("faults", {}))
    with serving(Slow, folder=folder, link=link, faults=faults, **settings) as server:
        pipe.send(server.url)
        pipe.recv()
        pipe.send(server.RequestHandlerClass.counts)


class Served:
    """A server in another process."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(folder, settings, other)
        )
        self.process.start()
        self.url = self.pipe.recv()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *args: object) -> None:
        self.pipe.send(None)
        self.counts = self.pipe.recv()
        self.process.join()


def make(path: Path, episodes: int = 96, frames: int = 200) -> None:
    """Noisy images, which hardly compress, and vectors: more than the fastest link transfers while it is measured."""
    random = np.random.default_rng(1)
    with kinograph.Writer(path, shard_size="32MB") as writer:
        for number in range(episodes):
            smooth = np.linspace(0, 180, 96, dtype=np.uint8)[None, :, None, None]
            noise = random.integers(0, 64, (frames, 96, 96, 3), dtype=np.uint8)
            streams = {"camera": smooth + noise, "actions": random.normal(size=(frames, 7))}
            writer.add_episode(streams, rate_hz=20.0, id=f"e{number}")


def load(place: str) -> dict[str, Any]:
    """Read one epoch as fast as it comes: the first batch's time, samples/s of the whole epoch, and what storage says."""
    began = time.monotonic()
    dataset = kinograph.open(place, cache=False)
    loader = kinograph.numpy.Loader(
        dataset, windows={"camera": [0], "actions": range(8)}, batch_size=64, seed=1
    )
    first, count = 0.0, 0
    for batch in loader:
        first = first or time.monotonic() - began
        count += len(batch["actions"])
    elapsed = time.monotonic() - began
    report = loader.report()
    storage = dataset.storage or {}
    loader.close()
    read = storage.get("bytes_read", 0)
    return {
        "first_batch_s": round(first, 3),
        "epoch_s": round(elapsed, 2),
        "samples_per_s": round(count / elapsed, 1),
        "mb_per_s": round(read / elapsed / 1e6, 2),
        "bytes_per_sample": round(sum(one.bytes for one in dataset.streams.values()) / count),
        "fetched_per_used": round(read / storage["used_bytes"], 3) if storage else "",
        "gets": storage.get("gets", ""),
        "hedges": storage.get("hedges", ""),
        "longest_wait_s": round(report.waits["longest_s"], 2),
        "reads_at_once": " ".join(str(width) for _, width in report.readers_changes),
        "cpu_s": round(sum(os.times()[:2]), 1),
    }


def load_alone(place: str, variables: dict[str, str]) -> dict[str, Any]:
    """Do so in a process of its own."""
    command = [sys.executable, __file__, "load", "--place", place]
    done = subprocess.run(
        command, env=os.environ | variables, check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def latency(options: argparse.Namespace) -> None:
    """Measure latencies and bandwidths; first without a link: then decoding, or the server, binds."""
    rows: list[dict[str, Any]] = []

    def add(storage: str, milliseconds: float | str, link: float | str, found: dict) -> None:
        row = {"storage": storage, "latency_ms": milliseconds, "link_mb_per_s": link, **found}
        limit = rows[0]["samples_per_s"] if rows else found["samples_per_s"]
        most = limit
        if isinstance(link, int):
            most = min(limit, link * 1e6 / found["bytes_per_sample"])
        row["binds"] = "decoding" if most == limit else "link"
        row["of_limit"] = round(found["samples_per_s"] / most, 3)
        rows.append(row)
        print(row, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "camera.kino"
        make(path)
        add("folder", "", "", load_alone(str(path), {}))
        links = [(0, 1_000_000)] + [(ms, link) for link in (20, 60) for ms in (0, 20, 50, 100)]
        for milliseconds, link in links:
            with s3_server.serving(path.parent, milliseconds / 1000, link * 1e6) as url:
                found = load_alone("s3://lab/camera.kino", s3_server.environment(url))
            add("s3", milliseconds, link, found)
    save(options.csv or "remote_latency.csv", rows)


def faults(options: argparse.Namespace) -> None:
    """Compare our client and the stock one, with and without faults."""
    rows = []
    program = options.program
    with tempfile.TemporaryDirectory() as folder:
        blob = Path(folder) / "blob"
        blob.write_bytes(np.random.default_rng(2).bytes(64 << 20))
        mixtures = {
            "none": {},
            "5 % 503, 1 % stalls of 10 s, 1 % resets, 1 % cut, 1 % wrong ETag": {
                "busy": 0.05,
                "stall": 0.01,
                "reset": 0.01,
                "cut": 0.01,
                "etag": 0.01,
                "stall_s": 10.0,
            },
        }
        for client in ("ours", "stock"):
            for name, mixture in mixtures.items():
                with Served(
                    Path(folder), faults=mixture, latency_s=0.02, bytes_per_s=2e8
                ) as server:
                    arguments = [program, client, server.url, "blob", str(options.reads), "16"]
                    environment = os.environ | {"CHECK": str(blob)}
                    done = subprocess.run(
                        arguments, capture_output=True, text=True, env=environment, check=True
                    )
                result = json.loads(done.stdout)
                report = result.pop("report")
                counted = {key: report[key] for key in ("hedges", "hedges_won", "retried")}
                rows.append(
                    {
                        "faults": name,
                        **result,
                        **(counted if client == "ours" else dict.fromkeys(counted, "")),
                    }
                )
                print(rows[-1], flush=True)
    save("remote_faults.csv", rows)


def write_rounds(url: str, first: int, rounds: int, queue: multiprocessing.Queue) -> None:
    """Append one episode after the other, and tell of each that was committed."""
    for number in range(first, first + rounds):
        with kinograph.Writer(url, mode="append") as writer:
            writer.add_episode({"x": np.full((4, 2), number)}, rate_hz=10.0, id=f"e{number}")
        queue.put(number)


def writers(options: argparse.Namespace) -> None:
    """Rival processes append; every episode whose commit returned must be there, one version each."""
    with s3_server.serving() as endpoint:
        os.environ |= s3_server.environment(endpoint)
        append_all(options, endpoint)


def counts(endpoint: str) -> dict[str, int]:
    """Tell how many requests there were since the last time, by method, and how many bytes."""
    with urllib.request.urlopen(f"{endpoint}/-/counts") as answer:
        found: dict[str, int] = json.load(answer)
    return found


def append_all(options: argparse.Namespace, endpoint: str) -> None:
    """Let the writers run, and compare what was acknowledged with what is there."""
    url = "s3://lab/rivals.kino"
    with kinograph.Writer(url) as writer:
        writer.add_episode({"x": np.zeros((4, 2), np.int64)}, rate_hz=10.0, id="e0")
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    counts(endpoint)
    began = time.monotonic()
    processes = []
    for one in range(options.writers):
        # Each has a work folder of its own, as on a machine of its own: they take no turns.
        os.environ["KINOGRAPH_WORK"] = tempfile.mkdtemp()
        arguments = (url, 1 + one * options.rounds, options.rounds, queue)
        processes.append(context.Process(target=write_rounds, args=arguments))
        processes[-1].start()
    acknowledged = collections.Counter()
    while any(process.is_alive() for process in processes) or not queue.empty():
        try:
            acknowledged[queue.get(timeout=0.2)] += 1
        except Exception:
            continue
    wall, requests = time.monotonic() - began, counts(endpoint)
    dataset = kinograph.open(url)
    found = collections.Counter(episode.id for episode in dataset)
    lost = [number for number in acknowledged if found[f"e{number}"] != 1]
    row = {
        "writers": options.writers,
        "rounds": options.rounds,
        "acknowledged": sum(acknowledged.values()),
        "versions": len(dataset.versions),
        "episodes": len(dataset),
        "lost": len(lost),
        "twice": sum(count > 1 for count in found.values()),
        "failed": sum(p.exitcode != 0 for p in processes),
        "wall_s": round(wall, 1),
        "gets_per_commit": round(requests["GET"] / sum(acknowledged.values()), 1),
        "heads_per_commit": round(requests["HEAD"] / sum(acknowledged.values()), 1),
        "puts_per_commit": round(requests["PUT"] / sum(acknowledged.values()), 1),
        "mb_sent_per_commit": round(requests["bytes"] / 1e6 / sum(acknowledged.values()), 2),
    }
    print(row)
    assert not lost
    assert max(found.values()) == 1
    assert len(dataset.versions) == 1 + row["acknowledged"] == len(dataset)
    save("remote_writers.csv", [row])


def save(name: str, rows: list[dict[str, Any]]) -> None:
    """Write a table."""
    with (RESULTS / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=["latency", "faults", "writers", "load"])
    parser.add_argument("--csv", help="the table's name below bench/results")
    parser.add_argument("--place", help="the dataset that `load` reads")
    parser.add_argument("--reads", type=int, default=2000)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=200)
    program = HERE.parent / "target" / "debug" / "examples" / "remote_reads"
    parser.add_argument(
        "--program", type=Path, default=program, help="cargo build --example remote_reads"
    )
    options = parser.parse_args()
    if options.what == "load":
        print(json.dumps(load(options.place)))
        return
    {"latency": latency, "faults": faults, "writers": writers}[options.what](options)


if __name__ == "__main__":
    main()
