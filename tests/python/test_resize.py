"""A plan's ``resize``: what is stored is what the loader would have resized, and the dataset says so."""

import io
import json
import os
import pathlib
import subprocess
import sys

import h5py
import numpy as np
import pytest
import samples
from PIL import Image

import kinograph
import kinograph.numpy

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "crates/kino_import/tests/fixtures"
SAMPLE = pathlib.Path(__file__).resolve().parents[1] / "data" / "lift_3demos.hdf5"
SIZE = (30, 44)
PLAN = {"stream": [{"kind": "image", "resize": SIZE}, {"kind": "depth", "resize": SIZE}]}


def run(*args):
    command = [sys.executable, "-m", "kinograph", *map(os.fspath, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def nearest(frames, height, width):
    """Take the pixel under the centre of each new one, as torch's nearest-exact does."""
    rows = np.floor((np.arange(height) + 0.5) * frames.shape[1] / height).astype(int)
    columns = np.floor((np.arange(width) + 0.5) * frames.shape[2] / width).astype(int)
    return frames[:, rows][:, :, columns]


def pillow(frame, size=SIZE):
    """Resize as Pillow does: channel by channel, because it takes a fourth one for transparency."""
    if frame.ndim == 3 and frame.shape[-1] != 3:
        planes = [pillow(frame[..., channel], size) for channel in range(frame.shape[-1])]
        return np.stack(planes, axis=-1)
    return np.asarray(Image.fromarray(frame).resize(size[::-1], Image.Resampling.BILINEAR))


def check_pillow(found, recorded, size=SIZE):
    assert found.shape == (len(recorded), *size, recorded.shape[-1])
    for image, frame in zip(found, recorded, strict=True):
        assert np.abs(pillow(frame, size).astype(int) - image).max() <= 1


def smooth(frames=12, height=60, width=88, channels=3, seed=0):
    """Waves with noise, like a camera's."""
    rng = np.random.default_rng(seed)
    rows, columns, waves = np.mgrid[0:height, 0:width, 0:channels].astype(float)
    moving = [
        127 + 90 * np.sin((rows * (waves + 1) + 2 * columns + 5 * step) / 17)
        for step in range(frames)
    ]
    return (
        (np.stack(moving) + rng.normal(0, 4, (frames, height, width, channels)))
        .clip(0, 255)
        .astype(np.uint8)
    )


def jpegs(frames, quality=90):
    files = []
    for frame in frames:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "JPEG", quality=quality)
        files.append(buffer.getvalue())
    return files


def streams(frames=12, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "actions": rng.normal(size=(frames, 7)),
        "camera": smooth(frames, seed=seed),
        "gray": smooth(frames, channels=1, seed=seed + 1),
        "rgba": smooth(frames, channels=4, seed=seed + 2),
        "depth": rng.integers(0, 5000, (frames, 60, 88), dtype=np.uint16),
        "language": ["lift"] * frames,
    }


def loaded(dataset, **options):
    names = [name for name in dataset.streams if name != "language"]
    with kinograph.numpy.Loader(
        dataset, windows=dict.fromkeys(names, 0), batch_size=7, seed=3, **options
    ) as loader:
        found = iter(loader)
        return [next(found) for _ in range(6)]


@pytest.fixture(scope="module")
def recorded():
    return [streams(12, seed) for seed in range(3)]


@pytest.fixture
def plain(tmp_path, recorded):
    return samples.write(tmp_path / "plain.kino", recorded)


@pytest.fixture
def small(tmp_path, recorded):
    return samples.write(tmp_path / "small.kino", recorded, plan=PLAN)


def test_stored_images_are_what_the_loader_makes_of_the_recorded_ones(plain, small):
    for wanted, found in zip(loaded(plain, images={"size": SIZE}), loaded(small), strict=True):
        assert set(wanted) == set(found)
        for key in wanted:
            assert samples.same_bits(found[key], wanted[key]), key


def test_stored_images_are_pillows_and_depth_is_the_nearest_pixel(small, recorded):
    for episode, expected in zip(small, recorded, strict=True):
        for name in ("camera", "gray", "rgba"):
            check_pillow(episode[name][:], expected[name])
        assert samples.same_bits(episode["depth"][:], nearest(expected["depth"], *SIZE))
        assert samples.same_bits(episode["actions"][:], expected["actions"])
        assert episode["language"][:] == expected["language"]
    assert kinograph.verify(small.path, decode=True) == []


def test_the_dataset_says_that_it_was_resized(small):
    camera = small.streams["camera"]
    assert camera.shape == (*SIZE, 3)
    assert camera.resized_from == ((60, 88),)
    assert camera.raw_bytes == camera.frames * SIZE[0] * SIZE[1] * 3
    assert camera.generations == ()
    assert small.streams["actions"].resized_from == ()
    told = run("info", small.path)
    assert "camera: resized from 60 × 88 before it was stored" in told.stdout
    (found,) = [
        stream["resized_from"]
        for stream in json.loads(run("info", small.path, "--json").stdout)["streams"]
        if stream["name"] == "camera"
    ]
    assert found == [[60, 88]]


def test_statistics_are_those_of_the_stored_frames(small):
    stored = np.concatenate([episode["camera"][:] for episode in small])
    stats = small.stats["camera"]
    np.testing.assert_allclose(
        np.asarray(stats.mean).ravel(), stored.mean(axis=(0, 1, 2)), rtol=1e-12
    )
    assert np.asarray(stats.min).ravel().tolist() == stored.min(axis=(0, 1, 2)).tolist()


@pytest.mark.parametrize("codec", ["raw", "predict", "zstd", "camera", "jpeg:q=95", "jpeg:psnr=38"])
def test_every_image_codec_gets_resized_frames(tmp_path, recorded, codec):
    plan = {"stream": [{"match": "camera", "codec": codec, "resize": SIZE}]}
    ds = samples.write(tmp_path / "d.kino", recorded, plan=plan)
    camera = ds.streams["camera"]
    assert [text.split(":")[0] for text in camera.codecs] == [codec.split(":")[0]]
    if codec.startswith("jpeg"):
        # The error is that of the codec, against the resized frames.
        assert camera.psnr_db > 30
        wanted = pillow(recorded[0]["camera"][0]).astype(int)
        assert np.abs(ds[0]["camera"][0] - wanted).mean() < 6
    else:
        assert camera.max_abs_error == 0
        check_pillow(ds[0]["camera"][:], recorded[0]["camera"])
    assert kinograph.verify(ds.path, decode=True) == []


def test_the_pages_are_those_of_frames_that_were_resized_before(tmp_path, small, recorded):
    """Resizing on the encoding threads changes neither pages nor choice of codec."""
    episodes = []
    for episode, expected in zip(small, recorded, strict=True):
        resized = {name: episode[name][:] for name in ("camera", "gray", "rgba", "depth")}
        episodes.append(expected | resized)
    again = samples.write(tmp_path / "again.kino", episodes)
    for name in ("camera", "gray", "rgba", "depth"):
        ours, theirs = small.streams[name], again.streams[name]
        assert (ours.codecs, ours.bytes) == (theirs.codecs, theirs.bytes), name


def test_a_size_that_it_has_already_changes_nothing(tmp_path, recorded):
    plan = {"stream": [{"kind": "image", "resize": (60, 88)}]}
    ds = samples.write(tmp_path / "same.kino", recorded, plan=plan)
    assert ds.streams["camera"].resized_from == ()
    assert samples.same_bits(ds[0]["camera"][:], recorded[0]["camera"])


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"resize": (30, 40)}, r"stream `actions`.*neither a uint8 image nor depth.*kind"),
        ({"kind": "image", "resize": (61, 88)}, r"stream `camera`.*enlarge.*60 × 88.*images\.size"),
        ({"kind": "image", "resize": (0, 88)}, r"`resize` in the plan.*nearest valid size is 1"),
        ({"kind": "image", "resize": (1 << 20, 8)}, "nearest valid size is 16384 × 8"),
        ({"kind": "image", "resize": (8,)}, "plan"),
        ({"kind": "image", "resize": "8x8"}, "plan"),
        ({"kind": "image", "resize": (8, 8), "codec": "jpeg:carry"}, "keeps files as they are"),
        ({"kind": "text", "resize": (8, 8)}, r"stream `language`.*neither"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused(tmp_path, rule, says):
    with (
        pytest.raises(kinograph.InvalidArgumentError, match=says),
        kinograph.Writer(tmp_path / "d.kino", plan={"stream": [rule]}) as writer,
    ):
        writer.add_episode(streams(3), rate_hz=20.0)
    assert not (tmp_path / "d.kino" / "versions").exists() or not list(
        (tmp_path / "d.kino" / "versions").iterdir()
    )


def test_jpeg_files_are_decoded_and_counted_as_a_generation(tmp_path):
    frames = smooth(9)
    files = jpegs(frames)
    plan = {"stream": [{"kind": "image", "resize": SIZE}]}
    ds = samples.write(tmp_path / "d.kino", [{"camera": files}], plan=plan)
    decoded = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
    camera = ds.streams["camera"]
    assert not camera.codecs[0].startswith("jpeg")
    assert camera.resized_from == ((60, 88),)
    assert [one.codec for one in camera.generations] == ["jpeg:carry"]
    # Two JPEG decoders differ by a level.
    found = ds[0]["camera"][:]
    for image, frame in zip(found, decoded, strict=True):
        assert np.abs(pillow(frame).astype(int) - image).max() <= 3
    same = {"stream": [{"kind": "image", "resize": (60, 88)}]}
    carried = samples.write(tmp_path / "same.kino", [{"camera": files}], plan=same)
    assert carried.streams["camera"].codecs == ("jpeg:carry",)


def test_appended_episodes_of_another_size_become_one_stream(tmp_path, small, recorded):
    larger = recorded[0] | {"camera": smooth(12, 90, 70)}
    with kinograph.Writer(small.path, mode="append", plan=PLAN) as writer:
        writer.add_episode(larger, rate_hz=20.0, id="larger")
    ds = kinograph.open(small.path)
    assert ds.streams["camera"].resized_from == ((60, 88), (90, 70))
    check_pillow(ds["larger"]["camera"][:], larger["camera"])
    with (
        pytest.raises(kinograph.InvalidArgumentError, match=r"stream `camera`"),
        kinograph.Writer(small.path, mode="append") as writer,
    ):
        writer.add_episode(recorded[0], rate_hz=20.0, id="whole")


def hdf5(path, episodes, *, next_obs=False):
    with h5py.File(path, "w") as file:
        for number, episode in enumerate(episodes):
            group = file.create_group(f"data/demo_{number}")
            group.attrs["num_samples"] = len(episode["actions"])
            group["actions"] = episode["actions"]
            group["obs/front_image"] = episode["camera"]
            if next_obs:
                camera = episode["camera"]
                group["next_obs/front_image"] = np.concatenate([camera[1:], camera[:1]])
        file["data"].attrs["env_args"] = "{}"
    return path


def write_plan(path, text):
    path.write_text(text)
    return path


def test_a_packed_recording_is_resized(tmp_path, recorded):
    source = hdf5(tmp_path / "demos.hdf5", recorded)
    plan = write_plan(tmp_path / "p.toml", '[[stream]]\nkind = "image"\nresize = [30, 44]\n')
    dry = run("pack", source, tmp_path / "d.kino", "--plan", plan, "--dry-run", "--rate", "20")
    assert "uint8[30, 44, 3] from 60 × 88" in dry.stdout, dry.stdout + dry.stderr
    done = run("pack", source, tmp_path / "d.kino", "--plan", plan, "--rate", "20")
    assert done.returncode == 0, done.stderr
    assert "obs/front_image: resized from 60 × 88" in done.stdout
    ds = kinograph.open(tmp_path / "d.kino")
    for number, expected in enumerate(recorded):
        check_pillow(ds[f"demo_{number}"]["obs/front_image"][:], expected["camera"])
    # The estimate is of the resized frames.
    estimate = json.loads(
        run(
            "pack",
            source,
            tmp_path / "e.kino",
            "--plan",
            plan,
            "--dry-run",
            "--rate",
            "20",
            "--json",
        ).stdout
    )
    (camera,) = [one for one in estimate["streams"] if one["name"] == "obs/front_image"]
    assert camera["resized_from"] == [[60, 88]]
    stored = ds.streams["obs/front_image"].bytes
    assert abs(camera["estimated_bytes"] - stored) < stored / 10


def test_recordings_of_several_sizes_become_one_stream(tmp_path, recorded):
    mixed = [recorded[0], recorded[1] | {"camera": smooth(12, 80, 100)}, recorded[2]]
    source = hdf5(tmp_path / "demos.hdf5", mixed)
    plan = {"stream": [{"kind": "image", "resize": SIZE}]}
    kinograph.pack(source, tmp_path / "d.kino", plan=plan, rate_hz=20)
    ds = kinograph.open(tmp_path / "d.kino")
    assert sorted(ds.streams["obs/front_image"].resized_from) == [(60, 88), (80, 100)]
    for number, expected in enumerate(mixed):
        check_pillow(ds[f"demo_{number}"]["obs/front_image"][:], expected["camera"])
    kinograph.pack(source, tmp_path / "d.kino", plan=plan, rate_hz=20, mode="append", prefix="b_")
    assert len(kinograph.open(tmp_path / "d.kino")) == 6


@pytest.mark.parametrize("pattern", ["obs/*", "next_obs/*", "**"])
def test_shared_frames_are_right_whichever_stream_is_resized(tmp_path, recorded, pattern):
    source = hdf5(tmp_path / "demos.hdf5", recorded, next_obs=True)
    plan = {"stream": [{"match": pattern, "kind": "image", "resize": SIZE}]}

    def check(ds):
        for number, expected in enumerate(recorded):
            now = expected["camera"]
            for name, frames in (
                ("obs/front_image", now),
                ("next_obs/front_image", np.concatenate([now[1:], now[:1]])),
            ):
                found = ds[f"demo_{number}"][name][:]
                if pattern in ("**", name.split("/")[0] + "/*"):
                    check_pillow(found, frames)
                else:
                    assert samples.same_bits(found, frames)
        assert kinograph.verify(ds.path, decode=True) == []

    kinograph.pack(source, tmp_path / "d.kino", plan=plan, rate_hz=20)
    check(kinograph.open(tmp_path / "d.kino"))
    kinograph.pack(source, tmp_path / "whole.kino", rate_hz=20)
    kinograph.repack(tmp_path / "whole.kino", tmp_path / "r.kino", plan=plan)
    check(kinograph.open(tmp_path / "r.kino"))


def test_a_dataset_is_repacked_to_another_size(tmp_path, plain, small, recorded):
    done = kinograph.repack(plain.path, tmp_path / "r.kino", plan=PLAN)
    changed = {stream.name for stream in done.streams if stream.action == "encoded"}
    assert changed == {"camera", "gray", "rgba", "depth"}
    ds = kinograph.open(tmp_path / "r.kino")
    for name in changed:
        assert ds.streams[name].resized_from == ((60, 88),)
        for one, other in zip(ds, small, strict=True):
            assert samples.same_bits(one[name][:], other[name][:])
    assert np.array_equal(ds.stats["camera"].mean, small.stats["camera"].mean)
    # It has that size now: nothing changes, and the record stays.
    again = kinograph.repack(tmp_path / "r.kino", tmp_path / "again.kino", plan=PLAN)
    assert {stream.action for stream in again.streams} == {"copied"}
    assert kinograph.open(tmp_path / "again.kino").streams["camera"].resized_from == ((60, 88),)
    # A second time smaller: both sizes are recorded, the oldest first.
    less = {"stream": [{"match": "camera", "resize": (10, 10)}]}
    kinograph.repack(tmp_path / "r.kino", tmp_path / "less.kino", plan=less)
    less = kinograph.open(tmp_path / "less.kino")
    assert less.streams["camera"].resized_from == ((60, 88), SIZE)
    check_pillow(less[0]["camera"][:], small[0]["camera"][:], (10, 10))


def test_a_dataset_is_resized_in_place(plain, small):
    before = plain.version
    kinograph.repack(plain.path, in_place=True, plan=PLAN)
    ds = kinograph.open(plain.path)
    assert ds.version == before + 1
    for one, other in zip(ds, small, strict=True):
        assert samples.same_bits(one["camera"][:], other["camera"][:])
    assert ds.streams["camera"].shape == (*SIZE, 3)
    assert ds.streams["camera"].resized_from == ((60, 88),)
    assert np.array_equal(ds.stats["camera"].mean, small.stats["camera"].mean)
    assert kinograph.open(plain.path, version=before).streams["camera"].shape == (60, 88, 3)
    assert kinograph.verify(plain.path, decode=True) == []


def test_a_lossy_stream_is_not_resized_with_a_second_loss_unless_that_is_allowed(
    tmp_path, recorded
):
    lossy = {"stream": [{"match": "camera", "codec": "jpeg:q=90"}]}
    ds = samples.write(tmp_path / "lossy.kino", recorded, plan=lossy)
    plan = {"stream": [{"match": "camera", "codec": "jpeg:q=80", "resize": SIZE}]}
    with pytest.raises(kinograph.InvalidArgumentError, match="generation-loss"):
        kinograph.repack(ds.path, tmp_path / "no.kino", plan=plan)
    kinograph.repack(ds.path, tmp_path / "yes.kino", plan=plan, allow_generation_loss=True)
    camera = kinograph.open(tmp_path / "yes.kino").streams["camera"]
    assert len(camera.generations) == 1
    assert camera.resized_from == ((60, 88),)
    # Without a codec the resized frames are stored without a further loss.
    kinograph.repack(ds.path, tmp_path / "r.kino", plan=PLAN)
    camera = kinograph.open(tmp_path / "r.kino").streams["camera"]
    assert camera.max_abs_error == 0
    assert len(camera.generations) == 1


def test_a_dry_run_of_a_repack_shows_both_sizes(plain, tmp_path):
    plan = write_plan(tmp_path / "p.toml", '[[stream]]\nmatch = "camera"\nresize = [30, 44]\n')
    told = run("repack", plain.path, tmp_path / "r.kino", "--plan", plan, "--dry-run")
    assert "uint8 30×44×3 from uint8 60×88×3" in told.stdout, told.stdout + told.stderr


def test_a_link_refuses_a_plan_that_resizes(tmp_path, recorded):
    source = hdf5(tmp_path / "demos.hdf5", recorded)
    plan = {"stream": [{"kind": "image", "resize": SIZE}]}
    with pytest.raises(kinograph.InvalidArgumentError, match=r"linked images stay.*pack"):
        kinograph.link(source, tmp_path / "l.kino", plan=plan, rate_hz=20)


def test_an_interrupted_pack_is_resumed_only_with_the_same_size(tmp_path, recorded):
    whole = samples.write(tmp_path / "whole.kino", recorded, plan=PLAN)

    def part(mode, plan, count, *, stops=False):
        writer = kinograph.Writer(
            tmp_path / "d.kino", mode=mode, plan=plan, shard_size=1, memory="1MB"
        )
        for number, episode in enumerate(recorded[:count]):
            if f"demo_{number}" not in writer.resumed:
                writer.add_episode(episode, rate_hz=20.0, id=f"demo_{number}")
        if stops:
            writer.abandon()
        else:
            writer.commit()

    part("new", PLAN, 3, stops=True)
    other = {"stream": [{"kind": "image", "resize": (10, 10)}]}
    with pytest.raises(kinograph.KinographError, match="plan"):
        part("resume", other, 3)
    part("resume", PLAN, 3)
    ds = kinograph.open(tmp_path / "d.kino")
    assert ds.streams["camera"].resized_from == ((60, 88),)
    for one, expected in zip(ds, whole, strict=True):
        assert samples.same_bits(one["camera"][:], expected["camera"][:])


def test_jpeg_files_of_a_recording_are_decoded_first(tmp_path):
    source = FIXTURES / "act_jpeg.hdf5"
    kinograph.pack(source, tmp_path / "carried.kino", rate_hz=50)
    carried = kinograph.open(tmp_path / "carried.kino")
    (name, *_) = [name for name, one in carried.streams.items() if one.codecs == ("jpeg:carry",)]
    height, width = carried.streams[name].shape[0] // 2, carried.streams[name].shape[1] // 2
    plan = {"stream": [{"kind": "image", "resize": (height, width)}]}
    packed = kinograph.pack(source, tmp_path / "d.kino", plan=plan, rate_hz=50)
    assert packed
    ds = kinograph.open(tmp_path / "d.kino")
    assert [one.codec for one in ds.streams[name].generations] == ["jpeg:carry"]
    with kinograph.numpy.Loader(
        carried, windows={name: 0}, batch_size=4, shuffle=False, images={"size": (height, width)}
    ) as loader:
        wanted = next(iter(loader))[name]
    assert samples.same_bits(ds[0][name][: len(wanted)], wanted)
