"""Measurements of a loader: report, status line, live table, trace, and compute marks of the training loop."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kinograph import _core
from kinograph._arguments import to_number
from kinograph._errors import InvalidArgumentError, KinographWarning, outside
from kinograph._estimate import Estimate, estimate
from kinograph._idle import GpuPrice
from kinograph._live import Live, status
from kinograph._loop import Clock, Loop
from kinograph._quality import ShuffleQuality
from kinograph._report import Report
from kinograph._trace import Tracing

if TYPE_CHECKING:
    from kinograph._order import Order


class Measured:
    """A loader's meters: those of the core, and a :class:`Loop` for the training loop."""

    # What the shuffle gives and costs.
    _quality: ShuffleQuality

    # Which samples come when, and of which datasets.
    _order: Order

    def _measure(self) -> None:
        """Set up the meters, before there is a core."""
        self._core: _core.Loader | None = None
        self._loop = Loop(self._to_clock())
        self._tracing: Tracing | None = None
        self._has_warned = False

    def report(self, *, gpu_price: float | None = None, gpus: int = 1) -> Report:
        """Return where the time went since the loader started.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> for batch in loader:
        ...     pass
        >>> report = loader.report(gpu_price=2.50, gpus=8)
        >>> report.idle.cost.idle_gpu_hours_per_day <= 8 * 24
        True

        :param gpu_price: What a GPU costs per hour, in any currency, to show what waiting costs per day
        :param gpus: How many GPUs wait
        """
        price = GpuPrice.of(gpu_price, gpus)
        # Another thread may call this while the loader is being closed.
        core = self._core
        done = json.loads(core.report()) if core is not None else {}
        report = Report.of(done, self._loop.report(), self._quality, price)
        return dataclasses.replace(report, storage=self._storage())

    def estimate(self, *, get_price: float = 0.0004, gb_price: float = 0.0) -> Estimate:
        """Say what an epoch of remote datasets costs before it is read: requests, bytes, cache, dollars.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> print(loader.estimate())
        every dataset is local: no requests

        :param get_price: dollars per 1000 GETs; by default that of S3 Standard in us-east-1
        :param gb_price: dollars per GB that leaves the storage; nothing within a region
        """
        get_price, gb_price = to_number("get_price", get_price), to_number("gb_price", gb_price)
        if get_price < 0 or gb_price < 0:
            raise InvalidArgumentError("a price is negative; give dollars, 0 if it costs nothing")
        return estimate(tuple(self._order.sources), self._quality, get_price, gb_price)

    def _storage(self) -> dict[str, dict[str, Any]]:
        """Say what was read of each remote dataset, and warn once if its cache cannot be written."""
        found: dict[str, dict[str, Any]] = {}
        parts = [
            part for one in self._order.sources for part in (one.samples, *one.curriculum.values())
        ]
        for dataset in {id(part.dataset): part.dataset for part in parts}.values():
            if (read := dataset.storage) is None:
                continue
            found[str(dataset.path)] = read
            stopped = (read["cache"] or {}).get("stopped")
            if stopped and not self._has_warned:
                self._has_warned = True
                warnings.warn(stopped, KinographWarning, stacklevel=outside())
        return found

    def compute(self) -> contextlib.AbstractContextManager[None]:
        """Mark the body of a ``with`` block as compute, so that the report can show accelerator utilisation.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> for batch in loader:
        ...     with loader.compute():
        ...         pass  # forward, backward, optimizer
        >>> 0 < loader.report().utilisation <= 1
        True

        If batches are on a GPU, compute is timed with CUDA events, without synchronising.
        """
        return self._loop.compute()

    def compute_begin(self) -> None:
        """Mark where compute begins, for code where a ``with`` block does not fit."""
        self._loop.compute_begin()

    def compute_end(self) -> None:
        """Mark where compute ends."""
        self._loop.compute_end()

    def status(self) -> str:
        """Summarise throughput and waits since the loader started, in one line."""
        return status(self.report())

    def live(self, *, every_s: float = 1.0) -> Live:
        """Show live status on stderr during a ``with`` block: a table on a terminal, otherwise lines.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> with loader.live(every_s=5):
        ...     for batch in loader:
        ...         pass
        """
        seconds = to_number("every_s", every_s)
        if not 0 < seconds < float("inf"):
            raise InvalidArgumentError(f"every_s is {every_s!r}; give a positive number of seconds")
        return Live(self.report, seconds)

    @contextlib.contextmanager
    def trace(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Record what each thread does during a ``with`` block, and write a trace file that Perfetto can open.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> with loader.trace("trace.json"):
        ...     for batch in loader:
        ...         pass
        """
        if self._tracing is not None:
            raise InvalidArgumentError("the loader is already being traced; end that trace first")
        tracing = Tracing()
        if self._core is None:
            self._start()
        self._trace_with(tracing)
        try:
            yield
        finally:
            self._collect()
            self._tracing = None
            self._loop.trace(None)
            tracing.write(path)

    def _start(self) -> _core.Loader:
        raise NotImplementedError

    def _trace_with(self, tracing: Tracing) -> None:
        """Make the core and the loop record their events."""
        self._tracing = tracing
        self._loop.trace(tracing.spans)
        if self._core is not None:
            tracing.begin(self._core)

    def _to_clock(self) -> Clock | None:
        """Create the clock that times compute; ``None`` for the CPU's."""
        return None

    def _caller(self) -> str | None:
        """Name the thread that requests batches from the core, if it is not the training loop's."""
        return None

    def _collect(self) -> None:
        """Take the events of a trace from the core before the core ends."""
        if self._tracing is not None and self._core is not None:
            self._tracing.collect(self._core, self._caller())
