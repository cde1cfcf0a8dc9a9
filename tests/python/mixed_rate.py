"""Episodes whose streams have different rates and clocks, for the reference and for a dataset.

camera/front, camera/wrist   30 Hz     uint8 (H, W, 3)       jitter, lost and late frames
joint/{pos,vel,torque}      500 Hz     float64 (7,)          one clock for all three
ft                         1000 Hz     float32 (6,)
gripper                     100 Hz     float32 (2,)          some timestamps are equal in the generated episodes
eef/pos, eef/quat           100 Hz     float64 (3,), (4,)    one clock for both
action                       20 Hz     float64 (7,)
language                   irregular   text
status                       50 Hz     int16 (2,)            a regular clock
tactile, tactile/sum         40 Hz     float16 (4,), uint16  one regular clock for both

Timestamps are nanoseconds since 1970, so they need 61 bits and do not fit a float. Generated episodes are the same on
every machine. Mixed-rate recordings are read too if available (KINOGRAPH_TEST_DATA); they have no regular clocks.
"""

import os
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from windows_reference import Stream, explicit, regular

import kinograph

EPOCH_NS = 1_760_000_000_000_000_000
ROOT = Path(__file__).resolve().parents[2]
MORE = Path(os.environ.get("KINOGRAPH_TEST_DATA", ROOT.parent / "shared" / "data"))


class _Clock(NamedTuple):
    rate_hz: int
    jitter_ns: int
    # Fractions of frames that are late, and that are lost.
    late: float
    lost: float


_CLOCKS = {
    "camera/front": _Clock(30, 800_000, 0.05, 0.04),
    "camera/wrist": _Clock(30, 1_200_000, 0.05, 0.06),
    "joint": _Clock(500, 40_000, 0.01, 0.01),
    "ft": _Clock(1000, 20_000, 0.01, 0.01),
    "gripper": _Clock(100, 300_000, 0.02, 0.02),
    "eef": _Clock(100, 100_000, 0.01, 0.01),
    "action": _Clock(20, 0, 0.0, 0.0),
}

Episode = dict[str, Stream]


def make_episode(seed: int, duration_s: float = 1.5) -> Episode:
    """Generate an episode from random walks."""
    rng = np.random.default_rng([11, seed])
    times = {name: _times(rng, int(duration_s * 1e9), clock) for name, clock in _CLOCKS.items()}
    # A driver that gives two readings of one bus cycle the same timestamp; not at the ends.
    gripper = times["gripper"]
    for frame in rng.integers(2, len(gripper) - 2, 5):
        gripper[frame] = gripper[frame - 1]
    episode = {
        "camera/front": explicit(times["camera/front"], _images(rng, times["camera/front"])),
        "camera/wrist": explicit(times["camera/wrist"], _images(rng, times["camera/wrist"])),
        "ft": explicit(times["ft"], _walk(rng, times["ft"], 6, np.float32)),
        "gripper": explicit(gripper, _walk(rng, gripper, 2, np.float32)),
        "eef/pos": explicit(times["eef"], _walk(rng, times["eef"], 3, np.float64)),
        "eef/quat": explicit(times["eef"], _turns(rng, times["eef"])),
        "action": explicit(times["action"], _walk(rng, times["action"], 7, np.float64)),
    }
    for name in ("pos", "vel", "torque"):
        values = _walk(rng, times["joint"], 7, np.float64)
        episode[f"joint/{name}"] = explicit(times["joint"], values)
    lines = sorted(int(time) for time in rng.integers(0, int(duration_s * 1e9), 3))
    episode["language"] = explicit(
        [EPOCH_NS + time for time in lines], ["tidy the table", "pick up the cube", "räum auf"]
    )
    start = min(stream.times_ns[0] for stream in episode.values())
    at_50_hz, at_40_hz = range(int(50 * duration_s)), range(int(40 * duration_s))
    status = rng.integers(-(1 << 15), 1 << 15, (len(at_50_hz), 2)).astype(np.int16)
    episode["status"] = regular(50.0, start, status)
    tactile = rng.normal(size=(len(at_40_hz), 4)).astype(np.float16)
    episode["tactile"] = regular(40.0, start, tactile)
    total = rng.integers(0, 1 << 16, len(at_40_hz)).astype(np.uint16)
    episode["tactile/sum"] = regular(40.0, start, total)
    return episode


def read_recording(path: Path, duration_s: float = 1.5) -> Episode:
    """Read the start of a recording, with its images subsampled."""
    end_ns = EPOCH_NS + int(duration_s * 1e9)
    names = {"cam_front/rgb": "camera/front", "cam_wrist/rgb": "camera/wrist"}
    episode = {}
    with h5py.File(path, "r") as file:

        def read(name: str, item: object) -> None:
            if not (isinstance(item, h5py.Group) and "t" in item):
                return
            times = [int(time) for time in item["t"][:] if time <= end_ns]
            values = item["data"][: len(times)]
            if values.dtype.kind == "S":
                values = [text.decode() for text in values]
            elif values.ndim > 2:
                values = np.ascontiguousarray(values[:, ::10, ::10])
            episode[names.get(name, name)] = explicit(times, values)

        file.visititems(read)
    pose = episode.pop("eef_pose")
    for name, part in (("eef/pos", slice(3)), ("eef/quat", slice(3, 7))):
        values = np.ascontiguousarray(pose.values[:, part])
        episode[name] = explicit(pose.times_ns, values)
    return episode


def recordings() -> list[Path]:
    """List the available recordings."""
    return sorted((MORE / "generated/mixed").glob("session_*.hdf5"))


def write(path: Path, episodes: list[Episode]) -> kinograph.Dataset:
    """Write episodes into a dataset, and check that it has the timestamps that the twin uses."""
    with kinograph.Writer(path) as writer:
        for episode in episodes:
            rates = {
                name: float(1_000_000_000 / stream.period_ns)
                for name, stream in episode.items()
                if stream.period_ns is not None
            }
            times = {
                name: np.array(stream.times_ns)
                for name, stream in episode.items()
                if stream.period_ns is None
            }
            values = {name: stream.values for name, stream in episode.items()}
            writer.add_episode(values, rate_hz=rates, timestamps_ns=times)
    dataset = kinograph.open(path)
    for episode, written in zip(episodes, dataset, strict=True):
        for name, stream in episode.items():
            assert written[name].timestamps_ns.tolist() == stream.times_ns
    return dataset


def _times(rng: np.random.Generator, duration_ns: int, clock: _Clock) -> list[int]:
    """Generate the timestamps of a clock with jitter, in integer nanoseconds."""
    period_ns = 1_000_000_000 // clock.rate_hz
    times, last = [], -1
    for due in range(int(rng.integers(0, period_ns)), duration_ns, period_ns):
        time = due + int(rng.integers(0, clock.jitter_ns + 1))
        if rng.random() < clock.late:
            time += int(rng.integers(0, period_ns // 2))
        time = max(time, last + 1000)
        if rng.random() >= clock.lost:
            times.append(EPOCH_NS + time)
            last = time
    return times


def _walk(
    rng: np.random.Generator, times: list[int], width: int, dtype: type[np.floating]
) -> np.ndarray:
    return np.cumsum(rng.normal(size=(len(times), width)), axis=0).astype(dtype)


def _turns(rng: np.random.Generator, times: list[int]) -> np.ndarray:
    """Generate unit quaternions with small and large rotations, some with flipped sign."""
    turns = rng.normal(size=(len(times), 4))
    slow = np.cumsum(rng.normal(size=(len(times), 4)) * 0.01, axis=0) + np.eye(4)[3]
    turns = np.where(np.arange(len(times))[:, None] % 40 < 20, slow, turns)
    turns *= np.where(rng.random(len(times)) < 0.1, -1.0, 1.0)[:, None]
    return turns / np.linalg.norm(turns, axis=1, keepdims=True)


def _images(rng: np.random.Generator, times: list[int]) -> np.ndarray:
    return rng.integers(0, 256, (len(times), 12, 16, 3), dtype=np.uint8)
