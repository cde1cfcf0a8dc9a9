"""The frames of windows in memory, for datasets that are read again and again one item at a time.

kept    {(episode, stream): every frame of it}
item    window number ──► its frames' numbers ──► rows of what is kept
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from kinograph._windows import Windows

CacheMode: TypeAlias = Literal["all", "low_dim"]


class FrameCache:
    """Keeps all streams of some windows, or all but pictures, which are then read.

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
        self._read: Windows | None = None
        if read:
            only = request | {"windows": read, "masks": "off"}
            self._read = Windows(windows.dataset, only, windows._selection)
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
        sample = {} if self._read is None else self._read[window]
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
