"""Written data comes back bit for bit, in every dtype and shape."""

import io

import numpy as np
import pytest
import samples

import kinograph


def round_trip(tmp_path, **streams):
    return samples.write(tmp_path / "d.kino", [streams])[0]


@pytest.mark.parametrize("dtype", samples.DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (2, 3, 4, 5)], ids=str)
def test_arrays_of_every_dtype_and_shape_come_back_bit_for_bit(tmp_path, dtype, shape):
    expected = samples.numbers(dtype, (300, *shape))
    stream = round_trip(tmp_path, x=expected)["x"]
    assert stream.dtype == expected.dtype
    assert stream.shape == expected.shape
    assert samples.same_bits(stream[:], expected)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_come_back_bit_for_bit(tmp_path, channels):
    expected = samples.image(20, channels=channels)
    stream = round_trip(tmp_path, camera=expected)["camera"]
    assert stream.kind == "image"
    assert samples.same_bits(stream[:], expected)


@pytest.mark.parametrize("dtype", ["uint16", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(24, 32), (24, 32, 1)], ids=str)
def test_depth_is_recognised_by_name_and_comes_back_bit_for_bit(tmp_path, dtype, shape):
    expected = samples.numbers(dtype, (10, *shape))
    episode = round_trip(tmp_path, **{"obs/wrist_Depth": expected, "obs/map": expected})
    assert episode["obs/wrist_Depth"].kind == "depth"
    assert episode["obs/map"].kind == "vector"
    assert samples.same_bits(episode["obs/wrist_Depth"][:], expected)


def test_text_comes_back_unchanged(tmp_path):
    texts = ["lift the cube", "", "Würfel 拿起 🤖", "two\nlines\0and a zero"] * 5
    episode = round_trip(
        tmp_path, plain=texts, array=np.array(texts), objects=np.array(texts, dtype=object)
    )
    for name in ("plain", "objects"):
        assert episode[name].kind == "text"
        assert episode[name].dtype is None
        assert episode[name][:] == texts
        assert episode[name][2] == texts[2]
        assert episode[name][-3:] == texts[-3:]
        assert episode[name][[3, 0, 3]] == [texts[3], texts[0], texts[3]]
        assert list(episode[name]) == texts
    assert episode["array"][:] == np.array(texts).tolist()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4, 3)], ids=str)
def test_frames_without_elements_keep_their_shape(tmp_path, shape):
    stream = round_trip(tmp_path, x=np.zeros((5, *shape), np.float32))["x"]
    assert stream[:].shape == (5, *shape)
    assert stream[2].shape == shape
    assert stream[[4, 0]].shape == (2, *shape)
    assert stream[:].dtype == np.float32


def test_a_single_frame_is_enough(tmp_path):
    episode = round_trip(tmp_path, x=np.array([[1.5, 2.5]]), camera=samples.image(1))
    assert episode.frames == 1
    assert episode.duration_s == 0
    assert episode["x"][0].tolist() == [1.5, 2.5]


def test_any_memory_layout_is_accepted(tmp_path):
    base = samples.numbers("float64", (100, 6))
    base.flags.writeable = False
    layouts = {
        "fortran": np.asfortranarray(base),
        "every_other": np.repeat(base, 2, axis=0)[::2],
        "reversed": base[::-1][::-1],
        "big_endian": base.astype(">f8"),
        "transposed": np.ascontiguousarray(base.T).T,
        "broadcast": np.broadcast_to(base[0], base.shape),
        "read_only": base,
    }
    episode = round_trip(tmp_path, **layouts)
    for name, array in layouts.items():
        assert samples.same_bits(episode[name][:], np.ascontiguousarray(array, "<f8")), name


def test_lists_of_numbers_are_arrays(tmp_path):
    episode = round_trip(tmp_path, reward=[0.0, 0.5, 1.0], pose=[[1, 2], [3, 4], [5, 6]])
    assert episode["reward"][:].tolist() == [0.0, 0.5, 1.0]
    assert episode["pose"][:].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_irregular_timestamps_come_back_exactly(tmp_path):
    rng = np.random.default_rng(5)
    start = 1_700_000_000_123_456_789
    times = {
        "force": start + np.cumsum(rng.integers(900_000, 1_100_000, 2000)),
        "camera": start + np.cumsum(rng.integers(30_000_000, 36_000_000, 60)),
        "twice": np.repeat(start + np.arange(50), 2),
    }
    streams = {
        "force": rng.normal(size=(2000, 6)).astype(np.float32),
        "camera": samples.image(60),
        "twice": np.arange(100),
        "steady": np.arange(30.0),
    }
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(streams, timestamps_ns=times, rate_hz={"steady": 100.0})
    episode = kinograph.open(tmp_path / "d.kino")[0]
    for name, expected in times.items():
        assert episode[name].rate_hz is None
        assert episode[name].timestamps_ns.dtype == np.int64
        assert np.array_equal(episode[name].timestamps_ns, expected)
        assert samples.same_bits(episode[name][:], streams[name])
    assert episode["steady"].rate_hz == 100.0
    # A stream with a rate starts together with the earliest stream that has explicit timestamps.
    first = min(int(given[0]) for given in times.values())
    assert episode.start_ns == first
    assert episode["steady"].timestamps_ns[0] == first
    assert "with explicit timestamps" in repr(episode["force"])


def test_one_list_of_timestamps_can_apply_to_all_streams(tmp_path):
    times = np.array([5, 7, 7, 100], dtype=np.uint64)
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode({"a": np.arange(4), "b": np.ones((4, 2))}, timestamps_ns=times)
    episode = kinograph.open(tmp_path / "d.kino")[0]
    for stream in episode.values():
        assert stream.timestamps_ns.tolist() == [5, 7, 7, 100]
    assert episode.start_ns == 5
    assert episode.duration_s == pytest.approx(95e-9)


def test_jpeg_files_are_stored_as_they_are(tmp_path):
    image = pytest.importorskip("PIL.Image")
    images = samples.image(6, height=40, width=56)
    grey = samples.image(6, height=40, width=56, channels=1)

    def encode(pixels, **options):
        file = io.BytesIO()
        image.fromarray(pixels.squeeze()).save(file, "JPEG", quality=90, **options)
        return file.getvalue()

    files = [encode(pixels) for pixels in images]
    progressive = [encode(pixels, progressive=True) for pixels in images]
    grey_files = [encode(pixels) for pixels in grey]
    episode = round_trip(
        tmp_path, camera=files, progressive=progressive, grey=np.array(grey_files, dtype=object)
    )
    assert episode["camera"].kind == "image"
    assert episode["camera"].shape == (6, 40, 56, 3)
    assert episode["grey"].shape == (6, 40, 56, 1)
    assert [episode["camera"].bitstream(frame) for frame in range(6)] == files
    assert episode["progressive"].bitstream(-1) == progressive[-1]
    decoded = np.stack([np.asarray(image.open(io.BytesIO(file))) for file in files])
    # Two decoders may round a channel differently, but only slightly.
    assert np.abs(episode["camera"][:].astype(int) - decoded).max() <= 3


def test_streams_without_files_have_no_bitstream(lift):
    assert lift[0]["actions"].bitstream(0) is None
    assert lift[0]["obs/agentview_image"].bitstream(3) is None


def test_lossy_images_record_how_much_was_lost(tmp_path):
    camera = samples.image(10)
    plan = {"stream": [{"kind": "image", "codec": "jpeg:q=95,sub=444"}]}
    ds = samples.write(tmp_path / "d.kino", [{"camera": camera, "x": np.arange(10.0)}], plan=plan)
    summary = ds.streams["camera"]
    error = ds[0]["camera"][:].astype(float) - camera
    assert summary.codecs == ("jpeg:q=95,sub=444",)
    assert summary.max_abs_error == np.abs(error).max()
    assert summary.psnr_db == pytest.approx(10 * np.log10(255**2 / np.square(error).mean()))
    assert ds[0]["camera"].bitstream(0)[:2] == b"\xff\xd8"
    assert ds.streams["x"].max_abs_error == 0
    assert ds.streams["x"].psnr_db is None
    assert ds[0]["x"][:].tolist() == list(range(10))
