"""Random JPEG, compared with Pillow's, at the indices and qualities of the second implementation of the order."""

import dataclasses
import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import samples
from optional import optional
from PIL import Image

import kinograph
import kinograph.numpy

sys.path.append(str(Path(__file__).parents[1]))
from spec import order as spec

blake3 = pytest.importorskip("blake3").blake3

SEED = 3
CAMERA, WRIST = "cam/front", "cam/wrist"
REQUEST = {CAMERA: [-1, 0], WRIST: [0], "depth": [0], "actions": range(3), "ir": [0]}
LENGTHS = (20, 13, 26)


def through_pillow(image, quality, subsampling="4:2:0"):
    """Compress and decode an image."""
    file = io.BytesIO()
    grey = image.shape[-1] == 1
    given = {} if grey else {"subsampling": subsampling}
    Image.fromarray(image[..., 0] if grey else image).save(file, "JPEG", quality=quality, **given)
    return np.asarray(Image.open(file)).reshape(image.shape)


def episode(length, seed):
    """Two cameras, a grey one and depth in millimetres."""
    rng = np.random.default_rng(seed)
    steps = np.arange(length).reshape(-1, 1, 1, 1)

    def scene(height, width, channels):
        rows, columns, of = np.ogrid[:height, :width, :channels]
        waves = 120 + 80 * np.sin((rows * (of + 1) + columns * 2 + steps * 3 + seed) / 9.0)
        return (waves + rng.integers(-20, 20, waves.shape)).clip(0, 255).astype(np.uint8)

    return {
        CAMERA: scene(45, 61, 3),
        WRIST: scene(32, 40, 3),
        "ir": scene(21, 30, 1),
        "depth": scene(24, 30, 1)[..., 0].astype(np.uint16) * 10,
        "actions": rng.normal(size=(length, 3)),
    }


EPISODES = [episode(length, seed) for seed, length in enumerate(LENGTHS)]


def write(path, change=lambda image: image):
    """Write the episodes with other images."""
    with kinograph.Writer(path) as writer:
        for one in EPISODES:
            streams = dict(one)
            for key in (CAMERA, WRIST, "ir"):
                streams[key] = np.stack([change(image) for image in one[key]])
            writer.add_episode(streams, rate_hz=20.0, kinds={"depth": "depth"})
    return kinograph.open(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("random_jpeg")


@pytest.fixture(scope="module")
def dataset(folder):
    return write(folder / "plain.kino")


@pytest.fixture(scope="module")
def compressed(folder):
    """The dataset after Pillow's JPEG, by quality."""

    def of(quality):
        return write(
            folder / f"q{quality}.kino", change=lambda image: through_pillow(image, quality)
        )

    return {quality: of(quality) for quality in (40, 41, 42)}


JPEG = kinograph.RandomJpeg(quality=(40, 42), p=0.6)


def loader(dataset, **options):
    given = {"windows": REQUEST, "batch_size": 8, "seed": SEED, "last_batch": "wrap"}
    return kinograph.numpy.Loader(dataset, **given | options)


def epochs(dataset, count=2, **options):
    """Load epochs, as one array per key."""
    with loader(dataset, **options) as one:
        found = [batch for _ in range(count) for batch in one]
    return {key: np.concatenate([batch[key] for batch in found]) for key in found[0]}


def quality_at(key, index, jpeg=JPEG, seed=SEED):
    name_hash = blake3(f"jpeg/{key}".encode()).digest()
    return spec.jpeg(seed, index, name_hash, jpeg.p, jpeg.quality)


def mixed(plain, compressed, keys, jpeg=JPEG):
    """Take each sample of each key from the load that the specification says."""
    mixed = {key: array.copy() for key, array in plain.items()}
    for key in keys:
        for index in range(len(plain[key])):
            quality = quality_at(key, index, jpeg)
            if quality is not None:
                mixed[key][index] = compressed[quality][key][index]
    return mixed


def check_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for key, array in wanted.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


SIZES = {CAMERA: (30, 33), WRIST: (48, 40), "ir": (21, 30), "depth": (12, 15)}
CROPS = {CAMERA: (24, 27), WRIST: (30, 38), "ir": (16, 16), "depth": (10, 10)}


@pytest.mark.parametrize(
    "images",
    [
        {},
        {"layout": "chw", "dtype": "float32"},
        {"size": SIZES},
        {"crop": CROPS},
        {"size": SIZES, "crop": CROPS, "layout": "chw"},
        {"size": SIZES, "crop": CROPS, "random_crop": True, "dtype": "float16"},
    ],
    ids=str,
)
def test_images_are_pillows_and_then_resized_and_cropped_as_always(dataset, compressed, images):
    plain = epochs(dataset, images=images)
    all_compressed = {q: epochs(one, images=images) for q, one in compressed.items()}
    found = epochs(dataset, images={**images, "random_jpeg": JPEG})
    wanted = mixed(plain, all_compressed, [CAMERA, WRIST, "ir"])
    check_equal(found, wanted)
    assert (wanted[CAMERA] != plain[CAMERA]).any()


def cropped(images, size, key, random_crop):
    """Crop images of [samples, steps, height, width, channels]."""
    crops = []
    of = images.shape[2:4]
    for index, image in enumerate(images):
        top, left = ((whole - part) // 2 for whole, part in zip(of, size, strict=True))
        if random_crop:
            name_hash = blake3(f"crop/{key}".encode()).digest()
            top, left = spec.crop(SEED, index, name_hash, of, size)
        crops.append(image[:, top : top + size[0], left : left + size[1]])
    return np.stack(crops)


@pytest.mark.parametrize("random_crop", [False, True])
def test_resized_images_are_compressed_before_they_are_cropped(dataset, random_crop):
    jpeg = dataclasses.replace(JPEG, before_resize=False, subsampling="4:4:4")
    images = {"size": SIZES, "crop": CROPS, "random_crop": random_crop}
    found = epochs(dataset, images={**images, "random_jpeg": {CAMERA: jpeg}})
    plain = epochs(dataset, images=images)
    resized = epochs(dataset, images={"size": SIZES})[CAMERA]
    for index, sample in enumerate(resized):
        quality = quality_at(CAMERA, index)
        if quality is not None:
            resized[index] = [through_pillow(image, quality, "4:4:4") for image in sample]
    wanted = {**plain, CAMERA: cropped(resized, CROPS[CAMERA], CAMERA, random_crop)}
    check_equal(found, wanted)


@pytest.mark.parametrize("subsampling", ["420", "4:2:2", "444"])
def test_chroma_is_subsampled_as_by_pillow(dataset, subsampling):
    jpeg = kinograph.RandomJpeg(quality=70, p=1, subsampling=subsampling)
    found = epochs(dataset, 1, images={"random_jpeg": {WRIST: jpeg}})
    plain = epochs(dataset, 1)
    digits = ":".join(subsampling.replace(":", ""))
    wanted = [[through_pillow(image, 70, digits) for image in one] for one in plain[WRIST]]
    np.testing.assert_array_equal(found[WRIST], np.stack(wanted))
    np.testing.assert_array_equal(found[CAMERA], plain[CAMERA])


def test_the_share_of_samples_is_p_in_every_epoch_and_each_camera_has_its_own(dataset):
    jpeg = kinograph.RandomJpeg(quality=(1, 100), p=0.3)
    seen = {CAMERA: [], WRIST: []}
    plain = epochs(dataset, 40)
    found = epochs(dataset, 40, images={"random_jpeg": jpeg})
    for key, changed in seen.items():
        changed += [not np.array_equal(*both) for both in zip(found[key], plain[key], strict=True)]
    count = len(plain[CAMERA])
    assert count == 40 * sum(LENGTHS)
    for changed in seen.values():
        assert abs(sum(changed) - 0.3 * count) < 4 * (count * 0.21) ** 0.5
    both = sum(np.logical_and(*seen.values()))
    assert abs(both - 0.09 * count) < 4 * (count * 0.09 * 0.91) ** 0.5
    qualities = [quality_at(CAMERA, index, jpeg) for index in range(count)]
    drawn = [quality for quality in qualities if quality is not None]
    assert min(drawn) <= 5
    assert max(drawn) >= 96


@pytest.mark.parametrize("p", [0, 0.0])
def test_with_probability_0_batches_are_the_plain_ones(dataset, p):
    images = {"size": SIZES, "crop": CROPS, "random_crop": True}
    jpeg = kinograph.RandomJpeg(quality=5, p=p)
    check_equal(
        epochs(dataset, images={**images, "random_jpeg": jpeg}), epochs(dataset, images=images)
    )


@pytest.mark.filterwarnings("ignore:each frame will be decoded")
@pytest.mark.parametrize("before_resize", [True, False])
def test_ranks_threads_memory_and_stops_change_nothing(dataset, before_resize):
    jpeg = dataclasses.replace(JPEG, before_resize=before_resize)
    images = {"size": SIZES, "crop": CROPS, "random_crop": True, "random_jpeg": jpeg}
    options = {"images": images, "batch_size": None, "global_batch_size": 8}
    wanted = epochs(dataset, **options)
    for other in ({"threads": 1, "prefetch": 1}, {"memory": 1}, {"threads": 4, "memory": "200kB"}):
        check_equal(epochs(dataset, **options, **other), wanted)
    for world_size in (2, 4):
        ranks = [
            epochs(dataset, **options, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for key, array in wanted.items():
            per_rank = [one[key].reshape(-1, 8 // world_size, *array.shape[1:]) for one in ranks]
            np.testing.assert_array_equal(
                np.concatenate(per_rank, axis=1).reshape(array.shape), array
            )
    first = loader(dataset, **options)
    steps = iter(first)
    for _ in range(3):
        next(steps)
    again = loader(dataset, **options)
    again.load_state_dict(first.state_dict())
    for other in (again, pickle.loads(pickle.dumps(again))):
        batch = next(iter(other))
        for key, array in wanted.items():
            np.testing.assert_array_equal(batch[key], array[24:32])


def test_images_of_two_sizes_are_mixed_when_resized(tmp_path, dataset, compressed):
    frames = samples.image(30, height=50, width=40)
    jpegs = np.stack([through_pillow(image, 40) for image in frames])
    of = {
        name: samples.write(
            tmp_path / f"{name}.kino", [{CAMERA: one, "actions": np.zeros((30, 3))}]
        )
        for name, one in (("plain", frames), ("jpeg", jpegs))
    }

    def first(*sources, **images):
        both = [one.samples({CAMERA: [0]}) for one in sources]
        options = {"batch_size": 16, "seed": SEED, "images": {"size": (32, 32), **images}}
        with kinograph.numpy.Loader(both, **options) as one:
            return next(iter(one))[CAMERA]

    found = first(dataset, of["plain"], random_jpeg=kinograph.RandomJpeg(quality=40, p=1))
    np.testing.assert_array_equal(found, first(compressed[40], of["jpeg"]))


def test_the_cache_holds_the_size_that_is_compressed(dataset):
    frames = sum(LENGTHS)
    peaks = {}
    for before_resize in (None, True, False):
        jpeg = None
        if before_resize is not None:
            jpeg = kinograph.RandomJpeg(quality=50, before_resize=before_resize)
        images = {"size": (20, 20), "crop": (10, 10), "random_jpeg": jpeg}
        with loader(dataset, windows={CAMERA: [0]}, images=images) as one:
            list(one)
            peaks[before_resize] = one.report().cache_peak_bytes
            assert one.quality.memory_for_all == peaks[before_resize]
    assert peaks == {None: frames * 300, True: frames * 45 * 61 * 3, False: frames * 1200}


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_other_frameworks_get_the_same(dataset, framework):
    optional(framework)
    module = __import__(f"kinograph.{framework}", fromlist=["Loader"])
    images = kinograph.Images(random_jpeg=JPEG, size=(20, 20))
    windows = {CAMERA: [0], "actions": [0]}
    options = {"windows": windows, "batch_size": 8, "seed": SEED, "images": images}
    with (
        kinograph.numpy.Loader(dataset, **options) as one,
        module.Loader(dataset, **options) as other,
    ):
        np.testing.assert_array_equal(
            np.asarray(next(iter(other))[CAMERA]), next(iter(one))[CAMERA]
        )


def test_a_dict_of_arguments_does_for_one_or_by_key(dataset):
    windows = {CAMERA: [0], WRIST: [0]}
    arguments = {"quality": [40, 42], "p": 0.6}
    wanted = epochs(dataset, windows=windows, images={"random_jpeg": JPEG})
    for jpeg in (arguments, {CAMERA: arguments, WRIST: JPEG}):
        check_equal(epochs(dataset, windows=windows, images={"random_jpeg": jpeg}), wanted)


@pytest.mark.parametrize(
    ("jpeg", "says"),
    [
        (50, r"give kinograph.RandomJpeg\(quality=\(30, 95\)"),
        ({"quality": 0}, "quality is 0; give a whole number from 1 to 100"),
        ({"quality": (30, 101)}, "from 1 to 100"),
        ({"quality": (95, 30)}, r"such as \(30, 95\)"),
        ({"quality": (95, 75, 50)}, "give one quality"),
        ({"quality": "95"}, "give one quality"),
        ({"quality": 50, "p": 1.1}, "probability from 0 to 1"),
        ({"quality": 50, "p": float("nan")}, "probability from 0 to 1"),
        ({"quality": 50, "subsampling": "411"}, "use one of 420, 422, 444"),
        ({"depth": {"quality": 50}}, "`depth` is depth of .*takes uint8 images"),
        ({"actions": {"quality": 50}}, "`actions` is vector of .*takes uint8 images"),
        ({"cam": {"quality": 50}}, "cannot compress `cam`: there is no such key"),
    ],
    ids=str,
)
def test_impossible_values_are_refused_with_advice(dataset, jpeg, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        loader(dataset, images={"random_jpeg": jpeg})


def test_images_of_four_channels_are_refused_and_can_be_excluded(tmp_path):
    rgba = np.zeros((10, 16, 16, 4), np.uint8)
    streams = {"rgba": rgba, "rgb": rgba[..., :3].copy(), "actions": np.zeros((10, 2))}
    ds = samples.write(tmp_path / "rgba.kino", [streams])
    windows = {"rgba": [0], "rgb": [0]}
    jpeg = kinograph.RandomJpeg(quality=50)
    with pytest.raises(kinograph.InvalidArgumentError, match=r"fourth channel.*give it by key"):
        loader(ds, windows=windows, images={"random_jpeg": jpeg})
    with loader(ds, windows=windows, images={"random_jpeg": {"rgb": jpeg}}) as one:
        assert next(iter(one))["rgba"].shape == (8, 1, 16, 16, 4)


def test_an_unknown_argument_is_refused_with_the_right_one(dataset):
    with pytest.raises(
        TypeError, match="RandomJpeg has no option `qualities`; did you mean `quality`"
    ):
        loader(dataset, images={"random_jpeg": {"qualities": 50}})
