"""A hand-written JPEG store: all images of a camera in one file, an array of offsets, vectors in memory.

libjpeg-turbo decodes straight into the batch. `threads`: in this process. `workers`: in the processes of a DataLoader. DALI and
SPDL read the same files.
"""

import mmap
import pathlib
from collections.abc import Iterator

import numpy as np
import torch
from batching import Batch, in_threads, in_workers, read_as_jpeg, to_output
from contract import Recording, Whole, Workload

from systems.base import System


def write_store(recording: Recording, path: pathlib.Path) -> None:
    """Write images, offsets and vectors."""
    path.mkdir(parents=True)
    offsets: dict[str, list[int]] = {camera: [0] for camera in recording.cameras}
    files = {camera: (path / f"{camera}.bin").open("wb") for camera in recording.cameras}
    vectors: dict[str, list[np.ndarray]] = {key: [] for key in recording.vector_keys}
    for episode in range(len(recording.lengths)):
        found, images = read_as_jpeg(recording, episode)
        for camera, encoded in images.items():
            for data in encoded:
                files[camera].write(data)
                offsets[camera].append(offsets[camera][-1] + len(data))
        for key, values in found.items():
            vectors[key].append(values)
    for camera, file in files.items():
        file.close()
        np.save(path / f"{camera}.offsets.npy", np.array(offsets[camera]))
    for key, parts in vectors.items():
        np.save(path / f"{key}.npy", np.concatenate(parts))


class Store:
    """The open files: encoded images by row, and everything else in a batch."""

    def __init__(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        self.recording, self.workload, self._path = recording, workload, path
        self._last = recording.starts + recording.lengths - 1
        self._vectors = {key: np.load(path / f"{key}.npy") for key in recording.vector_keys}
        self._offsets = {
            camera: np.load(path / f"{camera}.offsets.npy") for camera in recording.cameras
        }
        self._files: dict[str, memoryview] = {}

    def open(self) -> None:
        """Map the files, once per process."""
        for camera in self.recording.cameras:
            if camera not in self._files:
                with (self._path / f"{camera}.bin").open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                self._files[camera] = memoryview(mapped)

    def encoded(self, camera: str, row: int) -> memoryview:
        """Return one encoded image."""
        offsets = self._offsets[camera]
        return self._files[camera][offsets[row] : offsets[row + 1]]

    def rows(self, indices: list[int]) -> tuple[list[Whole], Batch]:
        """Return the rows of each sample's images, and its vectors."""
        workload, starts = self.workload, self.recording.starts
        if workload.kind == "episode":
            return self._episodes(indices)
        steps = np.array(indices)
        last = self._last[self.recording.episode_of[steps]][:, None]
        if workload.kind == "window":
            rows = np.minimum(steps[:, None] + np.arange(workload.length), last)
            batch = {key: torch.from_numpy(array[rows]) for key, array in self._vectors.items()}
            return list(rows), batch
        first = starts[self.recording.episode_of[steps]][:, None]
        rows = np.maximum(steps[:, None] - np.arange(workload.frames)[::-1], first)
        batch = {key: torch.from_numpy(self._vectors[key][steps]) for key in self.recording.vectors}
        taken = steps[:, None] + np.arange(workload.actions)
        batch["actions"] = torch.from_numpy(self._vectors["actions"][np.minimum(taken, last)])
        batch["is_pad"] = torch.from_numpy(taken > last)
        return list(rows), batch

    def _episodes(self, indices: list[int]) -> tuple[list[Whole], Batch]:
        rows = [np.arange(self.recording.starts[one], self._last[one] + 1) for one in indices]
        lengths = [len(row) for row in rows]
        batch: Batch = {"lengths": torch.tensor(lengths)}
        for key, array in self._vectors.items():
            padded = np.zeros((len(rows), max(lengths), array.shape[1]), np.float32)
            for number, row in enumerate(rows):
                padded[number, : len(row)] = array[row]
            batch[key] = torch.from_numpy(padded)
        return rows, batch


class Decoder(Store):
    """Batches from the store, decoded with libjpeg-turbo."""

    def __len__(self) -> int:
        return self.recording.steps

    def __getitems__(self, indices: list[int]) -> Batch:
        """Make a batch; this is the method that a DataLoader calls."""
        import simplejpeg  # noqa: PLC0415 (DALI and SPDL use this module without it)

        self.open()
        rows, batch = self.rows(indices)
        shape = (len(rows), max(len(row) for row in rows), *self.recording.size, 3)
        make = torch.zeros if self.workload.kind == "episode" else torch.empty
        for camera in self.recording.cameras:
            batch[camera] = make(shape, dtype=torch.uint8)
            images = batch[camera].numpy()
            for number, row in enumerate(rows):
                for place, one in enumerate(row):
                    if place and one == row[place - 1]:
                        images[number, place] = images[number, place - 1]
                        continue
                    simplejpeg.decode_jpeg(
                        self.encoded(camera, one), colorspace="RGB", buffer=images[number, place]
                    )
        return to_output(batch, self.recording, self.workload)


class Made(System):
    """See the module."""

    packages = ("simplejpeg",)

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write the store."""
        write_store(recording, path)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Decode in threads or in processes."""
        decoder = Decoder(recording, workload, path)
        if self.variant == "workers":
            return in_workers(decoder, recording, workload, workers, lambda batch: batch)
        decoder.open()
        return in_threads(decoder.__getitems__, recording, workload, workers)
