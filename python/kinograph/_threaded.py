"""What is between the core and the training loop: transforms, and copies to a device.

    core ──► Hosted: arrays in host memory ──► Transforming, if there are transforms ──► Ahead, if batches are sent ──► take
         └─► Sent: copied to a CUDA device by the core itself, if there are no transforms ────────────────────────────► take

Without transforms and a device there are no threads of Python: the thread that asks takes a batch from the core itself.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from kinograph import _core
from kinograph._ahead import Ahead, Batch, Batches, Made, Send
from kinograph._measured import Measured
from kinograph._report import Report, Stage
from kinograph._send import Sent
from kinograph._stage_meter import StageMeter, bytes_of
from kinograph._transform import Transforming, Transforms


class Hosted:
    """The batches of a core, as the arrays of a library in host memory."""

    def __init__(
        self, core: _core.Loader, to_host: Callable[[str, Sequence[int], Any], Any]
    ) -> None:
        self._core = core
        self._to_host = to_host

    def next(self) -> Made | None:
        """Wait for a batch; ``None`` once closed."""
        answer = self._core.next()
        if answer is None:
            return None
        number, first, arrays = answer
        return number, first, {key: self._to_host(*array) for key, array in arrays.items()}

    def close(self) -> None:
        """Wake up every thread that waits in :meth:`next`."""
        self._core.close()


class Threaded(Measured):
    """A loader with stages behind the core, if it needs any."""

    _threads: tuple[Transforming | Ahead | Sent, ...] = ()
    _finalizer: weakref.finalize[..., Any] | None = None
    # Takes a batch that the core has sent, without a function of Python: a step leaves nothing of one in the caches.
    _take_sent: Callable[[], tuple[int, Batch, float] | None] | None = None
    # What copying takes that the training loop does itself.
    _placing: StageMeter | None = None

    def report(self, *, gpu_price: float | None = None, gpus: int = 1) -> Report:
        """Say where the time went since the loader started; the price of a GPU shows what waiting costs."""
        report = super().report(gpu_price=gpu_price, gpus=gpus)
        threads = self._threads
        done = {stage.name: stage for thread in threads for stage in thread.stages()}
        if self._placing is not None:
            placing = self._placing.stage()
            done[placing.name] = placing
        if threads:
            # The core saw only these threads wait for it.
            tasks = next((stage.tasks for stage in report.stages if stage.name == "wait"), 0)
            done["wait"] = Stage("wait", threads[-1].waited_s, tasks, 0)
        stages = tuple(done.get(stage.name, stage) for stage in report.stages)
        last = threads[-1] if threads else None
        gpu_decode = last.gpu_decode() if isinstance(last, Sent) else None
        return dataclasses.replace(report, stages=stages, gpu_decode=gpu_decode)

    def close(self) -> None:
        """End the threads; iterating starts them again."""
        self._collect()
        self._threads = ()
        self._take_sent = self._placing = None
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None

    def __getstate__(self) -> dict[str, Any]:
        # Threads stay where they are; the copy starts its own when it is iterated.
        stays = dict.fromkeys(("_take_sent", "_finalizer", "_placing"))
        return self.__dict__ | {"_threads": ()} | stays

    def _begin_threads(
        self, batches: Batches, transforms: tuple[Transforms, int] | None, send: Send | None
    ) -> None:
        """Start the threads that transform and send the batches of a source."""
        if transforms is not None:
            batches = Transforming(batches, *transforms)
            self._threads = (batches,)
        if send is not None:
            self._threads = (*self._threads, Ahead(batches, send))
        self._watch_threads()

    def _begin_sent(self, sent: Sent) -> None:
        """Take batches from a device that the core sends them to."""
        self._threads = (sent,)
        self._watch_threads()

    def _watch_threads(self) -> None:
        if self._threads:
            # Neither the threads nor the core know of this loader: they end when it is collected, or with the program.
            self._finalizer = weakref.finalize(self, self._threads[-1].close)

    def _take_threaded(self) -> tuple[int, Batch, float]:
        """Take a batch from the last threads; it is where it belongs if they sent it."""
        last = self._threads[-1]
        if isinstance(last, Sent):
            answer = last.take()
            self._take_sent = last.direct()
            return answer
        number, batch = last.take()
        if isinstance(last, Transforming):
            batch = self._place(batch)
        return number, batch, 0.0

    def _place(self, batch: Batch) -> Batch:
        """Bring a batch to where the training loop wants it, in its own thread."""
        if not self._moves():
            return {key: self._from_host(array) for key, array in batch.items()}
        meter = self._placing = self._placing or StageMeter("transfer", self._to_clock())
        begun = meter.begin()
        placed = {key: self._from_host(array) for key, array in batch.items()}
        meter.end(begun, size=bytes_of(batch))
        return placed

    def _from_host(self, array: Any) -> Any:  # noqa: ANN401 (an array of a library, or texts)
        """Make what the training loop gets of an array in host memory."""
        return array

    def _moves(self) -> bool:
        """Whether :meth:`_from_host` copies to a device."""
        return False

    def _caller(self) -> str | None:
        return self._threads[0].caller if self._threads else None
