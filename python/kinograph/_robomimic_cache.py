"""Frames of samples cached in memory, for map-style datasets that are read item by item, many times over.

kept      {(episode, stream): all its frames}
images    {episode: the frames that some item has read}, a fixed set of episodes: those that came first, within a budget
item      sample index ──► frame indices ──► rows of the cached arrays
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph._samples import Samples

CacheMode: TypeAlias = Literal["all", "low_dim"]

# An episode's frames by stream, and which of them are cached; the memory of the others was never touched.
_Kept: TypeAlias = "dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]]"

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
    """Reads windows of images and caches them; an item whose frames are all cached is assembled from memory.

    Items come in an order that is not known here, shuffled anew in every epoch. Then every frame is equally likely to be
    the next, and to evict one for another only moves the miss. So the episodes that come first stay, until the budget is
    used up: with room for a part of the images, that part of the items is not decoded again.
    """

    def __init__(self, windows: Samples) -> None:
        self._samples = windows
        self._requests = windows.request["windows"]
        self._kept: dict[int, _Kept] = {}
        self._left = _IMAGE_BYTES

    def read(
        self, window: int, episode: int, frames: dict[str, npt.NDArray[np.int64]]
    ) -> dict[str, Any]:
        """Return the same as ``samples[window]``; the caller owns the arrays."""
        kept = self._kept.get(episode)
        if kept is None:
            return self._keep(self._samples[window], episode, frames)
        sample = {}
        for request in self._requests:
            (images, is_cached), places = kept[request["stream"]], frames[request["key"]]
            if not is_cached[places].all():
                return self._keep(self._samples[window], episode, frames)
            is_single = request["stack"] == "single"
            sample[request["key"]] = images[places[0]].copy() if is_single else images[places]
        return sample

    def _keep(
        self, sample: dict[str, Any], episode: int, frames: dict[str, npt.NDArray[np.int64]]
    ) -> dict[str, Any]:
        kept = self._kept.get(episode) or self._make_room(sample, episode)
        for request in self._requests if kept else []:
            (images, is_cached), places = kept[request["stream"]], frames[request["key"]]
            images[places] = sample[request["key"]]
            is_cached[places] = True
        return sample

    def _make_room(self, sample: dict[str, Any], episode: int) -> _Kept:
        """Allocate space for an episode's images; empty if the budget is used up."""
        kept: _Kept = {}
        for request in self._requests:
            values = sample[request["key"]]
            shape = values.shape if request["stack"] == "single" else values.shape[1:]
            length = len(self._samples.dataset[episode][request["stream"]])
            # The memory of a frame is not touched before the frame is put there.
            images = np.empty((length, *shape), values.dtype)
            kept[request["stream"]] = images, np.zeros(length, bool)
        size = sum(images.nbytes for images, _ in kept.values())
        if size > self._left:
            return {}
        self._left -= size
        self._kept[episode] = kept
        return kept

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}, "_left": _IMAGE_BYTES}
