"""Vectors: `vector` and `pco` compared with zfp and SZ3, at the same bounds, every decoded value checked.

    python -m venv venv && venv/bin/pip install numpy h5py zfpy pysz
    cargo build --release -p kino_codec --example measure_vectors
    venv/bin/python bench/codecs/vectors.py DATA target/release/examples/measure_vectors [lossless] [bounded] [paged]

DATA is a folder with `real/npz/*.npz` and `generated/mixed/*.hdf5`. Ours are pages of 256 frames; zfp and SZ3
see each run as a whole, once per column and once as one array: the smaller result counts.
`paged` splits their input into the same pages of 256 frames, so that a window costs the same number of frames.
Times are single-threaded, the best of several passes, decoding in MB/s of output.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pysz
import zfpy

PAGE_FRAMES = 256
PASSES = 15
BOUNDS = ["1e-6", "1e-5", "1e-4", "1e-3"]

Runs = list[np.ndarray]
# An array and its bound to bytes; bytes and the original (for its shape) to an array.
Compress = Callable[[np.ndarray, float], bytes]
Decompress = Callable[[bytes, np.ndarray], np.ndarray]


def streams(data: Path) -> Iterator[tuple[str, Runs]]:
    """Name, runs (one array per episode) of every low-dimensional stream."""
    g1 = np.load(data / "real/npz/g1_state_action.npz")
    ends = np.cumsum(g1["lengths"])[:-1]
    for name in ("state", "action"):
        yield f"G1 {name}", [g1[name]]
        yield f"G1 {name}, per episode", np.split(g1[name], ends)
    for path in sorted((data / "real/npz").glob("px4*.npz")):
        px4 = np.load(path)
        for name in px4.files:
            yield (
                f"{path.stem.replace('px4_sample', 'PX4').replace('_log_', ' ')} {name}",
                [px4[name]],
            )
    ur3 = np.load(data / "real/npz/ur3_cobotops.npz")["data"]
    yield "UR3", [ur3]
    for digits in (2, 3, 4):
        yield f"UR3, {digits} printed digits, f64", [np.round(ur3, digits)]
        yield f"UR3, {digits} printed digits, f32", [np.round(ur3, digits).astype(np.float32)]
    sessions = [h5py.File(path) for path in sorted((data / "generated/mixed").glob("*.hdf5"))]
    for name in ("joint/pos", "joint/vel", "joint/torque", "ft", "eef_pose", "gripper", "action"):
        yield f"mixed {name}", [session[f"{name}/data"][:] for session in sessions]
    for name in ("joint/pos", "ft", "gripper", "action", "cam_front/rgb"):
        yield f"mixed {name} times", [session[f"{name}/t"][:] for session in sessions]
    pos = np.concatenate([session["joint/pos/data"][:] for session in sessions])
    for digits in (4, 6):
        yield f"mixed joint/pos, {digits} printed digits, f64", [np.round(pos, digits)]
        yield (
            f"mixed joint/pos, {digits} printed digits, f32",
            [np.round(pos, digits).astype(np.float32)],
        )


def ours(measure: str, runs: Runs, specs: list[str]) -> list[tuple[float, ...]]:
    """Ratio, MB/s, window µs per dimension (inside a page, in two pages) of each codec."""
    with tempfile.NamedTemporaryFile() as file:
        np.concatenate(runs).tofile(file)
        file.flush()
        first = runs[0]
        shape = ",".join(str(side) for side in first.shape[1:])
        lengths = ",".join(str(len(run)) for run in runs)
        command = [
            measure,
            f"{first.dtype.name}[{shape}]",
            file.name,
            f"{PAGE_FRAMES}@{lengths}",
            *specs,
        ]
        lines = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout.splitlines()[1:]
    fields = [line.split() for line in lines]
    return [(float(f[1]), float(f[4]), float(f[5]), float(f[6])) for f in fields]


def best_time(call: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls."""
    times = []
    for _ in range(PASSES):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def theirs(
    runs: Runs, eps: float, compress: Compress, decompress: Decompress
) -> tuple[float, float]:
    """Ratio and MB/s of a library: column by column, or the array at once."""
    best = (0.0, 0.0)
    for parts in (
        lambda run: [np.ascontiguousarray(c) for c in run.T],
        lambda run: [np.ascontiguousarray(run)],
    ):
        size, seconds = 0, 0.0
        for run in runs:
            for part in parts(run.reshape(len(run), -1)):
                packed = compress(part, eps)
                back = decompress(packed, part)
                error = np.abs(
                    back.astype(np.float64).reshape(part.shape) - part.astype(np.float64)
                ).max()
                if not error <= eps:
                    print(f"    broken bound: {error} > {eps}", file=sys.stderr)
                size += len(packed)
                seconds += best_time(partial(decompress, packed, part))
        total = sum(run.nbytes for run in runs)
        found = (total / size, total / seconds / 1e6)
        best = max(best, found)
    return best


def zfp_compress(part: np.ndarray, eps: float) -> bytes:
    """Compress with zfp, fixed accuracy."""
    return zfpy.compress_numpy(part, tolerance=eps)


def zfp_decompress(packed: bytes, _part: np.ndarray) -> np.ndarray:
    """Decompress with zfp, which stores the shape."""
    return zfpy.decompress_numpy(packed)


def sz_compress(part: np.ndarray, eps: float) -> bytes:
    """Compress with SZ3, absolute error."""
    config = pysz.szConfig()
    config.errorBoundMode = pysz.szErrorBoundMode.ABS
    config.absErrorBound = eps
    return pysz.sz.compress(part, config)[0]


def sz_decompress(packed: bytes, part: np.ndarray) -> np.ndarray:
    """Decompress with SZ3."""
    return pysz.sz.decompress(packed, part.dtype, part.shape)[0]


def lossless(data: Path, measure: str) -> None:
    """Print the lossless table."""
    print(
        "| stream | frames × numbers | pco | vector | decode MB/s | window µs | in two pages µs |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, runs in streams(data):
        pco, vector = ours(measure, runs, ["pco", "vector"])
        frames = sum(len(run) for run in runs)
        numbers = int(np.prod(runs[0].shape[1:], dtype=int))
        print(
            f"| {name} | {frames} × {numbers} {runs[0].dtype.name} | {pco[0]:.2f} | **{vector[0]:.2f}** |"
            f" {vector[1]:.0f} | {vector[2]:.2f} | {vector[3]:.2f} |",
            flush=True,
        )


def bounded(data: Path, measure: str) -> None:
    """Print the table at equal bounds."""
    print("| stream | abs | vector | zfp | SZ3 | vector MB/s | zfp MB/s | SZ3 MB/s |")
    print("|---|---|---|---|---|---|---|---|")
    for name, runs in streams(data):
        wanted = ("mixed" in name or name in ("G1 state", "G1 action")) and runs[
            0
        ].dtype.kind == "f"
        if not wanted or "printed" in name:
            continue
        found = ours(measure, runs, [f"vector:abs={eps}" for eps in BOUNDS])
        for eps, vector in zip(BOUNDS, found, strict=True):
            zfp = theirs(runs, float(eps), zfp_compress, zfp_decompress)
            sz = theirs(runs, float(eps), sz_compress, sz_decompress)
            print(
                f"| {name} | {eps} | **{vector[0]:.2f}** | {zfp[0]:.2f} | {sz[0]:.2f} |"
                f" {vector[1]:.0f} | {zfp[1]:.0f} | {sz[1]:.0f} |",
                flush=True,
            )


def paged(data: Path, measure: str) -> None:
    """Print the table at equal bounds and equal pages."""
    print("| stream | abs | vector | zfp | SZ3 | vector MB/s | zfp MB/s | SZ3 MB/s |")
    print("|---|---|---|---|---|---|---|---|")
    for name, runs in streams(data):
        if name not in ("G1 state", "G1 action", "mixed joint/pos"):
            continue
        pages = [
            run[at : at + PAGE_FRAMES] for run in runs for at in range(0, len(run), PAGE_FRAMES)
        ]
        for eps in ("1e-5", "1e-3"):
            vector = ours(measure, runs, [f"vector:abs={eps}"])[0]
            zfp = theirs(pages, float(eps), zfp_compress, zfp_decompress)
            sz = theirs(pages, float(eps), sz_compress, sz_decompress)
            print(
                f"| {name} | {eps} | **{vector[0]:.2f}** | {zfp[0]:.2f} | {sz[0]:.2f} |"
                f" {vector[1]:.0f} | {zfp[1]:.0f} | {sz[1]:.0f} |",
                flush=True,
            )


def main() -> None:
    """Print the requested tables."""
    data, measure = Path(sys.argv[1]), sys.argv[2]
    parts = sys.argv[3:] or ["lossless", "bounded", "paged"]
    for part in parts:
        {"lossless": lossless, "bounded": bounded, "paged": paged}[part](data, measure)


if __name__ == "__main__":
    main()
