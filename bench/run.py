"""Measure packing and opening on this machine: `make bench`.

Prints Markdown tables and writes target/bench/*.csv. Everything that is timed is also checked: every packed dataset is
compared with its source, bit for bit where the plan is lossless.

Recordings come from KINOGRAPH_TEST_DATA (default ../shared/data next to the checkout); without them only the sample
that ships with the repository is measured.
"""

import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import h5py
import numpy as np

import kinograph

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("KINOGRAPH_TEST_DATA", ROOT.parent / "shared" / "data"))
OUT = ROOT / "target" / "bench"
ROUNDS = 5
MANY = 100_000


def contiguous(source: pathlib.Path, target: pathlib.Path) -> None:
    """Rewrite an HDF5 file without filters, as robomimic's own recorder writes it."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:
        new.attrs.update(old.attrs)

        def copy(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Dataset):
                new.create_dataset(name, data=item[()])
            else:
                new.require_group(name)
            new[name].attrs.update(item.attrs)

        old.visititems(copy)


def recordings(work: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Name and path of every available recording; gzip files also without their filter."""
    found = [("Lift, 3 demos (ships here)", ROOT / "tests/data/lift_3demos.hdf5")]
    ten = DATA / "generated/lift/lift_10demos_gzip.hdf5"
    if ten.exists():
        plain = work / "lift_10demos.hdf5"
        contiguous(ten, plain)
        found += [("Lift, 10 demos, gzip", ten), ("Lift, 10 demos, contiguous", plain)]
    aloha = DATA / "generated/aloha/episode_100steps_480x640.hdf5"
    if aloha.exists():
        plain = work / "aloha_contiguous.hdf5"
        contiguous(aloha, plain)
        found += [("ALOHA 480×640, gzip", aloha), ("ALOHA 480×640, contiguous", plain)]
    if len(found) == 1:
        print(f"note: no recordings under {DATA}; only the sample is measured", file=sys.stderr)
    return found


def datasets(group: h5py.Group) -> Iterator[h5py.Dataset]:
    """Every dataset below a group."""
    for item in group.values():
        if isinstance(item, h5py.Dataset):
            yield item
        else:
            yield from datasets(item)


def read_with_h5py(path: pathlib.Path) -> tuple[float, int]:
    """Seconds and bytes of plain h5py reading every dataset, best of several rounds."""
    best, total = float("inf"), 0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        total = 0
        with h5py.File(path) as file:
            total = sum(item[()].nbytes for item in datasets(file))
        best = min(best, time.perf_counter() - start)
    return best, total


def pack(source: pathlib.Path, target: pathlib.Path, *options: str) -> dict:
    """Pack with the CLI; returns its JSON plus seconds (best of several rounds) and peak memory."""
    best: dict = {}
    for _ in range(ROUNDS):
        shutil.rmtree(target, ignore_errors=True)
        command = ["kinograph", "pack", str(source), str(target), "--json", *options]
        start = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        report = json.loads(done.stdout)
        if not best or seconds < best["wall_s"]:
            best = {**report, "wall_s": seconds}
    best["disk"] = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    return best


def peak_memory(source: pathlib.Path, target: pathlib.Path) -> int:
    """Peak resident memory of one pack in bytes, measured in a separate child process."""
    shutil.rmtree(target, ignore_errors=True)
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    command = [sys.executable, "-c", script, "kinograph", "pack", str(source), str(target)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def check(source: pathlib.Path, packed: pathlib.Path) -> int:
    """Compare a lossless dataset with its source; returns the number of streams compared."""
    count = 0
    with h5py.File(source) as file:
        for episode in kinograph.open(packed):
            group = file["data"][episode.id] if "data" in file else file
            for name in episode.streams:
                expected = group[name][()]
                found = episode[name][:]
                if (
                    found.dtype != expected.dtype
                    or found.tobytes() != np.ascontiguousarray(expected).tobytes()
                ):
                    sys.exit(f"error: {packed}: `{name}` of {episode.id} differs from the source")
                count += 1
    return count


def table(title: str, rows: list[dict]) -> None:
    """Print rows as Markdown and write them as CSV."""
    print(f"\n### {title}\n")
    heads = list(rows[0])
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(row[head]) for head in heads) + " |")
    OUT.mkdir(parents=True, exist_ok=True)
    name = title.split(":", maxsplit=1)[0].lower().replace(" ", "_")
    with (OUT / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, heads)
        writer.writeheader()
        writer.writerows(rows)


def bench_pack(work: pathlib.Path) -> None:
    """Sizes, speeds and memory of packing, compared with h5py reading the same file."""
    rows = []
    # Named: with `--quality 95`, a camera that is smaller without loss would be lossless.
    jpeg = work / "jpeg.toml"
    jpeg.write_text('[[stream]]\nkind = "image"\ncodec = "jpeg:q=95,sub=444"\n')
    for name, path in recordings(work):
        h5py_s, raw = read_with_h5py(path)
        lossless = pack(path, work / "lossless.kino")
        streams = check(path, work / "lossless.kino")
        lossy = pack(path, work / "q95.kino", "--plan", str(jpeg))
        psnr = [stream["psnr_db"] for stream in lossy["streams"] if stream["psnr_db"]]
        memory = peak_memory(path, work / "memory.kino")
        rows.append(
            {
                "recording": name,
                "values MB": f"{raw / 1e6:.1f}",
                "file MB": f"{path.stat().st_size / 1e6:.1f}",
                "lossless ÷ values": f"{lossless['disk'] / raw:.3f}",
                "JPEG 95 ÷ values": f"{lossy['disk'] / raw:.3f}",
                "PSNR dB": "–" if not psnr else f"{min(psnr):.1f}–{max(psnr):.1f}",
                "pack MB/s": f"{raw / 1e6 / lossless['wall_s']:.0f}",
                "JPEG pack MB/s": f"{raw / 1e6 / lossy['wall_s']:.0f}",
                "h5py read MB/s": f"{raw / 1e6 / h5py_s:.0f}",
                "peak MB": f"{memory / 1e6:.0f}",
                "streams bit-equal": streams,
            }
        )
    table("Packing: values are the arrays in memory", rows)


def bench_open(work: pathlib.Path) -> None:
    """Open a dataset of many episodes."""
    path = work / "many.kino"
    step = np.arange(5, dtype=np.float32)
    start = time.perf_counter()
    with kinograph.Writer(path) as writer:
        for idx in range(MANY):
            writer.add_episode(
                {"action": step + idx}, rate_hz=20.0, id=f"episode_{idx:06d}", task="synthetic"
            )
    written = time.perf_counter() - start
    script = (
        "import sys, time, kinograph\n"
        "start = time.perf_counter(); ds = kinograph.open(sys.argv[1]); opened = time.perf_counter() - start\n"
        "start = time.perf_counter(); frame = ds[len(ds) - 1]['action'][2]; first = time.perf_counter() - start\n"
        "assert float(frame) == float(len(ds) - 1 + 2)\n"
        "print(opened, first, len(ds))"
    )
    runs = []
    for _ in range(ROUNDS):
        done = subprocess.run(
            [sys.executable, "-c", script, path], check=True, capture_output=True, text=True
        )
        runs.append([float(word) for word in done.stdout.split()])
    opened, first, count = min(runs)
    info = json.loads(
        subprocess.run(
            ["kinograph", "info", path, "--json"], check=True, capture_output=True
        ).stdout
    )
    table_bytes = sum(file.stat().st_size for file in (path / "episodes").iterdir())
    table(
        "Opening: one process each",
        [
            {
                "episodes": int(count),
                "open ms": f"{opened * 1e3:.0f}",
                "first frame ms": f"{first * 1e3:.1f}",
                "table bytes per episode": f"{table_bytes / count:.0f}",
                "memory bytes per episode": f"{info['memory_bytes'] / count:.0f}",
                "write, episodes/s": f"{count / written:.0f}",
            }
        ],
    )


def main() -> None:
    """Run everything in a temporary folder."""
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, kinograph {kinograph.__version__}"
    )
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        bench_pack(work)
        bench_open(work)


if __name__ == "__main__":
    main()
