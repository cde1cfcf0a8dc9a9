"""Video decoded on the GPU, against the CPU's batches: with a driver and an NVDEC that do everything as late as they may.

The fake NVDEC "decodes" a packet to what PyAV decodes of the file that it came from, so that its pixels are those of a real decoder.
"""

import gc
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from optional import optional

import kinograph

av = optional("av")
torch = optional("torch")

import fake_cuda  # noqa: E402 (needs torch)
import test_gpu_decode  # noqa: E402 (needs torch)

import kinograph.torch  # noqa: E402 (needs torch)

MISUSE = ("unregistered while copied", "without context", "outside memory")
FRONT, WRIST = "observation.images.front", "observation.images.wrist"
WINDOWS = {FRONT: range(-2, 1), WRIST: [0], "action": range(4)}
SIZES = {FRONT: (96, 128), WRIST: (64, 112)}
#: Encoder and options of each camera: B frames and hidden images; the other is short groups.
CODERS = {
    FRONT: ("libx264", {"g": "7", "bf": "3"}),
    WRIST: ("libx265", {"x265-params": "log-level=none:keyint=5:bframes=2:open-gop=0"}),
}
LENGTHS = (13, 17, 9)
START = b"\0\0\0\1"


def units(packet):
    """Return the NAL units of a packet with lengths in front of them."""
    found = []
    while packet:
        size = int.from_bytes(packet[:4], "big")
        found.append(packet[4 : 4 + size])
        packet = packet[4 + size :]
    return found


class FakeVideo:
    """An NVDEC without a GPU, which knows the pictures of some packets."""

    def __init__(self, path):
        self.library = fake_cuda.FakeNvdec(path, self._picture)
        self._pictures = {}
        #: Packets for which this is true are refused.
        self.refuses = lambda packet: False

    def learn(self, path):
        """Remember the picture of each packet of a file."""
        with av.open(str(path)) as container:
            packets = [packet for packet in container.demux(video=0) if packet.size]
        with av.open(str(path)) as container:
            frames = {frame.pts: frame for frame in container.decode(video=0)}
        for packet in packets:
            frame = frames[packet.pts]
            planes = [
                np.frombuffer(plane, np.uint8).reshape(plane.height, -1)[:, : plane.width]
                for plane in frame.planes
            ]
            chroma = np.stack(planes[1:], axis=-1)
            picture = planes[0].tobytes() + chroma.tobytes()
            shown = (frame.height, frame.width, packet.pts, packet.is_keyframe)
            self._pictures[units(bytes(packet))[-1]] = (shown, picture)

    def _picture(self, packet):
        assert packet.startswith(START)
        if self.refuses(packet):
            return None
        return self._pictures.get(packet.split(START)[-1])


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    found = fake_cuda.install(monkeypatch, tmp_path)
    # The driver has no end of memory, and torch none at all.
    monkeypatch.setattr(kinograph.torch, "most_memory", lambda *_: 1 << 30)
    yield found
    gc.collect()
    assert [found.count(what) for what in MISUSE] == [0, 0, 0]


@pytest.fixture
def nvdec(monkeypatch, tmp_path, cuda):
    path = fake_cuda.compile_fake(tmp_path, "fake_nvcuvid", tmp_path / "libfake_cuda.so")
    monkeypatch.setenv("KINOGRAPH_NVCUVID_LIBRARY", str(path))
    found = FakeVideo(path)
    yield found
    gc.collect()
    assert found.library.misuse() == 0


def scene(rng, frames, size):
    """Images that move, with some noise."""
    large = np.kron(rng.integers(0, 256, (20, 24, 3)), np.ones((16, 16, 1), int))
    for t in range(frames):
        shot = large[t : t + size[0], t : t + size[1]] + rng.integers(-8, 8, (*size, 3))
        yield np.clip(shot, 0, 255).astype(np.uint8)


def write_video(path, rng, camera):
    coder, options = CODERS[camera]
    with av.open(str(path), "w") as container:
        try:
            stream = container.add_stream(coder, rate=10, options=options)
        except (ValueError, av.FFmpegError) as error:
            pytest.skip(f"this PyAV has no {coder}: {error}")
        stream.height, stream.width = SIZES[camera]
        stream.pix_fmt = "yuv420p"
        for t, shot in enumerate(scene(rng, sum(LENGTHS), SIZES[camera])):
            frame = av.VideoFrame.from_ndarray(shot, format="rgb24").reformat(format="yuv420p")
            frame.pts = t
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def pack(folder, learn=lambda path: None):
    """Pack a LeRobot dataset of two cameras; its episodes begin anywhere in its videos."""
    root = folder / "source"
    total, count = sum(LENGTHS), len(LENGTHS)
    frame = [t for length in LENGTHS for t in range(length)]
    rng = np.random.default_rng(3)
    columns = {
        "timestamp": pa.array([t / 10 for t in frame], pa.float32()),
        "frame_index": pa.array(frame, pa.int64()),
        "episode_index": pa.array(np.repeat(np.arange(count), LENGTHS), pa.int64()),
        "index": pa.array(range(total), pa.int64()),
        "task_index": pa.array([0] * total, pa.int64()),
        "action": pa.array(
            list(rng.normal(size=(total, 3)).astype(np.float32)), pa.list_(pa.float32())
        ),
    }
    starts = np.cumsum([0, *LENGTHS]) / 10
    episodes = {
        "episode_index": list(range(count)),
        "tasks": [["pour"]] * count,
        "length": list(LENGTHS),
        "data/chunk_index": [0] * count,
        "data/file_index": [0] * count,
    }
    features = {}
    for camera, size in SIZES.items():
        features[camera] = {"dtype": "video", "shape": [*size, 3]}
        episodes |= {
            f"videos/{camera}/chunk_index": [0] * count,
            f"videos/{camera}/file_index": [0] * count,
            f"videos/{camera}/from_timestamp": starts[:-1].tolist(),
            f"videos/{camera}/to_timestamp": starts[1:].tolist(),
        }
        video = root / f"videos/{camera}/chunk-000/file-000.mp4"
        video.parent.mkdir(parents=True)
        write_video(video, rng, camera)
        learn(video)
    info = {
        "codebase_version": "v3.0",
        "fps": 10,
        "features": features,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    for part in ("meta/episodes/chunk-000", "data/chunk-000"):
        (root / part).mkdir(parents=True)
    pq.write_table(pa.table(columns), root / "data/chunk-000/file-000.parquet")
    pq.write_table(pa.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    pq.write_table(pa.table({"task_index": [0], "task": ["pour"]}), root / "meta/tasks.parquet")
    (root / "meta/info.json").write_text(json.dumps(info))
    kinograph.pack(root, folder / "two.kino")
    return folder / "two.kino"


@pytest.fixture
def path(tmp_path, nvdec):
    return pack(tmp_path, nvdec.learn)


def make(path, **options):
    return test_gpu_decode.make(path, **({"windows": WINDOWS} | options))


def assert_as_on_cpu(path, batches=20, **options):
    """Compare with a loader that decodes on the CPU; return what the GPU did with video."""
    windows = {"windows": WINDOWS}
    return test_gpu_decode.assert_as_on_cpu(path, batches, **(windows | options)).gpu_decode


@pytest.mark.parametrize(
    "images",
    [
        {},
        {"size": (48, 56)},
        {"size": {FRONT: (40, 17)}, "crop": (33, 13)},
        {"crop": (32, 32), "random_crop": True, "layout": "chw"},
        {"size": (24, 24), "dtype": "float32", "layout": "chw"},
        {"dtype": "bfloat16"},
    ],
)
def test_batches_are_those_of_the_cpu_however_images_are_delivered(path, images):
    report = assert_as_on_cpu(path, images=images)
    assert (report.video.refused, report.uploaded, report.video.note) == (0, 0, None)
    assert report.video.largest_difference == 0
    # Each frame of two cameras once, however many windows and epochs need it.
    assert report.video.decoded == 2 * sum(LENGTHS)
    assert (report.engine, report.nvjpeg, report.decoded) == (None, None, 0)
    assert report.video.cpu_s > 0
    assert report.video.gpu_s > 0


def test_a_small_budget_changes_how_often_frames_are_decoded_and_nothing_else(path):
    with pytest.warns(kinograph.KinographWarning):
        report = assert_as_on_cpu(path, batches=40, memory="50kB", shuffle="global")
    assert report.video.decoded > 500
    assert report.video.refused == 0


def test_what_nvdec_refuses_the_cpu_decodes(path, nvdec):
    nvdec.refuses = lambda packet: packet[-1] % 4 == 0
    report = assert_as_on_cpu(path)
    assert report.video.refused > 0
    assert report.video.refused + report.video.decoded == 2 * sum(LENGTHS)
    assert "cuvidParseVideoData failed" in report.video.note


def test_pixels_that_are_not_the_cpus_are_never_delivered(path, nvdec):
    right = nvdec._picture

    def wrong(packet):
        shown, picture = right(packet)
        return shown, bytes([picture[0] ^ 64]) + picture[1:]

    nvdec.library._picture = wrong
    report = assert_as_on_cpu(path)
    assert report.video.largest_difference > 0
    assert report.video.decoded == 0
    assert "not the CPU's" in report.video.note


def test_a_codec_that_the_gpu_lacks_is_decoded_by_the_cpu(path, nvdec):
    nvdec.library.without(8)
    report = assert_as_on_cpu(path)
    assert report.video.decoded == sum(LENGTHS)
    # Pages that were on their way, and what the loader's threads decoded once they knew.
    assert report.video.refused + report.uploaded == sum(LENGTHS)
    assert "does not decode Hevc" in report.video.note


def test_resuming_in_the_middle_gives_the_same_batches(path):
    with make(path) as loader:
        first = iter(loader)
        next(first)
        state = loader.state_dict()
        wanted = {key: tensor.clone() for key, tensor in next(first).items()}
    with make(path) as again:
        again.load_state_dict(state)
        found = next(iter(again))
        for key, tensor in wanted.items():
            assert torch.equal(found[key], tensor)


def test_images_outlive_the_loader(path, cuda):
    loader = make(path)
    batch = next(iter(loader))
    wanted = {key: tensor.clone() for key, tensor in batch.items()}
    loader.close()
    del loader
    gc.collect()
    for key, tensor in wanted.items():
        assert torch.equal(batch[key], tensor)
    del batch
    gc.collect()
    assert cuda.count("freed") == cuda.count("allocated")


def test_a_damaged_page_is_skipped_as_on_the_cpu(path):
    (shard,) = path.rglob("*.kshard")
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 0x40
    shard.chmod(0o644)
    shard.write_bytes(damaged)
    assert_as_on_cpu(path, on_error="skip", shuffle="global")
    with make(path) as loader, pytest.raises(kinograph.CorruptDataError, match="checksum"):
        list(loader)


def test_auto_decodes_on_the_cpu_while_the_loop_does_not_wait(path):
    report = assert_as_on_cpu(path, decode="auto")
    assert report.share < 0.1
    assert report.uploaded + report.video.decoded == 2 * sum(LENGTHS)


def test_without_nvdec_the_error_says_how_to_get_it_and_auto_is_the_cpu(
    path, monkeypatch, tmp_path
):
    monkeypatch.setenv("KINOGRAPH_NVCUVID_LIBRARY", str(tmp_path / "nowhere.so"))
    with pytest.raises(kinograph.KinographError, match="NVIDIA_DRIVER_CAPABILITIES"):
        make(path)
    report = assert_as_on_cpu(path, decode="auto")
    assert report.uploaded == 2 * sum(LENGTHS)
    assert "cannot load NVDEC" in report.video.note
