"""Samples as a user asks for them, against plain indexing of the arrays that a dataset gives.

Equality with robomimic and LeRobot is in test_windows_peers.py, random requests are in test_windows_random.py.
"""

import concurrent.futures
import json
import multiprocessing
import pickle

import numpy as np
import pytest
import samples

import kinograph
from kinograph import Window

START_NS = 1_760_000_000_000_000_000
MS = 1_000_000


def anchors(ds, stream="actions"):
    """Every frame of a stream, as (episode, frame)."""
    return [(row, frame) for row, episode in enumerate(ds) for frame in range(len(episode[stream]))]


def clipped(values, frames):
    """The frames of an array, its edges repeated, and which of them are padding."""
    frames = np.asarray(frames)
    inside = np.clip(frames, 0, len(values) - 1)
    return values[inside], frames != inside


def check_samples(windows, ds, steps, stream, key=None):
    """Every sample, against the array's frames at the anchor and its neighbours."""
    key = key or stream
    values = [episode[stream][:] for episode in ds]
    places = anchors(ds)
    assert len(windows) == len(places)
    for sample, (row, frame) in zip(windows, places, strict=True):
        expected, padding = clipped(values[row], frame + np.array(steps))
        assert samples.same_bits(sample[key], expected)
        assert np.array_equal(sample[f"{key}_is_pad"], padding)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Actions at 20 Hz, joints and a turn at 100 Hz, a camera near 10 Hz that lost its frames from 0.5 s to 1.0 s."""
    path = tmp_path_factory.mktemp("mixed") / "d.kino"
    with kinograph.Writer(path) as writer:
        for number, seconds in enumerate((2, 3)):
            rng = np.random.default_rng([5, number])
            camera_ms = [t for t in range(3, seconds * 1000, 100) if not 500 < t < 1000]
            angle = np.linspace(0, 30, seconds * 100)
            half = angle / 2
            quat = np.stack([np.zeros_like(half)] * 2 + [np.sin(half), np.cos(half)], axis=1)
            writer.add_episode(
                {
                    "action": rng.normal(size=(seconds * 20, 3)),
                    "joints": rng.normal(size=(seconds * 100, 7)).astype(np.float32),
                    "quat": quat,
                    "camera": rng.integers(0, 256, (len(camera_ms), 4, 5, 3), dtype=np.uint8),
                    "language": ["tidy up", "räum auf"],
                    "instruction": ["one for the whole episode"],
                },
                rate_hz={"joints": 100.0, "quat": 100.0, "action": 20.0},
                timestamps_ns={
                    "camera": START_NS + np.array(camera_ms) * MS,
                    "language": START_NS + np.array([0, 1500]) * MS,
                    "instruction": np.array([START_NS]),
                },
            )
    return kinograph.open(path)


def test_steps_are_the_frames_around_the_anchor(lift):
    check_samples(lift.samples({"actions": range(-2, 6)}), lift, range(-2, 6), "actions")
    windows = lift.samples({"actions": [0.0], "obs/agentview_image": range(-3, 1)})
    check_samples(windows, lift, range(-3, 1), "obs/agentview_image")


def test_floats_are_seconds_and_integers_count_frames(lift):
    for request in (
        [-0.1, 0.0, 0.05],
        (-0.1, 0.0, 0.05),
        np.array([-0.1, 0.0, 0.05]),
        [-2, 0, 1],
        np.array([-2, 0, 1]),
        [np.int8(-2), 0, 1],
        Window(steps=[-2, 0, 1]),
        Window(steps=iter([-2, 0, 1])),
        Window(seconds=[-0.1, 0, 0.05]),
    ):
        check_samples(lift.samples({"actions": request}), lift, [-2, 0, 1], "actions")
    check_samples(lift.samples({"actions": [0, 20]}), lift, [0, 20], "actions")
    check_samples(lift.samples({"actions": [0.0, 1.0]}), lift, [0, 20], "actions")


def test_offsets_keep_their_order_and_may_repeat(lift):
    request = [5, -1, 0, 0, -40, 100]
    check_samples(lift.samples({"actions": request}), lift, request, "actions")


def test_one_stream_may_have_several_windows_under_names_of_their_own(lift):
    windows = lift.samples(
        {
            "past": Window(stream="obs/joints", steps=range(-3, 0)),
            "future": Window(stream="obs/joints", steps=range(1, 4)),
            "now": Window(stream="obs/joints", steps=[0], single=True),
        },
        anchor="actions",
    )
    check_samples(windows, lift, range(-3, 0), "obs/joints", "past")
    check_samples(windows, lift, range(1, 4), "obs/joints", "future")
    assert windows[10]["now"].shape == (7,)
    assert np.array_equal(windows[10]["now"], lift[0]["obs/joints"][10])
    assert "now_is_pad" not in windows[10]
    assert list(windows[0]) == ["past", "future", "now", "past_is_pad", "future_is_pad"]


@pytest.mark.parametrize("dtype", samples.DTYPES)
def test_every_type_of_number_keeps_its_bits(tmp_path, dtype):
    values = samples.numbers(dtype, (12, 3))
    ds = samples.write(tmp_path / "d.kino", [{"x": values}])
    for index, sample in enumerate(ds.samples({"x": range(-1, 2)})):
        assert samples.same_bits(sample["x"], clipped(values, index + np.arange(-1, 2))[0])
    zeros = ds.samples({"x": Window(steps=[-1], pad="zero")})[0]["x"]
    assert samples.same_bits(zeros, np.zeros((1, 3), dtype))


def test_padding_repeats_the_edge_or_is_zero_or_drops_the_sample(lift):
    actions = [episode["actions"][:] for episode in lift]
    steps = np.arange(-2, 4)
    zero = lift.samples({"actions": Window(steps=steps, pad="zero")})
    for sample, (row, frame) in zip(zero, anchors(lift), strict=True):
        expected, padding = clipped(actions[row], frame + steps)
        expected[padding] = 0
        assert samples.same_bits(sample["actions"], expected)
        assert np.array_equal(sample["actions_is_pad"], padding)
    dropped = lift.samples({"actions": Window(steps=steps, pad="drop")})
    assert dropped.counts.tolist() == [len(values) - 5 for values in actions]
    assert [place.anchor for place in map(dropped.locate, range(3))] == [2, 3, 4]
    assert not any(sample["actions_is_pad"].any() for sample in dropped)
    mixed_pads = lift.samples({"actions": Window(steps=steps, pad=("zero", "drop"))})
    assert mixed_pads.counts.tolist() == [len(values) - 3 for values in actions]
    assert not mixed_pads[0]["actions"][:2].any()
    mixed_pads = lift.samples({"actions": Window(steps=steps, pad=("drop", "edge"))})
    assert mixed_pads.counts.tolist() == [len(values) - 2 for values in actions]
    assert np.array_equal(mixed_pads[-1]["actions"][2:], np.repeat(actions[2][-1:], 4, axis=0))


def test_a_drop_of_one_window_drops_the_whole_sample(lift):
    windows = lift.samples(
        {"actions": range(4), "obs/joints": Window(steps=[-5, 0], pad=("drop", "edge"))}
    )
    assert windows.counts.tolist() == [55, 40, 68]
    assert windows.locate(0) == (0, 5)
    assert windows.locate(55) == (1, 5)


def test_latency_looks_for_later_stamps(lift):
    windows = lift.samples(
        {"actions": [0.0], "obs/joints": Window(seconds=[-0.05, 0.0], latency_s=0.1)}
    )
    check_samples(windows, lift, [1, 2], "obs/joints")
    early = lift.samples({"actions": [0.0], "obs/joints": Window(steps=[0], latency_s=-0.05)})
    check_samples(early, lift, [-1], "obs/joints")


def test_streams_of_other_rates_give_the_frame_nearest_in_time(mixed):
    windows = mixed.samples(
        {"action": [0.0], "joints": [-0.01, 0.0, 0.024], "camera": [0.0]}, anchor="action"
    )
    for index, sample in enumerate(windows):
        row, frame = windows.locate(index)
        at = frame * 50
        joints = mixed[row]["joints"][:]
        expected, padding = clipped(joints, [5 * frame - 1, 5 * frame, 5 * frame + 2])
        assert np.array_equal(sample["joints"], expected)
        assert np.array_equal(sample["joints_is_pad"], padding)
        camera_ms = (mixed[row]["camera"].timestamps_ns - START_NS) // MS
        nearest = int(np.abs(camera_ms - at).argmin())
        assert np.array_equal(sample["camera"][0], mixed[row]["camera"][nearest])
        assert windows.frames(index)["camera"].tolist() == [nearest]


def test_a_frame_too_far_away_counts_as_missing(mixed):
    camera = Window(seconds=[0.0], max_staleness_s=0.06)
    windows = mixed.samples({"action": [0.0], "camera": camera}, anchor="action")
    camera_ms = (mixed[0]["camera"].timestamps_ns - START_NS) // MS
    away = [np.abs(camera_ms - 50 * frame).min() for frame in range(40)]
    missing = [bool(windows[index]["camera_is_pad"][0]) for index in range(40)]
    assert missing == [distance > 60 for distance in away]
    assert 0 < sum(missing) < 40
    zero = mixed.samples(
        {"camera": Window(seconds=[0.0], max_staleness_s=0.06, pad="zero")}, anchor="action"
    )
    assert [not zero[index]["camera"].any() for index in range(40)] == missing
    dropped = mixed.samples(
        {"camera": Window(seconds=[0.0], max_staleness_s=0.06, pad="drop")}, anchor="action"
    )
    assert dropped.counts[0] == 40 - sum(missing)
    kept = [dropped.locate(index).anchor for index in range(dropped.counts[0])]
    assert kept == [frame for frame in range(40) if not missing[frame]]


def test_hold_never_looks_ahead(mixed):
    windows = mixed.samples({"camera": Window(seconds=[0.0], resolve="hold")}, anchor="action")
    camera_ms = (mixed[0]["camera"].timestamps_ns - START_NS) // MS
    for frame in range(1, 40):
        last = int(np.searchsorted(camera_ms, 50 * frame, side="right")) - 1
        assert windows.frames(frame)["camera"].tolist() == [last]
        assert np.array_equal(windows[frame]["camera"][0], mixed[0]["camera"][last])
    # At the first action no image had been taken yet.
    assert windows[0]["camera_is_pad"].tolist() == [True]


def test_linear_lies_between_the_neighbours(mixed):
    windows = mixed.samples(
        {"joints": Window(seconds=[0.0, 0.0025, 0.005], resolve="linear")}, anchor="action"
    )
    joints = mixed[0]["joints"][:].astype(np.float64)
    for frame in range(39):
        now, after = joints[5 * frame], joints[5 * frame + 1]
        expected = np.stack([now, now + (after - now) * 0.25, now + (after - now) * 0.5])
        assert samples.same_bits(windows[frame]["joints"], expected.astype(np.float32))


def test_slerp_turns_evenly(mixed):
    windows = mixed.samples({"quat": Window(seconds=[0.003], resolve="slerp")}, anchor="action")
    turn = 30 / (len(mixed[0]["quat"]) - 1)
    for frame in range(39):
        half = (5 * frame + 0.3) * turn / 2
        np.testing.assert_allclose(
            windows[frame]["quat"][0], [0, 0, np.sin(half), np.cos(half)], atol=1e-12
        )


def test_whole_episodes_are_one_sample_each(mixed):
    windows = mixed.samples({name: Window(whole=True) for name in mixed.streams})
    assert len(windows) == 2
    assert windows.request["anchor"] == "episode"
    for sample, episode in zip(windows, mixed, strict=True):
        for name, stream in episode.items():
            values = stream[:]
            same = sample[name] == values
            assert same if isinstance(values, list) else same.all()
            assert not sample[f"{name}_is_pad"].any()
    assert repr(mixed.samples({"joints": Window(whole=True)})) == (
        "Samples(2 samples of 2 episodes: joints [?, 7])"
    )


def test_a_goal_is_the_last_frame_of_the_episode(lift):
    goal = Window(stream="obs/agentview_image", last=True)
    windows = lift.samples({"actions": range(3), "goal": goal})
    for index in (0, 59, 60, 104, 105, 177):
        camera = lift[windows.locate(index).episode]["obs/agentview_image"]
        assert np.array_equal(windows[index]["goal"], camera[-1])
        assert "goal_is_pad" not in windows[index]
    only = lift.samples({"goal": goal})
    assert len(only) == 3


def test_the_anchor_is_a_stream_a_rate_or_the_episode(mixed):
    request = {"joints": [0.0], "action": range(2)}
    assert mixed.samples(request, anchor="joints").counts.tolist() == [200, 300]
    assert mixed.samples(request, anchor="action").counts.tolist() == [40, 60]
    assert mixed.samples(request, anchor="camera").counts.tolist() == [
        len(episode["camera"]) for episode in mixed
    ]
    # From the first time of the episode to its last: the joints' are at 0 s and 1.99 s.
    for rate in (10, 10.0, np.float32(10)):
        windows = mixed.samples(request, anchor=rate)
        assert windows.counts.tolist() == [20, 30]
        assert np.array_equal(windows[3]["joints"][0], mixed[0]["joints"][30])
    whole = mixed.samples({"joints": [0.0, 0.5]}, anchor="episode")
    assert whole.counts.tolist() == [1, 1]
    assert np.array_equal(whole[1]["joints"], mixed[1]["joints"][:][[0, 50]])


def test_the_anchor_is_by_default_the_clock_that_the_streams_share(mixed, lift):
    goal = Window(stream="camera", last=True)
    for request, anchor in (
        ({"goal": goal, "action": [0.0], "language": [0]}, {"stream": "action"}),
        ({"goal": goal, "now": Window(stream="joints", steps=[0])}, {"stream": "joints"}),
        ({"instruction": 0, "joints": [0.0], "quat": range(2)}, {"stream": "joints"}),
        ({"goal": goal, "action": Window(whole=True)}, "episode"),
    ):
        for order in (request, dict(reversed(request.items()))):
            assert mixed.samples(order).request["anchor"] == anchor
    request = {"obs/joints": [-0.05, 0.0], "actions": range(8), "dones": [0]}
    for order in (request, dict(reversed(request.items()))):
        assert lift.samples(order).request["anchor"] == {"stream": "actions"}


def test_streams_with_different_clocks_need_an_anchor(mixed):
    request = {"camera": [0], "action": range(16)}
    for order in (request, dict(reversed(request.items()))):
        with pytest.raises(kinograph.InvalidArgumentError) as caught:
            mixed.samples(order)
        assert 'such as anchor="action", or give a rate in Hz, such as anchor=10.0' in str(
            caught.value
        )
        assert "action 20 Hz, camera about " in str(caught.value)


def test_integers_count_the_frames_of_the_stream_itself(mixed):
    request = {"camera": [0], "action": range(16), "joints": range(-4, 1)}
    for order in (request, dict(reversed(request.items()))):
        windows = mixed.samples(order, anchor="camera")
        for index in range(len(windows)):
            row, frame = windows.locate(index)
            camera_ms = (mixed[row]["camera"].timestamps_ns[frame] - START_NS) / MS
            found = windows.frames(index)
            # Camera times are 3 ms past a multiple of 100 ms, so no frame is halfway.
            action = int(np.rint(camera_ms / 50))
            expected, padding = clipped(mixed[row]["action"][:], action + np.arange(16))
            assert np.array_equal(windows[index]["action"], expected)
            assert np.array_equal(windows[index]["action_is_pad"], padding)
            joint = int(np.rint(camera_ms / 10))
            assert found["joints"].tolist() == np.maximum(joint + np.arange(-4, 1), 0).tolist()
            assert found["camera"].tolist() == [frame]
    at_rate = mixed.samples({"joints": range(3)}, anchor=10.0)
    assert at_rate.frames(4)["joints"].tolist() == [40, 41, 42]


def test_a_bare_number_is_one_frame_without_a_time_axis(lift):
    windows = lift.samples({"obs/joints": 0, "rewards": -0.05, "actions": range(2)})
    sample = windows[7]
    assert np.array_equal(sample["obs/joints"], lift[0]["obs/joints"][7])
    assert sample["rewards"] == lift[0]["rewards"][6]
    assert "obs/joints_is_pad" not in sample


def test_a_sample_can_say_where_it_comes_from(lift):
    windows = lift.samples(
        {"actions": range(2)}, skip_first=3, include=["task", "episode", "frame", "sample"]
    )
    for index in (0, 56, 57, len(windows) - 1):
        sample = windows[index]
        row, frame = windows.locate(index)
        assert sample["task"] == (lift.episodes.values("task")[row] or "")
        assert sample["episode"] == lift[row].id
        assert (sample["episode_index"], sample["frame"], sample["sample"]) == (row, frame, index)
        assert sample["frame"].dtype == np.int64
        assert sample["frame"].shape == ()
    for include, says in (
        (["tasks"], "include is 'tasks'; use one of task, episode, frame, sample"),
        ("task", "include is 'task'; give a list of names"),
        (["task", "task"], "`include` lists `task` twice"),
    ):
        with pytest.raises(kinograph.InvalidArgumentError, match=says):
            lift.samples({"actions": [0]}, include=include)
    with pytest.raises(kinograph.InvalidArgumentError, match="adds the key `task`"):
        lift.samples({"task": Window(stream="language", steps=[0])}, include=["task"])


def test_anchors_at_the_ends_may_be_skipped_and_still_be_reached(lift):
    windows = lift.samples({"actions": range(-1, 2)}, skip_first=3, skip_last=np.int64(4))
    assert windows.counts.tolist() == [53, 38, 66]
    assert [windows.locate(index) for index in (0, 52, 53)] == [(0, 3), (0, 55), (1, 3)]
    assert np.array_equal(windows[0]["actions"], lift[0]["actions"][2:5])
    assert not windows[0]["actions_is_pad"].any()
    # Counted first, dropped for their padding afterwards.
    windows = lift.samples({"actions": Window(steps=range(8), pad="drop")}, skip_last=2)
    assert windows.counts.tolist() == [53, 38, 66]


def test_an_episode_without_samples_is_only_empty(lift):
    windows = lift.samples({"actions": [0.0]}, skip_first=50)
    assert windows.counts.tolist() == [10, 0, 23]
    assert windows.episodes.tolist() == [0, 1, 2]
    assert [windows.locate(index) for index in (9, 10)] == [(0, 59), (2, 50)]


def test_text_comes_as_str_or_as_a_list(lift, mixed):
    windows = lift.samples({"actions": [0.0], "language": [0.0, 0.5]})
    assert windows[5]["language"] == ["step 0", "step 1"]
    assert windows[59]["language_is_pad"].tolist() == [False, True]
    one = lift.samples({"language": Window(steps=[0], single=True)})
    assert [one[index]["language"] for index in (9, 10)] == ["step 0", "step 1"]
    zero = lift.samples({"language": Window(steps=[-1, 0], pad="zero")})
    assert zero[0]["language"] == ["", "step 0"]
    # Said at 0 s and at 1.5 s: never from the future, unless that is requested.
    held = mixed.samples({"action": [0.0], "language": [0.0]})
    nearest = Window(seconds=[0.0], resolve="nearest")
    assert mixed.samples({"action": [0.0], "language": nearest})[20]["language"] == ["räum auf"]
    assert [held[frame]["language"] for frame in (0, 29, 30)] == [
        ["tidy up"],
        ["tidy up"],
        ["räum auf"],
    ]


def test_a_stream_with_one_time_holds_for_the_whole_episode(mixed):
    windows = mixed.samples({"action": [0.0], "instruction": [0.0, 1.0, -1.0]})
    for index in (0, 20, 39, 99):
        assert windows[index]["instruction"] == ["one for the whole episode"] * 3
        assert not windows[index]["instruction_is_pad"].any()


def test_masks_come_in_the_words_of_every_library(lift):
    request = {"obs/joints": range(-1, 1), "actions": range(4)}

    def first(masks):
        sample = lift.samples(request, anchor="actions", masks=masks)[57]
        return {key: sample[key].tolist() for key in sample if key not in request}

    # Frame 57 of 60: the last of four actions lies past the end.
    assert first("is_pad") == {
        "obs/joints_is_pad": [False, False],
        "actions_is_pad": [False, False, False, True],
    }
    assert first("pad_mask") == {"pad_mask": [[True], [True], [True], [False]]}
    assert first("octo") == {
        "observation.timestep_pad_mask": [True, True],
        "actions_pad_mask": [True, True, True, False],
    }
    assert first("act") == {"is_pad": [False, False, False, True]}
    assert first("off") == {}


def test_samples_are_a_sequence(lift):
    windows = lift.samples({"actions": range(2)})
    actions = np.concatenate([episode["actions"][:] for episode in lift])
    assert len(windows) == 178
    for index in (0, 17, 177, -1, -178, np.int32(5), np.array(7)):
        assert np.array_equal(windows[index]["actions"][0], actions[index])
    for piece in (slice(3), slice(58, 62), slice(-2, None), slice(None, None, 60), slice(5, 1, -2)):
        found = [sample["actions"][0] for sample in windows[piece]]
        assert np.array_equal(found, actions[piece])
    assert windows[200:300] == []
    assert sum(1 for _ in windows) == 178
    assert repr(windows) == "Samples(178 samples of 3 episodes: actions [2, 7])"
    assert windows.dataset is lift


@pytest.mark.parametrize("index", [178, -179, 10**30])
def test_an_index_past_the_end_says_how_many_there_are(lift, index):
    windows = lift.samples({"actions": [0.0]})
    for ask in (windows.__getitem__, windows.locate, windows.frames):
        with pytest.raises(IndexError, match=f"no sample {index}; there are 178"):
            ask(index)


@pytest.mark.parametrize("index", ["0", 1.0, True, None, np.array([1, 2])])
def test_an_index_is_a_whole_number_or_a_slice(lift, index):
    with pytest.raises(kinograph.InvalidArgumentError, match="by an integer or a slice"):
        lift.samples({"actions": [0.0]})[index]


def test_locate_and_frames_say_where_a_sample_comes_from(lift):
    windows = lift.samples({"actions": range(-1, 2), "language": Window(last=True)})
    assert [windows.locate(index) for index in range(178)] == anchors(lift)
    assert windows.locate(-1) == (2, 72)
    for index in (0, 60, 177):
        frames = windows.frames(index)
        episode = lift[windows.locate(index).episode]
        assert np.array_equal(windows[index]["actions"], episode["actions"][:][frames["actions"]])
        assert frames["language"].tolist() == [len(episode["language"]) - 1]
    zero = lift.samples({"actions": Window(steps=[-1, 0], pad="zero")})
    assert zero.frames(0)["actions"].tolist() == [-1, 0]


def test_arrays_of_samples_belong_to_the_caller(lift):
    windows = lift.samples({"actions": range(2)})
    sample = windows[0]
    sample["actions"][:] = 7
    assert not (windows[0]["actions"] == 7).any()


def test_a_request_comes_back_whole_and_makes_the_same_windows(mixed):
    windows = mixed.samples(
        {
            "camera": Window(seconds=[-0.1, 0.0], max_staleness_s=0.05, latency_s=0.012),
            "q": Window(stream="quat", seconds=[-0.01, 0.0], resolve="slerp", pad=("drop", "zero")),
            "goal": Window(stream="camera", last=True),
        },
        anchor=7.5,
        skip_first=1,
        masks="octo",
    )
    request = json.loads(json.dumps(windows.request))
    assert set(request) == {"anchor", "windows", "masks", "skip_first", "skip_last", "include"}
    assert request["windows"][0]["latency_ns"] == 12 * MS
    again = kinograph.Samples(mixed, request, {})
    assert again.request == windows.request
    assert len(again) == len(windows)
    for index in range(0, len(windows), 5):
        left, right = again[index], windows[index]
        assert list(left) == list(right)
        assert all(np.array_equal(left[key], right[key]) for key in left)


def test_windows_can_be_pickled(lift):
    windows = lift.samples({"actions": range(3)}, split="valid")
    again = pickle.loads(pickle.dumps(windows))
    assert repr(again) == repr(windows)
    assert np.array_equal(again[100]["actions"], windows[100]["actions"])
    assert again.episodes.tolist() == [1, 2]


def test_threads_read_the_same_samples(lift):
    windows = lift.samples({"actions": range(3), "obs/agentview_image": [-0.05, 0.0]})
    expected = [sample["obs/agentview_image"].tobytes() for sample in windows]
    order = np.random.default_rng(0).permutation(len(windows)).tolist()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = list(
            threads.map(lambda index: windows[index]["obs/agentview_image"].tobytes(), order)
        )
    assert found == [expected[index] for index in order]


def read_elsewhere(windows, index):
    """Read a sample, and count what a new request finds, where the windows arrive."""
    dropping = Window(seconds=[0.0, 1.0], pad="drop")
    return windows[index]["actions"], len(windows.dataset.samples({"actions": dropping}, anchor=10))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_samples_and_make_windows(lift, method):
    windows = lift.samples({"actions": range(3)}, split="valid")
    expected = [read_elsewhere(windows, index) for index in (0, 50, 117)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.starmap(read_elsewhere, [(windows, index) for index in (0, 50, 117)])
    for (actions, count), (expected_actions, expected_count) in zip(found, expected, strict=True):
        assert np.array_equal(actions, expected_actions)
        assert count == expected_count


@pytest.mark.parametrize(
    ("choice", "rows"),
    [
        ({}, [0, 1, 2]),
        ({"split": "train"}, [0]),
        ({"split": ["small", "valid"]}, [0, 1, 2]),
        ({"split": ("valid",)}, [1, 2]),
        ({"episodes": [2, 0]}, [2, 0]),
        ({"episodes": range(2)}, [0, 1]),
        ({"episodes": np.array([1])}, [1]),
        ({"episodes": [-1]}, [2]),
        ({"episodes": ["demo_1", "demo_0"]}, [1, 0]),
        ({"episodes": (row for row in (1, 2))}, [1, 2]),
        ({"filter": "success"}, [0]),
        ({"filter": "not success"}, [2]),
        ({"filter": "success == null"}, [1]),
        ({"filter": "frames >= 60"}, [0, 2]),
        ({"filter": "has('actions') and has(\"obs/joints\")"}, [0, 1, 2]),
        ({"filter": "frames in [45, 73] and score > 0.5"}, [2]),
        ({"filter": "id != 'demo_1' and task == \"lift the cube\""}, [0, 2]),
        ({"filter": "operator == 'ana' and attempt < 2"}, [1]),
        ({"split": "valid", "filter": "frames > 50"}, [2]),
        ({"split": "valid", "episodes": [2, 0, 1], "filter": "frames < 70"}, [1]),
    ],
)
def test_episodes_are_chosen_by_split_list_and_filter(lift, choice, rows):
    windows = lift.samples({"actions": range(2)}, **choice)
    assert windows.episodes.tolist() == rows
    assert windows.counts.tolist() == [len(lift[row]["actions"]) for row in rows]
    values = np.concatenate([lift[row]["actions"][:] for row in rows])
    assert np.array_equal([sample["actions"][0] for sample in windows], values)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"split": "test"}, "no split `test`; there are small, train, valid"),
        ({"split": []}, "split is an empty list; omit it"),
        ({"split": 3}, "split is 3; give a list of names"),
        ({"episodes": [0, 0]}, "episode 0 is listed twice"),
        ({"episodes": [0, -3]}, "episode 0 is listed twice"),
        ({"episodes": [3]}, "no episode 3; the dataset has 3"),
        ({"episodes": [-4]}, "no episode -4; the dataset has 3"),
        ({"episodes": ["demo_9"]}, "no episode `demo_9`; did you mean"),
        ({"episodes": []}, "`episodes` is an empty list"),
        ({"episodes": "demo_1"}, "episodes is 'demo_1'; give a list of indices or ids"),
        ({"episodes": 1}, "episodes is 1; give a list"),
        ({"episodes": [1.5]}, "episodes has 1.5; give indices or ids"),
        ({"episodes": [True]}, "episodes has True"),
        ({"filter": "sucess"}, "no column `sucess`; did you mean `success`"),
        (
            {"filter": "frames > 1000"},
            "`frames > 1000` matches no episode \\(checked 3\\); .*45 to 73",
        ),
        ({"filter": "frames >"}, "ends too early"),
        ({"filter": "frames > 50 or success"}, "`or` is not supported"),
        ({"filter": "task == 3"}, "column `task` of type text"),
        ({"filter": ""}, "name of a column"),
        ({"filter": "has('action')"}, "filter: no stream `action`; did you mean `actions`"),
        ({"filter": "not has('actions')"}, "leaves no episode of 3"),
        ({"filter": len}, "filter is <built-in.*give conditions as text"),
        ({"split": "train", "filter": "frames < 50"}, "matches no episode \\(checked 1\\)"),
    ],
)
def test_a_choice_that_makes_no_sense_says_what_would(lift, choice, says):
    with pytest.raises(kinograph.KinographError, match=says):
        lift.samples({"actions": [0.0]}, **choice)


@pytest.mark.parametrize(
    ("request_words", "says"),
    [
        ({}, "give exactly one of `windows=`, `delta_timestamps=` or `seq_length=`"),
        (
            {"windows": {"actions": [0.0]}, "seq_length": 3},
            "give exactly one of `windows=`, `delta_timestamps=` or `seq_length=`",
        ),
        ({"windows": {}}, "windows is empty; request streams, such as"),
        ({"windows": ["actions"]}, "windows is .*give a dict"),
        ({"windows": {"action": [0.0]}}, "no stream `action`; did you mean `actions`"),
        ({"windows": {"actions": True}}, "window `actions` is True; give a list of seconds"),
        ({"windows": {"actions": [0, 0.5]}}, r"mixes integers.*write \[0.0, 0.5\] for seconds"),
        ({"windows": {"actions": "all"}}, "window `actions` is 'all'"),
        ({"windows": {"actions": []}}, "window `actions` has no offsets"),
        ({"windows": {"actions": ["a"]}}, "window `actions`: a time is 'a'; give a number"),
        ({"windows": {"actions": [np.nan]}}, "Window: seconds: nan s is out of range"),
        ({"windows": {"actions": [1e12]}}, "is out of range"),
        ({"windows": {"actions": [2**31]}}, "a step is 2147483648; give a whole number from"),
        ({"windows": {"actions": Window(last=True, latency_s=1)}}, "takes frames by number"),
        ({"windows": {"language": Window(seconds=[0], resolve="linear")}}, "needs a float dtype"),
        ({"windows": {"dones": Window(seconds=[0], resolve="linear")}}, "the stream is int64"),
        ({"windows": {"actions": Window(seconds=[0], resolve="slerp")}}, "needs quaternions"),
        (
            {"windows": {"actions": [0.0], "actions_is_pad": Window(stream="dones", steps=[0])}},
            "also the name of a mask",
        ),
        ({"windows": {"actions": [0.0]}, "anchor": "nope"}, "anchor: no stream `nope`"),
        ({"windows": {"actions": [0.0]}, "anchor": 0}, "anchor is 0; give a stream, 'episode'"),
        ({"windows": {"actions": [0.0]}, "anchor": np.nan}, "anchor is nan"),
        ({"windows": {"actions": [0.0]}, "anchor": ["actions"]}, "anchor is .*give a number"),
        ({"windows": {"actions": range(3)}, "anchor": "episode"}, "steps such as .*give seconds"),
        ({"windows": {"actions": [0.0]}, "masks": "none"}, "masks is 'none'; use one of is_pad"),
        ({"windows": {"actions": [0.0]}, "masks": None}, "masks is None; use one of"),
        (
            {"windows": {"actions": [0.0]}, "skip_first": -1},
            "skip_first is -1; give a whole number",
        ),
        ({"windows": {"actions": [0.0]}, "skip_last": 2**40}, "skip_last is 1099511627776"),
        ({"windows": {"actions": [0.0]}, "skip_last": 100}, "no sample is left in 3 episodes"),
        ({"windows": {"actions": Window(steps=[99], pad="drop")}}, "no sample is left"),
        ({"windows": {"actions": [0.0]}, "frame_stack": 2}, "`frame_stack` goes with `seq_length`"),
        ({"windows": {"actions": [0.0]}, "keys": ["actions"]}, "`keys` goes with"),
        ({"windows": {"actions": [0.0]}, "tolerance_s": 1}, "`tolerance_s` goes with"),
    ],
)
def test_a_request_that_cannot_be_served_says_what_could(lift, request_words, says):
    with pytest.raises(kinograph.KinographError, match=says):
        lift.samples(**request_words)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stream": "actions"}, "got nothing; give exactly one of steps, seconds, whole and last"),
        ({"steps": [0], "seconds": [0.0]}, "got steps and seconds; give exactly one of"),
        ({"steps": [0], "last": True}, "got steps and last"),
        ({"steps": [0.5]}, "steps has 0.5, which is not an integer; give `seconds`"),
        ({"steps": [2**31]}, "a step is 2147483648; give a whole number from"),
        ({"seconds": [np.inf]}, "inf s is out of range"),
        ({"steps": [0, 1], "single": True}, "single=True gives one frame, but it has 2 offsets"),
        ({"whole": True, "single": True}, "single=True gives one frame, but it has every frame"),
        ({"steps": [0], "pad": "zeros"}, "pad is 'zeros'; use one of edge, zero, drop"),
        ({"steps": [0], "pad": ("edge",)}, r"or a pair \(before, after\)"),
        ({"steps": [0], "pad": None}, "pad is None; use one of edge"),
        ({"steps": [0], "resolve": "cubic"}, "resolve is 'cubic'; use one of nearest, hold"),
        ({"steps": [0], "resolve": "linear"}, r"steps count frames; give seconds=\[...\]"),
        ({"steps": [0], "max_staleness_s": -1}, "max_staleness_s is -1; it must be 0 or more"),
        ({"steps": [0], "latency_s": "x"}, "latency_s is 'x'"),
        ({"steps": [0], "stream": 3}, "stream is 3; give a name"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused_when_it_is_made(options, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=f"^Window: .*{says}"):
        Window(**options)


@pytest.mark.parametrize("moments", [5, "0"])
def test_a_window_takes_lists_of_moments(moments):
    with pytest.raises(kinograph.InvalidArgumentError, match="give a list of numbers"):
        Window(steps=moments)
    with pytest.raises(kinograph.InvalidArgumentError, match="give a list of numbers"):
        Window(seconds=moments)


def test_a_stream_that_an_episode_lacks_is_named_with_the_way_out(tmp_path):
    ds = samples.write(
        tmp_path / "d.kino", [{"x": np.arange(5), "y": np.arange(5)}, {"x": np.arange(9)}]
    )
    with pytest.raises(
        kinograph.InvalidArgumentError,
        match=r"episode `demo_1` has no frames of stream `y`; .* filter `has\(\"y\"\)`",
    ):
        ds.samples({"x": [0.0], "y": [0.0]})
    chosen = ds.samples({"x": [0.0], "y": [0.0]}, filter='has("y")')
    assert chosen.episodes.tolist() == [0]
    assert ds.samples({"x": [0.0]}, filter='not has("y")').episodes.tolist() == [1]


def test_lerobot_words_are_steps_of_the_clock(lift):
    windows = lift.samples(
        delta_timestamps={"actions": [-0.05, 0.0, 0.1], "obs/joints": [0.0]},
        keys=["obs/joints", "actions", "language", "rewards"],
    )
    check_samples(windows, lift, [-1, 0, 2], "actions")
    sample = windows[3]
    assert sample["obs/joints"].shape == (1, 7)
    assert sample["language"] == "step 0"
    assert sample["rewards"].shape == ()
    assert sample["rewards"] == lift[0]["rewards"][3]
    assert list(sample) == [
        *("obs/joints", "actions", "language", "rewards"),
        *("obs/joints_is_pad", "actions_is_pad"),
    ]
    assert set(lift.samples(delta_timestamps={})[0]) == set(lift.streams)
    # Within the tolerance a time is rounded.
    rounded = lift.samples(delta_timestamps={"actions": [0.04, 0.1]}, tolerance_s=0.02)
    check_samples(rounded, lift, [1, 2], "actions")


@pytest.mark.parametrize(
    ("request_words", "says"),
    [
        (
            {"delta_timestamps": {"actions": [0.0, 0.03]}},
            "delta_timestamps of `actions`: 0.03 s is 0.600 frames at 20 fps.*the nearest frame is at 0.05 s",
        ),
        (
            {"delta_timestamps": {"obs/joints": [-0.07]}},
            "`obs/joints`: -0.07 s.*frame is at -0.05 s",
        ),
        (
            {"delta_timestamps": {"action": [0.0]}},
            "`action`, which is not requested; did you mean `actions`",
        ),
        (
            {"delta_timestamps": {"actions": [0.0]}, "keys": ["dones"]},
            "`actions`, which is not requested",
        ),
        (
            {"delta_timestamps": {"actions": [0.0]}, "keys": "actions"},
            "keys is 'actions'; give a list",
        ),
        ({"delta_timestamps": {"actions": 0.0}}, "`actions` is 0.0; give a list of seconds"),
        ({"delta_timestamps": {"actions": ["x"]}}, "`actions`: a time is 'x'"),
        ({"delta_timestamps": {"actions": []}}, "window `actions` has no offsets"),
        ({"delta_timestamps": ["actions"]}, "give a dict of seconds"),
        ({"delta_timestamps": {}, "keys": []}, "keys is an empty list"),
        ({"delta_timestamps": {"actions": [0.0]}, "anchor": 20}, "need the name of a stream"),
        ({"delta_timestamps": {"actions": [0.0]}, "tolerance_s": -1}, "must be 0 or more"),
        ({"delta_timestamps": {"actions": [0.0]}, "goal": True}, "`goal` goes with `seq_length`"),
    ],
)
def test_lerobot_words_that_mean_nothing_are_refused(lift, request_words, says):
    with pytest.raises(kinograph.KinographError, match=says):
        lift.samples(**request_words)


def test_lerobot_words_need_a_rate(mixed):
    with pytest.raises(kinograph.InvalidArgumentError, match=r"`camera` has no fixed rate"):
        mixed.samples(delta_timestamps={"camera": [0.0]})


def test_robomimic_options_give_every_key_the_same_steps(lift):
    windows = lift.samples(seq_length=4, frame_stack=3, keys=["obs/joints", "dones", "actions"])
    assert windows.request["anchor"] == {"stream": "actions"}
    for key in ("actions", "dones", "obs/joints"):
        check_samples(windows, lift, range(-2, 4), key)
    joints = lift[0]["obs/joints"][:]
    for index in (0, 1, 57, 59):
        expected, _ = clipped(joints, index + np.arange(-1, 5))
        # The frame before the first is the first: its successor is the second.
        inside = np.clip(index + np.arange(-2, 4), -1, 59) + 1
        assert np.array_equal(windows[index]["next_obs/joints"], joints[np.clip(inside, 0, 59)])
        assert windows[index]["next_obs/joints"].shape == expected.shape


def test_robomimic_options_without_padding_leave_out_the_ends(lift):
    keys = ["actions", "obs/joints"]
    for words, counts in (
        ({"pad_seq_length": False}, [57, 42, 70]),
        ({"pad_frame_stack": False}, [58, 43, 71]),
        ({"pad_seq_length": False, "pad_frame_stack": False}, [55, 40, 68]),
    ):
        windows = lift.samples(seq_length=4, frame_stack=3, keys=keys, next_obs=False, **words)
        assert windows.counts.tolist() == counts
    sample = windows[0]
    assert np.array_equal(sample["actions"], lift[0]["actions"][0:6])
    assert "next_obs/joints" not in sample


def test_robomimic_options_give_a_goal_and_a_mask(lift):
    windows = lift.samples(
        seq_length=2, keys=["actions", "obs/joints"], goal=True, next_obs=False, masks="pad_mask"
    )
    assert list(windows[0]) == ["actions", "obs/joints", "goal_obs/joints", "pad_mask"]
    assert np.array_equal(windows[70]["goal_obs/joints"], lift[1]["obs/joints"][-1])
    assert windows[59]["pad_mask"].tolist() == [[True], [False]]


@pytest.mark.parametrize(
    ("request_words", "says"),
    [
        ({"seq_length": 0}, "seq_length is 0; give a whole number from 1"),
        ({"seq_length": "3"}, "seq_length is '3'"),
        ({"seq_length": 3, "frame_stack": 0}, "frame_stack is 0; give a whole number from 1"),
        ({"seq_length": 3, "frame_stack": 2**40}, "frame_stack is 1099511627776"),
        ({"seq_length": 40_000}, "seq_length is 40000; the nearest valid value is 32768"),
        ({"seq_length": 3, "keys": ["obs/joints"]}, "the anchor, usually `actions`"),
        ({"seq_length": 3, "keys": ["nope"]}, "no stream `nope`"),
        ({"seq_length": 3, "keys": "actions"}, "keys is 'actions'; give a list of streams"),
        ({"seq_length": 3, "anchor": "actions"}, "`anchor` goes with `windows` or"),
        ({"seq_length": 100, "pad_seq_length": False}, "no sample is left in 3 episodes"),
    ],
)
def test_robomimic_options_that_mean_nothing_are_refused(lift, request_words, says):
    with pytest.raises(kinograph.KinographError, match=says):
        lift.samples(**request_words)
