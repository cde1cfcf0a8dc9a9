"""Batches and samples as torch tensors.

    loader = kinograph.torch.Loader("lift.kino", seq_length=10, batch_size=16, seed=7, device="cuda")
    for batch in loader:                        makes its batches with threads of its own, ahead of the training loop
        loss = policy(batch["obs/agentview_image"], batch["actions"])

    dataset = kinograph.torch.Dataset("lift.kino", seq_length=10)
    for batch in DataLoader(dataset, batch_size=16, shuffle=True, num_workers=4): ...

>>> import kinograph.torch
>>> loader = kinograph.torch.Loader(ds, windows={"actions": range(10)}, batch_size=16, seed=7)
>>> batch = next(iter(loader))
>>> batch["actions"].shape, batch["actions_is_pad"].dtype
(torch.Size([16, 10, 7]), torch.bool)
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from kinograph import _core, _dataset
from kinograph._ahead import Batch, Send
from kinograph._errors import InvalidArgumentError
from kinograph._gpu_decode import most_memory, nvjpeg_folders
from kinograph._loader import BaseLoader, stack, to_numpy, to_samples
from kinograph._loop import Clock
from kinograph._report import Report
from kinograph._samples import Samples, WindowSpec
from kinograph._send import Sent

try:
    import torch
    from torch.utils import data as torch_data
    from torch.utils.dlpack import from_dlpack
except ImportError as error:
    raise ImportError(
        "torch is not installed; run `pip install torch`, or use kinograph.numpy.Loader, which needs only NumPy"
    ) from error

__all__ = ["Dataset", "Loader", "Report"]

# DLPack's number of the kind of device.
_DLPACK_CUDA = 2

# What `torch.cuda.current_stream` and `from_dlpack` end in, if they are there: a function of Python costs the training loop more,
# because after a step nothing of it is in the caches.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_to_tensor_of = getattr(torch._C, "_from_dlpack", from_dlpack)


class Loader(BaseLoader[Any, "str | int | torch.device"], torch_data.IterableDataset):  # type: ignore[misc, unused-ignore]
    """Batches of torch tensors; each ``for`` is one epoch.

    >>> loader = kinograph.torch.Loader("lift.kino", seq_length=10, keys=["actions", "obs/joints"], batch_size=16)
    >>> len(loader)
    6
    >>> loader.set_epoch(3)
    >>> next(iter(loader))["obs/joints"].shape
    torch.Size([16, 10, 7])

    Tensors share the loader's memory without a copy, and stay valid for as long as you keep them.

    ``rank`` and ``world_size`` default to those of ``torch.distributed`` if it is initialised, and ``batch_size`` is per
    rank, as everywhere in torch. To resume on another number of ranks, give ``global_batch_size`` instead.

    With ``device="cuda"`` two batches are on their way to the GPU while one is trained on, copied by the core from
    page-locked memory. Their memory is reused once you dropped the tensors and the stream that was current when you took
    the batch is done with them. No ``DataLoader`` is needed around it; if a framework requires one, give it ``batch_size=None`` and no workers.
    """

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        place: torch.device = self._device
        return place

    def _to_device(self, device: str | int | torch.device | None) -> torch.device:
        return _to_device(device)

    def _known_ranks(self) -> tuple[int, int]:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def _start(self) -> _core.Loader:
        self._check_worker()
        return super()._start()

    def _check_process(self) -> None:
        # Also a worker that was forked with a core.
        self._check_worker()
        super()._check_process()

    def _check_worker(self) -> None:
        worker = torch_data.get_worker_info()
        if worker is not None:
            # It would work, and go wrong later: neither the epoch nor the place for a restart would reach the process
            # that trains.
            raise InvalidArgumentError(
                f"a loader is used in worker {worker.id} of a DataLoader; it has threads of its own: give the DataLoader "
                "num_workers=0, iterate over the loader itself, or use kinograph.torch.Dataset, which is made for workers"
            )

    def _to_clock(self) -> Clock | None:
        return CudaClock(self._device) if self._device.type == "cuda" else None

    def _to_send(self) -> Send | None:
        return _Transfer(self._device) if self._device.type == "cuda" else None

    def _to_sent(self, core: _core.Loader) -> Sent | None:
        # PyTorch for AMD says "cuda" too; its driver is another.
        if self._device.type != "cuda" or torch.version.hip is not None:
            return None
        jpeg = None if self._decode == "cpu" else nvjpeg_folders()
        device = (_DLPACK_CUDA, self._device.index, _stream_of(self._device), _to_tensor_of)
        return Sent(_core.CudaSender(core, device, self._fixed, jpeg))

    def _check_decode(self, *, has_transforms: bool) -> None:
        if self._device.type != "cuda" or torch.version.hip is not None:
            super()._check_decode(has_transforms=has_transforms)
        if has_transforms:
            raise InvalidArgumentError(
                f'decode="{self._decode}" cannot be combined with transforms, which take batches on the CPU; transform the batch '
                "on the GPU instead"
            )

    def _most_memory(self) -> int | None:
        return None if self._decode == "cpu" else most_memory(torch, self._device)

    def _to_fixed(self) -> _core.FixedBatches:
        return _core.FixedBatches() if self._device.type == "cuda" else super()._to_fixed()

    @staticmethod
    def _to_host(dtype: str, shape: Sequence[int], data: Any) -> Any:  # noqa: ANN401 (bytes or texts)
        return _to_tensor(dtype, shape, data)

    @staticmethod
    def _stack(values: list[Any]) -> Any:  # noqa: ANN401 (a tensor, or a list)
        if all(isinstance(value, torch.Tensor) for value in values):
            return torch.stack(values)
        return to_tensor(stack(values))

    def _from_host(self, array: Any) -> Any:  # noqa: ANN401 (a tensor, or texts)
        return array.to(self._device) if isinstance(array, torch.Tensor) else array

    def _moves(self) -> bool:
        return bool(self._device.type != "cpu")


class Dataset(torch_data.Dataset):  # type: ignore[misc, unused-ignore]
    """Samples by index, for an existing ``DataLoader``: takes the options of ``ds.samples``, or samples.

    >>> dataset = kinograph.torch.Dataset("lift.kino", windows={"actions": range(10)})
    >>> len(dataset), dataset[3]["actions"].shape
    (90, torch.Size([10, 7]))
    >>> from torch.utils.data import DataLoader
    >>> next(iter(DataLoader(dataset, batch_size=16, shuffle=True)))["actions"].shape
    torch.Size([16, 10, 7])

    Each sample is decoded alone, so this costs more than a :class:`Loader`, which decodes a frame once for all samples
    that need it.
    """

    def __init__(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        dataset: str | os.PathLike[str] | _dataset.Dataset | Samples,
        *,
        windows: Mapping[str, WindowSpec] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        seq_length: int | None = None,
        anchor: str | float | None = None,
        split: str | Sequence[str] | None = None,
    ) -> None:
        """Open the samples; ``ds.samples(...)`` has more options than these.

        :param dataset: A path, a dataset, or samples (``ds.samples(...)``)
        :param windows: As for a loader
        :param delta_timestamps: As for a loader
        :param seq_length: As for a loader
        :param anchor: As for a loader
        :param split: As for a loader
        """
        request = {
            "windows": windows,
            "delta_timestamps": delta_timestamps,
            "seq_length": seq_length,
            "anchor": anchor,
            "split": split,
        }
        self._samples = to_samples(
            dataset, {name: value for name, value in request.items() if value is not None}
        )

    @property
    def samples(self) -> Samples:
        """What is read from."""
        return self._samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """Read one sample."""
        return {key: to_tensor(field) for key, field in self._samples[index].items()}

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        """Read the samples of a batch; ``DataLoader`` asks for them in one call."""
        return [self[index] for index in indices]

    def __repr__(self) -> str:
        return f"Dataset({self._samples!r})"


def _stream_of(device: torch.device) -> Callable[[], int]:
    """Make what returns the handle of the stream that the thread that asks works with."""
    if _raw_stream is not None:
        return functools.partial(_raw_stream, device.index)
    return lambda: int(torch.cuda.current_stream(device).cuda_stream)


def to_tensor(field: Any) -> Any:  # noqa: ANN401 (an array, or texts)
    """Make a tensor of an array, without a copy; texts stay what they are."""
    return torch.from_numpy(field) if isinstance(field, np.ndarray) else field


class CudaClock:
    """A GPU's own clock: a mark is an event on the stream that computes, and is past when the GPU has come to it."""

    name = "cuda"

    def __init__(self, device: object, stream: torch.cuda.Stream | None = None) -> None:
        self._device = torch.device(device)  # type: ignore[arg-type, unused-ignore]
        self._stream = stream

    def mark(self) -> torch.cuda.Event:
        """Put an event behind what was asked for until now."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream or torch.cuda.current_stream(self._device))
        return event

    def is_past(self, mark: torch.cuda.Event) -> bool:
        """Look, without waiting."""
        return bool(mark.query())

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Take the difference, which the GPU has in milliseconds."""
        return float(start.elapsed_time(end)) / 1e3


class _Transfer:
    """Copies batches to a GPU on a stream of its own.

    Three things must not be used too early, and each has one guard:

        pinned memory    by the next batch: torch's allocator waits for the copies it took part in
        the tensor       by the training loop: its stream waits for the event behind the copies
        GPU memory       by the next batch: `record_stream` keeps it from the copying stream until the loop's is done

    Its clock is that of the copying stream: a batch takes from the start of its first copy, or of pinning what is copied
    first, to the end of its last.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self.clock: Clock | None = CudaClock(device, self._stream)

    def __call__(self, batch: Batch) -> Callable[[], Batch]:
        with torch.cuda.stream(self._stream):
            sent = {key: self._send(field) for key, field in batch.items()}
            copied = self._stream.record_event()
        return lambda: self._arrive(sent, copied)

    def _send(self, field: Any) -> Any:  # noqa: ANN401 (a tensor, or texts)
        if not isinstance(field, torch.Tensor):
            return field
        return field.pin_memory().to(self._device, non_blocking=True)

    def _arrive(self, batch: Batch, copied: torch.cuda.Event) -> Batch:
        # That of the thread that trains: this runs there.
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copied)
        for field in batch.values():
            if isinstance(field, torch.Tensor):
                field.record_stream(stream)
        return batch


def _to_tensor(dtype: str, shape: Sequence[int], data: Any) -> Any:  # noqa: ANN401 (bytes or texts)
    """Make a tensor of what the core lends, without a copy."""
    if dtype == "bfloat16":
        return torch.from_numpy(to_numpy("int16", shape, data)).view(torch.bfloat16)
    return to_tensor(to_numpy(dtype, shape, data))


def _to_device(device: str | int | torch.device | None) -> torch.device:
    try:
        place = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(f"device is {device!r}: {error}") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InvalidArgumentError(
            f"device is {device!r}, and torch finds no GPU; leave it out, or install torch with CUDA"
        )
    if place.type == "cuda" and place.index is None:
        # The thread that copies has a current device of its own.
        return torch.device("cuda", torch.cuda.current_device())
    return place
