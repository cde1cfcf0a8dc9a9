"""FFCV: one file of rows, read through the page cache by compiled pipelines in threads. The variant is the content of a row.

    jpeg frames    one step; a window is ten rows, from a list of rows that FFCV reads in order; as small as its JPEG
    raw windows    one sample of the workload, cut in advance and uncompressed: every frame of W1 is stored ten times

FFCV has no windows: rows have one shape, and a batch a fixed number of them, so W3 is not possible. Its list of rows
may repeat a row and is replaced between epochs, which makes windows of frames; its own examples use it for subsets.
FFCV decodes JPEG with libjpeg-turbo's fast, less exact transform, and keeps 16 characters of a name, hence `c0` and `v0`.
"""

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from batching import Batch, to_output
from contract import JPEG_QUALITY, Recording, Values, Whole, Workload, index_batches

from systems.base import System

PAGE_BYTES = 1 << 23


class Made(System):
    """See the module."""

    packages = ("ffcv", "numba")

    @property
    def _whole(self) -> bool:
        """Whether a row is a sample."""
        return self.variant == "raw windows"

    def refuse(self, recording: Recording, workload: Workload) -> str | None:
        """Accept batches of one shape only."""
        return "rows of one shape only" if workload.kind == "episode" else None

    def files(self, workload: Workload) -> str:
        """Name the file by what was cut in advance."""
        name = f"ffcv-{self.variant.replace(' ', '-')}"
        if workload.kind == "chunk":
            name += f"-f{workload.frames}" * self._whole + f"-c{workload.actions}"
        return f"{name}.beton"

    def build(self, recording: Recording, workload: Workload, path: pathlib.Path) -> None:
        """Write the rows."""
        from ffcv.fields import NDArrayField, RGBImageField  # noqa: PLC0415 (as all compared packages)
        from ffcv.writer import DatasetWriter  # noqa: PLC0415

        rows = _Rows(recording, workload, whole=self._whole)
        fields = {}
        for name, value in zip(_names(recording, workload), rows[0], strict=True):
            if name.startswith("c") and not self._whole:
                fields[name] = RGBImageField(write_mode="jpg", jpeg_quality=JPEG_QUALITY)
            else:
                fields[name] = NDArrayField(value.dtype, value.shape)
        writer = DatasetWriter(str(path), fields, num_workers=1, page_size=PAGE_BYTES)
        writer.from_indexed_dataset(rows, chunksize=50)

    def batches(
        self, recording: Recording, workload: Workload, path: pathlib.Path, workers: int
    ) -> Iterator[Batch]:
        """Read the rows of the samples in order, one epoch at a time."""
        from ffcv.fields.decoders import NDArrayDecoder, SimpleRGBImageDecoder  # noqa: PLC0415 (as all compared packages)
        from ffcv.loader import Loader, OrderOption  # noqa: PLC0415
        from ffcv.transforms import ToTensor  # noqa: PLC0415

        names = _names(recording, workload)
        images = NDArrayDecoder if self._whole else SimpleRGBImageDecoder
        decoders = [images if name.startswith("c") else NDArrayDecoder for name in names]
        frames = workload.length if workload.kind == "window" else workload.frames
        rows = 0 if self._whole else frames
        wanted = self._walk(recording, workload)
        loader = Loader(
            str(path),
            batch_size=workload.batch * max(rows, 1),
            num_workers=workers,
            os_cache=True,
            order=OrderOption.SEQUENTIAL,
            indices=next(wanted),
            drop_last=True,
            pipelines={
                name: [decoder(), ToTensor()] for name, decoder in zip(names, decoders, strict=True)
            },
            batches_ahead=2,
        )
        while True:
            for given in loader:
                found = dict(zip(names, given, strict=True))
                yield _to_batch(found, recording, workload, rows)
            loader.traversal_order.indices = next(wanted)

    def _walk(self, recording: Recording, workload: Workload) -> Iterator[Whole]:
        """Yield the rows of one epoch after the other."""
        indices = index_batches(recording, workload)
        while True:
            epoch = itertools.islice(indices, recording.steps // workload.batch)
            steps = np.array(list(epoch)).reshape(-1)
            if self._whole:
                yield steps
                continue
            first = recording.starts[recording.episode_of[steps]]
            last = recording.lengths[recording.episode_of[steps]] - 1
            places = zip(first, last, steps - first, strict=True)
            yield np.concatenate([one + workload.frame_steps(end, at) for one, end, at in places])


def _names(recording: Recording, workload: Workload) -> list[str]:
    names = [f"c{number}" for number in range(len(recording.cameras))]
    names += [f"v{number}" for number in range(len(recording.vector_keys))]
    return names + ["is_pad"] * (workload.kind == "chunk")


class _Rows:
    """The input of FFCV's writer: a tuple per row."""

    def __init__(self, recording: Recording, workload: Workload, *, whole: bool) -> None:
        self._recording, self._workload, self._whole = recording, workload, whole
        self._read: tuple[int, dict[str, Values]] = (-1, {})

    def __len__(self) -> int:
        return self._recording.steps

    def __getitem__(self, index: int) -> tuple[Values, ...]:
        recording, workload = self._recording, self._workload
        episode, step = recording.place(index)
        if self._read[0] != episode:
            self._read = (episode, recording.read(episode))
        found = self._read[1]
        last = int(recording.lengths[episode]) - 1
        steps: Any = workload.frame_steps(last, step) if self._whole else step
        row = [found[camera][steps] for camera in recording.cameras]
        if workload.kind != "chunk":
            row += [found[key][steps] for key in recording.vector_keys]
        else:
            row += [found[key][step] for key in recording.vectors]
            taken, is_pad = workload.action_steps(last, step)
            row += [found["actions"][taken], is_pad.astype(np.uint8)]
        return tuple(np.ascontiguousarray(value) for value in row)


def _to_batch(
    found: dict[str, torch.Tensor], recording: Recording, workload: Workload, rows: int
) -> Batch:
    """Assemble samples: the rows of one are consecutive, the newest last; without rows, each is already a sample."""
    if rows:
        found = {name: values.unflatten(0, (-1, rows)) for name, values in found.items()}
    batch: Batch = {camera: found[f"c{number}"] for number, camera in enumerate(recording.cameras)}
    newest = (slice(None), -1) if rows and workload.kind == "chunk" else slice(None)
    for number, key in enumerate(recording.vector_keys):
        batch[key] = found[f"v{number}"][newest]
    if workload.kind == "chunk":
        batch["is_pad"] = found["is_pad"][newest].bool()
    return to_output(batch, recording, workload)
