"""Every golden order, computed by an implementation written from the specification alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spec import order

FILE = Path(__file__).parents[2] / "crates/kino_loader/tests/golden/order.txt"

LENGTHS = FILE.with_name("lengths.txt")


def read_orders():
    """Yield (head, order, samples) of each golden order."""
    for text in FILE.read_text().split("\n\n"):
        head, *lines = text.strip().splitlines()
        head = json.loads(head)
        weights = [source.pop("weight") for source in head["sources"]]
        sources = [order.Source(**source) for source in head["sources"]]
        samples, of = [], None
        for word in " ".join(lines).split():
            before, _, place = word.rpartition(":")
            of = before or of
            samples.append((*map(int, of.split("/")), *map(int, place.split("."))))
        built = order.Order(sources, weights, order.Settings(**head["settings"]))
        yield pytest.param(head, built, samples, id=head["name"])


ORDERS = list(read_orders())


def indices(built):
    """Give the first thousand indices, without those behind the end of a short batch."""
    return [i for i in range(1000) if built.lanes.has_sample(i)]


def test_there_are_34_orders_of_a_thousand_indices_of_which_nine_end_with_a_short_batch():
    assert [len(one.values[2]) for one in ORDERS] == [len(indices(one.values[1])) for one in ORDERS]
    assert len(ORDERS) == 34
    assert sum(len(one.values[2]) < 1000 for one in ORDERS) == 9


@pytest.mark.parametrize(("head", "built", "samples"), ORDERS)
def test_samples_are_those_of_the_golden_file(head, built, samples):
    assert [built.at(i) for i in indices(built)] == samples


@pytest.mark.parametrize(("head", "built", "samples"), ORDERS)
def test_hashes_are_those_of_the_golden_file(head, built, samples):
    blake3 = pytest.importorskip("blake3").blake3
    assert blake3(order.data_bytes(built)).hexdigest()[:32] == head["data"]
    text = order.order_text(built.settings, head["data"])
    assert blake3(text.encode()).hexdigest()[:32] == head["order"]
    assert blake3(order.receipt_bytes(indices(built), samples)).hexdigest()[:32] == head["receipt"]


@pytest.mark.parametrize(("head", "built", "samples"), ORDERS)
def test_substitutes_are_those_of_the_golden_file(head, built, samples):
    found = [(i, attempt, *built.substitute(i, attempt)) for i, attempt, *_ in head["substitutes"]]
    assert found == [tuple(one) for one in head["substitutes"]]


def test_batches_of_whole_episodes_are_those_of_the_golden_file():
    for text in LENGTHS.read_text().split("\n\n"):
        head, *steps = text.strip().splitlines()
        head = json.loads(head)
        built, cursor = order.Lengths(head["lengths"], **head["settings"]), (0, 0)
        for step in steps:
            at, *batches = step.split(" ")
            assert at == f"{cursor[0]}/{cursor[1]}:"
            found, cursor = built.step(*cursor)
            assert [",".join(map(str, batch)) for batch in found] == batches


@pytest.mark.parametrize("length", [1, 2, 3, 100, 256, 257, 5000])
def test_permutations_and_deals_are_bijections(length):
    whole = list(range(length))
    assert sorted(order.permute(length, order.key(1, 2), x) for x in whole) == whole
    for depth in (1, 7, length, length + 1):
        assert sorted(order.deal(length, depth, order.key(1, 2), x) for x in whole) == whole


def test_splitmix_gives_its_published_values():
    assert [order.draw(0, t) for t in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_slots_go_to_the_largest_remainders_and_every_source_has_one():
    assert order.share_out([1.0, 1.0, 1.0]) == [1366, 1365, 1365]
    assert order.share_out([1e-12, 1.0]) == [1, 4095]
