"""Images and vectors as network inputs: resized, cropped, as floats, normalised with the statistics."""

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
    """Smooth images with edges, like those of cameras."""
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
def test_resizing_matches_pillow_to_one_level(photos, size):
    request = {"cam": [0], "actions": [0]}
    (plain,) = batches(photos, 1, windows=request)
    (found,) = batches(photos, 1, windows=request, images={"size": size})
    assert found["cam"].shape == (8, 1, *size, 3)
    for frame, image in zip(plain["cam"][:, 0], found["cam"][:, 0], strict=True):
        wanted = Image.fromarray(frame).resize(size[::-1], Image.Resampling.BILINEAR)
        apart = np.abs(np.asarray(wanted).astype(int) - image)
        assert apart.max() <= 1
        assert apart.mean() < 0.15


def test_the_same_size_is_the_same_image(lift):
    (plain,), (found,) = batches(lift, 1), batches(lift, 1, images={"size": (48, 64)})
    np.testing.assert_array_equal(found[CAMERA], plain[CAMERA])


@pytest.mark.parametrize("crop", [(48, 64), (40, 60), (41, 59), (1, 1)])
def test_a_centre_crop_is_a_slice(lift, crop):
    top, left = (48 - crop[0]) // 2, (64 - crop[1]) // 2
    for layout in ("hwc", "chw"):
        (plain,) = batches(lift, 1, images={"layout": layout})
        (found,) = batches(lift, 1, images={"layout": layout, "crop": {CAMERA: crop}})
        rows, columns = slice(top, top + crop[0]), slice(left, left + crop[1])
        part = (..., rows, columns) if layout == "chw" else (..., rows, columns, slice(None))
        np.testing.assert_array_equal(found[CAMERA], plain[CAMERA][part])


def crop_by_the_specification(plain, first_index, size):
    """Crop each sample of a batch where the second implementation of the order says."""
    blake3 = pytest.importorskip("blake3").blake3
    name_hash = blake3(f"crop/{CAMERA}".encode()).digest()
    of = plain.shape[2:4]
    crops = []
    for row, sample in enumerate(plain):
        top, left = spec.crop(SEED, first_index + row, name_hash, of, size)
        crops.append(sample[:, top : top + size[0], left : left + size[1]])
    return np.stack(crops)


def test_random_crops_are_slices_where_the_specification_says(lift):
    size, options = (40, 44), {"images": {"crop": (40, 44), "random_crop": True}}
    steps = len(make(lift)) * 2
    plain = [batch for loader in [make(lift)] for _ in range(2) for batch in loader]
    found = [batch for loader in [make(lift, **options)] for _ in range(2) for batch in loader]
    assert len(plain) == len(found) >= steps - 1
    for step, (whole, cropped) in enumerate(zip(plain, found, strict=True)):
        wanted = crop_by_the_specification(whole[CAMERA], step * 8, size)
        np.testing.assert_array_equal(cropped[CAMERA], wanted)
        np.testing.assert_array_equal(cropped["actions"], whole["actions"])


SHAPED = {
    "images": {
        "size": (44, 50),
        "crop": (40, 44),
        "random_crop": True,
        "dtype": "float32",
        "layout": "chw",
    },
    "normalize": "mean_std",
}


@pytest.mark.filterwarnings("ignore:each frame will be decoded")
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


def test_image_options_do_not_change_the_order(lift):
    for one, two in zip(batches(lift), batches(lift, **SHAPED, memory="1GB"), strict=True):
        np.testing.assert_array_equal(one["actions_is_pad"], two["actions_is_pad"])
    assert make(lift).order.id == make(lift, **SHAPED).order.id


def test_the_cache_holds_resized_frames(lift):
    frames = 60 + 45 + 73
    peaks = {}
    for size in (None, (12, 16)):
        loader = make(lift, windows={CAMERA: [0]}, images={"size": size})
        list(loader)
        peaks[size] = loader.report().cache_peak_bytes
    assert peaks == {None: frames * 48 * 64 * 3, (12, 16): frames * 12 * 16 * 3}


def test_recordings_of_two_sizes_share_a_batch_when_resized_or_cropped(tmp_path, lift):
    other = samples.lift_like(40, seed=9)
    other[CAMERA] = samples.image(40, height=60, width=52, seed=9)
    other = samples.write(tmp_path / "other.kino", [other])
    both = [lift.samples(REQUEST), other.samples(REQUEST)]
    with pytest.raises(kinograph.InvalidArgumentError, match="must be alike"):
        kinograph.numpy.Loader(both, batch_size=8)
    loader = kinograph.numpy.Loader(both, batch_size=8, images={"size": (32, 32)})
    assert next(iter(loader))[CAMERA].shape == (8, 2, 32, 32, 3)
    loader = kinograph.numpy.Loader(
        both, batch_size=8, images={"crop": (40, 40), "random_crop": True}
    )
    batch = next(iter(loader))
    assert {int(place["source"]) for place in loader.order.batch(0)} == {0, 1}
    for row, place in enumerate(loader.order.batch(0)):
        plain = loader.order.sources[place["source"]].samples[int(place["sample"])][CAMERA]
        height, width = plain.shape[1] - 39, plain.shape[2] - 39
        found = batch[CAMERA][row]
        assert any(
            np.array_equal(found, plain[:, top : top + 40, left : left + 40])
            for top in range(height)
            for left in range(width)
        )


def test_every_byte_becomes_the_same_float_as_in_torchvision(tmp_path):
    bytes_ = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    streams = {"cam": bytes_.repeat(4, axis=0), "actions": np.zeros((4, 1))}
    dataset = samples.write(tmp_path / "bytes.kino", [streams])
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    options = {"windows": {"cam": [0], "actions": [0]}, "batch_size": 1, "shuffle": False}
    exact = bytes_.astype(np.float32) / np.float32(255)
    normal = (exact - np.float32(mean)) / np.float32(std)
    for dtype in ("float32", "float16"):
        for layout in ("hwc", "chw"):
            form = {"images": {"dtype": dtype, "layout": layout}}
            plain = next(iter(make(dataset, **options, **form)))["cam"]
            normalized = next(
                iter(make(dataset, **options, **form, normalize={"cam": (mean, std)}))
            )["cam"]
            for found, wanted in ((plain, exact), (normalized, normal)):
                planes = wanted if layout == "hwc" else np.moveaxis(wanted, -1, -3)
                assert found.dtype == dtype
                np.testing.assert_array_equal(found[0], planes.astype(dtype))


def test_normalisation_uses_the_stored_statistics(lift):
    plain = batches(lift)
    for method in ("mean_std", "min_max"):
        loader = make(lift, normalize=method, images={"dtype": "float32"})
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


def test_each_key_is_normalised_its_own_way_and_others_are_unchanged(lift):
    request = {**REQUEST, "dones": [0]}
    how = {"actions": "min_max", "obs/joints": (np.arange(7.0), 2.0), "dones": "mean_std"}
    loader = make(lift, windows=request, normalize=how)
    found, plain = next(iter(loader)), batches(lift, 1, windows=request)[0]
    np.testing.assert_array_equal(found[CAMERA], plain[CAMERA])
    wanted = ((plain["obs/joints"].astype(float) - np.arange(7)) / 2).astype(np.float32)
    np.testing.assert_array_equal(found["obs/joints"], wanted)
    assert found["dones"].dtype == np.float32
    assert loader.scales["obs/joints"].scale.tolist() == [2.0] * 7
    # A method for all keys applies only to float streams: uint8 cameras and integers are skipped.
    assert list(make(lift, windows=request, normalize="mean_std").scales) == [
        "obs/joints",
        "actions",
    ]


def test_constant_and_nan_dimensions_are_well_defined(tmp_path):
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
        # Padding is zero, normalised or not.
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
    # A dataset that appears twice in a mixture counts once.
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
        ({"images": {"crop": (49, 64)}}, "the nearest valid size is 48 × 64"),
        ({"images": {"size": (20, 20), "crop": (21, 20)}}, "the nearest valid size is 20 × 20"),
        ({"images": {"size": 84}}, "height, width"),
        ({"images": {"size": (84, 84, 3)}}, "height, width"),
        ({"images": {"size": (0, 84)}}, "from 1"),
        ({"images": {"size": (84, 84.0)}}, "whole number"),
        ({"images": {"size": (100_000, 84)}}, "the nearest valid size is 16384 × 84"),
        ({"images": {"size": {"wrist": (84, 84)}}}, "cannot resize `wrist`: there is no such key"),
        ({"images": {"crop": {"actions": (4, 4)}}}, "not an image"),
        ({"images": {"random_crop": True}}, "random_crop needs `crop`"),
        ({"normalize": "stats"}, "mean_std, min_max"),
        ({"normalize": 3}, "a dict of key to method"),
        ({"normalize": {"x": "mean_std"}}, "no key `x`"),
        ({"normalize": {"actions": "gaussian"}}, "mean_std, min_max"),
        ({"normalize": {"actions": 3.0}}, "stds"),
        ({"normalize": {"actions": ([0.0] * 6, [1.0] * 6)}}, "7 elements"),
        ({"normalize": {"actions": ("a", "b")}}, "7 elements"),
        ({"normalize": {"actions": (0.0, 0.0)}}, "above 0"),
        ({"normalize": {CAMERA: "mean_std"}}, "float32"),
        ({"normalize": "mean_std", "windows": {"dones": [0]}}, "no key is a float"),
        ({"normalize": {"language": "mean_std"}, "windows": {"language": [0]}}, "text"),
    ],
    ids=str,
)
def test_invalid_requests_are_refused_with_advice(lift, options, says):
    gc.collect()
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        make(lift, **options)
