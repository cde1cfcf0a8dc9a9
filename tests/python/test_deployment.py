"""Live frames beside training frames: held-out frames pass, and the usual mistakes are found."""

import io
import json
import pathlib
import shutil

import numpy as np
import pytest
import samples
from PIL import Image

import kinograph

SAMPLE = pathlib.Path(__file__).resolve().parents[1] / "data" / "lift_3demos.hdf5"
HEIGHT, WIDTH = 120, 160


def jpeg(frames, quality):
    """Pass frames through Pillow's JPEG, another way than the core's."""

    def one(frame):
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file))

    return np.stack([one(frame) for frame in frames])


def resized(frames, height, width, filter=Image.Resampling.BILINEAR):  # noqa: A002 (Pillow's word)
    return np.stack(
        [np.asarray(Image.fromarray(one).resize((width, height), filter)) for one in frames]
    )


def scene(seed, frames=12):
    """A robot's table: static texture, a warm lamp, an object that moves, sensor noise, light that differs by episode."""
    rng = np.random.default_rng(1000 + seed)
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH].astype(float)
    table = (
        110 + 30 * np.sin(rows / 9) * np.cos(columns / 7) + 25 * ((rows // 30 + columns // 40) % 2)
    )
    lamp = np.stack([60 - columns / 4, 0 * rows, columns / 5 - 25], axis=-1)
    light = 1 + rng.uniform(-0.04, 0.04)
    start = rng.uniform(10, 60, size=2)
    out = []
    for step in range(frames):
        top, left = (start + step * rng.uniform(1, 3, size=2)).astype(int)
        image = table[..., None] + lamp
        image[top : top + 30, left : left + 30] = [200, 60, 70]
        noisy = light * image + rng.normal(0, 2.5, image.shape)
        out.append(noisy.clip(0, 255).astype(np.uint8))
    return np.stack(out)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    path = tmp_path_factory.mktemp("deployment") / "table.kino"
    return samples.write(path, [{"cam": scene(seed)} for seed in range(10)])


def check(live, training, **options):
    return kinograph.check_deployment({"cam": live}, training, **options)


def found(live, training):
    return {warning.check: warning for warning in check(live, training).warnings}


@pytest.mark.parametrize("seed", range(50, 56))
def test_frames_of_episodes_that_were_held_out_pass(training, seed):
    report = check(scene(seed), training)
    assert report.ok, str(report)
    assert report.streams["cam"]["frames"] == 12
    assert report.streams["cam"]["training"] == [80, 10]
    assert "look like the training frames of table.kino" in str(report)


@pytest.mark.parametrize("quality", [95, 90, 75, 40, 15])
def test_a_compressing_driver_in_front_of_a_policy_that_was_trained_on_raw_frames(
    training, quality
):
    report = check(jpeg(scene(60), quality), training)
    (warning,) = (one for one in report.warnings if one.check == "codec")
    assert report.warnings[0].severity == warning.severity == "high"
    assert abs(warning.measured["live_quality"] - quality) <= 5
    assert "lost 20 points" in warning.why
    assert not {"sharpness", "noise", "blocking"} & {one.check for one in report.warnings}


def test_jpeg_in_training_only_is_found_too_and_the_same_on_both_sides_is_not(tmp_path, training):
    path = tmp_path / "jpeg.kino"
    plan = {"stream": [{"kind": "image", "codec": "jpeg:q=75,sub=420"}]}
    lossy = samples.write(path, [{"cam": scene(seed)} for seed in range(10)], plan=plan)
    live = scene(61)
    warning = found(live, lossy)["codec"]
    assert warning.severity == "medium"
    assert "training frames went through JPEG" in warning.what
    assert "compare the policy's actions" in warning.action
    # After parity they are alike, and so are frames of another encoder with about that quality.
    for alike in (lossy.parity(reference=False)["cam"](live), jpeg(live, 72)):
        assert check(alike, lossy).ok
    assert "quality 30" in found(jpeg(live, 30), lossy)["codec"].what
    assert check(live, training).ok


CHANGES = {
    "blur": ("sharpness", lambda frames: resized(resized(frames, 60, 80), HEIGHT, WIDTH)),
    "another resize": ("sharpness", lambda frames: resized(resized(frames, 90, 120), HEIGHT, WIDTH, Image.Resampling.NEAREST)),
    "BGR": ("channel order", lambda frames: frames[..., ::-1]),
    "exposure": ("brightness", lambda frames: (frames * 1.2).clip(0, 255).astype(np.uint8)),
    "white balance": ("color", lambda frames: (frames * [1.25, 1, 1]).clip(0, 255).astype(np.uint8)),
    "gain": ("noise", lambda frames: (frames + np.random.default_rng(1).normal(0, 9, frames.shape)).clip(0, 255).astype(np.uint8)),
    "size": ("size", lambda frames: resized(frames, 96, 128)),
    "channels first": ("layout", lambda frames: frames.transpose(0, 3, 1, 2)),
    "alpha": ("channels", lambda frames: np.concatenate([frames, frames[..., :1]], axis=-1)),
    "floats": ("dtype", lambda frames: (frames / 255).astype(np.float32)),
    "letterbox": ("black borders", lambda frames: np.pad(resized(frames, 100, WIDTH), [(0, 0), (10, 10), (0, 0), (0, 0)])),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_the_usual_mistakes_are_found(training, name):
    expected, change = CHANGES[name]
    warnings = found(change(scene(62)), training)
    assert expected in warnings, warnings
    for text in (warnings[expected].what, warnings[expected].why, warnings[expected].action):
        assert len(text) > 10


def test_a_cause_explains_its_symptoms(training):
    assert set(found(scene(63)[..., ::-1], training)) == {"channel order"}
    assert set(found((scene(63) / 255).astype(np.float32), training)) == {"dtype"}
    assert (
        "multiply by 255" in found((scene(63) / 255).astype(np.float64), training)["dtype"].action
    )


@pytest.mark.parametrize(
    "change", [lambda frames: (frames - 128) / 64, lambda frames: frames * np.nan]
)
def test_normalised_frames_are_named_and_not_compared(training, change):
    warnings = found(change(scene(63).astype(np.float32)), training)
    assert set(warnings) == {"dtype"}
    assert "before they are normalised" in warnings["dtype"].action


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        (np.zeros((0, HEIGHT, WIDTH, 3), np.uint8), "there are no live frames; give ten or more"),
        ([b"\xff\xd8", b"\xff\xd8"], "decode JPEG files first"),
        ("cam.mp4", "live frames are str; give an array"),
        (None, "live frames are NoneType; give an array"),
        ([np.zeros((8, 8, 3)), np.zeros((9, 8, 3))], r"must have one shape, but they have \(8, 8, 3\), \(9, 8, 3\)"),
    ],
)  # fmt: skip
def test_what_is_not_frames_is_refused(training, frames, text):
    with pytest.raises(kinograph.InvalidArgumentError, match=text):
        kinograph.check_deployment({"cam": frames}, training)


def test_swapped_arguments_are_an_error_of_one_line(training):
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"the second argument.* is dict; give a dataset"
    ) as caught:
        kinograph.check_deployment(training, {"cam": scene(63)})
    assert len(str(caught.value)) < 200


def test_a_plan_s_resize_explains_another_size(tmp_path):
    plan = {"stream": [{"kind": "image", "resize": [60, 80]}]}
    small = samples.write(
        tmp_path / "s.kino", [{"cam": scene(seed)} for seed in range(10)], plan=plan
    )
    assert check(scene(64), small).ok
    assert check(small[3]["cam"][:], small).ok
    warning = found(jpeg(scene(64), 60), small)["codec"]
    assert "training frames were resized" in warning.what
    assert warning.severity == "medium"
    assert "size" in found(resized(scene(64), 96, 128), small)


def test_a_parity_file_is_enough(tmp_path, training):
    path = tmp_path / "copy.kino"
    shutil.copytree(training.path, path)
    kinograph.open(path).parity().save(tmp_path / "parity.json")
    shutil.rmtree(path)
    assert (tmp_path / "parity.json").stat().st_size < 32_000
    for known in (tmp_path / "parity.json", kinograph.Parity(tmp_path / "parity.json")):
        assert check(scene(65), known).ok
        assert not check(jpeg(scene(65), 75), known).ok
    training.parity(reference=False).save(tmp_path / "without.json")
    with pytest.raises(kinograph.InvalidArgumentError, match="no reference"):
        check(scene(65), tmp_path / "without.json")
    with pytest.raises(kinograph.InvalidArgumentError, match="has its reference already"):
        check(scene(65), tmp_path / "parity.json", episodes=[0])


def test_the_real_recording_that_ships(tmp_path):
    kinograph.pack(SAMPLE, tmp_path / "lift.kino")
    lift = kinograph.open(tmp_path / "lift.kino")
    camera = next(name for name, one in lift.streams.items() if one.kind == "image")
    for row in range(3):
        others = [other for other in range(3) if other != row]
        live = lift[row][camera][::4]
        report = kinograph.check_deployment(live, lift, stream=camera, episodes=others)
        assert report.ok, str(report)
        assert "too few to know" in report.notes[0]
        for quality in (90, 75, 40):
            compressed = kinograph.check_deployment(
                {camera: jpeg(live, quality)}, lift, episodes=others
            )
            assert compressed.warnings[0].check == "codec"
        swapped = kinograph.check_deployment({camera: live[..., ::-1]}, lift, episodes=others)
        assert swapped.warnings[0].severity == "high"


def test_a_report_is_shown_and_kept(training, tmp_path):
    report = check(scene(66)[..., ::-1], training)
    assert not report.ok
    kept = json.loads(report.to_json(tmp_path / "report.json"))
    assert kept == json.loads((tmp_path / "report.json").read_text())
    assert kept["warnings"][0]["check"] == "channel order"
    html = report._repr_html_()
    assert "channel order" in html
    assert "<script" not in html
    assert str(report).startswith(
        "Live frames differ from the training frames of table.kino, version 1, in one way."
    )
    assert "OpenCV delivers BGR" in str(report.warnings[0]) + report.warnings[0].why
    few = check(scene(66)[:2], training)
    assert "2 frames say little" in few.notes[0]


def test_wrong_arguments_are_refused(training, tmp_path):
    live = scene(67)
    assert kinograph.check_deployment(list(live), training.path).ok
    refused = [
        (lambda: kinograph.check_deployment({}, training), "is empty"),
        (lambda: kinograph.check_deployment({"cam": []}, training), "there are no live frames"),
        (
            lambda: kinograph.check_deployment({"cam": [live[0], live[0][1:]]}, training),
            "must have one shape",
        ),
        (lambda: kinograph.check_deployment({"cam": live[0]}, training), "a single frame"),
        (
            lambda: kinograph.check_deployment({"cam": live}, training, stream="cam"),
            "not in a dict",
        ),
        (lambda: kinograph.check_deployment({"wrist": live}, training), "no stream `wrist`"),
        (lambda: kinograph.check_deployment(live, 3), "give a dataset"),
    ]
    for call, text in refused:
        with pytest.raises(kinograph.KinographError, match=text):
            call()
    two = samples.write(
        tmp_path / "two.kino", [{"a": live, "b": live, "depth": live[..., 0].astype(np.uint16)}]
    )
    with pytest.raises(kinograph.InvalidArgumentError, match="which camera"):
        kinograph.check_deployment(live, two)
    with pytest.raises(kinograph.InvalidArgumentError, match="not a camera of 8-bit images"):
        kinograph.check_deployment({"depth": live}, two)
