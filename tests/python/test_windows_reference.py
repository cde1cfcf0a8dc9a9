"""The reference for windows, against cases worked out by hand."""

import mixed_rate
import numpy as np
import pytest
import windows_reference
from windows_reference import explicit, regular

MS = 1_000_000

# Frame i of `slow` is 10 · i at 0, 100, … 400 ms; frame i of `fast` is i at 0, 40, … 400 ms.
EPISODE = {
    "slow": regular(10.0, 0, np.arange(5) * 10.0),
    "fast": regular(25.0, 0, np.arange(11)),
    "also_slow": regular(10.0, 0, np.arange(5, dtype=np.int16)),
    "text": explicit([0, 150 * MS], ["first", "second"]),
}


def request(*windows, anchor="slow", **options):
    return {"anchor": {"stream": anchor}, "windows": list(windows), **options}


def window(stream, at, **options):
    return {"key": stream, "stream": stream, "at": at, **options}


def steps(*offsets):
    return {"steps": list(offsets)}


def times(*offsets_ms):
    return {"times_ns": [round(offset * MS) for offset in offsets_ms]}


def values(stream, time_ms, mode="nearest", limit_ms=None, episode=EPISODE):
    """Give the frame, or pair of frames, that a time comes to, and its state."""
    limit = None if limit_ms is None else round(limit_ms * MS)
    found = windows_reference.find(
        episode[stream], round(time_ms * MS), {mode: {"max_staleness_ns": limit}}
    )
    frames = found.frame if found.other is None else (found.frame, found.other)
    return frames, found.state


def test_steps_on_the_anchors_clock_are_frames():
    (*_, sample) = windows_reference.samples([EPISODE], request(window("slow", steps(-1, 0, 1))))
    assert sample["slow"].tolist() == [30.0, 40.0, 40.0]
    assert sample["slow_is_pad"].tolist() == [False, False, True]
    first = windows_reference.samples([EPISODE], request(window("also_slow", steps(-2, -1, 0, 1))))[
        0
    ]
    assert first["also_slow"].tolist() == [0, 0, 0, 1]
    assert first["also_slow"].dtype == np.int16
    assert first["also_slow_is_pad"].tolist() == [True, True, False, False]


def test_steps_on_another_clock_count_frames_from_the_one_at_the_anchor():
    found = windows_reference.samples([EPISODE], request(window("fast", steps(-3, 0, 1, 3))))
    # The anchor at 100 ms is as near to the frame at 80 as to that at 120, which is later; 300 ms is nearest to 280.
    assert [sample["fast"].tolist() for sample in found] == [
        [0, 0, 1, 3],
        [0, 2, 3, 5],
        [2, 5, 6, 8],
        [4, 7, 8, 10],
        [7, 10, 10, 10],
    ]
    padded = [sample["fast_is_pad"].tolist() for sample in found]
    assert padded[:2] == [[True, False, False, False]] * 2
    assert padded[2:] == [[False] * 4, [False] * 4, [False, False, True, True]]
    held = window("fast", steps(-1, 0, 1), resolve={"hold": {}})
    assert windows_reference.samples([EPISODE], request(held))[3]["fast"].tolist() == [6, 7, 8]


def test_where_a_stream_has_no_frame_at_the_anchor_every_step_is_padding():
    late = {"slow": EPISODE["slow"], "late": regular(10.0, 180 * MS, np.arange(2) + 1.0)}
    found = windows_reference.samples([late], request(window("late", steps(-1, 0, 1))))
    # Frames at 180 and 280 ms stand for 130 to 330 ms; the anchors are at 0, 100, … 400 ms.
    assert [sample["late"].tolist() for sample in found] == [
        [1, 1, 1],
        [1, 1, 1],
        [1, 1, 2],
        [1, 2, 2],
        [2, 2, 2],
    ]
    assert [sample["late_is_pad"].tolist() for sample in found] == [
        [True] * 3,
        [True] * 3,
        [True, False, False],
        [False, False, True],
        [True] * 3,
    ]
    stale = window("fast", steps(-1, 0), resolve={"nearest": {"max_staleness_ns": 10 * MS}})
    found = windows_reference.samples([EPISODE], request(stale))
    assert [sample["fast_is_pad"].tolist() for sample in found] == [
        [True, False],
        [True, True],
        [False, False],
        [True, True],
        [False, False],
    ]
    assert found[1]["fast"].tolist() == [1, 2]


def test_a_constant_is_the_same_at_every_step():
    constant = {"slow": EPISODE["slow"], "once": explicit([50 * MS], ["tidy up"])}
    for sample in windows_reference.samples([constant], request(window("once", steps(-1, 0, 1)))):
        assert sample["once"] == ["tidy up"] * 3
        assert not sample["once_is_pad"].any()


def test_text_is_held_by_default():
    found = windows_reference.samples([EPISODE], request(window("text", steps(0))))
    assert [sample["text"] for sample in found] == [["first"], ["first"], *[["second"]] * 3]


def test_times_are_resolved_on_each_streams_clock():
    sample = windows_reference.samples(
        [EPISODE], request(window("fast", times(-81, -79, 0, 119, 121)))
    )
    assert sample[1]["fast"].tolist() == [0, 1, 2, 5, 6]


@pytest.mark.parametrize(
    ("mode", "time_ms", "expected"),
    [
        ("nearest", 150, (1, "real")),  # as near to 200
        ("nearest", 150.0005, (1, "real")),  # 1 µs nearer to 200 is as near
        ("nearest", 150.001, (2, "real")),
        ("nearest", -50, (0, "real")),  # half a period
        ("nearest", -50.001, (0, "real")),  # the same instant
        ("nearest", -50.002, (0, "before")),
        ("nearest", 450.001, (4, "real")),
        ("nearest", 450.002, (4, "after")),
        ("hold", 199.9, (1, "real")),
        ("hold", 199.999, (2, "real")),  # the same instant as 200
        ("hold", -0.001, (0, "real")),
        ("hold", -0.002, (0, "before")),
        ("hold", 499.998, (4, "real")),  # a period
        ("hold", 499.999, (4, "after")),  # the same instant as the next frame
        ("linear", 150, ((1, 2), "real")),
        ("linear", 199.999, (2, "real")),
        ("linear", 199.998, ((1, 2), "real")),
        ("linear", -50, (0, "real")),
        ("linear", 451, (4, "after")),
    ],
)
def test_which_frame_is_at_a_time(mode, time_ms, expected):
    assert values("slow", time_ms, mode) == expected


@pytest.mark.parametrize(
    ("mode", "time_ms", "limit_ms", "expected"),
    [
        ("nearest", 120, 20, (1, "real")),
        ("nearest", 120.001, 20, (1, "real")),  # the same instant as 120
        ("nearest", 120.002, 20, (1, "stale")),
        ("nearest", 180, 19, (2, "stale")),
        ("nearest", 500, 100, (4, "real")),  # the limit is also how far the edge reaches
        ("nearest", 501, 100, (4, "after")),
        ("nearest", -31, 30, (0, "before")),
        ("hold", 180, 80, (1, "real")),
        ("hold", 180, 79, (1, "stale")),
        ("hold", 700, 300, (4, "real")),
        ("hold", 700.001, 300, (4, "real")),
        ("hold", 700.002, 300, (4, "after")),
        ("linear", 130, 30, ((1, 2), "real")),
        ("linear", 140, 30, (1, "stale")),
        ("linear", 160, 30, (2, "stale")),
    ],
)
def test_what_is_stale(mode, time_ms, limit_ms, expected):
    assert values("slow", time_ms, mode, limit_ms) == expected


def test_of_several_frames_at_one_time_the_last_counts():
    episode = {"x": explicit([0, 10 * MS, 10 * MS, 10 * MS, 20 * MS], np.arange(5.0))}
    assert values("x", 10, episode=episode) == (3, "real")
    assert values("x", 5, episode=episode) == (0, "real")
    assert values("x", 14, "hold", episode=episode) == (3, "real")
    assert values("x", 14, "linear", episode=episode) == ((3, 4), "real")
    # On the anchor's own clock a step is a frame, whatever its time.
    found = windows_reference.samples([episode], request(window("x", steps(0)), anchor="x"))
    assert [sample["x"].tolist() for sample in found] == [[0.0], [1.0], [2.0], [3.0], [4.0]]


def test_a_target_on_a_frame_is_that_frame_however_near_the_others_are():
    episode = {"x": explicit([0, 1000, 2000, 3000], np.arange(4.0))}
    assert [values("x", time / 1000, episode=episode)[0] for time in range(4)] == [0, 1, 2, 3]


def test_a_rounded_period_does_not_move_a_frame():
    camera = {"x": regular(30.0, 0, np.arange(31))}
    sixtieths = {"anchor": {"rate_hz": 60.0}, "windows": [window("x", times(0), stack="single")]}
    found = [int(sample["x"]) for sample in windows_reference.samples([camera], sixtieths)]
    assert found == [anchor // 2 for anchor in range(61)]


def test_the_reach_of_explicit_times_is_half_their_mean_period():
    episode = {"x": explicit([0, 10 * MS, 100 * MS], np.arange(3.0))}
    assert values("x", 125, episode=episode) == (2, "real")
    assert values("x", 125.002, episode=episode) == (2, "after")
    assert values("x", 149.998, "hold", episode=episode) == (2, "real")
    assert values("x", 149.999, "hold", episode=episode) == (2, "after")


def test_a_single_frame_is_a_constant_of_the_episode():
    episode = {"x": explicit([50 * MS], np.ones(1))}
    for time in (-5000, 49, 50, 5000):
        assert values("x", time, episode=episode) == (0, "real")
        assert values("x", time, "hold", episode=episode) == (0, "real")
    # On a regular clock it has a period, and stands for as much time as it would among others.
    assert values("x", 16.6, episode={"x": regular(30.0, 0, np.ones(1))}) == (0, "real")
    assert values("x", 16.7, episode={"x": regular(30.0, 0, np.ones(1))}) == (0, "after")


def test_a_late_stream_is_looked_for_later():
    late = request(window("fast", steps(0), latency_ns=80 * MS, resolve={"hold": {}}))
    found = [sample["fast"].tolist() for sample in windows_reference.samples([EPISODE], late)]
    # 80, 180, 280, 380 and 480 ms; the last frame is at 400 ms and lasts until 440.
    assert found == [[2], [4], [7], [9], [10]]
    own = request(window("slow", steps(0), latency_ns=100 * MS))
    samples = windows_reference.samples([EPISODE], own)
    assert [sample["slow"].tolist() for sample in samples] == [[10], [20], [30], [40], [40]]
    assert [bool(sample["slow_is_pad"][0]) for sample in samples] == [False] * 4 + [True]


def test_padding_repeats_zeroes_or_drops():
    def of(**options):
        return windows_reference.samples(
            [EPISODE], request(window("slow", steps(-1, 1), **options))
        )

    assert of()[0]["slow"].tolist() == [0.0, 10.0]
    assert of(before="zero")[4]["slow"].tolist() == [30.0, 40.0]
    assert of(after="zero")[4]["slow"].tolist() == [30.0, 0.0]
    assert [sample["slow"][0] for sample in of(before="drop")] == [0.0, 10.0, 20.0, 30.0]
    assert [sample["slow"][1] for sample in of(after="drop")] == [10.0, 20.0, 30.0, 40.0]
    assert len(of(before="drop", after="drop")) == 3
    text = request(window("text", times(-10), before="zero", resolve={"hold": {}}))
    assert windows_reference.samples([EPISODE], text)[0]["text"] == [""]


def test_what_is_stale_is_padded_on_the_side_of_the_frame():
    limit = {"nearest": {"max_staleness_ns": 5 * MS}}
    later = window("slow", times(90), resolve=limit, before="zero", after="drop")
    earlier = window("slow", times(10), resolve=limit, before="drop", after="zero")
    # The last target of each, 490 and 410 ms, is out after.
    assert [s["slow"][0] for s in windows_reference.samples([EPISODE], request(later))] == [0.0] * 4
    assert [s["slow"][0] for s in windows_reference.samples([EPISODE], request(earlier))] == [
        0.0
    ] * 5


def test_skipped_anchors_are_still_reached_by_steps():
    some = request(window("slow", steps(-1, 1)), skip_first=1, skip_last=2)
    samples = windows_reference.samples([EPISODE], some)
    assert [sample["slow"].tolist() for sample in samples] == [[0.0, 20.0], [10.0, 30.0]]
    assert not any(sample["slow_is_pad"].any() for sample in samples)
    assert windows_reference.samples([EPISODE], some | {"skip_first": 4}) == []


def test_a_rate_makes_anchors_from_the_first_time_to_the_last():
    def of(rate_hz, *windows):
        return windows_reference.samples(
            [EPISODE], {"anchor": {"rate_hz": rate_hz}, "windows": list(windows)}
        )

    at_30_hz = of(30.0, window("fast", times(0)))
    assert len(at_30_hz) == 13  # 400 ms is anchor 12
    assert [int(sample["fast"][0]) for sample in at_30_hz] == [
        0,
        1,
        2,
        2,
        3,
        4,
        5,
        6,
        7,
        7,
        8,
        9,
        10,
    ]
    assert len(of(29.0, window("fast", times(0)))) == 12
    last = of(10.0, window("slow", steps(0, 1)))[-1]
    assert last["slow"].tolist() == [40.0, 40.0]
    assert last["slow_is_pad"].tolist() == [False, True]


def test_an_episode_is_one_anchor():
    (sample,) = windows_reference.samples(
        [EPISODE],
        {
            "anchor": "episode",
            "windows": [
                window("slow", "all"),
                window("fast", "last", stack="single"),
                window("text", "all"),
                window("also_slow", times(0, 210)),
            ],
        },
    )
    assert sample["slow"].tolist() == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert sample["fast"] == 10
    assert sample["fast"].shape == ()
    assert sample["text"] == ["first", "second"]
    assert sample["also_slow"].tolist() == [0, 2]
    assert "fast_is_pad" not in sample


def test_linear_blends_two_frames():
    blended = windows_reference.samples(
        [EPISODE], request(window("slow", times(25, -25), resolve={"linear": {}}))
    )
    assert blended[1]["slow"].tolist() == [12.5, 7.5]
    assert blended[0]["slow"].tolist() == [2.5, 0.0]


def test_slerp_turns_by_the_shorter_way():
    quarter = np.array([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)])
    none = np.array([0.0, 0.0, 0.0, 1.0])
    eighth = np.array([0.0, 0.0, np.sin(np.pi / 8), np.cos(np.pi / 8)])
    assert windows_reference.slerp(none, quarter, 0.5) == pytest.approx(eighth)
    assert windows_reference.slerp(none, -quarter, 0.5) == pytest.approx(eighth)
    assert windows_reference.slerp(none, -none, 0.25) == pytest.approx(none)
    pair = windows_reference.slerp(np.stack([none, none]), np.stack([quarter, none]), 0.5)
    assert pair == pytest.approx(np.stack([eighth, none]))


def test_masks_have_the_names_of_their_dialect():
    windows = [
        {"key": "observation.x", "stream": "fast", "at": steps(-1, 0)},
        {"key": "action", "stream": "slow", "at": steps(0, 1)},
        {"key": "goal", "stream": "slow", "at": "last", "stack": "single"},
    ]

    def of(dialect):
        last = windows_reference.samples([EPISODE], request(*windows, masks=dialect))[-1]
        return {key: last[key].tolist() for key in last if "pad" in key}

    assert of("is_pad") == {
        "observation.x_is_pad": [False, False],
        "action_is_pad": [False, True],
    }
    assert of("pad_mask") == {"pad_mask": [[True], [False]]}
    assert of("act") == {"is_pad": [False, True]}
    assert of("octo") == {
        "observation.timestep_pad_mask": [True, True],
        "action_pad_mask": [True, False],
    }
    assert of("off") == {}


def test_made_episodes_are_jittered_and_lose_frames():
    episode = mixed_rate.make_episode(0)
    for name, rate_hz in (("camera/front", 30), ("joint/pos", 500), ("ft", 1000), ("eef/pos", 100)):
        stamps = np.array(episode[name].times_ns)
        assert (np.diff(stamps) > 0).all()
        assert 0.9 * 1.5 * rate_hz < len(stamps) < 1.5 * rate_hz
        assert len(set(np.diff(stamps))) > 5
        assert np.diff(stamps).max() > 1.5e9 / rate_hz
    assert (np.diff(episode["gripper"].times_ns) == 0).any()
    assert episode["joint/pos"].clock == episode["joint/vel"].clock != episode["ft"].clock
    again = mixed_rate.make_episode(0)
    assert again["ft"].times_ns == episode["ft"].times_ns
    assert np.array_equal(again["camera/wrist"].values, episode["camera/wrist"].values)


@pytest.mark.parametrize("path", mixed_rate.recordings(), ids=lambda path: path.stem)
def test_recordings_are_read_as_episodes(path):
    episode = mixed_rate.read_recording(path)
    assert set(mixed_rate.make_episode(0)) - set(episode) == {"status", "tactile", "tactile/sum"}
    assert episode["eef/quat"].clock == episode["eef/pos"].clock
    assert np.linalg.norm(episode["eef/quat"].values, axis=1) == pytest.approx(1.0)


def test_a_dataset_has_the_times_of_made_episodes(tmp_path):
    episodes = [mixed_rate.make_episode(seed, 0.5) for seed in range(2)]
    dataset = mixed_rate.write(tmp_path / "d.kino", episodes)
    assert np.array_equal(dataset[1]["ft"][:], episodes[1]["ft"].values)
    assert dataset[1]["status"].rate_hz == 50.0
