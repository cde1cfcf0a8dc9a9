"""An open dataset: its episodes, its streams, its statistics."""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeVar, get_args, overload

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import to_list, to_whole, to_word
from kinograph._episode import Episode, rates_text
from kinograph._errors import (
    InvalidArgumentError,
    KinographError,
    KinographWarning,
    NotFoundError,
    outside,
)
from kinograph._links import Links
from kinograph._loader_options import Images
from kinograph._order import LastBatch, Order, Source
from kinograph._parity import Parity, of_dataset
from kinograph._place import to_place
from kinograph._requests import (
    check_options,
    lerobot_request,
    robomimic_request,
    to_request,
    to_selection,
)
from kinograph._samples import Include, Masks, Samples, WindowSpec
from kinograph._shuffle import ShuffleSpec
from kinograph._stream import is_number, to_dtype
from kinograph._table import EpisodeTable
from kinograph._variants import to_pairs

_Value = TypeVar("_Value")

# How far a time may lie from a frame in `delta_timestamps`; LeRobot's own default.
TOLERANCE_S = 1e-4


def open(  # noqa: A001
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    root: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | Literal[False] | None = None,
) -> Dataset:
    """Open a dataset: reads what episodes there are, no frames.

    ``path`` is a folder or a URL: ``s3://…``, ``gs://…``, ``az://…``, ``https://…`` or ``hf://datasets/…``. Gives the newest version unless one is named. ``root`` is the folder of the files that a dataset links to
    (:func:`kinograph.link`), if they were moved. ``cache`` is a local folder for what is read of a remote dataset
    (``docs/guide/remote.md``); by default the one that ``KINOGRAPH_CACHE`` names, and ``False`` means none.

    >>> kinograph.open("lift.kino", version=1)  # doctest: +ELLIPSIS
    Dataset('lift.kino', version 1: 2 episodes, 90 frames at 20 Hz, 4 streams, 216 kB raw → ...)
    """
    return Dataset(path, version=version, root=root, cache=cache)


class Dataset:
    """A dataset at one version, which never changes: a sequence of episodes.

    >>> len(ds)
    2
    >>> ds[-1].id, ds["demo_0"].index
    ('demo_1', 0)
    >>> [episode.frames for episode in ds]
    [40, 50]
    >>> ds.streams["obs/joints"].codecs
    ('vector:level=8',)
    >>> ds.stats["obs/joints"].mean.shape
    (7,)

    It can be pickled, and used after a fork and by several threads at once.
    """

    __slots__ = ("_cache", "_core", "_path", "_stats", "_table")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        version: int | None = None,
        root: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | Literal[False] | None = None,
    ) -> None:
        if version is not None and not (is_number(version) and operator.index(version) > 0):
            raise InvalidArgumentError(
                f"version {version!r} is not a version; versions count from 1"
            )
        self._path = to_place(path)
        number = None if version is None else operator.index(version)
        self._cache = "" if cache is False else cache
        self._core = _core.Dataset(self._path, number, root, self._cache)
        self._table = EpisodeTable(self._core)
        self._stats: dict[str, StreamStats] | None = None
        for why in self._core.missing_decoders():
            text = f"{self._path} has frames that cannot be decoded here: {why}"
            warnings.warn(text, KinographWarning, stacklevel=outside())

    @property
    def path(self) -> Path | str:
        """The folder as it was given, or the URL as text."""
        return self._path

    @property
    def root(self) -> Path | None:
        """The folder of the files that the dataset links to, if one was given."""
        return self._core.root

    @property
    def links(self) -> Links | None:
        """The files that pages are linked to (:func:`kinograph.link`); ``None`` if everything is in the dataset."""
        links = self._core.links()
        return None if links is None else Links._from_json(json.loads(links))

    @property
    def storage(self) -> dict[str, Any] | None:
        """What was read of a remote dataset so far: requests, bytes, retries, and what the cache did; ``None`` for a folder."""
        report = self._core.storage_report()
        return None if report is None else json.loads(report)

    def copy(
        self,
        target: str | os.PathLike[str],
        *,
        split: str | Sequence[str] | None = None,
        episodes: Iterable[int | str] | None = None,
        filter: str | None = None,  # noqa: A002 (as in `samples`)
        progress: Callable[[int, int], object] | None = None,
    ) -> Dataset:
        """Copy this version to a folder or a URL, bit for bit: stage a remote dataset, or upload a local one.

        >>> ds.copy("staged.kino").id == ds.id
        True

        Every file is compared with its hash, and the version appears once all of them are there. A copy that was
        stopped is continued by the same call. With a selection only the shards that have its episodes are copied: the copy is
        the same version, with the same order, and says so where an episode of another shard is read. For other streams,
        episodes or codecs, see :func:`kinograph.repack`.

        :param split: copy the shards that have episodes of this split, or of these
        :param episodes: … that have these episodes, by row or id
        :param filter: … that have episodes that meet these conditions
        :param progress: called with the bytes that are done and the total; an exception raised by it stops the copy.
        """
        selection = to_selection(self, split, episodes, filter)
        self._core.copy(target, json.dumps(selection), progress)
        return Dataset(target, version=self.version)

    @property
    def version(self) -> int:
        """The number of the version that is open."""
        return self._core.version

    @property
    def versions(self) -> list[int]:
        """Every version there is now."""
        return self._core.versions()

    @property
    def id(self) -> str:
        """The version's id: the same id means the same episodes."""
        return self._core.id

    @property
    def attributes(self) -> dict[str, Any]:
        """What is known of the whole dataset, such as robomimic's ``env_args``."""
        attributes: dict[str, Any] = json.loads(self._core.attributes())
        return attributes

    @property
    def episodes(self) -> EpisodeTable:
        """The episode table: a row per episode, with its length, task, splits and labels."""
        return self._table

    @property
    def streams(self) -> dict[str, StreamSummary]:
        """What is known of every stream: type, codecs, size and error."""
        streams = json.loads(self._core.streams())
        return _ByName({stream["name"]: StreamSummary._from_json(stream) for stream in streams})

    @property
    def stats(self) -> dict[str, StreamStats]:
        """The statistics of every stream of numbers, for normalisation.

        >>> actions = ds.stats["actions"]
        >>> normal = (ds[0]["actions"][:] - actions.mean) / np.maximum(actions.std, 1e-6)
        """
        if self._stats is None:
            shapes = {name: stream.shape for name, stream in self.streams.items()}
            stats = self._core.stats()
            self._stats = _ByName(
                {
                    name: StreamStats._from_arrays(stats[name], shape)
                    for name, shape in shapes.items()
                    if name in stats
                }
            )
        return self._stats

    def samples(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        windows: Mapping[str, WindowSpec] | None = None,
        *,
        anchor: str | float | None = None,
        skip_first: int = 0,
        skip_last: int = 0,
        masks: Masks = "is_pad",
        include: Sequence[Include] = (),
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = TOLERANCE_S,
        seq_length: int | None = None,
        frame_stack: int = 1,
        pad_seq_length: bool = True,
        pad_frame_stack: bool = True,
        next_obs: bool = True,
        goal: bool = False,
        keys: Sequence[str] | None = None,
        variants: Mapping[str, str | None] | None = None,
        split: str | Sequence[str] | None = None,
        episodes: Iterable[int | str] | None = None,
        filter: str | None = None,  # noqa: A002 (the name users look for)
    ) -> Samples:
        """Describe a training sample; returns the list of all samples, each read when it is indexed.

        In seconds around the anchor (floats), in frames of the stream from its frame at the anchor (integers, such as a
        ``range``), or as a :class:`Window` that says more. A single number gives one frame without a time axis:

        >>> samples = ds.samples({"obs/agentview_image": [-0.05, 0.0], "obs/joints": 0, "actions": range(8)})
        >>> sample = samples[0]
        >>> sample["obs/agentview_image"].shape, sample["obs/agentview_image_is_pad"]
        ((2, 32, 24, 3), array([ True, False]))

        ``anchor`` is the stream whose frames are the samples, a rate in Hz, or ``"episode"`` for whole episodes. By default
        it is the clock that the requested streams share; streams with different clocks need one.

        >>> len(ds.samples({"actions": kinograph.Window(whole=True)}))
        2

        With LeRobot's options, or with robomimic's; ``keys`` are the requested streams:

        >>> samples = ds.samples(delta_timestamps={"actions": [0.0, 0.05]}, keys=["obs/joints", "actions"])
        >>> samples = ds.samples(seq_length=10, frame_stack=2, keys=["obs/joints", "actions"], masks="pad_mask")

        ``include`` adds where a sample comes from: ``"task"``, ``"episode"`` (its id, and ``episode_index``), ``"frame"``
        (which anchor of the episode) and ``"sample"`` (its index):

        >>> sample = ds.samples({"actions": [0]}, include=["task", "episode"])[41]
        >>> sample["task"], sample["episode"], int(sample["episode_index"])
        ('lift the cube', 'demo_1', 1)

        ``variants`` names the encoding to read of streams that have several, by stream or pattern: ``{"wrist": "small"}``
        reads ``wrist@small``, and the sample's key stays ``wrist``.

        ``split``, ``episodes`` and ``filter`` select the episodes; ``skip_first`` and ``skip_last`` skip anchors at the ends
        of each:

        >>> len(ds.samples({"actions": [0.0]}, split="train", filter="frames >= 20 and has('actions')"))
        40
        """
        check_options(
            {
                "windows": windows is not None,
                "delta_timestamps": delta_timestamps is not None,
                "seq_length": seq_length is not None,
            },
            {
                "anchor": anchor is not None,
                "keys": keys is not None,
                "tolerance_s": tolerance_s != TOLERANCE_S,
                "frame_stack": frame_stack != 1,
                "pad_seq_length": not pad_seq_length,
                "pad_frame_stack": not pad_frame_stack,
                "next_obs": not next_obs,
                "goal": goal,
            },
        )
        if delta_timestamps is not None:
            if not (anchor is None or isinstance(anchor, str)):
                raise InvalidArgumentError(
                    f"anchor is {anchor!r}; `delta_timestamps` need the name of a stream"
                )
            request = lerobot_request(
                self, delta_timestamps, keys, anchor=anchor, tolerance_s=tolerance_s
            )
        elif seq_length is not None:
            options = {
                "seq_length": seq_length,
                "frame_stack": frame_stack,
                "pad_seq_length": pad_seq_length,
                "pad_frame_stack": pad_frame_stack,
                "next_obs": next_obs,
                "goal": goal,
            }
            request = robomimic_request(self, keys, options)
        else:
            request = to_request(self, windows, anchor)
        request |= {
            "skip_first": to_whole("skip_first", skip_first),
            "skip_last": to_whole("skip_last", skip_last),
            "masks": to_word("masks", masks, get_args(Masks)),
            "include": [
                to_word("include", name, get_args(Include))
                for name in to_list("include", include, "names")
            ],
        }
        if variants is not None:
            request["variants"] = to_pairs(variants)
        return Samples(self, request, to_selection(self, split, episodes, filter))

    def order(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        samples: Mapping[str, WindowSpec] | Samples,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: ShuffleSpec = True,
        last_batch: LastBatch | None = None,
        drop_last: bool | None = None,
        episode_weights: Sequence[float] | None = None,
    ) -> Order:
        """Return the order of the samples, see :class:`Order`; takes windows, or samples with more options.

        >>> order = ds.order(ds.samples({"actions": range(8)}, split="train"), batch_size=16, seed=7)
        >>> order.batch(0, rank=0, world_size=2).shape
        (8,)
        """
        if not isinstance(samples, Samples):
            samples = self.samples(samples)
        return Order(
            Source(samples=samples, episode_weights=episode_weights),
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            last_batch=last_batch,
            drop_last=drop_last,
        )

    def parity(
        self,
        *,
        streams: Sequence[str] | None = None,
        images: Images | Mapping[str, Any] | None = None,
        reference: bool = True,
    ) -> Parity:
        """Make the transform that gives live frames the resize, codec and crop of the training frames.

        >>> parity = ds.parity(images=kinograph.Images(size=(16, 16)))
        >>> parity({"obs/agentview_image": ds[0]["obs/agentview_image"][0]})["obs/agentview_image"].shape
        (16, 16, 3)

        :param streams: The streams that live frames come for; by default all cameras
        :param images: The image options of the training loader; a random crop becomes a crop of the centre
        :param reference: Also look at training frames, for :func:`kinograph.check_deployment` without the dataset; reads up
            to eight frames of 64 episodes
        """
        return of_dataset(self, streams, images, reference=reference)

    def __len__(self) -> int:
        return len(self._core)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Episode: ...

    @overload
    def __getitem__(self, key: slice) -> list[Episode]: ...

    def __getitem__(self, key: SupportsIndex | str | slice) -> Episode | list[Episode]:
        """Open an episode by its place or its id, or several by a slice."""
        if isinstance(key, str):
            return Episode(self, self._core.find(key))
        if isinstance(key, slice):
            return [self[row] for row in range(len(self))[key]]
        if not is_number(key):
            raise InvalidArgumentError(
                f"episodes are found by a number, an id or a slice, not by {key!r}"
            )
        row = operator.index(key)
        if not -len(self) <= row < len(self):
            raise NotFoundError(f"no episode {row}; the dataset has {len(self)}")
        return Episode(self, self._core.episode(row % len(self)))

    def __iter__(self) -> Iterator[Episode]:
        return (self[row] for row in range(len(self)))

    def __contains__(self, key: object) -> bool:
        """Whether there is an episode with this id."""
        return key in self._table.values("id")

    def __repr__(self) -> str:
        count, frames = len(self), sum(self._table.values("frames"))
        raw, stored = sum(self._table.values("raw_bytes")), self._core.total_bytes()
        size = f"{_core.show_bytes(raw)} raw → {_core.show_bytes(stored)} on disk ({raw / max(stored, 1):.1f}×)"
        return (
            f"Dataset({str(self._path)!r}, version {self.version}: {count} episode{'s' * (count != 1)}, "
            f"{frames} frames{self._rates()}, {len(self.streams)} streams, {size})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (os.fspath(self._core.path), self.version, self._core.root, self._cache)

    def _rates(self) -> str:
        """Say the rates of the first episode, if they can be read: a repr has to work on damaged data."""
        try:
            return rates_text(self._core.episode(0).rates_hz())
        except KinographError:
            return ""


@dataclasses.dataclass(frozen=True)
class StreamSummary:
    """What is known of a stream over all episodes."""

    name: str
    kind: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    codecs: tuple[str, ...]
    episodes: int
    frames: int
    raw_bytes: int
    bytes: int
    max_abs_error: float
    psnr_db: float | None
    #: Bytes of its pages that are linked instead of stored.
    linked_bytes: int
    #: The libraries outside Kinograph that encoded it, with their versions.
    encoders: tuple[str, ...]
    #: Height and width of its frames before they were resized and stored, the oldest first; empty if they were not.
    resized_from: tuple[tuple[int, int], ...]
    #: The lossy encodings that its frames went through before this one, the oldest first.
    generations: tuple[Generation, ...]
    #: What was measured before a bound such as ``signal(2%)`` made it lossy; None if that is not why.
    signal: Mapping[str, Any] | None
    #: The stream that this is another encoding of: ``wrist@small`` of ``wrist``.
    variant_of: str | None

    @property
    def ratio(self) -> float:
        """How many times smaller it is than its frames in memory."""
        return self.raw_bytes / self.bytes if self.bytes else math.inf

    @classmethod
    def _from_json(cls, stream: dict[str, Any]) -> StreamSummary:
        fields = {field.name: stream[field.name] for field in dataclasses.fields(cls)}
        fields |= {"dtype": to_dtype(stream["dtype"])}
        fields |= {name: tuple(stream[name]) for name in ("shape", "codecs", "encoders")}
        fields |= {"resized_from": tuple((size[0], size[1]) for size in stream["resized_from"])}
        fields |= {
            "generations": tuple(Generation._from_json(one) for one in stream["generations"])
        }
        return cls(**fields)


class Generation(NamedTuple):
    """A lossy encoding that frames went through before the one they are stored with.

    ``max_abs_error`` and ``psnr_db`` are against what was encoded then, and ``None`` if they were not measured, as for the
    JPEG files of a recording.
    """

    codec: str
    max_abs_error: float | None
    psnr_db: float | None

    @classmethod
    def _from_json(cls, generation: dict[str, Any]) -> Generation:
        return cls(generation["codec"], generation.get("max_abs_error"), generation.get("psnr_db"))


@dataclasses.dataclass(frozen=True, eq=False)
class StreamStats:
    """Statistics of a stream: one number per element of a vector or per channel of an image.

    The arrays broadcast against frames, so ``(frames - stats.mean) / np.maximum(stats.std, 1e-6)`` works as it stands.
    Values that are not finite are counted in ``nonfinite`` and otherwise left out.
    """

    frames: int
    count: npt.NDArray[np.int64]
    nonfinite: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    min: npt.NDArray[np.float64]
    max: npt.NDArray[np.float64]
    q01: npt.NDArray[np.float64]
    q10: npt.NDArray[np.float64]
    q50: npt.NDArray[np.float64]
    q90: npt.NDArray[np.float64]
    q99: npt.NDArray[np.float64]

    @classmethod
    def _from_arrays(cls, stats: dict[str, Any], shape: tuple[int, ...]) -> StreamStats:
        names = [field.name for field in dataclasses.fields(cls) if field.name != "frames"]
        # One number per element has the shape of a frame; one per channel, or one in all, lines up with its end.
        per_element = len(stats["mean"]) == math.prod(shape)
        arrays = {name: stats[name].reshape(shape if per_element else -1) for name in names}
        # Unsigned 64-bit numbers turn into floats when they meet others.
        counts = {name: arrays.pop(name).astype(np.int64) for name in ("count", "nonfinite")}
        return cls(frames=stats["frames"], **counts, **arrays)


class _ByName(dict[str, _Value]):
    """A dict whose missing keys are told apart from programming errors."""

    def __missing__(self, name: str) -> _Value:
        raise NotFoundError(f"no stream `{name}`; there are {', '.join(self)}")


def _reopen(
    path: str,
    version: int,
    root: Path | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Dataset:
    return Dataset(path, version=version, root=root, cache=False if cache == "" else cache)
