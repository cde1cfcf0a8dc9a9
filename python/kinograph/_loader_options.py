"""A loader's options, from what a user writes to what the core reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kinograph._arguments import to_number, to_whole
from kinograph._errors import InvalidArgumentError
from kinograph._stream import is_number

# Height and width of all cameras, or by key.
Sides: TypeAlias = "tuple[int, int] | Mapping[str, tuple[int, int]]"


def global_batch(batch_size: int | None, global_batch_size: int | None, world_size: int) -> int:
    """Count the samples of a step over all ranks."""
    if (batch_size is None) == (global_batch_size is None):
        raise InvalidArgumentError(
            "give `batch_size` (samples per rank) or `global_batch_size` (of all ranks together), one of them"
        )
    if global_batch_size is not None:
        return global_batch_size
    return to_whole("batch_size", batch_size, least=1) * world_size


def to_sides(name: str, sides: Sides | None) -> Any:  # noqa: ANN401 (a value of JSON)
    """Take height and width of all cameras, or by key; how large they may be is the core's to say."""
    if sides is None:
        return None
    if isinstance(sides, Mapping):
        return [(key, _to_pair(f"{name} of `{key}`", pair)) for key, pair in sides.items()]
    return _to_pair(name, sides)


def _to_pair(name: str, pair: object) -> list[int]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidArgumentError(f"{name} is {pair!r}; give (height, width)")
    return [to_whole(f"{name}: a side", side, least=1) for side in pair]


def to_count(name: str, count: int | None) -> int | None:
    """Take a number of threads or batches; none is chosen by the core."""
    return None if count is None else to_whole(name, count, least=1, most=1024)


def to_cpu(cpu: float | None) -> dict[str, float] | None:
    """Read ``0.8`` as a part of the machine, ``3`` and ``2.5`` as cores."""
    if cpu is None:
        return None
    share = to_number("cpu", cpu)
    if not 0 < share < float("inf"):
        raise InvalidArgumentError(
            f"cpu is {cpu!r}; give a part of the machine, such as 0.8, or cores, such as 3"
        )
    # A whole 1 is one core; 1.0 is all of the machine.
    is_part = share <= 1 and not is_number(cpu)
    return {"fraction" if is_part else "cores": share}
