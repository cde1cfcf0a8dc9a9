"""Batches on their way to a device: a thread sends them ahead of the training loop.

    core ──► thread: send a batch ──► at most two on their way ──► training loop: wait for its copy

The thread knows the core and how to send, and not the loader: a loader that nobody keeps can end it.
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

# One is trained on, one is there, one is being copied.
_DEPTH = 2


class Core(Protocol):
    """What batches come from: the core's loader."""

    def next(self) -> tuple[int, dict[str, tuple[str, list[int], Any]]] | None:
        """Wait for a batch; ``None`` once it was closed."""

    def close(self) -> None:
        """End a wait of any thread."""


class Ahead:
    """Takes batches of a core and sends each before it is asked for.

    ``send`` starts the copy of a batch, in the thread, and gives what ends it: a function that the training loop calls
    when it takes the batch.
    """

    def __init__(self, core: Core, send: Callable[[Batch], Callable[[], Batch]]) -> None:
        self._core = core
        self._send = send
        self._ready: deque[tuple[int, Callable[[], Batch]]] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._process = os.getpid()
        #: Seconds that the training loop stood still for a batch.
        self.waited_s = 0.0
        self._thread = threading.Thread(target=self._run, name="kino-copy", daemon=True)
        self._thread.start()

    def take(self) -> tuple[int, Batch]:
        """Wait for the next batch; an error comes in its place in the sequence."""
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
        """End the thread; batches that were not taken are dropped."""
        if os.getpid() != self._process:
            # Another process's thread may have held the lock when this one was forked.
            return
        with self._changed:
            self._ended = True
            self._ready.clear()
            self._changed.notify_all()
        self._core.close()
        # The collector may call this in any thread, in that one too.
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
                # Kept until the next one comes, a batch's memory could not be filled anew.
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
