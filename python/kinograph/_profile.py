"""Measure a training loop with its current loader: a ``DataLoader``, robomimic's, LeRobot's, or any iterable.

    for batch in kinograph.Profile(loader):     wrap the loader and keep your loop
        train_step(batch)

    kinograph.profile(loader, train_step)       or let Kinograph run the loop

Measuring costs two clock reads per batch. It changes neither the batches nor their order.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from kinograph._arguments import to_whole
from kinograph._errors import InvalidArgumentError
from kinograph._idle import GpuPrice, Idle
from kinograph._loop import Clock, Loop, LoopReport
from kinograph._report import Shown, _waited, table_of

_Batch = TypeVar("_Batch")

# The first is the threshold of a loader's report.
_NEGLIGIBLE, _NOTICEABLE = 0.01, 0.05


class Profile(Shown, Generic[_Batch]):
    """Wraps an iterable of batches and measures the loop over it; ``print`` shows a table, a notebook shows plots.

    >>> profile = kinograph.Profile([1, 2, 3])
    >>> for batch in profile:
    ...     with profile.compute():
    ...         pass
    >>> profile.report().steps, 0 <= profile.wait_s < 1
    (3, True)

    A step lasts from the request for a batch to the request for the next. Creating the iterator (and with it the
    workers of a ``DataLoader``) counts as part of the wait for the first batch. With ``device="cuda"``, compute marks
    are timed with CUDA events. Other attributes are forwarded to the iterable: ``len``, ``dataset``, ``sampler``.
    ``gpu_price`` is what one of the ``gpus`` costs per hour: it shows what waiting costs per day.
    """

    def __init__(
        self,
        batches: Iterable[_Batch],
        *,
        device: object = None,
        gpu_price: float | None = None,
        gpus: int = 1,
    ) -> None:
        self._batches = batches
        self._price = GpuPrice.of(gpu_price, gpus)
        self._loop = Loop(_to_clock(device))

    def __iter__(self) -> Iterator[_Batch]:
        """Iterate over the batches once, and measure."""
        asked = time.perf_counter()
        batches = iter(self._batches)
        # Keep no reference to the batch here: the loop decides when its memory is freed, which must not count as a
        # wait.
        hand: list[_Batch] = []
        try:
            while True:
                try:
                    hand.append(next(batches))
                except StopIteration:
                    self._loop.end(asked)
                    return
                self._loop.took(asked, time.perf_counter())
                yield hand.pop()
                asked = time.perf_counter()
        finally:
            self._loop.end(time.perf_counter())

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the iterable has)
        if name.startswith("_"):
            # Never forward private names: `_batches` itself may not exist yet.
            raise AttributeError(name)
        return getattr(self._batches, name)

    def compute(self) -> AbstractContextManager[None]:
        """Mark the body of a ``with`` block as compute."""
        return self._loop.compute()

    def compute_begin(self) -> None:
        """Mark where compute begins."""
        self._loop.compute_begin()

    def compute_end(self) -> None:
        """Mark where compute ends."""
        self._loop.compute_end()

    def report(self) -> LoopReport:
        """Return the measurements so far."""
        return self._loop.report()

    @property
    def wait_s(self) -> float:
        """Seconds that the loop waited for batches, including the first."""
        return self.report().wait_s

    @property
    def compute_ratio(self) -> float:
        """Compute time per second since the loop began."""
        return self.report().compute_ratio

    @property
    def utilisation(self) -> float:
        """Accelerator utilisation by MLPerf Storage's formula: compute time / elapsed time, without the first step."""
        return self.report().utilisation

    @property
    def idle(self) -> Idle:
        """Whether the loop waits so much that it is an alarm, and what that costs if there is a price."""
        return self._price.idle(self.report())

    @property
    def verdict(self) -> str:
        """The conclusion in one sentence."""
        return _verdict(self.report())

    def _measured(self) -> dict[str, Any]:
        report = self.report()
        return {
            "title": f"Training loop over {type(self._batches).__name__}",
            "verdict": _verdict(report),
            "idle": self._price.idle(report).to_dict(),
            "loop": dataclasses.asdict(report),
            "loader": None,
        }

    def __str__(self) -> str:
        report = self.report()
        head = (
            f"{report.steps} steps in {report.elapsed_s:.2f} s; the loop waited {report.wait_s:.2f} s "
            f"(compute ratio {report.compute_ratio:.3f})"
        )
        idle = self._price.idle(report)
        return "\n".join([head, *table_of(report), _verdict(report), *idle._lines])

    def __repr__(self) -> str:
        return f"Profile({self._batches!r}, {self.report().steps} steps)"


def profile(  # noqa: PLR0913 (each is a keyword of its own)
    batches: Iterable[_Batch],
    step: Callable[[_Batch], object],
    *,
    steps: int | None = None,
    device: object = None,
    gpu_price: float | None = None,
    gpus: int = 1,
) -> Profile[_Batch]:
    """Run ``step`` on each batch and measure how long the loop waits and computes.

    >>> print(kinograph.profile([1, 2, 3], lambda batch: None, steps=5).report().steps)
    5

    If ``steps`` exceeds the number of batches, the iterable is restarted; without ``steps``, it is iterated once. If
    ``step`` computes on a GPU, pass that ``device``: compute is then timed with CUDA events, without synchronising.
    ``gpu_price`` and ``gpus`` are as for :class:`Profile`.
    """
    wanted = None if steps is None else to_whole("steps", steps, least=1)
    measured = Profile(batches, device=device, gpu_price=gpu_price, gpus=gpus)
    done = 0
    while True:
        before = done
        for batch in measured:
            with measured.compute():
                step(batch)
            done += 1
            if done == wanted:
                return measured
        if wanted is None:
            return measured
        if done == before:
            raise InvalidArgumentError(
                f"steps is {steps}, but the iterable ended after {done} batches; pass one that can be iterated again"
            )


def _verdict(report: LoopReport) -> str:
    if report.steps < 2:
        return "Too few steps to tell: at least two must finish."
    waited = _waited(report)
    if waited < _NEGLIGIBLE:
        return f"The loop waits for {waited:.1%} of its time: a faster loader would gain nothing."
    # Without waits, a step would be shorter by this fraction.
    faster = 1 / max(1 - waited, 1e-9)
    how = "much" if waited >= _NOTICEABLE else "little"
    return (
        f"The loop waits for {waited:.1%} of its time: {how} to gain, "
        f"a loader that is never late would make it up to {faster:.2f} times as fast."
    )


def _to_clock(device: object) -> Clock | None:
    """Choose a GPU's clock for a CUDA device; ``None`` means the CPU's."""
    if not str(device).startswith("cuda"):
        return None
    # Imported here, because torch is optional; a CUDA device implies that it is installed.
    from kinograph.torch import CudaClock  # noqa: PLC0415

    return CudaClock(device)
