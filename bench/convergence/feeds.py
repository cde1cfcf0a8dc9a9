"""The loaders that are compared. Each is an iterable that robomimic's `run_epoch` takes as it takes a DataLoader.

    robomimic    robomimic's SequenceDataset in torch's DataLoader(shuffle=True)
    drop-in      kinograph.robomimic.SequenceDataset in the same DataLoader
    global       kinograph.torch.Loader(shuffle="global")
    25 %, …      kinograph.torch.Loader(shuffle=Shuffle(fraction=0.25)), …
    1 episode    the samples of one episode at a time: the worst order that a loader with a shuffle can have

A batch is nested as robomimic nests it: {"actions": [B, T, 7], "obs": {"object": [B, T, 10], …}}.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pathlib
from collections.abc import Iterator
from typing import Any

import torch
from robomimic.utils.dataset import SequenceDataset
from torch.utils.data import DataLoader

import kinograph
import kinograph.robomimic
import kinograph.torch

LOW_DIM = ["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"]
KEYS = ["actions", *(f"obs/{name}" for name in LOW_DIM)]
# robomimic's defaults for BC-RNN and for a batch.
STEPS = 10
BATCH_SIZE = 100
SHUFFLES: dict[str, Any] = {
    "global": "global",
    "25 %": kinograph.Shuffle(fraction=0.25),
    "10 %": kinograph.Shuffle(fraction=0.1),
    "5 %": kinograph.Shuffle(fraction=0.05),
    "1 episode": kinograph.Shuffle(episodes=1),
}
LOADERS = ["robomimic", "drop-in", *SHUFFLES]

Batch = dict[str, Any]


def open_sequences(kind: type, path: pathlib.Path, split: str) -> Any:  # noqa: ANN401 (robomimic has no types)
    """Open robomimic's dataset or the drop-in, with the options of robomimic's own configuration."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return kind(
            hdf5_path=str(path),
            obs_keys=LOW_DIM,
            dataset_keys=["actions"],
            seq_length=STEPS,
            hdf5_cache_mode="all",
            hdf5_use_swmr=False,
            load_next_obs=False,
            filter_by_attribute=split,
        )


class Nested:
    """Batches of a `kinograph.torch.Loader`, nested as robomimic nests them."""

    def __init__(self, loader: kinograph.torch.Loader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._loader:
            obs = {name: batch[f"obs/{name}"] for name in LOW_DIM}
            yield {"actions": batch["actions"], "obs": obs}


class Feeds:
    """Makes the loaders on one recording; the two datasets with a cache are opened once."""

    def __init__(self, recording: pathlib.Path, packed: pathlib.Path) -> None:
        self._packed = packed
        self._theirs = open_sequences(SequenceDataset, recording, "train")
        held_out = open_sequences(SequenceDataset, recording, "valid")
        #: The held-out samples, read once by robomimic: every policy is judged on the same batches.
        self.held_out = list(DataLoader(held_out, batch_size=BATCH_SIZE))

    @functools.cached_property
    def _ours(self) -> kinograph.robomimic.SequenceDataset:
        return open_sequences(kinograph.robomimic.SequenceDataset, self._packed, "train")

    def make(self, name: str, seed: int) -> Any:  # noqa: ANN401 (a DataLoader or one of ours)
        """Make a loader whose order follows from the seed."""
        if name in SHUFFLES:
            return Nested(self.open_loader(name, seed))
        dataset = self._theirs if name == "robomimic" else self._ours
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(
            dataset, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, generator=generator
        )

    def open_loader(self, name: str, seed: int, **options: Any) -> kinograph.torch.Loader:  # noqa: ANN401
        """Open a loader of ours."""
        return kinograph.torch.Loader(
            self._packed,
            keys=KEYS,
            seq_length=STEPS,
            split="train",
            batch_size=BATCH_SIZE,
            last_batch="drop",
            shuffle=SHUFFLES[name],
            seed=seed,
            threads=1,
            **options,
        )

    def check(self) -> None:
        """Compare a batch of every loader of ours with what robomimic reads at the same places."""
        starts, begin = {}, 0
        for demo in self._theirs.demos:
            starts[demo] = begin
            begin += self._theirs._demo_id_to_demo_length[demo]
        for name in SHUFFLES:
            loader = self.open_loader(name, 3, include=["episode", "frame"])
            batch = next(iter(loader))
            for row, (demo, frame) in enumerate(zip(batch["episode"], batch["frame"], strict=True)):
                item = self._theirs[starts[demo] + int(frame)]
                found = {key: batch[key][row] for key in KEYS}
                wanted = {"actions": item["actions"]}
                wanted |= {f"obs/{key}": item["obs"][key] for key in LOW_DIM}
                for key in KEYS:
                    same = torch.equal(found[key].float(), torch.as_tensor(wanted[key]).float())
                    if not same:
                        raise SystemExit(f"{name}: `{key}` of {demo}, frame {frame}, differs")
