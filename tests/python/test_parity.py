"""Parity: a live frame comes out as the loader would have delivered it, compared with what pack and the loader make."""

import io
import json
import pickle
import shutil

import numpy as np
import pytest
import samples
from PIL import Image

import kinograph
import kinograph.numpy

HEIGHT, WIDTH = 60, 88


def camera(frames=6, channels=3, seed=0):
    """Waves with noise, like a camera's."""
    rng = np.random.default_rng(seed)
    rows, columns, waves = np.mgrid[0:HEIGHT, 0:WIDTH, 0:channels].astype(float)
    moving = [
        127 + 90 * np.sin((rows * (waves + 1) + 2 * columns + 5 * step) / 17)
        for step in range(frames)
    ]
    noise = rng.normal(0, 4, (frames, HEIGHT, WIDTH, channels))
    return (np.stack(moving) + noise).clip(0, 255).astype(np.uint8)


def depth(frames=6):
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([(900 + 3 * rows + columns * step).astype(np.uint16) for step in range(frames)])


def pack(path, rule, **streams):
    plan = {"stream": [rule]} if rule else None
    return samples.write(path, [streams], plan=plan)


def loaded(dataset, key, **options):
    """Every frame as the loader delivers it."""
    count = dataset.streams[key].frames
    loader = kinograph.numpy.Loader(
        dataset, windows={key: 0}, batch_size=count, shuffle=False, **options
    )
    with loader:
        return next(iter(loader))[key], loader.parity(reference=False)


def check_exact(dataset, recorded, key="cam", **images):
    expected, of_loader = loaded(dataset, key, images=kinograph.Images(**images))
    of_dataset = dataset.parity(images=kinograph.Images(**images), reference=False)
    for parity in (of_dataset, of_loader):
        one_by_one = np.stack([parity[key](frame) for frame in recorded])
        assert samples.same_bits(one_by_one, expected)
        assert samples.same_bits(parity({key: recorded})[key], expected)
        assert parity[key].fidelity == "exact"
    return of_dataset


CODECS = [
    "jpeg:q=95",
    "jpeg:q=40,sub=420",
    "jpeg:q=75,sub=422",
    "jpeg:psnr=36,sub=420",
    "predict",
    "camera",
    "raw",
]


@pytest.mark.parametrize("codec", CODECS)
def test_images_are_those_of_pack_and_loader_bit_for_bit(codec, tmp_path):
    recorded = camera()
    dataset = pack(tmp_path / "a.kino", {"kind": "image", "codec": codec}, cam=recorded)
    parity = check_exact(dataset, recorded)
    is_lossy = not np.array_equal(parity["cam"](recorded[0]), recorded[0])
    assert is_lossy == codec.startswith("jpeg")
    (stored,) = dataset.streams["cam"].codecs
    assert (stored in str(parity["cam"])) == is_lossy
    assert ("lossless" in str(parity["cam"])) != is_lossy
    check_exact(dataset, recorded, size=(31, 40))
    check_exact(dataset, recorded, size=(50, 70), crop=(33, 40))
    check_exact(dataset, recorded, size=(21, 40), crop=(20, 33), resize="fast", dtype="float32")
    check_exact(dataset, recorded, crop=(20, 87), layout="chw", dtype="float16")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("codec", ["jpeg:q=60,sub=420", "predict"])
def test_a_plan_s_resize_is_repeated_before_the_codec(codec, channels, tmp_path):
    recorded = camera(channels=channels)
    rule = {"kind": "image", "resize": [32, 44], "codec": codec}
    dataset = pack(tmp_path / "a.kino", rule, cam=recorded)
    parity = check_exact(dataset, recorded)
    check_exact(dataset, recorded, size=(16, 16), dtype="float32")
    check_exact(dataset, recorded, size=(16, 16), resize="fast")
    # Frames that the robot resized already are taken as resized.
    small = dataset[0]["cam"][:] if codec == "predict" else None
    if small is not None:
        assert samples.same_bits(parity["cam"](small), small)
    assert "resize 32 × 44" in str(parity)


@pytest.mark.parametrize("bound", [None, 3.0])
def test_depth_takes_part(bound, tmp_path):
    recorded = depth()
    rule = {"kind": "depth", "resize": [30, 44]} | (
        {} if bound is None else {"codec": f"depth:abs={bound}"}
    )
    dataset = pack(tmp_path / "a.kino", rule, **{"depth": recorded})
    assert dataset.streams["depth"].kind == "depth"
    parity = check_exact(dataset, recorded, key="depth")
    check_exact(dataset, recorded, key="depth", size=(15, 22), crop=(8, 8))
    nearest = recorded[:, 1::2, 1::2]
    moved = np.abs(parity["depth"](recorded).astype(int) - nearest).max()
    assert moved <= (bound or 0)
    assert (moved > 0) == (bound is not None)


def test_a_loader_s_normalisation_takes_part_and_its_random_crop_becomes_a_centre_crop(tmp_path):
    recorded = camera()
    joints = np.cumsum(np.random.default_rng(3).normal(size=(6, 7)), axis=0)
    dataset = pack(
        tmp_path / "a.kino", {"kind": "image", "codec": "jpeg:q=80"}, cam=recorded, joints=joints
    )
    images = {"size": (40, 50), "crop": (32, 32), "dtype": "float32", "layout": "chw"}
    options = {
        "windows": {"cam": 0, "joints": 0},
        "batch_size": 6,
        "shuffle": False,
        "normalize": "mean_std",
    }
    with kinograph.numpy.Loader(dataset, images=images, **options) as loader:
        batch, parity = next(iter(loader)), loader.parity(reference=False)
    with kinograph.numpy.Loader(
        dataset, images={**images, "random_crop": True}, **options
    ) as random:
        assert str(random.parity(reference=False)) == str(parity)
    live = parity({"cam": recorded, "joints": joints})
    for key in ("cam", "joints"):
        assert samples.same_bits(live[key], batch[key])
    with kinograph.numpy.Loader(
        dataset, windows={"joints": 0}, batch_size=6, shuffle=False, dtype="float32"
    ) as loader:
        as_float32 = loader.parity(reference=False)["joints"](joints)
        assert samples.same_bits(as_float32, next(iter(loader))["joints"])


def test_bfloat16_arrives_as_float32_of_the_same_values(tmp_path):
    torch = pytest.importorskip("torch")
    import kinograph.torch  # noqa: PLC0415

    recorded = camera()
    dataset = pack(tmp_path / "a.kino", {"kind": "image", "codec": "jpeg:q=80"}, cam=recorded)
    images = kinograph.Images(dtype="bfloat16", layout="chw")
    loader = kinograph.torch.Loader(
        dataset, windows={"cam": 0}, batch_size=6, shuffle=False, images=images
    )
    expected = next(iter(loader))["cam"].to(torch.float32).numpy()
    assert samples.same_bits(loader.parity(reference=False)["cam"](recorded), expected)
    loader.close()


def test_the_encoding_of_a_variant_is_the_loader_s(tmp_path):
    recorded = camera()
    plan = {
        "stream": [
            {"match": "cam", "codec": "predict"},
            {"match": "cam", "variant": "small", "codec": "jpeg:q=30"},
        ]
    }
    dataset = samples.write(tmp_path / "a.kino", [{"cam": recorded}], plan=plan)
    for variants in ({"cam": "small"}, {"cam": {0: None, 3: "small"}}):
        loader = kinograph.numpy.Loader(
            dataset, windows={"cam": 0}, batch_size=6, shuffle=False, variants=variants
        )
        with loader:
            loader.set_epoch(3)
            assert samples.same_bits(
                loader.parity(reference=False)["cam"](recorded), next(iter(loader))["cam"]
            )
    both = dataset.parity(reference=False)
    assert list(both) == ["cam", "cam@small"]


def test_earlier_generations_are_repeated(tmp_path):
    recorded = camera()
    pack(tmp_path / "a.kino", {"kind": "image", "codec": "jpeg:q=50,sub=420"}, cam=recorded)
    plan = {"stream": [{"kind": "image", "codec": "jpeg:q=30"}]}
    kinograph.repack(
        tmp_path / "a.kino", tmp_path / "b.kino", plan=plan, allow_generation_loss=True
    )
    dataset = kinograph.open(tmp_path / "b.kino")
    assert dataset.streams["cam"].generations[0].codec == "jpeg:q=50,sub=420"
    check_exact(dataset, recorded)


def test_jpeg_files_of_a_recording_are_estimated_from_their_tables(tmp_path):
    recorded = camera()

    def files(**options):
        found = []
        for frame in recorded:
            file = io.BytesIO()
            Image.fromarray(frame).save(file, "JPEG", **options)
            found.append(file.getvalue())
        return found

    dataset = samples.write(tmp_path / "a.kino", [{"cam": files(quality=83, subsampling=2)}])
    parity = dataset.parity(reference=False)
    assert "jpeg:q=83,sub=420" in str(parity["cam"])
    assert parity["cam"].fidelity == "estimated"
    assert "estimated from the tables" in parity["cam"].notes[0]
    # Pillow's library is ours, so here the estimate is exact.
    assert samples.same_bits(parity["cam"](recorded), dataset[0]["cam"][:])

    tables = [[3 + (place * place) % 60 for place in range(64)]] * 2
    odd = samples.write(tmp_path / "odd.kino", [{"cam": files(qtables=tables, subsampling=0)}])
    assert "0 have the very tables" in odd.parity(reference=False)["cam"].notes[0]


def test_what_cannot_be_repeated_passes_and_says_so(tmp_path):
    joints = np.cumsum(np.random.default_rng(3).normal(size=(60, 7)), axis=0)
    dataset = pack(
        tmp_path / "a.kino", {"kind": "vector", "codec": "vector:abs=1e-3"}, joints=joints
    )
    parity = dataset.parity(streams=["joints"], reference=False)
    assert not np.array_equal(dataset[0]["joints"][:], joints)
    assert samples.same_bits(parity["joints"](joints), joints)
    assert parity["joints"].fidelity == "unchanged"
    assert "at most 0.001" in parity["joints"].notes[0]


def test_av1_is_approximated_by_groups_of_one_frame(tmp_path):
    recorded = camera(frames=8)
    try:
        dataset = pack(tmp_path / "a.kino", {"kind": "image", "codec": "av1:q=60"}, cam=recorded)
    except kinograph.UnsupportedError:
        pytest.skip("no SVT-AV1 here")
    parity = dataset.parity(reference=False)
    assert parity["cam"].fidelity == "approximate"
    assert "encoded alone" in parity["cam"].notes[0]
    live = parity["cam"](recorded[3]).astype(float)
    stored = dataset[0]["cam"][3]
    assert not np.array_equal(live, recorded[3])
    # As far from the frame as the one that was stored with its neighbours, more or less.
    errors = [((one - recorded[3].astype(float)) ** 2).mean() for one in (live, stored)]
    assert 0.3 < errors[0] / errors[1] < 3


def test_a_parity_file_needs_no_dataset(tmp_path):
    recorded = camera()
    dataset = pack(
        tmp_path / "a.kino",
        {"kind": "image", "codec": "jpeg:q=40", "resize": [30, 44]},
        cam=recorded,
    )
    images = kinograph.Images(crop=(20, 20), dtype="float32")
    parity = dataset.parity(images=images)
    expected = parity["cam"](recorded)
    parity.save(tmp_path / "parity.json")
    shutil.rmtree(tmp_path / "a.kino")
    assert (tmp_path / "parity.json").stat().st_size < 16_000
    copies = [
        kinograph.Parity(tmp_path / "parity.json"),
        kinograph.Parity.load(str(tmp_path / "parity.json")),
        pickle.loads(pickle.dumps(parity)),
    ]
    for copy in copies:
        assert samples.same_bits(copy["cam"](recorded), expected)
        assert (str(copy), copy.has_reference, len(copy)) == (str(parity), True, 1)


def test_mixed_codecs_and_exact_frames_are_named(tmp_path):
    recorded = camera()
    path = tmp_path / "a.kino"
    pack(path, {"kind": "image", "codec": "jpeg:q=40"}, cam=recorded)
    with kinograph.Writer(
        path, mode="append", plan={"stream": [{"kind": "image", "codec": "jpeg:q=70"}]}
    ) as writer:
        for number in range(2):
            writer.add_episode({"cam": recorded}, rate_hz=20.0, id=f"more_{number}")
    parity = kinograph.open(path).parity(reference=False)["cam"]
    assert parity.fidelity == "approximate"
    assert "jpeg:q=70,sub=444" in str(parity)
    assert "(67 % of the frames)" in parity.notes[0]


@pytest.fixture
def parity(tmp_path):
    plan = {"kind": "image", "codec": "jpeg:q=40", "resize": [30, 44]}
    streams = {"cam": camera(), "joints": np.zeros((6, 7)), "text": ["lift"] * 6}
    return pack(tmp_path / "a.kino", plan, **streams).parity(
        streams=["cam", "joints"], reference=False
    )


@pytest.mark.parametrize(
    ("key", "frame", "text"),
    [
        ("cam", np.zeros((59, 88, 3), np.uint8), r"shape \[59, 88, 3\], but training frames have \[30, 44, 3\], or 60 × 88 before"),
        ("cam", np.zeros((61, 88, 3), np.uint8), "pass frames as they were recorded"),
        ("cam", np.zeros((3, 30, 44), np.uint8), "transpose it to height, width, channels"),
        ("cam", np.zeros((60, 88), np.uint8), r"training frames have \[30, 44, 3\], or 60 × 88 before"),
        ("cam", np.zeros((60, 88, 3), np.float32), "live frames are float32, but training frames are uint8"),
        ("joints", np.zeros(6), r"shape \[6\]"),
        ("wrist", np.zeros((60, 88, 3), np.uint8), "no key `wrist` in this parity; there are cam, joints"),
    ],
)  # fmt: skip
def test_frames_that_no_training_frame_was_like_are_refused(parity, key, frame, text):
    with pytest.raises(kinograph.KinographError, match=text):
        parity({key: frame})


def test_wrong_arguments_are_refused(parity, tmp_path):
    dataset = kinograph.open(tmp_path / "a.kino")
    with pytest.raises(
        kinograph.NotFoundError, match="no stream `wrist`; there are joints, text, cam"
    ):
        dataset.parity(streams=["wrist"])
    with pytest.raises(kinograph.InvalidArgumentError, match="is text"):
        dataset.parity(streams=["text"])
    with pytest.raises(kinograph.InvalidArgumentError, match="cannot be cropped"):
        dataset.parity(images={"crop": (99, 99)})
    with pytest.raises(kinograph.InvalidArgumentError, match="no such key"):
        dataset.parity(images={"crop": {"wrist": (9, 9)}})
    with pytest.raises(kinograph.InvalidArgumentError, match="dict of frames"):
        parity(np.zeros((60, 88, 3), np.uint8))
    with pytest.raises(kinograph.NotFoundError, match="no parity file"):
        kinograph.Parity(tmp_path / "none.json")
    no_cameras = samples.write(tmp_path / "joints.kino", [{"joints": np.zeros((6, 7))}])
    with pytest.raises(kinograph.InvalidArgumentError, match="has no cameras"):
        no_cameras.parity()
    loader = kinograph.numpy.Loader([dataset, no_cameras], windows={"joints": 0}, batch_size=4)
    with loader, pytest.raises(kinograph.InvalidArgumentError, match="mixes 2 datasets"):
        loader.parity()


def test_damaged_and_newer_files_are_refused(parity, tmp_path):
    path = tmp_path / "parity.json"
    parity.save(path)
    good = json.loads(path.read_text())
    other = {
        "a newer one": ({"format": 99}, "upgrade"),
        "another file": ({"kinograph": "dataset"}, "not a parity file"),
        "an impossible size": ({"keys": [{**good["keys"][0], "stored": {**good["keys"][0]["stored"], "shape": [1 << 40, 1 << 40, 3]}}]}, "exceeds"),
        "an unknown codec": ({"keys": [{**good["keys"][0], "stored": {**good["keys"][0]["stored"], "codec": "nope:q=1"}}]}, "unknown codec"),
    }  # fmt: skip
    for changes, text in other.values():
        path.write_text(json.dumps(good | changes))
        with pytest.raises(kinograph.KinographError, match=text):
            kinograph.Parity(path)["cam"](np.zeros((60, 88, 3), np.uint8))
    for end in range(0, len(json.dumps(good)), 97):
        path.write_text(json.dumps(good)[:end])
        with pytest.raises(
            kinograph.CorruptDataError,
            match=r"parity.json: not a parity file, or a truncated one; write it again .*: EOF",
        ):
            kinograph.Parity(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(kinograph.CorruptDataError, match=r"parity.json: not a parity file"):
        kinograph.Parity(path)


def test_the_kind_of_error_says_whether_a_file_is_damaged_or_too_new(parity, tmp_path):
    path = tmp_path / "parity.json"
    parity.save(path)
    good = json.loads(path.read_text())
    key = good["keys"][0]
    path.write_text(json.dumps(good | {"format": 99}))
    with pytest.raises(kinograph.UnsupportedError, match=r"parity.json: .* version 99.*upgrade"):
        kinograph.Parity(path)
    damaged = (
        good | {"kinograph": "dataset"},
        good | {"keys": 3},
        good | {"keys": [{**key, "stored": {**key["stored"], "dtype": "no dtype"}}]},
        good | {"keys": [{**key, "stored": {**key["stored"], "shape": [1 << 40, 1 << 40, 3]}}]},
    )
    for one in damaged:
        path.write_text(json.dumps(one))
        with pytest.raises(kinograph.CorruptDataError, match=r"parity.json: .*write it again"):
            kinograph.Parity(path)


def test_a_dataset_is_not_a_parity_file(parity, tmp_path):
    with pytest.raises(kinograph.InvalidArgumentError, match=r"is a folder, .*\.parity\(\)"):
        kinograph.Parity(tmp_path)


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((3, 60, 88), "uint8", r"transpose it to height, width, channels"),
        ((60, 88, 4), "uint8", r"drop the alpha channel: `frame\[..., :3\]`"),
        ((60, 88), "uint8", r"has shape \[60, 88\].*pass frames as they were recorded"),
        ((), "uint8", r"has shape \[\].*pass frames as they were recorded"),
        ((31, 44, 3), "uint8", r"if the recorder cropped or resized them, do the same first"),
        ((60, 88, 3), "object", r"a live frame is ndarray; give an array of uint8"),
    ],
)
def test_the_error_of_a_wrong_frame_says_what_to_do(parity, shape, dtype, text):
    with pytest.raises(kinograph.InvalidArgumentError, match=text):
        parity["cam"](np.zeros(shape, dtype))
