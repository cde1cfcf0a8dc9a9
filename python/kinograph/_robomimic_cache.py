"""Frames of samples cached in memory, for map-style datasets that are read item by item, many times over.

kept      {(episode, stream): all its frames}
images    {(episode, stream): the frames that some item has read}, within a budget, oldest evicted first
item      sample index ──► frame indices ──► rows of the cached arrays
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph._samples import Samples

CacheMode: TypeAlias = Literal["all", "low_dim"]

# An episode's frames, and which of them are cached; the memory of the others was never touched.
_Kept: TypeAlias = "tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]"

# Samples overlap, so a frame is requested many times. This holds 6,000 steps of two 84 × 84 cameras.
_IMAGE_BYTES = 256 << 20


class FrameCache:
    """Caches all streams of some samples, or all but images, which are then read on demand and cached within a budget.

    A frame is cached once, however many items contain it.
    """

    def __init__(self, windows: Samples, mode: CacheMode) -> None:
        self._samples = windows
        streams = windows.dataset.streams
        request = windows.request
        read = [
            request
            for request in request["windows"]
            if mode == "low_dim" and streams[request["stream"]].kind in ("image", "depth")
        ]
        self._requests = [request for request in request["windows"] if request not in read]
        self._anchor = request["anchor"]["stream"]
        self._steps = np.array(self._requests[0]["at"]["steps"])
        self._is_masked = request["masks"] != "off"
        self._images: _Images | None = None
        if read:
            only = request | {"windows": read, "masks": "off"}
            self._images = _Images(Samples(windows.dataset, only, windows._selection))
        self._lengths: dict[int, int] = {}
        self._kept: dict[tuple[int, str], Any] = {}
        # Loaded before a fork, so that workers share the memory.
        for episode in windows.episodes.tolist():
            self._keep(episode)

    def read(self, window: int) -> dict[str, Any]:
        """Return the same as ``samples[window]``; the caller owns the arrays."""
        episode, anchor = self._samples.locate(window)
        if episode not in self._lengths:
            self._keep(episode)
        frames = self._samples.frames(window)
        sample = {} if self._images is None else self._images.read(window, episode, frames)
        for request in self._requests:
            values, places = self._kept[episode, request["stream"]], frames[request["key"]]
            if isinstance(values, list):
                sample[request["key"]] = [values[place] for place in places]
            elif request["stack"] == "single":
                sample[request["key"]] = values[places[0]].copy()
            else:
                sample[request["key"]] = values[places]
        if self._is_masked:
            places = anchor + self._steps
            sample["pad_mask"] = ((places >= 0) & (places < self._lengths[episode]))[:, None]
        return sample

    def _keep(self, number: int) -> None:
        episode = self._samples.dataset[number]
        for request in self._requests:
            name = request["stream"]
            if (number, name) not in self._kept:
                values = episode[name][:]
                if isinstance(values, np.ndarray) and not name.startswith(("obs/", "next_obs/")):
                    values = values.astype(np.float32)
                self._kept[number, name] = values
        self._lengths[number] = len(episode[self._anchor])

    def __getstate__(self) -> dict[str, Any]:
        # Another process reads what it needs itself: faster than sending everything.
        return self.__dict__ | {"_kept": {}, "_lengths": {}}


class _Images:
    """Reads windows of images and caches them; an item whose frames are all cached is assembled from memory."""

    def __init__(self, windows: Samples) -> None:
        self._samples = windows
        self._requests = windows.request["windows"]
        self._kept: dict[tuple[int, str], _Kept] = {}
        self._bytes = 0

    def read(
        self, window: int, episode: int, frames: dict[str, npt.NDArray[np.int64]]
    ) -> dict[str, Any]:
        """Return the same as ``samples[window]``; the caller owns the arrays."""
        sample = {}
        for request in self._requests:
            kept, places = self._kept.get((episode, request["stream"])), frames[request["key"]]
            if kept is None or not kept[1][places].all():
                return self._keep(self._samples[window], episode, frames)
            sample[request["key"]] = kept[0][places if request["stack"] == "stacked" else places[0]]
            if request["stack"] == "single":
                sample[request["key"]] = sample[request["key"]].copy()
        return sample

    def _keep(
        self, sample: dict[str, Any], episode: int, frames: dict[str, npt.NDArray[np.int64]]
    ) -> dict[str, Any]:
        for request in self._requests:
            name, values = request["stream"], sample[request["key"]]
            if request["stack"] == "single":
                values = values[None]
            kept = self._kept.get((episode, name)) or self._make_room(episode, name, values)
            if kept is not None:
                images, is_cached = kept
                images[frames[request["key"]]] = values
                is_cached[frames[request["key"]]] = True
        return sample

    def _make_room(self, episode: int, name: str, values: npt.NDArray[Any]) -> _Kept | None:
        """Allocate space for an episode's images, evicting the oldest; ``None`` if they exceed the whole budget."""
        length = len(self._samples.dataset[episode][name])
        size = length * values[0].nbytes
        if size > _IMAGE_BYTES:
            return None
        while self._bytes + size > _IMAGE_BYTES:
            images, _ = self._kept.pop(next(iter(self._kept)))
            self._bytes -= images.nbytes
        kept = np.empty((length, *values.shape[1:]), values.dtype), np.zeros(length, bool)
        self._kept[episode, name] = kept
        self._bytes += size
        return kept

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}, "_bytes": 0}
