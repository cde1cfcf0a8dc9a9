"""Samples: which frames of which streams are one training sample.

    ds.samples({"wrist": [-0.1, 0.0], "actions": range(50)})     seconds (floats), or frames of the stream (integers)
    ds.samples(delta_timestamps={"wrist": [-0.1, 0.0]})          LeRobot's options
    ds.samples(seq_length=10, frame_stack=2)                     robomimic's options

Frames and nanoseconds are integers throughout; ``docs/reference/samples.md`` has the exact rules.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    SupportsIndex,
    TypeAlias,
    get_args,
    overload,
)

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import to_list, to_number, to_whole, to_word
from kinograph._errors import InvalidArgumentError, NotFoundError
from kinograph._stream import is_number, to_dtype
from kinograph._variants import to_pairs

if TYPE_CHECKING:
    from kinograph._dataset import Dataset

Pad: TypeAlias = Literal["edge", "zero", "drop"]
Resolve: TypeAlias = Literal["nearest", "hold", "linear", "slerp"]
Masks: TypeAlias = Literal["is_pad", "pad_mask", "octo", "act", "off"]
Include: TypeAlias = Literal["task", "episode", "frame", "sample"]

# What a key of a sample holds: an array, or text.
Field: TypeAlias = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """The frames of one stream around the anchor.

    Give ``steps``, which count the stream's own frames from its frame at the anchor, or ``seconds`` around the anchor;
    ``whole=True`` is every frame of the episode and ``last=True`` the last one, such as a goal.

    >>> joints = kinograph.Window(stream="obs/joints", seconds=[-0.1, -0.05, 0.0], resolve="linear")
    >>> goal = kinograph.Window(stream="obs/agentview_image", last=True)
    >>> ds.samples({"joints": joints, "goal": goal, "actions": range(8)})[0]["goal"].shape
    (32, 24, 3)

    ``resolve`` says which frame stands for a time: ``"nearest"``, ``"hold"`` (the last one at or before it, the default
    for text), or ``"linear"`` and ``"slerp"``, which interpolate. ``latency_s`` is how late the stream is stamped: a value
    captured at t has the timestamp t + latency. ``pad`` is what happens past the stream's ends, or ``(before, after)`` if
    the two differ; ``"drop"`` skips the sample. A frame further than ``max_staleness_s`` from its time counts as missing
    in the same way. ``single=True`` gives one frame without a time axis.
    """

    stream: str | None = None
    steps: Iterable[int] | None = None
    seconds: Iterable[float] | None = None
    whole: bool = False
    last: bool = False
    resolve: Resolve | None = None
    max_staleness_s: float | None = None
    latency_s: float = 0.0
    pad: Pad | tuple[Pad, Pad] = "edge"
    single: bool = False

    def __post_init__(self) -> None:
        # What can be iterated only once would be empty for the second request.
        for name in ("steps", "seconds"):
            offsets = getattr(self, name)
            if offsets is not None:
                object.__setattr__(
                    self, name, tuple(to_list(f"Window: {name}", offsets, "numbers"))
                )
        if not (self.stream is None or isinstance(self.stream, str)):
            raise InvalidArgumentError(f"Window: stream is {self.stream!r}; give a name")
        # All of it is checked here, where the mistake is.
        self._to_json("")
        if self.steps is not None and self.resolve in ("linear", "slerp"):
            raise InvalidArgumentError(
                f"Window: resolve={self.resolve!r} interpolates between frames, but steps count frames; give seconds=[...]"
            )
        count = len(list(self.steps or self.seconds or ()))
        if self.single and (self.whole or count > 1):
            what = "every frame" if self.whole else f"{count} offsets"
            raise InvalidArgumentError(f"Window: single=True gives one frame, but it has {what}")

    def _to_json(self, key: str) -> dict[str, Any]:
        before, after = self._pads()
        limit = self.max_staleness_s
        limit_ns = None if limit is None else _to_ns("Window: max_staleness_s", limit)
        if limit_ns is not None and limit_ns < 0:
            raise InvalidArgumentError(f"Window: max_staleness_s is {limit}; it must be 0 or more")
        resolve = "auto"
        if self.resolve is not None:
            resolve = to_word("Window: resolve", self.resolve, get_args(Resolve))
        return {
            "key": key,
            "stream": key if self.stream is None else self.stream,
            "at": self._at(),
            "resolve": {resolve: {"max_staleness_ns": limit_ns}},
            "latency_ns": _to_ns("Window: latency_s", self.latency_s),
            "before": before,
            "after": after,
            "stack": "single" if self.single or self.last else "stacked",
        }

    def _pads(self) -> tuple[str, ...]:
        pads = (self.pad, self.pad) if isinstance(self.pad, str) else self.pad
        if not (isinstance(pads, tuple | list) and len(pads) == 2):
            raise InvalidArgumentError(
                f"Window: pad is {pads!r}; use one of {', '.join(get_args(Pad))}, or a pair (before, after)"
            )
        return tuple(to_word("Window: pad", pad, get_args(Pad)) for pad in pads)

    def _at(self) -> Any:  # noqa: ANN401 (a value of JSON)
        given = [
            name
            for name, is_given in (
                ("steps", self.steps is not None),
                ("seconds", self.seconds is not None),
                ("whole", self.whole),
                ("last", self.last),
            )
            if is_given
        ]
        if len(given) != 1:
            what = " and ".join(given) or "nothing"
            raise InvalidArgumentError(
                f"Window: got {what}; give exactly one of steps, seconds, whole and last"
            )
        if self.steps is not None:
            return {"steps": [_to_step(step) for step in self.steps]}
        if self.seconds is not None:
            return {"times_ns": [_to_ns("Window: seconds", second) for second in self.seconds]}
        return "all" if self.whole else "last"


# How a window may be written in `ds.samples({...})`.
WindowSpec: TypeAlias = "Window | range | Sequence[float] | npt.NDArray[Any] | float"


class Place(NamedTuple):
    """Where a sample comes from: the index of its episode in the dataset, and which of its anchors it is."""

    episode: int
    anchor: int


class Samples(Sequence[dict[str, Field]]):
    """The samples of a dataset under a request: ``samples[i]`` reads one.

    >>> samples = ds.samples({"obs/joints": [-0.05, 0.0], "actions": range(10)})
    >>> samples
    Samples(90 samples of 2 episodes: obs/joints [2, 7], actions [10, 7])
    >>> sample = samples[45]
    >>> sample["actions"].shape, sample["actions_is_pad"].sum()
    ((10, 7), np.int64(0))
    >>> samples.locate(45)
    Place(episode=1, anchor=5)
    """

    __slots__ = ("_core", "_dataset", "_request", "_selection")

    def __init__(
        self, dataset: Dataset, request: dict[str, Any], selection: dict[str, Any]
    ) -> None:
        self._dataset = dataset
        self._core = _core.Samples(dataset._core, json.dumps(request), json.dumps(selection))
        self._request = request
        self._selection = selection

    @property
    def dataset(self) -> Dataset:
        """Where the frames are read from."""
        return self._dataset

    @property
    def request(self) -> dict[str, Any]:
        """The whole request, every default written out."""
        request: dict[str, Any] = json.loads(self._core.request())
        return request

    @property
    def episodes(self) -> npt.NDArray[np.int64]:
        """The indices in the dataset of the selected episodes."""
        return self._core.episodes()

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many samples each selected episode has."""
        return self._core.counts()

    def locate(self, index: SupportsIndex) -> Place:
        """Return which anchor of which episode a sample belongs to; reads no frames."""
        return Place(*self._core.locate(self._position(index)))

    def frames(self, index: SupportsIndex) -> dict[str, npt.NDArray[np.int64]]:
        """Return which frames of each stream a sample is made of, -1 for zeros; interpolation also uses the next frame."""
        return self._core.frames(self._position(index))

    def with_variants(self, variants: Mapping[str, str | None]) -> Samples:
        """Give the same samples, read from other encodings of their streams (see :meth:`kinograph.Dataset.samples`)."""
        request = self._request | {"variants": to_pairs(variants)}
        return Samples(self._dataset, request, self._selection)

    def __len__(self) -> int:
        return len(self._core)

    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Field]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Field]]: ...

    def __getitem__(
        self, index: SupportsIndex | slice
    ) -> dict[str, Field] | list[dict[str, Field]]:
        """Read one sample, or a list of them by a slice."""
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        return {
            key: _to_field(*field) for key, field in self._core.read(self._position(index)).items()
        }

    def __iter__(self) -> Iterator[dict[str, Field]]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{key} [{', '.join('?' if side is None else str(side) for side in shape)}]"
            for key, shape in self._core.shapes()
        )
        samples, episodes = len(self), len(self.episodes)
        return _core.escape(
            f"Samples({samples} sample{'s' * (samples != 1)} of "
            f"{episodes} episode{'s' * (episodes != 1)}: {shapes})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Samples, (self._dataset, self._request, self._selection)

    def _position(self, index: SupportsIndex) -> int:
        if not is_number(index):
            raise InvalidArgumentError(
                f"samples are indexed by an integer or a slice, not by {index!r}"
            )
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise NotFoundError(f"no sample {position}; there are {len(self)}")
        return position % len(self)


def _to_step(step: object) -> int:
    if not is_number(step):
        raise InvalidArgumentError(
            f"Window: steps has {step!r}, which is not an integer; give `seconds` for times"
        )
    limit = (1 << 31) - 1
    return to_whole("Window: a step", step, least=-limit, most=limit)


def _to_ns(place: str, seconds: object) -> int:
    """Seconds as whole nanoseconds, to the nearest."""
    number = to_number(place, seconds)
    if not abs(number) < 1e9:
        raise InvalidArgumentError(f"{place}: {number} s is out of range; give less than 1e9 s")
    return round(number * 1e9)


def _to_field(dtype: str, shape: Sequence[int], data: Any) -> Field:  # noqa: ANN401 (bytes or texts)
    """Turn what the core read into an array, or into text."""
    if dtype == "text":
        return data if shape else data[0]
    return data.view(to_dtype(dtype)).reshape(shape)
