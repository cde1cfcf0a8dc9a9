"""Batches that the core sends to a CUDA device, without a thread of Python.

    core: kino-send ──► copy ──► ready (≤ 2) ──► take: the training loop's stream waits for the copy, tensors by DLPack

What goes through Python's own threads on its way (transforms) is copied by :class:`kinograph._ahead.Ahead`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

from kinograph import _core
from kinograph._ahead import Batch
from kinograph._errors import KinographWarning, closed
from kinograph._gpu_decode import GpuDecode
from kinograph._report import Stage

# After so many batches every buffer that is in use was page-locked, or could not be.
_LOOKS = 10


class Sent:
    """Takes batches that the core has sent, or is sending, to a device."""

    #: The name of the thread that waits for the core.
    caller = "kino-send"

    def __init__(self, sender: _core.CudaSender) -> None:
        self._sender = sender
        self._process = os.getpid()
        # The first batches were assembled before there was a sender, which locks memory when it is used again.
        self._looks = _LOOKS

    @property
    def waited_s(self) -> float:
        """Seconds that the training loop spent waiting for batches."""
        return self._sender.waited_s()

    def take(self) -> tuple[int, Batch, float]:
        """Wait for the next batch; an error is raised at its place in the sequence.

        Last come the seconds in which the GPU had to finish earlier batches first: the loop is ahead, nothing is late.
        """
        answer = self._sender.next()
        if answer is None:
            raise closed()
        if self._looks:
            self._looks -= 1
            self._warn()
        return answer

    def direct(self) -> Callable[[], tuple[int, Batch, float] | None] | None:
        """Return what takes further batches as :meth:`take` does, once there is nothing left to warn of; its ``None`` is the end."""
        return None if self._looks else self._sender.next

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

    def _warn(self) -> None:
        why = self._sender.unpinned()
        if why is not None:
            self._looks = 0
            warnings.warn(
                f"batches are not page-locked, so copies to the GPU are slower: {why}",
                KinographWarning,
                stacklevel=8,
            )
