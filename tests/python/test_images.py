"""Images and numbers as a network takes them: resized, cropped, as floats, normalised from statistics."""

import gc
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import samples
from PIL import Image

import kinograph
import kinograph.numpy

sys.path.append(str(Path(__file__).parents[1]))
from spec import order as spec

CAMERA = "obs/agentview_image"
REQUEST = {CAMERA: range(-1, 1), "obs/joints": [-0.12, 0.0], "actions": range(6)}
SEED = 3


def make(dataset, **options):
    return kinograph.numpy.Loader(
        dataset, **{"windows": REQUEST, "batch_size": 8, "seed": SEED} | options
    )


def batches(dataset, count=4, **options):
    with make(dataset, **options) as loader:
        found = iter(loader)
        return [next(found) for _ in range(count)]


def joined(parts, key):
    return np.concatenate([part[key] for part in parts])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Smooth images with edges, as cameras give them."""
    rows, columns = np.mgrid[0:96, 0:128].astype(float)
    frames = []
    for step in range(30):
        waves = [
            127 + 90 * np.sin((rows * (c + 1) + columns * 2 + step * 5) / 17) for c in range(3)
        ]
        frame = np.stack(waves, axis=-1)
        frame[20 + step : 50 + step, 30:60] = [250, 20, 90]
        frames.append(frame.clip(0, 255).astype(np.uint8))
    streams = {"cam": np.stack(frames), "actions": np.linspace(-1, 1, 90).reshape(30, 3)}
    return samples.write(tmp_path_factory.mktemp("photos") / "photos.kino", [streams])


@pytest.mark.parametrize("size", [(48, 64), (224, 224), (31, 100), (96, 40), (7, 5), (200, 300)])
def test_resizing_is_that_of_pillow_to_one_step(photos, size):
    request = {"cam": [0], "actions": [0]}
    (plain,) = batches(photos, 1, windows=request)
    (found,) = batches(photos, 1, windows=request, image_size=size)
    assert found["cam"].shape == (8, 1, *size, 3)
    for frame, image in zip(plain["cam"][:, 0], found["cam"][:, 0], strict=True):
        wanted = Image.fromarray(frame).resize(size[::-1], Image.Resampling.BILINEAR)
        apart = np.abs(np.asarray(wanted).astype(int) - image)
        assert apart.max() <= 1
        assert apart.mean() < 0.15


def test_the_same_size_is_the_same_image(lift):
    (plain,), (found,) = batches(lift, 1), batches(lift, 1, image_size=(48, 64))
    np.testing.assert_array_equal(found[CAMERA], plain[CAMERA])


@pytest.mark.parametrize("crop", [(48, 64), (40, 60), (41, 59), (1, 1)])
def test_a_centre_crop_is_a_slice(lift, crop):
    top, left = (48 - crop[0]) // 2, (64 - crop[1]) // 2
    for layout in ("hwc", "chw"):
        (plain,) = batches(lift, 1, image_layout=layout)
        (found,) = batches(lift, 1, image_layout=layout, image_crop={CAMERA: crop})
        rows, columns = slice(top, top + crop[0]), slice(left, left + crop[1])
        part = (..., rows, columns) if layout == "chw" else (..., rows, columns, slice(None))
        np.testing.assert_array_equal(found[CAMERA], plain[CAMERA][part])


def cut_by_the_specification(plain, first_index, size):
    """Cut each sample of a batch where the second implementation of the order says."""
    blake3 = pytest.importorskip("blake3").blake3
    name_hash = blake3(f"crop/{CAMERA}".encode()).digest()
    of = plain.shape[2:4]
    cuts = []
    for row, sample in enumerate(plain):
        top, left = spec.crop(SEED, first_index + row, name_hash, of, size)
        cuts.append(sample[:, top : top + size[0], left : left + size[1]])
    return np.stack(cuts)


def test_random_crops_are_slices_where_the_specification_says(lift):
    size, options = (40, 44), {"image_crop": (40, 44), "random_crop": True}
    steps = len(make(lift)) * 2
    plain = [batch for loader in [make(lift)] for _ in range(2) for batch in loader]
    found = [batch for loader in [make(lift, **options)] for _ in range(2) for batch in loader]
    assert len(plain) == len(found) >= steps - 1
    for step, (whole, cut) in enumerate(zip(plain, found, strict=True)):
        wanted = cut_by_the_specification(whole[CAMERA], step * 8, size)
        np.testing.assert_array_equal(cut[CAMERA], wanted)
        np.testing.assert_array_equal(cut["actions"], whole["actions"])


SHAPED = {
    "image_size": (44, 50),
    "image_crop": (40, 44),
    "random_crop": True,
    "image_dtype": "float32",
    "image_layout": "chw",
    "normalize": "mean_std",
}


@pytest.mark.filterwarnings("ignore::kinograph.KinographWarning")
def test_threads_memory_ranks_and_stops_change_nothing(lift):
    options = {**SHAPED, "batch_size": None, "global_batch_size": 12}
    wanted = batches(lift, 10, **options)
    for other in ({"threads": 1, "prefetch": 1}, {"memory": 1}, {"threads": 4, "memory": "200kB"}):
        for one, two in zip(wanted, batches(lift, 10, **options, **other), strict=True):
            for key, array in one.items():
                np.testing.assert_array_equal(two[key], array)
    parts = [batches(lift, 10, rank=rank, world_size=3, **options) for rank in range(3)]
    for one, *ranks in zip(wanted, *parts, strict=True):
        for key, array in one.items():
            np.testing.assert_array_equal(joined(ranks, key), array)
    loader = make(lift, **options)
    steps = iter(loader)
    for _ in range(4):
        next(steps)
    again = make(lift, **options)
    again.load_state_dict(loader.state_dict())
    copied = pickle.loads(pickle.dumps(again))
    for other in (again, copied):
        following = next(iter(other))
        for key, array in wanted[4].items():
            np.testing.assert_array_equal(following[key], array)


def test_the_form_of_images_does_not_change_which_samples_come(lift):
    for one, two in zip(batches(lift), batches(lift, **SHAPED, memory="1GB"), strict=True):
        np.testing.assert_array_equal(one["actions_is_pad"], two["actions_is_pad"])
    assert make(lift).order.id == make(lift, **SHAPED).order.id


def test_the_pool_holds_the_small_frames(lift):
    frames = 60 + 45 + 73
    peaks = {}
    for size in (None, (12, 16)):
        loader = make(lift, windows={CAMERA: [0]}, image_size=size)
        list(loader)
        peaks[size] = loader.report().pool_peak_bytes
    assert peaks == {None: frames * 48 * 64 * 3, (12, 16): frames * 12 * 16 * 3}


def test_recordings_of_two_sizes_are_one_batch_when_resized(tmp_path, lift):
    other = samples.lift_like(40, seed=9)
    other[CAMERA] = samples.image(40, height=60, width=52, seed=9)
    other = samples.write(tmp_path / "other.kino", [other])
    both = [lift.samples(REQUEST), other.samples(REQUEST)]
    with pytest.raises(kinograph.InvalidArgumentError, match="must be alike"):
        kinograph.numpy.Loader(both, batch_size=8)
    loader = kinograph.numpy.Loader(both, batch_size=8, image_size=(32, 32))
    assert next(iter(loader))[CAMERA].shape == (8, 2, 32, 32, 3)
    loader = kinograph.numpy.Loader(both, batch_size=8, image_crop=(40, 40), random_crop=True)
    batch = next(iter(loader))
    assert {int(place["source"]) for place in loader.order.batch(0)} == {0, 1}
    for row, place in enumerate(loader.order.batch(0)):
        plain = loader.order.sources[place["source"]].windows[int(place["sample"])][CAMERA]
        height, width = plain.shape[1] - 39, plain.shape[2] - 39
        found = batch[CAMERA][row]
        assert any(
            np.array_equal(found, plain[:, top : top + 40, left : left + 40])
            for top in range(height)
            for left in range(width)
        )


def test_every_byte_becomes_the_float_that_torchvision_gives(tmp_path):
    bytes_ = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    streams = {"cam": bytes_.repeat(4, axis=0), "actions": np.zeros((4, 1))}
    dataset = samples.write(tmp_path / "bytes.kino", [streams])
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    options = {"windows": {"cam": [0], "actions": [0]}, "batch_size": 1, "shuffle": False}
    exact = bytes_.astype(np.float32) / np.float32(255)
    normal = (exact - np.float32(mean)) / np.float32(std)
    for dtype in ("float32", "float16"):
        for layout in ("hwc", "chw"):
            form = {"image_dtype": dtype, "image_layout": layout}
            plain = next(iter(make(dataset, **options, **form)))["cam"]
            normalized = next(
                iter(make(dataset, **options, **form, normalize={"cam": (mean, std)}))
            )["cam"]
            for found, wanted in ((plain, exact), (normalized, normal)):
                planes = wanted if layout == "hwc" else np.moveaxis(wanted, -1, -3)
                assert found.dtype == dtype
                np.testing.assert_array_equal(found[0], planes.astype(dtype))


def test_normalisation_is_that_of_the_stored_statistics(lift):
    plain = batches(lift)
    for method in ("mean_std", "min_max"):
        loader = make(lift, normalize=method, image_dtype="float32")
        assert list(loader.scales) == [CAMERA, "obs/joints", "actions"]
        found = next(iter(loader))
        for key in ("obs/joints", "actions"):
            stats = lift.stats[key]
            values = plain[0][key].astype(np.float64)
            if method == "mean_std":
                wanted = (values - stats.mean) / stats.std
            else:
                wanted = (values - (stats.min + stats.max) / 2) / ((stats.max - stats.min) / 2)
            assert found[key].dtype == np.float32
            np.testing.assert_array_equal(found[key], wanted.astype(np.float32))
            if method == "min_max":
                assert np.abs(found[key]).max() <= 1
            undone = found[key] * loader.scales[key].scale + loader.scales[key].offset
            np.testing.assert_allclose(undone, values, rtol=1e-5, atol=1e-5)
        stats, pixels = lift.stats[CAMERA], np.float32(plain[0][CAMERA]) / np.float32(255)
        if method == "mean_std":
            offset, scale = stats.mean / 255, stats.std / 255
        else:
            offset = (stats.min + stats.max) / 510
            scale = (stats.max - stats.min) / 510
        np.testing.assert_allclose(loader.scales[CAMERA].offset, offset)
        np.testing.assert_allclose(loader.scales[CAMERA].scale, scale)
        wanted = (pixels - np.float32(offset)) / np.float32(scale)
        np.testing.assert_allclose(found[CAMERA], wanted, atol=1e-6)


def test_keys_are_normalised_each_in_its_way_and_others_stay(lift):
    request = {**REQUEST, "dones": [0]}
    how = {"actions": "min_max", "obs/joints": (np.arange(7.0), 2.0), "dones": "mean_std"}
    loader = make(lift, windows=request, normalize=how)
    found, plain = next(iter(loader)), batches(lift, 1, windows=request)[0]
    np.testing.assert_array_equal(found[CAMERA], plain[CAMERA])
    wanted = ((plain["obs/joints"].astype(float) - np.arange(7)) / 2).astype(np.float32)
    np.testing.assert_array_equal(found["obs/joints"], wanted)
    assert found["dones"].dtype == np.float32
    assert loader.scales["obs/joints"].scale.tolist() == [2.0] * 7
    # Bytes are no floats: one word for all leaves cameras of bytes and whole numbers out.
    assert list(make(lift, windows=request, normalize="mean_std").scales) == [
        "obs/joints",
        "actions",
    ]


def test_what_does_not_move_and_what_is_missing_stay_defined(tmp_path):
    values = np.ones((20, 4))
    values[:, 1] = np.nan
    values[3, 2] = np.nan
    values[:, 3] = np.linspace(0, 10, 20)
    dataset = samples.write(tmp_path / "still.kino", [{"actions": values}])
    for method in ("mean_std", "min_max"):
        loader = make(
            dataset,
            windows={"actions": kinograph.Window(steps=[0, 30], pad="zero")},
            batch_size=20,
            shuffle=False,
            normalize=method,
        )
        found = next(iter(loader))["actions"]
        assert (found[:, 0, 0] == 0).all()
        assert np.isnan(found[:, 0, 1]).all()
        assert np.isnan(found[3, 0, 2])
        assert (np.delete(found[:, 0, 2], 3) == 0).all()
        assert np.isfinite(found[:, 0, 3]).all()
        # Padding is zeros, normalised or not.
        assert (found[:, 1] == 0).all()
        assert loader.scales["actions"].scale[:3].tolist() == [1.0] * 3


def test_a_mixture_has_the_statistics_of_all_frames_together(tmp_path, lift):
    far = samples.lift_like(200, seed=8)
    far["actions"] = far["actions"] * 3 + 5
    far["actions"][:, 0] = np.nan
    other = samples.write(tmp_path / "far.kino", [far])
    mine = np.concatenate([episode["actions"][:] for episode in lift])
    both = np.concatenate([mine, far["actions"]])
    request = {"actions": [0]}
    # A dataset that stands in a mixture twice counts once.
    sources = [lift.samples(request), other.samples(request), lift.samples(request, episodes=[0])]
    scales = kinograph.numpy.Loader(sources, batch_size=8, normalize="mean_std").scales["actions"]
    np.testing.assert_allclose(scales.offset, np.nanmean(both, axis=0), rtol=1e-9)
    np.testing.assert_allclose(scales.scale, np.nanstd(both, axis=0), rtol=1e-9)
    scales = kinograph.numpy.Loader(sources, batch_size=8, normalize="min_max").scales["actions"]
    least, most = np.nanmin(both, axis=0), np.nanmax(both, axis=0)
    np.testing.assert_allclose(scales.offset, (least + most) / 2)
    np.testing.assert_allclose(scales.scale, (most - least) / 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"image_crop": (49, 64)}, "nearest legal value 48 × 64"),
        ({"image_size": (20, 20), "image_crop": (21, 20)}, "nearest legal value 20 × 20"),
        ({"image_size": 84}, "height, width"),
        ({"image_size": (84, 84, 3)}, "height, width"),
        ({"image_size": (0, 84)}, "from 1"),
        ({"image_size": (84, 84.0)}, "whole number"),
        ({"image_size": (100_000, 84)}, "nearest legal value 16384 × 84"),
        ({"image_size": {"wrist": (84, 84)}}, "no key `wrist` to resize"),
        ({"image_crop": {"actions": (4, 4)}}, "not an image"),
        ({"random_crop": True}, "image_crop"),
        ({"normalize": "stats"}, "mean_std, min_max"),
        ({"normalize": 3}, "a dict by key"),
        ({"normalize": {"x": "mean_std"}}, "no key `x`"),
        ({"normalize": {"actions": "gaussian"}}, "mean_std, min_max"),
        ({"normalize": {"actions": 3.0}}, "deviations"),
        ({"normalize": {"actions": ([0.0] * 6, [1.0] * 6)}}, "7 elements"),
        ({"normalize": {"actions": ("a", "b")}}, "7 elements"),
        ({"normalize": {"actions": (0.0, 0.0)}}, "above 0"),
        ({"normalize": {CAMERA: "mean_std"}}, "float32"),
        ({"normalize": "mean_std", "windows": {"dones": [0]}}, "no key has floats"),
        ({"normalize": {"language": "mean_std"}, "windows": {"language": [0]}}, "text"),
    ],
    ids=str,
)
def test_wrong_requests_are_refused_with_advice(lift, options, says):
    gc.collect()
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        make(lift, **options)
