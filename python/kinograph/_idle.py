"""How much a training loop waits: whether that is an alarm, and what it costs.

The threshold of the alarm and the arithmetic are those of the core, ``kino_advisor/src/idle_cost.rs``.
"""

from __future__ import annotations

import dataclasses
import json

from kinograph import _core
from kinograph._arguments import to_number, to_whole
from kinograph._errors import InvalidArgumentError
from kinograph._loop import LoopReport


@dataclasses.dataclass(frozen=True)
class IdleCost:
    """What waiting costs, in the currency of the price."""

    gpu_price_per_hour: float
    gpus: int
    idle_gpu_hours_per_day: float
    cost_per_day: float


@dataclasses.dataclass(frozen=True)
class Idle:
    """How much a training loop waits.

    ``compute_ratio`` is the fraction of the time in which it did not wait for data, without the first step.
    ``is_alarm`` says that this is below 0.85. ``cost`` needs a price.
    """

    compute_ratio: float = 1.0
    is_alarm: bool = False
    cost: IdleCost | None = None
    _lines: tuple[str, ...] = dataclasses.field(default=(), repr=False)

    def to_dict(self) -> dict[str, object]:
        """Return the figures."""
        found = dataclasses.asdict(self)
        del found["_lines"]
        return found


@dataclasses.dataclass(frozen=True)
class GpuPrice:
    """What a GPU costs per hour, and how many of them wait."""

    per_hour: float | None = None
    gpus: int = 1

    @classmethod
    def of(cls, gpu_price: float | None, gpus: int) -> GpuPrice:
        """Check the arguments."""
        count = to_whole("gpus", gpus, least=1)
        if gpu_price is None and count != 1:
            raise InvalidArgumentError(
                f"gpus is {count}, which needs a price: give gpu_price, per GPU and hour"
            )
        price = None if gpu_price is None else to_number("gpu_price", gpu_price)
        if price is not None and not 0 < price < float("inf"):
            raise InvalidArgumentError(
                f"gpu_price is {gpu_price!r}; give what a GPU costs per hour, for example 2.50"
            )
        return cls(price, count)

    def idle(self, loop: LoopReport) -> Idle:
        """Judge a loop; before its second step, nothing is known."""
        text, lines = _core.idle(_ratio(loop), self.per_hour, self.gpus)
        found = json.loads(text)
        cost = found["cost"] and IdleCost(**found["cost"])
        return Idle(found["compute_ratio"], found["is_alarm"], cost, tuple(lines))


def _ratio(loop: LoopReport) -> float:
    if loop.steps < 2 or not loop.step.mean_s:
        return 1.0
    # What is neither waiting nor marked as compute, such as logging, is no reason to blame the data. And while a loop
    # waits, a GPU may still have work: its own clock knows.
    return max(1 - loop.wait.mean_s / loop.step.mean_s, loop.utilisation)
