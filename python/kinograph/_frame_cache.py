"""The frames of windows in memory, for datasets that are read again and again one item at a time.

kept        {(episode, stream): every frame of it}
pictures    {(episode, stream): those frames of it that some item had}, within a budget, the oldest let go first
item        window number ──► its frames' numbers ──► rows of what is kept
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from kinograph._windows import Windows

CacheMode: TypeAlias = Literal["all", "low_dim"]

# An episode's frames, and which of them are there; the memory of those that are not was never touched.
_Kept: TypeAlias = "tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]"

# Windows overlap, so a frame is asked for many times. Of two cameras of 84 × 84 this holds 6,000 steps.
_PICTURE_BYTES = 256 << 20


class FrameCache:
    """Keeps all streams of some windows, or all but pictures, which are then read, and kept within a budget.

    Frames are kept once, and not once for every item that has them.
    """

    def __init__(self, windows: Windows, mode: CacheMode) -> None:
        self._windows = windows
        streams = windows.dataset.streams
        request = windows.request
        read = [
            wish
            for wish in request["windows"]
            if mode == "low_dim" and streams[wish["stream"]].kind in ("image", "depth")
        ]
        self._wishes = [wish for wish in request["windows"] if wish not in read]
        self._anchor = request["anchor"]["stream"]
        self._steps = np.array(self._wishes[0]["at"]["steps"])
        self._is_masked = request["masks"] != "off"
        self._pictures: _Pictures | None = None
        if read:
            only = request | {"windows": read, "masks": "off"}
            self._pictures = _Pictures(Windows(windows.dataset, only, windows._selection))
        self._lengths: dict[int, int] = {}
        self._kept: dict[tuple[int, str], Any] = {}
        # Before a fork, so that workers share it.
        for episode in windows.episodes.tolist():
            self._keep(episode)

    def read(self, window: int) -> dict[str, Any]:
        """Give what ``windows[window]`` would; the arrays are the caller's own."""
        episode, anchor = self._windows.locate(window)
        if episode not in self._lengths:
            self._keep(episode)
        frames = self._windows.frames(window)
        sample = {} if self._pictures is None else self._pictures.read(window, episode, frames)
        for wish in self._wishes:
            values, places = self._kept[episode, wish["stream"]], frames[wish["key"]]
            if isinstance(values, list):
                sample[wish["key"]] = [values[place] for place in places]
            elif wish["stack"] == "single":
                sample[wish["key"]] = values[places[0]].copy()
            else:
                sample[wish["key"]] = values[places]
        if self._is_masked:
            places = anchor + self._steps
            sample["pad_mask"] = ((places >= 0) & (places < self._lengths[episode]))[:, None]
        return sample

    def _keep(self, number: int) -> None:
        episode = self._windows.dataset[number]
        for wish in self._wishes:
            name = wish["stream"]
            if (number, name) not in self._kept:
                values = episode[name][:]
                if isinstance(values, np.ndarray) and not name.startswith(("obs/", "next_obs/")):
                    values = values.astype(np.float32)
                self._kept[number, name] = values
        self._lengths[number] = len(episode[self._anchor])

    def __getstate__(self) -> dict[str, Any]:
        # Another process reads again what it needs: that is faster than sending everything.
        return self.__dict__ | {"_kept": {}, "_lengths": {}}


class _Pictures:
    """Reads windows of pictures, and keeps what was read: an item whose frames all were is put together from memory."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._wishes = windows.request["windows"]
        self._kept: dict[tuple[int, str], _Kept] = {}
        self._bytes = 0

    def read(
        self, window: int, episode: int, frames: dict[str, npt.NDArray[np.int64]]
    ) -> dict[str, Any]:
        """Give what ``windows[window]`` would; the arrays are the caller's own."""
        sample = {}
        for wish in self._wishes:
            kept, places = self._kept.get((episode, wish["stream"])), frames[wish["key"]]
            if kept is None or not kept[1][places].all():
                return self._keep(self._windows[window], episode, frames)
            sample[wish["key"]] = kept[0][places if wish["stack"] == "stacked" else places[0]]
            if wish["stack"] == "single":
                sample[wish["key"]] = sample[wish["key"]].copy()
        return sample

    def _keep(
        self, sample: dict[str, Any], episode: int, frames: dict[str, npt.NDArray[np.int64]]
    ) -> dict[str, Any]:
        for wish in self._wishes:
            name, values = wish["stream"], sample[wish["key"]]
            if wish["stack"] == "single":
                values = values[None]
            kept = self._kept.get((episode, name)) or self._make_room(episode, name, values)
            if kept is not None:
                pictures, is_there = kept
                pictures[frames[wish["key"]]] = values
                is_there[frames[wish["key"]]] = True
        return sample

    def _make_room(self, episode: int, name: str, values: npt.NDArray[Any]) -> _Kept | None:
        """Make room for an episode's pictures, for which the oldest go; ``None`` if they are more than may be kept."""
        length = len(self._windows.dataset[episode][name])
        size = length * values[0].nbytes
        if size > _PICTURE_BYTES:
            return None
        while self._bytes + size > _PICTURE_BYTES:
            pictures, _ = self._kept.pop(next(iter(self._kept)))
            self._bytes -= pictures.nbytes
        kept = np.empty((length, *values.shape[1:]), values.dtype), np.zeros(length, bool)
        self._kept[episode, name] = kept
        self._bytes += size
        return kept

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}, "_bytes": 0}
