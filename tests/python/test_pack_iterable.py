"""Episodes from any iterable: the same bytes back, defects by policy, interrupted and taken up."""

import numpy as np
import pytest

import kinograph


def takes(count=4):
    for number in range(count):
        rng = np.random.default_rng(number)
        streams = {
            "obs/image": rng.integers(0, 255, (6 + number, 16, 16, 3), dtype=np.uint8),
            "actions": rng.normal(size=(6 + number, 3)),
            "note": [f"step {step}" for step in range(6 + number)],
        }
        yield {"id": f"take_{number}", "streams": streams, "task": "wave", "splits": ["train"]}


def same(path, episodes):
    ds = kinograph.open(path)
    for episode in episodes:
        for name, values in episode["streams"].items():
            found = ds[episode["id"]][name][:]
            assert np.array_equal(np.asarray(found), np.asarray(values)), name
    return ds


def test_every_episode_of_a_generator_comes_back(tmp_path):
    seen = []
    packed = kinograph.pack(
        takes(),
        tmp_path / "d.kino",
        rate_hz=20.0,
        attributes={"lab": "ours"},
        progress=lambda *n: seen.append(n),
    )
    assert (packed.version, packed.episodes, packed.defects) == (1, 4, [])
    ds = same(tmp_path / "d.kino", takes())
    assert ds.attributes["lab"] == "ours"
    assert (ds["take_2"].task, ds["take_2"].splits) == ("wave", ["train"])
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_list_says_how_many_there_are_and_ids_are_made_from_places(tmp_path):
    seen = []
    episodes = [{"streams": {"x": np.arange(5.0)}, "rate_hz": 10.0}] * 3
    kinograph.pack(episodes, tmp_path / "d.kino", prefix="a/", progress=lambda *n: seen.append(n))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [episode.id for episode in kinograph.open(tmp_path / "d.kino")] == [
        "a/episode_0",
        "a/episode_1",
        "a/episode_2",
    ]


def test_times_of_an_episode_go_before_the_rate_of_the_call(tmp_path):
    times = np.array([0, 7, 20]) * 1_000_000
    kinograph.pack(
        [{"streams": {"x": np.arange(3.0)}, "timestamps_ns": times}],
        tmp_path / "d.kino",
        rate_hz=5.0,
    )
    assert kinograph.open(tmp_path / "d.kino")[0]["x"].timestamps_ns.tolist() == times.tolist()


def with_nan():
    for number in range(3):
        values = np.zeros((10, 2))
        if number == 1:
            values[4:6, 1] = np.nan
        yield {"id": f"e{number}", "streams": {"force": values}, "rate_hz": 10.0}


def test_nan_is_an_error_at_its_episode_and_nothing_is_visible(tmp_path):
    with pytest.raises(
        kinograph.CorruptDataError, match="e1, stream `force`: contains NaN in 2 of 10"
    ):
        kinograph.pack(with_nan(), tmp_path / "d.kino")
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(tmp_path / "d.kino")


@pytest.mark.parametrize(
    ("policy", "ids", "action"),
    [("drop-episode", ["e0", "e2"], "dropped"), ("keep", ["e0", "e1", "e2"], "kept")],
)
def test_nan_is_dropped_with_its_episode_or_kept(tmp_path, policy, ids, action):
    packed = kinograph.pack(with_nan(), tmp_path / "d.kino", on_defect=policy)
    assert [episode.id for episode in kinograph.open(tmp_path / "d.kino")] == ids
    (defect,) = packed.defects
    assert (defect.episode, defect.action, defect.lost) == ("e1", action, action == "dropped")
    assert defect.what == "contains NaN in 2 of 10 frames, first in frame 4"


def test_when_every_episode_is_dropped_the_error_says_why(tmp_path):
    def all_nan():
        for number in range(14):
            yield {"id": f"e{number}", "streams": {"force": np.full((3, 2), np.nan)}, "rate_hz": 10}

    with pytest.raises(kinograph.CorruptDataError) as raised:
        kinograph.pack(all_nan(), tmp_path / "d.kino", on_defect="drop-episode")
    first, *lines = str(raised.value).splitlines()
    assert first == "all 14 episodes have defects and were dropped; nothing was written"
    nan = "contains NaN in 3 of 3 frames, first in frame 0"
    assert lines[:10] == [f"  e{number}, stream `force`: {nan}" for number in range(10)]
    assert lines[10:] == ["  and 4 more"]


def test_a_hole_in_depth_is_no_defect(tmp_path):
    depth = np.full((4, 8, 8), np.nan, np.float32)
    packed = kinograph.pack(
        [{"streams": {"wrist_depth": depth}, "rate_hz": 10.0}], tmp_path / "d.kino"
    )
    assert packed.defects == []


def test_an_interrupted_pack_is_taken_up_without_its_finished_episodes(tmp_path):
    def interrupted(stop):
        for number, episode in enumerate(takes(6)):
            if number == stop:
                raise KeyboardInterrupt
            yield episode

    # Every episode closes its shard.
    options = {"rate_hz": 20.0, "shard_size": 1}
    with pytest.raises(KeyboardInterrupt):
        kinograph.pack(interrupted(4), tmp_path / "d.kino", **options)
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(tmp_path / "d.kino")
    packed = kinograph.pack(takes(6), tmp_path / "d.kino", mode="resume", **options)
    assert packed.episodes == 6
    same(tmp_path / "d.kino", takes(6))
    kinograph.pack(takes(6), tmp_path / "whole.kino", **options)
    assert [episode.id for episode in kinograph.open(tmp_path / "d.kino")] == [
        episode.id for episode in kinograph.open(tmp_path / "whole.kino")
    ]


@pytest.mark.parametrize(
    ("episodes", "words"),
    [
        ([7], "episode 0 is int; it must be a dict with `streams`"),
        ([{"rate_hz": 5.0}], "episode 0 is dict"),
        ([{"streams": {"x": np.zeros(3)}, "channel": 1, "rate_hz": 5.0}], "episode 0: .*channel"),
    ],
)
def test_what_is_no_episode_is_named(tmp_path, episodes, words):
    with pytest.raises(kinograph.InvalidArgumentError, match=words):
        kinograph.pack(episodes, tmp_path / "d.kino")


def test_options_for_files_are_refused(tmp_path):
    with pytest.raises(
        kinograph.InvalidArgumentError, match="applies to recordings on disk, not to an iterable"
    ):
        kinograph.pack([], tmp_path / "d.kino", format="hdf5")
    with pytest.raises(kinograph.InvalidArgumentError, match="on_defect='mend' is not a policy"):
        kinograph.pack([], tmp_path / "d.kino", on_defect="mend")
