"""JPEG decoded at a fraction of its size, `Images(resize="fast")`, compared with Pillow's `draft`."""

import io

import numpy as np
import pytest
import samples
from PIL import Image

import kinograph
import kinograph.numpy

HEIGHT, WIDTH, FRAMES = 90, 130, 12


def pixels(frames=FRAMES, channels=3, seed=0):
    """Waves with edges and a little noise, like a camera's."""
    rng = np.random.default_rng(seed)
    rows, columns, waves = np.mgrid[0:HEIGHT, 0:WIDTH, 0:channels].astype(float)
    moving = [
        127 + 90 * np.sin((rows * (waves + 1) + 2 * columns + 5 * step) / 23)
        for step in range(frames)
    ]
    images = np.stack(moving) + rng.normal(0, 2, (frames, HEIGHT, WIDTH, channels))
    images[:, 20:60, 30:70] = 250
    return images.clip(0, 255).astype(np.uint8)


def jpeg(image, **options):
    file = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(file, "JPEG", **options)
    return file.getvalue()


def draft(file, size):
    """Resize the image at the smallest fraction that is large enough."""
    image = Image.open(io.BytesIO(file))
    divisor = next(
        by for by in (8, 4, 2, 1) if -(-HEIGHT // by) >= size[0] and -(-WIDTH // by) >= size[1]
    )
    image.draft(None, (WIDTH // divisor, HEIGHT // divisor))
    assert image.size == (-(-WIDTH // divisor), -(-HEIGHT // divisor))
    resized = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(resized).reshape(*size, -1)


def load(dataset, key="cam", *, memory=None, threads=1, **images):
    """Every frame, in the order of the dataset."""
    loader = kinograph.numpy.Loader(
        dataset,
        windows={key: 0},
        batch_size=4,
        shuffle=False,
        images=kinograph.Images(**images),
        memory=memory,
        threads=threads,
    )
    with loader:
        found = iter(loader)
        return np.concatenate([next(found)[key] for _ in range(len(loader))])


def apart(found, expected):
    return int(np.abs(found.astype(int) - expected).max())


SIZES = [(45, 65), (40, 44), (23, 33), (20, 20), (12, 17), (9, 5)]


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        (3, {"subsampling": 0}),
        (3, {"subsampling": 1}),
        (3, {"subsampling": 2, "progressive": True}),
        (1, {}),
    ],
)
def test_files_of_a_recording_are_decoded_as_pillow_s_draft_does(tmp_path, channels, options):
    files = [jpeg(image, quality=90, **options) for image in pixels(channels=channels)]
    dataset = samples.write(tmp_path / "a.kino", [{"cam": files}])
    assert dataset.streams["cam"].codecs == ("jpeg:carry",)
    for size in SIZES:
        found = load(dataset, size=size, resize="fast")
        expected = np.stack([draft(file, size) for file in files])
        # Pillow's library is ours; where it has another one, rounding may differ.
        assert apart(found, expected) <= 2, size


@pytest.mark.parametrize("codec", ["jpeg:q=90", "jpeg:q=80,sub=420", "jpeg:psnr=38,sub=422"])
def test_jpeg_of_ours_is_too_whatever_the_memory_and_the_threads(tmp_path, codec):
    plan = {"stream": [{"kind": "image", "codec": codec}]}
    dataset = samples.write(tmp_path / "a.kino", [{"cam": pixels()}], plan=plan)
    files = [dataset[0]["cam"].bitstream(step) for step in range(FRAMES)]
    for size in ((40, 44), (20, 20)):
        expected = np.stack([draft(file, size) for file in files])
        found = load(dataset, size=size, resize="fast")
        assert apart(found, expected) <= 2
        exact = load(dataset, size=size)
        assert apart(found, exact) > 0
        for memory, threads in ((1, 1), (1, 3), ("1GB", 2)):
            again = load(dataset, size=size, resize="fast", memory=memory, threads=threads)
            assert samples.same_bits(again, found)
        crop = load(dataset, size=size, crop=(11, 18), resize="fast", memory=1)
        top, left = (size[0] - 11) // 2, (size[1] - 18) // 2
        assert samples.same_bits(crop, found[:, top : top + 11, left : left + 18])
        chw = load(dataset, size=size, resize="fast", layout="chw", dtype="float32", memory=1)
        expected = np.moveaxis(found, -1, -3).astype(np.float32) / np.float32(255)
        assert samples.same_bits(chw, np.ascontiguousarray(expected))


def test_nothing_changes_where_no_fraction_is_enough_or_the_codec_has_none(tmp_path):
    recorded = pixels()
    depth = (900 + np.arange(FRAMES * HEIGHT * WIDTH) % 700).astype(np.uint16)
    streams = {
        "cam": recorded,
        "other": recorded[:, ::-1].copy(),
        "depth": depth.reshape(FRAMES, HEIGHT, WIDTH),
    }
    plan = {
        "stream": [
            {"match": "cam", "codec": "jpeg:q=90"},
            {"match": "other", "codec": "predict"},
        ]
    }
    dataset = samples.write(tmp_path / "a.kino", [streams], plan=plan)
    for key, size in (
        ("cam", (46, 65)),
        ("cam", (45, 66)),
        ("cam", (90, 130)),
        ("cam", (200, 40)),
        ("other", (20, 20)),
        ("depth", (20, 20)),
    ):
        fast = load(dataset, key, size=size, resize="fast")
        assert samples.same_bits(fast, load(dataset, key, size=size)), (key, size)


def test_random_jpeg_sees_the_size_in_which_images_are_stored(tmp_path):
    plan = {"stream": [{"kind": "image", "codec": "jpeg:q=90"}]}
    dataset = samples.write(tmp_path / "a.kino", [{"cam": pixels()}], plan=plan)
    at_random = kinograph.RandomJpeg(quality=(20, 30), p=1.0)
    options = {"size": (20, 20), "random_jpeg": at_random}
    fast = load(dataset, resize="fast", **options)
    assert samples.same_bits(fast, load(dataset, **options))


def test_what_fast_means_has_to_be_said():
    with pytest.raises(kinograph.InvalidArgumentError, match="size"):
        kinograph.Images(resize="fast")
    with pytest.raises(kinograph.InvalidArgumentError, match="exact"):
        kinograph.Images(size=(8, 8), resize="quick")
