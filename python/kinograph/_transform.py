"""User transforms: Python callables that change samples and batches, in threads ahead of the training loop.

    core ──► kino-transform: batch 4 ▐ sample ▐ sample ▐ … ▐ batch ▌ ──┐
         ──► kino-transform: batch 5 ▐ sample ▐ sample ▐ … ▐ batch ▌ ──┴──► in order: device copies, or the training loop

    transform(sample, rng)              once per sample; its random numbers depend on the seed and its index alone
    batch_transform(batch, rng)         once per batch of this rank, after all of its samples

A thread takes a whole batch, so the threads share nothing, and batches are handed over in the order in which the core made
them, however long each takes. Threads reference the core and the callables but not the loader, so that a loader that is no
longer referenced is collected and stops them.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from kinograph._ahead import Batch, Batches, Made
from kinograph._errors import InvalidArgumentError, TransformError, closed, forked
from kinograph._report import Stage
from kinograph._stage_meter import StageMeter, bytes_of

# A dict by key goes in and comes out; a second argument named `rng` is a numpy generator.
Transform: TypeAlias = Callable[..., Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Places:
    """What is at which index of the order: plain functions that know no loader."""

    #: A seed for an operation at an index.
    seed: Callable[[int, str], int]
    #: Names the sample at an index, for an error.
    name: Callable[[int], str]


class Transforms:
    """What is done to each batch."""

    def __init__(
        self,
        sample: Transform | None,
        batch: Transform | None,
        places: Places,
        stack: Callable[[list[Any]], Any],
    ) -> None:
        self._sample = None if sample is None else _Call("transform", sample, places)
        self._batch = None if batch is None else _Call("batch_transform", batch, places)
        self._stack = stack

    def __call__(self, first: int, batch: Batch) -> tuple[Batch, int]:
        """Transform the batch whose first sample has this index; also count its samples."""
        count = len(next(iter(batch.values())))
        if self._sample is not None:
            batch = self._each(self._sample, first, batch, count)
        if self._batch is not None:
            batch = dict(self._batch(first, batch))
        return batch, count

    def _each(self, call: _Call, first: int, batch: Batch, count: int) -> Batch:
        samples = [{key: array[slot] for key, array in batch.items()} for slot in range(count)]
        given = [dict(sample) for sample in samples]
        changed = [call(first + slot, sample) for slot, sample in enumerate(given)]
        for slot, one in enumerate(changed):
            if one.keys() != changed[0].keys():
                raise call.failed(
                    first + slot,
                    f"it returned the keys {', '.join(one)}, and for the sample before {', '.join(changed[0])}",
                )
        done: Batch = {}
        for key in changed[0]:
            values = [one[key] for one in changed]
            # What was returned as it came, perhaps changed in place, is in the batch already.
            if key in batch and all(
                value is sample[key] for value, sample in zip(values, samples, strict=True)
            ):
                done[key] = batch[key]
                continue
            try:
                done[key] = self._stack(values)
            except (TypeError, ValueError, RuntimeError) as error:
                shapes = {str(tuple(getattr(value, "shape", ()))) for value in values}
                raise call.failed(
                    first,
                    f"its `{key}` of the samples {first} to {first + count - 1} cannot be stacked (shapes "
                    f"{', '.join(sorted(shapes))}): {error}; pad it to one shape",
                ) from error
        return done


class _Call:
    """A callable, with the random numbers it wants."""

    def __init__(self, name: str, function: Transform, places: Places) -> None:
        if not callable(function):
            raise InvalidArgumentError(
                f"{name} is {function!r}; give a function that takes a dict by key and returns one"
            )
        self._name = name
        self._function = function
        self._places = places
        self._wants_rng = _wants_rng(function)

    def __call__(self, index: int, given: dict[str, Any]) -> Mapping[str, Any]:
        options = {}
        if self._wants_rng:
            options["rng"] = np.random.default_rng(self._places.seed(index, self._name))
        try:
            found = self._function(given, **options)
        except Exception as error:
            raise self.failed(index, f"{type(error).__name__}: {error}") from error
        if not isinstance(found, Mapping) or not found:
            raise self.failed(index, f"it returned {found!r:.80}; return the dict")
        return found

    def failed(self, index: int, why: str) -> TransformError:
        error = TransformError(
            f"{self._name} failed at index {index}{self._places.name(index)}: {why}"
        )
        error.index = index
        return error


def _wants_rng(function: Transform) -> bool:
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        # A function of C without a signature.
        return False


class Transforming:
    """Takes batches from a source, transforms them in threads, and hands them over in order."""

    #: The name of the threads.
    caller = "kino-transform"

    def __init__(self, batches: Batches, transforms: Transforms, threads: int) -> None:
        self._batches = batches
        self._transforms = transforms
        self._meter = StageMeter("transform")
        # Batches that were begun and not taken: one for each thread, and one that is ready.
        self._most = threads + 1
        self._begun = 0
        self._taken = 0
        self._done: dict[int, Made | BaseException | None] = {}
        self._ended = False
        self._changed = threading.Condition()
        # Who takes a batch from the source also takes its turn.
        self._pulling = threading.Lock()
        self._process = os.getpid()
        #: Seconds that batches were waited for here.
        self.waited_s = 0.0
        self._threads = [
            threading.Thread(target=self._run, name=self.caller, daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def next(self) -> Made | None:
        """Wait for the next batch; an error is raised at its place in the sequence, ``None`` is the end."""
        if os.getpid() != self._process:
            raise forked()
        start = time.perf_counter()
        with self._changed:
            while self._taken not in self._done and not self._ended:
                self._changed.wait()
            found = self._done.get(self._taken)
            if isinstance(found, tuple):
                del self._done[self._taken]
                self._taken += 1
                self._changed.notify_all()
        self.waited_s += time.perf_counter() - start
        if isinstance(found, BaseException):
            raise found
        return found

    def take(self) -> tuple[int, Batch]:
        """Wait for the next batch, as :meth:`next`; the end is an error."""
        found = self.next()
        if found is None:
            raise closed()
        return found[0], found[2]

    def stages(self) -> list[Stage]:
        """Return what the transforms took, over all threads."""
        return [self._meter.stage()]

    def close(self) -> None:
        """Stop the threads and drop the batches that were not taken."""
        if os.getpid() != self._process:
            # A thread of the parent process may have held the lock at the time of the fork.
            return
        with self._changed:
            self._ended = True
            self._done.clear()
            self._changed.notify_all()
        self._batches.close()
        for thread in self._threads:
            # The garbage collector may call this from any thread, including one of these.
            if threading.current_thread() is not thread:
                thread.join()

    def _run(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        """Transform one batch; ``False`` behind the last, or after an error."""
        with self._pulling:
            if not self._wait_for_room():
                return False
            turn = self._begun
            self._begun += 1
            try:
                answer = self._batches.next()
            except BaseException as error:
                return self._finish(turn, error)
        if answer is None:
            return self._finish(turn, None)
        try:
            begun = self._meter.begin()
            batch, count = self._transforms(answer[1], answer[2])
            self._meter.end(begun, tasks=count, size=bytes_of(batch))
        except BaseException as error:
            return self._finish(turn, error)
        return self._finish(turn, (answer[0], answer[1], batch))

    def _finish(self, turn: int, found: Made | BaseException | None) -> bool:
        with self._changed:
            if not self._ended:
                self._done[turn] = found
            self._changed.notify_all()
        return isinstance(found, tuple)

    def _wait_for_room(self) -> bool:
        with self._changed:
            while self._begun - self._taken >= self._most and not self._ended:
                self._changed.wait()
            # Behind an error or the end nothing is taken any more.
            is_over = any(not isinstance(one, tuple) for one in self._done.values())
            return not self._ended and not is_over
