"""The loader and the dataset for torch; every batch is compared with samples read one by one."""

import copy
import gc
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time
import weakref

import numpy as np
import pytest
from optional import optional
from test_loader import CAMERA, REQUEST, damage, expected, threads_of_loaders

import kinograph

torch = optional("torch")

import fake_cuda  # noqa: E402 (needs torch)

import kinograph.torch  # noqa: E402 (needs torch)

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
# The fake driver's device memory is the host's; a fake copy is what a thread of Python does if there are transforms.
DEVICES = ["cpu", "fake driver", "fake copy", pytest.param("cuda", marks=needs_gpu)]
CONTEXTS = ["fork", "spawn"]


class FakeTransfer:
    clock = None

    def __init__(self, device):
        self.device = device

    def __call__(self, batch):
        sent = {
            key: field.clone() if isinstance(field, torch.Tensor) else field
            for key, field in batch.items()
        }
        return lambda: sent


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch, tmp_path):
    if request.param == "fake driver":
        fake_cuda.install(monkeypatch, tmp_path)
    elif request.param == "fake copy":
        monkeypatch.setattr(kinograph.torch, "_to_device", lambda _: torch.device("cuda", 0))
        monkeypatch.setattr(kinograph.torch.Loader, "_to_sent", lambda *_: None)
        monkeypatch.setattr(kinograph.torch, "_Transfer", FakeTransfer)
    else:
        return request.param
    return "cuda"


def make(dataset, **options):
    return kinograph.torch.Loader(
        dataset, **{"windows": REQUEST, "batch_size": 8, "seed": 3} | options
    )


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        assert found[key].cpu().numpy().dtype == array.dtype
        np.testing.assert_array_equal(found[key].cpu().numpy(), array, err_msg=key)


def test_batches_are_the_samples_of_the_order(lift, device):
    with make(lift, device=device) as loader:
        for epoch in range(2):
            steps = loader.order.steps(epoch)
            assert len(loader) == len(steps)
            for step, batch in zip(steps, loader, strict=True):
                assert_same(batch, expected(loader, step))
                if torch.cuda.is_available():
                    assert {tensor.device.type for tensor in batch.values()} == {device}


def test_a_tensor_shares_the_loaders_memory_and_keeps_it_alive(lift):
    loader = make(lift)
    lent = []
    make_tensor = loader._to_array

    def watch(dtype, shape, data):
        lent.append((data.__array_interface__["data"][0], weakref.ref(data)))
        return make_tensor(dtype, shape, data)

    loader._to_array = watch
    batch = next(iter(loader))
    assert [tensor.data_ptr() for tensor in batch.values()] == [address for address, _ in lent]
    memory = lent[list(batch).index("actions")][1]
    loader.close()
    del loader, watch
    slice_of_it = batch["actions"][2:4]
    del batch
    gc.collect()
    assert memory() is not None
    assert torch.isfinite(slice_of_it).all()
    del slice_of_it
    gc.collect()
    assert all(memory() is None for _, memory in lent)


def test_batches_do_not_change_while_they_are_referenced(lift, device):
    loader = make(lift, device=device)
    kept = [batch for _ in range(3) for batch in loader]
    loader.close()
    del loader
    gc.collect()
    fresh = make(lift)
    for number, batch in enumerate(kept):
        assert_same(batch, expected(fresh, number))
    kept[0]["actions"].zero_()  # tensors are writable


def test_every_image_dtype(lift):
    plain = next(iter(make(lift)))[CAMERA]
    for name in ("float32", "float16", "bfloat16"):
        dtype = getattr(torch, name)
        batch = next(iter(make(lift, images={"dtype": name, "layout": "chw"})))[CAMERA]
        assert batch.dtype == dtype
        wanted = (plain.to(torch.float64) / 255).to(dtype).movedim(-1, -3)
        torch.testing.assert_close(batch, wanted, rtol=0, atol=0)


def test_text_stays_text(lift, device):
    request = {"actions": range(2), "language": range(2)}
    loader = make(lift, windows=request, batch_size=3, device=device)
    batch = next(iter(loader))
    windows = loader.order.sources[0].samples
    texts = [windows[int(place["sample"])]["language"] for place in loader.order.batch(0)]
    assert batch["language"] == texts


@pytest.mark.parametrize("stop", [0, 1, 22, 23, 30])
def test_a_restart_continues_with_the_very_next_batch(lift, stop, device):
    loader = make(lift, device=device)
    endless = (batch for _ in range(9) for batch in loader)
    for _ in range(stop):
        next(endless)
    state = json.loads(json.dumps(loader.state_dict()))
    again = make(lift, device=device)
    again.load_state_dict(state)
    resumed = (batch for _ in range(9) for batch in again)
    for _ in range(25):
        assert_same(next(resumed), {k: v.cpu().numpy() for k, v in next(endless).items()})
    assert again.epoch == loader.epoch


def test_every_for_loop_iterates_over_the_next_epoch_from_its_first_batch(lift, device):
    loader = make(lift, device=device)
    for epoch in range(3):
        steps = loader.order.steps(epoch)
        taken = list(itertools.islice(loader, len(loader)))
        assert len(taken) == len(steps)
        assert_same(taken[-1], expected(loader, steps[-1]))
    for step, _ in enumerate(loader):
        if step == 4:
            break
    steps = iter(loader)
    start = loader.order.steps(4).start
    assert_same(next(steps), expected(loader, start))
    loader.close()
    assert_same(next(steps), expected(loader, start + 1))
    loader.set_epoch(3)
    assert_same(next(iter(loader)), expected(loader, loader.order.steps(3).start))
    with pytest.raises(kinograph.InvalidArgumentError, match="make a second loader"):
        next(steps)


def test_no_thread_is_left_behind(lift, device):
    gc.collect()
    before = threads_of_loaders()
    loaders = [make(lift, device=device) for _ in range(3)]
    next(iter(loaders[0]))
    loaders[1].close()
    del loaders
    gc.collect()
    assert threads_of_loaders() == before


def train_forever(loader):
    while True:
        for _ in loader:
            time.sleep(0.001)


def test_ctrl_c_interrupts_a_wait(lift, device):
    loader = make(lift, device=device)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        train_forever(loader)
    step = loader.order.steps(loader.epoch).start
    assert_same(next(iter(loader)), expected(loader, step))


def in_fork(loader, answers):
    try:
        next(iter(loader))
    except kinograph.InvalidArgumentError as error:
        answers.put(str(error))
    loader.close()
    os._exit(0)


def test_a_forked_process_is_told_to_make_its_own_loader(lift, device):
    loader = make(lift, device=device)
    steps = iter(loader)
    next(steps)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=in_fork, args=(loader, answers))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert "make a new one after the fork" in answers.get()
    assert_same(next(steps), expected(loader, 1))


def test_the_report_counts_the_wait_of_the_training_loop(lift, device):
    loader = make(lift, device=device)
    for _ in loader:
        time.sleep(0.005)
    report = loader.report()
    # With a GPU, up to two batches are in flight.
    assert len(loader.order.steps(0)) <= report.batches <= len(loader.order.steps(0)) + 4
    assert 0 <= report.wait_s <= report.elapsed_s
    copies = {stage.name: stage for stage in report.stages}["transfer"]
    assert (copies.tasks > 0) == (copies.bytes > 0) == (device == "cuda")


def test_damage_is_raised_and_the_loader_can_be_used_again(lift, tmp_path, device):
    damaged = damage(lift, tmp_path)
    loader = make(damaged, device=device)
    for _ in range(2):
        with pytest.raises(kinograph.CorruptDataError, match="checksum"):
            list(loader)


@needs_gpu
def test_kernels_wait_for_their_batch_and_copies_for_the_kernels(lift):
    """Keep the GPU so busy that a copy or a kernel that fails to wait would see wrong values."""
    loader = make(lift, device="cuda")
    wanted = [expected(loader, step) for step in range(20)]
    busy = torch.randn(4096, 4096, device="cuda")
    sums = []
    for step, batch in zip(range(20), loader, strict=False):
        busy = (busy @ busy).clamp(-1, 1)
        sums.append(batch[CAMERA].to(torch.int64).sum() + 0 * busy[0, 0].to(torch.int64))
        del batch
        assert loader.order.next_index == (step + 1) * 8
    found = [int(total) for total in sums]
    assert found == [int(batch[CAMERA].astype(np.int64).sum()) for batch in wanted]


def test_a_missing_gpu_is_refused(lift, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(kinograph.InvalidArgumentError, match="finds no GPU"):
        make(lift, device="cuda")
    with pytest.raises(kinograph.InvalidArgumentError, match="device is 'gpu'"):
        make(lift, device="gpu")


def test_a_loader_is_pickled_without_its_threads(lift):
    loader = make(lift)
    list(zip(range(5), loader, strict=False))
    for again in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
        assert again.report().batches == 0
        assert_same(next(iter(again)), expected(loader, loader.order.steps(1).start))
    assert_same(next(iter(loader)), expected(loader, loader.order.steps(1).start))


def test_a_data_loader_without_workers_changes_nothing(lift):
    loader = make(lift)
    outer = torch.utils.data.DataLoader(loader, batch_size=None)
    assert len(outer) == len(loader)
    for epoch in range(2):
        steps = loader.order.steps(epoch)
        for step, batch in zip(steps, outer, strict=True):
            assert_same(batch, expected(loader, step))


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_worker_of_a_data_loader_is_told_what_to_use(lift, context):
    loader = make(lift)
    steps = iter(loader)
    next(steps)
    # One worker: torch ends at the first error, and a second one that is still starting would fail noisily.
    outer = torch.utils.data.DataLoader(
        loader, batch_size=None, num_workers=1, multiprocessing_context=context
    )
    with pytest.raises(kinograph.InvalidArgumentError, match="num_workers=0"):
        list(outer)
    assert_same(next(steps), expected(loader, 1))


def test_a_dataset_has_the_same_items_as_its_samples(lift):
    windows = lift.samples({**REQUEST, "language": [0]})
    for dataset in (
        kinograph.torch.Dataset(windows),
        kinograph.torch.Dataset(lift.path, windows={**REQUEST, "language": [0]}),
        pickle.loads(pickle.dumps(kinograph.torch.Dataset(windows))),
    ):
        assert len(dataset) == len(windows)
        for index in (0, 77, len(windows) - 1, -1):
            sample, wanted = dataset[index], dict(windows[index])
            assert sample.pop("language") == wanted.pop("language")
            assert_same(sample, wanted)
        several = dataset.__getitems__([5, 3, 5])
        assert [float(sample["actions"][0, 0]) for sample in several] == [
            windows[index]["actions"][0, 0] for index in (5, 3, 5)
        ]
    with pytest.raises(IndexError, match="178"):
        dataset[178]
    with pytest.raises(
        kinograph.InvalidArgumentError, match="cannot be combined with existing samples"
    ):
        kinograph.torch.Dataset(windows, seq_length=3)


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (2, "spawn")])
def test_a_dataset_works_in_the_workers_of_a_data_loader(lift, workers, context):
    windows = lift.samples(REQUEST)
    windows[0]  # opened before the fork
    outer = torch.utils.data.DataLoader(
        kinograph.torch.Dataset(windows),
        batch_size=16,
        num_workers=workers,
        multiprocessing_context=context,
    )
    for number, batch in enumerate(outer):
        items = windows[number * 16 : number * 16 + 16]
        assert_same(batch, {key: np.stack([item[key] for item in items]) for key in items[0]})
    assert number == 11


def in_rank(rank, port, path, answers):
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    loader = make(path)
    sums = [float(batch["actions"].sum()) for batch in loader]
    answers.put((rank, repr(loader), sums))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_rank_and_world_size_come_from_torch_distributed(lift):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(target=in_rank, args=(rank, port, lift.path, answers)) for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    found = {rank: (text, sums) for rank, text, sums in (answers.get(timeout=120) for _ in ranks)}
    for process in ranks:
        process.join(60)
        assert process.exitcode == 0
    for rank in (0, 1):
        text, sums = found[rank]
        assert f"rank {rank} of 2" in text
        loader = make(lift, rank=rank, world_size=2)
        assert sums == [float(batch["actions"].sum()) for batch in loader]


class FakeEvent:
    """A CUDA event without a GPU: it is past when the test says so."""

    made = ()

    def __init__(self, *, enable_timing):
        assert enable_timing
        self.is_past, self.stream = False, None
        FakeEvent.made = (*FakeEvent.made, self)

    def record(self, stream):
        self.stream = stream

    def query(self):
        return self.is_past

    def elapsed_time(self, end):
        assert self.is_past
        assert end.is_past, "reading the time would wait for the GPU"
        return 1000.0 * (self.made.index(end) - self.made.index(self))

    def synchronize(self):
        pytest.fail("the clock must not wait for the GPU")


def test_compute_is_timed_by_events_on_the_current_stream_without_waiting(monkeypatch):
    monkeypatch.setattr(FakeEvent, "made", ())
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("must not wait"))
    profile = kinograph.profile([1, 2, 3], lambda batch: None, device="cuda:1")
    report = profile.report()
    assert (report.clock, report.pending, report.compute_s) == ("cuda", 3, 0.0)
    assert {event.stream for event in FakeEvent.made} == {"stream of cuda:1"}
    for event in FakeEvent.made:
        event.is_past = True
    report = profile.report()
    assert (report.pending, report.compute_s) == (0, 3.0)
    # From the second event to the sixth are four seconds, two of them inside steps.
    assert report.utilisation == 0.5


@needs_gpu
def test_gpu_compute_time_matches_cuda_events(lift):
    loader = make(lift, device="cuda")
    left = torch.randn(4096, 4096, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    alone = 0.0
    for _ in loader:
        with loader.compute():
            begin.record()
            for _ in range(20):
                left = (left @ left).clamp(-1, 1)
            end.record()
        torch.cuda.synchronize()
        alone += begin.elapsed_time(end) / 1e3
    report = loader.report().loop
    assert report.clock == "cuda"
    assert report.pending == 0
    assert alone <= report.compute_s < 1.5 * alone
