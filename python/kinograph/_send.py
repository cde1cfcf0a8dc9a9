"""Batches that the core sends to a CUDA device, without a thread of Python.

    core: kino-send ──► copy ──► ready (≤ 2) ──► take: the training loop's stream waits for the copy, tensors by DLPack

What goes through Python's own threads on its way (transforms) is copied by :class:`kinograph._ahead.Ahead`.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from typing import Any

from kinograph import _core
from kinograph._ahead import Batch
from kinograph._errors import KinographWarning, closed
from kinograph._gpu_decode import GpuDecode
from kinograph._report import Stage

# After so many batches every buffer that is in use was page-locked, or could not be.
_LOOKS = 10


class FixedTensors:
    """The tensors of batches whose addresses stay: one set for each shape of a batch."""

    def __init__(self) -> None:
        self.core = _core.FixedBatches()
        self.batches: dict[int, Batch] = {}

    def __reduce__(self) -> tuple[type[FixedTensors], tuple[()]]:
        # Addresses are those of a process.
        return FixedTensors, ()


class Sent:
    """Takes batches that the core has sent, or is sending, to a device."""

    #: The name of the thread that waits for the core.
    caller = "kino-send"

    def __init__(
        self,
        sender: _core.CudaSender,
        stream: Callable[[], int],
        to_tensor: Callable[[Any], Any],
        fixed: FixedTensors | None = None,
    ) -> None:
        self._sender = sender
        self._stream = stream
        self._to_tensor = to_tensor
        self._fixed = fixed
        self._process = os.getpid()
        # The first batches were assembled before there was a sender, which locks memory when it is used again.
        self._looks = _LOOKS
        #: Seconds that the training loop spent waiting for batches.
        self.waited_s = 0.0
        #: Seconds of the last take in which the GPU had to finish earlier batches first: the loop is ahead, nothing is late.
        self.behind_s = 0.0

    def take(self) -> tuple[int, Batch]:
        """Wait for the next batch; an error is raised at its place in the sequence."""
        fixed = self._fixed
        start = time.perf_counter()
        answer = self._sender.next(self._stream(), 0 if fixed is None else len(fixed.batches))
        if answer is None:
            raise closed()
        number, _, arrays, place, behind_s = answer
        self.behind_s = behind_s
        self.waited_s += time.perf_counter() - start - behind_s
        if self._looks:
            self._looks -= 1
            self._warn()
        batch = self._to_batch(arrays)
        if fixed is None or place is None:
            return number, batch
        # The tensors of the first batch of this shape, which this one was copied to, and its own texts.
        return number, fixed.batches.setdefault(place, batch) | batch

    def stages(self) -> list[Stage]:
        """Return what the copies took."""
        busy_s, batches, size, _, _ = self._sender.report()
        return [Stage("transfer", busy_s, batches, size)]

    def gpu_decode(self) -> GpuDecode | None:
        """Return what the GPU decoded; `None` if it decodes nothing."""
        return GpuDecode.of(self._sender.image_report())

    def close(self) -> None:
        """Stop the thread and drop the batches that were not taken."""
        if os.getpid() == self._process:
            self._sender.close()

    def _to_batch(self, arrays: dict[str, Any]) -> Batch:
        to_tensor = self._to_tensor
        return {
            key: _to_texts(*array) if type(array) is tuple else to_tensor(array)
            for key, array in arrays.items()
        }

    def _warn(self) -> None:
        why = self._sender.unpinned()
        if why is not None:
            self._looks = 0
            warnings.warn(
                f"batches are not page-locked, so copies to the GPU are slower: {why}",
                KinographWarning,
                stacklevel=8,
            )


def _to_texts(shape: list[int], texts: list[list[str]]) -> list[Any]:
    return list(texts) if len(shape) > 1 else [text for (text,) in texts]
