"""Batches that the core sends to a CUDA device, against a driver without a GPU that does everything as late as it may."""

import gc
import itertools

import numpy as np
import pytest
from optional import optional
from test_loader import CAMERA, REQUEST, expected

import kinograph

torch = optional("torch")

import fake_cuda  # noqa: E402 (needs torch)

import kinograph.torch  # noqa: E402 (needs torch)

# Whole episodes.
WHOLE = {key: kinograph.Window(whole=True) for key in ("actions", "obs/joints")}

# A driver that is asked for something else than it has.
MISUSE = ("unregistered while copied", "without context", "outside memory")


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    found = fake_cuda.install(monkeypatch, tmp_path)
    yield found
    gc.collect()
    assert [found.count(what) for what in MISUSE] == [0, 0, 0]


def make(dataset, **options):
    given = {"windows": REQUEST, "batch_size": 8, "seed": 3, "device": "cuda"} | options
    return kinograph.torch.Loader(dataset, **given)


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        np.testing.assert_array_equal(found[key].numpy(), array, err_msg=key)


def endless(loader):
    while True:
        yield from loader


def test_a_batch_is_one_copy_from_memory_that_is_page_locked_once(lift, cuda):
    loader = make(lift, prefetch=4)
    for step, batch in zip(range(60), endless(loader), strict=False):
        assert_same(batch, expected(loader, step))
    report = loader.report()
    stage = {stage.name: stage for stage in report.stages}["transfer"]
    # Two are ready, and one may be on its way.
    assert 60 <= stage.tasks <= cuda.count("copies") <= 63
    # Only what was assembled before the driver was there is not page-locked.
    assert cuda.count("pageable") <= 4
    assert cuda.count("registered") <= 20
    batch_bytes = sum(tensor.nbytes for tensor in batch.values())
    assert stage.bytes >= stage.tasks * batch_bytes * 0.9
    del batch
    loader.close()
    assert cuda.count("freed") == cuda.count("allocated")
    assert cuda.count("unregistered") == cuda.count("registered")


def test_slots_are_reused_and_there_are_as_many_as_batches_are_held(lift, cuda):
    loader = make(lift)
    batches = endless(loader)
    for _ in range(50):
        next(batches)
    assert cuda.count("allocated") <= 6
    held = list(itertools.islice(batches, 40))
    assert 40 <= cuda.count("allocated") <= 46
    for step, batch in enumerate(held):
        assert_same(batch, expected(loader, 50 + step))
    del held, batch
    for _ in range(40):
        next(batches)
    assert cuda.count("allocated") - cuda.count("freed") <= 10


def test_kernels_of_another_stream_see_their_batch(lift, cuda, monkeypatch):
    stream = cuda.stream()
    monkeypatch.setattr(kinograph.torch, "_stream_of", lambda _: lambda: stream)
    loader = make(lift, windows={"actions": range(3)})
    found = []
    for _, batch in zip(range(40), endless(loader), strict=False):
        found.append(cuda.read(stream, batch["actions"]))
        del batch
    cuda.synchronize()
    with make(lift, windows={"actions": range(3)}, device=None) as plain:
        wanted = [fake_cuda.sum_of(expected(plain, step)["actions"]) for step in range(40)]
    assert [one.value for one in found] == wanted


def test_tensors_outlive_the_loader(lift, cuda):
    loader = make(lift)
    wanted = expected(loader, 0)
    batch = next(iter(loader))
    view = batch["actions"][2:5]
    loader.close()
    del loader
    gc.collect()
    assert_same(batch, wanted)
    del batch
    gc.collect()
    np.testing.assert_array_equal(view.numpy(), wanted["actions"][2:5])
    assert cuda.count("freed") == cuda.count("allocated") - 1
    del view
    gc.collect()
    assert cuda.count("freed") == cuda.count("allocated")


def test_without_device_memory_the_error_says_what_to_do_and_the_loader_can_be_used_again(
    lift, cuda
):
    loader = make(lift)
    size = sum(tensor.nbytes for tensor in next(iter(loader)).values())
    cuda.limit(12 * size)
    held = []
    with pytest.raises(kinograph.KinographError, match="keep fewer batches"):
        held.extend(itertools.islice(endless(loader), 50))
    held.clear()
    with pytest.raises(kinograph.KinographError, match="still referenced"):
        held.extend(endless(loader))
    assert 5 <= len(held) <= 12
    held.clear()
    cuda.limit(None)
    assert len(list(loader)) == len(loader)


def test_memory_that_cannot_be_page_locked_is_warned_about(lift, cuda):
    cuda.limit_registered(0)
    loader = make(lift)
    with pytest.warns(kinograph.KinographWarning, match="not page-locked.*cuMemHostRegister"):
        batches = list(itertools.islice(loader, 10))
    for step, batch in enumerate(batches):
        assert_same(batch, expected(loader, step))


def test_fixed_addresses_stay_over_epochs_and_restarts(lift, cuda):
    loader = make(lift, fixed_addresses=True, last_batch="drop")
    first = next(iter(loader))
    addresses = {key: tensor.data_ptr() for key, tensor in first.items()}
    for _, batch in zip(range(50), endless(loader), strict=False):
        assert {key: tensor.data_ptr() for key, tensor in batch.items()} == addresses
        place = loader.order.next_index // 8 - 1
        assert_same(first, expected(loader, place))
    loader.load_state_dict(loader.state_dict())
    loader.set_epoch(7)
    batch = next(iter(loader))
    assert_same(first, expected(loader, loader.order.steps(7).start))
    assert batch[CAMERA].data_ptr() == addresses[CAMERA]


def test_a_short_batch_has_fixed_addresses_of_its_own(lift, cuda):
    loader = make(
        lift, fixed_addresses=True, batch_size=50, windows={"actions": range(2), "language": [0]}
    )
    seen = {}
    for _ in range(3):
        for batch in loader:
            seen.setdefault(len(batch["actions"]), set()).add(batch["actions"].data_ptr())
            assert len(batch["language"]) == len(batch["actions"])
    assert len(seen) == 2
    assert all(len(addresses) == 1 for addresses in seen.values())


def test_fixed_addresses_are_refused_where_they_cannot_be(lift, cuda):
    with pytest.raises(kinograph.InvalidArgumentError, match="combined with transforms"):
        make(lift, fixed_addresses=True, transform=dict)
    lengths = kinograph.LengthOrder(lift.samples(WHOLE), batch_size=2)
    with pytest.raises(kinograph.InvalidArgumentError, match="differ in length"):
        kinograph.torch.Loader(lengths, device="cuda", fixed_addresses=True)
    with pytest.raises(kinograph.InvalidArgumentError, match=r"kinograph\.torch\.Loader"):
        kinograph.numpy.Loader(lift, windows=REQUEST, batch_size=8, fixed_addresses=True)


def test_whole_episodes_reuse_slots_that_are_large_enough(lift, cuda):
    def lengths():
        return kinograph.LengthOrder(lift.samples(WHOLE), batch_size=2, seed=1)

    with (
        kinograph.numpy.Loader(lengths()) as plain,
        kinograph.torch.Loader(lengths(), device="cuda") as loader,
    ):
        for _ in range(10):
            for wanted, found in zip(plain, loader, strict=True):
                assert_same(found, wanted)
    del found
    assert cuda.count("allocated") <= 14


def test_a_driver_that_is_not_there_is_an_error_that_says_what_to_do(lift, cuda, monkeypatch):
    monkeypatch.setenv("KINOGRAPH_CUDA_LIBRARY", "/nonexistent/libcuda.so.1")
    with pytest.raises(kinograph.UnsupportedError, match="install NVIDIA's driver"):
        make(lift)


def test_transforms_come_before_the_copy(lift, cuda, monkeypatch):
    class Send:
        clock = None

        def __call__(self, batch):
            return lambda: {key: field.clone() for key, field in batch.items()}

    monkeypatch.setattr(kinograph.torch, "_Transfer", lambda _: Send())
    loader = make(
        lift, windows={"actions": range(2)}, transform=lambda sample: {"x": sample["actions"] * 2}
    )
    batch = next(iter(loader))
    with make(lift, windows={"actions": range(2)}, device=None) as plain:
        wanted = expected(plain, 0)["actions"] * 2
    np.testing.assert_array_equal(batch["x"].numpy(), wanted)
    assert cuda.count("copies") == 0
