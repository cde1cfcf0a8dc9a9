"""Loaders of whole episodes, compared with the order's batches read one episode at a time."""

import json
import pickle

import numpy as np
import pytest
import samples as fixtures
from optional import optional

import kinograph
import kinograph.numpy

LENGTHS = [7, 23, 11, 5, 17, 30, 9, 14, 3, 21, 12, 8, 19]
CAMERA = "cam"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("whole") / "whole.kino"
    with kinograph.Writer(path) as writer:
        for number, length in enumerate(LENGTHS):
            streams = {
                CAMERA: fixtures.image(length, height=12, width=10) + np.uint8(number),
                "actions": rng.normal(size=(length, 3)),
            }
            writer.add_episode(streams, rate_hz=20.0)
    return kinograph.open(path)


@pytest.fixture(scope="module")
def samples(dataset):
    whole = kinograph.Window(whole=True)
    return dataset.samples({CAMERA: whole, "actions": whole}, include=["sample"])


def padded(samples, batch, most=None):
    """Read episodes one by one, cut them, and pad them to the longest with zeros."""
    read = [samples[int(position)] for position in batch]
    cut = [one["actions"][:most] for one in read]
    longest = max(map(len, cut))
    found = {}
    for key in (CAMERA, "actions"):
        rows = [one[key][:most] for one in read]
        pads = [np.zeros((longest - len(row), *row.shape[1:]), row.dtype) for row in rows]
        found[key] = np.stack([np.concatenate(both) for both in zip(rows, pads, strict=True)])
        is_pad = [np.arange(longest) >= len(row) for row in rows]
        found[f"{key}_is_pad"] = np.stack(is_pad)
    return found


def check(batch, wanted):
    for key, array in wanted.items():
        np.testing.assert_array_equal(batch[key], array, err_msg=key)


BUDGETS = [
    {"batch_size": 3},
    {"frames": 60},
    {"frames": 60, "max_frames": 10},
    {"decoded_bytes": "20KiB"},
    {"decoded_bytes": "20KiB", "max_frames": 12},
]


@pytest.mark.parametrize("memory", ["100MB", "40kB"])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_batches_are_the_orders_padded_masked_and_cut(samples, budget, memory):
    order = kinograph.LengthOrder(samples, **budget, seed=7)
    wanted = kinograph.LengthOrder(samples, **budget, seed=7).batches()
    count = 0
    with kinograph.numpy.Loader(order, memory=memory) as loader:
        for epoch in range(3):
            assert len(loader) == order.batches_in(epoch)
            for batch in loader:
                check(batch, padded(samples, next(wanted), budget.get("max_frames")))
                count += 1
    assert count == sum(order.batches_in(epoch) for epoch in range(3))


def test_budgets_of_bytes_hold_and_waste_no_batch(samples):
    most = 20 * 1024
    order = kinograph.LengthOrder(samples, decoded_bytes=most, seed=7)
    sizes = []
    with kinograph.numpy.Loader(order) as loader:
        for batch in loader:
            sizes.append(batch[CAMERA].nbytes + batch["actions"].nbytes)
    assert max(sizes) <= most
    assert len(sizes) < len(LENGTHS)


@pytest.mark.parametrize("last_batch", ["wrap", "drop", "repeat"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_all_ranks_together_have_the_same_batches_on_any_number(samples, last_batch, world_size):
    def order():
        return kinograph.LengthOrder(
            samples, batch_size=2, seed=7, ranks=4, last_batch=last_batch, max_frames=15
        )

    steps = order().batches(rank=0, world_size=1)
    loaders = [
        kinograph.numpy.Loader(order(), rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    share = 4 // world_size
    for _ in range(3):
        taken = [list(loader) for loader in loaders]
        assert len({len(one) for one in taken}) == 1
        assert len(taken[0]) % share == 0
        for first in range(0, len(taken[0]), share):
            for one in taken:
                for batch in one[first : first + share]:
                    check(batch, padded(samples, next(steps), 15))
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize("stop", [0, 1, 3, 6, 8])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_state_resumes_at_the_step_that_was_not_finished(samples, ranks, stop):
    def make():
        order = kinograph.LengthOrder(samples, batch_size=2, seed=7, ranks=ranks)
        return kinograph.numpy.Loader(order)

    loader = make()
    endless = (batch for _ in range(9) for batch in loader)
    taken = [next(endless) for _ in range(stop)]
    state = json.loads(json.dumps(loader.state_dict()))
    copy = pickle.loads(pickle.dumps(loader))
    again = make()
    again.load_state_dict(state)
    repeated = stop % ranks
    resumed = (batch for _ in range(9) for batch in again)
    for batch in taken[stop - repeated :]:
        check(next(resumed), batch)
    following = [next(endless) for _ in range(12)]
    for batch in following:
        check(next(resumed), batch)
    copied = iter(copy)
    assert next(copied).keys() == following[0].keys()
    for one in (loader, again, copy):
        one.close()


def test_a_closed_loader_goes_on_inside_a_step_and_a_new_for_is_a_new_epoch(samples):
    order = kinograph.LengthOrder(samples, batch_size=2, seed=7, ranks=4, last_batch="drop")
    wanted = kinograph.LengthOrder(
        samples, batch_size=2, seed=7, ranks=4, last_batch="drop"
    ).batches()
    loader = kinograph.numpy.Loader(order)
    turn = iter(loader)
    for number in range(4):
        if number in (1, 3):
            loader.close()
        check(next(turn), padded(samples, next(wanted)))
    next(turn, None)
    fresh = kinograph.LengthOrder(samples, batch_size=2, seed=7, ranks=4, last_batch="drop")
    fresh.set_epoch(1)
    check(next(iter(loader)), padded(samples, next(fresh.batches())))
    loader.set_epoch(5)
    fresh.set_epoch(5)
    check(next(iter(loader)), padded(samples, next(fresh.batches())))
    loader.close()


def test_augmentation_and_transforms_are_the_same_on_any_number_of_ranks(samples):
    images = kinograph.Images(color_jitter=kinograph.ColorJitter(brightness=0.5))

    def noisy(sample, rng):
        return {**sample, "noise": rng.normal(size=2)}

    def taken(rank, world_size):
        order = kinograph.LengthOrder(samples, batch_size=2, seed=7, ranks=2)
        options = {"rank": rank, "world_size": world_size, "images": images, "transform": noisy}
        with kinograph.numpy.Loader(order, **options) as loader:
            return [batch for _ in range(2) for batch in loader]

    alone, first, second = taken(0, 1), taken(0, 2), taken(1, 2)
    noises = set()
    for number, batch in enumerate(alone):
        check((first, second)[number % 2][number // 2], batch)
        noises.update(map(tuple, batch["noise"]))
    assert len(noises) == sum(len(batch["sample"]) for batch in alone)
    assert len(alone) >= len(LENGTHS)


def test_what_is_cut_is_not_decoded(samples):
    decoded = {}
    for most in (None, 5):
        order = kinograph.LengthOrder(samples, batch_size=3, seed=7, max_frames=most)
        with kinograph.numpy.Loader(order) as loader:
            list(loader)
            decoded[most] = loader.report().frames_decoded
    assert decoded[None] == 2 * sum(LENGTHS)
    assert decoded[5] == 2 * sum(min(length, 5) for length in LENGTHS)


def test_torch_gets_the_same(samples):
    optional("torch")
    module = __import__("kinograph.torch", fromlist=["Loader"])
    order = kinograph.LengthOrder(samples, frames=60, seed=7)
    wanted = next(kinograph.LengthOrder(samples, frames=60, seed=7).batches())
    with module.Loader(order) as loader:
        check({k: v.numpy() for k, v in next(iter(loader)).items()}, padded(samples, wanted))
        assert loader.length_order is order
        with pytest.raises(kinograph.InvalidArgumentError, match="length_order"):
            loader.order  # noqa: B018 (the property raises)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 3}, "`batch_size` cannot be given with a kinograph.LengthOrder"),
        ({"seed": 3}, "`seed` cannot be given"),
        ({"shuffle": False}, "`shuffle` cannot be given"),
        ({"windows": {"actions": [0]}}, "`windows` cannot be given"),
        ({"rank": 0, "world_size": 3}, "must divide the step"),
    ],
    ids=str,
)
def test_what_the_order_says_already_is_refused(samples, options, says):
    order = kinograph.LengthOrder(samples, batch_size=3, ranks=4)
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        kinograph.numpy.Loader(order, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"frames": 60, "decoded_bytes": "1MB"}, "exactly one of them"),
        ({"decoded_bytes": "10KiB"}, r"has 12 KiB, decoded, more than the budget of 10"),
        ({"frames": 60, "max_frames": 0}, "max_frames is 0"),
        ({"frames": 20}, "more than the budget of 20"),
    ],
    ids=str,
)
def test_impossible_budgets_are_refused(samples, options, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        kinograph.LengthOrder(samples, **options)
    assert kinograph.LengthOrder(samples, frames=20, max_frames=20).batches_in(0) > 0
