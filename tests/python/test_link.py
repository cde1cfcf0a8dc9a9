"""Linked datasets: the same samples and batches as packed ones, from files that stay where they are."""

from __future__ import annotations

import io
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import kinograph
import kinograph.numpy

FRAMES, SIDE = 14, 24


def images(seed: int, frames: int = FRAMES) -> np.ndarray:
    """Smooth images, which JPEG compresses to different lengths."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 255, size=(frames, 4, 4, 3), dtype="u1")
    return coarse.repeat(SIDE // 4, axis=1).repeat(SIDE // 4, axis=2)


def jpeg(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=92)
    return file.getvalue()


def act(folder: pathlib.Path) -> dict[str, Any]:
    """Write two ACT episodes: padded JPEG rows, and JPEG files of any length."""
    folder.mkdir()
    for number in range(2):
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = False
            file.attrs["compress"] = True
            rng = np.random.default_rng(number)
            file["action"] = rng.normal(size=(FRAMES, 14))
            file["observations/qpos"] = rng.normal(size=(FRAMES, 14))
            files = [jpeg(image) for image in images(number)]
            longest = max(map(len, files))
            rows = np.stack([np.frombuffer(f.ljust(longest, b"\0"), "u1") for f in files])
            file["observations/images/top"] = rows
            wrist = file.create_dataset(
                "observations/images/wrist", (FRAMES,), dtype=h5py.vlen_dtype("u1")
            )
            for row, image in enumerate(images(number + 10)):
                wrist[row] = np.frombuffer(jpeg(image), "u1")
    return {}


def robomimic(folder: pathlib.Path, **layout: Any) -> dict[str, Any]:
    """Write robomimic demos whose images are values."""
    folder.mkdir()
    env_args = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20}})
    with h5py.File(folder / "demos.hdf5", "w", **layout.pop("file", {})) as file:
        data = file.create_group("data")
        data.attrs["env_args"] = env_args
        for number in range(2):
            rng = np.random.default_rng(number)
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = FRAMES
            demo["actions"] = rng.normal(size=(FRAMES, 7))
            demo["obs/joints"] = rng.normal(size=(FRAMES, 6))
            demo.create_dataset("obs/front_image", data=images(number), **layout)
            demo.create_dataset("next_obs/front_image", data=images(number), **layout)
            depth = rng.integers(0, 3000, size=(FRAMES, 8, 8), dtype="u2")
            demo.create_dataset("obs/front_depth", data=depth)
    return {}


def webdataset(folder: pathlib.Path) -> dict[str, Any]:
    """Write tars with a sample per step."""
    folder.mkdir()
    for number in range(2):
        with tarfile.open(folder / f"steps-{number:06}.tar", "w") as tar:
            for step, image in enumerate(images(number)):
                action = io.BytesIO()
                np.save(action, np.arange(7, dtype="f4") + step)
                for name, content in (
                    ("front.jpg", jpeg(image)),
                    ("action.npy", action.getvalue()),
                ):
                    member = tarfile.TarInfo(f"episode{number}_{step:04}.{name}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return {"rate_hz": 10.0}


SOURCES: dict[str, Callable[[pathlib.Path], dict[str, Any]]] = {
    "act": act,
    "webdataset": webdataset,
    "contiguous": robomimic,
    "chunks of one frame": lambda folder: robomimic(folder, chunks=(1, SIDE, SIDE, 3)),
    "chunks of five frames": lambda folder: robomimic(folder, chunks=(5, SIDE, SIDE, 3)),
    "latest": lambda folder: robomimic(
        folder, chunks=(4, SIDE, SIDE, 3), file={"libver": "latest"}
    ),
    "growing": lambda folder: robomimic(
        folder, chunks=(4, SIDE, SIDE, 3), maxshape=(None, SIDE, SIDE, 3), file={"libver": "latest"}
    ),
    "user block": lambda folder: robomimic(folder, file={"userblock_size": 1024}),
}


def camera(ds: kinograph.Dataset) -> str:
    return next(name for name, stream in ds.streams.items() if stream.linked_bytes)


@pytest.fixture(params=SOURCES, scope="module")
def linked(request, tmp_path_factory):
    """A recording as a packed, a linked and a trusted dataset."""
    folder = tmp_path_factory.mktemp("link")
    options = SOURCES[request.param](folder / "recording")
    packed, linked, trusted = (folder / f"{name}.kino" for name in ("packed", "linked", "trusted"))
    kinograph.pack(folder / "recording", packed, on_defect="keep", **options)
    for target, trust in ((linked, False), (trusted, True)):
        kinograph.link(folder / "recording", target, trust=trust, on_defect="keep", **options)
    return folder / "recording", packed, linked, trusted


@pytest.mark.parametrize("trust", [False, True])
def test_linked_streams_equal_packed_ones(linked, trust):
    _, packed, *rest = linked
    packed, here = kinograph.open(packed), kinograph.open(rest[trust])
    assert [episode.id for episode in here] == [episode.id for episode in packed]
    for episode in packed:
        for name in episode:
            np.testing.assert_array_equal(here[episode.id][name][:], episode[name][:], err_msg=name)
    cameras = [name for name, stream in here.streams.items() if stream.kind in ("image", "depth")]
    assert all(here.streams[name].linked_bytes == here.streams[name].bytes for name in cameras)
    assert not any(here.streams[name].linked_bytes for name in set(here.streams) - set(cameras))


@pytest.mark.parametrize("trust", [False, True])
def test_samples_and_batches_equal_packed_ones(linked, trust):
    _, packed, *rest = linked
    packed, here = kinograph.open(packed), kinograph.open(rest[trust])
    windows = {camera(here): [-2, 0], next(n for n in here.streams if "action" in n): range(4)}
    ours, theirs = (ds.samples(windows) for ds in (here, packed))
    assert len(ours) == len(theirs)
    for idx in range(0, len(ours), 5):
        for key, value in theirs[idx].items():
            np.testing.assert_array_equal(ours[idx][key], value)
    loaders = [
        kinograph.numpy.Loader(samples, batch_size=5, seed=3, threads=2)
        for samples in (ours, theirs)
    ]
    for here_batch, there_batch in zip(*loaders, strict=True):
        assert here_batch.keys() == there_batch.keys()
        for key, value in there_batch.items():
            np.testing.assert_array_equal(here_batch[key], value)


def test_a_linked_dataset_is_valid_small_and_says_what_it_links_to(linked):
    recording, packed, here, trusted = linked
    for path in (here, trusted):
        assert kinograph.verify(path, decode=True) == []
        links = kinograph.open(path).links
        assert links is not None
        assert links.root == recording.resolve()
        assert sorted(file.path for file in links.files) == sorted(
            path.name for path in recording.iterdir()
        )
        for file in links.files:
            assert file.bytes == (recording / file.path).stat().st_size
            assert (file.blake3 is None) == (path == trusted)
        stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        linked_bytes = sum(stream.linked_bytes for stream in kinograph.open(path).streams.values())
        assert stored < linked_bytes + 40_000
    assert kinograph.open(packed).links is None


def test_a_copy_needs_no_other_files(linked, tmp_path):
    recording, packed, here, _ = linked
    copy = tmp_path / "copy.kino"
    kinograph.repack(here, copy)
    away = recording.with_name("away")
    recording.rename(away)
    try:
        ds, original = kinograph.open(copy), kinograph.open(packed)
        assert ds.links is None
        assert kinograph.verify(copy, decode=True) == []
        with pytest.raises(kinograph.UnsupportedError, match="kinograph repack"):
            kinograph.pack(copy, tmp_path / "q.kino")
        with pytest.raises(kinograph.InvalidArgumentError, match="links to other files"):
            kinograph.repack(here, in_place=True, exclude="action*")
        for episode in original:
            for name in episode:
                np.testing.assert_array_equal(ds[episode.id][name][:], episode[name][:])
            assert ds[episode.id].attributes == episode.attributes
        with pytest.raises(kinograph.NotFoundError, match="is missing"):
            kinograph.open(here)[0][camera(kinograph.open(here))][0]
        moved = kinograph.open(here, root=away)
        name = camera(moved)
        np.testing.assert_array_equal(moved[0][name][:], original[0][name][:])
        again = pickle.loads(pickle.dumps(moved))
        np.testing.assert_array_equal(again[0][name][:], original[0][name][:])
        assert kinograph.verify(here, root=away) == []
        assert kinograph.verify(here) != []
    finally:
        away.rename(recording)


def members(folder: pathlib.Path) -> dict[str, bytes]:
    """Read what the tars of a folder hold, except for where it came from."""
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if not member.name.endswith("kinograph.json"):
                    found[member.name] = tar.extractfile(member).read()
    return found


def test_exports_of_linked_datasets_equal_those_of_packed_ones(linked, tmp_path):
    _, packed, here, _ = linked
    for source, name in ((packed, "packed"), (here, "linked")):
        kinograph.export(source, tmp_path / name, to="webdataset", on_defect="keep")
    assert members(tmp_path / "linked") == members(tmp_path / "packed") != {}


def test_what_cannot_be_linked_is_named(tmp_path):
    robomimic(tmp_path / "recording", compression="gzip", chunks=(1, SIDE, SIDE, 3))
    target = tmp_path / "linked.kino"
    with pytest.raises(
        kinograph.InvalidArgumentError, match=r"front_image` is compressed.*pack_rest"
    ):
        kinograph.link(tmp_path / "recording", target)
    assert not target.exists()
    linked = kinograph.link(tmp_path / "recording", target, pack_rest=True)
    assert any("packed instead of linked" in defect.what for defect in linked.defects)
    ds = kinograph.open(target)
    assert ds.streams["obs/front_image"].linked_bytes == 0
    assert ds.streams["obs/front_depth"].linked_bytes > 0
    np.testing.assert_array_equal(ds["demo_1"]["obs/front_image"][:], images(1))
    folder = tmp_path / "split"
    robomimic(folder, chunks=(1, SIDE // 2, SIDE, 3))
    with pytest.raises(kinograph.InvalidArgumentError, match="cut frames into parts"):
        kinograph.link(folder, tmp_path / "b.kino")


def test_a_changed_file_is_an_error_that_names_it(tmp_path):
    robomimic(tmp_path / "recording")
    target = tmp_path / "linked.kino"
    kinograph.link(tmp_path / "recording", target)
    file = tmp_path / "recording" / "demos.hdf5"
    original = file.read_bytes()
    at = original.index(images(0)[3].tobytes())
    changed = bytearray(original)
    changed[at] ^= 255
    file.write_bytes(changed)
    stream = kinograph.open(target)["demo_0"]["obs/front_image"]
    with pytest.raises(kinograph.CorruptDataError, match=r"demos\.hdf5 at byte"):
        stream[3]
    assert len(kinograph.verify(target)) >= 1
    file.write_bytes(original[:-1])
    with pytest.raises(kinograph.CorruptDataError, match=r"demos\.hdf5 has \d+ bytes, but had"):
        kinograph.open(target)["demo_0"]["obs/front_image"][0]
    file.write_bytes(original)
    np.testing.assert_array_equal(kinograph.open(target)["demo_0"]["obs/front_image"][:], images(0))


def test_an_image_that_does_not_decode_follows_the_policy(tmp_path):
    act(tmp_path / "recording")
    with h5py.File(tmp_path / "recording" / "episode_1.hdf5", "r+") as file:
        row = file["observations/images/top"][3]
        row[len(row) // 3 : len(row) // 2] = 0
        file["observations/images/top"][3] = row
    with pytest.raises(kinograph.KinographError, match="episode_1"):
        kinograph.link(tmp_path / "recording", tmp_path / "a.kino")
    linked = kinograph.link(tmp_path / "recording", tmp_path / "b.kino", on_defect="drop-episode")
    assert [defect.episode for defect in linked.defects if defect.lost] == ["episode_1"]
    assert [episode.id for episode in kinograph.open(tmp_path / "b.kino")] == ["episode_0"]
    assert kinograph.verify(tmp_path / "b.kino", decode=True) == []


def test_a_trusted_page_is_checked_once_it_was_read(tmp_path):
    robomimic(tmp_path / "recording")
    target = tmp_path / "trusted.kino"
    kinograph.link(tmp_path / "recording", target, trust=True)
    assert "obs/front_image" not in kinograph.open(target).stats
    file = tmp_path / "recording" / "demos.hdf5"
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    os.utime(file, ns=(times[0], times[1] + 10**9))
    (found,) = kinograph.verify(target)
    assert "these bytes were never read before; restore it, or link" in found.what
    os.utime(file, ns=times)
    kinograph.open(target)["demo_0"]["obs/front_image"][:]
    original = file.read_bytes()
    changed = bytearray(original)
    changed[original.index(images(0)[3].tobytes())] ^= 255
    file.write_bytes(changed)
    os.utime(file, ns=times)
    with pytest.raises(kinograph.CorruptDataError, match="after it was first read"):
        kinograph.open(target)["demo_0"]["obs/front_image"][:]


def test_a_loader_names_the_missing_file(tmp_path):
    act(tmp_path / "recording")
    target = tmp_path / "linked.kino"
    kinograph.link(tmp_path / "recording", target, on_defect="keep")
    (tmp_path / "recording" / "episode_1.hdf5").unlink()
    loader = kinograph.numpy.Loader(
        target, windows={"observations/images/top": [0]}, batch_size=4, threads=2
    )
    with pytest.raises(kinograph.NotFoundError, match=r"episode_1\.hdf5 is missing.*--root"):
        for _ in loader:
            pass


def test_appending_keeps_one_root_and_refuses_another(tmp_path):
    (tmp_path / "data").mkdir()
    for day in ("monday", "tuesday"):
        robomimic(tmp_path / "data" / day)
    target = tmp_path / "linked.kino"
    kinograph.link(tmp_path / "data" / "monday", target, root=tmp_path / "data")
    with pytest.raises(kinograph.InvalidArgumentError, match="--root"):
        kinograph.link(tmp_path / "data" / "tuesday", target, mode="append", prefix="t/")
    kinograph.link(
        tmp_path / "data" / "tuesday", target, mode="append", prefix="t/", root=tmp_path / "data"
    )
    ds = kinograph.open(target)
    assert [episode.id for episode in ds] == ["demo_0", "demo_1", "t/demo_0", "t/demo_1"]
    assert [file.path for file in ds.links.files] == ["monday/demos.hdf5", "tuesday/demos.hdf5"]
    assert kinograph.verify(target, decode=True) == []


def run(*args: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kinograph", *map(os.fspath, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_links_copies_and_relocates(tmp_path):
    robomimic(tmp_path / "recording")
    target, copy, moved = (tmp_path / name for name in ("linked.kino", "copy.kino", "moved"))
    done = run("link", tmp_path / "recording", target, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["linked_files"] == 1
    assert said["linked_bytes"] == 2 * (2 * images(0).nbytes + FRAMES * 8 * 8 * 2)
    assert "`kinograph repack TARGET COPY` makes a copy" in " ".join(
        run("link", "--help").stdout.split()
    )
    shown = run("info", target)
    assert "linked" in shown.stdout
    assert f"1 file below {(tmp_path / 'recording').resolve()}" in shown.stdout
    (tmp_path / "recording").rename(moved)
    failed = run("verify", target)
    assert failed.returncode == 1
    assert "demos.hdf5" in failed.stdout
    assert run("verify", target, "--root", moved, "--decode").returncode == 0
    failed = run("repack", target, copy)
    assert failed.returncode == 1
    assert "--root" in failed.stderr
    done = run("repack", target, copy, "--root", moved, "--resume")
    assert done.returncode == 0, done.stderr
    assert run("verify", copy, "--decode").returncode == 0
    assert (
        run(
            "cat", target, "demo_0", "obs/front_image", "--root", moved, "--npy", tmp_path / "a.npy"
        ).returncode
        == 0
    )
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), images(0))


def test_a_killed_link_is_resumed(tmp_path):
    folder = tmp_path / "recording"
    folder.mkdir()
    for number in range(40):
        with h5py.File(folder / f"episode_{number:02}.hdf5", "w") as file:
            file.attrs["sim"] = False
            file["action"] = np.random.default_rng(number).normal(size=(FRAMES, 14))
            file["observations/qpos"] = np.zeros((FRAMES, 14))
            file["observations/images/top"] = images(number)
    whole, target = tmp_path / "whole.kino", tmp_path / "killed.kino"
    kinograph.link(folder, whole, shard_size="2kB")
    command = [
        sys.executable,
        "-m",
        "kinograph",
        "link",
        folder,
        target,
        "--shard-size",
        "2kB",
        "--resume",
    ]
    command += ["--threads", "1"]
    for _ in range(3):
        process = subprocess.Popen(
            list(map(os.fspath, command)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and process.poll() is None:
            if len(list(target.glob("shards/*"))) > 3:
                break
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(
        list(map(os.fspath, command)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    one, other = kinograph.open(whole), kinograph.open(target)
    assert one.links == other.links
    for episode in one:
        stream = other[episode.id]["observations/images/top"]
        np.testing.assert_array_equal(stream[:], episode["observations/images/top"][:])
    assert kinograph.verify(target, decode=True) == []
