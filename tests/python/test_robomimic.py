"""The drop-in for robomimic's dataset, compared item by item with robomimic's own output (see peers/README.md)."""

import pickle

import numpy as np
import pytest
import samples
from optional import optional
from peers.digest import digest
from test_windows_peers import (
    DATASET_KEYS,
    OBS_KEYS,
    ROBOMIMIC,
    lift_arrays,  # noqa: F401 (a fixture)
    setting_name,
)

import kinograph
from kinograph import _robomimic_cache
from kinograph.robomimic import SequenceDataset

NAMES = ("seq_length", "frame_stack", "pad_seq_length", "pad_frame_stack")


@pytest.fixture(scope="module")
def recording(tmp_path_factory, lift_arrays):  # noqa: F811 (a fixture)
    """The recording with next_obs, its demonstrations stored in a different order."""
    path = tmp_path_factory.mktemp("robomimic") / "lift.kino"
    with kinograph.Writer(path) as writer:
        for number in (2, 0, 1):
            writer.add_episode(
                lift_arrays[number],
                rate_hz=20.0,
                id=f"demo_{number}",
                splits=["train"] if number else ["valid"],
            )
    return path


def make(path, **options):
    return SequenceDataset(path, **{"obs_keys": OBS_KEYS, "dataset_keys": DATASET_KEYS} | options)


@pytest.mark.parametrize("setting", ROBOMIMIC["settings"], ids=setting_name)
def test_items_equal_those_of_robomimic(recording, setting):
    options = {name: setting[name] for name in NAMES}
    options |= {"get_pad_mask": True, "goal_mode": "last"}
    if "error" in setting:
        with pytest.raises(kinograph.InvalidArgumentError):
            make(recording, **options)
        return
    dataset = make(recording, **options)
    assert len(dataset) == dataset.total_num_sequences == setting["len"]
    demos = []
    for index, (sample, next_obs) in enumerate(
        zip(setting["sample"], setting["next_obs"], strict=True)
    ):
        if index % 5:
            continue
        item = dataset[index]
        place = dataset._samples.locate(int(dataset._to_window[index]))
        demos.append(dataset._dataset[place.episode].id)
        assert digest({"goal_obs": item.pop("goal_obs")}) == setting["goal_obs"][demos[-1]]
        assert digest({"next_obs": item.pop("next_obs")}) == next_obs
        assert digest(item) == sample
    assert demos == sorted(demos)


@pytest.mark.parametrize("mode", ["low_dim", "all"])
@pytest.mark.parametrize("setting", ROBOMIMIC["settings"][::3], ids=setting_name)
def test_a_cache_changes_nothing_but_dtypes(recording, setting, mode):
    if "error" in setting:
        return
    options = {name: setting[name] for name in NAMES} | {"get_pad_mask": True, "goal_mode": "last"}
    plain, cached = make(recording, **options), make(recording, hdf5_cache_mode=mode, **options)
    cached = pickle.loads(pickle.dumps(cached)) if mode == "all" else cached
    for index in range(0, len(plain), 17):
        wanted, found = plain[index], cached[index]
        for key in DATASET_KEYS:
            wanted[key] = wanted[key].astype(np.float32)
        assert digest(found) == digest(wanted)
        found["goal_obs"]["object"][:] = found["obs"]["object"][:] = 0  # the arrays are writable
        assert digest(cached[index]) == digest(wanted)


@pytest.mark.parametrize("budget", [0, 1_000_000, 3_000_000])
def test_items_are_the_same_with_any_image_budget(recording, budget, monkeypatch):
    monkeypatch.setattr(_robomimic_cache, "_IMAGE_BYTES", budget)
    options = {"frame_stack": 2, "seq_length": 5, "goal_mode": "last"}
    plain = make(recording, **options)
    cached = make(recording, hdf5_cache_mode="low_dim", **options)
    for index in np.random.default_rng(0).integers(0, len(plain), 60).tolist():
        for group in ("obs", "next_obs", "goal_obs"):
            assert digest(cached[index][group]) == digest(plain[index][group])
    images = cached._cache._images
    held = sum(frames.nbytes for kept in images._kept.values() for frames, _ in kept.values())
    assert held == budget - images._left <= budget
    assert bool(images._kept) == (budget > 1_000_000)


@pytest.mark.parametrize("part", [0.3, 0.5, 0.8, 1.0])
def test_with_room_for_a_part_of_the_images_the_rest_is_decoded_in_every_pass(
    recording, part, monkeypatch
):
    cached = make(recording, hdf5_cache_mode="low_dim", seq_length=10)
    images = cached._cache._images
    lengths = [
        len(images._samples.dataset[episode]["actions"]) for episode in images._samples.episodes
    ]
    frame = sum(value[0].nbytes for value in images._samples[0].values())
    monkeypatch.setattr(images, "_left", int(sum(lengths) * frame * part))
    passes, decoded = [], []
    monkeypatch.setattr(images, "_samples", Counted(images._samples, decoded))
    for seed in range(3):
        before = len(decoded)
        for index in np.random.default_rng(seed).permutation(len(cached)).tolist():
            cached[index]
        passes.append((len(decoded) - before) / len(cached))
    # Items of episodes in the set are decoded in the first pass only, and only until their frames are there.
    assert passes[1] == passes[2] <= passes[0]
    largest = max(lengths) / sum(lengths)
    assert 1 - part <= passes[2] <= 1 - part + largest


class Counted:
    """Samples that note which were read."""

    def __init__(self, samples, read):
        self._samples, self._read = samples, read

    def __getitem__(self, window):
        self._read.append(window)
        return self._samples[window]

    def __getattr__(self, name):
        return getattr(self._samples, name)


def test_an_item_is_nested_like_robomimics(recording):
    item = make(recording, get_pad_mask=True, goal_mode="last")[-1]
    assert list(item) == [*DATASET_KEYS, "obs", "next_obs", "goal_obs", "pad_mask"]
    for group in ("obs", "next_obs", "goal_obs"):
        assert list(item[group]) == [*OBS_KEYS, "pad_mask"]
    plain = make(recording, load_next_obs=False)[0]
    assert list(plain) == [*DATASET_KEYS, "obs"]
    assert list(plain["obs"]) == OBS_KEYS


def test_a_cache_makes_dataset_keys_float32_and_missing_ones_zero(recording):
    for mode in ("low_dim", "all"):
        plain, cached = make(recording)[5], make(recording, hdf5_cache_mode=mode)[5]
        for key in DATASET_KEYS:
            assert [str(plain[key].dtype), str(cached[key].dtype)] == ROBOMIMIC["low_dim"][key]
            np.testing.assert_array_equal(cached[key], plain[key].astype(np.float32))
        assert digest(cached["obs"]) == digest(plain["obs"])
        options = {"dataset_keys": [*DATASET_KEYS, "values"], "seq_length": 3}
        zeros = make(recording, hdf5_cache_mode=mode, **options)[0]["values"]
        assert samples.same_bits(zeros, np.zeros((3, 1), np.float32))
    with pytest.raises(KeyError, match="values"):
        make(recording, **options)


def test_filters_and_limits_select_demonstrations(recording):
    assert make(recording).demos == ["demo_0", "demo_1", "demo_2"]
    train = make(recording, filter_by_attribute="train")
    assert train.demos == ["demo_1", "demo_2"]
    one = make(recording, demo_limit=1, action_keys=["actions"], action_config={"actions": {}})
    assert (one.demos, one.n_demos) == (["demo_0"], 1)
    whole = kinograph.open(recording)
    assert len(one) == len(whole["demo_0"]["actions"])
    assert len(train) == len(whole["demo_1"]["actions"]) + len(whole["demo_2"]["actions"])
    with pytest.raises(kinograph.NotFoundError, match=r"test.*train, valid"):
        make(recording, filter_by_attribute="test")


def test_demonstrations_are_sorted_by_number_not_by_name(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        for number in (10, 9, 100):
            writer.add_episode(
                {"actions": np.full((3, 1), number)}, rate_hz=1.0, id=f"demo_{number}"
            )
    dataset = SequenceDataset(tmp_path / "d.kino", [], ["actions"])
    assert [int(item["actions"][0, 0]) for item in dataset] == [9] * 3 + [10] * 3 + [100] * 3


def test_positional_arguments_of_either_robomimic_version_work(recording):
    older = SequenceDataset(recording, OBS_KEYS, DATASET_KEYS, 2, 5, True, False, True, "last")
    assert (older.n_frame_stack, older.seq_length) == (2, 5)
    assert (older.pad_seq_length, older.get_pad_mask, older.goal_mode) == (False, True, "last")
    assert "index" not in older[0]
    config = {"actions": {"normalization": None}}
    newer = SequenceDataset(recording, OBS_KEYS, ["actions"], ["rewards"], config, 2, 5)
    assert (newer.n_frame_stack, newer.seq_length) == (2, 5)
    assert newer.dataset_keys == ("rewards", "actions")
    assert newer[7]["index"] == 7
    with pytest.raises(TypeError, match="frame_stuck"):
        make(recording, frame_stuck=2)


@pytest.mark.parametrize("method", [None, "min_max", "gaussian"])
def test_actions_are_normalised_and_joined(recording, method):
    keys = ["actions", "rewards"]
    config = {"actions": {"normalization": method}, "rewards": {"normalization": None}}
    dataset = make(recording, action_keys=keys, action_config=config, seq_length=4)
    every = np.concatenate([episode["actions"][:] for episode in kinograph.open(recording)])
    item = dataset[3]
    assert item["actions"].shape == (4, 8)
    np.testing.assert_allclose(item["actions"][:, 7], item["rewards"])
    raw = kinograph.open(recording)["demo_0"]["actions"][3:7]
    stats = dataset.get_action_normalization_stats()["actions"]
    np.testing.assert_allclose(item["actions"][:, :7] * stats["scale"] + stats["offset"], raw)
    if method == "gaussian":
        wanted = (raw - every.mean(0)) / every.std(0)
    elif method == "min_max":
        wanted = (raw - every.min(0)) / np.ptp(every, 0) * 2 * 0.999999 - 0.999999
    else:
        wanted = raw
    moves = np.ptp(every, 0) > 1e-4
    np.testing.assert_allclose(item["actions"][:, :7][:, moves], wanted[:, moves], atol=1e-4)


def test_constant_actions_are_not_divided_by_zero(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode({"actions": np.full((5, 2), [3.0, 4.0])}, rate_hz=1.0, id="demo_0")
    for method in ("min_max", "gaussian"):
        config = {"actions": {"normalization": method}}
        dataset = SequenceDataset(tmp_path / "d.kino", [], ["actions"], [], config)
        np.testing.assert_array_equal(dataset[0]["actions"], np.zeros((1, 2)))
    with pytest.raises(kinograph.InvalidArgumentError, match="min_max"):
        SequenceDataset(
            tmp_path / "d.kino", [], ["actions"], [], {"actions": {"normalization": "max"}}
        )[0]


def test_observations_are_normalised_as_in_robomimic_0_3(recording):
    keys = ["object", "robot0_eef_pos"]
    dataset = make(recording, obs_keys=keys, hdf5_normalize_obs=True, goal_mode="last")
    plain = make(recording, obs_keys=keys, goal_mode="last")
    stats = dataset.get_obs_normalization_stats()
    every = np.concatenate([episode["obs/object"][:] for episode in kinograph.open(recording)])
    np.testing.assert_allclose(stats["object"]["mean"][0], every.mean(0), atol=1e-5)
    np.testing.assert_allclose(stats["object"]["std"][0], every.std(0) + 1e-3, atol=1e-5)
    for group in ("obs", "next_obs", "goal_obs"):
        for key in keys:
            found, raw = dataset[9][group][key], plain[9][group][key]
            assert found.shape == raw.shape
            back = found * stats[key]["std"][0] + stats[key]["mean"][0]
            np.testing.assert_allclose(back, raw, atol=1e-6)
    with pytest.raises(kinograph.InvalidArgumentError, match="agentview_image"):
        make(recording, hdf5_normalize_obs=True)
    with pytest.raises(kinograph.InvalidArgumentError, match="hdf5_normalize_obs"):
        plain.get_obs_normalization_stats()


def test_a_whole_demonstration(recording):
    dataset = make(recording, frame_stack=3, get_pad_mask=True)
    whole = kinograph.open(recording)["demo_1"]
    item = dataset.get_trajectory_at_index(1)
    assert item["ep"] == "demo_1"
    np.testing.assert_array_equal(item["actions"][2:], whole["actions"][:])
    np.testing.assert_array_equal(item["actions"][:2], whole["actions"][[0, 0]])
    np.testing.assert_array_equal(item["obs"]["object"], whole["obs/object"][:])
    np.testing.assert_array_equal(item["next_obs"]["object"], whole["next_obs/object"][:])
    assert item["pad_mask"][:, 0].tolist() == [False] * 2 + [True] * len(whole["actions"])


def test_a_missing_next_obs_is_the_observation_one_step_later(lift):
    dataset = SequenceDataset(lift, ["joints"], ["actions"], goal_mode="last")
    joints = lift["demo_0"]["obs/joints"][:]
    np.testing.assert_array_equal(dataset[4]["next_obs"]["joints"][0], joints[5])
    np.testing.assert_array_equal(dataset[59]["next_obs"]["joints"][0], joints[59])
    np.testing.assert_array_equal(dataset[0]["goal_obs"]["joints"], joints[59])
    whole = dataset.get_trajectory_at_index(0)["next_obs"]["joints"]
    np.testing.assert_array_equal(whole, joints[[*range(1, 60), 59]])


def test_a_dataset_can_be_pickled_and_has_no_sampler(recording):
    dataset = pickle.loads(pickle.dumps(make(recording, seq_length=3)))
    assert digest(dataset[11]) == digest(make(recording, seq_length=3)[11])
    assert dataset.get_dataset_sampler() is None
    assert "132 items" in repr(dataset)
    with pytest.raises(IndexError, match="132"):
        dataset[132]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"goal_mode": "first"}, "last"),
        ({"goal_mode": "last", "load_next_obs": False}, "load_next_obs"),
        ({"hdf5_cache_mode": "some"}, "low_dim"),
        ({"frame_stack": 0}, "frame_stack"),
        ({"obs_keys": "object"}, "obs_keys"),
        ({"obs_keys": ["objects"]}, "objects"),
        ({"seq_length": 1000, "pad_seq_length": False}, "no sample is left"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(recording, options, says):
    with pytest.raises(kinograph.KinographError, match=says):
        make(recording, **options)


def test_an_hdf5_file_must_be_packed_first(tmp_path):
    (tmp_path / "lift.hdf5").touch()
    with pytest.raises(kinograph.InvalidArgumentError, match=r"kinograph\.pack"):
        make(tmp_path / "lift.hdf5")


@pytest.mark.parametrize("mode", [None, "low_dim"])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_dataset_works_in_the_workers_of_a_data_loader(recording, mode, context):
    torch = optional("torch")
    dataset = make(recording, hdf5_cache_mode=mode, seq_length=3)
    outer = torch.utils.data.DataLoader(
        dataset, batch_size=8, num_workers=2, multiprocessing_context=context
    )
    for number, batch in enumerate(outer):
        for place in range(len(batch["actions"])):
            item = dataset[number * 8 + place]
            np.testing.assert_array_equal(batch["actions"][place], item["actions"])
            np.testing.assert_array_equal(
                batch["obs"]["agentview_image"][place], item["obs"]["agentview_image"]
            )
    assert number == 16
