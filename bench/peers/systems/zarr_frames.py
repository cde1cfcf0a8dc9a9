"""zarr as diffusion policies use it: concatenated arrays of all episodes, each frame a Blosc lz4 chunk, vectors in memory, a DataLoader.

Its replay buffer and sampler, reimplemented.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from batching import Batch, in_workers, stack
from contract import Recording, Values, Workload

from systems.base import System


class Made(System):
    """See the module."""

    packages = ("zarr", "numcodecs")

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write one array per key."""
        import numcodecs  # noqa: PLC0415 (as all compared packages)
        import zarr  # noqa: PLC0415

        codec = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.NOSHUFFLE)
        group = zarr.group(zarr.DirectoryStore(str(path)), overwrite=True)
        shape = (*recording.size, 3)
        arrays = {
            camera: group.zeros(
                camera,
                shape=(recording.steps, *shape),
                chunks=(1, *shape),
                dtype=np.uint8,
                compressor=codec,
            )
            for camera in recording.cameras
        }
        vectors: dict[str, list[Values]] = {key: [] for key in recording.vector_keys}
        for episode, start in enumerate(recording.starts):
            for key, values in recording.read(episode).items():
                if key in arrays:
                    arrays[key][start : start + len(values)] = values
                else:
                    vectors[key].append(values)
        for key, parts in vectors.items():
            group.array(key, np.concatenate(parts), compressor=None)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read in a DataLoader."""
        frames = _Frames(recording, workload, path)
        return in_workers(
            frames, recording, workload, workers, lambda found: stack(found, recording, workload)
        )


class _Frames:
    """Samples by global step, or by episode."""

    def __init__(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        self._recording, self._workload, self._path = recording, workload, path
        self._arrays: dict[str, Any] = {}

    def __len__(self) -> int:
        return self._recording.steps

    def __getitem__(self, index: int) -> dict[str, Values]:
        recording, workload = self._recording, self._workload
        if not self._arrays:
            self._open()
        episode, step = (index, 0) if workload.kind == "episode" else recording.place(index)
        start, last = int(recording.starts[episode]), int(recording.lengths[episode]) - 1
        steps = workload.frame_steps(last, step)
        rows, back = slice(start + steps[0], start + steps[-1] + 1), steps - steps[0]
        sample = {camera: self._arrays[camera][rows][back] for camera in recording.cameras}
        if workload.kind != "chunk":
            return sample | {key: self._arrays[key][rows][back] for key in recording.vector_keys}
        sample |= {key: self._arrays[key][index] for key in recording.vectors}
        taken, is_pad = workload.action_steps(last, step)
        return sample | {"actions": self._arrays["actions"][start + taken], "is_pad": is_pad}

    def _open(self) -> None:
        import numcodecs  # noqa: PLC0415 (as all compared packages)
        import zarr  # noqa: PLC0415

        numcodecs.blosc.use_threads = False
        group = zarr.open(str(self._path), "r")
        self._arrays = {camera: group[camera] for camera in self._recording.cameras}
        self._arrays |= {key: group[key][:] for key in self._recording.vector_keys}
