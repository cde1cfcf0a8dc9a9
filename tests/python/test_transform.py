"""Transforms, compared with the same functions applied to the samples of a loader without them."""

import gc
import pickle
import threading
import time

import numpy as np
import pytest
from optional import optional

import kinograph
import kinograph.numpy

REQUEST = {"actions": range(3), "obs/agentview_image": [0]}
CAMERA = "obs/agentview_image"


def make(dataset, framework="numpy", **options):
    module = __import__(f"kinograph.{framework}", fromlist=["Loader"])
    given = {"windows": REQUEST, "include": ["task", "sample"], "batch_size": 8, "seed": 3}
    return module.Loader(dataset, **given | options)


def epochs(dataset, count=2, **options):
    with make(dataset, **options) as loader:
        return [batch for _ in range(count) for batch in loader]


def samples_of(batches):
    """Every sample of some batches, one after the other."""
    return [
        {key: array[slot] for key, array in batch.items()}
        for batch in batches
        for slot in range(len(batch["sample"]))
    ]


def check_same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for key, value in other.items():
            if isinstance(value, np.ndarray | np.generic | float):
                np.testing.assert_array_equal(one[key], value, err_msg=key)
            else:
                assert one[key] == value, key


def tokenize(sample):
    """Change an array in place, drop a key, and add a number, a row of tokens, a text and a list."""
    sample["actions"] *= 2
    words = sample.pop("task").split()
    mean = float(sample[CAMERA].mean())
    tokens = np.array([len(words), len(words[0]) if words else 0])
    return {**sample, "mean": mean, "tokens": tokens, "name": f"n{mean:.0f}", "any": (1, words)}


def sharpen(sample, rng):
    sample["noise"] = rng.normal(size=4)
    return sample


def count_rows(batch):
    return {**batch, "rows": len(batch["sample"])}


@pytest.mark.parametrize("threads", [1, 4])
def test_samples_are_those_of_the_function_in_the_sequence_of_the_order(lift, threads):
    wanted = [tokenize(sample) for sample in samples_of(epochs(lift))]
    pause = iter(np.random.default_rng(1).uniform(0, 0.01, 10_000))

    def at_any_speed(sample):
        time.sleep(next(pause))
        return tokenize(sample)

    found = epochs(lift, transform=at_any_speed, transform_threads=threads)
    check_same(samples_of(found), wanted)
    assert found[0]["mean"].dtype == np.float64
    assert found[0]["tokens"].shape == (8, 2)
    assert isinstance(found[0]["name"], list)
    assert found[0]["any"][0] == wanted[0]["any"]


def test_a_batch_transform_comes_after_the_samples_and_may_drop_and_add(lift):
    seen = []

    def last(batch):
        seen.append(batch)
        return {"actions": batch["actions"], "mean": batch["mean"].sum()}

    found = epochs(lift, 1, transform=tokenize, batch_transform=last)
    plain = epochs(lift, 1)
    # Batches of the next epoch may have been transformed before the loader was closed.
    assert len(found) == len(plain) <= len(seen)
    for batch, given, before in zip(found, seen[: len(found)], plain, strict=True):
        assert batch.keys() == {"actions", "mean"}
        # What was changed in place was not copied.
        assert batch["actions"] is given["actions"]
        np.testing.assert_array_equal(batch["actions"], 2 * before["actions"])
    assert all(batch["rows"] > 0 for batch in epochs(lift, 1, batch_transform=count_rows))


def test_random_numbers_depend_on_the_seed_and_the_index_alone(lift):
    options = {"transform": sharpen, "batch_size": None, "global_batch_size": 8}
    options["last_batch"] = "drop"
    wanted = epochs(lift, **options)
    with make(lift, **options) as loader:
        order = loader.order
    for index, sample in enumerate(samples_of(wanted)):
        rng = np.random.default_rng(order.draw(index, "transform"))
        np.testing.assert_array_equal(sample["noise"], rng.normal(size=4))
    check_same(epochs(lift, **options, transform_threads=3), wanted)
    ranks = [epochs(lift, **options, rank=rank, world_size=2) for rank in range(2)]
    for number, batch in enumerate(wanted):
        halves = [rank[number]["noise"] for rank in ranks]
        np.testing.assert_array_equal(np.concatenate(halves), batch["noise"])
    first, again = make(lift, **options), make(lift, **options)
    turn = iter(first)
    next(turn), next(turn)
    again.load_state_dict(pickle.loads(pickle.dumps(first)).state_dict())
    check_same([next(iter(again))], [wanted[2]])
    first.close(), again.close()


def test_an_error_is_raised_at_its_place_with_the_index_of_the_sample(lift):
    plain = samples_of(epochs(lift, 1))
    bad = int(plain[19]["sample"])
    is_broken = True

    def fails(sample):
        if is_broken and sample["sample"] == bad:
            raise ValueError("no such word")
        return sample

    loader = make(lift, transform=fails, transform_threads=3)
    taken = []
    with pytest.raises(
        kinograph.TransformError, match=r"at index 19.*ValueError: no such"
    ) as found:
        taken.extend(loader)
    assert found.value.index == 19
    assert isinstance(found.value.__cause__, ValueError)
    check_same(samples_of(taken), plain[:16])
    assert loader.state_dict()["next_index"] == 16
    is_broken = False
    loader.load_state_dict(loader.state_dict())
    check_same(samples_of(list(loader)), plain[16:])
    loader.close()


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (lambda sample: None, "returned None; return the dict"),
        (lambda sample: [sample], "return the dict"),
        (lambda sample: {f"a{sample['sample']}": 1}, "the keys a"),
        (lambda sample: {"a": np.zeros(int(sample["sample"]))}, "`a` of the samples.*pad it"),
    ],
)
def test_what_cannot_be_a_batch_is_refused_with_the_reason(lift, transform, says):
    loader = make(lift, transform=transform)
    with loader, pytest.raises(kinograph.TransformError, match=says):
        next(iter(loader))


def test_impossible_options_are_refused(lift):
    with pytest.raises(kinograph.InvalidArgumentError, match="transform is 1; give a function"):
        make(lift, transform=1)
    with pytest.raises(kinograph.InvalidArgumentError, match="batch_transform is 'x'"):
        make(lift, batch_transform="x")
    with pytest.raises(kinograph.InvalidArgumentError, match="transform_threads is 0"):
        make(lift, transform=tokenize, transform_threads=0)


def test_it_is_a_stage_of_the_report(lift):
    with make(lift, transform=tokenize) as loader:
        batches = list(loader)
        report = loader.report()
    stages = {stage.name: stage for stage in report.stages}
    names = ["schedule", "fetch", "decode", "collate", "transform", "transfer", "wait"]
    assert list(stages) == names
    assert stages["transform"].tasks >= sum(len(batch["sample"]) for batch in batches)
    assert stages["transform"].bytes >= sum(batch["actions"].nbytes for batch in batches)
    assert stages["transform"].busy_s > 0
    assert stages["transfer"].tasks == 0
    assert "transform" in str(report)
    assert ">transform<" in report.to_html()


def test_threads_end_with_the_loader(lift):
    def running():
        return [one for one in threading.enumerate() if one.name == "kino-transform"]

    loader = make(lift, transform=tokenize, transform_threads=3)
    next(iter(loader))
    assert len(running()) == 3
    loader.close()
    assert not running()
    first = next(iter(loader))
    assert len(running()) == 3
    del loader
    gc.collect()
    assert not running()
    assert np.isfinite(first["actions"]).all()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_torch_transforms_get_tensors_and_the_result_is_moved(lift, device):
    torch = optional("torch")
    optional("torch")
    kinds = set()

    def look(sample):
        kinds.update((type(sample["actions"]), sample["actions"].device.type))
        return {**sample, "double": sample["actions"] * 2, "one": 1.5, "row": np.arange(2)}

    with make(lift, "torch", transform=look, device=device) as loader:
        batch = next(iter(loader))
        stages = {stage.name: stage for stage in loader.report().stages}
    assert kinds == {torch.Tensor, "cpu"}
    assert {one.device.type for key, one in batch.items() if key != "task"} == {device}
    assert batch["double"].shape == (8, 3, 7)
    assert batch["row"].shape == (8, 2)
    size = sum(one.nbytes for key, one in batch.items() if key != "task")
    moved = (0, 0) if device == "cpu" else (1, size)
    assert (stages["transfer"].tasks, stages["transfer"].bytes) == moved


def test_jax_transforms_get_numpy_arrays(lift):
    jax = optional("jax")
    with make(lift, "jax", transform=tokenize) as loader:
        batch = next(iter(loader))
    assert isinstance(batch["tokens"], jax.Array)
    wanted = [tokenize(sample) for sample in samples_of(epochs(lift, 1))[:8]]
    np.testing.assert_allclose(batch["mean"], [one["mean"] for one in wanted], rtol=1e-6)
