"""Indexing a stream gives the same as reading all of it and indexing the array."""

import random

import numpy as np
import pytest
import samples

import kinograph

KEYS = [
    slice(None),
    slice(0, 0),
    slice(10, 20),
    slice(-5, None),
    slice(None, -5),
    slice(50, 1000),
    slice(1000, 2000),
    slice(-1000, 3),
    slice(20, 10),
    slice(None, None, 2),
    slice(1, None, 7),
    slice(None, None, -1),
    slice(50, 3, -3),
    slice(np.int64(3), np.uint8(9)),
    0,
    59,
    -1,
    -60,
    np.int16(7),
    np.uint64(7),
    np.array(7),
    [],
    [5],
    [3, 1, 7],
    [5, 5, 5, 0],
    [-1, 0, -60],
    (np.arange(60) % 3 == 0),
    np.zeros(60, bool),
    np.arange(59, -1, -1),
    np.array([0, 59], np.uint8),
    np.array([], np.int32),
    ...,
    (),
]


@pytest.fixture(scope="module")
def episode(lift_path):
    return kinograph.open(lift_path)[0]


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("name", ["actions", "dones", "obs/joints", "obs/agentview_image"])
def test_every_index_gives_what_numpy_gives(episode, lift_streams, name, key):
    whole = lift_streams[0][name]
    expected = whole[np.array(key, int) if isinstance(key, list) else key]
    found = episode[name][key]
    assert type(found) is type(expected)
    assert samples.same_bits(found, expected)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_text_is_indexed_like_a_list(episode, lift_streams, key):
    whole = np.array(lift_streams[0]["language"], dtype=object)
    expected = whole[np.array(key, int) if isinstance(key, list) else key]
    found = episode["language"][key]
    assert found == (expected if isinstance(expected, str) else list(expected))


def test_random_indices_give_what_numpy_gives(tmp_path):
    dice = random.Random(11)
    vector, camera = samples.numbers("float32", (2000, 3)), samples.image(200, 8, 8)
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode({"v": vector, "c": camera}, rate_hz={"v": 500.0, "c": 50.0})
    episode = kinograph.open(tmp_path / "d.kino")[0]
    for _ in range(300):
        name, whole = dice.choice([("v", vector), ("c", camera)])
        n = len(whole)
        bound = lambda n=n: dice.choice([None, dice.randint(-n - 5, n + 5)])  # noqa: E731
        keys = [
            slice(bound(), bound(), dice.choice([None, 1, 2, 3, 70, -1, -13])),
            [dice.randint(-n, n - 1) for _ in range(dice.randint(1, 20))],
            dice.randint(-n, n - 1),
        ]
        key = dice.choice(keys)
        assert samples.same_bits(episode[name][key], whole[key]), (name, key)


@pytest.mark.parametrize("edge", [0.0, 0.05, 0.1, 0.15, 0.3, 1.0, 1.45, 1.5, 2.95])
def test_ranges_of_seconds_include_the_start_and_exclude_the_end(episode, lift_streams, edge):
    whole, frame = lift_streams[0]["actions"], round(edge * 20)
    assert samples.same_bits(episode["actions"][edge:], whole[frame:])
    assert samples.same_bits(episode["actions"][:edge], whole[:frame])
    assert samples.same_bits(episode["actions"][edge : edge + 0.5], whole[frame : frame + 10])


@pytest.mark.parametrize(
    ("key", "frames"),
    [
        (slice(0.0, 0.051), 2),
        (slice(0.001, 0.05), 0),
        (slice(0.001, 0.051), 1),
        (slice(-1.0, 0.1), 2),
        (slice(2.0, 1.0), 0),
        (slice(100.0, 200.0), 0),
        (slice(-np.inf, np.inf), 60),
        (slice(np.float32(0.5), np.float64(1.0)), 10),
    ],
)
def test_seconds_may_fall_between_frames(episode, key, frames):
    assert len(episode["obs/joints"][key]) == frames
    assert len(episode["language"][key]) == frames


def test_seconds_follow_each_streams_own_clock(tmp_path):
    rng = np.random.default_rng(3)
    start = 1_700_000_000_000_000_000
    times = start + np.cumsum(rng.integers(1, 40_000_000, 200))
    late = times[50:70] + 1
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(
            {"a": np.arange(200), "b": np.arange(20)}, timestamps_ns={"a": times, "b": late}
        )
    episode = kinograph.open(tmp_path / "d.kino")[0]
    assert episode.start_ns == times[0]
    for name, clock in (("a", times), ("b", late)):
        for _ in range(50):
            first, last = np.sort(rng.uniform(-0.5, 5, 2))
            bounds = times[0] + np.round(np.array([first, last]) * 1e9).astype(np.int64)
            expected = np.flatnonzero((clock >= bounds[0]) & (clock < bounds[1]))
            assert np.array_equal(episode[name][first:last], expected)


@pytest.mark.parametrize(
    "key", [slice(0, 1.5), slice(0.0, 20), slice(0.0, 1.0, 2), slice(0, 9, 0.5)]
)
def test_frames_and_seconds_do_not_mix(episode, key):
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"mixes frame indices and seconds|slice"
    ):
        episode["actions"][key]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (1.5, "1.5 s is a single time"),
        ("x", "is indexed by a frame index"),
        (None, "is indexed by a frame index"),
        (True, "is indexed by a frame index"),
        ([0.5, 1.5], "is indexed by a frame index"),
        ([[1, 2], [3, 4]], "is indexed by a frame index"),
        (np.ones(3, bool), "a boolean mask of 60 frames"),
        ((slice(0, 3), 0), "can be indexed by frame only"),
        (slice("a", "b"), "slice indices must be integers"),
        (slice(None, None, 0), "zero"),
        (slice(float("nan"), None), "NaN"),
    ],
    ids=repr,
)
def test_a_meaningless_key_is_refused_with_the_reason(episode, key, message):
    with pytest.raises(kinograph.InvalidArgumentError, match=message):
        episode["actions"][key]


@pytest.mark.parametrize(
    "key",
    [60, -61, 10**30, [0, 60], [-61], np.array([1, 99]), np.array([1 << 63, 0], np.uint64)],
    ids=repr,
)
def test_a_missing_frame_is_not_found(episode, key):
    with pytest.raises(
        kinograph.NotFoundError, match=r"no frame .* in stream `actions`, which has 60 frames"
    ):
        episode["actions"][key]


def test_a_stream_can_be_iterated_and_converted_to_an_array(episode, lift_streams):
    expected = lift_streams[0]["actions"]
    assert samples.same_bits(np.stack(list(episode["actions"])), expected)
    assert samples.same_bits(np.asarray(episode["actions"]), expected)
    assert np.asarray(episode["actions"], np.float32).dtype == np.float32
    assert np.array(episode["language"]).tolist() == lift_streams[0]["language"]
    with pytest.raises(ValueError, match="is on disk"):
        episode["actions"].__array__(copy=False)


def test_the_caller_owns_the_returned_array(episode):
    first = episode["actions"][:]
    first[:] = 0
    assert episode["actions"][:].any()


def test_reading_neighbours_with_gaps_reads_each_frame_once(episode, lift_streams):
    key = [0, 1, 2, 30, 31, 59, 59, 0]
    for name in ("actions", "obs/agentview_image"):
        assert samples.same_bits(episode[name][key], lift_streams[0][name][key])
