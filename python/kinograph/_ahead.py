"""Prefetch to a device: a thread copies batches ahead of the training loop.

    source ──► thread: start the copy of a batch ──► at most two in flight ──► training loop: wait for the copy

The thread references the source and the send function but not the loader, so that a loader that is no longer referenced
is collected and stops the thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from kinograph._errors import closed, forked
from kinograph._loop import Clock
from kinograph._report import Stage
from kinograph._stage_meter import StageMeter, bytes_of

Batch: TypeAlias = dict[str, Any]

# Its number, the index of its first sample on this rank, and the batch.
Made: TypeAlias = tuple[int, int, Batch]

# While one batch is trained on, one is ready and one is being copied.
_DEPTH = 2


class Batches(Protocol):
    """A source of numbered batches in host memory: the core's loader, or the threads that transform what it makes."""

    def next(self) -> Made | None:
        """Wait for a batch; ``None`` once closed."""

    def close(self) -> None:
        """Wake up every thread that waits in :meth:`next`."""


class Send(Protocol):
    """Starts the copy of a batch, and returns a function that finishes it, for the training loop to call."""

    #: What times the copies, if not the CPU's clock.
    clock: Clock | None

    def __call__(self, batch: Batch) -> Callable[[], Batch]: ...


class Ahead:
    """Takes batches from a source and sends each one before it is requested."""

    #: The name of the thread.
    caller = "kino-copy"

    def __init__(self, batches: Batches, send: Send) -> None:
        self._batches = batches
        self._send = send
        self._meter = StageMeter("transfer", send.clock)
        self._ready: deque[tuple[int, Callable[[], Batch]]] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._process = os.getpid()
        #: Seconds that the training loop spent waiting for batches.
        self.waited_s = 0.0
        self._thread = threading.Thread(target=self._run, name=self.caller, daemon=True)
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

    def stages(self) -> list[Stage]:
        """Return what the copies took."""
        return [self._meter.stage()]

    def close(self) -> None:
        """Stop the thread and drop the batches that were not taken."""
        if os.getpid() != self._process:
            # A thread of the parent process may have held the lock at the time of the fork.
            return
        with self._changed:
            self._ended = True
            self._ready.clear()
            self._changed.notify_all()
        self._batches.close()
        # The garbage collector may call this from any thread, including the copy thread.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_for_room():
                answer = self._batches.next()
                if answer is None:
                    break
                number, _, batch = answer
                size, begun = bytes_of(batch), self._meter.begin()
                arrive = self._send(batch)
                self._meter.end(begun, size=size)
                # A reference kept until the next batch arrives would keep this batch's memory from being reused.
                del answer, batch
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
