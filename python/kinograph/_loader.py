"""The loader: batches of samples, in the order's sequence, made ahead by threads of the core.

    loader = kinograph.numpy.Loader("lift.kino", windows={"actions": range(10)}, batch_size=16, seed=7)
    for epoch in range(10):
        for batch in loader: ...                   one epoch, from its first batch on
    loader.state_dict()                            resume at the very next batch, on any number of ranks
    print(loader.report())                         which stage is slow, and by how much

Samples are defined as in ``ds.samples`` and ordered as in ``ds.order``. ``kinograph.numpy``, ``kinograph.torch`` and
``kinograph.jax`` differ only in the arrays they return.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._ahead import Send
from kinograph._arguments import LAST_INDEX, said_twice, to_bytes, to_list, to_whole, to_word
from kinograph._augment import warn_of_flip
from kinograph._dataset import Dataset
from kinograph._errors import InvalidArgumentError, closed, forked
from kinograph._gpu_decode import Decode
from kinograph._lengths import LengthOrder
from kinograph._loader_options import (
    Images,
    OnError,
    VectorDtype,
    check_names,
    dtype_name,
    global_batch,
    to_count,
    to_cpu,
    to_images,
)
from kinograph._loop import Loop
from kinograph._normalize import Normalize, Scale, is_camera, to_scales
from kinograph._order import LastBatch, Order, Source
from kinograph._parity import Parity, of_loader
from kinograph._quality import ShuffleQuality, find_quality, local_ranks
from kinograph._samples import Include, Masks, Samples, WindowSpec
from kinograph._send import Sent
from kinograph._shuffle import ShuffleSpec
from kinograph._threaded import Hosted, Threaded
from kinograph._transform import Places, Transform, Transforms
from kinograph._variants import Variants
from kinograph._walk import EpisodeWalk, SampleWalk, Walk

if TYPE_CHECKING:
    from typing_extensions import Self

# A batch by key: arrays, or lists of text.
_Array = TypeVar("_Array")
# Where batches go; nowhere else for numpy.
_Device = TypeVar("_Device")

# What is trained on: a dataset, samples of one, whole episodes, or a mixture of several, which may have weights.
Part: TypeAlias = "str | os.PathLike[str] | Dataset | Samples"
Trained: TypeAlias = "Part | Source | LengthOrder | Sequence[Part | Source | tuple[Part, float]]"


class _Turn:
    """One ``for`` over a loader: its epoch, and the batches it has still to hand out."""

    __slots__ = ("__weakref__", "epoch", "steps")

    def __init__(self, epoch: int, steps: range) -> None:
        self.epoch = epoch
        self.steps = steps


class BaseLoader(Threaded, Generic[_Array, _Device]):
    """What the loaders of all frameworks share; only the kind of array differs."""

    # The process whose threads the core has; none before it starts.
    _process = 0

    def __new__(cls, *args: object, **options: object) -> Self:
        """Refuse unknown options with what to use instead, before ``__init__`` would without."""
        check_names(cls, options, positional=len(args))
        return super().__new__(cls)

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        # `inspect` would take the signature of `__new__`.
        signature = inspect.signature(cls.__init__)
        without_self = list(signature.parameters.values())[1:]
        cls.__signature__ = signature.replace(parameters=without_self)  # type: ignore[attr-defined]

    def __init__(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        dataset: Trained,
        *,
        windows: Mapping[str, WindowSpec] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        seq_length: int | None = None,
        frame_stack: int | None = None,
        anchor: str | float | None = None,
        keys: Sequence[str] | None = None,
        include: Sequence[Include] | None = None,
        masks: Masks | None = None,
        variants: Variants | None = None,
        split: str | Sequence[str] | None = None,
        episodes: Iterable[int | str] | None = None,
        filter: str | None = None,  # noqa: A002 (as for the episode table)
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        shuffle: ShuffleSpec = True,
        seed: int = 0,
        last_batch: LastBatch | None = None,
        drop_last: bool | None = None,
        epoch_size: int | None = None,
        images: Images | Mapping[str, Any] | None = None,
        normalize: Normalize | None = None,
        dtype: VectorDtype | None = None,
        transform: Transform | None = None,
        batch_transform: Transform | None = None,
        transform_threads: int = 1,
        memory: int | str | None = None,
        threads: int | None = None,
        cpu: float | str | None = None,
        prefetch: int | None = None,
        decode: Decode = "cpu",
        on_error: OnError = "raise",
        rank: int | None = None,
        world_size: int | None = None,
        uneven: bool = False,
        device: _Device | None = None,
        fixed_addresses: bool = False,
    ) -> None:
        """Start the threads of a loader.

        What a sample is, as in :meth:`kinograph.Dataset.samples`, if ``dataset`` is not a list of samples already:

        :param dataset: A path, a dataset, samples (``ds.samples(...)``), whole episodes (a :class:`kinograph.LengthOrder`), or a list
            of datasets or samples to mix: ``[("a.kino", 0.8), ("b.kino", 0.2)]``
        :param windows: Frames of each stream: seconds around the anchor (floats), or the stream's own frames (ints)
        :param delta_timestamps: The same in LeRobot's terms, instead of ``windows``
        :param seq_length: The same in robomimic's terms, instead of ``windows``
        :param frame_stack: Observations up to the anchor, with ``seq_length``
        :param anchor: The stream whose frames are the samples, or a rate in Hz
        :param keys: Streams to read, with ``delta_timestamps`` or ``seq_length``
        :param include: More keys: ``"task"``, ``"episode"``, ``"frame"``, ``"sample"``
        :param masks: How padding is marked: ``"is_pad"`` (default), ``"pad_mask"``, ``"octo"``, ``"act"`` or ``"off"``
        :param variants: The encoding to read of a stream that has several: ``{"wrist": "small"}``, or by epoch ``{"wrist": {0: "small", 5: None}}``
        :param split: Only episodes of this split, or of these
        :param episodes: Only these episodes, by index or id
        :param filter: Only episodes that meet a condition, such as ``"success and frames >= 100"``

        Which sample comes when:

        :param batch_size: Samples per batch, on each rank
        :param global_batch_size: Samples per batch over all ranks; give it instead of batch_size to keep the same batches on any number of ranks
        :param shuffle: True mixes enough episodes for a good shuffle, "global" mixes all samples, False keeps the order of the dataset, and kinograph.Shuffle(...) says how many episodes to mix at a time
        :param seed: Seed of the order, of augmentation and of transforms
        :param last_batch: What to do if an epoch does not end with a full batch: deliver a short one, drop it, fill it from the next epoch, or repeat samples
        :param drop_last: PyTorch's name: True is last_batch="drop", False is last_batch="short"
        :param epoch_size: Samples per epoch of a mixture

        What a batch holds:

        :param images: Size, crop, layout and dtype of images: :class:`kinograph.Images`
        :param normalize: Normalize by the dataset's statistics: "mean_std" or "min_max" for all floats, or a dict by key; the result is float32
        :param dtype: The dtype of float64 and float16 vectors: "float32", or None to keep them as stored

        :param transform: A function of a sample, a dict by key, that returns one; it may take a seeded generator as `rng`
        :param batch_transform: The same of a batch, after its samples are transformed and stacked

        How the loader works:

        :param transform_threads: Threads that run transforms
        :param memory: Memory for decoded frames, of all ranks on this host together
        :param threads: Threads that decode
        :param cpu: CPU limit of all threads together, in cores (2.5) or as a percentage ("50%")
        :param prefetch: Batches made ahead of the training loop
        :param decode: What decodes JPEG images and video for a CUDA device: "cpu", "gpu" (nvJPEG, NVDEC), or "auto", the CPU and, if the training loop waits, the GPU too
        :param on_error: Raise if a sample cannot be read, or skip it and deliver another one in its place
        :param rank: This rank
        :param world_size: Number of ranks
        :param uneven: Allow a number of ranks that does not divide the global batch; slices then differ by one sample
        :param device: Where batches go
        :param fixed_addresses: Put every batch at the same addresses of the CUDA device, for CUDA graphs: a batch is valid until the next one is requested
        """
        self._device = self._to_device(device)
        self._decode = to_word("decode", decode, get_args(Decode))
        if self._decode != "cpu":
            self._check_decode(has_transforms=(transform, batch_transform) != (None, None))
        self._fixed = self._to_fixed() if fixed_addresses else None
        if self._fixed is not None and (transform, batch_transform) != (None, None):
            raise InvalidArgumentError(
                "`fixed_addresses` cannot be combined with transforms, whose tensors are wherever they make them; transform the "
                "batch on the GPU instead"
            )
        if self._fixed is not None and isinstance(dataset, LengthOrder):
            raise InvalidArgumentError(
                "`fixed_addresses` needs batches of one shape; whole episodes differ in length"
            )
        self._rank, self._world_size = self._to_ranks(rank, world_size)
        request = {
            "windows": windows,
            "delta_timestamps": delta_timestamps,
            "seq_length": seq_length,
            "frame_stack": frame_stack,
            "anchor": anchor,
            "keys": keys,
            "include": include,
            "masks": masks,
            "variants": variants,
            "split": split,
            "episodes": episodes,
            "filter": filter,
        }
        given = {name: value for name, value in request.items() if value is not None}
        self._whole: LengthOrder | None = None
        if isinstance(dataset, LengthOrder):
            ordering = {
                "batch_size": batch_size,
                "global_batch_size": global_batch_size,
                "shuffle": None if shuffle is True else shuffle,
                "seed": seed or None,
                "last_batch": last_batch,
                "drop_last": drop_last,
                "epoch_size": epoch_size,
            }
            _check_whole({**given, **ordering})
            self._whole = dataset
            # What stays in memory, and what stands in for damaged episodes, follows this one.
            self._order = dataset._as_order()
            self._walk: Walk = EpisodeWalk(dataset, self._rank, self._world_size)
        else:
            self._order = Order(
                _to_sources(dataset, given),
                batch_size=global_batch(batch_size, global_batch_size, self._world_size),
                shuffle=shuffle,
                seed=seed,
                last_batch=last_batch,
                drop_last=drop_last,
                epoch_size=epoch_size,
            )
            self._walk = SampleWalk(self._order)
        image_options = to_images(images)
        if image_options != Images():
            _check_images(self._order.sources)
        if image_options.random_flip is not None and transform is None and batch_transform is None:
            warn_of_flip()
        self._scales = to_scales(
            self._order.sources, normalize, are_cameras_floats=image_options.dtype != "uint8"
        )
        self._options: dict[str, Any] = {
            "rank": self._rank,
            "world_size": self._world_size,
            "uneven": bool(uneven),
            "images": image_options._to_json(),
            "scales": [
                (
                    key,
                    {
                        "offset": scale.offset.ravel().tolist(),
                        "scale": scale.scale.ravel().tolist(),
                    },
                )
                for key, scale in self._scales.items()
            ],
            "dtype": None
            if dtype is None
            else to_word("dtype", dtype_name(dtype), get_args(VectorDtype)),
            "memory": None if memory is None else to_bytes("memory", memory, least=1),
            "threads": to_count("threads", threads),
            "cpu": to_cpu(cpu),
            "prefetch": to_count("prefetch", prefetch),
            "decode": self._decode,
            "on_error": to_word("on_error", on_error, get_args(OnError)),
        }
        self._given = (transform, batch_transform)
        self._transform_threads = to_whole(
            "transform_threads", transform_threads, least=1, most=1024
        )
        # Refused now if they are not callable.
        self._to_transforms()
        self._measure()
        self._quality = find_quality(self._order, *self._to_core())
        most = self._most_memory()
        if memory is None and most is not None and most < self._quality.memory:
            self._options["memory"] = most
            self._quality = find_quality(self._order, *self._to_core())
        self._options["memory"] = max(1, self._quality.memory // local_ranks())
        self._quality.warn()
        # What the next `for` goes through, and whether from the order's place on instead of from its first batch.
        self._next_epoch = 0
        self._is_resumed = False
        # The `for` that goes on. It keeps its turn alive, so one that was left is forgotten.
        self._turn: weakref.ref[_Turn] | None = None
        # Who begins a turn or takes a batch: threads that share a loader get an error, never each other's batches.
        self._taking = threading.Lock()
        # Whether the core stands elsewhere than the order.
        self._is_lost = False
        self._start()

    @property
    def order(self) -> Order:
        """Which sample comes when."""
        if self._whole is not None:
            raise InvalidArgumentError(
                "this loader has batches of whole episodes; their order is `loader.length_order`"
            )
        return self._order

    @property
    def length_order(self) -> LengthOrder | None:
        """Which whole episodes come when, if batches are of whole episodes."""
        return self._whole

    @property
    def quality(self) -> ShuffleQuality:
        """How well the shuffle mixes, how often frames are decoded, and how much memory that takes."""
        return self._quality

    @property
    def scales(self) -> dict[str, Scale]:
        """What each key was normalised with: ``(value - offset) / scale``, so that a policy can undo it.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8, normalize="min_max")
        >>> batch = next(iter(loader))
        >>> scale = loader.scales["actions"]
        >>> actions = batch["actions"] * scale.scale + scale.offset
        """
        return dict(self._scales)

    def parity(self, *, reference: bool = True) -> Parity:
        """Make the transform that turns live frames into what this loader delivers, see :class:`kinograph.Parity`.

        Every option of the loader takes part: size, crop (of the centre), layout, dtype and normalisation.

        >>> images = kinograph.Images(layout="chw", dtype="float32")
        >>> loader = kinograph.numpy.Loader(ds, windows={"obs/agentview_image": [0]}, batch_size=8, images=images)
        >>> parity = loader.parity()
        >>> parity["obs/agentview_image"](ds[0]["obs/agentview_image"][0]).shape
        (3, 32, 24)

        :param reference: Also look at training frames, for :func:`kinograph.check_deployment` without the dataset
        """
        return of_loader(self, reference=reference)

    @property
    def epoch(self) -> int:
        """The epoch that is being iterated over, or else the one that the next ``for`` goes through."""
        turn = None if self._turn is None else self._turn()
        return self._next_epoch if turn is None else turn.epoch

    def __len__(self) -> int:
        """Count the batches of an epoch; with ``last_batch="wrap"`` of this one, they differ by one."""
        return self._walk.count(self.epoch)

    def __iter__(self) -> Iterator[dict[str, _Array]]:
        """Iterate over one epoch, as a torch ``DataLoader`` does; each ``for`` is the next epoch from its first batch.

        That holds however the ``for`` before ended: ``break``, ``islice`` and errors too. Only the first ``for`` after
        ``load_state_dict`` starts in the middle of an epoch. A new iterator invalidates the one before: using that again is
        an error.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> for batch in loader:
        ...     break
        >>> sum(1 for batch in loader) == len(loader.order.steps(1))
        True
        """
        self._check_process()
        with self._taking:
            turn = self._begin()
        while turn.steps:
            if not self._taking.acquire(blocking=False):
                # Another thread takes a batch; if it is one of the process that this one was forked from, for ever.
                self._check_process()
                self._taking.acquire()
            try:
                batch = self._hand_out(turn)
            finally:
                self._taking.release()
            yield batch
        if self._turn is not None and self._turn() is turn:
            # Asked for the next batch, there is none: the time until the next epoch is not part of a step.
            self._loop.end(time.perf_counter())
            self._turn = None

    def set_epoch(self, epoch: int) -> None:
        """Make the next ``for`` iterate over this epoch; a place in it that ``load_state_dict`` set is kept."""
        wanted = to_whole("epoch", epoch, most=LAST_INDEX)
        if self._is_resumed and wanted == self._next_epoch:
            return
        self._next_epoch, self._is_resumed, self._turn = wanted, False, None
        if self._walk.set_epoch(wanted) or self._is_lost:
            self._start()

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the last batch that was returned: small, and the same on every rank."""
        return self._walk.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool = False) -> None:
        """Make the next ``for`` resume with the batch that was next when the state was taken, on any number of ranks."""
        self._next_epoch = self._walk.load_state_dict(state, force=force)
        self._is_resumed, self._turn = True, None
        if self._whole is not None:
            # With the seed of the state, if it was forced.
            self._order = self._whole._as_order()
        self._start()

    def close(self) -> None:
        """End the threads; iterating starts them again."""
        super().close()
        if self._core is not None:
            self._core.close()
            self._core = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {
            "_core": None,
            "_loop": None,
            "_tracing": None,
            "_turn": None,
            "_taking": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._taking = threading.Lock()
        self._loop = Loop(self._to_clock())

    def __repr__(self) -> str:
        ranks = f"rank {self._rank} of {self._world_size}, " if self._world_size > 1 else ""
        return f"{type(self).__name__}({ranks}{self._whole or self._order!r}, {self._quality})"

    def _to_fixed(self) -> _core.FixedBatches:
        """Make what keeps the addresses of batches."""
        raise InvalidArgumentError(
            'addresses are fixed on a CUDA device only: use kinograph.torch.Loader with device="cuda", or remove `fixed_addresses`'
        )

    def _check_decode(self, *, has_transforms: bool) -> None:
        """Refuse to decode on a GPU where that cannot be."""
        raise InvalidArgumentError(
            f'decode="{self._decode}" decodes on the CUDA device of the batches: use kinograph.torch.Loader with device="cuda", '
            "or remove `decode`"
        )

    def _most_memory(self) -> int | None:
        """Return a limit for decoded frames that are not in host memory."""
        return None

    def _to_device(self, device: _Device | None) -> Any:  # noqa: ANN401 (the framework's own type)
        """Take the device that batches go to."""
        raise NotImplementedError

    def _to_ranks(self, rank: int | None, world_size: int | None) -> tuple[int, int]:
        """Take this rank and the number of ranks, or ask the framework."""
        known = self._known_ranks()
        return (
            known[0] if rank is None else to_whole("rank", rank),
            known[1] if world_size is None else to_whole("world_size", world_size, least=1),
        )

    def _known_ranks(self) -> tuple[int, int]:
        """Ask the framework which rank this is of how many."""
        return 0, 1

    def _begin(self) -> _Turn:
        """Begin the next epoch, or go on where a state stood."""
        steps, moved = self._walk.turn(self._next_epoch, is_resumed=self._is_resumed)
        self._is_lost |= moved
        turn = _Turn(self._next_epoch, steps)
        self._next_epoch, self._is_resumed, self._turn = turn.epoch + 1, False, weakref.ref(turn)
        return turn

    def _check_process(self) -> None:
        """Refuse to go on with threads that stayed in another process."""
        if self._core is not None and os.getpid() != self._process:
            raise forked()

    def _hand_out(self, turn: _Turn) -> dict[str, _Array]:
        """Take the next batch of an epoch, and count it."""
        if self._turn is None or self._turn() is not turn:
            raise _overtaken()
        asked, wanted = time.perf_counter(), turn.steps.start
        try:
            if self._is_lost:
                self._check_process()
                self._start()
            number, batch, behind_s = self._take_from(wanted)
            if number != wanted:
                # Somebody was interrupted between taking a batch and counting it.
                self._start()
                number, batch, behind_s = self._take_from(wanted)
        except BaseException as error:
            self._check_process()
            if self._threads and isinstance(error, Exception):
                # They have ended; the next ones start with the batch that did not come.
                self.close()
            # Whoever overtook this `for` may have ended its wait.
            if self._turn is None or self._turn() is not turn:
                raise _overtaken() from None
            self._is_lost = True
            raise
        if self._turn is None or self._turn() is not turn:
            raise _overtaken()
        # Time in which the GPU works on what the loop asked for earlier is part of the step before.
        self._loop.took(asked + behind_s, time.perf_counter())
        turn.steps = range(number + 1, turn.steps.stop)
        self._walk.done(number)
        return batch

    def _start(self) -> _core.Loader:
        """Start anew at the order's place."""
        self.close()
        self._is_lost = False
        self._core = _core.Loader(self._order._core, *self._to_core(), self._walk.lengths)
        self._process = os.getpid()
        # As the core, it counts from here on.
        self._loop = Loop(self._to_clock())
        if self._tracing is not None:
            self._trace_with(self._tracing)
        transforms = self._to_transforms()
        sent = self._to_sent(self._core) if transforms is None else None
        if sent is None:
            self._begin_threads(Hosted(self._core, self._to_host), transforms, self._to_send())
        else:
            self._begin_sent(sent)
        return self._core

    def _to_transforms(self) -> tuple[Transforms, int] | None:
        """Make what the transforming threads run, and say how many there are."""
        if self._given == (None, None):
            return None
        core, is_whole = self._order._core, self._whole is not None
        places = Places(
            seed=core.draw, name=lambda index: "" if is_whole else _name_of(core, index)
        )
        return Transforms(*self._given, places, self._stack), self._transform_threads

    def _to_core(self) -> tuple[list[list[_core.Samples]], str]:
        """Write windows and options as the core reads them, for a start at the order's place."""
        samples = [
            [packing._core for packing in source._packings()] for source in self._order.sources
        ]
        run = {**self._walk.begin(), "is_traced": self._tracing is not None}
        return samples, json.dumps(self._options | {"run": run})

    def _take_from(self, wanted: int) -> tuple[int, dict[str, _Array], float]:
        """Wait for the batch of a number, or a later one: a step that was begun starts with its first batches again.

        Last come the seconds in which the GPU was behind.
        """
        while True:
            take = self._take_sent
            made, batch, behind_s = (take and take()) or self._take()
            number = self._walk.begun + made
            if number >= wanted:
                return number, batch, behind_s

    def _take(self) -> tuple[int, dict[str, _Array], float]:
        """Wait for the core's next batch, and its number."""
        core = self._core or self._start()
        if self._threads:
            return self._take_threaded()
        answer = core.next()
        if answer is None:
            raise closed()
        number, _, arrays = answer
        if self._moves():
            host = {key: self._to_host(*array) for key, array in arrays.items()}
            return number, self._place(host), 0.0
        return number, {key: self._to_array(*array) for key, array in arrays.items()}, 0.0

    def _to_array(self, dtype: str, shape: Sequence[int], data: Any) -> _Array:  # noqa: ANN401 (bytes or texts)
        array: _Array = self._from_host(self._to_host(dtype, shape, data))
        return array

    @staticmethod
    def _to_host(dtype: str, shape: Sequence[int], data: Any) -> Any:  # noqa: ANN401 (bytes or texts)
        """Make an array in host memory of what the core lends, without a copy: what transforms get."""
        return to_numpy(dtype, shape, data)

    @staticmethod
    def _stack(values: list[Any]) -> Any:  # noqa: ANN401 (an array, or a list)
        """Make an array in host memory of what a transform returned for each sample."""
        return stack(values)

    def _to_send(self) -> Send | None:
        """Make what sends batches to a device ahead of the training loop, if they are sent."""
        return None

    def _to_sent(self, core: _core.Loader) -> Sent | None:
        """Let the core itself send its batches to a device, if it can."""
        return None


def _overtaken() -> InvalidArgumentError:
    return InvalidArgumentError(
        "this iterator is no longer valid: a newer one was made from the same loader, or `set_epoch` or "
        "`load_state_dict` was called; a loader has one iterator at a time: make a second loader for a second loop or thread"
    )


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


def stack(values: list[Any]) -> Any:  # noqa: ANN401 (an array, or a list)
    """Stack arrays and numbers to a numpy array; anything else becomes a list."""
    if all(isinstance(value, np.ndarray | np.generic | bool | int | float) for value in values):
        return np.stack(values)
    return list(values)


def _check_whole(given: dict[str, Any]) -> None:
    """Refuse what an order of whole episodes says already."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(
                f"`{name}` cannot be given with a kinograph.LengthOrder: which episodes a batch has, and what a sample is, are said "
                "when the order is made"
            )


def _name_of(core: _core.Order, index: int) -> str:
    """Name the sample at an index; one that stands in for a damaged sample has the damaged one's name."""
    source, _, _, sample = (int(column[0]) for column in core.samples(index, index + 1))
    return f" (sample {sample} of source {source})"


def to_samples(
    dataset: str | os.PathLike[str] | Dataset | Samples, request: dict[str, Any]
) -> Samples:
    """Make the samples of a request, or take those that exist already."""
    if isinstance(dataset, Samples):
        if request:
            raise said_twice(request)
        return dataset
    if isinstance(dataset, Dataset):
        return dataset.samples(**request)
    return Dataset(dataset).samples(**request)


def _check_images(sources: Sequence[Source]) -> None:
    """Refuse image options that no requested stream follows: they would change nothing without a word."""
    for source in sources:
        known = source.samples.dataset.streams
        streams = [known[window["stream"]] for window in source.samples.request["windows"]]
        if any(is_camera(stream) or stream.kind in ("image", "depth") for stream in streams):
            return
    shown = ", ".join(
        f"`{stream.name}` is {stream.kind} {stream.dtype} {list(stream.shape)}"
        for stream in streams
    )
    raise InvalidArgumentError(
        f"`images` has no effect: no requested stream holds images ({shown}); images are uint8 [height, width, channels], so "
        "store float images as uint8, or remove `images`"
    )


def _to_sources(dataset: Trained, request: dict[str, Any]) -> list[Source]:
    if isinstance(dataset, str | os.PathLike | Dataset | Samples | Source):
        return [_to_source(dataset, request)]
    return [_to_source(one, request) for one in to_list("dataset", dataset, "datasets")]


def _to_source(one: object, request: dict[str, Any]) -> Source:
    """Take one part of a mixture: a dataset with the request, samples, a source, or one of them with its weight."""
    if isinstance(one, Source):
        if request:
            raise said_twice(request)
        return one
    if isinstance(one, tuple) and len(one) == 2 and not isinstance(one[0], Source):
        return dataclasses.replace(_to_source(one[0], request), weight=one[1])
    if isinstance(one, str | os.PathLike | Dataset | Samples):
        # The order is that of the streams themselves, whichever variants are read.
        asked = {name: value for name, value in request.items() if name != "variants"}
        return Source(to_samples(one, asked), variants=request.get("variants"))
    raise InvalidArgumentError(
        f"cannot train on {one!r}; give a path, a kinograph.Dataset, `ds.samples(...)`, a kinograph.Source, or a list of "
        "them to mix, such as [('a.kino', 0.8), ('b.kino', 0.2)]"
    )
