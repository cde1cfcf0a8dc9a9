"""The loader as a user sees it: every batch is compared with samples that are read one by one."""

import gc
import itertools
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import samples

import kinograph
import kinograph.numpy

CAMERA = "obs/agentview_image"
REQUEST = {
    CAMERA: range(-1, 1),
    "obs/joints": [-0.12, 0.0],
    "actions": range(6),
}


def threads_of_loaders():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return sum((task / "comm").read_text().startswith("kino-") for task in tasks)


def make(dataset, **options):
    return kinograph.numpy.Loader(
        dataset, **{"windows": REQUEST, "batch_size": 8, "seed": 3} | options
    )


def expected(loader, step, **ranks):
    """Read a batch's samples one by one, and stack them."""
    places = loader.order.batch(step, **ranks)
    sources = loader.order.sources
    items = [
        sources[place["source"]].variant(place["variant"])[int(place["sample"])] for place in places
    ]
    return {key: np.stack([item[key] for item in items]) for key in items[0]}


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        assert found[key].dtype == array.dtype
        np.testing.assert_array_equal(found[key], array, err_msg=key)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": "global"},
        {"shuffle": False},
        {"shuffle": kinograph.Shuffle(fraction=0.4, lanes=2)},
        {"shuffle": kinograph.Shuffle(episodes=1)},
        {"memory": 1},
        {"memory": 1, "shuffle": "global"},
        {"memory": 1, "shuffle": kinograph.Shuffle(episodes=2)},
        {"threads": 1, "prefetch": 1},
        {"last_batch": "drop"},
        {"last_batch": "wrap"},
        {"last_batch": "repeat"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::kinograph.KinographWarning")
def test_batches_are_the_samples_of_the_order(lift, options):
    with make(lift, **options) as loader:
        for epoch in range(2):
            steps = loader.order.steps(epoch)
            assert len(loader) == len(steps)
            found = list(loader)
            assert len(found) == len(steps)
            for step, batch in zip(steps, found, strict=True):
                assert_same(batch, expected(loader, step))


# Three demonstrations are few for six ranks.
@pytest.mark.filterwarnings("ignore::kinograph.KinographWarning")
def test_ranks_together_are_the_whole_batch(lift):
    options = {"batch_size": None, "global_batch_size": 12}
    whole = list(make(lift, **options))
    for world_size in (2, 3, 6):
        parts = [
            list(make(lift, rank=rank, world_size=world_size, **options))
            for rank in range(world_size)
        ]
        for batch, *ranks in zip(whole, *parts, strict=True):
            together = {key: np.concatenate([part[key] for part in ranks]) for key in batch}
            assert_same(together, batch)


def test_batch_size_is_that_of_a_rank(lift):
    loader = make(lift, rank=1, world_size=2)
    assert loader.order.batch_size == 16
    assert_same(next(iter(loader)), expected(loader, 0, rank=1, world_size=2))


@pytest.mark.parametrize("stop", [0, 1, 7, 21, 22, 23, 30])
def test_a_restart_goes_on_with_the_very_next_batch(lift, stop):
    loader = make(lift)
    endless = (batch for _ in range(9) for batch in loader)
    for _ in range(stop):
        next(endless)
    state = json.loads(json.dumps(loader.state_dict()))
    again = make(lift)
    again.load_state_dict(state)
    going_on = (batch for _ in range(9) for batch in again)
    for _ in range(30):
        assert_same(next(going_on), next(endless))
    assert again.epoch == loader.epoch


def break_after(count):
    """Take so many batches and leave the ``for``."""

    def take(loader):
        taken = []
        for batch in loader:
            taken.append(batch)
            if len(taken) == count:
                break
        return taken

    return take


@pytest.mark.parametrize("last_batch", ["short", "drop", "wrap"])
@pytest.mark.parametrize(
    ("take", "part"),
    [
        (lambda loader: list(itertools.islice(loader, len(loader))), None),
        (
            lambda loader: [batch for _, batch in zip(range(len(loader)), loader, strict=False)],
            None,
        ),
        (lambda loader: break_after(len(loader))(loader), None),
        (list, None),
        (break_after(5), 5),
        (break_after(1), 1),
        (lambda loader: [next(iter(loader))], 1),
    ],
)
def test_every_for_goes_through_the_next_epoch_from_its_first_batch_on(
    lift, take, part, last_batch
):
    loader = make(lift, last_batch=last_batch)
    for epoch in range(4):
        steps = loader.order.steps(epoch)
        assert (loader.epoch, len(loader)) == (epoch, len(steps))
        taken = take(loader)
        assert len(taken) == (part or len(steps))
        for step, batch in zip(steps, taken, strict=False):
            assert_same(batch, expected(loader, step))


def test_a_for_knows_its_epoch_and_length_while_it_goes_on(lift):
    loader = make(lift)
    for epoch in range(3):
        steps = loader.order.steps(epoch)
        for _ in loader:
            assert (loader.epoch, len(loader)) == (epoch, len(steps))
        assert loader.epoch == epoch + 1


def test_only_after_a_loaded_state_a_for_begins_in_the_middle(lift):
    loader = make(lift)
    break_after(5)(loader)
    state = loader.state_dict()
    again = make(lift)
    again.load_state_dict(state)
    # As those do who set the epoch before every `for`.
    again.set_epoch(0)
    rest = list(again)
    assert len(rest) == len(loader.order.steps(0)) - 5
    assert_same(rest[0], expected(loader, 5))
    assert_same(next(iter(again)), expected(loader, loader.order.steps(1).start))
    again.load_state_dict(state)
    assert_same(next(iter(again)), expected(loader, 5))
    # A state of the middle of an epoch that is itself gone on with.
    assert again.state_dict() != state
    loader.load_state_dict(again.state_dict())
    assert_same(next(iter(loader)), expected(loader, 6))
    again.set_epoch(0)
    assert_same(next(iter(again)), expected(loader, 0))


def test_an_iterator_that_nobody_asked_begins_nothing(lift):
    loader = make(lift)
    unused = [iter(loader) for _ in range(3)]
    assert loader.epoch == 0
    loader.load_state_dict(make(lift).state_dict())
    assert_same(next(unused[1]), expected(loader, 0))
    assert_same(next(unused[1]), expected(loader, 1))


def nested(loader):
    for _ in loader:
        for _ in loader:
            pass


def pairs(loader):
    for _ in zip(loader, loader, strict=False):
        pass


def moved(loader):
    for _ in loader:
        loader.set_epoch(0)


def loaded(loader):
    for _ in loader:
        loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("use", [nested, pairs, moved, loaded])
def test_a_for_that_was_overtaken_is_refused_and_the_next_one_is_whole(lift, use):
    loader = make(lift)
    with pytest.raises(kinograph.InvalidArgumentError, match="make a second loader"):
        use(loader)
    steps = loader.order.steps(loader.epoch)
    if use is loaded:
        steps = steps[1:]
    for step, batch in zip(steps, loader, strict=True):
        assert_same(batch, expected(loader, step))


def test_a_for_in_the_last_step_of_another_is_whole(lift):
    """Check what those do who validate, or take a sample, after the last batch of an epoch."""
    loader = make(lift)
    for step, _ in enumerate(loader):
        if step + 1 == len(loader):
            inner = list(loader)
    assert len(inner) == len(loader.order.steps(1))
    assert loader.epoch == 2


def test_threads_that_share_a_loader_get_whole_epochs_or_an_error(lift):
    loader = make(lift)
    begin = threading.Barrier(3)
    answers = []

    def run():
        begin.wait()
        seen = []
        try:
            seen.extend(batch["actions"].sum() for batch in loader)
            answers.append(seen)
        except kinograph.InvalidArgumentError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    whole = [answer for answer in answers if isinstance(answer, list)]
    epochs = [
        [expected(loader, step)["actions"].sum() for step in loader.order.steps(epoch)]
        for epoch in range(3)
    ]
    assert whole
    assert all(answer in epochs for answer in whole)
    assert all("make a second loader" in text for text in answers if isinstance(text, str))
    assert len(list(loader)) == len(loader.order.steps(3))


def test_set_epoch_goes_where_it_says(lift):
    loader = make(lift)
    loader.set_epoch(3)
    assert_same(next(iter(loader)), expected(loader, loader.order.steps(3).start))
    loader.set_epoch(0)
    assert_same(next(iter(loader)), expected(loader, 0))


def test_images_come_as_floats_and_planes(lift):
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    plain = next(iter(make(lift)))[CAMERA]
    planes = next(iter(make(lift, images={"layout": "chw"})))[CAMERA]
    np.testing.assert_array_equal(planes, np.moveaxis(plain, -1, -3))
    floats = next(iter(make(lift, images={"dtype": "float32"})))[CAMERA]
    np.testing.assert_array_equal(floats, (plain.astype(np.float64) / 255).astype(np.float32))
    half = next(iter(make(lift, images={"dtype": "float16", "layout": "chw"})))[CAMERA]
    np.testing.assert_array_equal(half, np.moveaxis(floats.astype(np.float16), -1, -3))
    normal = next(iter(make(lift, images={"dtype": "float32"}, normalize={CAMERA: (mean, std)})))[
        CAMERA
    ]
    steps = (np.float32(plain) / np.float32(255) - np.float32(mean)) / np.float32(std)
    np.testing.assert_array_equal(normal, steps)


def test_arrays_stay_as_they_are_for_as_long_as_they_are_kept(lift):
    loader = make(lift)
    kept = [batch for _ in range(3) for batch in loader]
    loader.close()
    del loader
    gc.collect()
    fresh = make(lift)
    for number, batch in enumerate(kept):
        assert_same(batch, expected(fresh, number))
    kept[0]["actions"][:] = 0  # may be written


def test_text_and_whole_episodes(lift):
    request = {"actions": kinograph.Window(whole=True), "language": kinograph.Window(last=True)}
    loader = make(lift, windows=request, batch_size=3)
    batch = next(iter(loader))
    lengths = [len(loader.order.sources[0].samples[i]["actions"]) for i in range(3)]
    assert batch["actions"].shape == (3, max(lengths), 7)
    for row, place in enumerate(loader.order.batch(0)):
        item = loader.order.sources[0].samples[int(place["sample"])]
        length = len(item["actions"])
        np.testing.assert_array_equal(batch["actions"][row, :length], item["actions"])
        assert not batch["actions"][row, length:].any()
        assert batch["actions_is_pad"][row].tolist() == [False] * length + [True] * (
            max(lengths) - length
        )
        assert batch["language"][row] == item["language"]


def test_mixtures_and_curricula(lift, tmp_path, lift_streams):
    plan = {"stream": [{"kind": "image", "codec": "jpeg:q=90"}]}
    with kinograph.Writer(tmp_path / "lossy.kino", plan=plan) as writer:
        for number, streams in enumerate(lift_streams):
            writer.add_episode(streams, rate_hz=20.0, id=f"demo_{number}")
    lossy = kinograph.open(tmp_path / "lossy.kino").samples(REQUEST)
    exact = lift.samples(REQUEST)
    source = kinograph.Source(samples=exact, curriculum={1: lossy})
    other = kinograph.Source(samples=lift.samples(REQUEST, episodes=[1]), weight=0.5)
    loader = kinograph.numpy.Loader([source, other], batch_size=8, seed=3, epoch_size=400)
    seen = set()
    for step in loader.order.steps(0):
        seen |= {(place["source"], place["variant"]) for place in loader.order.batch(step)}
    assert seen == {(0, 0), (0, 1), (1, 0)}
    for step, batch in enumerate(loader):
        assert_same(batch, expected(loader, step))


def damage(dataset, tmp_path):
    """Copy a dataset and flip a byte in its middle."""
    path = tmp_path / "damaged.kino"
    shutil.copytree(dataset.path, path)
    (shard,) = (path / "shards").iterdir()
    stored = bytearray(shard.read_bytes())
    stored[len(stored) // 2] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(stored)
    return kinograph.open(path)


@pytest.mark.filterwarnings("ignore::kinograph.KinographWarning")
def test_damage_is_raised_with_its_place_or_replaced_the_same_way_everywhere(lift, tmp_path):
    damaged = damage(lift, tmp_path)
    with pytest.raises(kinograph.CorruptDataError, match=r"episode `demo_.*checksum"):
        list(make(damaged))
    options = {"on_error": "skip", "batch_size": None, "global_batch_size": 8}
    once = list(make(damaged, **options))
    again = make(damaged, threads=1, memory=1, **options)
    for found, wanted in zip(again, once, strict=True):
        assert_same(found, wanted)
    assert again.report().substituted > 0
    parts = [list(make(damaged, rank=rank, world_size=2, **options)) for rank in range(2)]
    for batch, *ranks in zip(once, *parts, strict=True):
        assert_same({key: np.concatenate([part[key] for part in ranks]) for key in batch}, batch)
    whole = make(lift, batch_size=8)
    same = [
        np.array_equal(found["actions"], wanted["actions"])
        for found, wanted in zip(once, whole, strict=True)
    ]
    assert any(same)
    assert not all(same)


def fail_inside(loader):
    with loader:
        for _ in loader:
            raise RuntimeError("mine")


def go_on_for_ever(loader):
    while True:
        for _ in loader:
            time.sleep(0.001)


def test_no_thread_is_left_behind(lift):
    gc.collect()
    before = threads_of_loaders()
    loaders = [make(lift) for _ in range(3)]
    next(iter(loaders[0]))
    assert threads_of_loaders() > before
    loaders[1].close()
    loaders[1].close()
    with pytest.raises(RuntimeError, match="mine"):
        fail_inside(loaders[2])
    del loaders
    gc.collect()
    assert threads_of_loaders() == before


def test_a_closed_loader_starts_again_where_it_stood(lift):
    loader = make(lift)
    steps = iter(loader)
    next(steps)
    loader.close()
    assert_same(next(steps), expected(loader, 1))


def in_child(loader, answers):
    try:
        next(iter(loader))
    except kinograph.InvalidArgumentError as error:
        answers.put(str(error))
    fresh = make(kinograph.open(loader.order.sources[0].samples.dataset.path))
    answers.put(next(iter(fresh))["actions"].sum())


def test_a_forked_process_is_told_to_make_its_own(lift):
    loader = make(lift)
    steps = iter(loader)
    first = next(steps)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=in_child, args=(loader, answers))
    child.start()
    assert "make a new one after the fork" in answers.get(timeout=60)
    assert answers.get(timeout=60) == first["actions"].sum()
    child.join(60)
    assert child.exitcode == 0
    assert_same(next(steps), expected(loader, 1))


def test_ctrl_c_ends_a_wait(lift):
    loader = make(lift)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        go_on_for_ever(loader)
    assert len(list(loader)) > 0


def test_the_report_adds_up(lift):
    loader = make(lift, shuffle="global")
    for _ in range(2):
        list(loader)
    report = loader.report()
    assert report.batches == loader.order.steps(1).stop
    assert report.samples == 2 * len(loader.order)
    frames = sum(len(lift[e][CAMERA]) for e in range(3))
    # The dataset fits in memory: every frame was decoded once, in two epochs.
    assert report.frames_decoded == 3 * frames
    assert report.cache_peak_bytes <= 2 << 30
    assert 0 < report.compute_ratio <= 1
    assert "collate" in str(report)
    assert "batches ahead" in str(report)
    assert report.prefetch_changes[-1][1] == report.prefetch_depth >= 2
    assert report.batch_s > 0
    assert report.step_s > 0
    assert report.threads_active >= 1
    assert report.readers_active >= 1


def test_every_frame_is_decoded_about_once_per_epoch_where_the_memory_holds_two_groups(tmp_path):
    recording = pathlib.Path(__file__).parents[1] / "data" / "lift_3demos.hdf5"
    for number in range(8):
        mode = "append" if number else "new"
        kinograph.pack(recording, tmp_path / "d.kino", prefix=f"{number}/", mode=mode)

    def make_with(memory):
        return kinograph.numpy.Loader(
            tmp_path / "d.kino",
            seq_length=10,
            keys=["obs/agentview_image", "obs/robot0_eye_in_hand_image", "obs/object", "actions"],
            batch_size=16,
            shuffle=kinograph.Shuffle(fraction=0.1),
            memory=memory,
        )

    # By default everything would be kept, and nothing decoded after the first epoch.
    with make_with(None) as everything:
        needed = everything.quality.memory_needed
        assert needed < everything.quality.memory == everything.quality.memory_for_all or (
            everything.quality.memory == 256 << 20
        )
    loader = make_with(needed)
    assert loader.quality.decodes_per_frame == 1
    frames = sum(len(episode["actions"]) for episode in loader.order.sources[0].samples.dataset)
    for _ in range(3):
        for _ in loader:
            pass
    # What is decoded ahead of the fourth epoch is counted too; a group that ends one epoch and begins the next is once.
    amplification = loader.report().frames_decoded / (3 * 4 * frames)
    assert 0.8 < amplification <= 1.1


def test_a_loader_says_once_that_its_memory_is_too_small_and_what_helps(lift):
    shuffle = kinograph.Shuffle(episodes=2)
    with pytest.warns(kinograph.KinographWarning) as said:
        loader = make(lift, shuffle=shuffle, memory=1000)
    (warning,) = said
    text = str(warning.message)
    assert f"about {loader.quality.decodes_per_frame:.1f} times per epoch" in text
    assert "have 1kB of memory" in text
    assert "in groups of 2 episodes they need" in text
    assert 'use memory="' in text
    assert warning.filename == __file__
    # The order is the same with more memory, and nothing is said then.
    with make(lift, shuffle=shuffle, memory="1GB") as enough:
        assert enough.order.id == loader.order.id
        assert enough.quality.decodes_per_frame == 1
    loader.close()


def test_memory_is_the_hosts_and_its_ranks_share_it(lift, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with make(lift, shuffle="global", memory="80MB") as loader:
        assert loader.quality.memory == 80_000_000
        assert loader._options["memory"] == 20_000_000
        four = loader.quality
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    with make(lift, shuffle="global", memory="80MB") as loader:
        assert loader._options["memory"] == loader.quality.memory == 80_000_000
        assert four.memory_for_all == 4 * loader.quality.memory_for_all


def test_a_loader_says_that_its_ranks_decode_the_same_frames(lift):
    options = {"rank": 0, "world_size": 4, "memory": "1GB"}
    with pytest.warns(kinograph.KinographWarning) as said:
        make(lift, shuffle=kinograph.Shuffle(episodes=1, lanes=1), **options).close()
    (warning,) = (str(one.message) for one in said if "decoded" in str(one.message))
    assert "about 4.0 times per epoch" in warning
    assert "4.0 ranks need it; to decode less use shuffle=True" in warning


def test_a_loader_warns_of_groups_that_mix_little(lift):
    options = {"batch_size": 16, "memory": "1GB"}
    with pytest.warns(kinograph.KinographWarning, match="a batch mixes") as said:
        loader = make(lift, shuffle=kinograph.Shuffle(episodes=1), **options)
    (warning,) = said
    quality = loader.quality
    loader.close()
    assert quality.vif > 6
    assert f"mixes {quality.episodes_per_batch:.1f} episodes" in str(warning.message)
    assert f"VIF {quality.vif:.1f}" in str(warning.message)
    assert warning.filename == make.__code__.co_filename
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shuffle in (True, False, "global"):
            make(lift, shuffle=shuffle, **options).close()


def test_a_loader_shows_how_well_it_mixes(lift):
    loader = make(lift, shuffle="global")
    quality = loader.quality
    batches = [loader.order.batch(step)["sample"] for step in loader.order.steps(0)]
    firsts = np.cumsum([0, *lift_lengths(loader)])[1:]
    episodes = [len(set(np.searchsorted(firsts, batch, side="right"))) for batch in batches]
    assert quality.episodes_per_batch == pytest.approx(np.mean(episodes), abs=0.15)
    assert 0.7 < quality.vif < 1.3
    for shown in (repr(loader), str(loader.report())):
        assert (
            f"{quality.episodes_per_batch:.1f} episodes per batch, VIF {quality.vif:.2f}" in shown
        )
        assert "1.0 decodes per frame" in shown


def lift_lengths(loader):
    """Count the samples of each episode."""
    return loader.order.sources[0].samples.counts.tolist()


@pytest.mark.parametrize("options", [{"cpu": 0.3}, {"cpu": 1}, {"cpu": 2.5}, {"prefetch": 3}])
def test_a_share_of_the_cpu_and_a_given_depth_change_no_batch(lift, options):
    loader = make(lift, **options)
    for found, wanted in zip(loader, make(lift), strict=True):
        assert_same(found, wanted)
    if "prefetch" in options:
        assert [depth for _, depth in loader.report().prefetch_changes] == [3]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": None}, "batch_size"),
        ({"global_batch_size": 8}, "exactly one of"),
        ({"rank": 2, "world_size": 2}, "ranks are 0 to 1"),
        (
            {"batch_size": None, "global_batch_size": 8, "world_size": 3},
            "use a global batch of 6 or 9, or `uneven=True`",
        ),
        ({"images": {"dtype": "float64"}}, "float32"),
        ({"images": {"layout": "nchw"}}, "hwc"),
        ({"normalize": {CAMERA: ([0.5] * 3, [1.0] * 3)}}, "float32"),
        (
            {"images": {"dtype": "float32"}, "normalize": {"x": ([0.5] * 3, [1.0] * 3)}},
            "no key `x`",
        ),
        (
            {"images": {"dtype": "float32"}, "normalize": {CAMERA: ([0.5] * 2, [1.0] * 2)}},
            "3 channels",
        ),
        ({"memory": "25%"}, "memory"),
        ({"prefetch": 0}, "prefetch"),
        ({"cpu": 0}, "cpu is 0; give cores"),
        ({"cpu": -0.5}, "cpu"),
        ({"cpu": float("nan")}, "cpu"),
        ({"cpu": "all"}, "cpu"),
        ({"threads": 0}, "threads"),
        ({"on_error": "ignore"}, "skip"),
        ({"windows": {"actoins": [0]}}, "actions"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_a_thread_starts(lift, options, says):
    before = threads_of_loaders()
    with pytest.raises(kinograph.KinographError, match=says):
        make(lift, **options)
    gc.collect()
    assert threads_of_loaders() == before


def test_a_path_is_a_dataset(lift_path):
    assert samples.lift_like(2, seed=1)["actions"].shape[1] == 7
    loader = kinograph.numpy.Loader(
        lift_path, seq_length=4, keys=["actions", "obs/joints"], batch_size=4, masks="pad_mask"
    )
    batch = next(iter(loader))
    assert batch["actions"].shape == (4, 4, 7)
    assert batch["pad_mask"].shape == (4, 4, 1)


def test_a_mixture_is_a_list_of_datasets_with_weights(lift, tmp_path):
    other = tmp_path / "other.kino"
    with kinograph.Writer(other) as writer:
        for _ in range(3):
            writer.add_episode({"actions": np.full((50, 7), 9.0)}, rate_hz=20.0)
    request = {"windows": {"actions": [0]}, "batch_size": 16, "seed": 3}
    mixed = kinograph.numpy.Loader([(lift, 0.75), (other, 0.25)], **request)
    others = [(batch["actions"] == 9.0).all(axis=(1, 2)) for batch in mixed]
    assert abs(np.concatenate(others).mean() - 0.25) < 0.05
    sources = [
        kinograph.Source(dataset.samples({"actions": [0]}), weight=weight)
        for dataset, weight in ((lift, 0.75), (kinograph.open(other), 0.25))
    ]
    same = kinograph.numpy.Loader(sources, batch_size=16, seed=3)
    mixed.set_epoch(0)
    for one, two in zip(mixed, same, strict=True):
        np.testing.assert_array_equal(one["actions"], two["actions"])
    with pytest.raises(kinograph.InvalidArgumentError, match="cannot train on 3; give a path"):
        kinograph.numpy.Loader([3], **request)
