"""The loader for jax, compared batch by batch with the one for numpy."""

import gc
import os
import pickle

import numpy as np
import pytest
from optional import optional
from test_loader import CAMERA, REQUEST, damage, threads_of_loaders

import kinograph
import kinograph.numpy

# Two devices to shard over, both on the CPU.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"
jax = optional("jax")

import kinograph.jax  # noqa: E402 (needs jax)

OPTIONS = {"windows": REQUEST, "batch_size": 8, "seed": 3}


def make(dataset, **options):
    return kinograph.jax.Loader(dataset, **OPTIONS | options)


def sharding():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))


@pytest.fixture(params=["lent", "device", "sharding"])
def device(request):
    return {"lent": None, "device": jax.devices()[1], "sharding": sharding()}[request.param]


def narrow(array):
    """Convert 64-bit values to the dtype that jax uses for them."""
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for key, array in wanted.items():
        if isinstance(array, list):
            assert found[key] == array
            continue
        assert isinstance(found[key], jax.Array)
        assert found[key].dtype == narrow(array).dtype
        np.testing.assert_array_equal(np.asarray(found[key]), narrow(array), err_msg=key)


def test_batches_equal_those_for_numpy(lift, device):
    request = REQUEST | {"language": [0]}
    with (
        make(lift, device=device, windows=request) as loader,
        kinograph.numpy.Loader(lift, **OPTIONS | {"windows": request}) as plain,
    ):
        for _ in range(2):
            for batch, wanted in zip(loader, plain, strict=True):
                assert_same(batch, wanted)
                where = {jax.devices()[0]} if device is None else None
                where = {device} if isinstance(device, jax.Device) else where
                assert batch[CAMERA].devices() == (where or set(jax.devices()))


def test_an_array_shares_the_loaders_memory_and_keeps_it_alive(lift):
    loader = make(lift, windows={CAMERA: [0], "obs/joints": range(4)})
    addresses = []
    to_array = loader._to_array

    def watch(dtype, shape, data):
        addresses.append(data.__array_interface__["data"][0])
        return to_array(dtype, shape, data)

    loader._to_array = watch
    batches = [batch for _, batch in zip(range(6), loader, strict=False)]
    found = [array.unsafe_buffer_pointer() for batch in batches for array in batch.values()]
    assert found == addresses
    assert len(set(found)) == len(found)
    kept = {key: np.array(array) for key, array in batches[0].items()}
    del batches[1:]
    gc.collect()
    for _, _ in zip(range(12), loader, strict=False):
        pass
    loader.close()
    assert_same(batches[0], kept)


def test_every_image_dtype(lift):
    plain = np.asarray(next(iter(make(lift)))[CAMERA])
    for name in ("float32", "float16", "bfloat16"):
        image = next(iter(make(lift, images={"dtype": name, "layout": "chw"})))[CAMERA]
        assert image.dtype == name
        wanted = np.moveaxis(plain.astype(np.float64) / 255, -1, -3).astype(image.dtype)
        np.testing.assert_array_equal(np.asarray(image), wanted)


def test_a_restart_continues_with_the_very_next_batch(lift, device):
    loader = make(lift, device=device)
    steps = iter(loader)
    for _ in range(5):
        next(steps)
    again = make(lift, device=device)
    again.load_state_dict(loader.state_dict())
    wanted = {key: np.asarray(array) for key, array in next(steps).items()}
    assert_same(next(iter(again)), wanted)


def test_errors_are_raised(lift, tmp_path, device):
    with pytest.raises(kinograph.CorruptDataError, match="checksum"):
        list(make(damage(lift, tmp_path), device=device))
    with pytest.raises(kinograph.InvalidArgumentError, match="device is 'cpu'"):
        make(lift, device="cpu")


def test_no_thread_is_left_behind(lift, device):
    gc.collect()
    before = threads_of_loaders()
    loader = make(lift, device=device)
    next(iter(loader))
    del loader
    gc.collect()
    assert threads_of_loaders() == before


def test_a_loader_can_be_pickled_only_without_a_device(lift):
    loader = make(lift)
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    wanted = {key: np.asarray(array) for key, array in next(iter(loader)).items()}
    assert_same(next(iter(again)), wanted)
    with pytest.raises(kinograph.InvalidArgumentError, match="make it where it is used"):
        pickle.dumps(make(lift, device=jax.devices()[0]))
