"""A torch ``DataLoader`` with stages taken away, for the doctor.

    worker: __getitem__ ──► collate_fn ──► queue ──► training process
            └ ready="items": the first   └ ready="batches": the first
              items, again and again       batch, again and again

Every run has a clone: the loader itself is never iterated, and ``__getitem__`` runs where it runs in training. A file that
a dataset opens in a worker is not opened in the training process, from which later workers would be forked.

Imported only for a ``DataLoader``, so torch is there.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import data as torch_data

from kinograph._errors import InvalidArgumentError
from kinograph._trial import Made, Trial

# As many batches of indices are drawn from the sampler, at most.
_DRAWN = 4096


class DataLoaderSubject:
    """A ``DataLoader``, which can be run with stages taken away."""

    def __init__(self, loader: torch_data.DataLoader[Any]) -> None:
        self._loader = loader
        self.is_map_style = not isinstance(loader.dataset, torch_data.IterableDataset)
        self.num_workers: int = loader.num_workers
        self._drawn: list[Any] = []
        if self.is_map_style:
            self._drawn = _draw(loader)
            if not self._drawn:
                raise InvalidArgumentError(
                    "the DataLoader has no batches; check its dataset and sampler"
                )

    @property
    def samples(self) -> int | None:
        """Samples per batch; ``None`` if the dataset makes the batches."""
        if self._loader.batch_size is not None:
            return int(self._loader.batch_size)
        is_batched = self._drawn and self._loader.batch_sampler is not None
        return len(self._drawn[0]) if is_batched else None

    @property
    def drawn(self) -> int | None:
        """How many different batches there are; ``None`` if the dataset decides."""
        return len(self._drawn) or None

    def setting(self) -> dict[str, Any]:
        """Describe the loader."""
        loader = self._loader
        return {
            "loader": f"{type(loader).__name__} over {type(loader.dataset).__name__}",
            "kind": "map_style" if self.is_map_style else "iterable_style",
            "batch": self.samples,
            "epoch_batches": _len(loader),
            "num_workers": loader.num_workers,
            "prefetch_factor": loader.prefetch_factor,
            "pin_memory": bool(loader.pin_memory),
            "persistent_workers": bool(loader.persistent_workers),
        }

    def can_halve(self) -> bool:
        """Whether a batch of half the samples can be asked for."""
        return (self.samples or 0) >= 2

    def batches(self, trial: Trial) -> Generator[tuple[Any, Made | None], None, None]:
        """Run a clone of the loader without end; closing the iterator ends its workers."""
        with warnings.catch_warnings():
            # Whether more workers than cores help is what is being measured.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            batches = iter(self._clone(trial))
        try:
            yield from batches
        finally:
            shut_down = getattr(batches, "_shutdown_workers", None)
            if shut_down is not None:
                shut_down()

    def _clone(self, trial: Trial) -> torch_data.DataLoader[Any]:
        loader = self._loader
        workers = loader.num_workers if trial.num_workers is None else trial.num_workers
        pin = loader.pin_memory if trial.pin_memory is None else trial.pin_memory
        options: dict[str, Any] = {
            "num_workers": workers,
            "collate_fn": _Collate(loader.collate_fn, trial.ready == "batches", workers > 0),
            # torch warns about pinning without an accelerator, and does not pin.
            "pin_memory": pin and torch.cuda.is_available(),
            "worker_init_fn": loader.worker_init_fn,
        }
        if workers:
            options |= {
                "timeout": loader.timeout,
                "multiprocessing_context": loader.multiprocessing_context,
                "prefetch_factor": loader.prefetch_factor,
            }
        if self.is_map_style:
            items = _Items(loader.dataset, trial.ready is not None)
            first = trial.first % len(self._drawn)
            if trial.batches is not None:
                drawn = itertools.islice(itertools.cycle(self._drawn), first, first + trial.batches)
                order = _Order(list(drawn), trial.is_half)
            else:
                order = _Order(self._drawn[first:] + self._drawn[:first], trial.is_half)
            if loader.batch_sampler is None:
                return torch_data.DataLoader(items, batch_size=None, sampler=order, **options)
            return torch_data.DataLoader(items, batch_sampler=order, **options)
        stream = _Stream(loader.dataset, trial.ready is not None)
        size = loader.batch_size
        if trial.is_half and size is not None:
            size //= 2
        return torch_data.DataLoader(stream, batch_size=size, **options)


class _Order:
    """Batches of indices, again and again."""

    def __init__(self, drawn: list[Any], is_half: bool) -> None:
        self._drawn = [part[: max(len(part) // 2, 1)] for part in drawn] if is_half else drawn

    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(self._drawn)


class _Snapshot(NamedTuple):
    wall_s: float
    cpu_s: float
    queued_s: float

    @classmethod
    def now(cls) -> _Snapshot:
        return cls(time.perf_counter(), time.process_time(), _queued_s())


class _Meter:
    """What making a batch took, in the process that made it."""

    def __init__(self) -> None:
        self._began: _Snapshot | None = None
        self._items = (0.0, 0.0)
        self._cpu_s = time.process_time()
        self._read = _read_bytes()

    def begin(self) -> None:
        """Start with the first item of a batch."""
        if self._began is None:
            self._began = _Snapshot.now()

    def got_items(self) -> float:
        """Stop after the last item of a batch; returns when that was."""
        end = _Snapshot.now()
        began = self._began or end
        wall_s = end.wall_s - began.wall_s
        # Threads of the dataset compute too, so this is the CPU time of the whole process.
        busy_s = end.cpu_s - began.cpu_s + end.queued_s - began.queued_s
        blocked_s = max(wall_s - busy_s, 0.0)
        self._items = (blocked_s, wall_s - blocked_s)
        self._began = None
        return end.wall_s

    def made(self, collate_s: float) -> Made:
        """Sum up, after a batch has been collated."""
        cpu_s, read = time.process_time(), _read_bytes()
        made = Made(*self._items, collate_s, cpu_s - self._cpu_s, read - self._read, os.getpid())
        self._cpu_s, self._read = cpu_s, read
        return made


# One per process: the dataset and `collate_fn` of a loader are called by the same one.
_meters: dict[int, _Meter] = {}


def _meter() -> _Meter:
    return _meters.setdefault(os.getpid(), _Meter())


class _Items:
    """A map-style dataset that is timed, or returns its first items again and again."""

    def __init__(self, dataset: Any, is_ready: bool) -> None:  # noqa: ANN401 (anything with items)
        self._dataset = dataset
        self._is_ready = is_ready
        self._kept: list[Any] = []

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (the dataset's)
        _meter().begin()
        if self._kept:
            return self._kept[0]
        item = self._dataset[index]
        if self._is_ready:
            self._kept = [item]
        return item

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        _meter().begin()
        if self._kept:
            return [self._kept[at % len(self._kept)] for at in range(len(indices))]
        together = getattr(self._dataset, "__getitems__", None)
        items = together(indices) if together else [self._dataset[index] for index in indices]
        if self._is_ready:
            self._kept = list(items)
        return list(items)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the dataset has)
        return _forward(self, name)


class _Stream(torch_data.IterableDataset):  # type: ignore[misc, unused-ignore]
    """An iterable-style dataset that is timed, without end, or returns its first items again and again."""

    # As many items are kept.
    _MOST = 64

    def __init__(self, dataset: Any, is_ready: bool) -> None:  # noqa: ANN401 (anything iterable)
        self._dataset = dataset
        self._is_ready = is_ready

    def __iter__(self) -> Iterator[Any]:
        kept: list[Any] = []
        while True:
            items, count = iter(self._dataset), 0
            while True:
                _meter().begin()
                try:
                    item = next(items)
                except StopIteration:
                    break
                count += 1
                if self._is_ready:
                    kept.append(item)
                    if len(kept) >= self._MOST:
                        break
                yield item
            if kept:
                while True:
                    for item in kept:
                        _meter().begin()
                        yield item
            if not count:
                return

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the dataset has)
        return _forward(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        # A `worker_init_fn` may tell the dataset of its worker which part to read.
        target = self if name.startswith("_") else self._dataset
        object.__setattr__(target, name, value)


def _forward(wrapper: Any, name: str) -> Any:  # noqa: ANN401
    if name.startswith("_"):
        # `_dataset` itself may not exist yet, while it is unpickled.
        raise AttributeError(name)
    return getattr(wrapper._dataset, name)


class _Collate:
    """A ``collate_fn`` that is timed, or returns its first batch again and again."""

    def __init__(self, collate: Callable[[Any], Any], is_ready: bool, is_passed: bool) -> None:
        self._collate = collate
        self._is_ready = is_ready
        self._is_passed = is_passed
        self._kept: list[Any] = []

    def __call__(self, items: Any) -> tuple[Any, Made]:  # noqa: ANN401 (the dataset's)
        meter = _meter()
        began = meter.got_items()
        if self._kept:
            batch = _to_pass(self._kept[0]) if self._is_passed else self._kept[0]
        else:
            batch = self._collate(items)
            if self._is_ready:
                self._kept.append(batch)
        return batch, meter.made(time.perf_counter() - began)


def _to_pass(batch: Any) -> Any:  # noqa: ANN401 (a batch of any form)
    """Copy the tensors of a batch to new shared memory, as collating does; what is shared already costs nothing to pass."""
    if isinstance(batch, torch.Tensor):
        copied = torch.empty(0, dtype=batch.dtype)
        copied.set_(torch.UntypedStorage._new_shared(batch.nbytes))
        return copied.resize_(batch.shape).copy_(batch)
    if isinstance(batch, Mapping):
        return {key: _to_pass(value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_to_pass(value) for value in batch]
    return batch


def _draw(loader: torch_data.DataLoader[Any]) -> list[Any]:
    """Draw the batches of an epoch from a copy of the sampler, because a sampler may count them."""
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    # Everything but the dataset, which may be large, and which some samplers keep.
    dataset = loader.dataset
    # A sampler that cannot be copied is used as it is.
    with contextlib.suppress(Exception):
        sampler = copy.deepcopy(sampler, {id(dataset): dataset})
    drawn = itertools.islice(iter(sampler), _DRAWN)
    return [list(part) if isinstance(part, tuple) else part for part in drawn]


def _len(loader: torch_data.DataLoader[Any]) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _queued_s() -> float:
    """Seconds that this thread has waited for a core, where Linux counts them."""
    try:
        text = pathlib.Path("/proc/thread-self/schedstat").read_text("ascii")
        return int(text.split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _read_bytes() -> int:
    """Bytes that this process has read from storage, where Linux counts them."""
    try:
        lines = pathlib.Path("/proc/self/io").read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))
    except (OSError, IndexError, ValueError, StopIteration):
        return 0
