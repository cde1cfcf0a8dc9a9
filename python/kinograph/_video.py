"""Video files, decoded with PyAV; the importers of :func:`kinograph.pack` read cameras with it.

Frames are found by index, never by a float time. A file's packets are listed once, without decoding; sorted by pts,
they are the frames in presentation order. To reach a frame, decoding starts at a key frame that is presented no later
than the frame. In an open GOP (group of pictures), leading frames may lack their references after such a seek, but
they are presented before the key frame, so they are not needed. Every decoded frame must have the pts in the list.

FFmpeg hides damage: it conceals what it can, marks the frame as corrupt and continues. Here such a frame is an error,
and so is every frame that may have been predicted from it: a frame is returned only once all frames decoded before it
have been checked, including those presented later.
"""

from __future__ import annotations

import bisect
import fractions
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

#: Single-channel pixel formats with more than eight bits: depth codes.
_DEEP_GREY = ("gray9", "gray10", "gray12", "gray14", "gray16")

#: LeRobot's encoder settings: a GOP of two frames, CRF 30.
_ENCODER = {"g": "2", "crf": "30"}

#: Threads per decoder, for codecs whose decoder either reports damage as an error or does not detect it. FFmpeg's other
#: decoders mark frames as corrupt; with several threads, a frame may be returned before its thread has marked it.
_THREADS = {"libdav1d": 4, "libaom-av1": 4, "av1": 4, "vp9": 4, "libvpx-vp9": 4}

#: Other formats include playlists, which make FFmpeg open other files and URLs.
_CONTAINERS = {"format_whitelist": "mov,mp4,matroska,webm,avi", "protocol_whitelist": "file"}

#: Checks that FFmpeg only makes on request: image checksums, which HEVC may contain, and impossible codes in MPEG-4.
_CHECKS = {
    "hevc": {"err_detect": "crccheck+explode"},
    "mpeg4": {"err_detect": "careful+explode"},
}


class VideoError(Exception):
    """A video that is damaged or truncated; the message is appended to the file name."""


def is_available() -> bool:
    """Whether PyAV is installed.

    >>> from kinograph import _video
    >>> _video.is_available() in (True, False)
    True
    """
    try:
        import av  # noqa: F401, PLC0415 (optional, and slow to import)
    except ImportError:
        return False
    return True


class Video:
    """An open video file."""

    def __init__(self, path: str) -> None:
        import av  # noqa: PLC0415 (optional, and slow to import)

        self._path = path
        self._errors = (av.FFmpegError, EOFError, ValueError)
        self._frames: Iterator[Any] | None = None
        self._next = 0
        #: Frames that are decoded but not requested yet, from `_next` on.
        self._ahead: deque[Any] = deque()
        #: Whether decoding began with a seek, not at the start of the file.
        self._is_sought = False
        try:
            self._open()
            self._list_frames()
        except IndexError:
            raise VideoError("has no video stream") from None
        except self._errors as error:
            raise VideoError(f"cannot be read as a video ({error})") from None
        context = self._stream.codec_context
        self.height = int(context.height)
        self.width = int(context.width)
        #: Whether a pixel is a single 16-bit value instead of three bytes.
        self.is_deep = str(context.pix_fmt or "").startswith(_DEEP_GREY)

    def _open(self) -> None:
        import av  # noqa: PLC0415 (optional, and slow to import)

        self._container: Any = av.open(self._path, options=_CONTAINERS)
        self._stream = self._container.streams.video[0]
        context = self._stream.codec_context
        context.options = _CHECKS.get(context.name, {})
        self._stream.thread_type = "AUTO"
        # An import decodes many videos at once, and every thread of a decoder keeps images in memory.
        context.thread_count = _THREADS.get(context.name, 1)

    def _list_frames(self) -> None:
        """List the pts of all frames and the key frames, without decoding."""
        base = self._stream.time_base
        if base is None:
            raise VideoError("has no time base")
        shown: list[int] = []
        #: Pts and dts of each key frame; FFmpeg seeks by dts.
        keys: list[tuple[int, int]] = []
        for packet in self._container.demux(self._stream):
            # The last packet of a truncated file is complete only according to the file's index.
            if packet.size == 0 or packet.is_discard or packet.is_corrupt:
                continue
            if packet.pts is None:
                raise VideoError("has a frame without a timestamp")
            shown.append(packet.pts)
            if packet.is_keyframe:
                keys.append((packet.pts, packet.pts if packet.dts is None else packet.dts))
        decoded = shown.copy()
        shown.sort()
        if len(set(shown)) != len(shown):
            raise VideoError("has two frames with the same timestamp")
        self._horizon = _horizon(shown, decoded)
        self._shown = shown
        self._keys = sorted(keys)
        self.times_ns = [round(time * base * 1_000_000_000) for time in shown]

    def read(self, first: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read frames by index, in presentation order, as packed bytes.

        Pixels are RGB, or a little-endian 16-bit value if :attr:`is_deep`.
        """
        if not 0 <= first <= stop <= len(self._shown):
            raise VideoError(f"has {len(self._shown)} frames, not {first} to {stop}")
        try:
            return self._read(first, stop)
        except VideoError:
            # After a seek, the only problem may be that earlier frames were not decoded.
            if not self._is_sought:
                raise
        self._keys = []
        self._restart()
        return self._read(first, stop)

    def _read(self, first: int, stop: int) -> npt.NDArray[np.uint8]:
        channels = 1 if self.is_deep else 3
        dtype = np.dtype("<u2") if self.is_deep else np.dtype("u1")
        out = np.empty((stop - first, self.height, self.width, channels), dtype)
        try:
            if first < stop:
                self._go_to(first)
            for place in range(stop - first):
                out[place] = self._pixels(self._take()).reshape(out.shape[1:])
        except self._errors as error:
            self._frames = None
            at = self._next + len(self._ahead)
            raise VideoError(f"cannot be decoded at frame {at} ({error})") from None
        return out.reshape(-1).view(np.uint8)

    def _go_to(self, frame: int) -> None:
        """Move to a frame: decode forward, or seek to a key frame if that is nearer."""
        if frame == self._next and self._frames is not None:
            return
        place = bisect.bisect_right(self._keys, (self._shown[frame], 1 << 62)) - 1
        key = bisect.bisect_left(self._shown, self._keys[place][0]) if place >= 0 else 0
        if self._frames is None or not key <= self._next <= frame:
            self._start(frame, place)
        while self._next < frame:
            self._take()

    def _start(self, frame: int, place: int) -> None:
        """Decode from a key frame presented no later than a frame; from an earlier one if FFmpeg's seek misses it."""
        while place >= 0:
            self._container.seek(self._keys[place][1], stream=self._stream, backward=True)
            if self._begin(frame):
                return
            place -= 1
        # No key frame works.
        self._restart()

    def _restart(self) -> None:
        """Decode from the start of the file again, without a seek."""
        self._container.close()
        self._open()
        self._ahead.clear()
        self._frames, self._next, self._is_sought = self._decoded(None), 0, False

    def _begin(self, frame: int) -> bool:
        """Begin at the packet after a seek, if everything from `frame` on can be decoded from there."""
        packets = self._container.demux(self._stream)
        packet = next(packets, None)
        if packet is None or not packet.is_keyframe or packet.pts is None:
            return False
        if packet.pts > self._shown[frame]:
            return False
        start = bisect.bisect_left(self._shown, packet.pts)
        if start >= len(self._shown) or self._shown[start] != packet.pts:
            return False
        self._ahead.clear()
        self._frames, self._next, self._is_sought = self._decoded((packet, packets)), start, True
        return True

    def _decoded(self, begun: tuple[Any, Iterator[Any]] | None) -> Iterator[Any]:
        if begun is None:
            yield from self._container.decode(self._stream)
            return
        yield from begun[0].decode()
        for packet in begun[1]:
            yield from packet.decode()

    def _take(self) -> Any:  # noqa: ANN401 (PyAV is optional, and so are its types)
        """Return the next frame, once all frames decoded before it have been checked."""
        while self._next + len(self._ahead) <= self._horizon[self._next]:
            self._ahead.append(self._decode_next())
        self._next += 1
        return self._ahead.popleft()

    def _decode_next(self) -> Any:  # noqa: ANN401 (as above)
        """Decode one more frame, which must be intact and have the expected pts."""
        number = self._next + len(self._ahead)
        expected = self._shown[number]
        assert self._frames is not None
        for frame in self._frames:
            # Leading frames of the key frame that decoding began with: their references may be missing.
            if frame.pts is not None and frame.pts < expected:
                continue
            if frame.pts != expected:
                break
            if frame.is_corrupt:
                self._frames = None
                raise VideoError(f"is damaged at frame {number}: FFmpeg reports it as corrupt")
            return frame
        self._frames = None
        raise VideoError(f"cannot be decoded at frame {number}: the file is damaged or truncated")

    def _pixels(self, frame: Any) -> npt.NDArray[Any]:  # noqa: ANN401 (as above)
        if (frame.height, frame.width) != (self.height, self.width):
            raise VideoError(f"changes its size at frame {self._next - 1}")
        pixels: npt.NDArray[Any]
        if not self.is_deep:
            pixels = frame.to_ndarray(format="rgb24")
        else:
            # Depth codes must stay as they are: FFmpeg would scale 12 bits to 16.
            plane = frame.planes[0]
            rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
            pixels = rows[: self.height, : self.width * 2].copy().view("<u2")
            if str(frame.format.name).endswith("be"):
                pixels = pixels.byteswap()
        return pixels


def _horizon(shown: list[int], decoded: list[int]) -> list[int]:
    """For each frame, in presentation order, the last frame that is decoded no later than it.

    >>> from kinograph import _video
    >>> _video._horizon([0, 1, 2, 3], [0, 2, 1, 3])
    [0, 2, 2, 3]
    """
    number = {time: place for place, time in enumerate(shown)}
    horizon, last = [0] * len(shown), 0
    for time in decoded:
        last = max(last, number[time])
        horizon[number[time]] = last
    for place in range(1, len(horizon)):
        horizon[place] = max(horizon[place], horizon[place - 1])
    return horizon


class NewVideo:
    """A video file being written: AV1 in MP4, encoded with LeRobot's defaults.

    >>> from kinograph import _video
    >>> if _video.is_available():
    ...     video = _video.NewVideo("/tmp/doctest-new-video.mp4", 64, 64, 30.0)
    ...     video.push(np.zeros(64 * 64 * 3, np.uint8))
    ...     video.finish()
    """

    def __init__(self, path: str, height: int, width: int, rate_hz: float) -> None:
        import av  # noqa: PLC0415 (optional, and slow to import)

        self._av: Any = av
        self._shape = (height, width, 3)
        rate = fractions.Fraction(rate_hz).limit_denominator(1001)
        try:
            self._container: Any = av.open(path, "w")
            self._stream: Any = self._container.add_stream("libsvtav1", rate, options=_ENCODER)
        except (av.FFmpegError, ValueError) as error:
            raise VideoError(f"cannot be encoded ({error})") from None
        self._stream.pix_fmt = "yuv420p"
        self._stream.width = width
        self._stream.height = height
        self._frames = 0

    def push(self, pixels: npt.NDArray[np.uint8]) -> None:
        """Add packed RGB frames."""
        try:
            for image in pixels.reshape(-1, *self._shape):
                frame = self._av.VideoFrame.from_ndarray(image, format="rgb24")
                frame.pts = self._frames
                self._frames += 1
                self._container.mux(self._stream.encode(frame))
        except (self._av.FFmpegError, ValueError) as error:
            raise VideoError(f"cannot be encoded at frame {self._frames} ({error})") from None

    def finish(self) -> None:
        """Write the remaining frames and close the file."""
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
        except (self._av.FFmpegError, ValueError) as error:
            raise VideoError(f"cannot be finished ({error})") from None
