"""PushT as the study sees it: frames, windows and arms, all from Kinograph datasets.

    recording = read("pusht.kino")            every frame once, in the order of the table
    index = Index(recording)                  what a policy sees at each step, what it is to do, who is held out
    frames = arm_frames("jpeg75", …)          the same frames after one round trip

An *arm* is one way to store the training data: a plan of Kinograph, except for the positive control `blur4`, which no
plan would do.
"""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

import kinograph

#: Actions in a chunk, actions that are executed, pixels of an image, pixels of a crop.
HORIZON, EXECUTED, SIDE, CROP = 16, 8, 96, 84
#: Positions are pixels of a square of this size.
WORLD = 512
HELD_OUT = 21
IMAGES, STATE, ACTION = "img", "state", "action"

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Recording:
    """All episodes, one after the other."""

    images: Bytes
    #: Agent x, y, then block x, y and angle.
    state: Floats
    action: Floats
    lengths: Whole


def read(path: pathlib.Path | str) -> Recording:
    """Decode a dataset."""
    dataset = kinograph.open(path)
    images, state, action = [], [], []
    for episode in dataset:
        images.append(episode[IMAGES][:])
        state.append(episode[STATE][:])
        action.append(episode[ACTION][:])
    lengths = np.array([len(one) for one in action])
    joined = [np.concatenate(one) for one in (images, state, action)]
    return Recording(joined[0], joined[1].astype("f4"), joined[2].astype("f4"), lengths)


class Index:
    """Per step: the step before, the steps of its chunk, and whether its episode is held out."""

    def __init__(self, lengths: Whole) -> None:
        ends = np.cumsum(lengths)
        steps = np.arange(ends[-1])
        self.episode = np.repeat(np.arange(len(lengths)), lengths)
        first, last = (ends - lengths)[self.episode], ends[self.episode] - 1
        self.before = np.maximum(steps - 1, first)
        ahead = steps[:, None] + np.arange(HORIZON)
        self.chunk = np.minimum(ahead, last[:, None])
        self.inside = ahead <= last[:, None]
        held_out = np.zeros(len(lengths), bool)
        held_out[np.random.default_rng(0).permutation(len(lengths))[:HELD_OUT]] = True
        self.train_episodes = np.flatnonzero(~held_out)
        self.train = np.flatnonzero(~held_out[self.episode])
        self.held_out = np.flatnonzero(held_out[self.episode])


def contact(state: Floats, lengths: Whole) -> npt.NDArray[np.bool_]:
    """Say at which steps the block moves: by a quarter of a pixel, or by 0.002 rad."""
    moved = np.abs(np.diff(state[:, 2:4], axis=0)).max(1) > 0.25
    turned = np.abs((np.diff(state[:, 4]) + np.pi) % (2 * np.pi) - np.pi) > 0.002
    found = np.append(moved | turned, False)
    found[np.cumsum(lengths) - 1] = False
    return found


def normalize(pixels: Floats) -> Floats:
    """Map positions to -1…1."""
    return (pixels / (WORLD / 2) - 1).astype("f4")


def to_codec(arm: str) -> str | None:
    """Name the codec of the images in an arm: `jpeg75` is 4:2:0, `jpeg75-444` is not."""
    name, _, chroma = arm.partition("-")
    if name.startswith("jpeg"):
        return f"jpeg:q={int(name[4:])},sub={chroma or '420'}"
    if name.startswith("av1"):
        return f"av1:psnr={int(chroma)}"
    return None


def dataset_of(arm: str, raw: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Store the recording as an arm says, unless that was done already; AV1 needs PyAV."""
    codec = to_codec(arm)
    if codec is None:
        return raw
    target = folder / f"{arm}.kino"
    if not target.exists():
        plan = folder / f"{arm}.toml"
        plan.write_text(f'[[stream]]\nmatch = "{IMAGES}"\ncodec = "{codec}"\n')
        kinograph.repack(raw, target, plan=plan)
    return target


def blur(images: Bytes, batch: int = 1024) -> Bytes:
    """Reduce images to a quarter of their side by area, and enlarge them again: the positive control."""
    done = []
    for part in torch.from_numpy(images).split(batch):
        small = functional.avg_pool2d(part.movedim(-1, 1).float(), 4).round()
        large = functional.interpolate(small, size=(SIDE, SIDE), mode="bilinear")
        done.append(large.round().to(torch.uint8).movedim(1, -1))
    return torch.cat(done).numpy()


def arm_frames(arm: str, recording: Recording, raw: pathlib.Path, folder: pathlib.Path) -> Bytes:
    """Give the training images of an arm."""
    if arm == "blur4":
        return blur(recording.images)
    path = dataset_of(arm, raw, folder)
    return recording.images if path == raw else read(path).images


def stored_bytes(path: pathlib.Path) -> float:
    """Give the stored bytes per image."""
    stream = kinograph.open(path).streams[IMAGES]
    return stream.bytes / stream.frames
