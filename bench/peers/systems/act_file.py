"""ACT's loader: one uncompressed HDF5 file per episode, opened and closed for every sample, in a DataLoader.

Its `EpisodicDataset` reimplemented, with the action chunk of the workload; as in ACT, floats are made per sample.
"""

import pathlib
from collections.abc import Iterator

import h5py
import numpy as np
import torch
from batching import Batch, in_workers, stack, to_output
from contract import Recording, Values, Workload

from systems.base import System


class Episodes:
    """Samples by global step, or by episode."""

    def __init__(self, recording: Recording, workload: Workload) -> None:
        self._recording, self._workload = recording, workload

    def __len__(self) -> int:
        return self._recording.steps

    def __getitem__(self, index: int) -> dict[str, Values]:
        recording, workload = self._recording, self._workload
        whole = workload.kind == "episode"
        episode, step = (index, 0) if whole else recording.place(index)
        last = int(recording.lengths[episode]) - 1
        steps = workload.frame_steps(last, step)
        rows = slice(int(steps[0]), int(steps[-1]) + 1)
        with h5py.File(f"{recording.path}/{recording.episodes[episode]}", "r") as file:
            sample = {
                camera: file[f"observations/images/{camera}"][rows][steps - steps[0]]
                for camera in recording.cameras
            }
            at = rows if whole else step
            for key in recording.vectors:
                sample[key] = file[f"observations/{key}"][at].astype(np.float32)
            if whole:
                return sample | {"actions": file["action"][:].astype(np.float32)}
            read = file["action"][step : step + workload.actions]
        sample["actions"] = np.zeros((workload.actions, recording.action_dim), np.float32)
        sample["actions"][: len(read)] = read
        sample["is_pad"] = np.arange(workload.actions) >= len(read)
        if workload.output == "f32":
            tensors = {key: torch.from_numpy(value) for key, value in sample.items()}
            tensors = to_output(tensors, recording, workload)
            sample = {key: tensor.numpy() for key, tensor in tensors.items()}
        return sample


class Made(System):
    """See the module."""

    packages = ("h5py",)

    def refuse(self, recording: Recording, workload: Workload) -> str | None:
        """Accept ACT's files only."""
        return None if recording.layout == "act" else "reads ACT's layout only"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Read the recording itself."""
        path.mkdir(parents=True, exist_ok=True)

    def disk_bytes(self, recording: Recording, path: pathlib.Path) -> int:
        """Count the recording."""
        folder = pathlib.Path(recording.path)
        return sum((folder / name).stat().st_size for name in recording.episodes)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read in a DataLoader."""
        episodes = Episodes(recording, workload)
        collate = _stack_floats if workload.output == "f32" else None
        return in_workers(
            episodes,
            recording,
            workload,
            workers,
            collate or (lambda samples: stack(samples, recording, workload)),
        )


def _stack_floats(samples: list[dict[str, Values]]) -> Batch:
    """Stack samples that already have their final form."""
    return torch.utils.data.default_collate(samples)
