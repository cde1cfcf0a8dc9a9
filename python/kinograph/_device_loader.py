"""A loader whose batches may be sent to a device ahead of the training loop; the front ends of torch and jax are made of it.

_to_send() gives nothing     batches are handed over as they are, in the thread that asks
_to_send() gives a sender    `Ahead` runs it in a thread of its own
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from kinograph import _core
from kinograph._ahead import Ahead, Batch
from kinograph._loader import BaseLoader
from kinograph._report import Report

_Device = TypeVar("_Device")


class DeviceLoader(BaseLoader[Any, _Device]):
    """Batches of a library's arrays, where that library wants them."""

    _ahead: Ahead | None = None
    _finalizer: weakref.finalize[..., Any] | None = None

    def report(self, *, gpu_price: float | None = None, gpus: int = 1) -> Report:
        """Say where the time went since the loader started; the price of a GPU shows what waiting costs."""
        report = super().report(gpu_price=gpu_price, gpus=gpus)
        if self._ahead is None:
            return report
        # The core saw only the thread that copies wait for it.
        waited = self._ahead.waited_s
        stages = tuple(
            dataclasses.replace(stage, busy_s=waited) if stage.name == "wait" else stage
            for stage in report.stages
        )
        return dataclasses.replace(report, stages=stages)

    def close(self) -> None:
        """End the threads; iterating starts them again."""
        self._collect()
        self._ahead = None
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_ahead": None, "_finalizer": None}

    def _to_send(self) -> Callable[[Batch], Callable[[], Batch]] | None:
        """Make what sends a batch, if batches are sent."""
        raise NotImplementedError

    def _caller(self) -> str | None:
        return None if self._ahead is None else "kino-copy"

    def _start(self) -> _core.Loader:
        core = super()._start()
        send = self._to_send()
        if send is not None:
            self._ahead = Ahead(core, send)
            # Neither the thread nor the core knows of this loader: they end when it is collected, or with the program.
            self._finalizer = weakref.finalize(self, self._ahead.close)
        return core

    def _take(self) -> tuple[int, dict[str, Any]]:
        if self._core is None:
            self._start()
        if self._ahead is None:
            return super()._take()
        try:
            return self._ahead.take()
        except Exception:
            # Its thread has ended; the next one starts with the batch that did not come.
            self.close()
            raise
