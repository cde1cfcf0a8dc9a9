"""Where a loader stands in its order: which batches the next ``for`` has, and where the core starts.

SampleWalk     an Order: batch k has the indices from k · batch_size on
EpisodeWalk    a LengthOrder: batches are counted from the loader's first one, and a state stands between steps
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kinograph import _core
from kinograph._lengths import LengthOrder
from kinograph._order import Order


class Walk(Protocol):
    """A place in an order, which moves from batch to batch of one rank."""

    #: Which batch is the first that the core makes.
    begun: int

    @property
    def lengths(self) -> _core.LengthOrder | None:
        """The order, for the core, if batches are of whole episodes."""

    def count(self, epoch: int) -> int:
        """Count the batches of an epoch, from its start or from where the order entered it."""

    def turn(self, epoch: int, *, is_resumed: bool) -> tuple[range, bool]:
        """Name the batches of a ``for`` over an epoch, and say whether that is another place than the one before."""

    def done(self, number: int) -> None:
        """Count a batch that was handed out."""

    def set_epoch(self, epoch: int) -> bool:
        """Go to the start of an epoch; whether that is another place."""

    def begin(self) -> dict[str, Any]:
        """Say where the core starts, which starts now."""

    def state_dict(self) -> dict[str, Any]:
        """Return the place."""

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool) -> int:
        """Go to the place of a state; the epoch of the next ``for``."""


class SampleWalk:
    """Walks along an order of samples."""

    lengths: _core.LengthOrder | None = None
    # The core's numbers are the order's.
    begun = 0

    def __init__(self, order: Order) -> None:
        self._order = order
        self._batch_size = order.batch_size

    def count(self, epoch: int) -> int:
        """Count the batches that start in an epoch."""
        return len(self._order.steps(epoch))

    def turn(self, epoch: int, *, is_resumed: bool) -> tuple[range, bool]:
        """Name the batches that start in an epoch, or those from the place on."""
        order, steps = self._order, self._order.steps(epoch)
        if is_resumed:
            return range(order.next_index // order.batch_size, steps.stop), False
        return steps, self.set_epoch(epoch)

    def done(self, number: int) -> None:
        """Count a batch that was handed out."""
        self._order.next_index = (number + 1) * self._batch_size

    def set_epoch(self, epoch: int) -> bool:
        """Go to the start of an epoch; whether that is another place."""
        before = self._order.next_index
        self._order.set_epoch(epoch)
        return self._order.next_index != before

    def begin(self) -> dict[str, Any]:
        """Say where the core starts."""
        return {"first_index": self._order.next_index}

    def state_dict(self) -> dict[str, Any]:
        """Return the place."""
        return self._order.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool) -> int:
        """Go to the place of a state; the epoch of the next ``for``."""
        order = self._order
        order.load_state_dict(state, force=force)
        # Under `wrap` a batch belongs to the epoch it starts in, an index may be of the one before.
        is_over = order.next_index // order.batch_size >= order.steps(order.epoch).stop
        return order.epoch + is_over


class EpisodeWalk:
    """Walks along a rank's batches of whole episodes.

    All ranks take a step together, so a step belongs to the epoch in which it starts, and the place moves once a step is done.
    """

    def __init__(self, order: LengthOrder, rank: int, world_size: int) -> None:
        self._order = order
        self._rank = rank
        self._world_size = world_size
        # The next batch, and the first of its step.
        self._next = self._step = 0
        # The core starts with a whole step.
        self.begun = 0
        # Whether the place is where an epoch starts, or the one before ended.
        self._is_fresh = True

    @property
    def lengths(self) -> _core.LengthOrder:
        """The order, for the core."""
        return self._order._core

    def count(self, epoch: int) -> int:
        """Count the rank's batches of an epoch, from where the order entered it if it is in it."""
        place = self._order._place
        return len(self._range(place if place[0] == epoch else (epoch, 0), 0))

    def turn(self, epoch: int, *, is_resumed: bool) -> tuple[range, bool]:
        """Name the batches of an epoch from its start, or those from the place on."""
        is_there = is_resumed or (self._is_fresh and self._order._place[0] >= epoch)
        moved = not is_there and self.set_epoch(epoch)
        if self._order._place[0] > epoch:
            # Its few batches all belonged to the last step of the epoch before.
            return range(self._next, self._next), moved
        steps = self._range(self._order._place, self._step)
        return range(self._next, steps.stop), moved

    def done(self, number: int) -> None:
        """Count a batch that was handed out; after the last of a step, the place moves."""
        self._next = number + 1
        self._is_fresh = False
        if self._next - self._step < self._share():
            return
        before = self._order._place
        _, self._order._place = self.lengths.step(before, self._rank, self._world_size)
        self._is_fresh = self._order._place[0] > before[0]
        self._step = self._next

    def set_epoch(self, epoch: int) -> bool:
        """Go to the start of an epoch; whether that is another place."""
        before, was_inside = self._order._place, self._next > self._step
        self._order.set_epoch(epoch)
        self._step, self._is_fresh = self._next, True
        return was_inside or self._order._place != before

    def begin(self) -> dict[str, Any]:
        """Say where the core starts: with the step that is not done, whose first batches may be known."""
        self.begun = self._step
        epoch, done = self._order._place
        return {"cursor": {"epoch": epoch, "done": done}}

    def state_dict(self) -> dict[str, Any]:
        """Return the place: the step that is not done."""
        return self._order.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool) -> int:
        """Go to the place of a state; the epoch of the next ``for``."""
        self._order.load_state_dict(state, force=force)
        self._step = self._next
        return self._order.epoch

    def _share(self) -> int:
        """Count the batches of a step that are this rank's."""
        return self._order._ranks // self._world_size

    def _range(self, place: tuple[int, int], first: int) -> range:
        """Name the rank's batches from a place to the end of its epoch, the first of which has a number."""
        size, batches = self._order._ranks, self._order.batches_in(place[0])
        if self._order._settings["last_batch"] == "drop":
            batches -= batches % size
        steps = -(-max(0, batches - place[1]) // size)
        return range(first, first + steps * self._share())
