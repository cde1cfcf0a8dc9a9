"""Prefetch to a device: a thread copies batches ahead of the training loop.

    core ──► thread: start the copy of a batch ──► at most two in flight ──► training loop: wait for the copy

The thread references the core and the send function but not the loader, so that a loader that is no longer referenced
is collected and stops the thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from kinograph._loader import closed, forked

Batch: TypeAlias = dict[str, Any]

# While one batch is trained on, one is ready and one is being copied.
_DEPTH = 2


class Core(Protocol):
    """The source of batches: the core's loader."""

    def next(self) -> tuple[int, dict[str, tuple[str, list[int], Any]]] | None:
        """Wait for a batch; ``None`` once closed."""

    def close(self) -> None:
        """Wake up every thread that waits in :meth:`next`."""


class Ahead:
    """Takes batches from a core and sends each one before it is requested.

    ``send`` runs in the thread and starts the copy of a batch. It returns a function that finishes the copy, which the
    training loop calls when it takes the batch.
    """

    def __init__(self, core: Core, send: Callable[[Batch], Callable[[], Batch]]) -> None:
        self._core = core
        self._send = send
        self._ready: deque[tuple[int, Callable[[], Batch]]] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._process = os.getpid()
        #: Seconds that the training loop spent waiting for batches.
        self.waited_s = 0.0
        self._thread = threading.Thread(target=self._run, name="kino-copy", daemon=True)
        self._thread.start()

    def take(self) -> tuple[int, Batch]:
        """Wait for the next batch; an error is raised at its place in the sequence."""
        if os.getpid() != self._process:
            raise forked()
        start = time.perf_counter()
        with self._changed:
            while not (self._ready or self._ended or self._error):
                self._changed.wait()
            if not self._ready:
                raise self._error or closed()
            number, arrive = self._ready.popleft()
            self._changed.notify_all()
        self.waited_s += time.perf_counter() - start
        return number, arrive()

    def close(self) -> None:
        """Stop the thread and drop the batches that were not taken."""
        if os.getpid() != self._process:
            # A thread of the parent process may have held the lock at the time of the fork.
            return
        with self._changed:
            self._ended = True
            self._ready.clear()
            self._changed.notify_all()
        self._core.close()
        # The garbage collector may call this from any thread, including the copy thread.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_for_room():
                answer = self._core.next()
                if answer is None:
                    break
                number, arrays = answer
                arrive = self._send(arrays)
                # A reference kept until the next batch arrives would keep this batch's memory from being reused.
                del answer, arrays
                with self._changed:
                    if not self._ended:
                        self._ready.append((number, arrive))
                    self._changed.notify_all()
                del arrive
        except BaseException as error:
            # The training loop raises it.
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _wait_for_room(self) -> bool:
        with self._changed:
            while len(self._ready) >= _DEPTH and not self._ended:
                self._changed.wait()
            return not self._ended
