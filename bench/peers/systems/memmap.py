"""np.memmap on raw pixels: the cost of reading if nothing is compressed.

`threads`: in this process, one `index_select` per key and batch, the practical upper bound. `workers`: the same in the
processes of a DataLoader.
"""

import pathlib
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from batching import Batch, in_threads, in_workers, stack, to_output
from contract import Recording, Whole, Workload

from systems.base import System


class Rows:
    """Concatenated arrays of all episodes, and batches from them."""

    def __init__(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        self._recording, self._workload, self._path = recording, workload, path
        self._last = recording.starts + recording.lengths - 1
        self._tensors: dict[str, torch.Tensor] = {}

    def open(self) -> dict[str, torch.Tensor]:
        """Map the files, once per process."""
        if not self._tensors:
            warnings.simplefilter("ignore")  # the tensors are read-only, and never written
            for key in self._recording.cameras + self._recording.vector_keys:
                array = np.load(self._path / f"{key}.npy", mmap_mode="r")
                self._tensors[key] = torch.from_numpy(array)
        return self._tensors

    def __len__(self) -> int:
        return self._recording.steps

    def __getitems__(self, indices: list[int]) -> Batch:
        """Make a batch; this is the method that a DataLoader calls."""
        self.open()
        recording, workload = self._recording, self._workload
        if workload.kind == "episode":
            return stack([self._episode(index) for index in indices], recording, workload)
        steps = np.array(indices)
        last = self._last[recording.episode_of[steps]][:, None]
        if workload.kind == "window":
            rows = np.minimum(steps[:, None] + np.arange(workload.length), last)
            keys = recording.cameras + recording.vector_keys
            return to_output({key: self._take(key, rows) for key in keys}, recording, workload)
        first = recording.starts[recording.episode_of[steps]][:, None]
        rows = np.maximum(steps[:, None] - np.arange(workload.frames)[::-1], first)
        batch = {camera: self._take(camera, rows) for camera in recording.cameras}
        batch |= {key: self._take(key, steps) for key in recording.vectors}
        taken = steps[:, None] + np.arange(workload.actions)
        batch["actions"] = self._take("actions", np.minimum(taken, last))
        batch["is_pad"] = torch.from_numpy(taken > last)
        return to_output(batch, recording, workload)

    def _take(self, key: str, rows: Whole) -> torch.Tensor:
        source = self._tensors[key]
        taken = source.index_select(0, torch.from_numpy(rows.reshape(-1)))
        return taken.view(*rows.shape, *source.shape[1:])

    def _episode(self, index: int) -> dict[str, np.ndarray]:
        rows = slice(int(self._recording.starts[index]), int(self._last[index]) + 1)
        return {key: tensor[rows].numpy() for key, tensor in self._tensors.items()}


class Made(System):
    """See the module."""

    packages = ("numpy", "torch")

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write one .npy per key."""
        path.mkdir(parents=True)
        shapes = dict.fromkeys(recording.cameras, (np.uint8, (*recording.size, 3)))
        shapes |= {key: (np.float32, (size,)) for key, size in recording.vectors.items()}
        shapes["actions"] = (np.float32, (recording.action_dim,))
        arrays = {
            key: np.lib.format.open_memmap(
                path / f"{key}.npy", "w+", dtype, (recording.steps, *shape)
            )
            for key, (dtype, shape) in shapes.items()
        }
        for episode, start in enumerate(recording.starts):
            for key, values in recording.read(episode).items():
                arrays[key][start : start + len(values)] = values

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read in threads or in processes."""
        rows = Rows(recording, workload, path)
        if self.variant == "workers":
            return in_workers(rows, recording, workload, workers, lambda batch: batch)
        rows.open()
        return in_threads(rows.__getitems__, recording, workload, workers)
