"""What a cache of a fraction of the bytes can serve, over the orders that loaders really have: `python bench/cache_orders.py`.

Blocks of ten frames of 50 episodes of 200 frames, read in the order of a loader, by one job or by eight with seeds of their own. "ours"
keeps what came first, as the cache does; "optimum" knows the future of all jobs (Belady); "LRU" evicts what was used longest
ago. Shares of the reads from the second epoch on. Nothing but orders is used: no bytes, no clock. Writes bench/results/cache_orders.csv.
"""

import collections
import csv
import heapq
import itertools
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

import kinograph

RESULTS = Path(__file__).resolve().parent / "results"
EPISODES, FRAMES, FRAMES_PER_BLOCK, EPOCHS = 50, 200, 10, 3
BLOCKS = EPISODES * FRAMES // FRAMES_PER_BLOCK
SHUFFLES: dict[str, kinograph.Shuffle | bool | Literal["global"]] = {
    "groups of 20 %": kinograph.Shuffle(fraction=0.2),
    "default": True,
    "none": False,
    "global, each sample read by itself": "global",
}


def reads_of(
    dataset: kinograph.Dataset, shuffle: kinograph.Shuffle | bool | Literal["global"], seed: int
) -> list[list[int]]:
    """List the blocks that one job reads, by epoch."""
    samples = dataset.samples(windows={"camera": [0]})
    with kinograph.numpy.Loader(samples, batch_size=50, seed=seed, shuffle=shuffle) as loader:
        batches = EPISODES * FRAMES // 50
        numbers = [
            [
                int(place["sample"])
                for at in range(batches)
                for place in loader.order.batch(first + at)
            ]
            for first in range(0, EPOCHS * batches, batches)
        ]
    if shuffle == "global":
        return [[sample // FRAMES_PER_BLOCK for sample in epoch] for epoch in numbers]
    # An episode is read whole when its first sample comes, and stays decoded until its last.
    per_episode = FRAMES // FRAMES_PER_BLOCK
    episodes = [dict.fromkeys(sample // FRAMES for sample in epoch) for epoch in numbers]
    return [
        [one * per_episode + at for one in epoch for at in range(per_episode)] for epoch in episodes
    ]


def first_come(reads: list[int], room: int) -> Iterator[bool]:
    """Keep what came first."""
    kept: set[int] = set()
    for block in reads:
        yield block in kept
        if len(kept) < room:
            kept.add(block)


def least_recently_used(reads: list[int], room: int) -> Iterator[bool]:
    """Evict what was used longest ago."""
    kept: collections.OrderedDict[int, None] = collections.OrderedDict()
    for block in reads:
        yield block in kept
        kept[block] = None
        kept.move_to_end(block)
        if len(kept) > room:
            kept.popitem(last=False)


def optimum(reads: list[int], room: int) -> Iterator[bool]:
    """Evict what is used again last, the block just read included (Belady)."""
    next_use, later = [0.0] * len(reads), dict[int, float]()
    for at in reversed(range(len(reads))):
        next_use[at] = later.get(reads[at], math.inf)
        later[reads[at]] = at
    kept: dict[int, float] = {}
    latest: list[tuple[float, int]] = []
    for at, block in enumerate(reads):
        yield block in kept
        kept[block] = next_use[at]
        heapq.heappush(latest, (-next_use[at], block))
        while len(kept) > room:
            use, other = heapq.heappop(latest)
            if kept.get(other) == -use:
                del kept[other]


def main() -> None:
    """Compute all, print, and save."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.kino"
        with kinograph.Writer(path) as writer:
            for number in range(EPISODES):
                camera = np.zeros((FRAMES, 2, 2, 3), np.uint8)
                writer.add_episode({"camera": camera}, rate_hz=20.0, id=f"e{number}")
        dataset = kinograph.open(path)
        for (name, shuffle), jobs in itertools.product(SHUFFLES.items(), (1, 8)):
            each = [reads_of(dataset, shuffle, seed) for seed in range(jobs)]
            # The jobs read in turn.
            epochs = [
                [block for turn in zip(*epoch, strict=True) for block in turn]
                for epoch in zip(*each, strict=True)
            ]
            reads, begin = list(itertools.chain(*epochs)), len(epochs[0])
            for share in (0.1, 0.2, 0.5, 0.8):
                room = round(share * BLOCKS)
                hits = {
                    policy: round(
                        sum(itertools.islice(run(reads, room), begin, None)) / (len(reads) - begin),
                        3,
                    )
                    for policy, run in (
                        ("ours", first_come),
                        ("optimum", optimum),
                        ("lru", least_recently_used),
                    )
                }
                rows.append({"shuffle": name, "jobs": jobs, "room": share, **hits})
                print(rows[-1], flush=True)
    with (RESULTS / "cache_orders.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
