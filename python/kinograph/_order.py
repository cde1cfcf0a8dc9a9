"""The order: which sample comes when, as a function of the seed alone.

    order = ds.order({"actions": range(10)}, batch_size=64, seed=7)
    order[0:64]["sample"]                      the samples of the first global batch
    order.batch(3, rank=1, world_size=4)       what rank 1 of 4 sees at step 3
    order.state_dict()                         a few hundred bytes, the same on every rank

The sample at global index i depends on the dataset's version, the settings and the seed: not on ranks, threads or
restarts. ``docs/guide/order.md`` says what is promised; ``spec/order.md`` is the algorithm.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import LAST_INDEX, U64, to_list, to_number, to_whole, to_word
from kinograph._errors import InvalidArgumentError, NotFoundError
from kinograph._samples import Field, Samples
from kinograph._shuffle import ShuffleSpec, describe, to_setting
from kinograph._stream import is_number
from kinograph._variants import Variants, to_curriculum

LastBatch: TypeAlias = Literal["short", "drop", "wrap", "repeat"]

# One sample of an order: which source, which packing of it, the source's epoch, the sample's index.
SAMPLE_DTYPE = np.dtype([("source", "i4"), ("variant", "i4"), ("epoch", "i8"), ("sample", "i8")])

# The largest batch.
_MOST_SAMPLES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Source:
    """One dataset of a mixture: its samples, its share of the samples, and how it changes with time.

    ``episode_weights`` has a number per chosen episode: 2.0 shows each of its samples twice per epoch, 0.0 never.
    ``curriculum`` maps epochs to samples of other packings of the same episodes: from that epoch on, samples are read
    there. From epoch 0 on, ``samples`` only says what the order is. A sample's ``variant`` counts the packings that are
    read, from 0 on. ``variants`` is such a curriculum of encodings within one dataset: ``{"wrist": "small"}`` reads
    ``wrist@small``, ``{"wrist": {0: "small", 5: None}}`` only before epoch 5.
    """

    samples: Samples
    _: dataclasses.KW_ONLY
    weight: float = 1.0
    episode_weights: Sequence[float] | npt.NDArray[Any] | None = None
    curriculum: Mapping[int, Samples] = dataclasses.field(default_factory=dict)
    variants: dataclasses.InitVar[Variants | None] = None

    def __post_init__(self, variants: Variants | None) -> None:
        if variants is None:
            return
        if self.curriculum:
            raise InvalidArgumentError("`variants` is a curriculum; give one of them")
        if not isinstance(self.samples, Samples):
            raise not_samples(self.samples)
        object.__setattr__(self, "curriculum", to_curriculum(self.samples, variants))

    def variant(self, number: SupportsIndex) -> Samples:
        """Give the samples that a sample's ``variant`` stands for."""
        packings = self._packings()
        return packings[to_whole("variant", number, most=len(packings) - 1)]

    def _packings(self) -> list[Samples]:
        """Give all samples that are read in some epoch."""
        later = [samples for _, samples in sorted(self.curriculum.items())]
        return later if 0 in self.curriculum else [self.samples, *later]


class Order:
    """Which sample comes at which global index; endless, and never in need of a reset.

    ``batch_size`` counts the samples of all ranks together. ``shuffle`` is ``True`` (automatic), ``"global"``, a
    :class:`Shuffle`, or ``False``. ``last_batch`` says what the last batch of an epoch is where the samples do not fill it:
    ``"short"``, so that each sample comes exactly once per epoch; ``"drop"``, none (also ``drop_last=True``); ``"wrap"``,
    filled from the next epoch, which begins inside the batch; ``"repeat"``, filled with samples of the same epoch.

    >>> order = ds.order({"actions": range(10)}, batch_size=32, seed=7)
    >>> order
    Order(90 samples per epoch in batches of 32, seed 7, global shuffle)
    >>> sorted(order[0:90]["sample"]) == list(range(90))
    True
    >>> whole = order.batch(1)["sample"]
    >>> ranks = [order.batch(1, rank=rank, world_size=4)["sample"] for rank in range(4)]
    >>> np.array_equal(np.concatenate(ranks), whole)
    True
    >>> order.read(0)["actions"].shape
    (10, 7)

    Stopping and going on:

    >>> batches = order.batches()
    >>> first = next(batches)
    >>> state = order.state_dict()
    >>> again = ds.order({"actions": range(10)}, batch_size=32, seed=7)
    >>> again.load_state_dict(state)
    >>> np.array_equal(next(again.batches()), next(batches))
    True
    """

    __slots__ = ("_core", "_settings", "_sources", "next_index")

    def __init__(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        sources: Samples | Source | Sequence[Samples | Source],
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: ShuffleSpec = True,
        last_batch: LastBatch | None = None,
        drop_last: bool | None = None,
        epoch_size: int | None = None,
    ) -> None:
        listed = [sources] if isinstance(sources, Samples | Source) else sources
        self._sources = [_to_source(one) for one in to_list("sources", listed, "samples")]
        self._settings = {
            "seed": to_whole("seed", seed, most=U64),
            "batch_size": to_whole("batch_size", batch_size, least=1, most=_MOST_SAMPLES),
            **to_setting(shuffle),
            "last_batch": to_last_batch(last_batch, drop_last),
            "epoch_size": None
            if epoch_size is None
            else to_whole("epoch_size", epoch_size, least=1, most=LAST_INDEX),
        }
        self._core = _to_core(self._sources, self._settings)
        # An automatic shuffle is resolved.
        self._settings = json.loads(self._core.settings())
        #: The first global index that was not yet taken.
        self.next_index = 0

    @property
    def sources(self) -> list[Source]:
        """What is mixed; one source if nothing is."""
        return list(self._sources)

    @property
    def id(self) -> str:
        """Equal ids mean equal orders."""
        return self._core.id()

    @property
    def batch_size(self) -> int:
        """Samples per batch, of all ranks together."""
        return int(self._settings["batch_size"])

    @property
    def epoch(self) -> int:
        """The epoch of the next index."""
        return self._core.epoch_of(self.next_index)

    def __len__(self) -> int:
        """Count the samples of an epoch."""
        return self._core.epoch_samples()

    def __getitem__(self, index: SupportsIndex | slice) -> npt.NDArray[Any]:
        """Give the sample at a global index, or those of a range; there is no last one.

        Indices behind the end of a short last batch have no sample, so a range may give fewer.
        """
        if isinstance(index, slice):
            if index.stop is None or index.step not in (None, 1):
                raise InvalidArgumentError(
                    "an order has no last index; give the slice a stop, and no step"
                )
            return self._samples(operator.index(index.start or 0), operator.index(index.stop))
        if not is_number(index):
            raise InvalidArgumentError(
                f"an order is indexed by an integer or a slice, not by {index!r}"
            )
        start = operator.index(index)
        found = self._samples(start, start + 1)
        if not len(found):
            raise NotFoundError(
                f"no sample {start}: an epoch has {len(self)} samples, so its last batch of {self.batch_size} is short"
            )
        sample: npt.NDArray[Any] = found[0]
        return sample

    # An endless row has no list form: `list(order)` would never return.
    __iter__ = None

    def steps(self, epoch: int) -> range:
        """Name the batches that start in an epoch."""
        return range(*self._core.batches_of(to_whole("epoch", epoch, most=LAST_INDEX)))

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, uneven: bool = False
    ) -> npt.NDArray[Any]:
        """Give a rank's slice of a global batch; ``uneven`` lets slices differ by one sample.

        The slices of a short last batch may always differ by one.
        """
        place = to_whole("step", step, most=LAST_INDEX)
        ranks = to_whole("world_size", world_size, least=1)
        part = self._core.rank_range(place, to_whole("rank", rank, most=ranks - 1), ranks, uneven)
        return self._samples(*part)

    def batches(
        self, *, rank: int = 0, world_size: int = 1, uneven: bool = False
    ) -> Iterator[npt.NDArray[Any]]:
        """Go through the batches, endlessly, from ``next_index`` on, which all iterators of an order share."""
        while True:
            step = self.next_index // self.batch_size
            batch = self.batch(step, rank=rank, world_size=world_size, uneven=uneven)
            self.next_index = (step + 1) * self.batch_size
            yield batch

    def substitute(self, index: int, attempt: int) -> npt.NDArray[Any]:
        """Give the sample that stands in at an index whose own cannot be read; no other index moves."""
        place = to_whole("index", index, most=LAST_INDEX)
        columns = self._core.substitute(place, to_whole("attempt", attempt, most=U64))
        sample: npt.NDArray[Any] = _to_array(columns)[0]
        return sample

    def read(self, index: SupportsIndex) -> dict[str, Field]:
        """Read the sample at a global index, from its source and its packing."""
        sample = self[index]
        samples = self._sources[sample["source"]].variant(sample["variant"])
        return samples[sample["sample"]]

    def draw(self, index: int, operation: str) -> int:
        """Draw 64 random bits for an operation on the sample at an index: the same on every rank, and after a restart.

        >>> order = ds.order({"actions": range(10)}, batch_size=32, seed=7)
        >>> crop = np.random.default_rng(order.draw(1000, "crop"))
        >>> order.draw(1000, "crop") == order.draw(1000, "crop") != order.draw(1001, "crop")
        True
        """
        return self._core.draw(to_whole("index", index), operation)

    def set_epoch(self, epoch: int) -> None:
        """Continue with the first batch that starts in an epoch."""
        self.next_index = self.steps(epoch).start * self.batch_size

    def state_dict(self) -> dict[str, Any]:
        """Say where the order stands: the same on every rank, and small."""
        state: dict[str, Any] = json.loads(self._core.state(self.next_index))
        return state

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool = False) -> None:
        """Resume where a state was taken, on any number of ranks.

        A state of another dataset, other settings or another seed is refused; ``force`` takes its seed and its place
        anyway. If the batch size differs, it resumes at the start of the batch that holds this place.
        """
        core, self.next_index = self._core.restore(to_json(state), force)
        self._core = core
        self._settings["seed"] = core.seed()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reorder, (self._sources, self._settings, self.next_index)

    def __repr__(self) -> str:
        return (
            f"Order({len(self)} samples per epoch in batches of {self.batch_size}, "
            f"seed {self._settings['seed']}, {describe(self._settings['shuffle'])})"
        )

    def _samples(self, start: int, stop: int) -> npt.NDArray[Any]:
        if start < 0:
            raise NotFoundError(
                f"no sample {start}; the order starts at 0 and has no end to count from"
            )
        if max(start, stop) > LAST_INDEX:
            raise NotFoundError(
                f"no sample {max(start, stop) - 1}; the last one is {LAST_INDEX - 1}"
            )
        return _to_array(self._core.samples(start, max(start, stop)))


def to_json(state: Mapping[str, Any]) -> str:
    """Write a state as text."""
    if not isinstance(state, Mapping):
        raise InvalidArgumentError(f"the state is {state!r}; pass what `state_dict` gave")
    try:
        return json.dumps(dict(state))
    except TypeError as error:
        raise InvalidArgumentError(
            f"the state cannot be written as JSON: {error}; pass what `state_dict` gave"
        ) from None


def _to_source(one: object) -> Source:
    source = Source(samples=one) if isinstance(one, Samples) else one
    if not isinstance(source, Source):
        raise InvalidArgumentError(
            f"a source is kinograph.Samples or kinograph.Source, not {type(one).__name__}; `ds.samples(...)` makes them"
        )
    for samples in (source.samples, *source.curriculum.values()):
        if not isinstance(samples, Samples):
            raise not_samples(samples)
    return source


def not_samples(given: object) -> InvalidArgumentError:
    """Say that a source has something else than samples."""
    return InvalidArgumentError(
        f"a source has kinograph.Samples, not {type(given).__name__}; `ds.samples(...)` makes them"
    )


def _to_core(sources: list[Source], settings: Mapping[str, Any]) -> _core.Order:
    return _core.Order([_to_core_source(source) for source in sources], json.dumps(settings))


def _to_core_source(source: Source) -> tuple[Any, ...]:
    weights = source.episode_weights
    if weights is not None:
        listed = to_list("episode_weights", weights, "numbers, one per chosen episode")
        weights = [to_number("a weight of an episode", weight) for weight in listed]
    curriculum = [
        (to_whole("an epoch of the curriculum", epoch, most=LAST_INDEX), other._core)
        for epoch, other in sorted(source.curriculum.items())
    ]
    return (
        source.samples._core,
        to_number("the weight of a source", source.weight),
        weights,
        curriculum,
    )


def _reorder(sources: list[Source], settings: dict[str, Any], next_index: int) -> Order:
    """Make an order again that was pickled."""
    order = Order.__new__(Order)
    order._sources, order._settings = sources, settings
    order._core = _to_core(sources, settings)
    order.next_index = next_index
    return order


def _to_array(columns: tuple[npt.NDArray[Any], ...]) -> npt.NDArray[Any]:
    samples = np.empty(len(columns[0]), SAMPLE_DTYPE)
    for name, column in zip(SAMPLE_DTYPE.names or (), columns, strict=True):
        samples[name] = column
    return samples


def to_last_batch(last_batch: LastBatch | None, drop_last: bool | None) -> str:
    """Say what the last batch is; ``drop_last`` is torch's way to say it."""
    if last_batch is None and drop_last is None:
        return "short"
    if drop_last is None:
        return to_word("last_batch", last_batch, get_args(LastBatch))
    if not isinstance(drop_last, bool | np.bool_):
        raise InvalidArgumentError(
            f"drop_last is {drop_last!r}; give True or False, for the last batch of an epoch"
        )
    if last_batch is not None and (last_batch == "drop") != drop_last:
        raise InvalidArgumentError(
            f"drop_last={drop_last} contradicts last_batch={last_batch!r}; give one of them"
        )
    return "drop" if drop_last else last_batch or "short"
