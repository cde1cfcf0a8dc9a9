"""Variants: several encodings of a stream in one dataset, and loaders that read one by name or by epoch.

What a batch holds is compared with the stored streams, read one by one (``ds[0]["wrist@small"]``), and these with the
source and with Pillow, which has a JPEG library of its own.
"""

import io
import json
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import kinograph
import kinograph.numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "lift_3demos.hdf5"
FIXTURES = ROOT / "crates" / "kino_import" / "tests" / "fixtures"
CAMERA = "obs/agentview_image"
SMALL = f"{CAMERA}@small"
VARIANT = {"match": CAMERA, "variant": "small", "codec": "jpeg:q=40"}
PLAN = {"stream": [VARIANT]}
TOML = f'[[stream]]\nmatch = "{CAMERA}"\nvariant = "small"\ncodec = "jpeg:q=40"\n'


def run(*args):
    command = [sys.executable, "-m", "kinograph", *map(os.fspath, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def files(path, folder="shards"):
    return {file.name: file.read_bytes() for file in (path / folder).iterdir()}


@pytest.fixture(scope="module")
def path(tmp_path_factory, lift_streams):
    """A dataset whose camera is there without loss, and as JPEG of quality 40."""
    path = tmp_path_factory.mktemp("variants") / "lift.kino"
    with kinograph.Writer(path, plan=PLAN) as writer:
        for number, streams in enumerate(lift_streams):
            writer.add_episode(streams, rate_hz=20.0, id=f"demo_{number}")
    return path


@pytest.fixture
def ds(path):
    return kinograph.open(path)


def as_jpeg(image):
    """Encode an image and decode it again, with Pillow."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "jpeg", quality=40, subsampling=0)
    return np.asarray(Image.open(file)).astype(int)


def batches(loader, epochs):
    return [[dict(batch) for batch in loader] for _ in range(epochs)]


def expected(ds, batch, stream):
    """Read the frames of a batch one by one."""
    frames = [
        ds[int(episode)][stream][int(frame)]
        for episode, frame in zip(batch["episode_index"], batch["frame"], strict=True)
    ]
    return np.stack(frames)[:, None]


def load(dataset, **options):
    given = {"windows": {CAMERA: [0], "actions": range(3)}, "include": ["episode", "frame"]}
    return kinograph.numpy.Loader(dataset, **given | {"batch_size": 16, "seed": 3} | options)


def test_a_variant_is_a_stream_beside_its_own(ds, path, lift_streams):
    assert list(ds.streams) == [*lift_streams[0], SMALL]
    small, fine = ds.streams[SMALL], ds.streams[CAMERA]
    assert (small.variant_of, fine.variant_of) == (CAMERA, None)
    assert small.codecs == ("jpeg:q=40,sub=444",)
    assert (small.kind, small.shape, small.frames) == (fine.kind, fine.shape, fine.frames)
    for episode, streams in zip(ds, lift_streams, strict=True):
        assert np.array_equal(episode[CAMERA][:], streams[CAMERA])
        assert np.array_equal(episode[SMALL].timestamps_ns, episode[CAMERA].timestamps_ns)
        for frame, image in zip(episode[SMALL][:], streams[CAMERA], strict=True):
            assert abs(as_jpeg(image) - frame).max() <= 2
    assert kinograph.verify(path, decode=True) == []
    assert set(ds.stats) >= {SMALL, CAMERA}


def test_pack_writer_and_repack_make_the_same_variant(tmp_path):
    (tmp_path / "plan.toml").write_text(TOML)
    packed, plain, later = (tmp_path / f"{name}.kino" for name in ("packed", "plain", "later"))
    done = run("pack", SAMPLE, packed, "--plan", tmp_path / "plan.toml")
    assert done.returncode == 0, done.stderr
    kinograph.pack(SAMPLE, plain)
    repacked = kinograph.repack(plain, later, plan=PLAN)
    actions = {stream.name: stream.action for stream in repacked.streams}
    assert actions.pop(SMALL) == "added"
    assert set(actions.values()) == {"copied"}
    one, other, before = kinograph.open(packed), kinograph.open(later), kinograph.open(plain)
    for a, b, c in zip(one, other, before, strict=True):
        assert np.array_equal(a[SMALL][:], b[SMALL][:])
        assert [name for name in a if name not in c] == [SMALL]
        assert sorted(a) == sorted(b)
        for name in c:
            assert np.array_equal(b[name][:], c[name][:])
    assert one.streams[SMALL].bytes == other.streams[SMALL].bytes
    for made in (packed, later):
        assert kinograph.verify(made, decode=True) == []
    # In place, and then there is nothing to do.
    assert kinograph.repack(plain, in_place=True, plan=PLAN).version == 2
    again = kinograph.repack(plain, in_place=True, plan=PLAN)
    assert (again.version, again.episodes) == (2, 0)
    assert kinograph.verify(plain, decode=True) == []
    assert kinograph.open(plain).streams[SMALL].variant_of == CAMERA


def test_a_variant_that_changes_is_encoded_from_its_stream(path, tmp_path):
    plan = {"stream": [VARIANT | {"codec": "jpeg:q=75"}]}
    done = kinograph.repack(path, tmp_path / "finer.kino", plan=plan)
    actions = {stream.name: stream.action for stream in done.streams}
    assert actions.pop(SMALL) == "encoded"
    assert set(actions.values()) == {"copied"}
    made = kinograph.open(tmp_path / "finer.kino")
    # The first generation of the lossless stream, so nothing was lost before.
    assert made.streams[SMALL].generations == ()
    kinograph.repack(
        path, tmp_path / "without.kino", exclude=[SMALL], plan={"stream": [{"kind": "text"}]}
    )
    kinograph.repack(tmp_path / "without.kino", tmp_path / "direct.kino", plan=plan)
    direct = kinograph.open(tmp_path / "direct.kino")
    for one, other in zip(made, direct, strict=True):
        assert np.array_equal(one[SMALL][:], other[SMALL][:])


def test_a_lossy_stream_has_lossy_variants_only_if_that_is_allowed(lift_path, tmp_path):
    lossy = tmp_path / "lossy.kino"
    kinograph.repack(lift_path, lossy, plan={"stream": [{"kind": "image", "codec": "jpeg:q=90"}]})
    with pytest.raises(kinograph.InvalidArgumentError, match=f"for `{SMALL}`"):
        kinograph.repack(lossy, tmp_path / "twice.kino", plan=PLAN)
    kinograph.repack(lossy, tmp_path / "twice.kino", plan=PLAN, allow_generation_loss=True)
    (earlier,) = kinograph.open(tmp_path / "twice.kino").streams[SMALL].generations
    assert earlier.codec == "jpeg:q=90,sub=444"


def test_jpeg_files_are_decoded_for_a_variant(tmp_path, lift_streams):
    images = lift_streams[0][CAMERA]
    jpegs = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "jpeg", quality=85, subsampling=0)
        jpegs.append(file.getvalue())
    with kinograph.Writer(tmp_path / "files.kino", plan=PLAN) as writer:
        writer.add_episode({CAMERA: jpegs}, rate_hz=20.0)
    ds = kinograph.open(tmp_path / "files.kino")
    assert ds.streams[CAMERA].codecs == ("jpeg:carry",)
    assert ds.streams[SMALL].codecs == ("jpeg:q=40,sub=444",)
    assert [one.codec for one in ds.streams[SMALL].generations] == ["jpeg:carry"]
    for frame, image in zip(ds[0][SMALL][:], ds[0][CAMERA][:], strict=True):
        assert abs(as_jpeg(image) - frame).max() <= 2
    assert kinograph.verify(tmp_path / "files.kino", decode=True) == []


def test_files_and_shifted_streams_of_a_recording_have_variants_too(tmp_path):
    plan = {"stream": [{"kind": "image", "variant": "small", "codec": "jpeg:q=40"}]}
    kinograph.pack(FIXTURES / "act_jpeg.hdf5", tmp_path / "jpeg.kino", plan=plan, on_defect="keep")
    ds = kinograph.open(tmp_path / "jpeg.kino")
    camera = "observations/images/top"
    assert ds.streams[camera].codecs == ("jpeg:carry",)
    assert [one.codec for one in ds.streams[f"{camera}@small"].generations] == ["jpeg:carry"]
    for frame, image in zip(ds[0][f"{camera}@small"][:], ds[0][camera][:], strict=True):
        assert abs(as_jpeg(image) - frame).max() <= 2
    kinograph.pack(
        FIXTURES / "robomimic.hdf5", tmp_path / "shift.kino", plan=plan, on_defect="keep"
    )
    ds = kinograph.open(tmp_path / "shift.kino")
    now, later = (f"{name}/front_image@small" for name in ("obs", "next_obs"))
    # As of the streams themselves, only the last frame of an episode is stored twice.
    assert ds.streams[later].bytes < ds.streams[now].bytes
    for episode in ds:
        if later in episode and len(episode[later]) > 1:
            assert np.array_equal(episode[later][:-1], episode[now][1:])
    for name in ("jpeg", "shift"):
        assert kinograph.verify(tmp_path / f"{name}.kino", decode=True) == []


def test_an_interrupted_writer_resumes_with_its_variants(tmp_path, lift_streams):
    path = tmp_path / "resumed.kino"
    writer = kinograph.Writer(path, plan=PLAN, shard_size=1, memory=1)
    writer.add_episode(lift_streams[0], rate_hz=20.0, id="a")
    writer.add_episode(lift_streams[1], rate_hz=20.0, id="b")
    writer.abandon()
    with kinograph.Writer(path, plan=PLAN, shard_size=1, mode="resume") as writer:
        assert "a" in writer.resumed
        for number, name in enumerate("abc"):
            if name not in writer.resumed:
                writer.add_episode(lift_streams[number], rate_hz=20.0, id=name)
    ds = kinograph.open(path)
    assert ds.streams[SMALL].episodes == len(ds) == 3
    assert ds.streams[SMALL].variant_of == CAMERA
    assert kinograph.verify(path, decode=True) == []


def test_episodes_without_the_variant_get_it_by_a_repack(path, tmp_path, lift_streams):
    mixed = tmp_path / "mixed.kino"
    kinograph.repack(path, mixed)
    with kinograph.Writer(mixed, mode="append") as writer:
        writer.add_episode(lift_streams[0], rate_hz=20.0, id="more")
    ds = kinograph.open(mixed)
    assert (ds.streams[SMALL].episodes, len(ds)) == (3, 4)
    with pytest.raises(kinograph.KinographError, match="@small"):
        load(ds, variants={CAMERA: "small"})
    before = ds[0][SMALL][:]
    kinograph.repack(mixed, in_place=True, plan=PLAN)
    ds = kinograph.open(mixed)
    assert ds.streams[SMALL].episodes == 4
    assert np.array_equal(ds[0][SMALL][:], before)
    assert np.array_equal(ds["more"][SMALL][:], before)
    assert kinograph.verify(mixed, decode=True) == []


def test_mistakes_are_refused_with_what_to_do(tmp_path, lift_path, lift_streams):
    def refused(plan, match):
        with pytest.raises(kinograph.InvalidArgumentError, match=match):
            kinograph.repack(lift_path, tmp_path / "no.kino", plan={"stream": [plan]})

    refused(VARIANT | {"variant": "a/b"}, "letters, digits")
    refused(VARIANT | {"variant": ""}, "letters, digits")
    refused(VARIANT | {"codec": "jpeg:carry"}, "encoded anew")
    refused(VARIANT | {"match": "obs/nothing"}, "no such stream")
    (tmp_path / "plan.toml").write_text(TOML.replace(CAMERA, "obs/nothing"))
    done = run("pack", SAMPLE, tmp_path / "no.kino", "--plan", tmp_path / "plan.toml")
    assert done.returncode == 1
    assert "no such stream" in done.stderr
    # A stream of the source may have such a name, and then it is not a variant.
    taken = {**lift_streams[0], SMALL: lift_streams[0][CAMERA]}
    with kinograph.Writer(tmp_path / "taken.kino") as writer:
        writer.add_episode(taken, rate_hz=20.0)
    ds = kinograph.open(tmp_path / "taken.kino")
    assert ds.streams[SMALL].variant_of is None
    assert np.array_equal(ds[0][SMALL][:], taken[CAMERA])
    assert SMALL in next(iter(ds.samples(delta_timestamps={"actions": [0.0]})))
    with pytest.raises(kinograph.InvalidArgumentError, match="that is not a variant"):
        kinograph.repack(tmp_path / "taken.kino", in_place=True, plan=PLAN)
    with (
        pytest.raises(kinograph.InvalidArgumentError, match="already exists"),
        kinograph.Writer(tmp_path / "both.kino", plan=PLAN) as writer,
    ):
        writer.add_episode(taken, rate_hz=20.0)
    with (
        pytest.raises(kinograph.InvalidArgumentError, match="a stream of its own in other"),
        kinograph.Writer(tmp_path / "taken.kino", mode="append", plan=PLAN) as writer,
    ):
        writer.add_episode(lift_streams[1], rate_hz=20.0)


def test_what_takes_every_stream_takes_no_variant(ds, path, tmp_path):
    assert SMALL not in ds.samples(delta_timestamps={"actions": [0.0]})[0]
    assert SMALL in ds.samples(keys=[SMALL, "actions"], delta_timestamps={"actions": [0.0]})[0]
    kinograph.export(ds, tmp_path / "out.hdf5", to="robomimic")
    kinograph.pack(tmp_path / "out.hdf5", tmp_path / "back.kino")
    assert SMALL not in kinograph.open(tmp_path / "back.kino").streams
    shown = json.loads(run("bench", "loader", path, "--json", "--seconds", "0.2").stdout)
    assert SMALL not in json.dumps(shown)


def test_info_shows_variants_under_their_stream(path):
    lines = run("info", path).stdout.splitlines()
    (place,) = (idx for idx, line in enumerate(lines) if line.startswith(CAMERA))
    assert lines[place + 1].startswith("  @small")
    shown = json.loads(run("info", path, "--json").stdout)
    assert {one["name"]: one["variant_of"] for one in shown["streams"]}[SMALL] == CAMERA


def test_a_loader_reads_the_variant_that_is_named(ds):
    with load(ds) as fine, load(ds, variants={CAMERA: "small"}) as small:
        assert fine.order.id != small.order.id
        for ours, theirs in zip(batches(small, 2), batches(fine, 2), strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert one.keys() == other.keys()
                for key in one.keys() - {CAMERA}:
                    assert np.array_equal(one[key], other[key])
                assert np.array_equal(one[CAMERA], expected(ds, one, SMALL))
                assert np.array_equal(other[CAMERA], expected(ds, other, CAMERA))
    sample = ds.samples({CAMERA: 0, "actions": [0]}, variants={"**": "small"})
    assert np.array_equal(sample[5][CAMERA], ds[0][SMALL][5])
    assert sample.request["windows"][0]["stream"] == SMALL
    whole = ds.samples({CAMERA: 0, "actions": [0]}, variants={CAMERA: None, "**": "small"})
    assert whole.request["windows"][0]["stream"] == CAMERA


@pytest.mark.parametrize("regimen", [{0: "small", 2: None}, [(0, "small"), (2, None)]])
@pytest.mark.parametrize("shuffle", [True, "global", False])
def test_a_regimen_switches_at_its_epochs_and_the_order_stays(ds, regimen, shuffle):
    with (
        load(ds, shuffle=shuffle) as fine,
        load(ds, variants={CAMERA: regimen}, shuffle=shuffle) as loader,
    ):
        pairs = zip(batches(loader, 4), batches(fine, 4), strict=True)
        for epoch, (ours, theirs) in enumerate(pairs):
            for one, other in zip(ours, theirs, strict=True):
                for key in one.keys() - {CAMERA}:
                    assert np.array_equal(one[key], other[key])
                stream = SMALL if epoch < 2 else CAMERA
                assert np.array_equal(one[CAMERA], expected(ds, one, stream))


def test_a_loader_resumes_across_the_switch(ds):
    options = {"variants": {CAMERA: {0: "small", 1: None, 3: "small"}}, "last_batch": "wrap"}
    with load(ds, **options) as loader:
        # Batches of one epoch may hold samples of the next, each from its own variant.
        straight = [batch for epoch in batches(loader, 4) for batch in epoch]
    loader = load(ds, **options)
    for number, batch in enumerate(straight):
        loader.load_state_dict(loader.state_dict())
        if number % 5 == 0:
            loader = pickle.loads(pickle.dumps(loader))
        again = next(iter(loader))
        assert all(np.array_equal(batch[key], again[key]) for key in batch)
    for epoch, stream in enumerate([SMALL, CAMERA, CAMERA, SMALL]):
        loader.set_epoch(epoch)
        batch = next(iter(loader))
        images = expected(ds, batch, stream)
        assert np.array_equal(batch[CAMERA][1:], images[1:])
    state = loader.state_dict()
    with load(ds) as other, pytest.raises(kinograph.KinographError):
        other.load_state_dict(state)
    loader.close()


def test_sources_of_a_mixture_have_their_own_variants(ds):
    asked = ds.samples({CAMERA: [0]}, include=["episode", "frame"])
    sources = [
        kinograph.Source(asked, weight=0.5, variants={CAMERA: {1: "small"}}),
        kinograph.Source(asked, weight=0.5),
    ]
    with kinograph.numpy.Loader(sources, batch_size=16, seed=1) as loader:
        steps = [batch for epoch in batches(loader, 3) for batch in epoch]
        for step, batch in enumerate(steps):
            # The epochs of a mixture's source are its own.
            drawn = loader.order.batch(step)
            is_small = (drawn["source"] == 0) & (drawn["epoch"] >= 1)
            assert np.array_equal(drawn["variant"], is_small)
            fine, small = (expected(ds, batch, stream) for stream in (CAMERA, SMALL))
            images = np.where(is_small[:, None, None, None, None], small, fine)
            assert np.array_equal(batch[CAMERA], images)
        place = int(np.argmax(loader.order[0:1000]["variant"]))
        drawn = loader.order[place]
        where = asked.locate(drawn["sample"])
        read = loader.order.read(place)[CAMERA][0]
        assert np.array_equal(read, ds[where.episode][SMALL][where.anchor])
    with pytest.raises(kinograph.InvalidArgumentError, match="give one of them"):
        kinograph.Source(asked, curriculum={1: asked}, variants={CAMERA: "small"})


def test_unknown_variants_are_named_with_those_there_are(ds):
    for variants, match in [
        ({CAMERA: "tiny"}, "it has small"),
        ({"actions": "small"}, "it has none"),
        ({"**": "tiny"}, "has a variant `tiny`"),
        ({"*": "small"}, r"`\*\*` crosses"),
        ({"wrist": "small"}, "matches none of the requested"),
        ({CAMERA: 3}, "pairs"),
        ({CAMERA: {0: 3}}, "name of a variant"),
        ({CAMERA: {-1: "small"}}, "epoch"),
        ({CAMERA: [(0, "small"), (0, None)]}, "twice"),
        ("small", "give a dict"),
    ]:
        with pytest.raises(kinograph.KinographError, match=match):
            load(ds, variants=variants)
    with pytest.raises(kinograph.InvalidArgumentError, match="name of a variant"):
        ds.samples({CAMERA: [0]}, variants={CAMERA: {0: "small"}})


def test_a_variant_may_be_smaller_than_its_stream(tmp_path, lift_streams):
    size = (42, 42)
    rule = {"match": CAMERA, "variant": "small", "codec": "camera", "resize": size}
    made = {name: tmp_path / f"{name}.kino" for name in ("writer", "packed", "plain", "repacked")}
    with kinograph.Writer(made["writer"], plan={"stream": [rule]}) as writer:
        for number, streams in enumerate(lift_streams):
            writer.add_episode(streams, rate_hz=20.0, id=f"demo_{number}")
    kinograph.pack(SAMPLE, made["packed"], plan={"stream": [rule]})
    kinograph.pack(SAMPLE, made["plain"])
    kinograph.repack(made["plain"], made["repacked"], plan={"stream": [rule]})
    # What the loader makes of the recorded images.
    images = kinograph.Images(size=size)
    for name in ("writer", "packed", "repacked"):
        ds = kinograph.open(made[name])
        small, recorded = ds.streams[SMALL], ds.streams[CAMERA].shape
        assert recorded == (lift_streams[0][CAMERA].shape[1:] if name == "writer" else (84, 84, 3))
        assert (small.shape, small.resized_from) == ((*size, 3), (recorded[:2],)), name
        with load(ds, images=images) as fine, load(ds, variants={CAMERA: "small"}) as coarse:
            for one, other in zip(fine, coarse, strict=True):
                assert np.array_equal(one[CAMERA], other[CAMERA]), name
                assert np.array_equal(one["frame"], other["frame"])
        # By epoch only if the batches keep their shape.
        regimen = {CAMERA: {0: "small", 1: None}}
        with load(ds, images=images, variants=regimen) as loader:
            first, second = batches(loader, 2)
        assert first[0][CAMERA].shape == second[0][CAMERA].shape == (16, 1, *size, 3)
        with pytest.raises(kinograph.InvalidArgumentError, match="42"):
            load(ds, variants=regimen)
