"""What an epoch of a remote dataset costs: requests, bytes and money, computed before anything is read.

stored bytes of the requested streams × how often they are read ─▶ bytes ─▶ spans of a megabyte ─▶ GETs
│
from the second epoch on, less what the cache has room for
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from kinograph import _core

if TYPE_CHECKING:
    from kinograph._order import Source
    from kinograph._quality import ShuffleQuality
    from kinograph._samples import Samples

# What the core reads at once of consecutive pages, as long as it has not measured the storage (`read_size.rs`).
_SPAN_BYTES = 1 << 20
# Less at the beginning, so that a first batch comes early (`read_size.rs`).
_FIRST_SPAN_BYTES, _FIRST_BYTES = 128 << 10, 16 << 20
# Requests to open a shard: its length, its end, its index.
_PER_SHARD = 3


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What reading one epoch costs, by all ranks together. Only remote datasets count.

    ``hit_rate`` is the share of the bytes that come from the cache from the second epoch on; ``gets``, ``bytes`` and
    ``dollars`` are those of the first epoch, ``later_…`` of each one after it.
    """

    gets: int = 0
    bytes: int = 0
    dollars: float = 0.0
    hit_rate: float = 0.0
    later_gets: int = 0
    later_bytes: int = 0
    later_dollars: float = 0.0

    def __str__(self) -> str:
        if not self.gets:
            return "every dataset is local: no requests"
        return (
            f"first epoch: {self.gets} GETs, {_core.show_bytes(self.bytes)}, ${self.dollars:.4f}; "
            f"later: {self.hit_rate:.0%} from the cache, {self.later_gets} GETs, {_core.show_bytes(self.later_bytes)}, "
            f"${self.later_dollars:.4f} each"
        )


def estimate(
    sources: tuple[Source, ...], quality: ShuffleQuality, get_price: float, gb_price: float
) -> Estimate:
    """Add up what the remote sources of a loader need."""
    gets = total = kept = first = 0.0
    for source in sources:
        cache = (source.samples.dataset.storage or {}).get("cache")
        if source.samples.dataset.storage is None:
            continue
        share, requests = _needs(source.samples, max(1.0, quality.decodes_per_frame))
        gets, total = gets + requests, total + share
        first += min(share, _FIRST_BYTES) / _FIRST_SPAN_BYTES
        if cache is not None and not cache["stopped"]:
            # Bytes that are read more than once per epoch are kept once.
            once = share / max(1.0, quality.decodes_per_frame)
            kept += min(1.0, cache["limit_bytes"] / max(once, 1.0)) * share
    hit_rate = min(1.0, kept / total) if total else 0.0

    def price(gets: float, count: float) -> float:
        return gets / 1000 * get_price + count / 1e9 * gb_price

    later_gets, later = gets * (1 - hit_rate), total * (1 - hit_rate)
    return Estimate(
        gets=round(gets + first),
        bytes=round(total),
        dollars=price(gets + first, total),
        hit_rate=hit_rate,
        later_gets=round(later_gets),
        later_bytes=round(later),
        later_dollars=price(later_gets, later),
    )


def _needs(samples: Samples, times: float) -> tuple[float, float]:
    """Bytes and requests of one epoch, if each frame is read so many times."""
    dataset = samples.dataset
    names = {window["stream"] for window in samples.request["windows"]}
    share = len(samples.episodes) / max(len(dataset), 1)
    stored, reads = 0.0, 0.0
    for name in names & set(dataset.streams):
        stream = dataset.streams[name]
        stored += stream.bytes * share
        each = stream.bytes / max(stream.episodes, 1)
        reads += stream.episodes * share * math.ceil(each / _SPAN_BYTES)
    opened = len(samples.episodes) + _PER_SHARD * len(set(dataset.episodes.values("shard")))
    return stored * times, reads * times + opened
