"""Timing of a training loop from the outside: how long it waits for each batch, and how long it computes.

    request ──wait──► batch ──┬── compute_begin ══ compute_end ──┬── next request
    └──────────────────────────── a step ────────────────────────────┘

A step lasts from the request for a batch to the request for the next one. The first step is counted separately, because
every loop waits for its first batch. Compute is what the loop marks; without marks, everything that is not waiting.

Waits are measured on the CPU. Compute is timed by a clock: the CPU's, or a GPU's, whose marks (events) get a time
only once the GPU has reached them. They are polled when that is free; nothing ever synchronises with the GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from kinograph import _core

# The device's clock keeps this many most recent steps, as the core does.
_RECENT = 10_000

# A plot of the recent steps has at most this many points.
_MOMENTS = 512


class Clock(Protocol):
    """Times computation on a device."""

    name: str

    def mark(self) -> Any:  # noqa: ANN401 (each clock has its own marks)
        """Record a mark after all work submitted so far."""

    def is_past(self, mark: Any) -> bool:  # noqa: ANN401
        """Whether the device has reached a mark; never waits."""

    def seconds(self, start: Any, end: Any) -> float:  # noqa: ANN401
        """Seconds from one mark to a later one; both are past."""


class CpuClock:
    """The CPU's own clock, on which every mark is past."""

    name = "cpu"

    def mark(self) -> float:
        """Return the current time."""
        return time.perf_counter()

    def is_past(self, mark: float) -> bool:
        """Return ``True``: CPU marks are always past."""
        return True

    def seconds(self, start: float, end: float) -> float:
        """Return the difference."""
        return end - start


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean and percentiles of a time over the steps, in seconds."""

    mean_s: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    longest_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class LoopReport:
    """Measurements of a training loop; all times are in seconds.

    ``compute_ratio`` is compute time per second since the loop began. ``utilisation`` is the same without the first
    step: accelerator utilisation by MLPerf Storage's formula. ``wait``, ``compute`` and ``step`` cover the last
    10,000 steps, without the first. ``pending`` counts marks that a GPU has not reached yet; they are not in the
    sums.
    """

    elapsed_s: float = 0.0
    steps: int = 0
    wait_s: float = 0.0
    compute_s: float = 0.0
    compute_ratio: float = 1.0
    utilisation: float = 1.0
    is_marked: bool = False
    clock: str = "cpu"
    pending: int = 0
    wait: Spread = Spread()
    compute: Spread = Spread()
    step: Spread = Spread()
    waits: dict[str, Any] = dataclasses.field(default_factory=dict)
    recent: tuple[dict[str, float], ...] = ()


# When a step ended, its wait and its duration.
_Step: TypeAlias = tuple[float, float, float]


class Loop:
    """Measures a training loop; the loader calls :attr:`took` for each batch it delivers."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or CpuClock()
        self._times = _core.LoopTimes()
        #: Counts a batch that was requested and arrived at these times of ``time.perf_counter``. The core's own method: a
        #: function of Python in every step would cost more than all other bookkeeping, because after a step of the training
        #: loop nothing of it is in the caches any more.
        self.took: Callable[[float, float], None] = self._times.took
        #: Ends the current step, if any: no further batch will be requested.
        self.end: Callable[[float], None] = self._times.end
        # Another thread may request a report.
        self._lock = threading.Lock()
        self._trace: deque[tuple[str, float, float]] | None = None
        self._marks = _Marks(self._clock)
        self._begun: tuple[Any, float] | None = None

    def trace(self, spans: deque[tuple[str, float, float]] | None) -> None:
        """Record the spans of the loop from now on: name, start, end. ``None`` ends that."""
        self._trace = spans
        self.took = self._times.took if spans is None else self._took_traced

    def _took_traced(self, asked: float, has: float) -> None:
        self._times.took(asked, has)
        if self._trace is not None:
            self._trace.append(("wait", asked, has))

    def compute_begin(self) -> None:
        """Mark where computing begins."""
        self._begun = (self._clock.mark(), time.perf_counter())

    def compute_end(self) -> None:
        """Mark where computing ends; does nothing without a matching :meth:`compute_begin`."""
        if self._begun is None:
            return
        (begin, began), self._begun = self._begun, None
        end = self._clock.mark()
        with self._lock:
            # The number of the current step; compute before the first batch counts towards the first step.
            self._marks.add(self._times.steps(), begin, end)
        if self._trace is not None:
            self._trace.append(("compute", began, time.perf_counter()))

    @contextlib.contextmanager
    def compute(self) -> Iterator[None]:
        """Mark the body of the ``with`` block as computing."""
        self.compute_begin()
        try:
            yield
        finally:
            self.compute_end()

    def report(self) -> LoopReport:
        """Return the measurements so far, without the current step."""
        with self._lock:
            return self._report()

    def _report(self) -> LoopReport:
        self._marks.resolve()
        (began, ended, steps), wait_s, (later_wait_s, later_step_s), recent = self._times.report()
        elapsed_s = max(ended - began, 0.0)
        marks = self._marks
        if marks.count:
            compute_s, utilisation = marks.compute_s, marks.utilisation()
            compute = _spread(marks.recent)
        else:
            compute_s = elapsed_s - wait_s
            utilisation = _ratio(later_step_s - later_wait_s, later_step_s)
            compute = _spread([step_s - wait_s for _, wait_s, step_s in recent])
        return LoopReport(
            elapsed_s=elapsed_s,
            steps=steps,
            wait_s=wait_s,
            compute_s=compute_s,
            compute_ratio=_ratio(compute_s, elapsed_s),
            utilisation=utilisation,
            is_marked=marks.count > 0,
            clock=self._clock.name,
            pending=marks.pending,
            wait=_spread([wait_s for _, wait_s, _ in recent]),
            compute=compute,
            step=_spread([step_s for _, _, step_s in recent]),
            waits=json.loads(self._times.waits()),
            recent=tuple(_merged(recent, began)),
        )


class _Marks:
    """Times between pairs of marks, resolved once the clock has reached them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, Any, Any]] = deque()
        # Utilisation counts from the last mark of the first step to the last mark of all.
        self._first_step: int | None = None
        self._origin: Any = None
        self._last: Any = None
        self._later_s = 0.0
        self.compute_s = 0.0
        self.count = 0
        self.recent: deque[float] = deque(maxlen=_RECENT)

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def add(self, step: int, begin: Any, end: Any) -> None:  # noqa: ANN401 (the clock's)
        self.count += 1
        self._waiting.append((step, begin, end))
        self.resolve()

    def resolve(self) -> None:
        while self._waiting and self._clock.is_past(self._waiting[0][2]):
            step, begin, end = self._waiting.popleft()
            seconds = self._clock.seconds(begin, end)
            self.compute_s += seconds
            if self._first_step is None:
                self._first_step = step
            if step == self._first_step:
                self._origin = end
            else:
                self._later_s += seconds
                self._last = end
                self.recent.append(seconds)

    def utilisation(self) -> float:
        """Compute time per second, from the end of the first step's compute to the end of the last step's."""
        if self._last is None:
            return 1.0
        return _ratio(self._later_s, self._clock.seconds(self._origin, self._last))


def _ratio(part: float, whole: float) -> float:
    """Divide; 1 as long as no time has passed, because nothing has waited yet."""
    return part / whole if whole > 0 else 1.0


def _spread(times: Sequence[float] | deque[float]) -> Spread:
    if not times:
        return Spread()
    ordered = sorted(times)

    def at(part: float) -> float:
        # The smallest value with at least this fraction of the values at or below it.
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    mean = sum(ordered) / len(ordered)
    return Spread(mean, at(0.5), at(0.9), at(0.99), ordered[-1])


def _merged(steps: list[_Step], began: float) -> Iterator[dict[str, float]]:
    """Average neighbouring steps, so that there are no more points than a plot shows."""
    every = -(-len(steps) // _MOMENTS) or 1
    for first in range(0, len(steps), every):
        part = steps[first : first + every]
        yield {
            "at_s": part[-1][0] - began,
            "steps": len(part),
            "wait_s": sum(wait_s for _, wait_s, _ in part) / len(part),
            "step_s": sum(step_s for _, _, step_s in part) / len(part),
        }
