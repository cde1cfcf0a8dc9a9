"""What a cache of a fraction of the bytes can serve, over the orders that loaders really have: `python bench/cache_orders.py`.

Blocks of ten frames of 50 episodes of 200 frames, read in the order of a loader, by one job or by eight: with seeds of their own, with
seeds and speeds of their own (from 1 to 2), or with one seed and some distance between them. Shares of the reads from the second epoch on:

    ours      what came first stays, as in the cache
    optimum   knows the future of all jobs (Belady)
    LRU       evicts what was used longest ago
    hints     each job tells when it needs each block next, up to a tenth of an epoch or an epoch ahead; how fast the jobs are is
              assumed to be equal
    recent    ours, with an eighth of the room for what came last

and, beside each share, how many blocks are written per read. Nothing but orders is used: no bytes, no clock.
Writes bench/results/cache_orders.csv.
"""

import collections
import csv
import heapq
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

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


class Reads(NamedTuple):
    """The reads of all jobs, in the order of time."""

    blocks: list[int]
    jobs: list[int]
    # The place of each in its job's own order.
    places: list[int]
    # Where the second epoch begins.
    begin: int


#: Later than any read.
NEVER = 1e12

Played = Iterator[tuple[bool, bool]]


def first_come(reads: Reads, room: int) -> Played:
    """Keep what came first."""
    kept: set[int] = set()
    for block in reads.blocks:
        is_hit = block in kept
        is_written = not is_hit and len(kept) < room
        if is_written:
            kept.add(block)
        yield is_hit, is_written


def least_recently_used(reads: Reads, room: int) -> Played:
    """Evict what was used longest ago."""
    kept: collections.OrderedDict[int, None] = collections.OrderedDict()
    for block in reads.blocks:
        is_hit = block in kept
        kept[block] = None
        kept.move_to_end(block)
        if len(kept) > room:
            kept.popitem(last=False)
        yield is_hit, not is_hit


def recent(reads: Reads, room: int) -> Played:
    """Keep what came first, and in an eighth of the room what came last."""
    kept: set[int] = set()
    ring: collections.OrderedDict[int, None] = collections.OrderedDict()
    last = room // 8
    for block in reads.blocks:
        is_hit = block in kept or block in ring
        if block in ring:
            ring.move_to_end(block)
        elif not is_hit and len(kept) < room - last:
            kept.add(block)
        elif not is_hit and last:
            ring[block] = None
            if len(ring) > last:
                ring.popitem(last=False)
        yield is_hit, not is_hit and (block in kept or block in ring)


def optimum(reads: Reads, room: int) -> Played:
    """Evict what is used again last, the block just read included (Belady)."""
    blocks = reads.blocks
    next_use, later = [0.0] * len(blocks), dict[int, float]()
    for at in reversed(range(len(blocks))):
        next_use[at] = later.get(blocks[at], math.inf)
        later[blocks[at]] = at
    kept: dict[int, float] = {}
    latest: list[tuple[float, int]] = []
    for at, block in enumerate(blocks):
        is_hit = block in kept
        kept[block] = next_use[at]
        heapq.heappush(latest, (-next_use[at], block))
        while len(kept) > room:
            use, other = heapq.heappop(latest)
            if kept.get(other) == -use:
                del kept[other]
        yield is_hit, not is_hit and block in kept


def hints(epochs_ahead: float) -> Callable[[Reads, int], Played]:
    """Each job tells when it needs each block next, as far as it looks ahead; what nobody tells of is evicted first."""

    def run(reads: Reads, room: int) -> Played:
        jobs = max(reads.jobs) + 1
        own: list[list[int]] = [[] for _ in range(jobs)]
        for block, job in zip(reads.blocks, reads.jobs, strict=True):
            own[job].append(block)
        ahead = epochs_ahead * len(own[0]) / EPOCHS
        uses = [
            collections.defaultdict[int, collections.deque[int]](collections.deque) for _ in own
        ]
        following = np.full((jobs, BLOCKS), np.inf)
        for job, blocks in enumerate(own):
            for place, block in enumerate(blocks):
                uses[job][block].append(place)
            for block, places in uses[job].items():
                following[job, block] = places[0]
        now, is_kept, count = np.zeros((jobs, 1)), np.zeros(BLOCKS, bool), 0
        for block, job, place in zip(reads.blocks, reads.jobs, reads.places, strict=True):
            now[job] = place
            uses[job][block].popleft()
            following[job, block] = uses[job][block][0] if uses[job][block] else np.inf
            is_hit = bool(is_kept[block])
            is_kept[block] = True
            count += not is_hit
            if count > room:
                distance = following - now
                distance[distance > ahead] = np.inf
                soonest = distance.min(axis=0)
                soonest[np.isinf(soonest)] = NEVER
                # Of those that nobody tells of, the one just read goes first: what is there stays.
                soonest[block] += 1
                soonest[~is_kept] = -np.inf
                is_kept[soonest.argmax()] = False
                count -= 1
            yield is_hit, not is_hit and bool(is_kept[block])

    return run


POLICIES: dict[str, Callable[[Reads, int], Played]] = {
    "ours": first_come,
    "optimum": optimum,
    "lru": least_recently_used,
    "hints_tenth": hints(0.1),
    "hints_epoch": hints(1),
    "recent": recent,
}


def merged(each: list[list[list[int]]], speeds: list[float], gap: float) -> Reads:
    """Bring the reads of jobs in the order of time; each job starts a `gap` of an epoch after the one before."""
    timed = []
    for job, epochs in enumerate(each):
        blocks = list(itertools.chain(*epochs))
        start = gap * job * len(epochs[0])
        for place, block in enumerate(blocks):
            timed.append((start + place / speeds[job], job, place, block))
    timed.sort()
    epoch = len(each[0][0])
    # When the last job has begun its second epoch.
    begin = max(at for at, (_, _, place, _) in enumerate(timed) if place == epoch)
    return Reads(
        [b for *_, b in timed], [j for _, j, _, _ in timed], [p for _, _, p, _ in timed], begin
    )


def rows_of(dataset: kinograph.Dataset) -> Iterator[dict[str, Any]]:
    """Play all orders to all policies."""
    runs: list[tuple[str, list[int], list[float], float]] = [
        ("1", [0], [1.0], 0.0),
        ("8", list(range(8)), [1.0] * 8, 0.0),
        ("8, of other speeds", list(range(8)), [1 + job / 7 for job in range(8)], 0.0),
        ("8, one seed, 1 % apart", [0] * 8, [1.0] * 8, 0.01),
        ("8, one seed, 5 % apart", [0] * 8, [1.0] * 8, 0.05),
    ]
    for (name, shuffle), (jobs, seeds, speeds, gap) in itertools.product(SHUFFLES.items(), runs):
        if shuffle == "global" and jobs not in ("1", "8"):
            continue
        orders = {seed: reads_of(dataset, shuffle, seed) for seed in sorted(set(seeds))}
        reads = merged([orders[seed] for seed in seeds], speeds, gap)
        for share in (0.1, 0.2, 0.5, 0.8):
            row: dict[str, Any] = {"shuffle": name, "jobs": jobs, "room": share}
            for policy, run in POLICIES.items():
                played = run(reads, round(share * BLOCKS))
                counted = list(itertools.islice(played, reads.begin, None))
                row[policy] = round(sum(hit for hit, _ in counted) / len(counted), 3)
                row[f"{policy}_writes"] = round(sum(one for _, one in counted) / len(counted), 3)
            yield row


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
        for row in rows_of(dataset):
            rows.append(row)
            print(row, flush=True)
    with (RESULTS / "cache_orders.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
