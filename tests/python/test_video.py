"""Video that is stored as it is: every frame against PyAV's own decoder, for the files that people really have."""

import fractions
import json
import os
import subprocess
import sys
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from optional import optional
from PIL import Image

import kinograph

av = optional("av")

FRAMES = 60
CAMERA = "observation.images.front"

#: Every image losslessly.
LOSSLESS = {"stream": [{"kind": "image", "codec": "predict"}]}

#: Encoder, options, pixel format: what LeRobot, FFmpeg's command line, OpenCV, imageio and phones write.
CODERS = {
    "av1_lerobot": ("libsvtav1", {"g": "2", "crf": "30"}, "yuv420p"),
    "av1_hidden_images": ("libsvtav1", {"g": "24", "crf": "40"}, "yuv420p"),
    "av1_grain": ("libsvtav1", {"g": "20", "svtav1-params": "film-grain=8"}, "yuv420p"),
    "h264_default": ("libx264", {}, "yuv420p"),
    "h264_b_frames": ("libx264", {"g": "12", "bf": "3", "b-pyramid": "normal"}, "yuv420p"),
    "h264_baseline": ("libx264", {"profile": "baseline", "g": "7"}, "yuv420p"),
    "h264_intra": ("libx264", {"g": "1"}, "yuv420p"),
    "h264_open": (
        "libx264",
        {"x264-params": "open-gop=1:keyint=12:min-keyint=12:bframes=3"},
        "yuv420p",
    ),
    "h264_422": ("libx264", {"g": "12"}, "yuv422p"),
    "h264_full_range": ("libx264", {"g": "12"}, "yuvj420p"),
    "h264_444": ("libx264", {"g": "12"}, "yuv444p"),
    "h264_444_full_range": ("libx264", {"g": "12"}, "yuvj444p"),
    "hevc_gray": ("libx265", {"x265-params": "keyint=12"}, "gray"),
    "hevc_open": (
        "libx265",
        {"x265-params": "keyint=12:min-keyint=12:bframes=3:open-gop=1"},
        "yuv420p",
    ),
    "hevc_closed": ("libx265", {"x265-params": "keyint=12:bframes=3:open-gop=0"}, "yuv420p"),
    "vp9": ("libvpx-vp9", {"g": "20", "lag-in-frames": "16", "auto-alt-ref": "1"}, "yuv420p"),
    "mpeg4_opencv": ("mpeg4", {"g": "12"}, "yuv420p"),
    "mpeg4_b_frames": ("mpeg4", {"g": "12", "bf": "2"}, "yuv420p"),
}


def scene(count=FRAMES, height=120, width=160):
    """A moving picture with some noise."""
    random = np.random.default_rng(1)
    large = np.kron(random.integers(0, 256, (20, 24, 3)), np.ones((16, 16, 1), int))
    for t in range(count):
        shot = large[t : t + height, t : t + width] + random.integers(-8, 8, (height, width, 3))
        yield np.clip(shot, 0, 255).astype(np.uint8)


def make_video(path, coder, pts=lambda t: t, matrix=None, size=(120, 160)):
    """Write a video with this coder."""
    name, options, pixels = CODERS[coder]
    with av.open(str(path), "w") as container:
        try:
            stream = container.add_stream(name, rate=30, options=options)
        except (ValueError, av.FFmpegError) as error:
            pytest.skip(f"this PyAV has no {name}: {error}")
        stream.height, stream.width, stream.pix_fmt = *size, pixels
        if matrix is not None:
            stream.codec_context.colorspace = matrix
        for t, shot in enumerate(scene(FRAMES, *size)):
            frame = av.VideoFrame.from_ndarray(shot, format="rgb24").reformat(format=pixels)
            frame.pts = pts(t)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def decode(path):
    """Every frame in presentation order, by PyAV."""
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def write_dataset(root, lengths, fps=30, shift=0):
    """A LeRobot dataset of v3.0 whose episodes are in one video file, which is yet to be written; returns its path."""
    total = sum(lengths)
    index = [number for number, length in enumerate(lengths) for _ in range(length)]
    frame = [t for length in lengths for t in range(length)]
    starts = np.cumsum([shift, *lengths])
    columns = {
        "timestamp": pa.array([t / fps for t in frame], pa.float32()),
        "frame_index": pa.array(frame, pa.int64()),
        "episode_index": pa.array(index, pa.int64()),
        "index": pa.array(range(total), pa.int64()),
        "task_index": pa.array([0] * total, pa.int64()),
        "action": pa.array([[t / 7, t / 5] for t in range(total)], pa.list_(pa.float32())),
    }
    count = len(lengths)
    episodes = {
        "episode_index": list(range(count)),
        "tasks": [["pour"]] * count,
        "length": list(lengths),
        "data/chunk_index": [0] * count,
        "data/file_index": [0] * count,
        f"videos/{CAMERA}/chunk_index": [0] * count,
        f"videos/{CAMERA}/file_index": [0] * count,
        f"videos/{CAMERA}/from_timestamp": [start / fps for start in starts[:-1]],
        f"videos/{CAMERA}/to_timestamp": [end / fps for end in starts[1:]],
    }
    info = {
        "codebase_version": "v3.0",
        "fps": fps,
        "features": {CAMERA: {"dtype": "video", "shape": [120, 160, 3]}},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    for folder in ("meta/episodes/chunk-000", "data/chunk-000", f"videos/{CAMERA}/chunk-000"):
        (root / folder).mkdir(parents=True)
    pq.write_table(pa.table(columns), root / "data/chunk-000/file-000.parquet")
    pq.write_table(pa.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(pa.table({"task_index": [0], "task": ["pour"]}), root / "meta/tasks.parquet")
    (root / "meta/info.json").write_text(json.dumps(info))
    return root / f"videos/{CAMERA}/chunk-000/file-000.mp4"


def stream_of(dataset, name=CAMERA):
    return next(stream for stream in dataset.streams.values() if stream.name == name)


@pytest.mark.parametrize("coder", CODERS)
def test_carried_frames_are_those_of_pyav_and_so_are_decoded_ones(coder, tmp_path):
    """Episodes begin and end anywhere in the file; a carried and a lossless copy are equal to PyAV's frames."""
    lengths = (13, 1, 29, FRAMES - 43)
    path = make_video(write_dataset(tmp_path / "source", lengths), coder)
    expected = decode(path)
    packed = kinograph.pack(tmp_path / "source", tmp_path / "carried.kino")
    assert not [defect for defect in packed.defects if "decoded" in defect.what]
    kinograph.pack(tmp_path / "source", tmp_path / "lossless.kino", plan=LOSSLESS)
    carried = kinograph.open(tmp_path / "carried.kino")
    lossless = kinograph.open(tmp_path / "lossless.kino")
    start = 0
    random = np.random.default_rng(2)
    for episode, length in enumerate(lengths):
        wanted = expected[start : start + length]
        for dataset in (carried, lossless):
            assert np.array_equal(dataset[episode][CAMERA][:], wanted), (coder, episode)
        for _ in range(8):
            first = int(random.integers(0, length))
            stop = int(random.integers(first, length)) + 1
            found = carried[episode][CAMERA][first:stop]
            assert np.array_equal(found, wanted[first:stop]), (coder, episode, first, stop)
        start += length


def packets_of(path):
    """Bytes and time of every packet in decode order, and the decoder's configuration."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        found = [(bytes(packet), float(packet.pts * stream.time_base)) for packet in packets]
        return found, bytes(stream.codec_context.extradata or b"")


@pytest.mark.parametrize("to", ["lerobot-v2.1", "lerobot-v3"])
@pytest.mark.parametrize("coder", CODERS)
def test_an_export_has_the_packets_of_the_source(coder, to, tmp_path):
    source = make_video(write_dataset(tmp_path / "source", (FRAMES,)), coder)
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    exported = kinograph.export(tmp_path / "d.kino", tmp_path / "out", to=to)
    assert not [defect for defect in exported.defects if CAMERA in defect.place]
    (path,) = (tmp_path / "out").rglob("*.mp4")
    before, after = packets_of(source), packets_of(path)
    assert [data for data, _ in after[0]] == [data for data, _ in before[0]]
    # Messages of x265 are left out of the configuration.
    assert after[1] == before[1] or coder.startswith("hevc")
    assert np.allclose([time for _, time in after[0]], [time for _, time in before[0]], atol=1e-9)
    assert np.array_equal(decode(path), decode(source))


@pytest.mark.parametrize("coder", CODERS)
def test_episodes_from_the_middle_of_a_file_are_files_of_their_own(coder, tmp_path):
    lengths = (13, 1, 29, FRAMES - 43)
    path = make_video(write_dataset(tmp_path / "source", lengths), coder)
    expected = decode(path)
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="lerobot-v2.1")
    kinograph.pack(tmp_path / "out", tmp_path / "again.kino")
    again = kinograph.open(tmp_path / "again.kino")
    start = 0
    for episode, length in enumerate(lengths):
        wanted = expected[start : start + length]
        file = tmp_path / f"out/videos/chunk-000/{CAMERA}/episode_{episode:06}.mp4"
        assert np.array_equal(decode(file), wanted), (coder, episode)
        assert np.array_equal(again[episode][CAMERA][:], wanted), (coder, episode)
        start += length


@pytest.mark.parametrize("to", ["lerobot-v3", "webdataset"])
def test_an_export_as_images_has_the_decoded_frames(to, tmp_path):
    path = make_video(write_dataset(tmp_path / "source", (FRAMES,)), "h264_b_frames")
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    cameras = {"cameras": "images"} if to == "lerobot-v3" else {}
    kinograph.export(tmp_path / "d.kino", tmp_path / "out", to=to, on_defect="keep", **cameras)
    assert not list((tmp_path / "out").rglob("*.mp4"))
    kinograph.pack(tmp_path / "out", tmp_path / "again.kino", rate_hz=30)
    (again,) = [
        stream
        for name, stream in kinograph.open(tmp_path / "again.kino")[0].items()
        if "front" in name
    ]
    assert np.array_equal(again[:], decode(path))


def batches(dataset):
    """An epoch of shuffled batches: two frames of the camera, and a chunk of actions."""
    import kinograph.numpy  # noqa: PLC0415 (only here)

    samples = dataset.samples({CAMERA: [-1, 0], "action": range(4)}, include=["episode", "frame"])
    with kinograph.numpy.Loader(samples, batch_size=7, seed=3, shuffle="global") as loader:
        return list(loader)


@pytest.mark.parametrize("coder", ["av1_lerobot", "h264_b_frames", "hevc_open", "mpeg4_b_frames"])
def test_carried_linked_and_lossless_copies_give_the_same_batches_in_the_same_order(
    coder, tmp_path
):
    source = tmp_path / "source"
    make_video(write_dataset(source, (13, 1, 29, FRAMES - 43)), coder)
    kinograph.pack(source, tmp_path / "carried.kino")
    kinograph.pack(source, tmp_path / "lossless.kino", plan=LOSSLESS)
    kinograph.link(source, tmp_path / "linked.kino")
    kinograph.link(source, tmp_path / "trusted.kino", trust=True)
    kinograph.repack(tmp_path / "linked.kino", tmp_path / "copy.kino")
    names = ("carried", "linked", "trusted", "copy", "lossless")
    all_batches = [batches(kinograph.open(tmp_path / f"{name}.kino")) for name in names]
    for found in all_batches[1:]:
        assert len(found) == len(all_batches[0])
        for one, other in zip(found, all_batches[0], strict=True):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[key], other[key]) for key in one)
    sizes = [
        sum(file.stat().st_size for file in (tmp_path / f"{name}.kino").rglob("*.kshard"))
        for name in names
    ]
    assert sizes[1] < sizes[0] / 2
    assert sizes[2] <= sizes[1]


def edit_table(path, name, change):
    """Change the payload of the first box of that name in a file."""
    data = bytearray(path.read_bytes())
    at = data.index(name) + 4
    size = int.from_bytes(data[at - 8 : at - 4], "big") - 8
    data[at : at + size] = change(bytes(data[at : at + size]))
    path.write_bytes(data)


def drop_table(path, name):
    """Rename a box, so that no reader knows it."""
    data = path.read_bytes()
    assert name in data
    path.write_bytes(data.replace(name, b"free", 1))


def mux(path, parts):
    """Write packets of several files into one track of the first one's kind."""
    with av.open(str(path), "w") as container:
        stream, time = None, 0
        for part, keep in parts:
            with av.open(str(part)) as given:
                if stream is None:
                    stream = container.add_stream_from_template(given.streams.video[0], opaque=True)
                for packet in list(given.demux(video=0)):
                    if packet.size and keep(packet):
                        packet.stream, packet.pts, packet.dts = stream, time, time
                        packet.time_base = fractions.Fraction(1, 30)
                        container.mux(packet)
                        time += 1


def refused(source, tmp_path):
    """The error of packing a dataset, which leaves nothing behind."""
    with pytest.raises(kinograph.KinographError) as error:
        kinograph.pack(source, tmp_path / "refused.kino")
    assert not (tmp_path / "refused.kino").exists()
    return str(error.value)


def test_a_video_that_changes_its_size_is_refused(tmp_path):
    path = write_dataset(tmp_path / "source", (2 * FRAMES,))
    small = make_video(tmp_path / "small.mp4", "av1_lerobot", size=(96, 128))
    large = make_video(tmp_path / "large.mp4", "av1_lerobot")
    mux(path, [(large, lambda _: True), (small, lambda _: True)])
    error = refused(tmp_path / "source", tmp_path)
    assert "96 × 128, not 120 × 160" in error
    assert CAMERA in error


@pytest.mark.parametrize(
    "coder", ["av1_lerobot", "av1_hidden_images", "vp9", "mpeg4_opencv", "h264_b_frames"]
)
def test_a_table_that_calls_every_packet_a_key_frame_loses_nothing_and_shows_nothing_wrong(
    coder, tmp_path
):
    path = make_video(write_dataset(tmp_path / "source", (FRAMES,)), coder)
    expected = decode(path)
    drop_table(path, b"stss")
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    found = kinograph.open(tmp_path / "d.kino")[0][CAMERA]
    assert np.array_equal(found[:], expected)
    assert np.array_equal(found[41:42], expected[41:42])


@pytest.mark.parametrize("coder", ["av1_lerobot", "h264_b_frames", "hevc_closed", "mpeg4_opencv"])
def test_sizes_that_lie_are_refused(coder, tmp_path):
    path = make_video(write_dataset(tmp_path / "source", (FRAMES,)), coder)

    def shift(table):
        sizes = np.frombuffer(table[12:], ">u4").copy()
        sizes[10], sizes[11] = sizes[10] + 7, sizes[11] - 7
        return table[:12] + sizes.tobytes()

    edit_table(path, b"stsz", shift)
    assert CAMERA in refused(tmp_path / "source", tmp_path)


def test_a_video_without_its_first_key_frame_loses_what_needs_it(tmp_path):
    path = write_dataset(tmp_path / "source", (FRAMES - 1,))
    whole = make_video(tmp_path / "whole.mp4", "h264_baseline")
    first = iter([False])
    mux(path, [(whole, lambda _: next(first, True))])
    error = refused(tmp_path / "source", tmp_path)
    assert path.name in error
    assert "episode_000000" in error or CAMERA in error


def test_absurd_sizes_are_refused_without_memory(tmp_path):
    path = make_video(write_dataset(tmp_path / "source", (FRAMES,)), "av1_lerobot")
    data = path.read_bytes()
    # Width and height are 24 bytes behind the name of the sample entry.
    at = data.index(b"av01", data.index(b"stsd")) + 28
    path.write_bytes(data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :])
    packed = kinograph.pack(tmp_path / "source", tmp_path / "d.kino", on_defect="keep")
    notes = [defect.what for defect in packed.defects if CAMERA in defect.place]
    assert any("exceeds" in note or "is decoded" in note for note in notes), notes


def test_a_plan_that_resizes_video_decodes_it(tmp_path):
    path = make_video(write_dataset(tmp_path / "source", (13, FRAMES - 13)), "h264_baseline")
    expected = decode(path)
    plan = {"stream": [{"kind": "image", "resize": (48, 72)}]}
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino", plan=plan)
    ds = kinograph.open(tmp_path / "d.kino")
    camera = stream_of(ds)
    assert (camera.shape, camera.resized_from) == ((48, 72, 3), ((120, 160),))
    assert [one.codec for one in camera.generations] == ["video:coding=h264"]
    assert camera.max_abs_error == 0
    found = np.concatenate([episode[CAMERA][:] for episode in ds])
    for image, frame in zip(found, expected, strict=True):
        wanted = Image.fromarray(frame).resize((72, 48), Image.Resampling.BILINEAR)
        assert np.abs(np.asarray(wanted).astype(int) - image).max() <= 1
    # Of that size already, the packets stay as they are.
    plan = {"stream": [{"kind": "image", "resize": (120, 160)}]}
    kinograph.pack(tmp_path / "source", tmp_path / "same.kino", plan=plan)
    assert stream_of(kinograph.open(tmp_path / "same.kino")).codecs == ("video:coding=h264",)
    # A dataset of packets is resized as well.
    kinograph.repack(
        tmp_path / "same.kino",
        tmp_path / "r.kino",
        plan={"stream": [{"resize": (48, 72), "kind": "image"}]},
    )
    repacked = kinograph.open(tmp_path / "r.kino")
    assert np.array_equal(np.concatenate([episode[CAMERA][:] for episode in repacked]), found)


@pytest.mark.parametrize(
    ("pixels", "coder"), [("yuv420p10le", "libx265"), ("yuv420p10le", "libsvtav1")]
)
def test_color_of_ten_bits_is_decoded_with_a_note(pixels, coder, tmp_path):
    path = write_dataset(tmp_path / "source", (12,))
    CODERS["deep"] = (coder, {"g": "6"}, pixels)
    make_video(path, "deep")
    packed = kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    (note,) = [
        defect.what
        for defect in packed.defects
        if CAMERA in defect.place and "decoded" in defect.what
    ]
    assert "10-bit" in note
    assert np.array_equal(kinograph.open(tmp_path / "d.kino")[0][CAMERA][:], decode(path)[:12])


@pytest.mark.parametrize("matrix", [1, 5, 9])
@pytest.mark.parametrize("coder", ["h264_b_frames", "av1_lerobot", "h264_full_range", "h264_444"])
def test_the_matrix_of_a_video_is_that_of_pyav(coder, matrix, tmp_path):
    path = make_video(write_dataset(tmp_path / "source", (FRAMES,)), coder, matrix=matrix)
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    assert np.array_equal(kinograph.open(tmp_path / "d.kino")[0][CAMERA][:], decode(path))


def test_times_that_vary_are_noted_and_frames_are_counted(tmp_path):
    times = np.cumsum([0, *np.random.default_rng(4).integers(1, 4, FRAMES - 1)])
    path = make_video(
        write_dataset(tmp_path / "source", (FRAMES,)), "h264_b_frames", pts=lambda t: int(times[t])
    )
    expected = decode(path)
    packed = kinograph.pack(tmp_path / "source", tmp_path / "d.kino", on_defect="keep")
    assert any("at 30 Hz it should be" in defect.what for defect in packed.defects)
    assert np.array_equal(kinograph.open(tmp_path / "d.kino")[0][CAMERA][:], expected)


def test_h264_is_read_the_same_without_ffmpeg(tmp_path):
    """A process without PyAV decodes H.264 with the decoder in the wheel."""
    path = make_video(write_dataset(tmp_path / "source", (FRAMES,)), "h264_b_frames")
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    script = (
        "import sys; sys.modules['av'] = None\n"
        "import kinograph, zlib\n"
        f"frames = kinograph.open({str(tmp_path / 'd.kino')!r})[0][{CAMERA!r}]\n"
        "print(zlib.crc32(frames[:].tobytes()), zlib.crc32(frames[17:19].tobytes()))"
    )
    without = os.environ | {"KINOGRAPH_FFMPEG": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=without
    )
    expected = decode(path)
    wanted = [zlib.crc32(part.tobytes()) for part in (expected, expected[17:19])]
    assert [int(word) for word in done.stdout.split()] == wanted


def test_a_missing_decoder_is_reported_when_a_dataset_is_opened(tmp_path):
    make_video(write_dataset(tmp_path / "source", (FRAMES,)), "hevc_closed")
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    script = (
        "import sys, warnings; sys.modules['av'] = None\n"
        "import kinograph\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        f"    ds = kinograph.open({str(tmp_path / 'd.kino')!r})\n"
        "print(caught[0].category.__name__, caught[0].message)\n"
        f"try: ds.samples({{{CAMERA!r}: [0]}})\n"
        "except kinograph.KinographError as error: print(error)"
    )
    without = os.environ | {"KINOGRAPH_FFMPEG": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=without
    )
    warning, error = done.stdout.splitlines()
    assert warning.startswith("KinographWarning")
    for text in (warning, error):
        assert CAMERA in text
        # The variable comes first, so installing PyAV alone would change nothing.
        assert "or unset it and run `pip install av`" in text


def test_verify_calls_a_missing_decoder_by_its_name_and_not_damage(tmp_path):
    make_video(write_dataset(tmp_path / "source", (13, FRAMES - 13)), "hevc_closed")
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    without = os.environ | {"KINOGRAPH_FFMPEG": "/nowhere"}
    command = [sys.executable, "-m", "kinograph", "verify", str(tmp_path / "d.kino"), "--decode"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=without)
    assert done.returncode == 1
    line, verdict = done.stdout.splitlines()
    # Once for both episodes.
    assert line.startswith(f"not checked: stream `{CAMERA}`: codec `video` cannot be used here")
    assert "d.kino: 1 stream cannot be decoded here (2 episodes, " in verdict
    assert "damaged" not in done.stdout
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=False, env=without
    )
    found = json.loads(done.stdout)
    assert (found["valid"], found["damage"], len(found["undecodable"])) == (False, [], 1)


def test_codecs_and_the_planner_measure_carried_video_as_it_is_stored(tmp_path):
    make_video(write_dataset(tmp_path / "source", [FRAMES]), "av1_lerobot")
    kinograph.pack(tmp_path / "source", tmp_path / "carried.kino")
    command = [sys.executable, "-m", "kinograph", "bench", "codecs", str(tmp_path / "carried.kino")]
    command += [
        "--stream",
        CAMERA,
        "--seconds",
        "0.01",
        "--max-size",
        "1MB",
        "--no-cache",
        "--json",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures = {row["name"]: row["value"] for row in json.loads(done.stdout)["figures"]}
    stored = {name: value for name, value in figures.items() if "video:coding=av1" in name}
    assert stored
    assert not any("encode" in name for name in stored)
    choice = kinograph.plan(tmp_path / "carried.kino", step_s=1.0, batch_size=4, seconds=0.1)
    assert choice.codecs[CAMERA] == "video:coding=av1"
    assert all(plan.is_allowed for plan in choice.plans if plan.codecs[CAMERA] == "raw")
