"""What a loader's shuffle gives and costs: how well it mixes, how often frames are decoded, how much memory it needs."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings

from kinograph import _core
from kinograph._errors import KinographWarning, outside
from kinograph._order import Order
from kinograph._shuffle import describe, show_bytes

# Decoding a frame up to this often per epoch is not worth a warning.
_FEW_DECODES = 1.1
# Above this VIF, groups were seen to cost training (docs/measurements/signal.md, "The order of the samples").
_WELL_MIXED = 6.0


@dataclasses.dataclass(frozen=True)
class ShuffleQuality:
    """What a loader's shuffle gives and costs.

    ``episodes_per_batch`` counts different episodes, on average. ``vif`` is the variance of a batch's mean relative to
    independent samples, for an effect that all samples of an episode share: 1 is a perfect shuffle. ``decodes_per_frame`` is
    how often a frame is expected to be decoded in the first epoch, by all ranks together, with ``memory`` bytes for decoded
    frames on this host. ``ranks_per_frame`` is by how many ranks, however much memory there is. With ``memory_needed`` bytes
    each rank decodes each of its frames once per epoch, with ``memory_for_all`` none twice.
    """

    shuffle: str
    episodes_per_batch: float
    vif: float
    decodes_per_frame: float
    ranks_per_frame: float
    memory: int
    memory_needed: int
    memory_for_all: int

    def __str__(self) -> str:
        return (
            f"{self.episodes_per_batch:.1f} episodes per batch, VIF {self.vif:.2f}, "
            f"{self.decodes_per_frame:.1f} decodes per frame"
        )

    def warn(self) -> None:
        """Say once if batches mix too few episodes to train well, and if frames will be decoded again and again."""
        for what in filter(None, (self._poor_mix(), self._many_decodes())):
            warnings.warn(what, KinographWarning, stacklevel=outside())

    def _poor_mix(self) -> str | None:
        """Say what the size of the groups may cost. Reading in order is not training, and costs nothing."""
        if self.shuffle == "not shuffled" or self.vif <= _WELL_MIXED:
            return None
        return (
            f"a batch mixes {self.episodes_per_batch:.1f} episodes, with a loader {self.shuffle} (VIF {self.vif:.1f}; 1 is a perfect "
            f"shuffle): above {_WELL_MIXED:.0f}, policies trained worse, and at 30 they lost half of their success; use shuffle=True or "
            "larger groups"
        )

    def _many_decodes(self) -> str | None:
        """Say how often a frame is decoded if that is more than once, and whether memory or the ranks are why."""
        if self.decodes_per_frame <= _FEW_DECODES:
            return None
        often = f"each frame will be decoded about {self.decodes_per_frame:.1f} times per epoch: "
        if self.decodes_per_frame <= _FEW_DECODES * self.ranks_per_frame:
            why = (
                f"with a {self._name()}, {self.ranks_per_frame:.1f} ranks need it; to decode less use shuffle=True, larger "
                "groups, a larger batch_size, or shorter windows"
            )
        else:
            why = (
                f"decoded frames have {show_bytes(self.memory)} of memory, and with a {self._name()} they need "
                f'{show_bytes(self.memory_needed)}; to decode less use memory="{show_bytes(self.memory_needed)}", a smaller '
                "image size, or smaller groups, shuffle=kinograph.Shuffle(episodes=...), which mix less"
            )
        return often + why

    def _name(self) -> str:
        return self.shuffle if self.shuffle == "global shuffle" else f"loader {self.shuffle}"


def find_quality(order: Order, samples: list[list[_core.Samples]], options: str) -> ShuffleQuality:
    """Measure the order, and choose the memory of this host if none is given."""
    found = json.loads(order._core.quality(samples, options, local_ranks()))
    return ShuffleQuality(shuffle=describe(order._settings["shuffle"]), **found)


def local_ranks() -> int:
    """Count the ranks that share this host and its memory, as ``torchrun`` says."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return int(ranks) if ranks.isdigit() and 0 < int(ranks) < 1 << 16 else 1
