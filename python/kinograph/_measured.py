"""What a loader says of itself: a report, a line, a live table, a trace; and where its training loop marks compute."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator

from kinograph import _core
from kinograph._arguments import to_number
from kinograph._errors import InvalidArgumentError
from kinograph._live import Live, status
from kinograph._loop import Clock, Loop
from kinograph._quality import ShuffleQuality
from kinograph._report import Report
from kinograph._trace import Tracing


class Measured:
    """A loader's meters: the core's, and that of the training loop, which :class:`Loop` is."""

    # What the shuffle gives and costs.
    _quality: ShuffleQuality

    def _measure(self) -> None:
        """Begin to measure, before there is a core."""
        self._core: _core.Loader | None = None
        self._loop = Loop(self._to_clock())
        self._tracing: Tracing | None = None

    def report(self) -> Report:
        """Say where the time went since the loader started."""
        # Another thread may ask while this one closes it.
        core = self._core
        done = json.loads(core.report()) if core is not None else {}
        return Report.of(done, self._loop.report(), self._quality)

    def compute(self) -> contextlib.AbstractContextManager[None]:
        """Mark what happens inside as computing: the report then knows what the accelerator did.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> for batch in loader:
        ...     with loader.compute():
        ...         pass  # forward, backward, optimizer
        >>> 0 < loader.report().utilisation <= 1
        True

        Batches on a GPU are timed by the GPU's own clock, without waiting for it.
        """
        return self._loop.compute()

    def compute_begin(self) -> None:
        """Mark where computing begins, for those to whom a ``with`` is in the way."""
        self._loop.compute_begin()

    def compute_end(self) -> None:
        """Mark where it ends."""
        self._loop.compute_end()

    def status(self) -> str:
        """Say in a line how it goes since the loader started."""
        return status(self.report())

    def live(self, *, every_s: float = 1.0) -> Live:
        """Show how it goes while a ``with`` lasts: a table on a terminal, lines elsewhere, on standard error.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> with loader.live(every_s=5):
        ...     for batch in loader:
        ...         pass
        """
        seconds = to_number("every_s", every_s)
        if not 0 < seconds < float("inf"):
            raise InvalidArgumentError(f"every_s is {every_s!r}; give seconds, such as 1")
        return Live(self.report, seconds)

    @contextlib.contextmanager
    def trace(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Keep what each thread does when, while a ``with`` lasts, and write it to a file that Perfetto opens.

        >>> loader = kinograph.numpy.Loader(ds, windows={"actions": [0]}, batch_size=8)
        >>> with loader.trace("trace.json"):
        ...     for batch in loader:
        ...         pass
        """
        if self._tracing is not None:
            raise InvalidArgumentError("the loader is traced already; end that trace first")
        tracing = Tracing()
        if self._core is None:
            self._start()
        self._trace_with(tracing)
        try:
            yield
        finally:
            self._collect()
            self._tracing = self._loop.trace = None
            tracing.write(path)

    def _start(self) -> _core.Loader:
        raise NotImplementedError

    def _trace_with(self, tracing: Tracing) -> None:
        """Have the core and the loop keep their events."""
        self._tracing = tracing
        self._loop.trace = tracing.spans
        if self._core is not None:
            tracing.begin(self._core)

    def _to_clock(self) -> Clock | None:
        """Make what times compute; the CPU's clock if nothing else does."""
        return None

    def _caller(self) -> str | None:
        """Name the thread that asks the core for batches, if it is not the training loop's."""
        return None

    def _collect(self) -> None:
        """Take the events of a trace before the core ends."""
        if self._tracing is not None and self._core is not None:
            self._tracing.collect(self._core, self._caller())
