"""A table of ways to iterate, each run on torch's DataLoader and on ours: the same counts, the same coverage."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from optional import optional

import kinograph

torch_data = optional("torch").utils.data
import kinograph.torch  # noqa: E402 (needs torch)

LENGTHS = (13, 20, 9, 29)
SAMPLES = sum(LENGTHS)
BATCH = 16
REQUEST = {"id": [0]}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Episodes whose frames carry the index of their sample."""
    path = tmp_path_factory.mktemp("iteration") / "ids.kino"
    first = 0
    with kinograph.Writer(path) as writer:
        for length in LENGTHS:
            ids = np.arange(first, first + length, dtype=np.float64)[:, None]
            writer.add_episode({"id": ids}, rate_hz=10.0)
            first += length
    return kinograph.open(path)


def to_ids(batch):
    """Give the sample indices of a batch."""
    return [int(value) for value in batch["id"].reshape(-1)]


def make_torch(dataset, **options):
    samples = kinograph.torch.Dataset(dataset, windows=REQUEST)
    return torch_data.DataLoader(samples, **({"batch_size": BATCH, "shuffle": True} | options))


def make_ours(dataset, **options):
    return kinograph.torch.Loader(dataset, windows=REQUEST, **({"batch_size": BATCH} | options))


def take(batches):
    return [to_ids(batch) for batch in batches]


def until(loader, most):
    """Take batches and leave by `break` when there are so many."""
    taken = []
    for index, batch in enumerate(loader):
        taken.append(to_ids(batch))
        if index + 1 >= most:
            break
    return taken


def limited(loader, most):
    """Count as Lightning's `limit_train_batches` does: ask for one more, and leave without using it."""
    taken = []
    for index, batch in enumerate(loader):
        if index >= most:
            break
        taken.append(to_ids(batch))
    return taken


def zipped(make, times, **other):
    """Go through two loaders at once; only the batches of the first are compared."""
    left, right = make(), make(**other)
    return [[to_ids(batch) for batch, _ in zip(left, right, strict=False)] for _ in range(times)]


def past_the_end(make):
    iterator = iter(make())
    taken = take(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    return [taken]


def endless(make):
    def forever(loader):
        while True:
            yield from loader

    batches = take(itertools.islice(forever(make()), 15))
    return [batches[start : start + 5] for start in (0, 5, 10)]


def by_hand(make):
    """Ask with `next`, and begin again with a new iterator when it ends, as many step-based loops do."""
    loader = make()
    iterator, taken = iter(loader), []
    while len(taken) < 12:
        try:
            taken.append(to_ids(next(iterator)))
        except StopIteration:
            iterator = iter(loader)
    return [taken[:5], taken[5:10], taken[10:]]


def middle_then_whole(make):
    loader = make()
    return [until(loader, 2), take(loader), until(loader, 3), take(loader)]


def one_then_whole(make):
    """Look at the first batch, for instance for its shapes, and then train."""
    loader = make()
    return [[to_ids(next(iter(loader)))], take(loader), take(loader)]


def three(of):
    """Do the same three times to one loader."""

    def run(make):
        loader = make()
        return [of(loader) for _ in range(3)]

    return run


PATTERNS = {
    "three epochs": (three(take), {}),
    "list twice": (three(lambda loader: [to_ids(batch) for batch in list(loader)]), {}),
    "islice of len, three times": (
        three(lambda loader: take(itertools.islice(loader, len(loader)))),
        {},
    ),
    "islice of two, three times": (three(lambda loader: take(itertools.islice(loader, 2))), {}),
    "break at the last batch": (three(lambda loader: until(loader, len(loader))), {}),
    "break after three": (three(lambda loader: until(loader, 3)), {}),
    "limit_train_batches": (three(lambda loader: limited(loader, 4)), {}),
    "break in the middle, then a whole epoch": (middle_then_whole, {}),
    "a first look, then epochs": (one_then_whole, {}),
    "zip of equals": (lambda make: zipped(make, 3), {}),
    "zip of a long and a short one": (lambda make: zipped(make, 3, batch_size=32), {}),
    "zip of a short and a long one": (lambda make: zipped(make, 3, batch_size=8), {}),
    "next past the end": (past_the_end, {}),
    "while True": (endless, {}),
    "iterators by hand": (by_hand, {}),
    "validation, three passes": (three(take), {"shuffle": False}),
    "validation, first two batches": (three(lambda loader: until(loader, 2)), {"shuffle": False}),
    "validation, islice": (
        three(lambda loader: take(itertools.islice(loader, 3))),
        {"shuffle": False},
    ),
    "batch larger than the dataset": (three(take), {"batch_size": 1000}),
    "drop_last": (three(take), {"drop_last": True}),
    "drop_last and islice of len": (
        three(lambda loader: take(itertools.islice(loader, len(loader)))),
        {"drop_last": True},
    ),
    "drop_last=False": (three(take), {"drop_last": False}),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_ours_iterates_as_torch_does(dataset, name):
    pattern, options = PATTERNS[name]
    theirs = pattern(lambda **more: make_torch(dataset, **(options | more)))
    ours = pattern(lambda **more: make_ours(dataset, **(options | more)))
    rows = [[[len(batch) for batch in batches] for batches in passes] for passes in (theirs, ours)]
    assert rows[0] == rows[1]
    assert sum(map(len, theirs)) > 0
    for passes in zip(theirs, ours, strict=True):
        left, right = (list(itertools.chain(*batches)) for batches in passes)
        assert len(set(left)) == len(left)
        assert len(set(right)) == len(right)
        if len(left) == SAMPLES:
            assert set(left) == set(right) == set(range(SAMPLES))
        if options.get("shuffle") is False:
            assert left == right
    if options.get("shuffle", True) and len(theirs) > 1:
        # Every pass is shuffled anew.
        assert ours[0] != ours[1]
        assert theirs[0] != theirs[1]


@pytest.mark.parametrize(
    "options", [{}, {"drop_last": True}, {"shuffle": False}, {"batch_size": 1000}]
)
def test_the_length_is_that_of_torch_and_does_not_change(dataset, options):
    ours, theirs = make_ours(dataset, **options), make_torch(dataset, **options)
    for _ in range(3):
        assert len(ours) == len(theirs) == sum(1 for _ in ours)


def test_a_second_iterator_ends_the_first_with_an_error_and_never_shares_its_batches(dataset):
    loader = make_ours(dataset)
    first = iter(loader)
    next(first)
    second = iter(loader)
    taken = [to_ids(next(second))]
    with pytest.raises(kinograph.InvalidArgumentError, match="make a second loader"):
        next(first)
    taken += take(second)
    assert sorted(itertools.chain(*taken)) == list(range(SAMPLES))


def test_itertools_cycle_repeats_what_it_kept(dataset):
    loader = make_ours(dataset)
    taken = take(itertools.islice(itertools.cycle(loader), 10))
    assert taken[:5] == taken[5:]
    assert sorted(itertools.chain(*taken[:5])) == list(range(SAMPLES))


def test_last_batches_of_other_kinds_fill_every_batch(dataset):
    for last_batch, samples in (("drop", 64), ("repeat", 80)):
        loader = make_ours(dataset, last_batch=last_batch)
        for _ in range(3):
            batches = take(loader)
            assert [len(batch) for batch in batches] == [BATCH] * (samples // BATCH)
    wrapped = make_ours(dataset, last_batch="wrap")
    lengths = []
    rows = []
    for _ in range(16):
        lengths.append(len(wrapped))
        rows += take(wrapped)
    # Sixteen epochs of 71 samples are 71 batches of 16, and each sample comes 16 times.
    assert set(lengths) == {4, 5}
    assert sum(lengths) == SAMPLES
    counts = np.bincount(list(itertools.chain(*rows)), minlength=SAMPLES)
    assert set(counts) == {16}


def test_contradictions_and_too_large_batches_are_refused_with_what_to_do(dataset):
    with pytest.raises(kinograph.InvalidArgumentError, match="contradicts last_batch='wrap'"):
        make_ours(dataset, drop_last=True, last_batch="wrap")
    with pytest.raises(kinograph.InvalidArgumentError, match="contradicts last_batch='drop'"):
        make_ours(dataset, drop_last=False, last_batch="drop")
    with pytest.raises(kinograph.InvalidArgumentError, match="give True or False"):
        make_ours(dataset, drop_last=1)
    for last_batch in ("wrap", "repeat"):
        with pytest.raises(
            kinograph.InvalidArgumentError, match=r"would repeat each about 14 times.*at most 71"
        ):
            make_ours(dataset, batch_size=1000, last_batch=last_batch)
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"1000 from 71 samples.*drop them all"
    ):
        make_ours(dataset, batch_size=1000, drop_last=True)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_share_a_short_batch_and_together_see_each_sample_once(dataset, world_size):
    loaders = [
        make_ours(dataset, batch_size=48 // world_size, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    for _ in range(2):
        ranks = [take(loader) for loader in loaders]
        assert {len(batches) for batches in ranks} == {2}
        last = [len(batches[-1]) for batches in ranks]
        assert sum(last) == SAMPLES - 48
        assert max(last) - min(last) <= 1
        everything = itertools.chain(*itertools.chain(*ranks))
        assert sorted(everything) == list(range(SAMPLES))


def test_a_short_batch_of_fewer_samples_than_ranks_is_refused_when_the_loader_is_made(dataset):
    with pytest.raises(
        kinograph.InvalidArgumentError,
        match=r'has 1 of 10 samples, too few for 5 ranks.*last_batch="drop"',
    ):
        make_ours(dataset, batch_size=2, rank=0, world_size=5)
