"""The order (spec/order.md): which sample is at which index.

index -> source (section 9) -> epoch (6) -> lane (7) -> group (8) -> position -> sample (5)
"""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass, replace

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15
LINE, GLOBAL, GROUP, PHASE, SLOTS, SOURCE = 1, 2, 3, 4, 5, 6
SUBSTITUTE, OPERATION, EPISODES, STEPS = 7, 8, 9, 10
BLOCK = 4096

Pair = tuple[float, float]


def mix(z: int) -> int:
    """Section 1."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@functools.cache
def key(seed: int, purpose: int, a: int = 0, b: int = 0, c: int = 0) -> int:
    """Section 1."""
    h = mix((seed + GAMMA) & MASK)
    for word in (purpose, a, b, c):
        h = mix(((h ^ word) + GAMMA) & MASK)
    return h


def draw(key: int, t: int) -> int:
    """Section 1."""
    return mix((key + (t + 1) * GAMMA) & MASK)


def below(draw: int, end: int) -> int:
    """Section 10: a draw as an integer below `end`."""
    return draw * end >> 64


def operation_draw(seed: int, i: int, name_hash: bytes, t: int) -> int:
    """Section 10; `name_hash` is the BLAKE3 hash of the operation's name."""
    o = int.from_bytes(name_hash[:8], "little")
    return draw(key(seed, OPERATION, i, o), t)


def crop(
    seed: int, i: int, name_hash: bytes, of: tuple[int, int], part: tuple[int, int]
) -> tuple[int, int]:
    """Section 10: the first row and column of the crop."""
    return tuple(
        below(operation_draw(seed, i, name_hash, t), of[t] - part[t] + 1) for t in range(2)
    )


def jpeg(seed: int, i: int, name_hash: bytes, p: float, qualities: tuple[int, int]) -> int | None:
    """Section 10: the quality at which images are compressed, `None` if they are not."""
    if (operation_draw(seed, i, name_hash, 0) >> 11) / 2**53 >= p:
        return None
    lowest, highest = qualities
    return lowest + below(operation_draw(seed, i, name_hash, 1), highest - lowest + 1)


def fraction(seed: int, i: int, name_hash: bytes, t: int) -> float:
    """Section 10: random number t of an operation, from 0 to 1."""
    return (operation_draw(seed, i, name_hash, t) >> 11) / 2**53


def between(seed: int, i: int, name_hash: bytes, t: int, pair: tuple[float, float]) -> float:
    """Section 10: the same, from the least to the greatest."""
    return pair[0] + (pair[1] - pair[0]) * fraction(seed, i, name_hash, t)


def resized_crop(
    seed: int, i: int, name_hash: bytes, of: tuple[int, int], ranges: tuple[Pair, Pair]
) -> tuple[int, int, int, int]:
    """Section 10: first row, first column, height and width of the part."""
    scale, ratio = ranges
    s = between(seed, i, name_hash, 0, scale)
    r = ratio[0]
    if ratio[0] < ratio[1]:
        logarithms = (math.log(ratio[0]), math.log(ratio[1]))
        r = math.exp(between(seed, i, name_hash, 1, logarithms))
    part = [
        min(max(round(side * math.sqrt(share)), 1), side)
        for side, share in zip(of, (s / r, s * r), strict=True)
    ]
    at = [
        below(operation_draw(seed, i, name_hash, 2 + axis), of[axis] - part[axis] + 1)
        for axis in range(2)
    ]
    return (*at, *part)


def flip(seed: int, i: int, name_hash: bytes, p: float) -> bool:
    """Section 10: whether images are mirrored."""
    return fraction(seed, i, name_hash, 0) < p


def color_jitter(
    seed: int, i: int, name_hash: bytes, p: float, ranges: list[Pair]
) -> list[tuple[int, float]] | None:
    """Section 10: the changes as (number, factor), in their order; `None` if there are none."""
    if fraction(seed, i, name_hash, 0) >= p:
        return None
    order = below(operation_draw(seed, i, name_hash, 5), 24)
    left = [(c, between(seed, i, name_hash, 1 + c, ranges[c])) for c in range(4)]
    return [left.pop(order // 6), left.pop(order % 6 // 2), left.pop(order % 2), left.pop()]


def permute(length: int, key: int, x: int) -> int:
    """Section 2."""
    if length == 1:
        return 0
    bits = (length - 1).bit_length()
    left_bits = bits // 2
    right_bits = bits - left_bits
    rounds = 12 if bits <= 8 else 6
    while True:
        left, right = x >> right_bits, x % 2**right_bits
        for r in range(rounds):
            if r % 2 == 0:
                left ^= mix(right ^ draw(key, r)) % 2**left_bits
            else:
                right ^= mix(left ^ draw(key, r)) % 2**right_bits
        x = left * 2**right_bits + right
        if x < length:
            return x


def deal(length: int, depth: int, key: int, x: int) -> int:
    """Section 3."""
    strata = -(-length // depth)
    while True:
        turns, turn = divmod(x, strata)
        stratum = permute(strata, draw(key, 2 * turns), turn)
        x = stratum * depth + permute(depth, draw(key, 2 * stratum + 1), turns)
        if x < length:
            return x


@dataclass(frozen=True)
class Settings:
    """Section 4, with the shuffle as written in the state."""

    seed: int
    batch_size: int
    lanes: int
    shuffle: str | dict
    last_batch: str
    epoch_size: int | None = None
    deal: str = "strata"

    @property
    def has_parts(self) -> bool:
        """Section 8: whether each place of a batch has a part of every group."""
        return self.deal == "parts" and isinstance(self.shuffle, dict)


@dataclass(frozen=True)
class Source:
    """Section 4."""

    id: str
    counts: list[int]
    sizes: list[int] | None
    weights: list[float] | None
    shards: list[int] | None
    variants: list[tuple[int, str]]


def rounded(positions: int, last_batch: str, batch: int) -> tuple[int, int]:
    """Section 6: the indices of an epoch, and how many of them have a sample."""
    down, up = positions // batch * batch, -(-positions // batch) * batch
    return {
        "short": (up, positions),
        "drop": (down, down),
        "wrap": (positions, positions),
        "repeat": (up, up),
    }[last_batch]


class Lanes:
    """Section 7."""

    def __init__(self, settings: Settings, indices: int, samples: int, count: int) -> None:
        self.batch, self.count = settings.batch_size, count
        self.indices, self.rest = indices, 0
        if settings.last_batch == "short":
            self.rest = samples % settings.batch_size
        self.full = samples - self.rest

    def has_sample(self, i: int) -> bool:
        """Whether an index does not lie behind the end of a short batch."""
        return not self.rest or i % self.indices < self.full + self.rest

    def of(self, i: int) -> int:
        """Give the lane of an index."""
        is_last = self.rest and i % self.indices >= self.full
        length = self.rest if is_last else self.batch
        return next(
            lane for lane in range(self.count) if i % self.batch < (lane + 1) * length // self.count
        )

    def before(self, lane: int, x: int) -> int:
        """Give H."""
        width = lane * (self.batch // self.count)
        if not self.rest:
            return x // self.batch * width + min(x % self.batch, width)
        epoch, x = divmod(x, self.indices)
        short = lane * self.rest // self.count
        whole = self.full // self.batch * width + short
        if x >= self.full:
            return epoch * whole + whole - short + min(x - self.full, short)
        return epoch * whole + x // self.batch * width + min(x % self.batch, width)

    def held(self, lane: int, x: int) -> int:
        """Count the samples of a lane before an index."""
        return self.before(lane + 1, x) - self.before(lane, x)


class Single:
    """The order of one source; it has `slots` of 4096 if it is part of a mixture."""

    def __init__(self, source: Source, settings: Settings, slots: int | None = None) -> None:
        self.source, self.settings = source, settings
        self.unit = 1 if source.weights is None else 2**20
        self.lens = [1] * len(source.counts)
        if source.weights is not None:
            lens = [math.floor(weight * self.unit + 0.5) for weight in source.weights]
            self.lens = [
                max(n, 1) if w > 0 else 0 for n, w in zip(lens, source.weights, strict=True)
            ]
        self.lengths = [count * n for count, n in zip(source.counts, self.lens, strict=True)]
        self.n = sum(self.lengths) // self.unit
        self.N, samples = rounded(self.n, settings.last_batch, settings.batch_size)
        self.lanes = Lanes(settings, self.N, samples, settings.lanes)
        self.places = Lanes(settings, self.N, samples, settings.batch_size)
        self.depth = -(-self.n // sum(length > 0 for length in self.lengths))
        self.mode, self.size = self.resolve(slots)
        self.lines: dict[int, list] = {}
        self.groups: dict[tuple[int, int], list] = {}

    def sizes(self) -> list[int]:
        """Section 8: the size of each episode."""
        size = self.settings.shuffle["groups"]["size"]
        given = None if "episodes" in size else self.source.sizes
        sizes = given or [1] * len(self.lengths)
        return [size if length > 0 else 0 for size, length in zip(sizes, self.lengths, strict=True)]

    def resolve(self, slots: int | None) -> tuple[str, int]:
        """Section 8: the size of groups, and whether there are groups at all."""
        if isinstance(self.settings.shuffle, str):
            return self.settings.shuffle, 0
        total = sum(self.sizes())
        ((kind, value),) = self.settings.shuffle["groups"]["size"].items()
        if kind == "fraction":
            size = total if value >= 1 else math.floor(float(total) * value)
        else:
            size = value if slots is None else value * slots // BLOCK
        if size < total:
            return "groups", size
        return ("groups", 2**64) if self.settings.has_parts else ("global", 0)

    def units(self, epoch: int) -> list[list[int]]:
        """Section 5: the episodes on the line, by units."""
        episodes = range(len(self.lengths))
        if self.mode != "groups":
            return [[episode] for episode in episodes]
        units = [[episode] for episode in episodes]
        if self.settings.shuffle["groups"]["unit"] == "shards":
            shards = self.source.shards
            units = [[e for e in episodes if shards[e] == shard] for shard in sorted(set(shards))]
        chosen = key(self.settings.seed, LINE, epoch)
        return [units[permute(len(units), chosen, place)] for place in range(len(units))]

    def line(self, epoch: int) -> list[tuple[int, int, int]]:
        """Section 5: (index of the unit, episode, sample) of every position."""
        if epoch in self.lines:
            return self.lines[epoch]
        phase = 0
        if self.source.weights is not None:
            rest = sum(self.lengths) % self.unit
            phase = draw(key(self.settings.seed, PHASE, epoch), 0)
            phase = rest + phase * (self.unit - rest) // 2**64
        line, end = [], 0
        for place, unit in enumerate(self.units(epoch)):
            for episode in unit:
                for window in range(self.source.counts[episode]):
                    end += self.lens[episode]
                    while len(line) < self.n and len(line) * self.unit + phase < end:
                        line.append((place, episode, window))
        self.lines[epoch] = line
        return line

    def part(self, lane: int, epoch: int) -> range:
        """Section 7: the positions of a lane."""
        start, end = epoch * self.N, (epoch + 1) * self.N
        before = self.lanes.before
        first = before(lane, end) - before(lane, start)
        return range(first, before(lane + 1, end) - before(lane + 1, start))

    def groups_of(self, lane: int, epoch: int) -> list[range]:
        """Section 8: the groups of a lane, as positions."""
        if (lane, epoch) in self.groups:
            return self.groups[lane, epoch]
        line, part, sizes = self.line(epoch), self.part(lane, epoch), self.sizes()
        units = self.units(epoch)
        pieces: list[tuple[int, int]] = []  # first position, size
        unit_before = None
        for position in part:
            unit = (position // self.n, line[position % self.n][0])
            if unit != unit_before:
                pieces.append((position, sum(sizes[episode] for episode in units[unit[1]])))
            unit_before = unit

        def fill(limit: int) -> list[int]:
            starts, used = [], 0
            for start, size in pieces:
                if not starts or used + size > limit:
                    starts.append(start)
                    used = 0
                used += size
            return starts

        limit = self.size // self.settings.lanes
        starts = fill(limit)
        if starts:
            all_sizes = [size for _, size in pieces]
            starts = fill(min(limit, sum(all_sizes) // len(starts) + max(all_sizes)))
        ends = [*starts[1:], part.stop]
        groups = [range(start, end) for start, end in zip(starts, ends, strict=True)]
        self.groups[lane, epoch] = groups
        return groups

    def spot(self, i: int) -> tuple[range, int]:
        """Return the positions of the group of an index (section 10), and its offset among them."""
        epoch, place = divmod(i, self.N)
        seed = self.settings.seed
        if self.mode == "global":
            return range(self.n), permute(self.n, key(seed, GLOBAL, epoch), place % self.n)
        lane = self.lanes.of(i)
        part = self.part(lane, epoch)
        position = part.start + self.lanes.held(lane, i) - self.lanes.held(lane, epoch * self.N)
        if self.mode == "sequential":
            return part, position - part.start
        for number, group in enumerate(self.groups_of(lane, epoch)):
            if position in group and self.settings.has_parts:
                return group, self.place_in_parts(i, number, group)
            if position in group:
                chosen = key(seed, GROUP, epoch, lane, number)
                return group, deal(len(group), self.depth, chosen, position - group.start)
        raise AssertionError("every position is in a group")

    def place_in_parts(self, i: int, number: int, group: range) -> int:
        """Section 8: the offset of an index in its group, of which each place of the batch has a part."""
        epoch = i // self.N
        start, end = epoch * self.N + group.start, epoch * self.N + group.stop
        place, before, held = self.places.of(i), self.places.before, self.places.held
        first = before(place, end) - before(place, start)
        length = held(place, end) - held(place, start)
        chosen = key(self.settings.seed, GROUP, epoch, place, number)
        return first + permute(length, chosen, held(place, i) - held(place, start))

    def sample(self, i: int, position: int) -> tuple[int, int, int, int]:
        """Return (variant, epoch, episode, sample) of a position in the epoch of `i`."""
        epoch = i // self.N
        _, episode, window = self.line(epoch)[position % self.n]
        started = sum(first <= epoch for first, _ in self.source.variants)
        return max(started - 1, 0), epoch, episode, window

    def at(self, i: int) -> tuple[int, int, int, int]:
        """Return the sample of an index."""
        group, place = self.spot(i)
        return self.sample(i, group[place])

    def substitute(self, i: int, attempt: int) -> tuple[int, int, int, int]:
        """Section 10."""
        group, place = self.spot(i)
        others = len(group) - 1
        step = 0
        if others:
            step = 1 + permute(others, key(self.settings.seed, SUBSTITUTE, i), attempt % others)
        return self.sample(i, group[(place + step) % len(group)])


def share_out(weights: list[float]) -> list[int]:
    """Section 9: the slots of each source."""
    total = 0.0
    for weight in weights:  # not `sum`, which is more exact than plain addition
        total += weight
    quotas = [weight / total * BLOCK for weight in weights]
    slots = [max(1, math.floor(quota)) for quota in quotas]
    while sum(slots) != BLOCK:
        lacks = [quota - slot for quota, slot in zip(quotas, slots, strict=True)]
        if sum(slots) < BLOCK:
            slots[lacks.index(max(lacks))] += 1
        else:
            most = min(lack for lack, slot in zip(lacks, slots, strict=True) if slot > 1)
            chosen = next(s for s, lack in enumerate(lacks) if lack == most and slots[s] > 1)
            slots[chosen] -= 1
    return slots


class Order:
    """The order of one source, or of a mixture under weights."""

    def __init__(self, sources: list[Source], weights: list[float], settings: Settings) -> None:
        self.settings = settings
        if len(sources) == 1:
            self.slots = [0]
            self.tracks = [Single(sources[0], settings)]
            self.lanes = self.tracks[0].lanes
            return
        self.slots = share_out(weights)
        self.tracks = []
        for s, source in enumerate(sources):
            seed = key(settings.seed, SOURCE, s)
            batch = settings.batch_size if settings.has_parts else settings.lanes
            own = replace(settings, seed=seed, batch_size=batch, last_batch="wrap")
            self.tracks.append(Single(source, own, self.slots[s]))
        size = settings.epoch_size or sum(track.n for track in self.tracks)
        count = settings.batch_size if settings.has_parts else settings.lanes
        self.lanes = Lanes(
            settings, *rounded(size, settings.last_batch, settings.batch_size), count
        )
        if isinstance(settings.shuffle, dict):
            ((kind, size),) = settings.shuffle["groups"]["size"].items()
            if kind != "fraction" and sum(sum(track.sizes()) for track in self.tracks) <= size:
                for track in self.tracks:
                    track.mode = "groups" if settings.has_parts else "global"
                    track.size = 2**64

    def locate(self, i: int) -> tuple[int, int]:
        """Section 9: the source of an index, and the index in the source's own order."""
        if len(self.tracks) == 1:
            return 0, i
        lane = self.lanes.of(i)
        place = self.lanes.held(lane, i)
        block = place // BLOCK
        slot = permute(BLOCK, key(self.settings.seed, SLOTS, lane, block), place % BLOCK)
        s = 0
        while slot >= self.slots[s]:
            slot -= self.slots[s]
            s += 1
        return s, (block * self.slots[s] + slot) * self.lanes.count + lane

    def at(self, i: int) -> tuple[int, int, int, int, int]:
        """Return (source, variant, epoch, episode, sample) of an index."""
        s, own = self.locate(i)
        return (s, *self.tracks[s].at(own))

    def substitute(self, i: int, attempt: int) -> tuple[int, int, int, int, int]:
        """Section 10."""
        s, own = self.locate(i)
        return (s, *self.tracks[s].substitute(own, attempt))


class Lengths:
    """Section 13: batches of whole episodes."""

    def __init__(self, lengths: list[int], **settings) -> None:
        self.lengths, self.seed, self.size = lengths, settings["seed"], settings["step"]
        ((self.kind, limit),) = settings["batching"].items()
        (self.limit,) = limit.values()
        self.last_batch, self.spread = settings["last_batch"], settings["spread"]
        if self.spread is None:
            frames = sum(max(length, 1) for length in lengths)
            budget = max(1, self.limit * len(lengths) // frames)
            self.spread = 100 * (self.limit if self.kind == "similar" else budget)

    def fits(self, count: int, longest: int) -> bool:
        """Whether `count` episodes may form one batch."""
        cost = 1 if self.kind == "similar" else max(self.lengths[longest], 1)
        return cost * count <= self.limit

    @functools.cache  # noqa: B019 (an order lives as long as the test)
    def batches(self, epoch: int) -> list[list[int]]:
        """All batches of an epoch, stretch after stretch."""
        count, chosen = len(self.lengths), key(self.seed, EPISODES, epoch)
        episodes = [permute(count, chosen, place) for place in range(count)]
        batches: list[list[int]] = []
        for start in range(0, count, self.spread):
            stretch = episodes[start : start + self.spread]
            first = len(batches)
            for episode in sorted(stretch, key=lambda e: (self.lengths[e], e)):
                if len(batches) > first and self.fits(len(batches[-1]) + 1, episode):
                    batches[-1].append(episode)
                else:
                    batches.append([episode])
        return batches

    def sequence(self, epoch: int, head: int) -> list[list[int]]:
        """The batches of an epoch with a head of this length."""
        batches = self.batches(epoch)
        if head >= len(batches):
            return batches
        blocks = (len(batches) - head) // self.size
        out = batches[:head]
        for place in range(blocks):
            start = head + permute(blocks, key(self.seed, STEPS, epoch), place) * self.size
            out += batches[start : start + self.size]
        return out + batches[head + blocks * self.size :]

    def end(self, epoch: int) -> int:
        """The number of batches that an epoch delivers."""
        count = len(self.batches(epoch))
        return count - count % self.size if self.last_batch == "drop" else count

    def step(self, epoch: int, done: int) -> tuple[list[list[int]], tuple[int, int]]:
        """Return the step at a cursor, and the next cursor."""
        while done >= self.end(epoch):
            epoch, done = epoch + 1, 0
        step: list[list[int]] = []
        while len(step) < self.size:
            lack = self.size - len(step)
            sequence = self.sequence(epoch, (done + lack) % self.size)
            taken = sequence[done : min(done + lack, self.end(epoch))]
            step += taken
            done += len(taken)
            if done < self.end(epoch):
                continue
            while self.last_batch == "repeat" and len(step) < self.size:
                step += sequence[: self.size - len(step)]
            epoch, done = epoch + 1, 0
        return step, (epoch, done)


def data_bytes(order: Order) -> bytes:
    """Section 12: the bytes that `data` hashes."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def values(kind: str, given: list | None) -> bytes:
        if given is None:
            return b"\0"
        return struct.pack(f"<BQ{len(given)}{kind}", 1, len(given), *given)

    out = struct.pack("<Q", len(order.tracks))
    for slots, track in zip(order.slots, order.tracks, strict=True):
        source = track.source
        out += struct.pack("<I", slots) + text(source.id)
        out += values("I", source.counts) + values("Q", source.sizes)
        out += values("f", source.weights) + values("I", source.shards)
        out += struct.pack("<Q", len(source.variants))
        for first, name in source.variants:
            out += struct.pack("<Q", first) + text(name)
    return out


def order_text(settings: Settings, data: str) -> str:
    """Section 12: the text that `order` hashes."""
    shuffle = settings.shuffle
    if isinstance(shuffle, dict):
        ((kind, value),) = shuffle["groups"]["size"].items()
        if kind == "fraction":
            value = struct.pack(">d", value).hex()
        shuffle = f"groups {kind} {value} {shuffle['groups']['unit']}"
    return (
        f"kino-order-2\ndata {data}\nseed {settings.seed}\nbatch {settings.batch_size}\nlanes {settings.lanes}\n"
        f"shuffle {shuffle}\nlast_batch {settings.last_batch}\nepoch_size {settings.epoch_size or 0}\n"
        + ("deal parts\n" if settings.deal == "parts" else "")
    )


def receipt_bytes(indices: list[int], samples: list[tuple[int, int, int, int, int]]) -> bytes:
    """Section 12: what `receipt` is the hash of."""
    parts = []
    for i, (source, variant, epoch, episode, sample) in zip(indices, samples, strict=True):
        parts.append(struct.pack("<QIIQII", i, source, variant, epoch, episode, sample))
    return b"".join(parts)
