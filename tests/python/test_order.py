"""The order as a user asks for it: each window once, on any number of ranks, through any stops.

The algorithm itself has a slow twin in `kino_loader` and a second implementation in tests/spec; here only what is promised is
checked, by counting.
"""

import collections
import concurrent.futures
import itertools
import json
import pickle

import numpy as np
import pytest
import samples

import kinograph
from kinograph import LengthOrder, Order, Shuffle, Source, Window

LENGTHS = [31, 7, 18, 25, 40, 12, 9, 22, 5, 33, 16, 28]
TOTAL = sum(LENGTHS)
EPISODE_OF = np.repeat(np.arange(len(LENGTHS)), LENGTHS)


def make(sources, **settings):
    """Make an order whose epochs follow each other without a gap, unless told otherwise: every index has a sample."""
    return Order(sources, **({"last_batch": "wrap"} | settings))


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Twelve episodes of different lengths in about four shards."""
    rng = np.random.default_rng(4)
    path = tmp_path_factory.mktemp("order") / "d.kino"
    with kinograph.Writer(path, shard_size=25_000) as writer:
        for number, frames in enumerate(LENGTHS):
            writer.add_episode(
                {"action": rng.normal(size=(frames, 4)), "noise": rng.normal(size=(frames, 40))},
                rate_hz=10.0,
                id=f"demo_{number}",
                splits=["train" if number % 3 else "valid"],
            )
    ds = kinograph.open(path)
    assert 2 < len(set(ds.episodes["shard"].tolist())) < 8
    return ds


@pytest.fixture(scope="module")
def windows(ds):
    return ds.samples({"action": range(3)})


@pytest.fixture(scope="module")
def whole(ds):
    return ds.samples({"action": Window(whole=True)})


def take(order, count, **ranks):
    return [batch["sample"].tolist() for batch in itertools.islice(order.batches(**ranks), count)]


def open_at_once(groups):
    """The most values that have begun and not yet ended at any place of a sequence."""
    last = {value: place for place, value in enumerate(groups)}
    begun, most = set(), 0
    for place, value in enumerate(groups):
        begun.add(value)
        most = max(most, len(begun))
        if last[value] == place:
            begun.discard(value)
    return most


SETTINGS = [
    {"shuffle": "global"},
    {"shuffle": False},
    {"shuffle": True},
    {"shuffle": Shuffle(fraction=0.25)},
    {"shuffle": Shuffle(episodes=3)},
    {"shuffle": Shuffle(episodes=4, lanes=4)},
    {"shuffle": Shuffle(memory="10 kB", lanes=2)},
    {"shuffle": Shuffle(fraction=0.3, by_shard=True)},
    {"last_batch": "drop", "shuffle": Shuffle(fraction=0.25)},
    {"last_batch": "repeat", "shuffle": Shuffle(fraction=0.5, lanes=8)},
]

SHORT = [
    {"last_batch": "short", "shuffle": Shuffle(episodes=4, lanes=lanes)}
    for lanes in (None, 1, 2, 8)
] + [{"last_batch": "short", "shuffle": shuffle} for shuffle in (True, False, "global")]


@pytest.mark.parametrize("settings", SETTINGS + SHORT, ids=str)
@pytest.mark.parametrize("batch_size", [8, 64])
def test_every_sample_comes_exactly_once_per_epoch(windows, settings, batch_size):
    order = make(windows, batch_size=batch_size, seed=3, **settings)
    orders = []
    for epoch in range(3):
        last_batch = settings.get("last_batch", "wrap")
        if last_batch == "short":
            found = np.concatenate([order.batch(step) for step in order.steps(epoch)])
        else:
            found = order[epoch * len(order) : (epoch + 1) * len(order)]
        assert (found["epoch"] == epoch).all()
        counts = np.bincount(found["sample"], minlength=TOTAL)
        if last_batch in ("wrap", "short"):
            assert len(order) == TOTAL
            assert (counts == 1).all()
        elif last_batch == "drop":
            assert len(order) == TOTAL // batch_size * batch_size
            assert counts.max() == 1
        else:
            assert len(order) == -(-TOTAL // batch_size) * batch_size
            assert counts.min() == 1
            assert counts.sum() == len(order)
        orders.append(found["sample"].tolist())
    if settings.get("shuffle", True):
        assert orders[0] != orders[1] != orders[2] != orders[0]
    else:
        assert orders[0] == orders[1] == list(range(TOTAL))


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_ranks_together_see_the_whole_batch(windows, settings):
    order = make(windows, batch_size=24, seed=1, **settings)
    for step in (0, 1, TOTAL // 24 - 1, TOTAL // 24, 1000):
        expected = order.batch(step)
        assert np.array_equal(expected, order[step * 24 : (step + 1) * 24])
        for world_size in range(1, 25):
            uneven = 24 % world_size != 0
            parts = [
                order.batch(step, rank=rank, world_size=world_size, uneven=uneven)
                for rank in range(world_size)
            ]
            assert np.array_equal(np.concatenate(parts), expected)
            assert len({len(part) for part in parts}) == 1 + uneven


@pytest.mark.parametrize("settings", SETTINGS)
def test_stops_and_other_numbers_of_ranks_change_nothing(windows, settings):
    def fresh():
        return make(windows, batch_size=24, seed=9, **settings)

    expected = take(fresh(), 40)
    ends = [fresh().steps(epoch).start for epoch in (1, 2)]
    stops = sorted({0, 1, 5, 6, *(end + off for end in ends for off in (-1, 0, 1)), 40})
    state, seen = None, []
    for (start, stop), world_size in zip(
        itertools.pairwise(stops), itertools.cycle([8, 3, 6, 1, 24])
    ):
        states, parts = set(), []
        for rank in range(world_size):
            order = fresh()
            if state is not None:
                order.load_state_dict(json.loads(state))
            parts.append(take(order, stop - start, rank=rank, world_size=world_size))
            states.add(json.dumps(order.state_dict()))
        (state,) = states
        assert len(state) < 1024
        seen += [list(itertools.chain(*batch)) for batch in zip(*parts, strict=True)]
    assert seen == expected


def test_the_seed_decides(windows):
    def first(seed):
        return make(windows, batch_size=8, seed=seed)[0:TOTAL]["sample"].tolist()

    assert first(1) == first(1) == first(np.uint64(1))
    assert len({tuple(first(seed)) for seed in (0, 1, 2, 2**64 - 1)}) == 4
    assert make(windows, batch_size=8, seed=1).id != make(windows, batch_size=8, seed=2).id
    # The batch does not: where batches wrap, a global shuffle is one sequence.
    assert make(windows, batch_size=16, seed=1)[0:TOTAL]["sample"].tolist() == first(1)


def test_epochs_and_steps_are_counted(windows):
    order = make(windows, batch_size=16)
    assert len(order) == TOTAL == 246
    # 15 batches and 6 samples; the sixteenth batch starts in this epoch and ends in the next.
    assert order.steps(0) == range(16)
    assert order.steps(1) == range(16, 31)
    assert set(order.batch(15)["epoch"]) == {0, 1}
    assert order.epoch == 0
    order.set_epoch(1)
    assert order.next_index == 16 * 16
    assert order.epoch == 1
    assert np.array_equal(next(order.batches()), order.batch(16))
    dropped = make(windows, batch_size=16, last_batch="drop")
    assert [dropped.steps(epoch) for epoch in (0, 1)] == [range(15), range(15, 30)]
    short = Order(windows, batch_size=16)
    assert len(short) == TOTAL
    assert [short.steps(epoch) for epoch in (0, 1)] == [range(16), range(16, 32)]
    assert len(short.batch(15)) == len(short[240:256]) == 6
    assert [len(short.batch(15, rank=rank, world_size=4)) for rank in range(4)] == [1, 2, 1, 2]
    assert short[256]["epoch"] == 1
    with pytest.raises(kinograph.NotFoundError, match=r"no sample 246: .* is short"):
        short[246]
    assert Order(windows, batch_size=16, drop_last=True).id == dropped.id
    assert Order(windows, batch_size=16, drop_last=False).id == short.id
    assert repr(order) == "Order(246 samples per epoch in batches of 16, seed 0, global shuffle)"


def test_samples_are_numpy_and_find_their_windows(windows):
    order = make(windows, batch_size=16, seed=5)
    batch = order.batch(np.int64(2), rank=np.int32(1), world_size=np.uint8(2))
    assert batch.dtype.names == ("source", "variant", "epoch", "sample")
    assert [batch.dtype[name].str for name in batch.dtype.names] == ["<i4", "<i4", "<i8", "<i8"]
    assert np.array_equal(batch, order[40:48])
    one = order[np.int64(41)]
    assert one == order[41:42][0]
    assert np.array_equal(order.read(41)["action"], windows[one["sample"]]["action"])
    assert len(order[5:5]) == len(order[7:5]) == 0


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda order: order[-1], "no sample -1; the order starts at 0"),
        (lambda order: order[2**62], "no sample 4611686018427387904; the last one"),
        (lambda order: order[:], "an order has no last index"),
        (lambda order: order[0:10:2], "an order has no last index"),
        (lambda order: order["a"], "by an integer or a slice"),
        (lambda order: order[0 : 2**40], "requested at once"),
        (lambda order: order.batch(-1), "step is -1"),
        (lambda order: order.batch(0, rank=4, world_size=4), "rank is 4; .* from 0 to 3"),
        (lambda order: order.batch(0, world_size=0), "world_size is 0"),
        (
            lambda order: order.batch(0, world_size=5),
            "5 ranks cannot share .* 15 or 20, or `uneven=True`",
        ),
        (lambda order: order.batch(0, world_size=17, uneven=True), "17 ranks"),
        (lambda order: order.steps(-1), "epoch is -1"),
        (lambda order: order.set_epoch(-1), "epoch is -1"),
        (lambda order: order.substitute(-1, 0), "index is -1"),
    ],
)
def test_places_that_are_not_there_say_what_is(windows, ask, says):
    with pytest.raises(kinograph.KinographError, match=says):
        ask(make(windows, batch_size=16))


def test_an_order_has_no_end_to_walk_to(windows):
    with pytest.raises(TypeError, match="not iterable"):
        iter(make(windows, batch_size=16))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batch_size": 0}, "batch_size is 0; give a whole number from 1 to 1048576"),
        ({"batch_size": 1.5}, "batch_size is 1.5"),
        ({"batch_size": 2**40}, "batch_size is 1099511627776"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"seed": None}, "seed is None"),
        (
            {"shuffle": Shuffle(episodes=3, lanes=3)},
            "16 samples cannot be split into 3 equal lanes; use 2 or 4 lanes",
        ),
        ({"last_batch": "carry"}, "last_batch is 'carry'; use one of short, drop, wrap, repeat"),
        ({"batch_size": 1000, "last_batch": "drop"}, "1000 from 246 .* at most 246"),
        ({"batch_size": 1000}, "would repeat each about 4 times"),
        ({"shuffle": "all"}, "shuffle is 'all'; give True, False, 'global' or"),
        ({"shuffle": 1}, "shuffle is 1; give True"),
        ({"epoch_size": 10}, "`epoch_size` is for mixtures"),
        ({"sources": []}, "at least one source"),
        ({"sources": 3}, "sources is 3; give a list of samples"),
        ({"sources": [3]}, "a source is kinograph.Samples or kinograph.Source, not int"),
        ({"sources": Source(samples="d.kino")}, "a source has kinograph.Samples, not str"),
    ],
)
def test_settings_that_make_no_sense_say_what_would(windows, settings, says):
    settings = {"sources": windows, "batch_size": 16} | settings
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        make(settings.pop("sources"), **settings)


@pytest.mark.parametrize(
    "group",
    [
        *({"memory": size} for size in ("lots", "200", "", "4 G", "-4GB", "1.2.3GB", ".GB", "0GB", "25%", 0, -1, 1.5, True)),
        *({"episodes": count} for count in (0, -1, 1.5, "3 episodes", True)),
        *({"fraction": part} for part in (0.0, 1.5, -0.5, float("nan"), float("inf"), "half")),
        {"lanes": 0},
    ],
    ids=str,
)  # fmt: skip
def test_a_group_that_has_no_size_is_refused_by_name(group):
    (name,) = group
    with pytest.raises(kinograph.InvalidArgumentError, match=name):
        Shuffle(**group)


def test_a_group_has_one_size():
    with pytest.raises(kinograph.InvalidArgumentError, match="Shuffle has episodes and memory"):
        Shuffle(episodes=3, memory="4GB")


def sizes(ds, stream="action"):
    return np.array([episode[stream][:].nbytes for episode in ds])


@pytest.mark.parametrize("most", [1, 3, np.int64(5)])
def test_a_group_of_episodes_bounds_what_is_open(windows, most):
    order = make(windows, batch_size=8, shuffle=Shuffle(episodes=most), seed=2)
    episodes = EPISODE_OF[order[0:TOTAL]["sample"]]
    assert open_at_once(episodes.tolist()) <= most
    if most == 1:
        assert len(list(itertools.groupby(episodes))) == len(LENGTHS)


@pytest.mark.parametrize("fraction", [0.25, np.float32(0.5), 0.125])
def test_a_group_of_a_fraction_bounds_the_bytes_that_are_open(ds, windows, fraction):
    order = make(windows, batch_size=8, shuffle=Shuffle(fraction=fraction), seed=2)
    check_open_bytes(ds, order, fraction)


@pytest.mark.parametrize(
    ("memory", "count"),
    [("2kB", 2000), ("2 KiB", 2048), ("0.003 MB", 3000), (4000, 4000), (np.int64(4000), 4000)],
)
def test_a_group_of_bytes_bounds_the_bytes_that_are_open(ds, windows, memory, count):
    order = make(windows, batch_size=8, shuffle=Shuffle(memory=memory), seed=2)
    check_open_bytes(ds, order, count / sizes(ds).sum())


def check_open_bytes(ds, order, share):
    size = sizes(ds)
    episodes = EPISODE_OF[order[0:TOTAL]["sample"]].tolist()
    last = {episode: place for place, episode in enumerate(episodes)}
    begun, most_open = set(), 0
    for place, episode in enumerate(episodes):
        begun.add(episode)
        most_open = max(most_open, sum(size[list(begun)]))
        if last[episode] == place:
            begun.discard(episode)
    assert most_open <= max(share * size.sum(), size.max())


@pytest.mark.parametrize(
    "shuffle",
    [
        Shuffle(memory="1GB", lanes=1),
        Shuffle(episodes=100, lanes=1),
        Shuffle(fraction=1.0, lanes=2),
        Shuffle(memory=10**12, lanes=8),
    ],
)
def test_with_lanes_a_group_that_holds_all_is_the_global_shuffle(windows, shuffle):
    order = make(windows, batch_size=8, shuffle=shuffle, seed=2)
    expected = make(windows, batch_size=8, shuffle="global", seed=2)
    assert np.array_equal(order[0:500], expected[0:500])


@pytest.mark.parametrize("shuffle", [Shuffle(episodes=6), Shuffle(fraction=1.0)])
@pytest.mark.parametrize("world_size", [2, 3, 5, 16])
def test_any_number_of_ranks_shares_an_episode_only_at_a_cut(windows, shuffle, world_size):
    order = make(windows, batch_size=16, shuffle=shuffle, last_batch="drop", seed=6)
    pairs = set()
    for step in order.steps(0):
        for rank in range(world_size):
            batch = order.batch(step, rank=rank, world_size=world_size, uneven=True)
            pairs |= {(rank, episode) for episode in EPISODE_OF[batch["sample"]].tolist()}
    groups = 1 if shuffle.fraction else 2
    assert len(pairs) <= len(LENGTHS) + groups * (world_size - 1)


def test_vectors_alone_are_shuffled_globally_by_default(windows):
    automatic = make(windows, batch_size=8, seed=2)
    assert automatic.id == make(windows, batch_size=8, seed=2, shuffle="global").id


def test_lanes_keep_ranks_from_decoding_the_same_episodes(windows):
    order = make(
        windows, batch_size=16, shuffle=Shuffle(episodes=4, lanes=4), last_batch="drop", seed=6
    )
    pairs = set()
    for step in order.steps(0):
        for rank in range(4):
            found = EPISODE_OF[order.batch(step, rank=rank, world_size=4)["sample"]]
            pairs |= {(rank, episode) for episode in found.tolist()}
    # Only an episode on a cut between two lanes has two readers.
    assert len(pairs) <= len(LENGTHS) + 3


def test_groups_by_shard_open_few_files(ds, windows):
    shards = ds.episodes["shard"].tolist()

    def open_shards(**settings):
        shuffle = Shuffle(fraction=0.34, **settings)
        found = make(windows, batch_size=8, shuffle=shuffle, seed=1)[0:TOTAL]["sample"]
        assert sorted(found.tolist()) == list(range(TOTAL))
        return open_at_once([shards[episode] for episode in EPISODE_OF[found]])

    assert open_shards(by_shard=True) < open_shards() <= len(set(shards))


@pytest.mark.parametrize(
    "settings", [{}, {"shuffle": Shuffle(fraction=0.3)}, {"shuffle": Shuffle(episodes=2, lanes=2)}]
)
def test_weights_say_how_often_the_windows_of_an_episode_come(windows, settings):
    weights = [1, 2, 0, 0.5, 1.5, 1, 3, 0, 1, 0.25, 1, 2]
    source = Source(samples=windows, episode_weights=weights)
    order = make(source, batch_size=8, seed=4, **settings)
    assert len(order) == int(np.dot(weights, LENGTHS))
    for epoch in range(3):
        found = order[epoch * len(order) : (epoch + 1) * len(order)]["sample"]
        counts = np.bincount(found, minlength=TOTAL)
        for episode, weight in enumerate(weights):
            own = counts[episode == EPISODE_OF]
            assert own.min() >= np.floor(weight)
            assert own.max() <= np.ceil(weight)
            assert abs(own.sum() - weight * LENGTHS[episode]) <= 1


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1, 2], "12 episodes but 2 weights"),
        ([-1] + [1] * 11, "weight of episode 0 .* is -1"),
        ([1] * 11 + [float("nan")], "weight of episode 11 .* is NaN"),
        ([0] * 12, "no samples"),
        ({"demo_0": 1}, "a weight of an episode is 'demo_0'; give a number"),
        (2.0, "episode_weights is 2.0; give a list"),
    ],
)
def test_weights_that_make_no_sense_are_refused(ds, weights, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        ds.order({"action": range(3)}, batch_size=8, episode_weights=weights)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shuffle": Shuffle(episodes=10**6, lanes=4)},
        {"shuffle": Shuffle(fraction=0.4, lanes=2)},
        {"shuffle": Shuffle(fraction=0.4)},
    ],
)
def test_a_mixture_has_its_shares_in_every_block_and_each_source_its_epochs(ds, settings):
    parts = [
        (ds.samples({"action": range(3)}, split="train"), 3.0),
        (ds.samples({"noise": [0.0]}, split="valid"), 0.75),
        (ds.samples({"action": [0.0]}, episodes=[4]), 0.25),
    ]
    sources = [Source(samples=windows, weight=weight) for windows, weight in parts]
    order = make(sources, batch_size=32, seed=8, **settings)
    assert len(order) == sum(len(windows) for windows, _ in parts)
    # Without lanes, each place of a batch has blocks of its own.
    block = 4096 * (getattr(settings.get("shuffle"), "lanes", 1) or 32)
    found = order[0 : 2 * block]
    for start in (0, block):
        shares = np.bincount(found[start : start + block]["source"], minlength=3) / block
        assert shares.tolist() == [0.75, 0.1875, 0.0625]
    for source, (windows, _) in enumerate(parts):
        own = found[found["source"] == source]
        for epoch in range(own["epoch"].min(), own["epoch"].max()):
            assert sorted(own[own["epoch"] == epoch]["sample"]) == list(range(len(windows)))
    for index in range(20):
        sample = order[index]
        expected = parts[sample["source"]][0][sample["sample"]]
        read = order.read(index)
        assert list(read) == list(expected)
        assert all(np.array_equal(read[key], expected[key]) for key in read)


def test_a_mixture_is_elastic_too(ds):
    def fresh():
        return Order(
            [ds.samples({"action": [0.0]}, split=split) for split in ("train", "valid")],
            batch_size=12,
            seed=5,
            epoch_size=100,
        )

    assert len(fresh()) == 100
    expected = take(fresh(), 20)
    order = fresh()
    seen = take(order, 7)
    state = json.loads(json.dumps(order.state_dict()))
    parts = []
    for rank in range(3):
        order = fresh()
        order.load_state_dict(state)
        parts.append(take(order, 13, rank=rank, world_size=3))
    seen += [list(itertools.chain(*batch)) for batch in zip(*parts, strict=True)]
    assert seen == expected


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_of_a_source_is_above_zero(windows, weight):
    with pytest.raises(kinograph.InvalidArgumentError, match="weight of source 1"):
        Order([windows, Source(samples=windows, weight=weight)], batch_size=4)
    with pytest.raises(kinograph.InvalidArgumentError, match="weight of source 0"):
        Order([Source(samples=windows, weight=weight)], batch_size=4)


@pytest.fixture(scope="module")
def packings(tmp_path_factory):
    """The same episodes three times: lossless, as JPEG, and as JPEG of a poor quality."""
    folder = tmp_path_factory.mktemp("packings")
    episodes = [samples.lift_like(frames, seed) for seed, frames in enumerate((30, 20))]
    plan, poor = (
        {"stream": [{"match": "obs/*_image", "codec": f"jpeg:q={quality}"}]} for quality in (90, 40)
    )
    return [
        samples.write(folder / "lossless.kino", episodes),
        samples.write(folder / "jpeg.kino", episodes, plan=plan),
        samples.write(folder / "poor.kino", episodes, plan=poor),
    ]


def test_a_curriculum_reads_the_same_samples_from_another_packing(packings):
    camera = "obs/agentview_image"
    lossless, jpeg, poor = (ds.samples({camera: [0.0], "actions": range(4)}) for ds in packings)
    source = Source(samples=poor, curriculum={3: lossless, 1: jpeg})
    order = make(source, batch_size=10, seed=2)
    plain = Order(poor, batch_size=10, seed=2)
    found = order[0:250]
    assert np.array_equal(found["sample"], plain[0:250]["sample"])
    assert found["variant"].tolist() == [0] * 50 + [1] * 100 + [2] * 100
    for index, expected in ((3, poor), (70, jpeg), (130, jpeg), (170, lossless), (249, lossless)):
        sample = order.read(index)
        row, frame = expected.locate(found[index]["sample"])
        assert np.array_equal(sample[camera][0], expected.dataset[row][camera][frame])
        assert np.array_equal(sample["actions"][0], packings[0][row]["actions"][frame])
    assert source.variant(0) is poor
    assert source.variant(np.int32(2)) is lossless
    with pytest.raises(kinograph.InvalidArgumentError, match="variant is 3"):
        source.variant(3)
    with pytest.raises(kinograph.InvalidArgumentError, match="does not belong to this order"):
        order.load_state_dict(plain.state_dict())


def test_a_curriculum_needs_the_same_episodes(packings, tmp_path):
    first = packings[0].samples({"actions": range(4)})
    for others, says in (
        ({1: packings[1].samples({"actions": range(4)}, episodes=[0])}, "`demo_1`.* none"),
        ({1: packings[1].samples({"actions": range(4)}, episodes=[1, 0])}, "`demo_0`.*`demo_1`"),
        ({1: packings[1].samples({"actions": Window(steps=range(4), pad="drop")})}, "same windows"),
        ({-1: packings[1].samples({"actions": range(4)})}, "an epoch of the curriculum is -1"),
        ({"1": packings[1].samples({"actions": range(4)})}, "an epoch of the curriculum is '1'"),
        ({1: packings[1]}, "a source has kinograph.Samples, not Dataset"),
    ):
        with pytest.raises(kinograph.InvalidArgumentError, match=says):
            Order(Source(samples=first, curriculum=others), batch_size=4)


@pytest.mark.parametrize(
    "settings", [{}, {"shuffle": Shuffle(episodes=3)}, {"shuffle": Shuffle(fraction=0.5, lanes=2)}]
)
def test_a_substitute_is_another_sample_of_the_same_time(windows, settings):
    order = make(windows, batch_size=8, seed=3, **settings)
    before = order[0:300]
    for index in (0, 17, 100, 245, 246, 299):
        found = [order.substitute(index, attempt) for attempt in range(4)]
        assert all(one["sample"] != before[index]["sample"] for one in found)
        assert all(one["epoch"] == before[index]["epoch"] for one in found)
        assert found == [order.substitute(index, attempt) for attempt in range(4)]
        assert len({one["sample"] for one in found}) > 1
    assert np.array_equal(order[0:300], before)


def test_filtered_windows_have_an_order_of_their_own(ds):
    samples = ds.samples(
        {"action": Window(steps=range(3), pad="drop")},
        split="train",
        filter="frames >= 12",
        skip_first=1,
    )
    order = ds.order(samples, batch_size=8, seed=1)
    rows = [row for row, frames in enumerate(LENGTHS) if row % 3 and frames >= 12]
    windows = order.sources[0].samples
    assert windows.episodes.tolist() == rows
    assert len(order) == sum(LENGTHS[row] - 3 for row in rows)
    assert sorted(order[0 : len(order)]["sample"]) == list(range(len(order)))
    for index in range(0, len(order), 7):
        row, frame = windows.locate(order[index]["sample"])
        assert np.array_equal(order.read(index)["action"], ds[row]["action"][frame : frame + 3])


def test_an_order_takes_windows_or_samples(ds, windows):
    made = ds.order({"action": range(3)}, batch_size=8, seed=1)
    assert made.id == ds.order(windows, batch_size=8, seed=1).id
    assert made.id != ds.order({"action": range(4)}, batch_size=8, seed=1).id


def test_an_order_can_be_pickled_where_it_stands(windows):
    order = make(windows, batch_size=8, seed=1, shuffle=Shuffle(fraction=0.3, lanes=2))
    take(order, 5)
    again = pickle.loads(pickle.dumps(order))
    assert again.id == order.id
    assert again.state_dict() == order.state_dict()
    assert take(again, 5) == take(order, 5)


def test_threads_share_an_order(windows):
    order = make(windows, batch_size=8, seed=1, shuffle=Shuffle(fraction=0.3))
    expected = order[0:2000]["sample"].tolist()
    starts = np.random.default_rng(2).integers(0, 1900, 200).tolist()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda start: order[start : start + 100]["sample"].tolist(), starts)
        for start, piece in zip(starts, found, strict=True):
            assert piece == expected[start : start + 100]


def test_a_place_inside_a_batch_repeats_the_batch_rather_than_losing_samples(windows):
    order = make(windows, batch_size=24, seed=1)
    order.load_state_dict(state_of(windows, batch_size=8, steps=5), force=True)
    assert order.next_index == 40
    assert np.array_equal(next(order.batches()), order.batch(1))
    assert order.next_index == 48


def state_of(windows, *, steps=3, **settings):
    order = make(windows, **({"batch_size": 8, "seed": 1} | settings))
    take(order, steps)
    return json.loads(json.dumps(order.state_dict()))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"seed": 2}, "`seed` is 2 in the state, 1 here"),
        ({"batch_size": 16}, "`batch_size` is 16 in the state, 8 here"),
        ({"shuffle": Shuffle(fraction=0.5, lanes=2)}, "`lanes` is 2 in the state, 1 here"),
        ({"last_batch": "repeat"}, "`last_batch` is repeat in the state, wrap here"),
        ({"shuffle": False}, '`shuffle` is "sequential" in the state, "global" here'),
        ({"shuffle": Shuffle(fraction=0.5)}, "`shuffle` is .*0.5"),
    ],
)
def test_a_state_of_other_settings_is_refused_by_name(windows, settings, says):
    order = make(windows, batch_size=8, seed=1)
    with pytest.raises(kinograph.InvalidArgumentError, match=rf"{says}.*restore with `force`"):
        order.load_state_dict(state_of(windows, **settings))
    assert order.next_index == 0
    # By force the seed and the place are taken, the rest stays as it is here.
    state = state_of(windows, **settings)
    order.load_state_dict(state, force=True)
    assert order.next_index == state["next_index"]
    expected = make(windows, batch_size=8, seed=state["seed"])
    assert np.array_equal(order[0:50], expected[0:50])
    assert f"seed {state['seed']}" in repr(order)


def test_a_state_of_before_groups_had_parts_says_what_to_pass(windows):
    state = state_of(windows, shuffle=Shuffle(episodes=3, lanes=1))
    order = make(windows, batch_size=8, seed=1, shuffle=Shuffle(episodes=3))
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"pass shuffle=kinograph.Shuffle\(lanes=1\)"
    ):
        order.load_state_dict(state)
    order = make(windows, batch_size=8, seed=1, shuffle=Shuffle(episodes=3, lanes=1))
    order.load_state_dict(state)
    assert order.next_index == 24


def test_a_state_of_other_data_is_refused(ds, windows, tmp_path):
    order = make(windows, batch_size=8, seed=1)
    others = [
        ds.samples({"action": range(4)}),
        ds.samples({"action": range(3)}, split="train"),
        samples.write(tmp_path / "d.kino", [{"action": np.zeros((246, 4))}]).samples(
            {"action": range(3)}
        ),
    ]
    for other in others:
        with pytest.raises(kinograph.InvalidArgumentError, match=r"`data` is .*open the version"):
            order.load_state_dict(state_of(other))
    with pytest.raises(kinograph.InvalidArgumentError, match="`data` is"):
        order.load_state_dict(state_of([windows, windows]))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"next_index": 32}, "`receipt` is .*the samples before the stop were others"),
        ({"receipt": "0" * 32}, "`receipt`"),
        ({"algorithm": "kino-order-0"}, "`algorithm` is kino-order-0"),
        ({"format": 2}, "format|newer"),
        ({"order": "0" * 32}, "does not belong to this order"),
        ({"next_index": -1}, "not the state of an order"),
        ({"next_index": object()}, "cannot be written as JSON"),
    ],
)
def test_a_state_that_was_changed_is_refused(windows, change, says):
    order = make(windows, batch_size=8, seed=1)
    with pytest.raises(kinograph.KinographError, match=says):
        order.load_state_dict(state_of(windows) | change)


@pytest.mark.parametrize("state", [{}, None, "state", {"epoch": 3}])
def test_what_is_no_state_is_refused(windows, whole, state):
    for order in (make(windows, batch_size=8), LengthOrder(whole, batch_size=2)):
        with pytest.raises(kinograph.InvalidArgumentError, match="pass what `state_dict` gave"):
            order.load_state_dict(state)


def epochs_of(order, count):
    """The batches of the first epochs, one rank."""
    total = sum(order.batches_in(epoch) for epoch in range(count))
    return [batch.tolist() for batch in itertools.islice(order.batches(), total)]


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 3}, {"frames": 60}, {"frames": 90, "spread": 6}, {"batch_size": 100}],
)
def test_every_episode_comes_once_per_epoch_in_batches_of_similar_length(whole, settings):
    order = LengthOrder(whole, seed=2, **settings)
    batches = epochs_of(order, 3)
    flat = list(itertools.chain(*batches))
    assert len(flat) == 3 * len(LENGTHS)
    for epoch in range(3):
        part = flat[epoch * len(LENGTHS) : (epoch + 1) * len(LENGTHS)]
        assert sorted(part) == list(range(len(LENGTHS)))
    for batch in batches:
        lengths = [LENGTHS[episode] for episode in batch]
        assert lengths == sorted(lengths)
        if "frames" in settings:
            assert max(lengths) * len(batch) <= settings["frames"]
        else:
            assert len(batch) <= settings["batch_size"]
    assert next(order.batches()).dtype == np.int64


def test_batches_of_episodes_find_their_samples(ds, whole):
    order = LengthOrder(whole, frames=80)
    for batch in itertools.islice(order.batches(), 4):
        for position in batch:
            assert np.array_equal(whole[position]["action"], ds[position]["action"][:])


def test_episodes_over_the_budget_are_refused_or_alone(whole):
    with pytest.raises(kinograph.InvalidArgumentError, match=r"episode 4 has 40 .* at least 40"):
        LengthOrder(whole, frames=39)
    batches = epochs_of(LengthOrder(whole, frames=39, oversize_alone=True), 1)
    assert [4] in batches


@pytest.mark.parametrize("settings", [{"batch_size": 2}, {"frames": 70}])
def test_ranks_and_stops_change_nothing_for_whole_episodes(whole, settings):
    def fresh():
        return LengthOrder(whole, seed=7, ranks=4, **settings)

    expected = [batch.tolist() for batch in itertools.islice(fresh().batches(), 4 * 11)]
    state, seen = None, []
    for steps, world_size in ((1, 4), (3, 2), (4, 1), (2, 4), (1, 2)):
        parts, states = [], set()
        each = 4 // world_size
        for rank in range(world_size):
            order = fresh()
            if state is not None:
                order.load_state_dict(json.loads(state))
            taken = itertools.islice(order.batches(rank=rank, world_size=world_size), steps * each)
            parts.append([batch.tolist() for batch in taken])
            states.add(json.dumps(order.state_dict()))
        (state,) = states
        assert len(state) < 1024
        for step in range(steps):
            for part in parts:
                seen += part[step * each : (step + 1) * each]
    assert seen == expected


def test_a_step_that_was_not_finished_comes_again(whole):
    order = LengthOrder(whole, batch_size=2, ranks=4)
    batches = order.batches()
    first = [next(batches).tolist() for _ in range(6)]
    again = LengthOrder(whole, batch_size=2, ranks=4)
    again.load_state_dict(order.state_dict())
    assert next(again.batches()).tolist() == first[4]


def test_the_epoch_of_whole_episodes_can_be_set(whole):
    order = LengthOrder(whole, batch_size=5, seed=3)
    batches = epochs_of(order, 2)
    assert order.epoch in (1, 2)
    order.set_epoch(1)
    assert next(order.batches()).tolist() == batches[order.batches_in(0)]
    assert repr(order) == "LengthOrder(12 episodes, seed 3)"
    assert order.samples is whole
    again = pickle.loads(pickle.dumps(order))
    assert next(again.batches()).tolist() == next(order.batches()).tolist()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "give `batch_size`"),
        ({"batch_size": 2, "frames": 100}, "one of them"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"frames": 0}, "frames is 0"),
        ({"batch_size": 2, "ranks": 0}, "ranks is 0"),
        ({"batch_size": 2, "spread": 0}, "spread is 0"),
        ({"batch_size": 2, "last_batch": "short"}, "last_batch is 'short'; use one of wrap, drop"),
        ({"batch_size": 2, "seed": -1}, "seed is -1"),
    ],
)
def test_settings_of_whole_episodes_that_make_no_sense_are_refused(whole, settings, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        LengthOrder(whole, **settings)


def test_whole_episodes_need_one_sample_each(ds, windows):
    for wrong in (ds, windows):
        with pytest.raises(kinograph.InvalidArgumentError, match="one sample per episode"):
            LengthOrder(wrong, batch_size=2)


def test_ranks_of_whole_episodes_divide_the_step(whole):
    order = LengthOrder(whole, batch_size=2, ranks=4)
    with pytest.raises(kinograph.InvalidArgumentError, match="use 2 or 4 ranks"):
        next(order.batches(rank=0, world_size=3))
    with pytest.raises(kinograph.InvalidArgumentError, match=r"rank is 2; give .* from 0 to 1"):
        next(order.batches(rank=2, world_size=2))
    with pytest.raises(kinograph.InvalidArgumentError, match="epoch is -1"):
        order.set_epoch(-1)


def test_a_state_of_other_batches_of_episodes_is_refused_unless_forced(whole):
    other = LengthOrder(whole, batch_size=2, seed=5)
    list(itertools.islice(other.batches(), 3))
    state = json.loads(json.dumps(other.state_dict()))
    order = LengthOrder(whole, batch_size=3, seed=1)
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"`settings` is .*restore with `force`"
    ):
        order.load_state_dict(state)
    order.load_state_dict(state, force=True)
    assert repr(order) == "LengthOrder(12 episodes, seed 5)"
    plain = LengthOrder(whole, batch_size=3, seed=5)
    assert next(order.batches()).tolist() in epochs_of(plain, 1)


@pytest.mark.parametrize("last_batch", ["drop", "repeat"])
def test_last_batches_of_whole_episodes_end_epochs_with_a_step(whole, last_batch):
    order = LengthOrder(whole, batch_size=2, ranks=4, last_batch=last_batch)
    # Six batches of two: one whole step, or two of which the second is filled up.
    steps = {"drop": 1, "repeat": 2}[last_batch]
    flat = list(itertools.chain(*itertools.islice(order.batches(), 4 * steps)))
    counts = collections.Counter(int(episode) for episode in flat)
    assert order.epoch == 1
    assert max(counts.values()) == (1 if last_batch == "drop" else 2)
    assert len(counts) == (8 if last_batch == "drop" else 12)
