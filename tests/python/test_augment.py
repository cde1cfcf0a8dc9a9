"""Augmentation, compared with Pillow and with torchvision's formulas, by the numbers of the second implementation of the order."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import kinograph
import kinograph.numpy

sys.path.append(str(Path(__file__).parents[1]))
from spec import order as spec

blake3 = pytest.importorskip("blake3").blake3

SEED = 3
FRONT, WRIST = "cam/front", "cam/wrist"
LENGTHS = (9, 14)
REQUEST = {FRONT: [-1, 0], WRIST: [0], "ir": [0], "depth": [0], "actions": range(3)}

RANGES = ((0.4, 0.9), (0.8, 1.25))
CROP = kinograph.RandomResizedCrop(scale=RANGES[0], ratio=RANGES[1])
JITTER = kinograph.ColorJitter(brightness=0.3, contrast=0.4, saturation=(0.4, 1.6), hue=0.2, p=0.8)
FACTORS = [(0.7, 1.3), (0.6, 1.4), (0.4, 1.6), (-0.2, 0.2)]

pytestmark = pytest.mark.filterwarnings("ignore:random_flip mirrors")


def episode(length, seed):
    """Two cameras, a grey one and depth in millimetres."""
    rng = np.random.default_rng(seed)
    steps = np.arange(length).reshape(-1, 1, 1, 1)

    def scene(height, width, channels):
        rows, columns, of = np.ogrid[:height, :width, :channels]
        waves = 120 + 110 * np.sin((rows * (of + 1) + columns * 2 + of * 30 + steps + seed) / 9.0)
        return (waves + rng.integers(-20, 20, waves.shape)).clip(0, 255).astype(np.uint8)

    return {
        FRONT: scene(45, 61, 3),
        WRIST: scene(32, 40, 3),
        "ir": scene(21, 30, 1),
        "depth": rng.integers(0, 9999, (length, 24, 30)).astype(np.uint16),
        "actions": rng.normal(size=(length, 3)),
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("augment") / "plain.kino"
    with kinograph.Writer(path) as writer:
        for seed, length in enumerate(LENGTHS):
            writer.add_episode(episode(length, seed), rate_hz=20.0, kinds={"depth": "depth"})
    return kinograph.open(path)


def loader(dataset, images=None, **options):
    given = {"windows": REQUEST, "batch_size": 8, "seed": SEED, "last_batch": "wrap"}
    return kinograph.numpy.Loader(dataset, images=images, **given | options)


def epochs(dataset, images=None, count=2, **options):
    """Load epochs, as one array per key."""
    with loader(dataset, images, **options) as one:
        found = [batch for _ in range(count) for batch in one]
    return {key: np.concatenate([batch[key] for batch in found]) for key in found[0]}


def named(name):
    return blake3(name.encode()).digest()


def is_flipped(index, p):
    return spec.flip(SEED, index, named("flip"), p)


def each(samples, change):
    """Change every frame of every sample, by its index."""
    found = [np.stack([change(index, frame) for frame in one]) for index, one in enumerate(samples)]
    return np.stack(found)


def close(found, wanted, equal=0.9):
    """Compare bytes of which some may be rounded to the other side."""
    assert found.shape == wanted.shape
    assert np.abs(found.astype(np.int64) - wanted).max() <= 1
    assert np.mean(found == wanted) > equal


def blend(image, other, factor):
    return np.clip(factor * image + (1 - factor) * other, 0, 1)


def gray(image):
    if image.shape[-1] == 1:
        return image
    return image @ np.array([[0.2989], [0.587], [0.114]])


def turn_hue(image, turn):
    """Do as torchvision's `adjust_hue`: to HSV, around the colour wheel and back."""
    if image.shape[-1] == 1:
        return image
    most, least = image.max(-1), image.min(-1)
    red, green, blue = np.moveaxis(image, -1, 0)
    chroma = np.where(most == least, 1.0, most - least)
    rc, gc, bc = ((most - one) / chroma for one in (red, green, blue))
    hue = np.where(most == red, bc - gc, np.where(most == green, 2 + rc - bc, 4 + gc - rc))
    hue = (hue / 6 + 1 + turn) % 1.0
    saturation = (most - least) / np.where(most == 0, 1.0, most)
    sector = np.floor(hue * 6)
    part = hue * 6 - sector
    p, q = most * (1 - saturation), most * (1 - saturation * part)
    t = most * (1 - saturation * (1 - part))
    sectors = [(most, t, p), (q, most, p), (p, most, t), (p, q, most), (t, p, most), (most, p, q)]
    found = np.stack([np.stack(one, -1) for one in sectors])
    return np.take_along_axis(found, (sector.astype(int) % 6)[None, ..., None], 0)[0]


def jittered(image, changes):
    """Change an image as torchvision's functional operations change floats."""
    if changes is None:
        return image
    floats = image / 255.0
    for number, factor in changes:
        if number == 0:
            floats = blend(floats, 0.0, factor)
        elif number == 1:
            floats = blend(floats, gray(floats).mean(), factor)
        elif number == 2:
            floats = blend(floats, gray(floats), factor)
        else:
            floats = turn_hue(floats, factor)
    return np.floor(floats * 255 + 0.5).astype(np.uint8)


def changes_at(key, index):
    return spec.color_jitter(SEED, index, named(f"color_jitter/{key}"), JITTER.p, FACTORS)


@pytest.mark.parametrize("options", [{}, {"size": (30, 33)}, {"size": (40, 30), "crop": (20, 22)}])
def test_random_resized_crops_are_pillows_at_the_place_of_the_specification(dataset, options):
    images = {"random_resized_crop": CROP, **options}
    found, plain = epochs(dataset, images), epochs(dataset, options or None)
    for key in (FRONT, WRIST, "ir"):
        name = named(f"random_resized_crop/{key}")

        def part(index, frame, name=name):
            size = frame.shape[:2]
            y, x, height, width = spec.resized_crop(SEED, index, name, size, RANGES)
            image = Image.fromarray(
                frame[y : y + height, x : x + width].squeeze(-1 if frame.shape[-1] == 1 else ())
            )
            return np.asarray(image.resize(size[::-1], Image.BILINEAR)).reshape(frame.shape)

        close(found[key], each(plain[key], part), equal=0.6)
    np.testing.assert_array_equal(found["actions"], plain["actions"])


def test_depth_takes_the_nearest_pixel_and_is_flipped(dataset):
    found = epochs(dataset, {"random_resized_crop": {"depth": CROP}, "random_flip": {"depth": 0.5}})
    plain = epochs(dataset)

    def part(index, frame):
        size, name = frame.shape[:2], named("random_resized_crop/depth")
        y, x, height, width = spec.resized_crop(SEED, index, name, size, RANGES)
        rows = y + np.floor((np.arange(size[0]) + 0.5) * height / size[0]).astype(int)
        columns = x + np.floor((np.arange(size[1]) + 0.5) * width / size[1]).astype(int)
        frame = frame[rows][:, columns]
        return frame[:, ::-1] if is_flipped(index, 0.5) else frame

    np.testing.assert_array_equal(found["depth"], each(plain["depth"], part))
    np.testing.assert_array_equal(found[FRONT], plain[FRONT])


def test_all_cameras_of_a_sample_are_mirrored_together_and_masks_say_which(dataset):
    p = {FRONT: 0.5, WRIST: 0.5, "ir": 0.2}
    found, plain = epochs(dataset, {"random_flip": p}), epochs(dataset)
    for key, p_of_key in p.items():
        flips = [is_flipped(index, p_of_key) for index in range(len(plain[key]))]
        assert 0 < sum(flips) < len(flips)
        np.testing.assert_array_equal(found[f"{key}_is_flipped"], flips)
        assert found[f"{key}_is_flipped"].dtype == bool
        wanted = each(plain[key], lambda i, frame, of=flips: frame[:, ::-1] if of[i] else frame)
        np.testing.assert_array_equal(found[key], wanted)
    np.testing.assert_array_equal(found["depth"], plain["depth"])
    assert found.keys() - plain.keys() == {f"{key}_is_flipped" for key in p}


def test_colours_change_by_torchvisions_formulas(dataset):
    found, plain = epochs(dataset, {"color_jitter": JITTER}, 4), epochs(dataset, count=4)
    for key in (FRONT, WRIST, "ir"):
        close(
            found[key], each(plain[key], lambda i, frame, k=key: jittered(frame, changes_at(k, i)))
        )
    np.testing.assert_array_equal(found["depth"], plain["depth"])
    drawn = [changes_at(FRONT, index) for index in range(len(plain[FRONT]))]
    assert None in drawn
    assert len({tuple(number for number, _ in one) for one in drawn if one}) > 10


@pytest.mark.parametrize("brightness", [0, 1, (0.0, 0.0), 3.5])
def test_extreme_factors_stay_within_a_byte(dataset, brightness):
    jitter = kinograph.ColorJitter(brightness=brightness)
    found = epochs(dataset, {"color_jitter": jitter}, 1)[FRONT]
    plain = epochs(dataset, count=1)[FRONT]
    limits = (1, 1) if brightness == 0 else (0, 0)
    if brightness in (1, 3.5):
        limits = (0.0, 1.0 + brightness)
    ranges = [limits, (1, 1), (1, 1), (0, 0)]
    name = named(f"color_jitter/{FRONT}")
    close(found, each(plain, lambda i, f: jittered(f, spec.color_jitter(SEED, i, name, 1, ranges))))


def test_crop_then_flip_then_colours_and_layout_and_dtype_last(dataset):
    sizes = {"size": (30, 33), "crop": (24, 27)}
    geometry = {**sizes, "random_resized_crop": {WRIST: CROP}, "random_crop": False}
    cropped = epochs(dataset, geometry)
    every = {**geometry, "random_flip": 0.5, "color_jitter": JITTER}
    found = epochs(dataset, every)
    for key in (FRONT, WRIST):

        def change(index, frame, key=key):
            frame = frame[:, ::-1] if is_flipped(index, 0.5) else frame
            return jittered(frame, changes_at(key, index))

        close(found[key], each(cropped[key], change))
    floats = epochs(dataset, {**every, "layout": "chw", "dtype": "float32"})
    wanted = np.moveaxis(found[FRONT], -1, -3).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(floats[FRONT], wanted)


def test_random_crops_and_random_jpeg_come_first(dataset):
    jpeg = kinograph.RandomJpeg(quality=40, p=0.5)
    first = {"crop": (20, 22), "random_crop": True, "random_jpeg": {FRONT: jpeg}}
    plain, found = epochs(dataset, first), epochs(dataset, {**first, "random_flip": 1.0})
    for key in (FRONT, WRIST, "depth"):
        axis = 3
        np.testing.assert_array_equal(found[key], np.flip(plain[key], axis))


@pytest.mark.filterwarnings("ignore:each frame will be decoded")
def test_ranks_threads_memory_and_stops_change_nothing(dataset):
    images = {
        "size": (30, 33),
        "random_resized_crop": CROP,
        "random_flip": 0.5,
        "color_jitter": JITTER,
    }
    options = {"images": images, "batch_size": None, "global_batch_size": 8}
    wanted = epochs(dataset, **options)
    for other in ({"threads": 1, "prefetch": 1}, {"memory": 1}, {"threads": 4}):
        for key, array in epochs(dataset, **options, **other).items():
            np.testing.assert_array_equal(array, wanted[key])
    ranks = [epochs(dataset, **options, rank=rank, world_size=4) for rank in range(4)]
    for key, array in wanted.items():
        per_rank = [one[key].reshape(-1, 2, *array.shape[1:]) for one in ranks]
        np.testing.assert_array_equal(np.concatenate(per_rank, 1).reshape(array.shape), array)
    first, again = loader(dataset, **options), loader(dataset, **options)
    steps = iter(first)
    next(steps), next(steps)
    again.load_state_dict(first.state_dict())
    batch = next(iter(again))
    for key, array in wanted.items():
        np.testing.assert_array_equal(batch[key], array[16:24])
    other_seed = epochs(dataset, images, seed=SEED + 1, shuffle=False)[FRONT]
    assert (other_seed != epochs(dataset, images, shuffle=False)[FRONT]).any()


def test_validation_has_no_augmentation_and_crops_at_the_centre(dataset):
    images = kinograph.Images(
        size=(30, 33),
        crop=(24, 27),
        random_crop=True,
        random_jpeg=kinograph.RandomJpeg(quality=40),
        random_flip=0.5,
        color_jitter=JITTER,
    )
    plain = kinograph.Images(size=(30, 33), crop=(24, 27))
    assert images.without_augmentation() == plain
    with loader(dataset, images) as training, loader(dataset, plain) as validation:
        live = episode(1, 5)[FRONT][0]
        both = [one.parity(reference=False)[FRONT](live) for one in (training, validation)]
    np.testing.assert_array_equal(*both)


def test_a_flip_without_mirrored_actions_is_warned_of(dataset):
    with pytest.warns(kinograph.KinographWarning, match="KEY_is_flipped"):
        loader(dataset, {"random_flip": 0.5}).close()


def test_a_dict_of_arguments_does_for_one_or_by_key(dataset):
    crop = {"scale": RANGES[0], "ratio": list(RANGES[1])}
    jitter = {"brightness": 0.3, "contrast": 0.4, "saturation": (0.4, 1.6), "hue": 0.2, "p": 0.8}
    wanted = epochs(dataset, {"random_resized_crop": {FRONT: CROP}, "color_jitter": JITTER})
    images = {"random_resized_crop": {FRONT: crop}, "color_jitter": jitter}
    for key, array in epochs(dataset, images).items():
        np.testing.assert_array_equal(array, wanted[key])


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ({"random_flip": 1.5}, "probability from 0 to 1"),
        ({"random_flip": True}, "a probability, such as 0.5"),
        ({"random_flip": {"actions": 0.5}}, "`actions` is vector of .*random_flip takes"),
        ({"random_flip": {"cam": 0.5}}, "cannot flip `cam`: there is no such key"),
        ({"random_resized_crop": 0.9}, r"give kinograph.RandomResizedCrop\(scale"),
        ({"random_resized_crop": {"scale": (0.9, 1.1)}}, "share of the image's area"),
        ({"random_resized_crop": {"scale": "0.9"}}, "such as"),
        ({"random_resized_crop": CROP, "crop": (9, 9), "random_crop": True}, "use one of them"),
        ({"color_jitter": 0.3}, r"give kinograph.ColorJitter\(brightness"),
        ({"color_jitter": {"hue": 0.6}}, "within -0.5 to 0.5"),
        ({"color_jitter": {"contrast": -0.1}}, "a number from 0 on"),
        ({"color_jitter": {"contrast": float("nan")}}, "finite number"),
        ({"color_jitter": {"p": 2}}, "probability from 0 to 1"),
        ({"color_jitter": {"depth": JITTER}}, "`depth` is depth of .*color_jitter takes"),
    ],
    ids=str,
)
def test_impossible_values_are_refused_with_advice(dataset, images, says):
    with pytest.raises(kinograph.InvalidArgumentError, match=says):
        loader(dataset, images)


def test_an_unknown_argument_is_refused_with_the_right_one(dataset):
    with pytest.raises(TypeError, match="ColorJitter has no option `colour`; there are brightness"):
        loader(dataset, {"color_jitter": {"colour": 0.5}})
