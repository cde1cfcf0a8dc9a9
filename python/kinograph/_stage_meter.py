"""Counts what a stage does that runs in Python: transforms, and copies to a device."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from kinograph._loop import Clock, CpuClock
from kinograph._report import Stage


class StageMeter:
    """Time, tasks and bytes of a stage; any thread may add to it.

    A device's clock gives times only once the device has reached their marks. Until then they are not in the sums, and nothing
    waits for them.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._name = name
        self._clock = clock or CpuClock()
        self._pending: deque[tuple[Any, Any, int, int]] = deque()
        self._lock = threading.Lock()
        self._busy_s = 0.0
        self._tasks = 0
        self._bytes = 0

    def begin(self) -> Any:  # noqa: ANN401 (each clock has its own marks)
        """Mark the start of a piece of work."""
        return self._clock.mark()

    def end(self, begun: Any, *, tasks: int = 1, size: int = 0) -> None:  # noqa: ANN401
        """Count a piece of work that was begun: so many tasks, which gave so many bytes."""
        mark = self._clock.mark()
        with self._lock:
            self._pending.append((begun, mark, tasks, size))
            self._settle()

    def stage(self) -> Stage:
        """Return what was counted so far."""
        with self._lock:
            self._settle()
            return Stage(self._name, self._busy_s, self._tasks, self._bytes)

    def _settle(self) -> None:
        while self._pending and self._clock.is_past(self._pending[0][1]):
            begun, mark, tasks, size = self._pending.popleft()
            self._busy_s += self._clock.seconds(begun, mark)
            self._tasks += tasks
            self._bytes += size


def bytes_of(batch: dict[str, Any]) -> int:
    """Count the bytes of the arrays of a batch; texts have none."""
    return sum(int(getattr(array, "nbytes", 0)) for array in batch.values())
