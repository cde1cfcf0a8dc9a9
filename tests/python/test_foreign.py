"""Foreign codecs: Python classes beside the codecs of the format, WebP and AVIF through Pillow among them."""

import io
import json
import os
import pathlib
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
from optional import optional
from samples import image, lift_like

import kinograph
import kinograph.numpy

RAW = {"stream": [{"match": "actions", "codec": "raw"}]}


class Deflate:
    """Lossless, eight frames per page; the dtype and shape are in the bytes."""

    name = "test-deflate"
    page_frames = 8
    lossless = True
    version = "zlib, test"

    def __init__(self):
        self.threads = set()

    def encode(self, frames):
        assert not frames.flags.writeable
        head = json.dumps([frames.dtype.str, frames.shape]).encode()
        return bytes([len(head)]) + head + zlib.compress(frames.tobytes())

    def decode(self, data):
        self.threads.add(threading.get_ident())
        dtype, shape = json.loads(data[1 : 1 + data[0]])
        return np.frombuffer(zlib.decompress(data[1 + data[0] :]), dtype).reshape(shape)


def write(path, arrays, codec, match="**"):
    plan = {"stream": [{"match": match, "codec": codec}]}
    with kinograph.Writer(path, plan=plan) as writer:
        writer.add_episode(arrays, rate_hz=20.0)
    return kinograph.open(path)


def gradient(count):
    """Noisy images that an image codec suits."""
    y, x = np.mgrid[:40, :56]
    frames = [np.stack([4 * x + t, 3 * y + 40, 2 * x + y], -1) for t in range(count)]
    noise = np.random.default_rng(0).integers(0, 4, (count, 40, 56, 3))
    return (np.stack(frames) + noise).clip(0, 255).astype(np.uint8)


def psnr(a, b):
    return 10 * np.log10(255**2 / np.square(a.astype(float) - b).mean())


def run(*command, **variables):
    """Run Python in another process, which has registered nothing."""
    environment = os.environ | variables
    return subprocess.run(
        [sys.executable, *map(str, command)], env=environment, check=False, capture_output=True, text=True
    )  # fmt: skip


def test_a_codec_stores_any_dtype_and_every_way_of_reading_returns_it(tmp_path):
    codec = Deflate()
    text = kinograph.register_codec(codec)
    assert text == "external:name=test-deflate,lossless"
    arrays = {name: value for name, value in lift_like().items() if name != "language"}
    ds = write(tmp_path / "one.kino", arrays, text)
    for name, expected in arrays.items():
        stream = ds[0][name]
        assert ds.streams[name].codecs == (text,)
        assert ds.streams[name].encoders == ("test-deflate, zlib, test",)
        assert ds.streams[name].max_abs_error == 0
        assert stream[:].dtype == expected.dtype
        assert np.array_equal(stream[:], expected)
        assert np.array_equal(stream[13:15], expected[13:15])
        assert np.array_equal(stream[-1], expected[-1])
    assert kinograph.verify(tmp_path / "one.kino", decode=True) == []

    samples = ds.samples({"actions": range(4), "obs/agentview_image": [0]})
    count = 0
    for batch in kinograph.numpy.Loader(samples, batch_size=16, seed=3, threads=3):
        for sample, pixels in zip(batch["actions"], batch["obs/agentview_image"], strict=True):
            found = np.flatnonzero((arrays["actions"] == sample[0]).all(-1))
            assert np.array_equal(pixels[0], arrays["obs/agentview_image"][found[0]])
            count += 1
    assert count >= 48
    assert len(codec.threads) > 1

    kinograph.repack(tmp_path / "one.kino", tmp_path / "copy.kino")
    copy = kinograph.open(tmp_path / "copy.kino")
    assert copy.streams["actions"].codecs == (text,)
    assert np.array_equal(copy[0]["actions"][:], arrays["actions"])


def test_a_loader_that_nobody_closed_ends_with_the_process(tmp_path):
    """Its threads wait for the GIL, which the interpreter holds while it ends."""
    kinograph.register_codec(Deflate())
    write(tmp_path / "one.kino", {"x": image(60)}, "external:name=test-deflate,lossless")
    code = (
        "import sys, time, kinograph, kinograph.numpy, numpy as np\n"
        f"sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
        "import test_foreign\n"
        "class Slow(test_foreign.Deflate):\n"
        "    def decode(self, data):\n"
        "        time.sleep(0.01)\n"
        "        return super().decode(data)\n"
        "kinograph.register_codec(Slow())\n"
        "ds = kinograph.open(sys.argv[1])\n"
        "for _ in range(3):\n"
        "    loader = kinograph.numpy.Loader(ds.samples({'x': [0]}), batch_size=4, seed=1, threads=3)\n"
        "    next(iter(loader))\n"
        "print('end')\n"
    )
    ended = run("-c", code, tmp_path / "one.kino")
    assert (ended.returncode, ended.stdout) == (0, "end\n"), ended.stderr


def test_a_lossy_codec_is_measured_and_a_page_is_what_encode_returned(tmp_path):
    class Nibbles:
        name = "test-nibbles"

        def encode(self, frames):
            return b"NIBBLES" + bytes(np.array(frames.shape, "<u2")) + (frames >> 4).tobytes()

        def decode(self, data):
            shape = np.frombuffer(data[7:15], "<u2")
            return np.frombuffer(data[15:], np.uint8).reshape(shape) << 4

    kinograph.register_codec(Nibbles())
    frames = image(6, height=8, width=10)
    ds = write(tmp_path / "one.kino", {"camera": frames}, "external:name=test-nibbles")
    stored = ds[0]["camera"][:]
    assert np.array_equal(stored, frames >> 4 << 4)
    assert ds.streams["camera"].max_abs_error == 15
    shard = next((tmp_path / "one.kino/shards").iterdir()).read_bytes()
    assert shard.count(b"NIBBLES" + bytes(np.array([1, 8, 10, 3], "<u2"))) == 6


def test_a_lossless_codec_that_loses_a_bit_is_refused(tmp_path):
    class Wrong(Deflate):
        name = "test-wrong"

        def encode(self, frames):
            changed = frames & 0xFE
            changed.flags.writeable = False
            return super().encode(changed)

    text = kinograph.register_codec(Wrong())
    with pytest.raises(
        kinograph.InvalidArgumentError, match="bug in the foreign codec `test-wrong`"
    ):
        write(tmp_path / "one.kino", {"camera": image(3)}, text)
    assert not list(tmp_path.glob("one.kino/versions/*"))


def returns(value):
    return lambda *_: value


@pytest.mark.parametrize(
    ("method", "function", "expected"),
    [
        ("encode", returns("text"), "returned str from `encode`, not bytes"),
        ("encode", returns(None), "returned NoneType from `encode`"),
        ("encode", lambda _: 1 / 0, "failed to encode: ZeroDivisionError: division by zero"),
        ("decode", lambda data: data[9**9], "failed to decode: IndexError: index out of range"),
        ("decode", returns(b"123"), "returned bytes from `decode`, not a numpy array"),
        ("decode", returns(np.zeros((1, 4, 6), np.uint8)), "shape (1, 4, 6)"),
        ("decode", returns(np.zeros((2, 4, 5), np.uint8)), "not uint8 of (1, 4, 5)"),
        ("decode", returns(np.zeros((1, 4, 5), np.int8)), "returned int8 values"),
        ("decode", returns(np.zeros((1, 4, 5), object)), "returned object values"),
        ("suits", lambda *_: {}["dtype"], "failed to tell what it suits: KeyError"),
    ],
)
def test_whatever_a_class_does_wrong_is_an_error_that_names_it(
    tmp_path, method, function, expected
):
    class Wrong(Deflate):
        name = "test-returns"
        page_frames = 1

    codec = Wrong()
    setattr(codec, method, function)
    kinograph.register_codec(codec)
    frames = np.ones((3, 4, 5), np.uint8)
    with pytest.raises(kinograph.UnsupportedError) as raised:
        write(tmp_path / "one.kino", {"x": frames}, "external:name=test-returns")
    assert "foreign codec `test-returns`" in str(raised.value)
    assert expected in str(raised.value)
    assert not list(tmp_path.glob("one.kino/versions/*"))


def test_strided_and_reversed_arrays_are_read_as_their_values(tmp_path):
    class Strided(Deflate):
        name = "test-strided"

        def decode(self, data):
            return super().decode(data)[..., ::-1]

        def encode(self, frames):
            return super().encode(frames[..., ::-1])

    frames = image(5)
    ds = write(tmp_path / "one.kino", {"x": frames}, kinograph.register_codec(Strided()))
    assert np.array_equal(ds[0]["x"][:], frames)


def test_what_is_no_codec_is_refused_when_it_is_registered():
    class Nothing:
        pass

    class Named:
        encode = decode = None
        name = "Webp 80"

    for wrong, expected in [
        (Nothing(), "no method `encode`"),
        (Deflate, "register an object of it"),
        (Named(), "no method"),
    ]:
        with pytest.raises(kinograph.InvalidArgumentError, match=expected):
            kinograph.register_codec(wrong)
    for field, value, expected in [
        ("name", "Webp 80", "invalid name"),
        ("name", None, "`name` is None"),
        ("name", "x" * 65, "invalid name"),
        ("page_frames", 0, "from 1 to 65536"),
        ("version", 3, "must be a str"),
    ]:
        codec = Deflate()
        setattr(codec, field, value)
        with pytest.raises(kinograph.InvalidArgumentError, match=expected):
            kinograph.register_codec(codec)


def test_without_the_codec_its_frames_are_refused_by_name_and_the_rest_is_read(tmp_path):
    arrays = {"camera": image(10), "actions": np.ones((10, 3))}
    text = kinograph.register_codec(Deflate())
    path = tmp_path / "one.kino"
    write(path, arrays, text, match="camera")
    code = (
        "import sys, warnings, kinograph, kinograph.numpy\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    ds = kinograph.open(sys.argv[1])\n"
        "print('test-deflate' in str(seen[0].message))\n"
        "print(ds[0]['actions'][:].sum(), len(ds[0]['camera']))\n"
        "print(kinograph.verify(sys.argv[1]), len(kinograph.verify(sys.argv[1], decode=True)) > 0)\n"
        "for read in (lambda: ds[0]['camera'][0], lambda: ds.samples({'camera': [0]})):\n"
        "    try:\n"
        "        read()\n"
        "    except kinograph.UnsupportedError as error:\n"
        "        print('`test-deflate` is not registered' in str(error))\n"
        "kinograph.gc(sys.argv[1])\n"
    )
    read = run("-c", code, path)
    assert read.stdout == "True\n30.0 10\n[] True\nTrue\nTrue\n", read.stdout + read.stderr
    info = run("-m", "kinograph", "info", path)
    assert info.returncode == 0, info.stderr
    assert text in info.stdout
    assert run("-m", "kinograph", "verify", path).returncode == 0
    decoded = run("-m", "kinograph", "verify", "--decode", path)
    assert decoded.returncode == 1
    assert "kinograph.register_codec" in decoded.stdout + decoded.stderr
    # Pages are copied as they are, but encoding them again means decoding them.
    copied = run("-m", "kinograph", "repack", path, tmp_path / "copy.kino")
    assert copied.returncode == 0, copied.stderr
    assert np.array_equal(kinograph.open(tmp_path / "copy.kino")[0]["camera"][:], arrays["camera"])
    quality = run("-m", "kinograph", "repack", path, tmp_path / "jpeg.kino", "--quality", "50")
    assert quality.returncode == 1
    assert "test-deflate" in quality.stderr
    # A variable makes it known to every process.
    variables = {
        "KINOGRAPH_CODECS": "test_foreign:Deflate",
        "PYTHONPATH": str(pathlib.Path(__file__).parent),
    }
    decoded = run("-m", "kinograph", "verify", "--decode", path, **variables)
    assert decoded.returncode == 0, decoded.stdout + decoded.stderr
    variables["KINOGRAPH_CODECS"] = "no_such_module:Deflate"
    decoded = run("-m", "kinograph", "verify", "--decode", path, **variables)
    assert "No module named 'no_such_module'" in decoded.stdout + decoded.stderr


def test_an_installed_package_brings_its_codec(tmp_path):
    text = kinograph.register_codec(Deflate())
    write(tmp_path / "one.kino", {"x": np.arange(20.0)}, text)
    site = tmp_path / "site"
    info = site / "some_codec-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-codec\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kinograph.codecs]\ntest-deflate = test_foreign:Deflate\n"
    )
    path = os.pathsep.join([str(site), str(pathlib.Path(__file__).parent)])
    code = "import sys, kinograph; print(kinograph.open(sys.argv[1])[0]['x'][:].sum())"
    read = run("-c", code, tmp_path / "one.kino", PYTHONPATH=path)
    assert read.stdout == "190.0\n", read.stderr


def test_a_learned_codec_in_torch(tmp_path):
    """Principal components of 8×8 blocks, fitted to the frames: the smallest autoencoder."""
    torch = optional("torch")

    def to_blocks(frames):
        return torch.from_numpy(frames.copy()).float().div(255).unfold(1, 8, 8).unfold(2, 8, 8)

    class Components:
        name = "test-components"
        page_frames = 4

        def __init__(self, frames):
            blocks = to_blocks(frames).reshape(-1, 64)
            self.mean = blocks.mean(0)
            self.basis = torch.linalg.svd(blocks - self.mean, full_matrices=False).Vh[:16]

        def encode(self, frames):
            blocks = to_blocks(frames)
            codes = (blocks.reshape(-1, 64) - self.mean) @ self.basis.T
            head = np.array(blocks.shape[:4], "<u2").tobytes()
            return head + (codes * 32).round().clamp(-128, 127).to(torch.int8).numpy().tobytes()

        def decode(self, data):
            n, rows, columns, channels = map(int, np.frombuffer(data[:8], "<u2"))
            codes = torch.from_numpy(np.frombuffer(data[8:], np.int8).copy()).float() / 32
            blocks = codes.reshape(-1, 16) @ self.basis + self.mean
            blocks = blocks.reshape(n, rows, columns, channels, 8, 8).permute(0, 1, 4, 2, 5, 3)
            pixels = blocks.reshape(n, rows * 8, columns * 8, channels)
            return (pixels * 255).round().clamp(0, 255).to(torch.uint8).numpy()

    y, x = np.mgrid[:32, :40]
    frames = np.stack([128 + 90 * np.sin((x + t) / 9) + y for t in range(10)])
    frames = np.repeat(frames.clip(0, 255).astype(np.uint8)[..., None], 3, -1)
    text = kinograph.register_codec(Components(frames))
    ds = write(tmp_path / "one.kino", {"camera": frames}, text)
    assert psnr(ds[0]["camera"][:], frames) > 30
    assert ds.streams["camera"].bytes < frames.nbytes / 3


def pillow(kind="webp"):
    optional("PIL")
    features = optional("PIL.features")
    if kind not in features.get_supported_modules():
        pytest.skip(f"this Pillow has no {kind}")


def test_webp_pixels_are_those_that_pillow_decodes(tmp_path):
    pillow()
    open_image = optional("PIL.Image").open
    frames = image(4, height=33, width=47)
    for name, lossless in [("webp-80", ""), ("webp-37", ""), ("webp-lossless", ",lossless")]:
        path = tmp_path / f"{name}.kino"
        ds = write(path, {"camera": frames}, f"external:name={name}{lossless}")
        stored = ds[0]["camera"][:]
        assert np.array_equal(stored, frames) == bool(lossless)
        # A page is a WebP file: found by its header, read by Pillow without Kinograph.
        shard = next((path / "shards").iterdir()).read_bytes()
        start, files = shard.find(b"RIFF"), []
        while start >= 0:
            size = int.from_bytes(shard[start + 4 : start + 8], "little") + 8
            files.append(np.asarray(open_image(io.BytesIO(shard[start : start + size]))))
            start = shard.find(b"RIFF", start + size)
        assert np.array_equal(np.stack(files), stored)
        assert "Pillow" in ds.streams["camera"].encoders[0]
    with pytest.raises(kinograph.InvalidArgumentError, match="`webp-80` does not take them"):
        write(tmp_path / "grey.kino", {"camera": frames[..., 0]}, "external:name=webp-80")
    with pytest.raises(kinograph.UnsupportedError, match="`webp-101` is not registered"):
        write(tmp_path / "101.kino", {"camera": frames}, "external:name=webp-101")


def test_bench_codecs_and_plan_compare_pillow_out_of_the_box(tmp_path):
    pillow()
    frames = gradient(12)
    with kinograph.Writer(tmp_path / "one.kino") as writer:
        writer.add_episode({"camera": frames, "grey": frames[..., 0]}, rate_hz=20.0)
    bench = ["-m", "kinograph", "bench", "codecs", tmp_path / "one.kino", "--seconds=0.001"]
    shown = run(*bench, "--no-cache")
    assert "external:name=webp-80" in shown.stdout
    assert "but every reader needs it too" in shown.stdout
    streams = json.loads(run(*bench, "--no-cache", "--json").stdout)["streams"]
    rows = {stream["stream"]: {row["codec"]: row for row in stream["codecs"]} for stream in streams}
    assert rows["camera"]["external:name=webp-lossless,lossless"]["max_abs_error"] == 0
    assert 0 < rows["camera"]["external:name=webp-80"]["psnr_db"] < 60
    assert rows["camera"]["external:name=webp-80"]["foreign"]
    assert not rows["camera"]["raw"]["foreign"]
    assert not any("webp" in codec for codec in rows["grey"])

    def chosen(**how):
        ds = kinograph.open(tmp_path / "one.kino")
        return kinograph.plan(ds, step_s=10.0, batch_size=2, seconds=0.02, **how)

    choice = chosen()
    streams = {stream["name"]: stream["options"] for stream in choice.measured["streams"]}
    options = {option["codec"]: option for option in streams["camera"]}
    assert not options["external:name=webp-80"]["is_allowed"]
    assert not options["external:name=webp-lossless,lossless"]["is_allowed"]
    assert "external" not in json.dumps([list(plan.codecs.values()) for plan in choice.plans])
    assert "external:name=webp-80" in str(choice)
    # 10 s per step: whatever is smallest is best, so a lossy codec is chosen once it is allowed.
    allowed = chosen(foreign=["webp-5"])
    assert allowed.codecs["camera"] == "external:name=webp-5"
    assert 'codec = "external:name=webp-5"' in allowed.to_toml()
    bounded = chosen(foreign=["webp-5"], bounds={"camera": "psnr(30)"})
    assert "external" not in bounded.codecs["camera"]
    with pytest.raises(kinograph.InvalidArgumentError, match="`no-such` is not registered"):
        chosen(foreign=["no-such"])


def test_avif_is_stored_and_read(tmp_path):
    pillow("avif")
    frames = gradient(3)
    ds = write(tmp_path / "one.kino", {"camera": frames}, "external:name=avif-80")
    assert psnr(ds[0]["camera"][:], frames) > 30
    assert "libavif" in ds.streams["camera"].encoders[0]
