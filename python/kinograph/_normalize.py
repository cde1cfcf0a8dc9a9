"""Normalisation: the offset and scale of each key.

    "mean_std"         mean 0 and std 1
    "min_max"          from -1 to 1
    (means, stds)      given values

All of them compute ``(value - offset) / scale``; a policy inverts it with ``value * scale + offset``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from kinograph._arguments import to_word
from kinograph._errors import InvalidArgumentError

if TYPE_CHECKING:
    from kinograph._dataset import Dataset, StreamStats, StreamSummary
    from kinograph._order import Source

Method: TypeAlias = Literal["mean_std", "min_max"]

# One method for all keys, or a method or values by key.
Normalize: TypeAlias = "Method | Mapping[str, Method | tuple[Any, Any]]"

# Constant dimensions are centred but not scaled, so that noise is not amplified; robomimic's thresholds.
_LEAST_STD = 1e-6
_LEAST_RANGE = 1e-4


class Scale(NamedTuple):
    """Offset and scale of a key: ``(value - offset) / scale``; for cameras, values range from 0 to 1."""

    offset: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]


def to_scales(
    sources: Sequence[Source], normalize: Normalize | None, *, are_cameras_floats: bool
) -> dict[str, Scale]:
    """Compute offset and scale per key, from the statistics of all frames of all datasets together."""
    if normalize is None:
        return {}
    streams = {window["key"]: window["stream"] for window in sources[0].samples.request["windows"]}
    if isinstance(normalize, str):
        method = to_word("normalize", normalize, get_args(Method))
        known = sources[0].samples.dataset.streams
        keys = [
            key
            for key, stream in streams.items()
            if _is_float(known[stream]) or (are_cameras_floats and is_camera(known[stream]))
        ]
        if not keys:
            raise InvalidArgumentError(
                f"normalize is {method!r}, but no key is a float; name the keys, or request images as float32"
            )
        normalize = cast("Mapping[str, Method]", dict.fromkeys(keys, method))
    if not isinstance(normalize, Mapping):
        raise InvalidArgumentError(
            f"normalize is {normalize!r}; use one of {', '.join(get_args(Method))}, or a dict of key to method"
        )
    return {key: _to_scale(key, how, sources, streams) for key, how in normalize.items()}


def _to_scale(key: str, how: object, sources: Sequence[Source], streams: dict[str, str]) -> Scale:
    if key not in streams:
        raise InvalidArgumentError(
            f"normalize: there is no key `{key}`; there are {', '.join(streams)}"
        )
    place = f"normalize of `{key}`"
    stream = sources[0].samples.dataset.streams[streams[key]]
    if stream.dtype is None:
        raise InvalidArgumentError(f"{place}: it is text, which cannot be normalised")
    if isinstance(how, tuple | list) and len(how) == 2:
        return Scale(*(_to_numbers(place, numbers, stream) for numbers in how))
    if not isinstance(how, str):
        raise InvalidArgumentError(
            f"{place} is {how!r}; give one of {', '.join(get_args(Method))}, or (means, stds)"
        )
    method = to_word(place, how, get_args(Method))
    mean, std, least, most = _union(key, sources)
    if is_camera(stream):
        mean, std, least, most = (numbers / 255 for numbers in (mean, std, least, most))
    if method == "mean_std":
        offset, scale = mean, np.where(std < _LEAST_STD, 1.0, std)
    else:
        offset = (least + most) / 2
        scale = np.where(most - least < _LEAST_RANGE, 1.0, (most - least) / 2)
    # Dimensions without a single finite value have no statistics: leave them unchanged.
    known = np.isfinite(offset) & np.isfinite(scale)
    return Scale(
        *(
            _to_numbers(place, numbers, stream)
            for numbers in (np.where(known, offset, 0.0), np.where(known, scale, 1.0))
        )
    )


def _union(key: str, sources: Sequence[Source]) -> tuple[npt.NDArray[np.float64], ...]:
    """Merge the statistics of a key over the datasets of all sources; each frame of each dataset counts once."""
    parts: dict[str, StreamStats] = {}
    for source in sources:
        dataset: Dataset = source.samples.dataset
        windows = source.samples.request["windows"]
        # If another source lacks the key, the loader's own check refuses it at the start.
        for stream in (window["stream"] for window in windows if window["key"] == key):
            parts[dataset.id] = dataset.stats[stream]
    stats = list(parts.values())
    if len({part.mean.shape for part in stats}) > 1:
        raise InvalidArgumentError(
            f"normalize of `{key}`: its shape differs between the datasets of the mixture; give (means, stds)"
        )
    counts = np.stack([part.count for part in stats]).astype(np.float64)
    # A dimension without finite values has no mean, and gets no weight.
    means, stds = (
        np.stack([np.where(part.count > 0, getattr(part, name), 0.0) for part in stats])
        for name in ("mean", "std")
    )
    with np.errstate(invalid="ignore"):
        weights = counts / counts.sum(axis=0)
        mean = (weights * means).sum(axis=0)
        std = np.sqrt((weights * (stds**2 + (means - mean) ** 2)).sum(axis=0))
    least = np.fmin.reduce([part.min for part in stats])
    most = np.fmax.reduce([part.max for part in stats])
    return mean, std, least, most


def _to_numbers(place: str, numbers: object, stream: StreamSummary) -> npt.NDArray[np.float64]:
    """Take a value per channel of an image, or per element; one value stands for all."""
    shape = stream.shape[-1:] if is_camera(stream) else stream.shape
    what = "channels" if is_camera(stream) else "elements"
    try:
        values = np.asarray(numbers, dtype=np.float64)
        if stream.kind == "depth" and values.size == 1:
            # Depth may be resized: one value fits every size.
            return values.reshape(1)
        array: npt.NDArray[np.float64] = np.broadcast_to(values, shape).copy()
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"{place}: {numbers!r} does not fit {math.prod(shape)} {what}"
        ) from None
    return array


def is_camera(stream: StreamSummary) -> bool:
    """Whether frames are images of bytes, which is what the core resizes and scales as images."""
    return stream.dtype == np.uint8 and len(stream.shape) == 3


def _is_float(stream: StreamSummary) -> bool:
    return stream.dtype is not None and stream.dtype.kind == "f"
