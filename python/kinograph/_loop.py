"""A training loop, seen from outside: how long it waits for each batch, and how long it computes.

    asked ──wait──► has a batch ──┬── compute_begin ══ compute_end ──┬── asked again
    └────────────────────────────── a step ────────────────────────────┘

A step goes from asking for a batch to asking for the next; the first one is kept apart, because everyone waits for the first
batch. Compute is what the loop marks; if it marks nothing, all that is not waiting.

Waits are times of the CPU. Compute is timed by a clock: the CPU's, or that of a GPU, whose marks are times only
when it has come to them. Nobody waits for that: marks are looked at when it costs nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

# Percentiles and plots are of the last so many steps; sums are of all.
_RECENT = 10_000

# A plot of the last steps has at most so many moments.
_MOMENTS = 512

# A shorter wait is not noticed, as in the core.
_STALL_S = 1e-3

# So many lengths of waits, each twice the one before: the core's.
_BUCKETS = 40


class Clock(Protocol):
    """Times what is computed somewhere."""

    name: str

    def mark(self) -> Any:  # noqa: ANN401 (each clock has its own marks)
        """Make a mark behind what was asked for until now."""

    def is_past(self, mark: Any) -> bool:  # noqa: ANN401
        """Whether a mark was come to; never waits."""

    def seconds(self, start: Any, end: Any) -> float:  # noqa: ANN401
        """From one mark to a later one; both are past."""


class CpuClock:
    """The CPU's own clock, on which every mark is past."""

    name = "cpu"

    def mark(self) -> float:
        """Take the time."""
        return time.perf_counter()

    def is_past(self, mark: float) -> bool:
        """Say yes."""
        return True

    def seconds(self, start: float, end: float) -> float:
        """Take the difference."""
        return end - start


@dataclasses.dataclass(frozen=True)
class Spread:
    """How a time is spread over the steps, in seconds."""

    mean_s: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    longest_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class LoopReport:
    """What a training loop did, seen from outside; all times are seconds.

    ``compute_ratio`` is compute time for each second since the loop began. ``utilisation`` is the same without the first step:
    accelerator utilisation by MLPerf Storage's formula. ``wait``, ``compute`` and ``step`` are of the last 10,000 steps, without the
    first. ``pending`` counts marks that a GPU has not come to yet; they are not in the sums.
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


# When a step ended, what it waited and what it took. A plain tuple: anything else costs more than the rest of a step's meter.
_Step: TypeAlias = tuple[float, float, float]


class Loop:
    """Measures a training loop; whoever hands batches over calls :meth:`took`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or CpuClock()
        # A report may be asked for by another thread.
        self._lock = threading.Lock()
        #: Where the times of marks go as well, while a trace is made: name, start, end.
        self.trace: deque[tuple[str, float, float]] | None = None
        self._began: float | None = None
        # The step that has not ended: when it was asked for, and when the batch was there.
        self._open: tuple[float, float] | None = None
        self._ended_at = 0.0
        self._steps = 0
        self._wait_s = self._later_wait_s = self._later_step_s = 0.0
        self._recent: deque[_Step] = deque(maxlen=_RECENT)
        self._waits = _Waits()
        self._marks = _Marks(self._clock)
        self._begun: tuple[Any, float] | None = None

    def took(self, asked: float, has: float) -> None:
        """Count a batch: asked for and there at these times of ``time.perf_counter``."""
        with self._lock:
            self._end(asked)
            if self._began is None:
                self._began = asked
            self._open = (asked, has)
            wait_s = has - asked
            self._wait_s += wait_s
            self._waits.add(wait_s)
            if self.trace is not None:
                self.trace.append(("wait", asked, has))

    def end(self, now: float) -> None:
        """End the step that is open, if one is: no other batch will be asked for."""
        with self._lock:
            self._end(now)

    def _end(self, now: float) -> None:
        if self._open is None:
            return
        asked, has = self._open
        self._open = None
        self._steps += 1
        self._ended_at = now
        if self._steps > 1:
            self._later_wait_s += has - asked
            self._later_step_s += now - asked
            self._recent.append((now, has - asked, now - asked))

    def compute_begin(self) -> None:
        """Mark where computing begins."""
        self._begun = (self._clock.mark(), time.perf_counter())

    def compute_end(self) -> None:
        """Mark where it ends; without a beginning nothing is marked."""
        if self._begun is None:
            return
        (begin, began), self._begun = self._begun, None
        end = self._clock.mark()
        with self._lock:
            # The step that is open; before the first batch there is none.
            self._marks.add(self._steps, begin, end)
            if self.trace is not None:
                self.trace.append(("compute", began, time.perf_counter()))

    @contextlib.contextmanager
    def compute(self) -> Iterator[None]:
        """Mark what happens inside as computing."""
        self.compute_begin()
        try:
            yield
        finally:
            self.compute_end()

    def report(self) -> LoopReport:
        """Say what was measured so far; a step that has not ended is not in it."""
        with self._lock:
            return self._report()

    def _report(self) -> LoopReport:
        self._marks.resolve()
        began = self._began if self._began is not None else self._ended_at
        elapsed_s = max(self._ended_at - began, 0.0)
        marks = self._marks
        recent = list(self._recent)
        wait_s = self._wait_s - (self._open[1] - self._open[0] if self._open else 0.0)
        if marks.count:
            compute_s, utilisation = marks.compute_s, marks.utilisation()
            compute = _spread(marks.recent)
        else:
            compute_s = elapsed_s - wait_s
            later_s = self._later_step_s - self._later_wait_s
            utilisation = _ratio(later_s, self._later_step_s)
            compute = _spread([step_s - wait_s for _, wait_s, step_s in recent])
        return LoopReport(
            elapsed_s=elapsed_s,
            steps=self._steps,
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
            waits=self._waits.report(),
            recent=tuple(_merged(recent, began)),
        )


class _Marks:
    """Times between marks, taken when the clock has come to them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, Any, Any]] = deque()
        # The last mark of the first step, from which on utilisation counts, and the last mark of all.
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
        """Compute for each second from the end of the first step's compute to the end of the last's."""
        if self._last is None:
            return 1.0
        return _ratio(self._later_s, self._clock.seconds(self._origin, self._last))


class _Waits:
    """How many waits were how long, as the core counts them."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._longest_s = 0.0
        self._stalls, self._stall_s = 0, 0.0
        self._buckets = [0] * _BUCKETS

    def add(self, wait_s: float) -> None:
        if self._first_s is None:
            self._first_s = wait_s
            return
        # One more than the bucket; a wait of nothing is in the first.
        bits = int(wait_s * 1e9).bit_length() or 1
        self._buckets[bits - 1 if bits <= _BUCKETS else -1] += 1
        self._longest_s = max(self._longest_s, wait_s)
        if wait_s >= _STALL_S:
            self._stalls += 1
            self._stall_s += wait_s

    def report(self) -> dict[str, Any]:
        used = [idx for idx, count in enumerate(self._buckets) if count]
        span = range(used[0], used[-1] + 1) if used else range(0)
        return {
            "first_s": self._first_s or 0.0,
            "longest_s": self._longest_s,
            "stalls": self._stalls,
            "stall_s": self._stall_s,
            "buckets": [
                {
                    "from_s": 2**idx / 1e9 if idx else 0.0,
                    "to_s": 2 ** (idx + 1) / 1e9,
                    "count": self._buckets[idx],
                }
                for idx in span
            ],
        }


def _ratio(part: float, whole: float) -> float:
    """Divide; where nothing has happened yet, nobody waited."""
    return part / whole if whole > 0 else 1.0


def _spread(times: Sequence[float] | deque[float]) -> Spread:
    if not times:
        return Spread()
    ordered = sorted(times)

    def at(part: float) -> float:
        # The least value that so many are not above.
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    mean = sum(ordered) / len(ordered)
    return Spread(mean, at(0.5), at(0.9), at(0.99), ordered[-1])


def _merged(steps: list[_Step], began: float) -> Iterator[dict[str, float]]:
    """Merge neighbours, so that there are no more moments than a plot shows."""
    every = -(-len(steps) // _MOMENTS) or 1
    for first in range(0, len(steps), every):
        part = steps[first : first + every]
        yield {
            "at_s": part[-1][0] - began,
            "steps": len(part),
            "wait_s": sum(wait_s for _, wait_s, _ in part) / len(part),
            "step_s": sum(step_s for _, _, step_s in part) / len(part),
        }
