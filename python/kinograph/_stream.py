"""One stream of one episode: frames by index, by list of indices or by seconds.

stream[5]           one frame                stream[10:20]      frames 10 to 19
stream[-1]          the last one             stream[::2]        every other
stream[[3, 1, 7]]   these, in this order     stream[0.0:1.5]    the first one and a half seconds
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from kinograph._errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from kinograph import _core
    from kinograph._episode import Episode

# What reading returns: an array, or `str` or a list of `str` for text streams. One type for both; with a union, all
# code that reads arrays would first have to convince its type checker that they are not text.
FrameData: TypeAlias = Any

# Iterating reads about this many bytes at a time, at least one frame.
_BLOCK_BYTES = 8 << 20

# Pages of vector streams hold a hundred frames and more: skipping fewer than this saves nothing.
_NEAR_FRAMES = 64


class Stream:
    """One stream of one episode: an array with time as its first axis, on disk.

    Indexing reads from disk and returns numpy arrays; for text streams, ``str`` or lists of ``str``.

    >>> stream = ds[0]["actions"]
    >>> stream
    Stream('actions': 40 frames of float64[7] at 20 Hz, vector, vector:level=8)
    >>> stream[10:20].shape, stream[0].shape
    ((10, 7), (7,))

    Floats are seconds from the episode's start, with the end excluded. Negative seconds are before the start; they do
    not count from the end:

    >>> stream[0.5:1.0].shape
    (10, 7)
    """

    __slots__ = ("_core", "_episode")

    def __init__(self, episode: Episode, core: _core.Stream) -> None:
        self._episode = episode
        self._core = core

    @property
    def name(self) -> str:
        """Its name in the episode."""
        return self._core.name

    @property
    def kind(self) -> str:
        """One of ``"vector"``, ``"image"``, ``"depth"`` and ``"text"``."""
        return self._core.kind

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy dtype; ``None`` for text."""
        return to_dtype(self._core.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array that ``stream[:]`` returns: number of frames, then the shape of one frame."""
        return (len(self), *self._core.shape)

    @property
    def codec(self) -> str:
        """The codec it is stored with, and its parameters."""
        return self._core.codec

    @property
    def rate_hz(self) -> float | None:
        """Frames per second; ``None`` if each frame has an explicit timestamp."""
        return self._core.rate_hz()

    @property
    def times_s(self) -> npt.NDArray[np.float64]:
        """When each frame was taken, in seconds from the start of the episode.

        >>> ds[0]["actions"].times_s[:3]
        array([0.  , 0.05, 0.1 ])
        """
        return (self.timestamps_ns - self._episode.start_ns) / 1e9

    @property
    def timestamps_ns(self) -> npt.NDArray[np.int64]:
        """The timestamp of each frame, in nanoseconds; the episode starts at ``episode.start_ns``.

        >>> ds[0]["actions"].timestamps_ns[:3]
        array([        0,  50000000, 100000000])
        """
        return self._core.read_timestamps_ns()

    def bitstream(self, frame: SupportsIndex) -> bytes | None:
        """Read the JPEG file of a frame as stored; ``None`` if the codec does not store files."""
        return self._core.read_bitstream(self._frame(frame))

    def __len__(self) -> int:
        return len(self._core)

    def __getitem__(self, key: object) -> FrameData:
        """Read frames; see the class."""
        if isinstance(key, slice):
            return self._read(self._frames_of(key))
        if is_number(key):
            frame = self._frame(key)
            return self._read(range(frame, frame + 1))[0]
        if isinstance(key, float | np.floating):
            raise InvalidArgumentError(
                f"stream `{self.name}`: {key} s is a single time; use a range of seconds such as [{key}:{key + 1.0}], or an integer frame index"
            )
        if key is Ellipsis or (isinstance(key, tuple) and not key):
            return self._read(range(len(self)))
        if isinstance(key, tuple):
            raise InvalidArgumentError(
                f"stream `{self.name}` can be indexed by frame only; index the returned array instead: stream[10:20][:, 0]"
            )
        return self._read_frames(self._indices_of(key))

    def __iter__(self) -> Iterator[FrameData]:
        dtype = self.dtype
        frame_bytes = 1 << 10 if dtype is None else dtype.itemsize * math.prod(self._core.shape)
        step = max(1, _BLOCK_BYTES // max(1, frame_bytes))
        for first in range(0, len(self), step):
            yield from self._read(range(first, min(first + step, len(self))))

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        if copy is False:
            raise InvalidArgumentError(
                f"stream `{self.name}` is on disk, so reading it always copies; omit copy=False"
            )
        return np.asarray(self[:], dtype=dtype)

    def __repr__(self) -> str:
        rate_hz = self._core.rate_hz()
        rate = "with explicit timestamps" if rate_hz is None else f"at {rate_hz:g} Hz"
        shape = "".join(f"[{', '.join(map(str, self._core.shape))}]" if self._core.shape else "")
        return f"Stream({self.name!r}: {len(self)} frames of {self._core.dtype}{shape} {rate}, {self.kind}, {self.codec})"

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self._episode, self.name)

    def _frame(self, key: SupportsIndex) -> int:
        """Check a frame index; a negative one counts from the end."""
        frame = operator.index(key)
        if not -len(self) <= frame < len(self):
            raise NotFoundError(
                f"no frame {frame} in stream `{self.name}`, which has {len(self)} frames"
            )
        return frame % len(self)

    def _frames_of(self, key: slice) -> range:
        """Find the frames of a slice, given as indices or as seconds."""
        ends = [end for end in (key.start, key.stop) if end is not None]
        seconds = [isinstance(end, float | np.floating) for end in ends]
        if any(seconds):
            if not all(seconds) or key.step is not None:
                raise InvalidArgumentError(
                    f"stream `{self.name}`: {_shown(key)} mixes frame indices and seconds; write [0:20] for frames, [0.0:1.0] for seconds"
                )
            start_s = -math.inf if key.start is None else float(key.start)
            end_s = math.inf if key.stop is None else float(key.stop)
            first, end = self._core.frames_between(start_s, end_s)
            return range(first, max(first, end))
        try:
            return range(len(self))[key]
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"stream `{self.name}`: {_shown(key)}: {error}") from None

    def _indices_of(self, key: object) -> npt.NDArray[np.int64]:
        """Find the frames of a list or array of indices, or of a boolean mask."""
        wanted = np.asarray(key)
        if wanted.dtype == bool and wanted.shape == (len(self),):
            return np.flatnonzero(wanted)
        if wanted.size == 0 and wanted.ndim == 1:
            return np.zeros(0, dtype=np.int64)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"stream `{self.name}` is indexed by a frame index, a slice, a list of frame indices or a boolean mask of {len(self)} frames, not by {key!r}"
            )
        # Compare as Python integers: an unsigned value may not fit int64.
        lowest, highest = int(wanted.min()), int(wanted.max())
        if lowest < -len(self) or highest >= len(self):
            outside = highest if highest >= len(self) else lowest
            raise NotFoundError(
                f"no frame {outside} in stream `{self.name}`, which has {len(self)} frames"
            )
        indices = wanted.astype(np.int64)
        return np.where(indices < 0, indices + len(self), indices)

    def _read(self, frames: range) -> FrameData:
        if frames.step != 1:
            return self._read_frames(np.arange(frames.start, frames.stop, frames.step))
        dtype = self.dtype
        if dtype is None:
            return self._core.read_text(frames.start, frames.start + len(frames))
        out = np.empty((len(frames), *self._core.shape), dtype)
        self._read_into(frames.start, out)
        return out

    def _read_into(self, first: int, out: npt.NDArray[Any]) -> None:
        """Fill a contiguous array with the frames from ``first`` on."""
        self._core.read_into(first, first + len(out), out.reshape(-1).view(np.uint8))

    def _read_frames(self, indices: npt.NDArray[np.int64]) -> FrameData:
        """Read frames in any order: each frame once, neighbours together."""
        dtype = self.dtype
        wanted, places = np.unique(indices, return_inverse=True)
        near = _NEAR_FRAMES if self.kind in ("vector", "text") else 1
        runs = np.split(wanted, np.flatnonzero(np.diff(wanted) > near) + 1) if len(wanted) else []
        if dtype is None:
            texts: list[str] = []
            for run in runs:
                block = self._read(range(int(run[0]), int(run[-1]) + 1))
                texts += [block[frame] for frame in run - run[0]]
            return [texts[place] for place in places]
        out = np.empty((len(wanted), *self._core.shape), dtype)
        done = 0
        for run in runs:
            part = out[done : done + len(run)]
            if len(run) == run[-1] - run[0] + 1:
                self._read_into(int(run[0]), part)
            else:
                part[...] = self._read(range(int(run[0]), int(run[-1]) + 1))[run - run[0]]
            done += len(run)
        return out if np.array_equal(wanted, indices) else out[places]


def is_number(key: object) -> TypeGuard[SupportsIndex]:
    """Whether a key is a single integer of Python, numpy or torch; bools do not count."""
    if isinstance(key, bool | np.bool_) or getattr(key, "ndim", 0) != 0:
        return False
    try:
        operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def to_dtype(name: str) -> np.dtype[Any] | None:
    """Return the numpy dtype of a stream; ``None`` for text."""
    return None if name == "text" else np.dtype(name)


def _shown(key: slice) -> str:
    """Format a slice as the user wrote it."""
    parts = [key.start, key.stop] if key.step is None else [key.start, key.stop, key.step]
    return "[" + ":".join("" if part is None else repr(part) for part in parts) + "]"
