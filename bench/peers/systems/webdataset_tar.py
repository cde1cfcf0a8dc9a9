"""WebDataset: tar files of JPEG and .npy, shuffled by shard and through a buffer.

W2 stores one sample per step, with its action chunk cut in advance (and earlier frames repeated). W1 and W3 store one sample per episode; W1
decodes it once and puts all its windows into a buffer of 2,000, so decoding is paid once here too, and the shuffle is only as good as
the buffer. Images are decoded with libjpeg-turbo, not with Pillow as in WebDataset itself: that is 1.5 times as fast.
"""

import io
import pathlib
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from batching import Batch, decode_jpeg, read_as_jpeg, stack
from contract import Recording, Values, Workload

from systems.base import System

SHARDS = 8


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Write a file into a tar."""
    about = tarfile.TarInfo(name)
    about.size = len(data)
    tar.addfile(about, io.BytesIO(data))


def to_npy(array: Values) -> bytes:
    """Return the bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class Made(System):
    """See the module."""

    packages = ("webdataset",)
    follows_index = False

    def files(self, workload: Workload) -> str:
        """Name the files by what was cut in advance."""
        if workload.kind != "chunk":
            return "webdataset"
        return f"webdataset-f{workload.frames}-c{workload.actions}"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write the tar files."""
        path.mkdir(parents=True)
        tars = [tarfile.open(path / f"{number:03}.tar", "w") for number in range(SHARDS)]  # noqa: SIM115
        for episode in range(len(recording.lengths)):
            vectors, images = read_as_jpeg(recording, episode)
            if workload.kind != "chunk":
                tar, key = tars[episode % SHARDS], f"{episode:05}"
                for camera, encoded in images.items():
                    for step, data in enumerate(encoded):
                        add(tar, f"{key}.{camera}.{step:05}.jpg", data)
                for name, values in vectors.items():
                    add(tar, f"{key}.{name}.npy", to_npy(values))
                continue
            last = int(recording.lengths[episode]) - 1
            for step in range(last + 1):
                tar, key = tars[(episode + step) % SHARDS], f"{episode:05}_{step:05}"
                for camera, encoded in images.items():
                    for number, frame in enumerate(workload.frame_steps(last, step)):
                        add(tar, f"{key}.{camera}.{number}.jpg", encoded[frame])
                for name in recording.vectors:
                    add(tar, f"{key}.{name}.npy", to_npy(vectors[name][step]))
                taken, is_pad = workload.action_steps(last, step)
                add(tar, f"{key}.actions.npy", to_npy(vectors["actions"][taken]))
                add(tar, f"{key}.is_pad.npy", to_npy(is_pad))
        for tar in tars:
            tar.close()

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read the tar files in a DataLoader."""
        import webdataset  # noqa: PLC0415 (as all compared packages)

        source = webdataset.WebDataset(
            sorted(str(file) for file in path.glob("*.tar")),
            shardshuffle=SHARDS,
            nodesplitter=webdataset.split_by_node,
            workersplitter=webdataset.split_by_worker,
            seed=workload.seed,
        )
        cut = _Cut(recording, workload)
        if workload.kind == "chunk":
            source = source.shuffle(1000).map(cut.step)
        elif workload.kind == "episode":
            source = source.shuffle(32).map(cut.episode)
        else:
            source = source.compose(cut.starts).shuffle(2000).map(cut.window)
        source = source.repeat().batched(
            workload.batch,
            collation_fn=lambda samples: stack(samples, recording, workload),
            partial=False,
        )
        return iter(
            torch.utils.data.DataLoader(
                source,
                batch_size=None,
                num_workers=workers,
                persistent_workers=True,
                prefetch_factor=2,
            )
        )


class _Cut:
    """Turns the contents of the tar files into samples."""

    def __init__(self, recording: Recording, workload: Workload) -> None:
        self._recording, self._workload = recording, workload

    def step(self, stored: dict[str, Any]) -> dict[str, Values]:
        """Return the sample of W2."""
        frames = range(self._workload.frames)
        sample = {
            camera: np.stack([decode_jpeg(stored[f"{camera}.{frame}.jpg"]) for frame in frames])
            for camera in self._recording.cameras
        }
        for key in [*self._recording.vector_keys, "is_pad"]:
            sample[key] = np.load(io.BytesIO(stored[f"{key}.npy"]))
        episode, step = stored["__key__"].split("_")
        return sample | {"ep": np.int64(episode), "t": np.int64(step)}

    def episode(self, stored: dict[str, Any]) -> dict[str, Values]:
        """Return a whole episode."""
        episode = int(stored["__key__"])
        steps = range(self._recording.lengths[episode])
        sample = {
            camera: np.stack([decode_jpeg(stored[f"{camera}.{step:05}.jpg"]) for step in steps])
            for camera in self._recording.cameras
        }
        for key in self._recording.vector_keys:
            sample[key] = np.load(io.BytesIO(stored[f"{key}.npy"]))
        return sample | {"ep": np.int64(episode), "t": np.int64(0)}

    def starts(self, source: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Values], int]]:
        """Decode each episode once and yield the starts of its windows."""
        for stored in source:
            episode = self.episode(stored)
            for step in range(len(episode["actions"])):
                yield episode, step

    def window(self, start: tuple[dict[str, Values], int]) -> dict[str, Values]:
        """Cut one window out of its episode."""
        episode, step = start
        last = len(episode["actions"]) - 1
        steps = self._workload.frame_steps(last, step)
        sample = {
            key: values[step : step + len(steps)]
            if steps[-1] - step + 1 == len(steps)
            else values[steps]
            for key, values in episode.items()
            if np.ndim(values)
        }
        return sample | {"ep": episode["ep"], "t": np.int64(step)}
