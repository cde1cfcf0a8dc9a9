"""The loader: batches of samples, in the order's sequence, made ahead by threads of the core.

    loader = kinograph.numpy.Loader("lift.kino", windows={"actions": range(10)}, batch_size=16, seed=7)
    for epoch in range(10):
        for batch in loader: ...                   one epoch
    loader.state_dict()                            resume at the very next batch, on any number of ranks
    print(loader.report())                         which stage is slow, and by how much

What is a sample is said as in ``ds.windows``, which one comes when as in ``ds.order``. ``kinograph.numpy`` and
``kinograph.torch`` have it under their own arrays.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import LAST_INDEX, said_twice, to_list, to_number, to_whole, to_word
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError
from kinograph._loop import Loop
from kinograph._measured import Measured
from kinograph._normalize import Normalize, Scale, to_scales
from kinograph._order import Order, Source, Tail, to_pool
from kinograph._stream import is_number
from kinograph._windows import Windows

Layout: TypeAlias = Literal["hwc", "chw"]
OnError: TypeAlias = Literal["raise", "skip"]
ImageDtype: TypeAlias = Literal["uint8", "float32", "float16", "bfloat16"]

# Height and width of all cameras, or by key.
Sides: TypeAlias = "tuple[int, int] | Mapping[str, tuple[int, int]]"

# A batch by key: arrays, or lists of text.
_Array = TypeVar("_Array")

# What is trained on: a dataset or where it lies, windows of one, or a mixture.
Trained: TypeAlias = (
    "str | os.PathLike[str] | Dataset | Windows | Source | Sequence[Windows | Source]"
)


class BaseLoader(Measured, Generic[_Array]):
    """What the loaders of all frameworks share; only the kind of array differs."""

    def __init__(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        dataset: Trained,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        pool: float | str | None = "1GB",
        memory: int | str | None = None,
        threads: int | None = None,
        cpu: float | None = None,
        prefetch: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        uneven: bool = False,
        lanes: int = 1,
        tail: Tail = "carry",
        epoch_size: int | None = None,
        by_shard: bool = False,
        on_error: OnError = "raise",
        image_layout: Layout = "hwc",
        image_dtype: ImageDtype = "uint8",
        image_size: Sides | None = None,
        image_crop: Sides | None = None,
        random_crop: bool = False,
        normalize: Normalize | None = None,
        **request: Any,  # noqa: ANN401 (the words of `ds.windows`)
    ) -> None:
        self._rank = to_whole("rank", rank)
        self._world_size = to_whole("world_size", world_size, least=1)
        self._order = Order(
            _to_sources(dataset, request),
            batch_size=_global_batch(batch_size, global_batch_size, self._world_size),
            seed=seed,
            shuffle=shuffle,
            pool=pool if shuffle else None,
            by_shard=by_shard,
            lanes=lanes,
            tail=tail,
            epoch_size=epoch_size,
        )
        dtype = to_word("image_dtype", image_dtype, get_args(ImageDtype))
        self._scales = to_scales(
            self._order.sources, normalize, are_cameras_floats=dtype != "uint8"
        )
        if random_crop and image_crop is None:
            raise InvalidArgumentError(
                "random_crop: give `image_crop`, the size of what is cut out"
            )
        self._options = {
            "rank": self._rank,
            "world_size": self._world_size,
            "uneven": bool(uneven),
            "memory_bytes": self._to_memory(memory, pool if shuffle else None),
            "threads": _to_count("threads", threads),
            "cpu": _to_cpu(cpu),
            "depth": _to_count("prefetch", prefetch),
            "skip_errors": to_word("on_error", on_error, get_args(OnError)) == "skip",
            "layout": to_word("image_layout", image_layout, get_args(Layout)),
            "number": dtype,
            "size": _to_sides("image_size", image_size),
            "crop": _to_sides("image_crop", image_crop),
            "random_crop": bool(random_crop),
            "normal": [
                (key, scale.offset.ravel().tolist(), scale.scale.ravel().tolist())
                for key, scale in self._scales.items()
            ],
        }
        self._epoch = 0
        self._measure()
        self._start()

    @property
    def order(self) -> Order:
        """Which sample comes when."""
        return self._order

    @property
    def scales(self) -> dict[str, Scale]:
        """What each key was normalised with: ``(value - offset) / scale``, so that a policy can undo it.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8, normalize="min_max")
        >>> batch = next(iter(loader))
        >>> scale = loader.scales["actions"]
        >>> actions = batch["actions"] * scale.scale + scale.offset
        """
        return dict(self._scales)

    @property
    def epoch(self) -> int:
        """The epoch that the next ``for`` goes through."""
        return self._epoch

    def __len__(self) -> int:
        """Count the batches of the epoch that the next ``for`` goes through."""
        return len(self._order.steps(self._epoch))

    def __iter__(self) -> Iterator[dict[str, _Array]]:
        """Go through the rest of an epoch; the next ``for`` goes through the next one.

        A ``for`` that was left early is taken up where it stopped.
        """
        end = self._order.steps(self._epoch).stop
        while self._order.next_index // self._order.batch_size < end:
            asked = time.perf_counter()
            number, batch = self._take()
            self._loop.took(asked, time.perf_counter())
            self._order.next_index = (number + 1) * self._order.batch_size
            yield batch
        # Asked for the next batch, there is none: what comes until the next epoch is no part of a step.
        self._loop.end(time.perf_counter())
        self._epoch += 1

    def set_epoch(self, epoch: int) -> None:
        """Go on with the first batch of an epoch; nothing changes if that is where the loader stands."""
        before = self._order.next_index
        self._epoch = to_whole("epoch", epoch, most=LAST_INDEX)
        steps = self._order.steps(self._epoch)
        if not steps.start <= before // self._order.batch_size < steps.stop:
            self._order.set_epoch(self._epoch)
            self._start()

    def state_dict(self) -> dict[str, Any]:
        """Say which batch comes next: the same on every rank, and small."""
        return self._order.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool = False) -> None:
        """Go on with the batch that was next when the state was taken, on any number of ranks."""
        self._order.load_state_dict(state, force=force)
        self._epoch = self._order.epoch
        steps = self._order.steps(self._epoch)
        # Under `carry` a batch belongs to the epoch it starts in, an index may be of the one before.
        if self._order.next_index // self._order.batch_size >= steps.stop:
            self._epoch += 1
        self._start()

    def close(self) -> None:
        """End the threads; iterating starts them again."""
        if self._core is not None:
            self._collect()
            self._core.close()
            self._core = None

    def __enter__(self) -> BaseLoader[_Array]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # Threads stay where they are; the copy starts its own when it is iterated.
        return self.__dict__ | {"_core": None, "_loop": None, "_tracing": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._loop = Loop(self._to_clock())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self._rank} of {self._world_size}, {self._order!r})"

    def _start(self) -> _core.Loader:
        """Start anew at the order's place."""
        self.close()
        self._core = _core.Loader(self._order._core, *self._to_core())
        # As the core, it counts from here on.
        self._loop = Loop(self._to_clock())
        if self._tracing is not None:
            self._trace_with(self._tracing)
        return self._core

    def _to_core(self) -> tuple[list[list[_core.Windows]], str]:
        """Write windows and options as the core reads them, for a start at the order's place."""
        windows = [
            [source.variant(number)._core for number in range(len(source.curriculum) + 1)]
            for source in self._order.sources
        ]
        options = self._options | {
            "first_index": self._order.next_index,
            "batches": None,
            "trace": self._tracing is not None,
        }
        return windows, json.dumps(options)

    def _take(self) -> tuple[int, dict[str, _Array]]:
        """Wait for the next batch, and its number."""
        core = self._core or self._start()
        answer = core.next()
        if answer is None:
            raise closed()
        number, arrays = answer
        return number, {key: self._to_array(*array) for key, array in arrays.items()}

    def _to_memory(self, memory: int | str | None, pool: float | str | None) -> int:
        """Find the budget of decoded frames: two pools and a bit, so that the next group is ready in time."""
        if memory is not None:
            budget = to_pool(memory)
            if "bytes" not in budget:
                raise InvalidArgumentError(f"memory is {memory!r}; give bytes, such as '4GB'")
            return int(budget["bytes"])
        sizes = np.concatenate([source.windows._core.sizes() for source in self._order.sources])
        wish = {} if pool is None else to_pool(pool)
        if "episodes" in wish:
            largest = np.sort(sizes)[::-1][: int(wish["episodes"])]
            return _two_of(int(largest.sum()))
        if "fraction" in wish:
            return _two_of(int(sizes.sum() * wish["fraction"]) + int(sizes.max()))
        return _two_of(int(wish.get("bytes", 1 << 30)))

    def _to_array(self, dtype: str, shape: Sequence[int], data: Any) -> _Array:  # noqa: ANN401 (bytes or texts)
        raise NotImplementedError


def closed() -> InvalidArgumentError:
    """Say that a batch was waited for and will not come."""
    return InvalidArgumentError("the loader was closed while it was used")


def to_numpy(dtype: str, shape: Sequence[int], data: Any) -> Any:  # noqa: ANN401 (an array, or texts)
    """Make a numpy array of what the core lends, without a copy; texts become lists."""
    if dtype == "text":
        return list(data) if len(shape) > 1 else [text for (text,) in data]
    if dtype == "bfloat16":
        raise InvalidArgumentError(
            "numpy has no bfloat16; ask for float32 or float16, or use kinograph.torch"
        )
    array: npt.NDArray[Any] = data.view(np.dtype(dtype)).reshape(shape)
    return array


def to_windows(
    dataset: str | os.PathLike[str] | Dataset | Windows, request: dict[str, Any]
) -> Windows:
    """Make windows by the words of a request, or take those that are there."""
    if isinstance(dataset, Windows):
        if request:
            raise said_twice(request)
        return dataset
    if isinstance(dataset, Dataset):
        return dataset.windows(**request)
    return Dataset(dataset).windows(**request)


def _to_sources(dataset: Trained, request: dict[str, Any]) -> list[Source]:
    if isinstance(dataset, str | os.PathLike | Dataset | Windows):
        return [Source(windows=to_windows(dataset, request))]
    if request:
        raise said_twice(request)
    one = isinstance(dataset, Source)
    listed = [dataset] if one else to_list("dataset", dataset, "windows")
    # What is neither is refused by the order.
    return [Source(windows=each) if isinstance(each, Windows) else each for each in listed]  # type: ignore[misc]


def _global_batch(batch_size: int | None, global_batch_size: int | None, world_size: int) -> int:
    if (batch_size is None) == (global_batch_size is None):
        raise InvalidArgumentError(
            "give `batch_size` (samples per rank) or `global_batch_size` (of all ranks together), one of them"
        )
    if global_batch_size is not None:
        return global_batch_size
    return to_whole("batch_size", batch_size, least=1) * world_size


def _to_sides(name: str, sides: Sides | None) -> Any:  # noqa: ANN401 (a value of JSON)
    """Take height and width of all cameras, or by key; how large they may be is the core's to say."""
    if sides is None:
        return None
    if isinstance(sides, Mapping):
        return [(key, _to_pair(f"{name} of `{key}`", pair)) for key, pair in sides.items()]
    return _to_pair(name, sides)


def _to_pair(name: str, pair: object) -> list[int]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidArgumentError(f"{name} is {pair!r}; give (height, width)")
    return [to_whole(f"{name}: a side", side, least=1) for side in pair]


def _two_of(size: int) -> int:
    """Room for two groups; a tenth more, because the last episode of a group may be long."""
    return size * 22 // 10 + (1 << 20)


def _to_count(name: str, count: int | None) -> int | None:
    """Take a number of threads or batches; none is chosen by the core."""
    return None if count is None else to_whole(name, count, least=1, most=1024)


def _to_cpu(cpu: float | None) -> dict[str, float] | None:
    """Read ``0.8`` as a part of the machine, ``3`` and ``2.5`` as cores."""
    if cpu is None:
        return None
    share = to_number("cpu", cpu)
    if not 0 < share < float("inf"):
        raise InvalidArgumentError(
            f"cpu is {cpu!r}; give a part of the machine, such as 0.8, or cores, such as 3"
        )
    # A whole 1 is one core; 1.0 is all of the machine.
    is_part = share <= 1 and not is_number(cpu)
    return {"fraction" if is_part else "cores": share}
