"""Converts the user's arrays and lists to streams: kind, dtype, timestamps, packed bytes.

uint8 (N, H, W, 1 | 3 | 4)                                        image
uint16 or float (N, H, W) or (N, H, W, 1), "depth" in the name    depth
list or array of str                                              text
list of bytes, each a JPEG file                                   image, stored as it is
any other numeric array                                           vector

Arrays that look like CHW images or like float images are refused: stored as vectors, they would silently never be
resized, cropped or compressed as images. ``kinds={name: "vector"}`` stores them anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import to_number, to_text, unmasked
from kinograph._errors import InvalidArgumentError

# numpy's kind and item size, mapped to the name of the dtype in a schema.
_DTYPES = {
    "b1": "bool",
    **{f"u{size}": f"uint{size * 8}" for size in (1, 2, 4, 8)},
    **{f"i{size}": f"int{size * 8}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"float{size * 8}" for size in (2, 4, 8)},
}

_IMAGES = ("depth", "image")


@dataclass(frozen=True)
class Frames:
    """The frames of one stream, ready to be written."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    count: int
    values: npt.NDArray[np.uint8] | None
    files: list[bytes] | None


@dataclass(frozen=True)
class Times:
    """When frames were taken: one value for all streams, or one per stream."""

    rate_hz: float | Mapping[str, float] | None
    timestamps_ns: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None


def to_streams(
    streams: Mapping[str, Any], times: Times, kinds: Mapping[str, str]
) -> list[_core.StreamArgs]:
    """Convert an episode's streams to the core's arguments: small streams first, images last."""
    if not isinstance(streams, Mapping):
        raise InvalidArgumentError(
            f"the streams of an episode must be a dict of name to array, not {type(streams).__name__}"
        )
    for what, given in (
        ("rate_hz", times.rate_hz),
        ("timestamps_ns", times.timestamps_ns),
        ("kinds", kinds),
    ):
        for name in given if isinstance(given, Mapping) else ():
            if name not in streams:
                raise InvalidArgumentError(
                    f"{what} names the stream `{name}`, which is not in the episode; use one of {', '.join(streams)}"
                )
    frames = {name: to_frames(name, value, kinds.get(name)) for name, value in streams.items()}
    _check_lengths(frames, times)
    ordered = sorted(frames, key=lambda name: frames[name].kind in _IMAGES)
    return [_stream_args(name, frames[name], times) for name in ordered]


def to_frames(name: str, value: object, kind: str | None) -> Frames:
    """Convert one stream's values to packed frames."""
    to_text("the name of a stream", name)
    if isinstance(value, str | bytes):
        raise InvalidArgumentError(
            f"stream `{name}` is a single {type(value).__name__}, not one per frame; pass values that describe the whole episode as task=, labels= or attributes="
        )
    if isinstance(value, Mapping):
        inner = next(iter(value), "x")
        raise InvalidArgumentError(
            f"stream `{name}` is a dict; streams are not nested: pass each array under its whole name, such as `{name}/{inner}`"
        )
    if not isinstance(value, list | tuple):
        value = _to_array(name, value)
        if value.dtype.kind in "OUT" and value.ndim > 0:
            value = list(value)
    if isinstance(value, list | tuple) and value:
        if all(isinstance(item, str) for item in value):
            return _text_frames(name, value, kind)
        if all(isinstance(item, bytes) for item in value):
            return _file_frames(name, value, kind)
    return _array_frames(name, _to_array(name, value), kind)


def _to_array(name: str, value: object) -> npt.NDArray[Any]:
    if isinstance(value, list | tuple):
        value = [unmasked(f"a frame of stream `{name}`", frame) for frame in value]
    try:
        return np.asarray(unmasked(f"stream `{name}`", value))
    except ValueError as error:
        raise InvalidArgumentError(
            f"stream `{name}` cannot be made into one array: {error}; all frames of a stream must have the same shape"
        ) from None


def _array_frames(name: str, array: npt.NDArray[Any], kind: str | None) -> Frames:
    if array.ndim == 0:
        raise InvalidArgumentError(
            f"stream `{name}` is a single value; its first axis must be time"
        )
    if array.shape[0] == 0:
        raise InvalidArgumentError(f"stream `{name}` has no frames; omit it from the episode")
    dtype = _DTYPES.get(f"{array.dtype.kind}{array.dtype.itemsize}")
    if dtype is None:
        raise InvalidArgumentError(
            f"stream `{name}` has dtype {array.dtype}, which cannot be stored; {_alternative(array)}"
        )
    if kind is None:
        kind = _array_kind(name, dtype, array.shape[1:])
        if kind == "vector":
            _refuse_odd_images(name, array)
    packed = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    values = packed.reshape(-1).view(np.uint8)
    return Frames(kind, dtype, array.shape[1:], len(array), values, None)


def _alternative(array: npt.NDArray[Any]) -> str:
    """Suggest what to store instead of an array that cannot be stored."""
    if array.dtype.kind == "c":
        return "store the real and the imaginary part as two streams"
    if array.dtype.kind in "mM":
        return "store it as integers: array.astype(np.int64)"
    if array.dtype.kind == "S":
        return "decode it to text (np.char.decode), or pass JPEG files as a list of bytes"
    if array.dtype.kind == "V":
        return "store each field as a stream"
    if array.dtype.kind == "O":
        return "store frames of one dtype and shape, str, or JPEG files as bytes"
    return "convert it to float64"


def _array_kind(name: str, dtype: str, shape: tuple[int, ...]) -> str:
    if dtype == "uint8" and len(shape) == 3 and shape[2] in (1, 3, 4) and 0 not in shape:
        return "image"
    flat = len(shape) == 2 or (len(shape) == 3 and shape[2] == 1)
    if flat and "depth" in name.lower() and (dtype == "uint16" or dtype.startswith("float")):
        return "depth"
    return "vector"


# Sides of at least this many pixels make an array look like images.
_LEAST_SIDE = 16


def _refuse_odd_images(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse what is most likely images in a form that would be stored as vectors."""
    if array.ndim != 4:
        return
    _, first, middle, last = array.shape
    is_chw = first in (1, 3, 4) and min(middle, last) >= _LEAST_SIDE
    is_hwc = last in (3, 4) and min(first, middle) >= _LEAST_SIDE
    anyway = f'or kinds={{"{name}": "vector"}} to store it as values'
    if array.dtype == np.uint8 and is_chw:
        raise InvalidArgumentError(
            f"stream `{name}` of shape {array.shape} looks like CHW images; pass HWC: np.moveaxis(x, 1, -1), {anyway}"
        )
    if array.dtype.kind == "f" and (is_hwc or (is_chw and first != 1)) and _is_unit(array):
        order = "" if is_hwc else "np.moveaxis(x, 1, -1) and "
        raise InvalidArgumentError(
            f"stream `{name}` of shape {array.shape} looks like {array.dtype} images from 0 to 1; pass uint8 HWC: {order}"
            f"np.round(x * 255).astype(np.uint8), {anyway}"
        )


def _is_unit(array: npt.NDArray[Any]) -> bool:
    """Whether every value is from 0 to 1."""
    low, high = float(np.min(array)), float(np.max(array))
    return low >= 0 and high <= 1


def _text_frames(name: str, texts: Sequence[str], kind: str | None) -> Frames:
    if kind not in (None, "text"):
        raise InvalidArgumentError(f"stream `{name}` is text and cannot be of kind {kind!r}")
    try:
        files = [text.encode() for text in texts]
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"stream `{name}` has text that is not valid Unicode: {error}"
        ) from None
    return Frames("text", "text", (), len(files), None, files)


def _file_frames(name: str, files: Sequence[bytes], kind: str | None) -> Frames:
    if kind not in (None, "image"):
        raise InvalidArgumentError(
            f"stream `{name}` consists of JPEG files and cannot be of kind {kind!r}"
        )
    try:
        shape = _core.jpeg_shape(files[0])
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"stream `{name}` is bytes but not JPEG files that can be stored as they are: {error}; decode images to arrays, and encoded text to str"
        ) from None
    return Frames("image", "uint8", shape, len(files), None, [bytes(file) for file in files])


def _check_lengths(frames: Mapping[str, Frames], times: Times) -> None:
    """Require streams that share one rate to have the same length: a difference is usually a mistake."""
    if isinstance(times.rate_hz, Mapping) or times.rate_hz is None:
        return
    own = times.timestamps_ns if isinstance(times.timestamps_ns, Mapping) else {}
    counts = {name: stream.count for name, stream in frames.items() if name not in own}
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise InvalidArgumentError(
            f"streams with the same rate have different numbers of frames: {lengths}; if that is intended, give a rate per stream: rate_hz={{name: rate, …}}"
        )


def _stream_args(name: str, frames: Frames, times: Times) -> _core.StreamArgs:
    rate_hz, timestamps_ns = _times_of(name, times)
    return {
        "name": name,
        "kind": frames.kind,
        "dtype": frames.dtype,
        "shape": frames.shape,
        "frames": frames.count,
        "rate_hz": rate_hz,
        "timestamps_ns": timestamps_ns,
        "values": frames.values,
        "files": frames.files,
    }


def _times_of(name: str, times: Times) -> tuple[float | None, npt.NDArray[np.int64] | None]:
    """Find a stream's rate or its timestamps; its own take precedence over those for all streams."""
    rates, stamps = times.rate_hz, times.timestamps_ns
    own_rate = rates.get(name) if isinstance(rates, Mapping) else None
    own_stamps = stamps.get(name) if isinstance(stamps, Mapping) else None
    if own_rate is None and own_stamps is None:
        own_rate = None if isinstance(rates, Mapping) else rates
        own_stamps = None if isinstance(stamps, Mapping) else stamps
    if own_rate is not None and own_stamps is not None:
        raise InvalidArgumentError(
            f"stream `{name}` has both a rate and timestamps; give only one of them"
        )
    if own_stamps is not None:
        return None, _to_timestamps_ns(name, own_stamps)
    if own_rate is None:
        raise InvalidArgumentError(
            f"stream `{name}` has neither a rate nor timestamps; give rate_hz=, or timestamps_ns= with one timestamp per frame"
        )
    return to_number(f"rate_hz of stream `{name}`", own_rate), None


def _to_timestamps_ns(name: str, value: npt.ArrayLike) -> npt.NDArray[np.int64]:
    stamps = np.asarray(unmasked(f"timestamps_ns of stream `{name}`", value))
    if stamps.dtype.kind == "M":
        raise InvalidArgumentError(
            f"timestamps of stream `{name}` are {stamps.dtype}; they must be integer nanoseconds: stamps.astype('datetime64[ns]').astype(np.int64)"
        )
    if stamps.dtype.kind not in "iu" or stamps.ndim != 1:
        raise InvalidArgumentError(
            f"timestamps of stream `{name}` are {stamps.dtype} of shape {stamps.shape}; they must be integer nanoseconds, one per frame: np.round(seconds * 1e9).astype(np.int64)"
        )
    if stamps.dtype == np.uint64 and stamps.size and int(stamps.max()) >= 1 << 63:
        raise InvalidArgumentError(
            f"timestamps of stream `{name}` do not fit int64; give nanoseconds below 2**63"
        )
    return np.ascontiguousarray(stamps, dtype=np.int64)
