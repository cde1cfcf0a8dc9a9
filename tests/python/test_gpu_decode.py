"""JPEG decoded on the GPU, against the CPU's batches: with a driver and an nvJPEG that do everything as late as they may."""

import gc
import itertools

import numpy as np
import pytest
from optional import optional

import kinograph

torch = optional("torch")

import fake_cuda  # noqa: E402 (needs torch)

import kinograph.torch  # noqa: E402 (needs torch)

# A driver that is asked for something else than it has.
MISUSE = ("unregistered while copied", "without context", "outside memory")
WINDOWS = {"front": range(-2, 1), "wrist": [0], "actions": range(4)}


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    found = fake_cuda.install(monkeypatch, tmp_path)
    # The driver has no end of memory, and torch none at all.
    monkeypatch.setattr(kinograph.torch, "most_memory", lambda *_: 1 << 30)
    yield found
    gc.collect()
    assert [found.count(what) for what in MISUSE] == [0, 0, 0]


@pytest.fixture
def nvjpeg(monkeypatch, tmp_path, cuda):
    path = fake_cuda.compile_fake(tmp_path, "fake_nvjpeg", tmp_path / "libfake_cuda.so")
    monkeypatch.setenv("KINOGRAPH_NVJPEG_LIBRARY", str(path))
    return fake_cuda.FakeNvjpeg(path)


def pack(folder, wrist="jpeg:q=80,sub=420"):
    rng = np.random.default_rng(3)
    plan = {
        "stream": [
            {"match": "front", "codec": "jpeg:q=90,sub=444"},
            {"match": "wrist", "codec": wrist},
        ]
    }
    target = folder / "two.kino"
    with kinograph.Writer(target, plan=plan) as writer:
        for frames in (13, 17, 9):
            streams = {
                "front": rng.integers(0, 256, (frames, 24, 32, 3), dtype=np.uint8),
                "wrist": rng.integers(0, 256, (frames, 20, 20, 3), dtype=np.uint8),
                "actions": rng.normal(size=(frames, 3)).astype(np.float32),
            }
            writer.add_episode(streams, rate_hz=10.0)
    return target


def make(path, **options):
    given = {"windows": WINDOWS, "batch_size": 6, "seed": 5, "device": "cuda", "decode": "gpu"}
    return kinograph.torch.Loader(path, **(given | options))


def assert_as_on_cpu(path, batches=20, **options):
    """Compare with a loader that decodes on the CPU; return the report."""
    with (
        make(path, **options) as loader,
        make(path, **(options | {"device": None, "decode": "cpu"})) as plain,
    ):
        found = itertools.chain.from_iterable(itertools.repeat(loader))
        wanted = itertools.chain.from_iterable(itertools.repeat(plain))
        for number, one, other in zip(range(batches), found, wanted, strict=False):
            assert list(one) == list(other)
            for key, tensor in other.items():
                assert one[key].dtype == tensor.dtype, key
                assert torch.equal(one[key], tensor), f"{key} of batch {number}"
        return loader.report()


@pytest.mark.parametrize(
    "images",
    [
        {},
        {"size": (11, 14)},
        {"size": {"front": (40, 17)}, "crop": (9, 13)},
        {"crop": (16, 16), "random_crop": True, "layout": "chw"},
        {"size": (12, 12), "dtype": "float32", "layout": "chw"},
        {"dtype": "bfloat16"},
        {"dtype": "float16", "layout": "chw", "size": (13, 9)},
    ],
)
def test_batches_are_those_of_the_cpu_however_images_are_delivered(tmp_path, nvjpeg, images):
    report = assert_as_on_cpu(pack(tmp_path), images=images)
    assert report.gpu_decode.refused == 0
    assert report.gpu_decode.decoded > 0
    assert report.gpu_decode.largest_difference == 0


def test_normalized_images_are_those_of_the_cpu(tmp_path, nvjpeg):
    images = {"dtype": "float32", "layout": "chw"}
    assert_as_on_cpu(pack(tmp_path), images=images, normalize="mean_std")


def test_a_frame_is_decoded_once_for_all_windows_and_epochs_that_need_it(tmp_path, nvjpeg):
    report = assert_as_on_cpu(pack(tmp_path), batches=30)
    # 39 frames of two cameras, and up to 8 again, twice, to compare CPU and GPU.
    assert report.gpu_decode.decoded == 78
    assert 78 <= nvjpeg.decoded() <= 78 + 16
    assert report.frames_decoded == 78 + 39


def test_what_nvjpeg_refuses_the_cpu_decodes(tmp_path, nvjpeg):
    nvjpeg.refuses = lambda file: file[-5] % 3 == 0
    report = assert_as_on_cpu(pack(tmp_path))
    assert report.gpu_decode.refused > 0
    assert report.gpu_decode.decoded > 0
    assert report.gpu_decode.refused + report.gpu_decode.decoded == 78


def test_streams_that_are_not_jpeg_are_as_before(tmp_path, nvjpeg):
    report = assert_as_on_cpu(pack(tmp_path, wrist="predict"))
    assert report.gpu_decode.decoded == 39
    assert report.gpu_decode.uploaded == 0


def test_fixed_addresses_hold_images_too(tmp_path, nvjpeg):
    path = pack(tmp_path)
    with make(path, fixed_addresses=True, last_batch="drop") as loader:
        addresses = {
            tuple(tensor.data_ptr() for tensor in batch.values())
            for _, batch in zip(range(12), itertools.chain(loader, loader), strict=False)
        }
    assert len(addresses) == 1


def test_a_small_budget_changes_how_often_frames_are_decoded_and_nothing_else(tmp_path, nvjpeg):
    with pytest.warns(kinograph.KinographWarning):
        report = assert_as_on_cpu(pack(tmp_path), batches=40, memory="20kB", shuffle="global")
    assert report.gpu_decode.decoded > 200


def test_resuming_in_the_middle_gives_the_same_batches(tmp_path, nvjpeg):
    path = pack(tmp_path)
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


def test_images_outlive_the_loader(tmp_path, cuda, nvjpeg):
    loader = make(pack(tmp_path))
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


def test_a_damaged_page_is_skipped_as_on_the_cpu(tmp_path, nvjpeg):
    path = pack(tmp_path)
    (shard,) = path.rglob("*.kshard")
    damaged = bytearray(shard.read_bytes())
    at = damaged.index(b"\xff\xd8\xff", len(damaged) // 2)
    damaged[at + 300] ^= 0x40
    shard.chmod(0o644)
    shard.write_bytes(damaged)
    report = assert_as_on_cpu(path, on_error="skip", shuffle="global")
    assert report.substituted > 0
    with make(path) as loader, pytest.raises(kinograph.CorruptDataError, match="checksum"):
        list(loader)


def test_auto_decodes_on_the_cpu_while_the_loop_does_not_wait(tmp_path, nvjpeg):
    report = assert_as_on_cpu(pack(tmp_path), decode="auto")
    assert report.gpu_decode.share < 0.1
    assert report.gpu_decode.uploaded > 60


def test_the_doctor_examines_such_a_loader_by_what_the_cpu_would_take(tmp_path, nvjpeg):
    with pytest.warns(kinograph.KinographWarning, match="decoded about"):
        loader = make(pack(tmp_path), memory="20kB", shuffle="global")
    with loader:
        found = kinograph.doctor(loader, step_s=0.00001, seconds=0.3)
    # It was run without decoding too, which is the faster.
    assert found.evidence["without"]["without_decode"]["batch_s"] > 0
    assert found.evidence["whole"]["decode_s"] > 0


def test_where_the_gpu_cannot_decode_an_error_says_what_to_do(tmp_path, nvjpeg):
    path = pack(tmp_path)
    cases = [
        ({"device": None}, 'device="cuda"'),
        ({"transform": lambda sample: sample}, "transforms"),
        ({"images": {"color_jitter": kinograph.ColorJitter(brightness=0.2)}}, "color_jitter"),
        ({"images": {"size": (8, 8), "resize": "fast"}}, "fast"),
        ({"windows": {"actions": [0]}}, "stored as JPEG"),
        ({"decode": "nvjpeg"}, "decode"),
    ]
    for options, words in cases:
        with pytest.raises(kinograph.InvalidArgumentError, match=words):
            make(path, **options)
    with pytest.raises(kinograph.InvalidArgumentError, match=r"kinograph\.torch\.Loader"):
        kinograph.numpy.Loader(path, windows={"actions": [0]}, batch_size=4, decode="gpu")


def test_without_nvjpeg_the_error_says_how_to_get_it(tmp_path, cuda, monkeypatch):
    monkeypatch.setenv("KINOGRAPH_NVJPEG_LIBRARY", str(tmp_path / "nowhere.so"))
    with pytest.raises(kinograph.KinographError, match="pip install nvidia-nvjpeg"):
        make(pack(tmp_path))
