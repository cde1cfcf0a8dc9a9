"""What the systems share: stacking and padding, the common float output, threads, and torch's DataLoader."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from contract import JPEG_QUALITY, Recording, Values, Workload, index_batches
from torch.utils.data import DataLoader

Batch = dict[str, Any]


def to_output(batch: Batch, recording: Recording, workload: Workload) -> Batch:
    """Convert uint8 [..., H, W, 3] to the workload's output, in the fastest way found in torch."""
    if workload.output == "f32":
        for camera in recording.cameras:
            moved = batch[camera].movedim(-1, -3).contiguous()
            batch[camera] = moved.float().mul_(1.0 / 255.0)
    return batch


def stack(samples: list[dict[str, Values]], recording: Recording, workload: Workload) -> Batch:
    """Stack samples into a batch in numpy; whole episodes are zero-padded."""
    lengths = [len(sample["actions"]) for sample in samples]
    batch: Batch = {}
    for key, first in samples[0].items():
        if np.ndim(first) == 0:
            batch[key] = torch.tensor([int(sample[key]) for sample in samples])
        elif workload.kind == "episode":
            shape = (len(samples), max(lengths), *first.shape[1:])
            batch[key] = torch.zeros(shape, dtype=torch.from_numpy(first[:1].copy()).dtype)
            for row, sample in enumerate(samples):
                batch[key].numpy()[row, : lengths[row]] = sample[key]
        else:
            dtype = torch.from_numpy(np.empty(1, first.dtype)).dtype
            batch[key] = torch.empty((len(samples), *first.shape), dtype=dtype)
            np.stack([sample[key] for sample in samples], out=batch[key].numpy())
    if workload.kind == "episode":
        batch["lengths"] = torch.tensor(lengths)
    return to_output(batch, recording, workload)


def in_threads(
    make: Callable[[list[int]], Batch], recording: Recording, workload: Workload, threads: int
) -> Iterator[Batch]:
    """Prefetch batches in threads of this process, in order."""
    indices = index_batches(recording, workload)
    with ThreadPoolExecutor(threads) as pool:
        ahead = deque(pool.submit(make, next(indices)) for _ in range(2 * threads))
        while True:
            batch = ahead.popleft().result()
            ahead.append(pool.submit(make, next(indices)))
            yield batch


class _Batches:
    """The index batches as a DataLoader's batch sampler."""

    def __init__(self, recording: Recording, workload: Workload) -> None:
        self._args = recording, workload

    def __iter__(self) -> Iterator[list[int]]:
        return index_batches(*self._args)

    def __len__(self) -> int:
        return 10**9


def in_workers(  # noqa: PLR0913 (the arguments of one DataLoader)
    dataset: Any,  # noqa: ANN401 (whatever a DataLoader accepts)
    recording: Recording,
    workload: Workload,
    workers: int,
    collate: Callable[[Any], Batch],
    *,
    context: str | None = None,
) -> Iterator[Batch]:
    """Make batches in worker processes of torch's DataLoader."""
    batches: Any = _Batches(recording, workload)
    return iter(
        DataLoader(
            dataset,
            batch_sampler=batches,
            num_workers=workers,
            collate_fn=collate,
            persistent_workers=True,
            prefetch_factor=2,
            multiprocessing_context=context,
        )
    )


def encode_jpeg(image: Values) -> bytes:
    """Encode like every JPEG store in this comparison."""
    import simplejpeg  # noqa: PLC0415 (only needed for building)

    return simplejpeg.encode_jpeg(
        np.ascontiguousarray(image),
        quality=JPEG_QUALITY,
        colorspace="RGB",
        colorsubsampling="420",
    )


def decode_jpeg(data: Any) -> Values:  # noqa: ANN401 (anything with bytes in it)
    """Decode with libjpeg-turbo."""
    import simplejpeg  # noqa: PLC0415 (not every system decodes this way)

    return simplejpeg.decode_jpeg(data, colorspace="RGB")


def read_as_jpeg(
    recording: Recording, episode: int
) -> tuple[dict[str, Values], dict[str, list[bytes]]]:
    """Read an episode: its vectors, and its encoded images."""
    found = recording.read(episode)
    images = {
        camera: [encode_jpeg(image) for image in found.pop(camera)] for camera in recording.cameras
    }
    return found, images
