"""MP4 files that Kinograph writes, read by FFmpeg (PyAV): packets, times, configuration and pixels."""

import json
import pathlib
import sys
from fractions import Fraction

import numpy as np
import pytest

import kinograph
from kinograph import _core

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[2] / "crates/kino_import/tests/fixtures")
)

from pack import fixture

av = pytest.importorskip("av")

ZOO = json.loads(fixture("mp4/expected.json").read_text())
NOT_WRITTEN = {"mjpeg.mov"}


def stream_of(container):
    """The first video stream, decoded by one thread."""
    stream = container.streams.video[0]
    stream.codec_context.thread_count = 1
    return stream


def packets(path):
    """Bytes, times and flags of all packets."""
    with av.open(str(path)) as container:
        return [
            (bytes(p), p.dts, p.pts, p.is_keyframe, p.is_discard)
            for p in container.demux(stream_of(container))
            if p.size
        ]


def description(path):
    """What FFmpeg knows before the first packet."""
    with av.open(str(path)) as container:
        stream = stream_of(container)
        context = stream.codec_context
        return {
            "codec": context.name,
            "extradata": context.extradata,
            "size": (context.width, context.height),
            "time_base": stream.time_base,
            "start": stream.start_time,
            "frames": stream.frames,
            "color": (context.color_primaries, context.color_trc, context.colorspace),
            "pixels": context.pix_fmt,
        }


def pixels_of(frame):
    """The planes without the padding of their rows."""
    item = 2 if frame.format.name.endswith("le") else 1
    planes = [
        np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width * item]
        for plane in frame.planes
    ]
    return b"".join(plane.tobytes() for plane in planes)


def frames(path):
    """Times and pixels of all frames that are shown."""
    with av.open(str(path)) as container:
        return [
            (frame.pts, frame.rotation, pixels_of(frame))
            for frame in container.decode(stream_of(container))
        ]


def shown_first_to_last(found):
    """The packets up to the last that is shown: readers need not list others."""
    last = max(index for index, packet in enumerate(found) if not packet[-1])
    return found[: last + 1]


def check_copy(source, target):
    _core.copy_mp4(source, target)
    expected, found = packets(source), packets(target)
    assert shown_first_to_last(found) == shown_first_to_last(expected)
    before, after = description(source), description(target)
    # Fragments are listed in one table, and files that say nothing about color start to.
    assert after.pop("frames") == len(expected)
    before.pop("frames")
    assert after == before
    assert frames(target) == frames(source)


@pytest.mark.parametrize("name", sorted(set(ZOO) - NOT_WRITTEN))
def test_packets_times_and_pixels_of_files_of_many_writers_are_kept(name, tmp_path):
    check_copy(fixture("mp4/files") / name, tmp_path / "copy.mp4")


@pytest.mark.parametrize("name", sorted(NOT_WRITTEN))
def test_a_codec_that_cannot_be_written_is_refused(name, tmp_path):
    with pytest.raises(kinograph.InvalidArgumentError, match="cannot have the codec `jpeg`"):
        _core.copy_mp4(fixture("mp4/files") / name, tmp_path / "copy.mp4")


def scene(number):
    rows, columns = np.mgrid[:48, :64]
    return np.stack([rows * 4 + number, columns * 3, (rows + number) % 64], -1).astype(np.uint8)


def encode(path, times, rate=30, **options):
    """H.264 whose frames are shown at `times`, in units of 1/rate s."""
    options = {"preset": "veryfast", "x264-params": "scenecut=0"} | options
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.time_base = Fraction(1, rate)
        for number, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(scene(number), format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize(
    ("times", "rate", "options"),
    [
        pytest.param([0], 30, {}, id="one frame"),
        pytest.param([0, 1], 30, {}, id="two frames"),
        pytest.param([0, 1], 30, {"bf": "1"}, id="two frames with B-frames allowed"),
        pytest.param(range(40), 30, {"bf": "4", "g": "15"}, id="B-frames"),
        pytest.param(range(7, 40), 30, {"bf": "4"}, id="B-frames that begin later"),
        pytest.param(range(40), 50, {"g": "2", "bf": "0"}, id="as LeRobot encodes"),
        pytest.param([i * i + i for i in range(30)], 1000, {"bf": "3"}, id="variable rate"),
        pytest.param([33 * i + 1 for i in range(30)], 90000, {}, id="fine clock"),
    ],
)
def test_what_pyav_encodes_is_kept(times, rate, options, tmp_path):
    source = encode(tmp_path / "a.mp4", times, rate, **options)
    check_copy(source, tmp_path / "copy.mp4")


def test_more_packets_than_16_bits_count_are_kept(tmp_path):
    source = tmp_path / "a.mp4"
    with av.open(str(encode(tmp_path / "two.mp4", range(16), bf="2"))) as container:
        video = container.streams.video[0]
        template = [packet for packet in container.demux(video) if packet.size]
        span = 16 * round(1 / (30 * video.time_base))
        with av.open(str(source), "w") as out:
            stream = out.add_stream_from_template(video)
            for repeat in range(4200):
                for packet in template:
                    copy = av.Packet(bytes(packet))
                    copy.dts, copy.pts = packet.dts + repeat * span, packet.pts + repeat * span
                    copy.time_base, copy.stream = packet.time_base, stream
                    copy.is_keyframe = packet.is_keyframe
                    out.mux(copy)
    _core.copy_mp4(source, tmp_path / "copy.mp4")
    found = packets(tmp_path / "copy.mp4")
    assert len(found) == 67200
    assert found == packets(source)


@pytest.mark.parametrize("rate", [10, 24, 30, 50, 60])
def test_frames_are_found_by_timestamp_as_lerobot_looks_for_them(rate, tmp_path):
    """Seek to the key frame, decode, take the frame nearest to i / fps: it is within 0.1 ms, LeRobot's tolerance."""
    source = encode(tmp_path / "a.mp4", range(60), rate, bf="3", g="10")
    _core.copy_mp4(source, tmp_path / "copy.mp4")
    plain = [pixels for _, _, pixels in frames(source)]
    with av.open(str(tmp_path / "copy.mp4")) as container:
        stream = stream_of(container)
        assert stream.average_rate == rate
        assert stream.duration * stream.time_base * rate == 60
        for number in (0, 59, 31, 30, 9, 10, 11):
            wanted = number / rate
            container.seek(round(wanted / stream.time_base), stream=stream, backward=True)
            decoded = []
            for frame in container.decode(stream):
                decoded.append(frame)
                if frame.time >= wanted:
                    break
            nearest = min(decoded, key=lambda frame: abs(frame.time - wanted))
            assert nearest.pts * stream.time_base * rate == number
            assert abs(nearest.time - wanted) < 1e-4
            assert pixels_of(nearest) == plain[number]


def test_an_existing_file_is_kept(tmp_path):
    source = encode(tmp_path / "a.mp4", range(3))
    target = tmp_path / "copy.mp4"
    target.write_bytes(b"mine")
    with pytest.raises(kinograph.StorageError, match="cannot be written"):
        _core.copy_mp4(source, target)
    assert target.read_bytes() == b"mine"
