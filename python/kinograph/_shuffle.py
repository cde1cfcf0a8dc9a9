"""How samples are shuffled: of everything, or of some episodes at a time.

    shuffle=True                       automatic: well mixed, and every frame is decoded once per epoch if memory allows
    shuffle="global"                   all samples of an epoch, exactly
    shuffle=Shuffle(episodes=128)      the samples of 128 episodes at a time
    shuffle=False                      episodes and samples as they are listed

The automatic shuffle depends on the dataset, the requested windows and the batch size, never on the machine.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias

import numpy as np

from kinograph._arguments import to_bytes, to_number, to_whole
from kinograph._errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shuffle:
    """Shuffle the samples of some episodes at a time, so that only these must be held decoded.

    Give the size of a group as one of ``episodes``, ``fraction`` (of the dataset, above 0 and at most 1) and ``memory``
    (decoded bytes of the frames as stored, such as ``"4GB"``); with none of them it is chosen as for ``shuffle=True``.
    ``by_shard=True`` makes groups of whole shards, so that few files are open at a time.

    By default each place of a batch has its own part of every group, so that any number of ranks share few frames. ``lanes``
    splits batches in another way: into this many slices that have groups of their own. ``lanes=1`` is one group for all ranks,
    each of which then decodes all of its frames; states of version 0.1 without ``lanes`` go on with it.

    >>> order = ds.order({"actions": range(10)}, batch_size=32, shuffle=kinograph.Shuffle(episodes=1))
    >>> order
    Order(90 samples per epoch in batches of 32, seed 0, shuffled in groups of 1 episode)
    """

    episodes: int | None = None
    fraction: float | None = None
    memory: int | str | None = None
    by_shard: bool = False
    lanes: int | None = None

    def __post_init__(self) -> None:
        given = [
            name for name in ("episodes", "fraction", "memory") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise InvalidArgumentError(
                f"Shuffle has {' and '.join(given)}; give the size of a group as one of episodes, fraction or memory"
            )
        if self.lanes is not None:
            to_whole("lanes", self.lanes, least=1)
        self._to_size()

    def _to_size(self) -> dict[str, float] | None:
        if self.episodes is not None:
            return {"episodes": to_whole("episodes", self.episodes, least=1)}
        if self.memory is not None:
            return {"bytes": to_bytes("memory", self.memory, least=1)}
        if self.fraction is None:
            return None
        fraction = to_number("fraction", self.fraction)
        if not 0 < fraction <= 1:
            raise InvalidArgumentError(
                f"fraction is {self.fraction!r}; it must be above 0 and at most 1"
            )
        return {"fraction": fraction}

    def _to_setting(self) -> dict[str, Any]:
        unit = "shards" if self.by_shard else "episodes"
        size = self._to_size()
        if size is None:
            return {"auto": {"unit": unit}}
        return {"groups": {"size": size, "unit": unit}}


ShuffleSpec: TypeAlias = bool | Literal["global"] | Shuffle


def to_setting(shuffle: ShuffleSpec) -> dict[str, Any]:
    """Write a shuffle as the core reads it: the shuffle, and the lanes if they are given."""
    if isinstance(shuffle, Shuffle):
        lanes = {} if shuffle.lanes is None else {"lanes": shuffle.lanes}
        return {"shuffle": shuffle._to_setting(), **lanes}
    if isinstance(shuffle, bool | np.bool_):
        return {"shuffle": Shuffle()._to_setting() if shuffle else "sequential"}
    if isinstance(shuffle, str) and shuffle == "global":
        return {"shuffle": "global"}
    raise InvalidArgumentError(
        f"shuffle is {shuffle!r}; give True, False, 'global' or kinograph.Shuffle(episodes=128)"
    )


def describe(shuffle: str | dict[str, Any]) -> str:
    """Say in a few words how the core shuffles."""
    if not isinstance(shuffle, dict):
        return {"global": "global shuffle", "sequential": "not shuffled"}[shuffle]
    groups = shuffle["groups"]
    ((kind, size),) = groups["size"].items()
    by = ", by shard" if groups["unit"] == "shards" else ""
    if kind == "episodes":
        return f"shuffled in groups of {size} episode{'' if size == 1 else 's'}{by}"
    amount = f"{size:.3g} of the dataset" if kind == "fraction" else show_bytes(size)
    return f"shuffled in groups of {amount}{by}"


def show_bytes(size: int) -> str:
    """Show a size rounded up, as an option would be written."""
    for unit, bytes_ in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if size >= 10 * bytes_ or (size >= bytes_ and unit == "MB"):
            return f"{-(-size // bytes_)}{unit}"
        if size >= bytes_:
            return f"{-(-size * 10 // bytes_) / 10:g}{unit}"
    return f"{-(-size // 1000)}kB"
