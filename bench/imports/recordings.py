"""One recording in every format: the sample of this repository, repeated and written by our exporters.

sample ×N ─▶ dataset ─▶ robomimic, act, zarr, webdataset, rlds, lerobot, mcap    kinograph.export
                    ─▶ folder of npz, tar of npz, zarr.zip                         numpy, tarfile, zipfile
"""

from __future__ import annotations

import dataclasses
import io
import pathlib
import tarfile
import zipfile

import numpy as np

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests" / "data" / "lift_3demos.hdf5"
RATE_HZ = 20.0
EXPORTED = (
    "robomimic",
    "act",
    "zarr",
    "webdataset",
    "rlds",
    "lerobot-v2.1",
    "lerobot-v3",
    "mcap",
)


@dataclasses.dataclass(frozen=True)
class Recording:
    """The recording in one format."""

    format: str
    path: pathlib.Path

    def size(self) -> int:
        """Count its bytes on disk."""
        files = [self.path] if self.path.is_file() else self.path.rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())


def pack_sample(target: pathlib.Path, times: int) -> None:
    """Pack the sample `times` times, with the streams used for training: two cameras, the object and the actions."""
    sample = target.with_name("sample.kino")
    kinograph.pack(SAMPLE, sample)
    wanted = ("actions", "obs/agentview_image", "obs/robot0_eye_in_hand_image", "obs/object")
    with kinograph.Writer(target) as writer:
        for number in range(times):
            for place, episode in enumerate(kinograph.open(sample)):
                streams = {name: episode[name][:] for name in wanted}
                name = f"demo_{3 * number + place}"
                writer.add_episode(streams, id=name, rate_hz=RATE_HZ, task="Lift the cube.")


def make(work: pathlib.Path, times: int) -> tuple[pathlib.Path, list[Recording]]:
    """Write the recording in every format; existing files are kept."""
    work.mkdir(parents=True, exist_ok=True)
    dataset = work / "lift.kino"
    if not dataset.exists():
        pack_sample(dataset, times)
    made = []
    for name in EXPORTED:
        target = work / (f"{name}.hdf5" if name == "robomimic" else name)
        if not target.exists():
            kinograph.export(dataset, target, to=name, on_defect="keep")
        made.append(Recording(name, target))
    return dataset, [*made, _npz(dataset, work), _robo(dataset, work), _zip(work)]


def _arrays(episode: kinograph.Episode) -> dict[str, np.ndarray]:
    return {name.replace("obs/", ""): np.asarray(episode[name][:]) for name in episode}


def _npz(dataset: pathlib.Path, work: pathlib.Path) -> Recording:
    folder = work / "npz"
    folder.mkdir(exist_ok=True)
    for episode in kinograph.open(dataset):
        np.savez(folder / f"{episode.id}.npz", **_arrays(episode))  # type: ignore[arg-type]
    return Recording("npz", folder)


def _robo(dataset: pathlib.Path, work: pathlib.Path) -> Recording:
    path = work / "lift.robo"
    with tarfile.open(path, "w") as tar:
        for episode in kinograph.open(dataset):
            buffer = io.BytesIO()
            np.savez(buffer, **_arrays(episode))  # type: ignore[arg-type]
            member = tarfile.TarInfo(f"{episode.id}.npz")
            member.size = buffer.tell()
            buffer.seek(0)
            tar.addfile(member, buffer)
    return Recording("robo", path)


def _zip(work: pathlib.Path) -> Recording:
    folder, path = work / "zarr", work / "lift.zarr.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())
    return Recording("zarr.zip", path)
