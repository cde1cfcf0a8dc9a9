"""Batches of whole episodes, bucketed by length or filled up to a budget of frames.

    order = kinograph.LengthOrder(samples, frames=2000, max_frames=500, seed=7)
    for batch in order.batches(): ...            indices of episodes, shortest first
    for batch in kinograph.torch.Loader(order): ...            their frames, padded, with masks

The same guarantees as :class:`kinograph.Order`: a function of the seed, the same on any number of ranks, resumable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from kinograph import _core
from kinograph._arguments import LAST_INDEX, U32, U64, to_bytes, to_whole, to_word
from kinograph._errors import InvalidArgumentError
from kinograph._order import Order, to_json
from kinograph._samples import Samples

# What the last step of an epoch is where the batches do not fill it.
LastStep: TypeAlias = Literal["wrap", "drop", "repeat"]


class LengthOrder:
    """Order of whole episodes, batched by length.

    A batch has ``batch_size`` episodes of similar length, or as many as fit into ``frames`` or ``decoded_bytes``, padding
    included. Episodes longer than ``max_frames`` count as so long, and a loader cuts them to their first frames. A step
    has ``ranks`` batches of similar cost, one or more for each rank: set ``ranks`` to the largest world size you will
    train with. ``spread`` episodes are sorted together: a larger value wastes less padding, a smaller one shuffles
    better.

    >>> samples = ds.samples({"actions": kinograph.Window(whole=True)})
    >>> order = kinograph.LengthOrder(samples, frames=100, seed=7)
    >>> batch = next(order.batches())
    >>> sorted(samples[i]["actions"].shape for i in batch)
    [(40, 7), (50, 7)]

    A loader takes it instead of samples, and pads each batch to its longest episode; masks say what is padding:

    >>> loader = kinograph.numpy.Loader(kinograph.LengthOrder(samples, frames=100, max_frames=45, seed=7))
    >>> batch = next(iter(loader))
    >>> batch["actions"].shape, batch["actions_is_pad"].sum(axis=1).tolist()
    ((2, 45, 7), [5, 0])
    """

    __slots__ = ("_core", "_measure", "_place", "_samples", "_settings")

    def __init__(  # noqa: PLR0913 (each is a keyword of its own)
        self,
        samples: Samples,
        *,
        batch_size: int | None = None,
        frames: int | None = None,
        decoded_bytes: int | str | None = None,
        max_frames: int | None = None,
        seed: int = 0,
        ranks: int = 1,
        spread: int | None = None,
        last_batch: LastStep = "wrap",
        oversize_alone: bool = False,
    ) -> None:
        if sum(one is not None for one in (batch_size, frames, decoded_bytes)) != 1:
            raise InvalidArgumentError(
                "give `batch_size` (episodes), `frames` or `decoded_bytes` (budgets), exactly one of them"
            )
        if not isinstance(samples, Samples) or (samples.counts != 1).any():
            raise InvalidArgumentError(
                "LengthOrder needs one sample per episode; use ds.samples({'actions': kinograph.Window(whole=True)})"
            )
        self._settings: dict[str, Any] = {
            "seed": to_whole("seed", seed, most=U64),
            "batching": _to_batching(batch_size, frames, decoded_bytes),
            "step": to_whole("ranks", ranks, least=1),
            "spread": None if spread is None else to_whole("spread", spread, least=1),
            "last_batch": to_word("last_batch", last_batch, get_args(LastStep)),
            "oversize": "alone" if oversize_alone else "refuse",
        }
        self._samples = samples
        self._measure = {
            "max_frames": None
            if max_frames is None
            else to_whole("max_frames", max_frames, least=1),
            "unit": "frames" if decoded_bytes is None else "kibibytes",
        }
        self._core = _to_core(samples, self._settings, self._measure)
        self._place = (0, 0)

    @property
    def samples(self) -> Samples:
        """The ordered samples, one per episode."""
        return self._samples

    @property
    def _ranks(self) -> int:
        """The batches of a step."""
        ranks: int = self._settings["step"]
        return ranks

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._place[0]

    def batches_in(self, epoch: int) -> int:
        """Count the batches of an epoch; the number varies between epochs."""
        return self._core.batches_in(to_whole("epoch", epoch, most=LAST_INDEX))

    def batches(self, *, rank: int = 0, world_size: int = 1) -> Iterator[npt.NDArray[np.int64]]:
        """Iterate over a rank's batches, endlessly; a batch holds indices into the samples."""
        ranks = to_whole("world_size", world_size, least=1)
        own = to_whole("rank", rank, most=ranks - 1)
        while True:
            batches, place = self._core.step(self._place, own, ranks)
            for number, (_, episodes) in enumerate(batches):
                # A step completes for all ranks at once: stopping inside a step repeats it.
                if number == len(batches) - 1:
                    self._place = place
                yield episodes.astype(np.int64)

    def set_epoch(self, epoch: int) -> None:
        """Continue with the first batch of an epoch."""
        self._place = (to_whole("epoch", epoch, most=LAST_INDEX), 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the order; small, and the same on every rank."""
        state: dict[str, Any] = json.loads(self._core.state(self._place))
        return state

    def load_state_dict(self, state: Mapping[str, Any], *, force: bool = False) -> None:
        """Resume from a state, on any number of ranks; ``force`` accepts the seed and position of a different order."""
        self._core, self._place = self._core.restore(to_json(state), force)
        self._settings["seed"] = self._core.seed()

    def _as_order(self) -> Order:
        """Make an order of the same episodes in a global shuffle, in batches as large as these are on average."""
        episodes = len(self._samples.episodes)
        return Order(
            self._samples,
            batch_size=-(-episodes // max(self._core.batches_in(0), 1)),
            seed=self._core.seed(),
            shuffle="global",
            last_batch="wrap",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reorder, (self._samples, self._settings, self._measure, self._place)

    def __repr__(self) -> str:
        return f"LengthOrder({len(self._samples.episodes)} episodes, seed {self._core.seed()})"


def _to_batching(
    batch_size: int | None, frames: int | None, decoded_bytes: int | str | None
) -> dict[str, dict[str, int]]:
    if batch_size is not None:
        return {"similar": {"batch": to_whole("batch_size", batch_size, least=1, most=U32)}}
    if decoded_bytes is not None:
        # The core counts lengths in KiB.
        return {"budget": {"frames": to_bytes("decoded_bytes", decoded_bytes, least=1024) // 1024}}
    return {"budget": {"frames": to_whole("frames", frames, least=1, most=U64)}}


def _to_core(
    samples: Samples, settings: dict[str, Any], measure: dict[str, Any]
) -> _core.LengthOrder:
    return _core.LengthOrder(samples._core, json.dumps(settings), json.dumps(measure))


def _reorder(
    samples: Samples,
    settings: dict[str, Any],
    measure: dict[str, Any],
    place: tuple[int, int],
) -> LengthOrder:
    """Recreate a pickled order."""
    order = LengthOrder.__new__(LengthOrder)
    order._samples, order._settings, order._place = samples, settings, place
    order._measure, order._core = measure, _to_core(samples, settings, measure)
    return order
