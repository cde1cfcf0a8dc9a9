"""What is compared: the recordings, the workloads, the batch that every system must return, and its check.

    W1  windows of ten steps            lift:   camera [B, T, H, W, 3], vector [B, T, D], actions [B, T, A]
    W2  newest frames + action chunk    aloha:  camera [B, F, H, W, 3], vector [B, D],    actions [B, C, A], is_pad [B, C]
    W3  whole episodes, padded          lift:   as W1, T the longest of the batch, and lengths [B]

Steps after an episode's end repeat its last one; frames before its start repeat its first. Output `u8` is uint8 in either layout,
`f32` is float32 from 0 to 1, [..., 3, H, W]. A system that follows `index_batches` is checked against that; any other reports the
samples it returned as `ep` and `t` [B].

A workload is written `W1:lift:b16:u8`, `W2:aloha:b8:f2:c50:f32`, `W3:lift:b8:u8`.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORK = pathlib.Path(os.environ.get("PEERS_WORK", ROOT / "target" / "peers"))
# For every system that stores JPEG, including ours: quality 95, chroma at half the resolution.
JPEG_QUALITY = 95

Values = npt.NDArray[Any]
Whole = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Recording:
    """One original HDF5 recording, also the ground truth for batches."""

    name: str
    layout: Literal["robomimic", "act"]
    path: str
    cameras: list[str]
    vectors: dict[str, int]
    action_dim: int
    size: tuple[int, int]
    rate_hz: float
    lengths: Whole
    episodes: list[str]

    @property
    def steps(self) -> int:
        """Steps of all episodes."""
        return int(self.lengths.sum())

    @functools.cached_property
    def starts(self) -> Whole:
        """Where each episode begins if all are concatenated."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    @functools.cached_property
    def episode_of(self) -> Whole:
        """The episode of each step."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all images and 32-bit vectors."""
        pixels = len(self.cameras) * self.size[0] * self.size[1] * 3
        return self.steps * (pixels + 4 * (sum(self.vectors.values()) + self.action_dim))

    @property
    def vector_keys(self) -> list[str]:
        """Everything that is not an image."""
        return [*self.vectors, "actions"]

    def place(self, index: int) -> tuple[int, int]:
        """Return episode and step of a global step."""
        episode = int(self.episode_of[index])
        return episode, int(index - self.starts[episode])

    def read(
        self, episode: int, at: slice = slice(None), *, images: bool = True
    ) -> dict[str, Values]:
        """Read an episode: uint8 images, float32 vectors."""
        import h5py  # noqa: PLC0415 (not every process reads the ground truth)

        name = self.episodes[episode]
        if self.layout == "robomimic":
            file, inner, images, actions = self.path, f"data/{name}/", "obs/", "actions"
            vectors = "obs/"
        else:
            file, inner, images, actions = (
                f"{self.path}/{name}",
                "",
                "observations/images/",
                "action",
            )
            vectors = "observations/"
        with h5py.File(file, "r") as source:
            found = {key: source[inner + vectors + key][at] for key in self.vectors}
            found["actions"] = source[inner + actions][at]
            found = {key: value.astype(np.float32) for key, value in found.items()}
            if images:
                found |= {camera: source[inner + images + camera][at] for camera in self.cameras}
        return found


def load_recording(name: str) -> Recording:
    """Open a recording created by `data.py`."""
    about = json.loads((WORK / "data" / f"{name}.json").read_text())
    about["lengths"] = np.array(about["lengths"])
    return Recording(**{**about, "size": tuple(about["size"])})


@dataclasses.dataclass(frozen=True)
class Workload:
    """What a batch contains."""

    name: str
    recording: str
    kind: Literal["window", "chunk", "episode"]
    batch: int = 16
    output: Literal["u8", "f32"] = "u8"
    length: int = 10
    frames: int = 1
    actions: int = 50
    seed: int = 0

    def frame_steps(self, last: int, step: int) -> Whole:
        """Return the steps of an episode whose images a sample contains."""
        if self.kind == "window":
            return np.minimum(np.arange(step, step + self.length), last)
        if self.kind == "chunk":
            return np.maximum(np.arange(step - self.frames + 1, step + 1), 0)
        return np.arange(last + 1)

    def action_steps(self, last: int, step: int) -> tuple[Whole, npt.NDArray[np.bool_]]:
        """Return the steps of the action chunk, and which of them are padding."""
        steps = np.arange(step, step + self.actions)
        return np.minimum(steps, last), steps > last


def parse_workload(name: str) -> Workload:
    """Parse a workload's name."""
    kinds: dict[str, Any] = {"W1": "window", "W2": "chunk", "W3": "episode"}
    kind, recording, *parts = name.split(":")
    fields = {"b": "batch", "s": "length", "f": "frames", "c": "actions"}
    numbers = {
        fields[part[0]]: int(part[1:])
        for part in parts
        if part[1:].isdigit() and part[0] in fields and part != "f32"
    }
    return Workload(
        name, recording, kinds[kind], output="f32" if "f32" in parts else "u8", **numbers
    )


def index_batches(recording: Recording, workload: Workload) -> Iterator[list[int]]:
    """Yield global steps (W3: episodes) forever: a permutation per epoch, with the remainder of one going into the next."""
    count = len(recording.lengths) if workload.kind == "episode" else recording.steps
    epoch, left = 0, np.empty(0, np.int64)
    while True:
        permutation = np.random.default_rng([workload.seed, epoch]).permutation(count)
        left, epoch = np.concatenate([left, permutation]), epoch + 1
        whole = len(left) // workload.batch * workload.batch
        for start in range(0, whole, workload.batch):
            yield left[start : start + workload.batch].tolist()
        left = left[whole:]


def truth(recording: Recording, workload: Workload, episode: int, step: int) -> dict[str, Any]:
    """Read the expected sample."""
    last = int(recording.lengths[episode]) - 1
    steps = workload.frame_steps(last, step)
    low = int(steps.min())
    found = recording.read(episode, slice(low, int(steps.max()) + 1))
    sample: dict[str, Any] = {key: value[steps - low] for key, value in found.items()}
    if workload.kind == "chunk":
        sample |= {key: found[key][step - low] for key in recording.vectors}
        taken, is_pad = workload.action_steps(last, step)
        actions = recording.read(episode, images=False)["actions"]
        sample |= {"actions": actions[taken], "is_pad": is_pad}
    return sample


@dataclasses.dataclass
class Verdict:
    """How a system's batches differ from the ground truth."""

    largest_error: float = 0.0
    psnr_db: float = 99.0
    problems: list[str] = dataclasses.field(default_factory=list)

    def expect(self, problem: str, holds: bool) -> None:
        """Record a problem unless the condition holds."""
        if not holds and problem not in self.problems:
            self.problems.append(problem)


def verify(
    recording: Recording, workload: Workload, batch: dict[str, Any], indices: Sequence[int] | None
) -> Verdict:
    """Compare a batch with the recording."""
    verdict = Verdict()
    squares: dict[str, list[float]] = {camera: [] for camera in recording.cameras}
    if len(batch["actions"]) != workload.batch:
        verdict.problems.append(f"{len(batch['actions'])} samples")
    for row in range(len(batch["actions"])):
        if indices is None:
            place = int(batch["ep"][row]), int(batch["t"][row])
        elif workload.kind == "episode":
            place = indices[row], 0
        else:
            place = recording.place(indices[row])
        expected = truth(recording, workload, *place)
        sample = {key: batch[key][row].numpy() for key in recording.cameras + recording.vector_keys}
        if workload.kind == "episode":
            length = len(expected["actions"])
            sample = {key: values[:length] for key, values in sample.items()}
            verdict.expect("length differs", int(batch["lengths"][row]) == length)
        if "is_pad" in expected:
            same = np.array_equal(batch["is_pad"][row].numpy(), expected["is_pad"])
            verdict.expect("is_pad differs", same)
            # Contents of padded steps are each system's own choice.
            expected["actions"] = expected["actions"][~expected["is_pad"]]
            sample["actions"] = sample["actions"][~expected["is_pad"]]
        for camera in recording.cameras:
            images = to_bytes(sample[camera], workload, verdict)
            apart = _apart(images, expected[camera], camera, verdict)
            squares[camera].append(float(np.mean(apart**2)))
        for key in recording.vector_keys:
            apart = _apart(sample[key], expected[key], key, verdict)
            verdict.largest_error = max(verdict.largest_error, float(np.abs(apart).max()))
    for errors in squares.values():
        if square := float(np.mean(errors)):
            verdict.psnr_db = min(verdict.psnr_db, float(10 * np.log10(255.0**2 / square)))
    error = verdict.largest_error
    verdict.expect(f"vectors differ by {error:.2g}", error <= 1e-6)
    return verdict


def _apart(given: Values, expected: Values, key: str, verdict: Verdict) -> Values:
    """Subtract, if the shapes match."""
    verdict.expect(f"{key} is {given.shape}, not {expected.shape}", given.shape == expected.shape)
    if given.shape != expected.shape:
        return np.zeros(1)
    return given.astype(np.float64) - expected


def to_bytes(images: Values, workload: Workload, verdict: Verdict) -> Values:
    """Convert images of any allowed form to uint8, HWC."""
    wanted = np.uint8 if workload.output == "u8" else np.float32
    problem = f"images are {images.dtype}, not {np.dtype(wanted)}"
    verdict.expect(problem, images.dtype == wanted)
    if images.shape[-1] != 3:
        images = np.moveaxis(images, -3, -1)
    if images.dtype == np.uint8:
        return images
    return np.rint(images * 255.0).clip(0, 255).astype(np.uint8)
