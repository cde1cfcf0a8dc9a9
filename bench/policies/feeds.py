"""The recordings, and three ways to feed the same samples to a policy.

synthetic    one batch that stays on the GPU: the cost of the policy alone
kinograph    `kinograph.torch.Loader(device="cuda")` on the packed recording
hdf5         a torch DataLoader whose workers keep the HDF5 file open, with pinned memory and overlapping copies

Samples are defined once, in `POLICIES`.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import torch
from models import Act, Batch, Bc, Diffusion
from torch import nn

import kinograph
import kinograph.torch

RESIZED = 224
# ACT's name, and robomimic's.
NAMES = {"action": "actions"}


@dataclasses.dataclass(frozen=True)
class Policy:
    """A policy, and its samples: the steps around the anchor for each stream."""

    name: str
    model: type[nn.Module]
    recording: str
    windows: dict[str, range]
    batch_size: int
    resized: int | None = None

    @property
    def cameras(self) -> tuple[str, ...]:
        """The image streams."""
        return tuple(self.model.cameras)  # type: ignore[arg-type]


def _with_cameras(model: Any, steps: range, **others: range) -> dict[str, range]:  # noqa: ANN401 (a class with `cameras`)
    return dict.fromkeys(model.cameras, steps) | {
        key.replace("__", "/"): value for key, value in others.items()
    }


POLICIES = (
    Policy(
        "bc", Bc, "lift", _with_cameras(Bc, range(10), obs__object=range(10), actions=range(10)), 64
    ),
    Policy(
        "act",
        Act,
        "aloha",
        _with_cameras(Act, range(1), observations__qpos=range(1), actions=range(100)),
        32,
    ),
    Policy(
        "diffusion",
        Diffusion,
        "aloha",
        _with_cameras(
            Diffusion, range(-1, 1), observations__qpos=range(-1, 1), actions=range(-1, 15)
        ),
        64,
        RESIZED,
    ),
)


def repeat(source: pathlib.Path, target: pathlib.Path, times: int) -> None:
    """Write every episode of a recording many times, in robomimic's layout and uncompressed: fastest for HDF5."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:
        demos = list(old["data"].values()) if "data" in old else [old]
        for number, demo in enumerate(itertools.chain.from_iterable([demos] * times)):
            group = new.create_group(f"data/demo_{number}")

            def copy(name: str, item: Any, group: h5py.Group = group) -> None:  # noqa: ANN401 (a group or a dataset)
                if isinstance(item, h5py.Dataset):
                    group.create_dataset(NAMES.get(name, name), data=item[()])

            demo.visititems(copy)
        new["data"].attrs["env_args"] = '{"env_kwargs": {"control_freq": 20}}'


class Hdf5Windows(torch.utils.data.Dataset[Batch]):
    """Samples of a policy, read with h5py: steps outside the episode repeat its first or last frame."""

    def __init__(self, path: pathlib.Path, policy: Policy) -> None:
        self.path, self.policy = path, policy
        self.file: h5py.File | None = None
        with h5py.File(path) as file:
            lengths = {name: len(demo["actions"]) for name, demo in file["data"].items()}
        self.places = [(name, step) for name, length in lengths.items() for step in range(length)]

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.places)

    def __getitem__(self, index: int) -> Batch:
        """Read one sample."""
        if self.file is None:
            self.file = h5py.File(self.path)
        name, step = self.places[index]
        demo = self.file["data"][name]
        found = {}
        for stream, steps in self.policy.windows.items():
            values = demo[stream]
            wanted = np.clip(np.arange(step + steps.start, step + steps.stop), 0, len(values) - 1)
            rows = values[wanted[0] : wanted[-1] + 1][wanted - wanted[0]]
            frames = torch.from_numpy(rows)
            if stream in self.policy.cameras and self.policy.resized:
                size = (self.policy.resized, self.policy.resized)
                planes = nn.functional.interpolate(
                    frames.movedim(-1, 1).float(), size, mode="bilinear", antialias=True
                )
                frames = planes.round().clamp(0, 255).to(torch.uint8).movedim(1, -1)
            found[stream] = frames
        return found


def hdf5(path: pathlib.Path, policy: Policy, workers: int) -> Iterator[Batch]:
    """Feed from a DataLoader, forever."""
    loader = torch.utils.data.DataLoader(
        Hdf5Windows(path, policy),
        policy.batch_size,
        shuffle=True,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=True,
        prefetch_factor=4,
        drop_last=True,
    )
    while True:
        for batch in loader:
            yield {key: value.to("cuda", non_blocking=True) for key, value in batch.items()}


def ours(path: pathlib.Path, policy: Policy) -> kinograph.torch.Loader:
    """Create our loader for the same samples."""
    return kinograph.torch.Loader(
        path,
        windows=policy.windows,
        batch_size=policy.batch_size,
        seed=7,
        # A part of the decoded recording; of images that are made smaller, all fit into it.
        shuffle=kinograph.Shuffle(fraction=0.04 if policy.resized else 0.1),
        device="cuda",
        images={"size": (policy.resized, policy.resized)} if policy.resized else None,
    )


def endless(loader: kinograph.torch.Loader) -> Iterator[Batch]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from loader


def check(path: pathlib.Path, source: pathlib.Path, policy: Policy) -> float:
    """Compare our first batch with HDF5: vectors exactly, images by their mean difference, which is returned."""
    by_place = Hdf5Windows(source, policy)
    worst = 0.0
    with ours(path, policy) as loader:
        windows = loader.order.sources[0].samples
        batch = next(iter(loader))
        for row, drawn in enumerate(loader.order.batch(0)):
            place = windows.locate(int(drawn["sample"]))
            index = by_place.places.index((windows.dataset[place.episode].id, place.anchor))
            for key, value in by_place[index].items():
                got = batch[key][row].cpu()
                if key in policy.cameras:
                    worst = max(worst, (got.float() - value.float()).abs().mean().item())
                elif not torch.equal(got.double(), value.double()):
                    raise SystemExit(f"error: `{key}` of row {row} differs from HDF5")
    return worst
