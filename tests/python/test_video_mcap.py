"""`CompressedVideo` topics of MCAP recordings: every frame against PyAV's own decoder, and the bytes of the messages."""

import base64
import json
import re
from fractions import Fraction

import numpy as np
import pytest
from optional import optional
from test_video import CAMERA, LOSSLESS, decode, make_video, scene, write_dataset

import kinograph

av = optional("av")
mcap_ros2 = optional("mcap_ros2")
from mcap.reader import make_reader  # noqa: E402
from mcap.writer import CompressionType, Writer  # noqa: E402
from mcap_ros2.decoder import DecoderFactory  # noqa: E402
from mcap_ros2.writer import Writer as Ros2Writer  # noqa: E402

FRAMES = 50
STEP_NS = 40_000_000
BEGIN_NS = 1_700_000_000_000_000_000
TOPIC = "/camera"

#: Format of messages, PyAV's encoder and options: a key frame every 12 frames, none out of order.
CODERS = {
    "h264": ("h264", "libx264", {"g": "12", "bf": "0"}),
    "h264_baseline": ("h264", "libx264", {"g": "12", "profile": "baseline"}),
    "h264_slices": (
        "h264",
        "libx264",
        {"g": "12", "bf": "0", "slices": "4", "x264-params": "aud=1"},
    ),
    "h265": ("h265", "libx265", {"x265-params": "keyint=12:bframes=0:log-level=none"}),
    "av1": ("av1", "libsvtav1", {"g": "12"}),
    "vp9": ("vp9", "libvpx-vp9", {"g": "12", "lag-in-frames": "0"}),
}

DECODERS = {"h264": "h264", "h265": "hevc", "av1": "libdav1d", "vp9": "vp9"}

TIME = "int32 sec\nuint32 nanosec"
LINE = "\n" + "=" * 80 + "\n"
DEFINITION = (
    "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format"
    f"{LINE}MSG: builtin_interfaces/Time\n{TIME}"
)
HEADER = f"{LINE}MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id{LINE}MSG: builtin_interfaces/Time\n{TIME}"
WRENCH = (
    f"std_msgs/Header header\ngeometry_msgs/Wrench wrench{LINE}MSG: geometry_msgs/Wrench\n"
    f"geometry_msgs/Vector3 force\ngeometry_msgs/Vector3 torque{LINE}MSG: geometry_msgs/Vector3\n"
    f"float64 x\nfloat64 y\nfloat64 z{HEADER}"
)


def encode(coder, frames=None, pixels="yuv420p", **more):
    """The packets of a video as its encoder writes them: one per message."""
    _, name, options = CODERS[coder]
    frames = list(scene(FRAMES)) if frames is None else frames
    try:
        context = av.CodecContext.create(name, "w")
    except (ValueError, av.FFmpegError) as error:
        pytest.skip(f"this PyAV has no {name}: {error}")
    context.height, context.width = frames[0].shape[:2]
    context.pix_fmt, context.framerate, context.time_base = pixels, 25, Fraction(1, 25)
    context.options = options | more
    packets = []
    for t, shot in enumerate(frames):
        frame = av.VideoFrame.from_ndarray(shot, format="rgb24").reformat(format=pixels)
        frame.pts = t
        packets += context.encode(frame)
    packets += context.encode(None)
    return [bytes(packet) for packet in packets]


def decode_messages(messages, form):
    """Every image of the messages, by PyAV."""
    context = av.CodecContext.create(DECODERS[form], "r")
    images = []
    for message in messages:
        images += context.decode(av.Packet(message))
    images += context.decode(None)
    return np.stack([image.to_ndarray(format="rgb24") for image in images])


def units(message):
    """The NAL units of a message."""
    return [unit.rstrip(b"\0") for unit in re.split(b"\0*\0\0\1", message)[1:]]


def long_codes(message):
    """The same units with start codes of four bytes."""
    return b"".join(b"\0\0\0\1" + unit for unit in units(message))


def split_time(time_ns):
    return time_ns // 10**9, time_ns % 10**9


def write_ros2(path, messages, form, stamps=None, actions=False):
    with path.open("wb") as file:
        writer = Ros2Writer(file)
        schema = writer.register_msgdef("foxglove_msgs/msg/CompressedVideo", DEFINITION)
        forces = writer.register_msgdef("geometry_msgs/msg/WrenchStamped", WRENCH)
        for t, data in enumerate(messages):
            time_ns = BEGIN_NS + t * STEP_NS
            sec, nanosec = split_time(stamps[t] if stamps else time_ns)
            stamp = {"sec": sec, "nanosec": nanosec}
            message = {"timestamp": stamp, "frame_id": "cam", "data": data, "format": form}
            writer.write_message(TOPIC, schema, message, time_ns, time_ns)
            if actions:
                xyz = {"x": t / 7, "y": t / 5, "z": -1.0}
                wrench = {"force": xyz, "torque": xyz}
                message = {"header": {"stamp": stamp, "frame_id": ""}, "wrench": wrench}
                writer.write_message("/action", forces, message, time_ns, time_ns)
        writer.finish()


def field(number, kind, value):
    """A field of a protobuf message."""
    head = bytes([number << 3 | kind])
    return head + (varint(value) if kind == 0 else varint(len(value)) + value)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def descriptors():
    """The FileDescriptorSet of `foxglove.CompressedVideo`."""

    def member(name, number, kind, of=b""):
        parts = field(1, 2, name) + field(3, 0, number) + field(4, 0, 1) + field(5, 0, kind)
        return field(2, 2, parts + (field(6, 2, of) if of else b""))

    message, text, raw, int64, int32 = 11, 9, 12, 3, 5
    stamp = field(1, 2, b"Timestamp") + member(b"seconds", 1, int64) + member(b"nanos", 2, int32)
    video = (
        field(1, 2, b"CompressedVideo")
        + member(b"timestamp", 1, message, b".google.protobuf.Timestamp")
        + member(b"frame_id", 2, text)
        + member(b"data", 3, raw)
        + member(b"format", 4, text)
    )
    files = (
        field(1, 2, b"google/protobuf/timestamp.proto")
        + field(2, 2, b"google.protobuf")
        + field(4, 2, stamp),
        field(1, 2, b"foxglove/CompressedVideo.proto")
        + field(2, 2, b"foxglove")
        + field(4, 2, video),
    )
    return b"".join(field(1, 2, file + field(12, 2, b"proto3")) for file in files)


def protobuf(data, form, time_ns):
    sec, nanos = split_time(time_ns)
    stamp = field(1, 0, sec) + field(2, 0, nanos)
    return field(1, 2, stamp) + field(2, 2, b"cam") + field(3, 2, data) + field(4, 2, form.encode())


def as_json(data, form, time_ns):
    sec, nsec = split_time(time_ns)
    data = base64.b64encode(data).decode()
    message = {
        "timestamp": {"sec": sec, "nsec": nsec},
        "frame_id": "cam",
        "data": data,
        "format": form,
    }
    return json.dumps(message).encode()


JSON_SCHEMA = json.dumps(
    {
        "title": "foxglove.CompressedVideo",
        "type": "object",
        "properties": {
            "timestamp": {
                "type": "object",
                "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}},
            },
            "frame_id": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
            "format": {"type": "string"},
        },
    }
).encode()


def write_plain(path, messages, form, encoding):
    schema = {
        "protobuf": ("protobuf", descriptors(), protobuf),
        "json": ("jsonschema", JSON_SCHEMA, as_json),
    }
    kind, data, to_bytes = schema[encoding]
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        schema_id = writer.register_schema("foxglove.CompressedVideo", kind, data)
        channel = writer.register_channel(TOPIC, encoding, schema_id)
        for t, message in enumerate(messages):
            time_ns = BEGIN_NS + t * STEP_NS
            writer.add_message(channel, time_ns, to_bytes(message, form, time_ns), time_ns)
        writer.finish()


def read_messages(path, topic=TOPIC):
    """The messages of a topic, by the mcap libraries."""
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        found = [
            (schema.name, message.log_time, decoded)
            for schema, _, message, decoded in reader.iter_decoded_messages([topic])
        ]
    return found


@pytest.mark.parametrize("coder", CODERS)
def test_frames_and_times_are_those_of_the_messages(coder, tmp_path):
    form = CODERS[coder][0]
    messages = encode(coder)
    expected = decode_messages(messages, form)
    assert len(expected) == FRAMES
    write_ros2(tmp_path / "take.mcap", messages, form)
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "lossless.kino", plan=LOSSLESS)
    dataset = kinograph.open(tmp_path / "d.kino")
    camera = dataset[0]["camera"]
    assert camera.codec.startswith("video:coding=")
    assert np.array_equal(camera[:], expected)
    assert np.array_equal(camera.timestamps_ns, BEGIN_NS + np.arange(FRAMES) * STEP_NS)
    random = np.random.default_rng(3)
    for _ in range(8):
        first, stop = sorted(random.integers(0, FRAMES, 2))
        assert np.array_equal(camera[first : stop + 1], expected[first : stop + 1])
    assert np.array_equal(kinograph.open(tmp_path / "lossless.kino")[0]["camera"][:], expected)


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_other_encodings_of_messages_have_the_same_frames(encoding, tmp_path):
    messages = encode("h264")
    write_plain(tmp_path / "take.mcap", messages, "h264", encoding)
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    dataset = kinograph.open(tmp_path / "d.kino")
    camera = dataset[0]["camera"]
    assert camera.codec == "video:coding=h264"
    assert np.array_equal(camera[:], decode_messages(messages, "h264"))
    assert np.array_equal(camera.timestamps_ns, BEGIN_NS + np.arange(FRAMES) * STEP_NS)
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(
        f'[[stream]]\nname = "front"\ntopic = "{TOPIC}"\nkind = "image"\nclock = "log"\n'
    )
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "mapped.kino", mapping=mapping)
    (episode,) = kinograph.open(tmp_path / "mapped.kino")
    assert list(episode) == ["front"]
    assert np.array_equal(episode["front"][:], camera[:])


@pytest.mark.parametrize("coder", CODERS)
def test_an_export_has_the_same_messages(coder, tmp_path):
    form = CODERS[coder][0]
    messages = encode(coder)
    if form in ("h264", "h265"):
        messages = [long_codes(message) for message in messages]
    write_ros2(tmp_path / "take.mcap", messages, form)
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    exported = kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="mcap")
    assert not exported.defects
    found = read_messages(tmp_path / "out/take.mcap")
    assert {name for name, _, _ in found} == {"foxglove_msgs/msg/CompressedVideo"}
    assert [time for _, time, _ in found] == [BEGIN_NS + t * STEP_NS for t in range(FRAMES)]
    assert {message.format for _, _, message in found} == {form}
    assert [bytes(message.data) for _, _, message in found] == messages
    kinograph.pack(tmp_path / "out", tmp_path / "again.kino")
    before, after = kinograph.open(tmp_path / "d.kino"), kinograph.open(tmp_path / "again.kino")
    assert after[0]["camera"].codec == before[0]["camera"].codec
    assert np.array_equal(after[0]["camera"][:], before[0]["camera"][:])


def test_cameras_as_images(tmp_path):
    write_ros2(tmp_path / "take.mcap", encode("h264"), "h264")
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="mcap", cameras="images")
    assert {name for name, _, _ in read_messages(tmp_path / "out/take.mcap")} == {
        "sensor_msgs/msg/CompressedImage"
    }
    kinograph.pack(tmp_path / "out", tmp_path / "again.kino", plan=LOSSLESS)
    before, after = kinograph.open(tmp_path / "d.kino"), kinograph.open(tmp_path / "again.kino")
    assert np.array_equal(after[0]["camera"][:], before[0]["camera"][:])


@pytest.mark.parametrize("coder", CODERS)
def test_an_export_to_lerobot_is_a_video_file_of_the_same_frames(coder, tmp_path):
    form = CODERS[coder][0]
    messages = encode(coder)
    write_ros2(tmp_path / "take.mcap", messages, form, actions=True)
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="lerobot-v3", on_defect="keep")
    (path,) = (tmp_path / "out").rglob("*.mp4")
    assert np.array_equal(decode(path), decode_messages(messages, form))


@pytest.mark.parametrize(
    "coder", ["h264_baseline", "av1_lerobot", "av1_hidden_images", "h264_intra"]
)
def test_video_files_become_messages(coder, tmp_path):
    path = make_video(write_dataset(tmp_path / "source", (60,)), coder)
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    exported = kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="mcap")
    assert not [defect for defect in exported.defects if "as images" in defect.what]
    (file,) = (tmp_path / "out").glob("*.mcap")
    found = read_messages(file, "/" + CAMERA.replace(".", "_"))
    form = coder.split("_")[0]
    messages = [bytes(message.data) for _, _, message in found]
    assert np.array_equal(decode_messages(messages, form), decode(path))
    # Decoding can begin with any key frame: it has all that is needed.
    if form == "h264":
        keys = [
            message for message in messages if any(unit[0] & 31 == 5 for unit in units(message))
        ]
        assert len(keys) > 1
        assert all([unit[0] & 31 for unit in units(message)][:2] == [7, 8] for message in keys)


def test_video_that_messages_cannot_have_becomes_images(tmp_path):
    path = make_video(write_dataset(tmp_path / "source", (30, 30)), "h264_b_frames")
    kinograph.pack(tmp_path / "source", tmp_path / "d.kino")
    exported = kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="mcap")
    assert any("written as images: it has B-frames" in defect.what for defect in exported.defects)
    kinograph.pack(tmp_path / "out", tmp_path / "again.kino", plan=LOSSLESS)
    again = kinograph.open(tmp_path / "again.kino")
    found = np.concatenate([episode[CAMERA][:] for episode in again])
    assert np.array_equal(found, decode(path))


def test_episodes_begin_anywhere(tmp_path):
    """An episode inside of a group has the images before it, which are not shown."""
    messages = encode("h264")
    # A pause before message 17.
    with (tmp_path / "take.mcap").open("wb") as file:
        writer = Ros2Writer(file)
        schema = writer.register_msgdef("foxglove_msgs/msg/CompressedVideo", DEFINITION)
        for t, data in enumerate(messages):
            time_ns = BEGIN_NS + t * STEP_NS + (5 * 10**9 if t >= 17 else 0)
            sec, nanosec = split_time(time_ns)
            stamp = {"sec": sec, "nanosec": nanosec}
            message = {"timestamp": stamp, "frame_id": "cam", "data": data, "format": "h264"}
            writer.write_message(TOPIC, schema, message, time_ns, time_ns)
        writer.finish()
    mapping = tmp_path / "mapping.toml"
    mapping.write_text('[episodes]\nby = "gap"\ngap_s = 1.0\n')
    expected = decode_messages(messages, "h264")
    for plan in (None, LOSSLESS):
        target = tmp_path / f"{plan is None}.kino"
        kinograph.pack(tmp_path / "take.mcap", target, mapping=mapping, plan=plan)
        first, second = kinograph.open(target)
        assert np.array_equal(first["camera"][:], expected[:17])
        assert np.array_equal(second["camera"][:], expected[17:])


@pytest.mark.parametrize("coder", CODERS)
def test_what_cannot_be_decoded_is_skipped_and_counted(coder, tmp_path):
    """The recording begins inside of a group, and a message in the middle is damaged."""
    form = CODERS[coder][0]
    all_messages = encode(coder)
    messages = list(all_messages[5:])
    messages[20] = b"\xff" * 9
    write_ros2(tmp_path / "take.mcap", messages, form)
    with pytest.raises(kinograph.KinographError):
        kinograph.pack(tmp_path / "take.mcap", tmp_path / "refused.kino")
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    said = " ".join(defect.what for defect in packed.defects)
    assert "7 of 45 frames are not imported: they are before the first key frame" in said
    assert "1 of 45 messages are not imported; the first" in said
    assert "10 of 45 frames are not imported: they are after a missing or damaged one" in said
    whole = decode_messages(all_messages, form)
    kept = [*range(12, 25), *range(36, FRAMES)]
    camera = kinograph.open(tmp_path / "d.kino")[0]["camera"]
    assert np.array_equal(camera[:], whole[kept])
    assert np.array_equal(np.diff(camera.timestamps_ns), np.diff(kept) * STEP_NS)


@pytest.mark.parametrize("coder", ["h264", "h264_baseline", "h264_slices"])
def test_a_message_that_is_missing_is_noticed(coder, tmp_path):
    """H.264 numbers its images: what needs the missing one is skipped."""
    messages = encode(coder)
    expected = decode_messages(messages, "h264")
    write_ros2(tmp_path / "take.mcap", messages[:17] + messages[18:], "h264")
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    assert any(
        "6 of 49 frames are not imported: they are after a missing" in defect.what
        for defect in packed.defects
    )
    kept = [*range(17), *range(24, FRAMES)]
    assert np.array_equal(kinograph.open(tmp_path / "d.kino")[0]["camera"][:], expected[kept])


@pytest.mark.parametrize("coder", CODERS)
def test_a_damaged_chunk_ends_a_group(coder, tmp_path):
    form = CODERS[coder][0]
    messages = encode(coder)
    expected = decode_messages(messages, form)
    path = tmp_path / "take.mcap"
    with path.open("wb") as file:
        # Every message is a chunk.
        writer = Writer(file, chunk_size=1, compression=CompressionType.NONE)
        writer.start()
        schema = writer.register_schema("foxglove.CompressedVideo", "protobuf", descriptors())
        channel = writer.register_channel(TOPIC, "protobuf", schema)
        for t, message in enumerate(messages):
            time_ns = BEGIN_NS + t * STEP_NS
            writer.add_message(channel, time_ns, protobuf(message, form, time_ns), time_ns)
        writer.finish()
    data = bytearray(path.read_bytes())
    data[data.index(messages[17]) + len(messages[17]) // 2] ^= 0x55
    path.write_bytes(data)
    packed = kinograph.pack(path, tmp_path / "d.kino", on_defect="keep")
    assert any(
        "6 of 49 frames are not imported: they are after a missing" in defect.what
        for defect in packed.defects
    )
    kept = [*range(17), *range(24, FRAMES)]
    assert np.array_equal(kinograph.open(tmp_path / "d.kino")[0]["camera"][:], expected[kept])


@pytest.mark.parametrize("coder", ["h264", "h264_baseline", "h264_slices", "h265", "av1"])
def test_the_configuration_is_that_of_ffmpeg(coder, tmp_path):
    """FFmpeg makes a file of the same messages; what it says about decoding is what our file says."""
    form, name, options = CODERS[coder]
    messages = encode(coder)
    write_ros2(tmp_path / "take.mcap", messages, form, actions=True)
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="lerobot-v3", on_defect="keep")
    (path,) = (tmp_path / "out").rglob("*.mp4")
    with av.open(str(tmp_path / "theirs.mp4"), "w") as container:
        stream = container.add_stream(name, rate=25, options=options)
        stream.height, stream.width, stream.pix_fmt = 120, 160, "yuv420p"
        for t, shot in enumerate(scene(FRAMES)):
            frame = av.VideoFrame.from_ndarray(shot, format="rgb24").reformat(format="yuv420p")
            frame.pts = t
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    theirs, ours = (extradata(file) for file in (tmp_path / "theirs.mp4", path))
    if form == "h265":
        # FFmpeg says more about slices, that sets are nowhere else, and adds a message of the encoder.
        assert ours[:13] == theirs[:13]
        assert ours[15:22] == theirs[15:22]
        assert hevc_sets(ours) == hevc_sets(theirs)
    elif form == "av1":
        # The encoder writes another sequence header for a file.
        assert ours[:4] == theirs[:4]
        assert messages[0][2:].startswith(ours[4:])
    else:
        assert ours == theirs


def extradata(path):
    with av.open(str(path)) as container:
        return bytes(container.streams.video[0].codec_context.extradata)


def hevc_sets(config):
    """The parameter sets in `hvcC`, by kind."""
    found, at = {}, 23
    for _ in range(config[22]):
        kind, count, at = config[at] & 63, int.from_bytes(config[at + 1 : at + 3], "big"), at + 3
        for _ in range(count):
            length = int.from_bytes(config[at : at + 2], "big")
            found.setdefault(kind, []).append(config[at + 2 : at + 2 + length])
            at += 2 + length
    return {kind: sets for kind, sets in found.items() if kind in (32, 33, 34)}


@pytest.mark.parametrize(
    ("coder", "more"),
    [("h264", {"bf": "3"}), ("h265", {"x265-params": "keyint=12:bframes=3:log-level=none"})],
)
def test_frames_out_of_order_are_refused(coder, more, tmp_path):
    messages = encode(coder, **more)
    write_ros2(tmp_path / "take.mcap", messages, CODERS[coder][0], actions=True)
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    assert any("B-frames" in defect.what for defect in packed.defects)
    assert list(kinograph.open(tmp_path / "d.kino")[0]) == ["action"]


def test_stamps_that_go_back_are_refused_unless_log_times_are_used(tmp_path):
    messages = encode("h264")
    stamps = [BEGIN_NS + t * STEP_NS for t in range(FRAMES)]
    stamps[7:9] = stamps[8], stamps[7]
    write_ros2(tmp_path / "take.mcap", messages, "h264", stamps, actions=True)
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    assert any(
        "go back 1 times" in defect.what and "clock" in defect.what for defect in packed.defects
    )
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(f'[[stream]]\nname = "front"\ntopic = "{TOPIC}"\nclock = "log"\n')
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "log.kino", mapping=mapping)
    found = kinograph.open(tmp_path / "log.kino")[0]["front"][:]
    assert np.array_equal(found, decode_messages(messages, "h264"))


def test_a_camera_that_is_started_again_has_other_parameter_sets(tmp_path):
    shots = list(scene(FRAMES))
    first = encode("h264", shots[:20])
    second = encode("h264_baseline", shots[20:])
    messages = [long_codes(message) for message in first + second]
    expected = np.concatenate([decode_messages(first, "h264"), decode_messages(second, "h264")])
    write_ros2(tmp_path / "take.mcap", messages, "h264")
    for plan in (None, LOSSLESS):
        target = tmp_path / f"{plan is None}.kino"
        kinograph.pack(tmp_path / "take.mcap", target, plan=plan)
        camera = kinograph.open(target)[0]["camera"]
        assert np.array_equal(camera[:], expected)
        assert np.array_equal(camera[18:23], expected[18:23])
    kinograph.export(tmp_path / "True.kino", tmp_path / "out", to="mcap")
    found = read_messages(tmp_path / "out/take.mcap")
    assert [bytes(message.data) for _, _, message in found] == messages


def test_another_size_is_refused(tmp_path):
    messages = encode("h264", list(scene(20))) + encode("h264", list(scene(20, 96, 128)))
    write_ros2(tmp_path / "take.mcap", messages, "h264", actions=True)
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    assert any("message 20 is video of" in defect.what for defect in packed.defects)


def test_full_range_and_odd_sizes(tmp_path):
    """Sizes that are not whole macroblocks are cropped; the range comes from the stream."""
    shots = list(scene(20, 122, 150))
    messages = encode("h264", shots, pixels="yuvj420p")
    write_ros2(tmp_path / "take.mcap", messages, "h264")
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    found = kinograph.open(tmp_path / "d.kino")[0]["camera"][:]
    assert found.shape == (20, 122, 150, 3)
    assert np.array_equal(found, decode_messages(messages, "h264"))


def test_depth_is_gray_video_of_more_bits(tmp_path):
    random = np.random.default_rng(4)
    context = av.CodecContext.create("libx265", "w")
    context.height, context.width, context.pix_fmt = 96, 128, "gray12le"
    context.framerate, context.time_base = 25, Fraction(1, 25)
    context.options = {"x265-params": "keyint=8:bframes=0:log-level=none"}
    messages = []
    for t in range(20):
        depth = np.kron(random.integers(0, 4096, (12, 16)), np.ones((8, 8))).astype(np.uint16)
        frame = av.VideoFrame.from_ndarray(depth, format="gray12le")
        frame.pts = t
        messages += context.encode(frame)
    messages = [bytes(packet) for packet in messages + context.encode(None)]
    decoder = av.CodecContext.create("hevc", "r")
    images = [image for message in messages for image in decoder.decode(av.Packet(message))]
    images += decoder.decode(None)
    expected = np.stack([image.to_ndarray(format="gray12le") for image in images])
    write_ros2(tmp_path / "take.mcap", messages, "h265")
    kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino")
    camera = kinograph.open(tmp_path / "d.kino")[0]["camera"]
    assert camera.kind == "depth"
    assert np.array_equal(camera[:], expected)
    kinograph.export(tmp_path / "d.kino", tmp_path / "out", to="mcap")
    kinograph.pack(tmp_path / "out", tmp_path / "again.kino")
    again = kinograph.open(tmp_path / "again.kino")[0]["camera"]
    assert np.array_equal(again[:], expected)


def test_color_of_more_bits_is_refused(tmp_path):
    messages = encode("h264", pixels="yuv420p10le")
    write_ros2(tmp_path / "take.mcap", messages, "h264", actions=True)
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    assert any("10-bit color" in defect.what for defect in packed.defects)


HUGE_SPS = bytes.fromhex("6742c01eda00800020000000")

HOSTILE = {
    "empty": b"",
    "zeros": b"\0" * 100,
    "no start code": b"\1\2\3\4" * 10,
    "one start code": b"\0\0\0\1",
    "cut parameter set": b"\0\0\0\1\x67\0\0\0\1\x68\0\0\0\1\x65\x88",
    "only a slice": b"\0\0\0\1\x65\x88\x84",
    "huge": b"\0\0\1" + HUGE_SPS + b"\0\0\1\x68\xce\x3c\x80\0\0\1\x65\x88\x84",
    "many units": b"\0\0\1\x09" * 5000,
    "ones": b"\xff" * 1000,
}


@pytest.mark.parametrize("form", ["h264", "h265", "vp9", "av1", "vp8"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages_are_refused(form, name, tmp_path):
    write_ros2(tmp_path / "take.mcap", [HOSTILE[name]] * 3, form, actions=True)
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    assert list(kinograph.open(tmp_path / "d.kino")[0]) == ["action"]
    said = [defect.what for defect in packed.defects if "camera" in defect.place]
    assert said, packed.defects


@pytest.mark.parametrize("coder", CODERS)
def test_truncated_messages_never_crash(coder, tmp_path):
    form = CODERS[coder][0]
    whole = encode(coder)[0]
    cuts = [whole[:length] for length in (*range(1, 60), len(whole) // 2)]
    write_ros2(tmp_path / "take.mcap", cuts, form, actions=True)
    packed = kinograph.pack(tmp_path / "take.mcap", tmp_path / "d.kino", on_defect="keep")
    assert packed.defects
