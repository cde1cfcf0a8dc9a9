"""What a request adds to the batches of a loader: where samples come from, and depth in the size of the images."""

import numpy as np
import pytest
import samples

import kinograph
import kinograph.numpy
from kinograph import Window


@pytest.fixture(scope="module")
def depth(tmp_path_factory):
    """A camera of bytes, and depth of every layout beside it."""
    rng = np.random.default_rng(8)
    streams = {
        "cam": rng.integers(0, 256, (12, 20, 30, 3), dtype=np.uint8),
        "depth": rng.integers(0, 5000, (12, 20, 30), dtype=np.uint16),
        "depth/metres": rng.random((12, 20, 30, 1)).astype(np.float32),
        "tactile": rng.random((12, 20, 30)).astype(np.float32),
        "action": rng.random((12, 3)),
    }
    kinds = {"depth": "depth", "depth/metres": "depth", "tactile": "vector"}
    path = tmp_path_factory.mktemp("depth") / "d.kino"
    with kinograph.Writer(path) as writer:
        writer.add_episode(streams, rate_hz=10.0, kinds=kinds)
    return streams, kinograph.open(path)


def nearest(frames, height, width):
    """Take the pixel under the centre of each new one, as torch's nearest-exact does."""
    rows = np.floor((np.arange(height) + 0.5) * frames.shape[1] / height).astype(int)
    columns = np.floor((np.arange(width) + 0.5) * frames.shape[2] / width).astype(int)
    return frames[:, rows][:, :, columns]


def first_batch(dataset, **options):
    request = dict.fromkeys(dataset.streams, 0)
    with kinograph.numpy.Loader(
        dataset, windows=request, batch_size=12, include=["frame"], **options
    ) as loader:
        return next(iter(loader))


@pytest.mark.parametrize("size", [(10, 15), (7, 11), (40, 31), (1, 1), (20, 30)])
def test_depth_is_resized_with_the_images_to_the_nearest_pixel(depth, size):
    streams, dataset = depth
    batch = first_batch(dataset, images={"size": size})
    assert batch["cam"].shape == (12, *size, 3)
    for name in ("depth", "depth/metres"):
        expected = nearest(streams[name], *size)[batch["frame"]]
        assert samples.same_bits(batch[name], expected), name
    assert samples.same_bits(batch["tactile"], streams["tactile"][batch["frame"]])


def test_depth_is_cropped_as_images_are(depth):
    streams, dataset = depth
    frames = first_batch(dataset, images={"size": (16, 24), "crop": (11, 9)})
    expected = nearest(streams["depth"], 16, 24)[:, 2:13, 7:16]
    assert samples.same_bits(frames["depth"], expected[frames["frame"]])
    batch = first_batch(dataset, images={"crop": (13, 17), "random_crop": True}, seed=4)
    for name in ("depth", "depth/metres"):
        places = set()
        for found, frame in zip(batch[name], batch["frame"], strict=True):
            crops = np.lib.stride_tricks.sliding_window_view(
                streams[name][frame].reshape(20, 30), (13, 17)
            )
            same = (crops == found.reshape(13, 17)).all(axis=(2, 3))
            ((top, left),) = np.argwhere(same)
            places.add((int(top), int(left)))
        assert len(places) > 3, "every sample has a place of its own"


def test_one_key_of_depth_can_be_resized_alone(depth):
    streams, dataset = depth
    batch = first_batch(dataset, images={"size": {"depth": (5, 6)}})
    assert samples.same_bits(batch["depth"], nearest(streams["depth"], 5, 6)[batch["frame"]])
    assert batch["cam"].shape == (12, 20, 30, 3)
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"`tactile` is .*not an image or depth"
    ):
        first_batch(dataset, images={"size": {"tactile": (5, 6)}})


def test_batches_say_where_their_samples_come_from(lift):
    request = {"actions": range(4), "obs/joints": Window(steps=[0], single=True)}
    windows = lift.samples(
        request, skip_first=2, include=["sample", "task", "frame", "episode"], split="valid"
    )
    seen = []
    with kinograph.numpy.Loader(windows, batch_size=8, seed=3) as loader:
        for batch in loader:
            assert isinstance(batch["task"], list)
            for slot, index in enumerate(batch["sample"].tolist()):
                expected = windows[index]
                for key in expected:
                    assert np.array_equal(batch[key][slot], expected[key]), key
            assert batch["episode_index"].dtype == np.int64
            seen += batch["sample"].tolist()
    assert set(seen) == set(range(len(windows)))


def test_the_same_options_are_taken_by_the_loader_itself(lift):
    with kinograph.numpy.Loader(
        lift, windows={"actions": 0}, include=["task", "episode"], batch_size=4, shuffle=False
    ) as loader:
        batch = next(iter(loader))
    assert batch["task"] == ["lift the cube"] * 4
    assert batch["episode"] == ["demo_0"] * 4
    assert batch["episode_index"].tolist() == [0] * 4
    assert np.array_equal(batch["actions"], lift[0]["actions"][:4])
