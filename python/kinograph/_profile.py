"""Measure a training loop with the loader that it has now: a ``DataLoader``, robomimic's, LeRobot's, or any iterable.

    for batch in kinograph.Profile(loader):     wrap what is iterated, and leave the loop as it is
        train_step(batch)

    kinograph.profile(loader, train_step)       or have the loop made

The measurement is two looks at a clock per batch. It changes neither the batches nor their order.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from kinograph._arguments import to_whole
from kinograph._errors import InvalidArgumentError
from kinograph._loop import Clock, Loop, LoopReport
from kinograph._report import Shown, _waited, table_of

_Batch = TypeVar("_Batch")

# As in a loader's report.
_LITTLE, _SOME = 0.01, 0.05


class Profile(Shown, Generic[_Batch]):
    """Any iterable of batches, and what the loop over it did; ``print`` shows a table, a notebook plots.

    >>> profile = kinograph.Profile([1, 2, 3])
    >>> for batch in profile:
    ...     with profile.compute():
    ...         pass
    >>> profile.report().steps, 0 <= profile.wait_s < 1
    (3, True)

    A step goes from asking for a batch to asking for the next. Making an iterator (and with it the workers of a ``DataLoader``) is a
    part of the wait for its first batch. ``device="cuda"`` times what is marked by the GPU's own clock. All other names are those of
    the iterable: ``len``, ``dataset``, ``sampler``.
    """

    def __init__(self, batches: Iterable[_Batch], *, device: object = None) -> None:
        self._batches = batches
        self._loop = Loop(_to_clock(device))

    def __iter__(self) -> Iterator[_Batch]:
        """Go through the batches once, and measure."""
        asked = time.perf_counter()
        batches = iter(self._batches)
        # Handed over without keeping it here: the loop decides when its memory goes, and that is no part of a wait.
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
            # Not before there is one, and nothing private.
            raise AttributeError(name)
        return getattr(self._batches, name)

    def compute(self) -> AbstractContextManager[None]:
        """Mark what happens inside as computing."""
        return self._loop.compute()

    def compute_begin(self) -> None:
        """Mark where computing begins."""
        self._loop.compute_begin()

    def compute_end(self) -> None:
        """Mark where it ends."""
        self._loop.compute_end()

    def report(self) -> LoopReport:
        """Say what was measured so far."""
        return self._loop.report()

    @property
    def wait_s(self) -> float:
        """Seconds that the loop waited for batches, the first included."""
        return self.report().wait_s

    @property
    def compute_ratio(self) -> float:
        """Compute time for each second since the loop began."""
        return self.report().compute_ratio

    @property
    def utilisation(self) -> float:
        """Accelerator utilisation by MLPerf Storage's formula: compute time / time, without the first step."""
        return self.report().utilisation

    @property
    def verdict(self) -> str:
        """What it comes to, in a sentence."""
        return _verdict(self.report())

    def _measured(self) -> dict[str, Any]:
        report = self.report()
        return {
            "title": f"Training loop over {type(self._batches).__name__}",
            "verdict": _verdict(report),
            "loop": dataclasses.asdict(report),
            "loader": None,
        }

    def __str__(self) -> str:
        report = self.report()
        head = (
            f"{report.steps} steps in {report.elapsed_s:.2f} s; the loop waited {report.wait_s:.2f} s "
            f"(compute ratio {report.compute_ratio:.3f})"
        )
        return "\n".join([head, *table_of(report), _verdict(report)])

    def __repr__(self) -> str:
        return f"Profile({self._batches!r}, {self.report().steps} steps)"


def profile(
    batches: Iterable[_Batch],
    step: Callable[[_Batch], object],
    *,
    steps: int | None = None,
    device: object = None,
) -> Profile[_Batch]:
    """Run ``step`` on batch after batch and say how long it waited and computed.

    >>> print(kinograph.profile([1, 2, 3], lambda batch: None, steps=5).report().steps)
    5

    ``steps`` may be more than the iterable has: it is begun anew. Without it, the iterable is gone through once. Give the ``device``
    that ``step`` computes on if that is a GPU: its time is then taken by its own clock, and nobody waits for it.
    """
    wanted = None if steps is None else to_whole("steps", steps, least=1)
    measured = Profile(batches, device=device)
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
                f"steps is {steps}, and the iterable gave no batch after {done}; give one that can be gone through again"
            )


def _verdict(report: LoopReport) -> str:
    if report.steps < 2:
        return "Too few steps to tell: at least two have to end."
    waited = _waited(report)
    if waited < _LITTLE:
        return f"The loop waits for {waited:.1%} of its time: a faster loader would gain nothing."
    # Without waits a step would be as much shorter.
    faster = 1 / max(1 - waited, 1e-9)
    how = "much" if waited >= _SOME else "little"
    return (
        f"The loop waits for {waited:.1%} of its time: {how} to gain, "
        f"a loader that is never late would make it up to {faster:.2f} times as fast."
    )


def _to_clock(device: object) -> Clock | None:
    """Take the clock of a GPU; for all else the CPU's will do."""
    if not str(device).startswith("cuda"):
        return None
    # Here, because only those who have torch can have such a device.
    from kinograph.torch import CudaClock  # noqa: PLC0415

    return CudaClock(device)
