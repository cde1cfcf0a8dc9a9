"""LeRobot datasets against what lerobot, pyarrow, PyAV and torchcodec read from them."""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kinograph
from kinograph import _video

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[2] / "crates/kino_import/tests/fixtures")
)

from pack import fixture

av = pytest.importorskip("av")
blake3 = pytest.importorskip("blake3")

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = fixture("lerobot")
MORE = pathlib.Path(os.environ.get("KINOGRAPH_TEST_DATA", ROOT.parent / "shared" / "data"))
EXPECTED = json.loads(fixture("lerobot/expected.json").read_text())["sources"]
FRONT = "videos/chunk-000/observation.images.front"


def digest(array):
    return blake3.blake3(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]


def check_stream(found, expected, name):
    if expected["dtype"] == "text":
        texts = expected["texts"]
        assert list(found) == (texts * len(found) if len(texts) == 1 else texts), name
        return
    assert found.dtype.name == expected["dtype"], name
    assert list(found.shape) == [expected["frames"], *expected["shape"]], name
    assert digest(found) == expected["blake3"], name


@pytest.fixture
def copy(tmp_path):
    """A copy of the dataset of v2.1 that a test may damage."""
    path = tmp_path / "v2.1"
    shutil.copytree(FIXTURES / "v2.1", path)
    return path


@pytest.mark.parametrize("version", EXPECTED)
def test_every_stream_and_every_pixel_is_what_lerobots_own_reader_gives(version, tmp_path):
    packed = kinograph.pack(FIXTURES / version, tmp_path / "d.kino", threads=3)
    assert not [defect for defect in packed.defects if defect.action != "note"]
    dataset = kinograph.open(tmp_path / "d.kino")
    expected = EXPECTED[version]
    assert len(dataset) == len(expected["episodes"])
    for number, of_episode in enumerate(expected["episodes"]):
        episode = dataset[f"episode_{number:06d}"]
        assert episode.task == of_episode["tasks"][0]
        changes = {"task"} if len(set(of_episode["tasks"])) > 1 else set()
        assert set(episode.streams) == set(of_episode["streams"]) | changes
        if changes:
            assert list(episode["task"][:]) == of_episode["tasks"]
        for name, stream in of_episode["streams"].items():
            check_stream(episode[name][:], stream, f"{version} episode {number} {name}")
        # Of a rate that does not divide a second, both round to whole nanoseconds, either way.
        off = episode["action"].timestamps_ns - np.array(of_episode["timestamps_ns"])
        assert np.abs(off).max() <= 1
    assert dataset.attributes["lerobot"]["info"]["robot_type"] == expected["robot_type"]
    assert dataset.attributes["sources"][0]["format"] == f"lerobot-{version}"


@pytest.mark.parametrize("name", ["front", "wrist", "side"])
def test_frames_by_number_do_not_depend_on_where_decoding_began(name):
    path = FIXTURES / "v2.1/videos/chunk-000" / f"observation.images.{name}" / "episode_000002.mp4"
    with av.open(str(path)) as container:
        naive = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    video = _video.Video(str(path))
    assert len(video.times_ns) == len(naive) == 13
    random = np.random.default_rng(3)
    for first in [*range(12, -1, -1), *random.integers(0, 13, 30)]:
        stop = int(random.integers(first, 14))
        found = video.read(int(first), stop)
        assert found.tobytes() == b"".join(shot.tobytes() for shot in naive[first:stop])
    with pytest.raises(_video.VideoError, match="has 13 frames"):
        video.read(0, 14)


def make_video(path, codec, options=None):
    """A video of 40 frames, and where its packets are in the file."""
    random = np.random.default_rng(1)
    scene = np.kron(random.integers(0, 256, (13, 20, 3)), np.ones((16, 16, 1), int))
    with av.open(str(path), "w") as container:
        try:
            stream = container.add_stream(codec, rate=30, options=options or {})
        except (ValueError, av.FFmpegError) as error:
            pytest.skip(f"this PyAV has no {codec}: {error}")
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for t in range(40):
            shot = scene[t : t + 120, t : t + 160] + random.integers(-8, 8, (120, 160, 3))
            shot = np.clip(shot, 0, 255).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shot, format="rgb24")))
        container.mux(stream.encode(None))
    with av.open(str(path)) as container:
        return [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]


def flip(file, spans, random):
    """The file with one bit of a packet flipped."""
    start, size = spans[random.integers(len(spans))]
    flipped = bytearray(file)
    flipped[start + random.integers(size)] ^= 1 << random.integers(8)
    return flipped


def decode_naively(path, **options):
    """All frames of a video as FFmpeg gives them, and whether it saw any damage."""
    shots, is_damaged = [], False
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        # With more threads FFmpeg's marks come too late now and then.
        stream.codec_context.thread_count = 1
        stream.codec_context.options = options
        try:
            for frame in container.decode(stream):
                is_damaged |= frame.is_corrupt
                shots.append(frame.to_ndarray(format="rgb24").tobytes())
        except av.FFmpegError:
            is_damaged = True
    return shots, is_damaged or len(shots) != 40


@pytest.mark.parametrize(
    ("codec", "least"), [("libx264", 20), ("libx265", 5), ("mpeg4", 20), ("libsvtav1", 1)]
)
def test_a_flipped_bit_that_ffmpeg_sees_is_an_error_with_its_frame(codec, least, tmp_path):
    whole, damaged = tmp_path / "whole.mp4", tmp_path / "damaged.mp4"
    quiet = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    spans = make_video(whole, codec, quiet)
    file, seen, random = whole.read_bytes(), 0, np.random.default_rng(4)
    for _ in range(50):
        damaged.write_bytes(flip(file, spans, random))
        shots, is_damaged = decode_naively(damaged)
        is_damaged |= decode_naively(damaged, err_detect="careful+explode")[1]
        video = _video.Video(str(damaged))
        if is_damaged:
            seen += 1
            with pytest.raises(_video.VideoError, match=r"at frame \d+"):
                video.read(0, 40)
        else:
            assert video.read(0, 40).tobytes() == b"".join(shots)
    assert seen >= least


def test_no_frame_that_comes_from_a_damaged_one_is_handed_out_before_it(tmp_path):
    whole, damaged = tmp_path / "whole.mp4", tmp_path / "damaged.mp4"
    # Frames between two others are predicted from both: the later one is decoded first.
    spans = make_video(whole, "libx264", {"bf": "3", "x264-params": "b-adapt=0"})
    shots, _ = decode_naively(whole)
    file, seen, random = whole.read_bytes(), 0, np.random.default_rng(5)
    for _ in range(50):
        damaged.write_bytes(flip(file, spans, random))
        if not decode_naively(damaged)[1]:
            continue
        video = _video.Video(str(damaged))
        with pytest.raises(_video.VideoError):  # noqa: PT012 (a frame at a time)
            for frame, expected in enumerate(shots):
                assert video.read(frame, frame + 1).tobytes() == expected, frame
        seen += 1
    assert seen >= 20


def test_a_playlist_in_the_place_of_a_video_opens_nothing(tmp_path):
    secret = FIXTURES / "v2.1/videos/chunk-000/observation.images.front/episode_000000.mp4"
    for text in (
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{secret}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile '{secret}'\n",
    ):
        path = tmp_path / "episode.mp4"
        path.write_text(text)
        with pytest.raises(_video.VideoError, match="cannot be read as a video"):
            _video.Video(str(path))


LONG = {
    "libx264": {"g": "12", "bf": "3", "x264-params": "open-gop=1:log-level=none"},
    "libx265": {"x265-params": "keyint=12:min-keyint=12:open-gop=1:bframes=4:log-level=none"},
    "libsvtav1": {"g": "15", "svtav1-params": "enable-tf=0"},
    "mpeg4": {"g": "20", "bf": "2"},
}


@pytest.mark.parametrize("codec", LONG)
def test_any_range_of_a_long_video_is_what_decoding_from_the_start_gives(codec, tmp_path):
    path = str(tmp_path / "long.mp4")
    random = np.random.default_rng(9)
    scene = random.integers(0, 256, (64, 200, 3), dtype=np.uint8)
    with av.open(path, "w") as container:
        try:
            stream = container.add_stream(codec, rate=30, options=LONG[codec])
        except (ValueError, av.FFmpegError) as error:
            pytest.skip(f"this PyAV has no {codec}: {error}")
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for t in range(100):
            shot = np.ascontiguousarray(scene[:, t : t + 64])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(shot, format="rgb24")))
        container.mux(stream.encode(None))
    with av.open(path) as container:
        naive = [frame.to_ndarray(format="rgb24").tobytes() for frame in container.decode(video=0)]
    assert len(naive) == 100
    video = _video.Video(path)
    assert video.times_ns == [pytest.approx(t * 1e9 / 30, abs=1e5) for t in range(100)]
    for first in random.integers(0, 100, 60):
        stop = min(100, int(first + random.integers(0, 9)))
        assert video.read(int(first), stop).tobytes() == b"".join(naive[first:stop])


def test_depth_videos_keep_their_codes(copy, tmp_path):
    codes = (np.arange(48 * 64).reshape(48, 64) + np.arange(5)[:, None, None] * 7).astype(np.uint16)
    path = copy / FRONT / "episode_000001.mp4"
    try:
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx265", rate=30)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "gray12le"
            stream.options = {"x265-params": "lossless=1:log-level=none"}
            for image in codes:
                frame = av.VideoFrame(64, 48, "gray12le")
                plane = frame.planes[0]
                rows = np.zeros((48, plane.line_size), np.uint8)
                rows[:, :128] = image.astype("<u2").view(np.uint8)
                plane.update(rows.tobytes())
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    except (ValueError, av.FFmpegError) as error:
        pytest.skip(f"this PyAV writes no 12-bit HEVC: {error}")
    keep_only(copy, 1)
    info = json.loads((copy / "meta/info.json").read_text())
    info["features"]["observation.images.front"]["info"] |= {"depth_min": 0.1, "use_log": True}
    (copy / "meta/info.json").write_text(json.dumps(info))
    kinograph.pack(copy, tmp_path / "d.kino", on_defect="keep")
    episode = kinograph.open(tmp_path / "d.kino")["episode_000001"]
    found = episode["observation.images.front"][:]
    assert found.dtype == np.uint16
    assert np.array_equal(found, codes)
    words = episode.attributes["stream_attributes"]["observation.images.front"]
    assert (words["depth_min"], words["use_log"]) == (0.1, True)


def keep_only(root, episode):
    """List one episode only."""
    path = root / "meta/episodes.jsonl"
    lines = path.read_text().splitlines()
    path.write_text(lines[episode] + "\n")


def test_defects_are_refused_dropped_or_kept(copy, tmp_path):
    (copy / FRONT / "episode_000001.mp4").unlink()
    nine = copy / FRONT / "episode_000000.mp4"
    nine.write_bytes(nine.read_bytes()[:1000])
    with pytest.raises(kinograph.CorruptDataError) as raised:
        kinograph.pack(copy, tmp_path / "d.kino")
    assert "2 defects; nothing was written" in str(raised.value)
    assert f"{FRONT}/episode_000001.mp4: is missing" in str(raised.value)
    assert not (tmp_path / "d.kino").exists()
    kept = kinograph.pack(copy, tmp_path / "keep.kino", on_defect="keep")
    assert kept.episodes == 4
    lost = [(defect.episode, defect.place) for defect in kept.defects if defect.lost]
    assert lost == [
        ("episode_000000", f"{FRONT}/episode_000000.mp4"),
        ("episode_000001", f"{FRONT}/episode_000001.mp4"),
    ]
    streams = kinograph.open(tmp_path / "keep.kino")["episode_000001"].streams
    assert "observation.images.front" not in streams
    assert "observation.images.wrist" in streams
    dropped = kinograph.pack(copy, tmp_path / "drop.kino", on_defect="drop-episode")
    assert dropped.episodes == 2


def test_a_video_of_many_episodes_that_is_cut_is_lost_for_those_behind_the_cut(tmp_path):
    root = tmp_path / "v3.0"
    shutil.copytree(FIXTURES / "v3.0", root)
    path = root / "videos/observation.images.front/chunk-000/file-000.mp4"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    packed = kinograph.pack(root, tmp_path / "d.kino", on_defect="keep")
    lost = [defect.episode for defect in packed.defects if defect.lost]
    assert lost == ["episode_000001", "episode_000002"]
    expected = EXPECTED["v3.0"]["episodes"][0]["streams"]["observation.images.front"]
    first = kinograph.open(tmp_path / "d.kino")["episode_000000"]
    check_stream(first["observation.images.front"][:], expected, "front")


def test_a_killed_import_is_taken_up_and_ends_the_same(tmp_path):
    """As for the formats without video in kill.rs; KINOGRAPH_KILLS says how many moments."""
    source, whole = FIXTURES / "v3.0", tmp_path / "whole.kino"
    options = {"shard_size": 20_000, "threads": 2}
    kinograph.pack(source, whole, **options)

    def shards(path):
        return {file.name: file.read_bytes() for file in path.rglob("*.kshard")}

    assert len(shards(whole)) > 1
    kills = int(os.environ.get("KINOGRAPH_KILLS", "2"))
    for number in range(kills):
        killed = tmp_path / f"killed_{number}.kino"
        # Anywhere but at the very end, where it may have committed.
        moment = 0.9 * (2 * number + 1) / (2 * kills)
        script = (
            "import kinograph, os\n"
            f"kill = lambda done, of: done > {moment} * of and os.kill(os.getpid(), 9)\n"
            f"kinograph.pack({str(source)!r}, {str(killed)!r}, progress=kill, **{options})"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
        assert done.returncode == -9, done.stderr
        with pytest.raises(kinograph.NotFoundError):
            kinograph.open(killed)
        kinograph.pack(source, killed, mode="resume", **options)
        assert shards(killed) == shards(whole), moment


def pack_without_pyav(source, target, *options):
    script = (
        "import sys; sys.modules['av'] = None\n"
        "from kinograph.__main__ import main\n"
        f"sys.argv = ['kinograph', 'pack', {str(source)!r}, {str(target)!r}, *{options!r}]\n"
        "sys.exit(main())"
    )
    without = os.environ | {"KINOGRAPH_FFMPEG": "/nowhere"}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=without
    )


def test_without_pyav_av1_is_packed_and_other_video_names_what_to_install(copy, tmp_path):
    # Only this one is H.264.
    done = pack_without_pyav(copy, tmp_path / "av1.kino", "--exclude", "*.side")
    assert done.returncode == 0, done.stderr
    done = pack_without_pyav(copy, tmp_path / "h264.kino")
    assert done.returncode == 1
    assert "observation.images.side/episode_000000.mp4" in done.stderr
    assert "run `pip install av`" in done.stderr
    assert not (tmp_path / "h264.kino").exists()


def test_the_command_gives_exit_code_3_when_a_video_is_missing(copy, tmp_path):
    (copy / FRONT / "episode_000001.mp4").unlink()
    command = [sys.executable, "-m", "kinograph", "pack", str(copy), str(tmp_path / "d.kino")]
    done = subprocess.run(
        [*command, "--on-defect", "keep", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    (lost,) = [defect for defect in json.loads(done.stdout)["defects"] if defect["lost"]]
    assert lost["place"] == f"{FRONT}/episode_000001.mp4"


def write_v3(root, columns, *, fps=30, **info):
    """A dataset of v3.0 without lerobot: one episode, one data file."""
    frames = len(next(iter(columns.values())))
    numbering = {
        "timestamp": pa.array([t / fps for t in range(frames)], pa.float32()),
        "frame_index": pa.array(range(frames), pa.int64()),
        "episode_index": pa.array([0] * frames, pa.int64()),
    }
    for folder in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / folder).mkdir(parents=True)
    data = root / "data/chunk-000/file-000.parquet"
    pq.write_table(pa.table(numbering | columns), data, row_group_size=3)
    row = {"episode_index": [0], "tasks": [["pour"]], "length": [frames], "operator": ["ana"]}
    row |= {"data/chunk_index": [0], "data/file_index": [0]}
    pq.write_table(pa.table(row), root / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(pa.table({"task_index": [0], "task": ["pour"]}), root / "meta/tasks.parquet")
    more = {"codebase_version": "v3.0", "fps": fps, "features": {}} | info
    (root / "meta/info.json").write_text(json.dumps(more))
    return root


def test_columns_of_every_type_come_as_pyarrow_gives_them(tmp_path):
    n = 7
    random = np.random.default_rng(5)
    numbers = {
        kind: random.integers(0, 100, n).astype(kind)
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    }
    numbers |= {
        kind: random.normal(size=n).astype(kind) for kind in ("float16", "float32", "float64")
    }
    fixed = random.normal(size=(n, 4)).astype(np.float32)
    cube = random.integers(0, 256, (n, 2, 3, 4)).astype(np.int32)
    events = [
        [] if t % 3 else [{"role": "user", "content": f"gieß {t}", "at": t / 2}] for t in range(n)
    ]
    root = write_v3(
        tmp_path / "d",
        {name: pa.array(values) for name, values in numbers.items()}
        | {
            "fixed": pa.FixedSizeListArray.from_arrays(pa.array(fixed.reshape(-1)), 4),
            "cube": pa.array(cube.tolist(), pa.list_(pa.list_(pa.list_(pa.int32())))),
            "flag": pa.array([t % 2 == 0 for t in range(n)]),
            "words": pa.array([["a", "b"][: t % 3] for t in range(n)]),
            "language_events": pa.array(events),
        },
    )
    packed = kinograph.pack(root, tmp_path / "d.kino")
    assert packed.defects == []
    episode = kinograph.open(tmp_path / "d.kino")["episode_000000"]
    assert episode.task == "pour"
    assert episode.attributes["operator"] == "ana"
    for name, values in (numbers | {"fixed": fixed, "cube": cube}).items():
        found = episode[name][:]
        assert found.dtype == values.dtype, name
        assert np.array_equal(found, values), name
    assert episode["flag"][:].tolist() == [t % 2 == 0 for t in range(n)]
    assert [json.loads(text) for text in episode["language_events"][:]] == events
    assert [json.loads(text) for text in episode["words"][:]] == [
        ["a", "b"][: t % 3] for t in range(n)
    ]


def test_images_are_carried_or_decoded_also_from_files_beside_the_table(tmp_path):
    n = 5
    shots = np.random.default_rng(6).integers(0, 256, (n, 16, 24, 3), dtype=np.uint8)

    def encoded(kind):
        buffers = [io.BytesIO() for _ in range(n)]
        for shot, buffer in zip(shots, buffers, strict=True):
            PIL.Image.fromarray(shot).save(buffer, kind)
        return [buffer.getvalue() for buffer in buffers]

    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    jpegs, pngs = encoded("jpeg"), encoded("png")
    root = tmp_path / "d"
    columns = {
        "carried": pa.array([{"bytes": file, "path": "x.jpg"} for file in jpegs], struct),
        "decoded": pa.array([{"bytes": file, "path": None} for file in pngs], struct),
        "beside": pa.array([{"bytes": None, "path": f"images/{t}.png"} for t in range(n)], struct),
        "outside": pa.array([{"bytes": None, "path": "../secret.png"} for t in range(n)], struct),
    }
    write_v3(root, columns)
    (root / "images").mkdir()
    for t, file in enumerate(pngs):
        (root / "images" / f"{t}.png").write_bytes(file)
    (tmp_path / "secret.png").write_bytes(pngs[0])
    packed = kinograph.pack(root, tmp_path / "d.kino", on_defect="keep")
    (lost,) = packed.defects
    assert lost.place.endswith(":outside")
    assert "leads out of the source's folder" in lost.what
    episode = kinograph.open(tmp_path / "d.kino")["episode_000000"]
    assert np.array_equal(episode["decoded"][:], shots)
    assert np.array_equal(episode["beside"][:], shots)
    assert "outside" not in episode.streams
    assert [episode["carried"].bitstream(t) for t in range(n)] == jpegs


def test_columns_that_no_stream_can_be_are_listed(tmp_path):
    root = write_v3(
        tmp_path / "d",
        {
            "good": pa.array([1.0, 2.0, 3.0]),
            "ragged": pa.array([[1.0], [1.0, 2.0], [3.0]]),
            "twisted": pa.array([[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]),
            "holes": pa.array([1.0, None, 3.0]),
            "days": pa.array([b"no image"] * 3),
        },
        features={"absent": {"dtype": "float32", "shape": [1]}},
    )
    with pytest.raises(kinograph.CorruptDataError) as raised:
        kinograph.pack(root, tmp_path / "d.kino")
    for part in (
        ":ragged: has rows of several lengths",
        ":holes: has nulls",
        ":days: ",
        ":absent: is listed",
    ):
        assert part in str(raised.value)


def test_times_of_a_video_that_do_not_fit_are_refused(tmp_path):
    root = tmp_path / "v3.0"
    shutil.copytree(FIXTURES / "v3.0", root)
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    name = "videos/observation.images.front/from_timestamp"
    moved = pa.array([0.0, 0.3, 0.4667 + 0.5, 0.0], pa.float64())
    table = table.set_column(table.schema.get_field_index(name), name, moved)
    pq.write_table(table, path)
    packed = kinograph.pack(root, tmp_path / "d.kino", on_defect="keep")
    (lost,) = [defect for defect in packed.defects if defect.lost]
    assert (lost.episode, lost.place) == (
        "episode_000002",
        "videos/observation.images.front/chunk-000/file-000.mp4",
    )
    assert "of episode 2, but the episode has 13" in lost.what


@pytest.mark.parametrize("by", [-1, 2])
def test_where_an_episode_ends_in_a_video_is_only_noted_if_it_disagrees(by, tmp_path):
    # Some datasets have the time of the last frame there, not the end of it; LeRobot does not look.
    root = tmp_path / "v3.0"
    shutil.copytree(FIXTURES / "v3.0", root)
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(path)
    name = "videos/observation.images.front/to_timestamp"
    ends = [end + by / 30 for end in table[name].to_pylist()]
    table = table.set_column(table.schema.get_field_index(name), name, pa.array(ends, pa.float64()))
    pq.write_table(table, path)
    packed = kinograph.pack(root, tmp_path / "d.kino")
    (note,) = [defect for defect in packed.defects if "to_timestamp" in defect.place]
    assert not any(defect.lost for defect in packed.defects)
    assert (note.place, note.action, note.lost) == (f"meta/episodes:{name}", "note", False)
    assert note.what == (
        f"ends episode 0 after {9 + by} frames, but its length is 9, which is used"
        " (and 3 more episodes disagree)"
    )
    for number, expected in enumerate(EXPECTED["v3.0"]["episodes"]):
        episode = kinograph.open(tmp_path / "d.kino")[f"episode_{number:06}"]
        front = episode["observation.images.front"][:]
        check_stream(front, expected["streams"]["observation.images.front"], "front")


def test_the_real_unitree_g1_sample_is_imported_with_an_exact_report(tmp_path):
    root = MORE / "real" / "g1_lerobot"
    if not root.exists():
        pytest.skip(f"no {root}; KINOGRAPH_TEST_DATA names the folder of recordings")
    expected = json.loads(fixture("lerobot/g1_expected.json").read_text())["sources"]["g1_lerobot"]
    packed = kinograph.pack(root, tmp_path / "g1.kino", on_defect="keep")
    faults = [(d.place, d.episode, d.action) for d in packed.defects if d.action != "note"]
    missing = [
        (path, f"episode_{int(episode['name']):06d}", "lost")
        for episode in expected["episodes"]
        for path in episode["missing"]
    ]
    assert len(missing) == 2
    assert faults == [
        ("meta/info.json", None, "kept"),
        *missing,
    ]
    dataset = kinograph.open(tmp_path / "g1.kino")
    assert len(dataset) == len(expected["episodes"])
    for of_episode in expected["episodes"]:
        episode = dataset[f"episode_{int(of_episode['name']):06d}"]
        assert set(episode.streams) == set(of_episode["streams"])
        for name, stream in of_episode["streams"].items():
            if stream["dtype"] == "uint8":
                # A part at a time: a long video does not fit into memory.
                hasher = blake3.blake3()
                for first in range(0, stream["frames"], 32):
                    hasher.update(np.ascontiguousarray(episode[name][first : first + 32]))
                assert hasher.hexdigest()[:32] == stream["blake3"], name
            else:
                check_stream(episode[name][:], stream, name)
