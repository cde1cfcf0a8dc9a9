"""AV1 is encoded by the FFmpeg of PyAV and decoded without it; other decoders read the same planes."""

import io
import os
import pathlib
import subprocess
import sys

import numpy as np
from optional import optional

import kinograph
from kinograph import _ffmpeg

av = optional("av")

PLAN = '[[stream]]\nmatch = "camera"\ncodec = "av1:group=10"\nbound = "psnr(38)"\n'


def frames() -> np.ndarray:
    """25 images in which a bright square moves over a gradient."""
    y, x = np.mgrid[:48, :64]
    image = np.stack([4 * x, 3 * y + 40, 2 * x + y], -1).astype(np.uint8)
    images = np.repeat(image[None], 25, 0)
    for number, one in enumerate(images):
        one[10:26, number : number + 16] = 220
    return images


def write(path: pathlib.Path) -> None:
    """Store the frames in a dataset, with the plan above."""
    plan = path.with_suffix(".toml")
    plan.write_text(PLAN)
    with kinograph.Writer(path, plan=plan) as writer:
        writer.add_episode({"camera": frames()}, rate_hz=30.0)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.square(a.astype(float) - b).mean()))


def run(code: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process, whose FFmpeg may be another."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | variables
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


def test_pyav_brings_an_ffmpeg():
    folders = [pathlib.Path(folder) for folder in _ffmpeg.folders()]
    assert any(list(folder.glob("libavcodec*")) for folder in folders), folders


def test_every_group_keeps_the_bound_and_is_read_without_ffmpeg(tmp_path):
    write(tmp_path / "one.kino")
    stream = kinograph.open(tmp_path / "one.kino")[0]["camera"]
    stored, original = stream[:], frames()
    for start in range(0, 25, 10):
        assert psnr(stored[start : start + 10], original[start : start + 10]) >= 38
    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    code = (
        "import sys, kinograph, numpy\n"
        "frames = kinograph.open(sys.argv[1])[0]['camera'][:]\n"
        "numpy.save(sys.argv[2], frames)\n"
    )
    read = run(code, tmp_path / "one.kino", tmp_path / "read.npy", KINOGRAPH_FFMPEG=str(nowhere))
    assert read.returncode == 0, read.stderr
    assert np.array_equal(np.load(tmp_path / "read.npy"), stored)


def test_the_encoder_and_its_version_are_recorded(tmp_path):
    write(tmp_path / "one.kino")
    version = ".".join(map(str, av.library_versions["libavcodec"]))
    kinograph.repack(tmp_path / "one.kino", tmp_path / "copy.kino")
    for name in ("one.kino", "copy.kino"):
        camera = kinograph.open(tmp_path / name).streams["camera"]
        assert camera.encoders == (f"libsvtav1, libavcodec {version}",)


def test_without_ffmpeg_a_plan_is_refused_before_anything_is_written(tmp_path):
    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    recording = tmp_path / "recording.npz"
    np.savez(recording, camera=frames())
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    code = (
        "import sys, numpy, kinograph\n"
        "with kinograph.Writer(sys.argv[1], plan=sys.argv[2]) as writer:\n"
        "    writer.add_episode({'camera': numpy.load(sys.argv[3])['camera']}, rate_hz=30.0)\n"
    )
    target = tmp_path / "out.kino"
    refused = run(code, target, plan, recording, KINOGRAPH_FFMPEG=str(nowhere))
    assert refused.returncode != 0
    assert "UnsupportedError" in refused.stderr
    assert "pip install av" in refused.stderr
    assert not list(target.glob("versions/*"))


def test_another_decoder_plays_the_units_of_a_page(tmp_path):
    """Our first image is the one that dav1d decodes, converted as in spec/codecs/av1.md."""
    write(tmp_path / "one.kino")
    shard = next((tmp_path / "one.kino" / "shards").iterdir()).read_bytes()
    # A temporal delimiter and a sequence header begin a group; the units of a group follow each other in its page.
    start = shard.index(b"\x12\x00\x0a")
    decoder = av.open(io.BytesIO(shard[start : start + 100_000]), format="obu")
    first = next(decoder.decode(video=0))
    y, u, v = (
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:, : plane.width].astype(int)
        for plane in first.planes
    )
    u, v = (plane.repeat(2, 0).repeat(2, 1) - 128 for plane in (u, v))
    red = np.clip(64 * y + (22970 * v >> 8) + 32 >> 6, 0, 255)
    stored = kinograph.open(tmp_path / "one.kino")[0]["camera"][0]
    assert np.array_equal(stored[..., 0], red)
