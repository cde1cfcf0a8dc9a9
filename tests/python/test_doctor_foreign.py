"""The doctor on loaders that are not ours: planted causes are measured, and the loader is left as it was."""

import json
import multiprocessing
import random
import time

import numpy as np
import pytest
from optional import optional

import kinograph
import kinograph.numpy
from kinograph import _data_loader, _doctor_foreign, _profile

torch = optional("torch")
data = torch.utils.data

STEP_S = 0.002
BATCH_S = 0.02
SECONDS = 0.15
# Clocks are not exactly in step.
NEARLY = 0.9


def compute(seconds):
    """Use this much CPU time, however busy the machine is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def step(_batch):
    time.sleep(STEP_S)


class Demos(data.Dataset):
    """Items that take so long to open, and so long to decode."""

    def __init__(self, open_s=0.0, decode_s=0.0, samples=400):
        self.open_s, self.decode_s, self.samples = open_s, decode_s, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        time.sleep(self.open_s)
        compute(self.decode_s)
        return np.float32(index)


class Stream(data.IterableDataset):
    def __init__(self, decode_s):
        self.decode_s = decode_s

    def __iter__(self):
        for index in range(6):
            compute(self.decode_s)
            yield np.float32(index)


def slow_collate(items):
    compute(BATCH_S)
    return data.default_collate(items)


# Built once: making it is not passing it.
LARGE = b"x" * 12_000_000


def large_collate(_items):
    return [LARGE]


@pytest.fixture
def two_cores(monkeypatch):
    """With two workers, every core is taken: more workers are not what is missing."""
    monkeypatch.setattr(_doctor_foreign, "_cores", lambda: 2)


def examine(loader, **options):
    found = kinograph.doctor(loader, **({"step": step, "seconds": SECONDS} | options))
    assert not multiprocessing.active_children()
    return found


def examine_all(loader, **options):
    """Examine a loop that waits, however fast it is: none reaches a compute ratio of 1.

    Which stage is named depends on times. That the right one follows from the figures is tested in kino_advisor, and how
    often it is named in practice by bench/doctor_loaders.py.
    """
    found = examine(loader, target=1.0, **options)
    assert not found.met
    return found


# Each loader, and what its planted cause takes at least, however busy the machine is.
PLANTED = {
    "storage": (
        lambda: data.DataLoader(Demos(open_s=BATCH_S), batch_size=2, num_workers=2),
        lambda evidence: evidence["whole"]["fetch_s"] >= 2 * BATCH_S * NEARLY,
    ),
    "decode": (
        lambda: data.DataLoader(Demos(decode_s=BATCH_S), batch_size=2, num_workers=2),
        lambda evidence: evidence["whole"]["decode_s"] >= 2 * BATCH_S * NEARLY,
    ),
    "collate": (
        lambda: data.DataLoader(Demos(), batch_size=2, num_workers=2, collate_fn=slow_collate),
        lambda evidence: evidence["whole"]["collate_s"] >= BATCH_S * NEARLY,
    ),
    "transfer": (
        lambda: data.DataLoader(Demos(), batch_size=2, num_workers=1, collate_fn=large_collate),
        lambda evidence: evidence["setting"]["pickled_bytes"] == len(LARGE),
    ),
}


@pytest.mark.parametrize("cause", PLANTED)
@pytest.mark.usefixtures("two_cores")
def test_a_planted_cause_is_measured_and_priced(cause):
    make, is_measured = PLANTED[cause]
    found = examine_all(make(), gpu_price=2.50, gpus=8)
    evidence = found.evidence
    assert is_measured(evidence), evidence
    assert found.cost_per_day == pytest.approx((1 - found.compute_ratio) * 24 * 8 * 2.50)
    without, workers = evidence["without"], evidence["setting"]["num_workers"]
    assert without["more_workers"]["num_workers"] == 2 * workers
    for stage in ("without_fetch", "without_dataset", "without_collate", "half_batch"):
        assert without[stage]["batches"] >= 4, stage
    text, page = str(found), found.to_html()
    for part in (found.verdict, "waiting costs", "kinograph pack SOURCE"):
        assert part in text
    assert ("ALARM" in text, "ALARM" in page) == (found.is_alarm, found.is_alarm)
    assert json.loads(found.to_json())["idle"]["cost"]["gpus"] == 8


def test_a_loop_that_makes_its_own_batches_is_measured_with_workers():
    found = examine_all(
        data.DataLoader(Demos(decode_s=0.002), batch_size=2), step_s=0.03, step=None
    )
    assert found.evidence["setting"]["num_workers"] == 0
    assert found.evidence["without"]["more_workers"]["num_workers"] > 0


def test_with_a_slow_step_there_is_nothing_to_fix():
    found = examine(data.DataLoader(Demos(), batch_size=2), step_s=0.05, step=None, target=0.5)
    assert found.met
    assert found.cause == "slow_step"
    assert found.evidence["without"] is None
    assert "ALARM" not in str(found) + found.to_html()


@pytest.mark.usefixtures("two_cores")
def test_an_iterable_style_dataset_is_taken_apart_and_restarted():
    found = examine_all(data.DataLoader(Stream(BATCH_S), batch_size=2, num_workers=2))
    assert found.evidence["setting"]["kind"] == "iterable_style"
    # More batches than an epoch has.
    assert found.evidence["fed"]["steps"] > 3


def test_any_iterable_of_batches_is_measured_from_outside():
    class Batches:
        def __iter__(self):
            for index in range(3):
                time.sleep(BATCH_S)
                yield {"actions": np.full((5, 7), index)}

    found = examine(Batches())
    assert found.cause == "loader", str(found)
    setting = found.evidence["setting"]
    assert (setting["loader"], setting["kind"], setting["batch"]) == ("Batches", "batches", 5)
    assert "only a torch DataLoader can be taken apart" in str(found)


def test_the_loader_and_all_random_states_stay_as_they_were():
    class Counting(data.Sampler):
        """A sampler that changes when it is iterated."""

        drawn = 0

        def __iter__(self):
            for _ in range(100):
                self.drawn += 1
                yield int(torch.randint(0, 400, ()))

        def __len__(self):
            return 100

    def states():
        return (
            random.getstate(),
            str(np.random.get_state()),
            torch.get_rng_state().tolist(),
            generator.get_state().tolist(),
        )

    def noisy(_batch):
        random.random(), np.random.rand(), torch.rand(1)

    generator = torch.Generator().manual_seed(3)
    sampler = Counting()
    loaders = [
        data.DataLoader(Demos(), batch_size=4, shuffle=True, generator=generator),
        data.DataLoader(
            Demos(), batch_size=4, sampler=sampler, num_workers=1, persistent_workers=True
        ),
        data.DataLoader(Demos(), batch_size=None, sampler=sampler),
    ]
    for loader in loaders:
        before = states()
        examine(loader, step=noisy, seconds=0.02, target=1.0)
        assert states() == before
        assert sampler.drawn == 0
        # A loader that was iterated has workers, and keeps them.
        assert loader._iterator is None


def test_the_dataset_is_never_called_in_the_training_process():
    """A file that is opened there would be shared by all workers that are forked later."""

    class Here(Demos):
        calls = 0

        def __getitem__(self, index):
            self.calls += 1
            return super().__getitem__(index)

    dataset = Here(decode_s=0.005)
    examine(data.DataLoader(dataset, batch_size=2, num_workers=1), seconds=0.05)
    assert dataset.calls == 0


@pytest.mark.usefixtures("two_cores")
def test_the_named_files_are_dropped_and_a_second_pass_is_measured(tmp_path):
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"x" * 1000)
    loader = data.DataLoader(Demos(open_s=BATCH_S), batch_size=2, num_workers=1)
    found = examine(loader, files=[tmp_path], seconds=0.05)
    assert found.evidence["setting"]["dropped_bytes"] == 2000
    assert found.evidence["without"]["without_fetch"]["batches"] >= 4
    with pytest.raises(kinograph.InvalidArgumentError, match=r"nothing\.bin"):
        examine(loader, files="nothing.bin")


def test_kinograph_is_measured_in_the_same_loop(lift_path):
    loader = data.DataLoader(Demos(decode_s=0.005), batch_size=4, num_workers=1)
    windows = {"actions": range(4)}
    found = examine(loader, dataset=lift_path, windows=windows, seconds=0.1)
    moved = found.evidence["kinograph"]
    assert (moved["batch"], moved["is_step_emulated"]) == (4, True)
    assert moved["whole"]["cpu_s"] > 0
    assert "moving to Kinograph" in str(found)
    assert "kinograph pack" not in str(found)

    seen = []

    def own_step(batch):
        seen.append(type(batch))
        time.sleep(STEP_S)

    with kinograph.numpy.Loader(lift_path, windows=windows, batch_size=8, seed=3) as ours:
        next(iter(ours))
        state = ours.state_dict()
        found = examine(loader, dataset=ours, step=own_step, seconds=0.1)
        assert ours.state_dict() == state
    moved = found.evidence["kinograph"]
    assert (moved["batch"], moved["is_step_emulated"]) == (8, False)
    assert {torch.Tensor, dict} <= set(seen)


def test_a_gpu_is_timed_by_its_own_clock(monkeypatch):
    class Gpu:
        name = "cuda"

        def __init__(self):
            self.asked = 0

        def mark(self):
            return time.perf_counter()

        def is_past(self, mark):
            # A mark is never past at once.
            self.asked += 1
            return self.asked % 3 == 0

        def seconds(self, start, end):
            return end - start

    monkeypatch.setattr(_profile, "_to_clock", lambda device: Gpu() if device else None)
    found = examine(data.DataLoader(Demos(decode_s=0.005), batch_size=2), device="cuda")
    assert found.evidence["setting"]["clock"] == "cuda"
    fed = found.evidence["fed"]
    assert 0 < fed["compute_ratio"] < 1
    # All marks were waited for.
    assert fed["step_s"] >= STEP_S
    assert found.evidence["without"]["pinned"]["steps"] >= 4


def test_what_is_not_a_loader_is_refused(lift_path):
    def refused(match, *loader, **options):
        with pytest.raises(kinograph.InvalidArgumentError, match=match):
            kinograph.doctor(*loader, **({"step_s": 0.01, "seconds": 0.1} | options))

    refused("give the loader")
    refused("loader is a int", 3)
    refused("can be iterated once", iter([1, 2]))
    refused("no batches", data.DataLoader(Demos(samples=0)))
    refused("no batches", [])
    refused("above 0 and up to 1", [1], target=7.0)
    refused("`seconds`", [1], seconds=0)
    refused("step time", [1], step_s=-1.0)
    refused("`windows` describes", [1], windows={"actions": [0]})
    refused("`files` is for other loaders", lift_path, files=lift_path)
    refused("gpu_price is -1", [1], gpu_price=-1)
    refused("needs a price", [1], gpus=8)


def test_an_exception_of_the_step_or_the_dataset_is_raised_and_ends_the_workers():
    class Broken(Demos):
        def __getitem__(self, index):
            raise ZeroDivisionError("of the dataset")

    def broken(_batch):
        raise ZeroDivisionError("of the step")

    with pytest.raises(ZeroDivisionError, match="of the step"):
        kinograph.doctor(data.DataLoader(Demos(), num_workers=1), step=broken)
    with pytest.raises(ZeroDivisionError, match="of the dataset"):
        kinograph.doctor(data.DataLoader(Broken(), num_workers=1), step=step)
    assert not multiprocessing.active_children()


def test_a_worker_init_fn_reaches_the_dataset_behind_the_wrapper():
    stream = _data_loader._Stream(Stream(0.0), is_ready=False)
    stream.decode_s = 1.0
    assert (stream._dataset.decode_s, stream.decode_s) == (1.0, 1.0)
