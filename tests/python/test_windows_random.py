"""Samples against the reference: random requests on streams that all have their own rate and clock.

KINOGRAPH_WINDOW_CASES says how many requests; a case that fails names its number, which is its seed.
"""

import json
import os

import mixed_rate
import numpy as np
import pytest
import windows_api
import windows_reference
from windows_reference import explicit, regular

import kinograph

MS = 1_000_000
CASES = int(os.environ.get("KINOGRAPH_WINDOW_CASES", "200"))
# Of a request with more samples than this, these many are compared, the ends among them.
COMPARED = 40

ANCHORS = [
    {"stream": "action"},
    {"stream": "action"},
    {"stream": "camera/front"},
    {"stream": "camera/front"},
    {"stream": "camera/wrist"},
    {"stream": "gripper"},
    {"stream": "eef/pos"},
    {"stream": "joint/vel"},
    {"stream": "language"},
    {"rate_hz": 30.0},
    {"rate_hz": 20.0},
    {"rate_hz": 29.97},
    {"rate_hz": 7.5},
    {"rate_hz": 100.0},
    "episode",
]
# Only made episodes have them.
REGULAR_ANCHORS = [{"stream": "status"}, {"stream": "tactile"}, {"stream": "tactile/sum"}]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three episodes of different lengths, and a dataset of them."""
    episodes = [
        mixed_rate.make_episode(seed, duration) for seed, duration in enumerate((1, 0.4, 1.3))
    ]
    return episodes, mixed_rate.write(tmp_path_factory.mktemp("made") / "d.kino", episodes)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The mixed-rate recordings, where they are."""
    paths = mixed_rate.recordings()
    if not paths:
        pytest.skip("no mixed-rate recordings; KINOGRAPH_TEST_DATA names the folder of recordings")
    episodes = [mixed_rate.read_recording(path, 0.8) for path in paths]
    return episodes, mixed_rate.write(tmp_path_factory.mktemp("recorded") / "d.kino", episodes)


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    """Episodes on regular clocks whose frames often coincide, or lie just in the middle of two others."""
    episodes = [
        {
            "slow": regular(10.0, start_ns, np.arange(length) * 1.5),
            "fast": regular(25.0, start_ns, np.arange(2 * length)),
            "slow/text": regular(10.0, start_ns, [f"step {step}" for step in range(length)]),
            "thirds": regular(30.0, start_ns, np.arange(3.0 * length).astype(np.float32)),
            "own": explicit(start_ns + np.arange(length) * 40 * MS, np.arange(length) / 4),
        }
        for start_ns, length in ((0, 7), (-(10**9), 1), (mixed_rate.EPOCH_NS, 12))
    ]
    return episodes, mixed_rate.write(tmp_path_factory.mktemp("even") / "d.kino", episodes)


@pytest.fixture(scope="module")
def bursts(tmp_path_factory):
    """Episodes in which many frames have one time, at the ends too, or lie within what counts as one instant."""
    rng = np.random.default_rng(12)
    episodes = [burst_episode(rng) for _ in range(6)]
    return episodes, mixed_rate.write(tmp_path_factory.mktemp("bursts") / "d.kino", episodes)


def burst_episode(rng):
    def times(count, gaps_ns):
        gaps = rng.choice(gaps_ns, count)
        return (mixed_rate.EPOCH_NS + np.cumsum(gaps)).tolist()

    def values(count, width, dtype):
        # All different, also where two frames share a time.
        return (rng.permutation(count * width).reshape(count, width) / 7 + 1).astype(dtype)

    def unit(turns):
        return turns / np.linalg.norm(turns, axis=1, keepdims=True)

    coarse, fine = [0, 0, 40 * MS, 100 * MS], [0, 0, 300, 999, 1000, 1001, 3000, 5 * MS]
    constant = [mixed_rate.EPOCH_NS + 70 * MS] * 3
    ends = [0, 0, 100 * MS, 200 * MS, 200 * MS]
    return {
        "anchor": explicit(times(12, [30 * MS, 50 * MS]), np.arange(12)),
        "half": explicit(times(14, coarse), values(14, 3, np.float16)),
        "single": explicit(times(14, fine), values(14, 1, np.float32)),
        "double": explicit(
            [mixed_rate.EPOCH_NS + 80 * MS + at for at in ends], values(5, 2, np.float64)
        ),
        "quat": explicit(times(14, coarse), unit(values(14, 4, np.float64))),
        "whole": explicit(times(14, fine), np.arange(14)),
        "text": explicit(times(5, coarse), ["a", "b", "c", "d", "e"]),
        "constant": explicit(constant, values(3, 2, np.float32)),
        "constant/quat": explicit(constant, unit(values(3, 4, np.float64))),
    }


def random_request(rng, episode, anchors=None):
    """Make a request that is valid and says, for most of what it can say, something."""
    if anchors is None:
        anchors = ANCHORS + (REGULAR_ANCHORS if "status" in episode else [])
    anchor = anchors[rng.integers(len(anchors))]
    windows = [random_window(rng, episode, anchor, number) for number in range(rng.integers(1, 5))]
    request = {"anchor": anchor, "windows": windows, "masks": random_masks(rng, anchor, windows)}
    if anchor != "episode" and rng.random() < 0.3:
        request["skip_first"] = int(rng.integers(0, 4))
        request["skip_last"] = int(rng.integers(0, 4))
    return request


def random_window(rng, episode, anchor, number):
    names = list(episode)
    name = names[rng.integers(len(names))]
    # Samples on the anchor's own clock are the most frequent ones in practice.
    if isinstance(anchor, dict) and "stream" in anchor and rng.random() < 0.3:
        name = anchor["stream"]
    at = random_offsets(rng, anchor, episode, name)
    window = {"key": f"{name}.{number}", "stream": name, "at": at}
    if rng.random() < 0.8:
        is_steps = isinstance(at, dict) and "steps" in at
        window["resolve"] = random_resolve(rng, name, episode[name], blends=not is_steps)
    # Frames that are taken by number have no latency.
    if not isinstance(at, str) and rng.random() < 0.2:
        window["latency_ns"] = int(rng.integers(1, 80 * MS))
    for side in ("before", "after"):
        if rng.random() < 0.6:
            window[side] = ["edge", "zero", "drop"][rng.integers(3)]
    is_one = at == "last" or (isinstance(at, dict) and len(next(iter(at.values()))) == 1)
    if is_one and rng.random() < 0.5:
        window["stack"] = "single"
    return window


def random_offsets(rng, anchor, episode, name):
    kind = rng.random()
    if kind < 0.06:
        return "all"
    if kind < 0.12:
        return "last"
    count = rng.integers(1, 6)
    if kind < 0.55 and anchor != "episode":
        return {"steps": rng.integers(-5, 7, count).tolist()}
    if kind < 0.65:
        return {"times_ns": exact_offsets(rng, anchor, episode, episode[name].times_ns, count)}
    if kind < 0.8:
        # Steps of common rates, rounded as people round them.
        period_ns = [10**9 // rate for rate in (20, 30, 50, 100, 1000)][rng.integers(5)]
        return {"times_ns": (rng.integers(-5, 6, count) * period_ns).tolist()}
    return {"times_ns": rng.integers(-300 * MS, 500 * MS, count).tolist()}


def exact_offsets(rng, anchor, episode, times, count):
    """Make offsets that lead to a frame or between two, or miss by about what counts as one instant."""
    anchors = windows_reference.anchor_times(episode, {"anchor": anchor})
    near_ns = [-1001, -1000, -999, -1, 0, 0, 0, 1, 999, 1000, 1001]
    offsets = []
    for _ in range(count):
        frame = rng.integers(len(times))
        other = min(frame + int(rng.integers(2)), len(times) - 1)
        target = (times[frame] + times[other]) // 2 + near_ns[rng.integers(len(near_ns))]
        offsets.append(target - anchors[rng.integers(len(anchors))])
    return offsets


def random_resolve(rng, name, stream, *, blends):
    modes = ["nearest", "hold", "auto"]
    if blends and getattr(stream.values, "dtype", np.dtype(np.int8)).kind == "f":
        modes.append("linear")
    if blends and name.endswith("quat"):
        modes += ["slerp", "slerp"]
    limit = None if rng.random() < 0.6 else int(rng.integers(0, 10 ** rng.integers(5, 9)))
    if limit is not None and rng.random() < 0.5:
        limit = limit // (5 * MS) * 5 * MS
    return {modes[rng.integers(len(modes))]: {"max_staleness_ns": limit}}


def random_masks(rng, anchor, windows):
    dialects = ["is_pad", "is_pad", "is_pad", "off"]
    stacked = [window for window in windows if window.get("stack") != "single"]
    own = [w for w in stacked if isinstance(anchor, dict) and w["stream"] == anchor.get("stream")]
    if len(own) == 1:
        dialects.append("pad_mask")
    ahead = sum(map(windows_reference.reaches_ahead, stacked))
    if ahead == 1:
        dialects.append("act")
    if 0 < ahead < len(stacked):
        dialects.append("octo")
    return dialects[rng.integers(len(dialects))]


def check(dataset, episodes, request, rng):
    """Compare a request's samples with those of the twin."""
    expected = windows_api.Reference(episodes, request)
    if len(expected) == 0:
        assert windows_api.count(lambda: windows_api.bind(dataset, request)) == 0
        return
    found = windows_api.bind(dataset, request)
    assert len(found) == len(expected)
    indices = range(len(expected))
    if len(expected) > COMPARED:
        inside = rng.choice(len(expected), COMPARED - 2, replace=False).tolist()
        indices = [0, len(expected) - 1, *inside]
    blends = blended_keys(request, episodes[0])
    for index in indices:
        check_sample(found[index], expected[index], blends)


def blended_keys(request, episode):
    """Find the keys whose values depend on the machine's sine, and by how much; `linear` is exact to the bit."""
    blends = {}
    for window in request["windows"]:
        (mode,) = window.get("resolve", {"nearest": {}})
        if mode == "slerp":
            eps = np.finfo(episode[window["stream"]].values.dtype).eps
            # Where two turns are nearly parallel, slerp may be a normalised blend.
            blends[window["key"]] = max(2e-6, eps)
    return blends


def check_sample(found, expected, blends):
    assert sorted(found) == sorted(expected)
    for key, value in expected.items():
        if isinstance(value, str | list):
            assert texts(found[key]) == texts(value), key
            continue
        array = np.asarray(found[key])
        assert array.dtype == value.dtype, key
        assert array.shape == value.shape, key
        if key in blends:
            scale = max(1.0, np.abs(value.astype(np.float64)).max())
            np.testing.assert_allclose(array, value, rtol=0, atol=blends[key] * scale, err_msg=key)
        else:
            assert array.tobytes() == value.tobytes(), key


def texts(value):
    return value if isinstance(value, str) else [str(text) for text in value]


@pytest.mark.parametrize("case", range(CASES))
def test_windows_are_those_of_the_reference(made, case):
    episodes, dataset = made
    rng = np.random.default_rng([4, case])
    request = random_request(rng, episodes[0])
    check(dataset, episodes, request, rng)


@pytest.mark.parametrize("case", range(CASES // 2))
def test_windows_of_even_clocks_are_those_of_the_reference(even, case):
    episodes, dataset = even
    rng = np.random.default_rng([6, case])
    anchors = [{"stream": name} for name in episodes[0]] + [
        {"rate_hz": r} for r in (10.0, 30.0, 60.0)
    ]
    request = random_request(rng, episodes[0], anchors)
    for window in request["windows"]:
        # Whole tens of milliseconds, so that distances are often equal to each other or to the limit.
        if isinstance(window["at"], dict) and "times_ns" in window["at"] and rng.random() < 0.7:
            window["at"] = {"times_ns": (rng.integers(-30, 30, 4) * 10 * MS).tolist()}
            window.pop("stack", None)
    check(dataset, episodes, request, rng)


@pytest.mark.parametrize("case", range(CASES))
def test_windows_of_equal_times_are_those_of_the_reference(bursts, case):
    episodes, dataset = bursts
    rng = np.random.default_rng([7, case])
    anchors = [{"stream": "anchor"}, {"stream": "half"}, {"rate_hz": 30.0}, "episode"]
    request = random_request(rng, episodes[0], anchors)
    for window in request["windows"]:
        # At, before, between and after frames: of the first episode, and so anywhere in the others.
        if rng.random() < 0.5:
            times = episodes[0][window["stream"]].times_ns
            offsets = exact_offsets(rng, request["anchor"], episodes[0], times, 4)
            moved = [at + int(rng.choice([-120, -20, 0, 0, 20, 120])) * MS for at in offsets]
            window["at"] = {"times_ns": moved}
            window.pop("stack", None)
    request["masks"] = "is_pad"
    check(dataset, episodes, request, rng)


@pytest.mark.parametrize("mode", ["nearest", "linear", "slerp"])
def test_before_the_first_of_several_frames_with_one_time_comes_the_last_of_them(tmp_path, mode):
    """Check times 100, 100, 200, 300 ms, asked 20 ms before the start: within reach, the first time's last frame."""
    values = np.eye(4)
    episode = {
        "x": explicit([100 * MS, 100 * MS, 200 * MS, 300 * MS], values),
        "anchor": explicit([80 * MS], [0]),
    }
    dataset = mixed_rate.write(tmp_path / "d.kino", [episode])
    request = {
        "anchor": {"stream": "anchor"},
        "windows": [{"key": "x", "stream": "x", "at": {"times_ns": [0]}, "resolve": {mode: {}}}],
    }
    sample = windows_api.bind(dataset, request)[0]
    assert sample["x"].tolist() == [values[1].tolist()]
    assert sample["x_is_pad"].tolist() == [False]


def test_a_half_between_two_is_rounded_once(tmp_path):
    halves = np.array([-0.64892578125, -0.454833984375], np.float16)
    episode = {
        "x": explicit([0, 300_000_000], halves),
        "anchor": explicit([99_999_999], [0]),
    }
    dataset = mixed_rate.write(tmp_path / "d.kino", [episode])
    windows = dataset.samples(
        {"x": kinograph.Window(seconds=[0.0], resolve="linear")}, anchor="anchor"
    )
    # The double is -0.58422851627, nearer to this half than to -0.583984375.
    assert windows[0]["x"].tolist() == [-0.58447265625]


@pytest.mark.parametrize("case", range(CASES // 5))
def test_windows_of_recordings_are_those_of_the_reference(recorded, case):
    episodes, dataset = recorded
    rng = np.random.default_rng([5, case])
    request = random_request(rng, episodes[0])
    check(dataset, episodes, request, rng)


def test_a_target_on_a_frame_is_that_frame_however_near_the_others_are(tmp_path):
    """Check a burst at 1 MHz, whose neighbours lie within what counts as one instant."""
    start_ns = mixed_rate.EPOCH_NS
    episode = {
        "burst": explicit(start_ns + np.arange(20) * 1000, np.arange(20)),
        "anchor": explicit(start_ns + np.arange(5) * 3000, np.arange(5)),
    }
    dataset = mixed_rate.write(tmp_path / "d.kino", [episode])
    request = {
        "anchor": {"stream": "anchor"},
        "windows": [{"key": "burst", "stream": "burst", "at": {"times_ns": [0, 1000, 4000]}}],
    }
    check(dataset, [episode], request, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("window", "anchor", "message"),
    [
        ({"stream": "status", "resolve": {"linear": {}}}, {"stream": "action"}, "status"),
        ({"stream": "language", "resolve": {"linear": {}}}, {"stream": "action"}, "language"),
        ({"stream": "eef/pos", "resolve": {"slerp": {}}}, {"stream": "action"}, "eef/pos"),
        ({"stream": "tactile", "at": {"steps": [0]}}, "episode", "tactile"),
        ({"stream": "ft", "at": {"steps": [0, 1]}, "stack": "single"}, {"stream": "action"}, "ft"),
        ({"stream": "ft", "at": "all", "stack": "single"}, "episode", "ft"),
        ({"stream": "ft", "at": {"steps": []}}, {"stream": "action"}, "ft"),
        ({"stream": "fr"}, {"stream": "action"}, "ft"),
        ({"stream": "ft"}, {"stream": "actoin"}, "action"),
        ({"stream": "ft"}, {"rate_hz": 0.0}, "rate"),
        ({"stream": "ft", "lag_ns": 5}, {"stream": "action"}, "lag_ns"),
        ({"stream": "ft", "resolve": {"cubic": {}}}, {"stream": "action"}, "cubic"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(made, window, anchor, message):
    _, dataset = made
    request = {
        "anchor": anchor,
        "windows": [{"key": window["stream"], "at": {"times_ns": [0]}, **window}],
    }
    with pytest.raises(kinograph.KinographError, match=message):
        windows_api.bind(dataset, request)


def test_random_requests_say_all_that_can_be_said():
    """Check the cases themselves: a choice that is never made tests nothing."""
    episode = mixed_rate.make_episode(0, 0.4)
    requests = [random_request(np.random.default_rng([4, case]), episode) for case in range(200)]
    said = json.dumps(requests)
    choices = ["nearest", "hold", "linear", "slerp", "edge", "zero", "drop", "single", "steps"]
    choices += [
        "times_ns",
        "all",
        "last",
        "is_pad",
        "pad_mask",
        "act",
        "octo",
        "off",
        "rate_hz",
        "episode",
    ]
    assert [choice for choice in choices if said.count(f'"{choice}"') < 5] == []


def test_random_requests_meet_every_state():
    """Check that samples are real, padded on both sides, stale and dropped, on many a stream."""
    episodes = [mixed_rate.make_episode(seed, 0.4) for seed in range(2)]
    padded = dropped = streams = 0
    for case in range(60):
        request = random_request(np.random.default_rng([4, case]), episodes[0])
        windows = windows_api.Reference(episodes, request)
        masks = [
            windows[i][key] for i in range(len(windows)) for key in windows[i] if "_is_pad" in key
        ]
        padded += any(mask.any() for mask in masks) and not all(mask.all() for mask in masks)
        kept = {"windows": [{**w, "before": "edge", "after": "edge"} for w in request["windows"]]}
        dropped += 0 < len(windows) < len(windows_api.Reference(episodes, request | kept))
        streams += len(windows) > 0
    assert padded >= 15
    assert dropped >= 8
    assert streams >= 40
