"""Special files in place of regular files, and links that lead out of the source, for every format."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import cases_lerobot
from harness import PACK, Case, add

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crates/kino_import/tests/fixtures"))

from pack import fixture

FOLLOW = ((*PACK, "--follow-links", "--rate", "10"),)
AT_10_HZ = ((*PACK, "--rate", "10"),)


def copied(name: str) -> Callable[[Path], Path]:
    """A copy of a valid source."""

    def copy(folder: Path) -> Path:
        source = fixture(name)
        target = folder / source.name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target.mkdir()
            shutil.copy(source, target / source.name)
            # A second file, so that one of them may be something else.
            shutil.copy(source, target / f"second{source.suffix}")
        return target

    return copy


def pipe(path: Path) -> None:
    """Replaces a file with a named pipe; opening it blocks forever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    """Replaces a file with a socket."""
    path.unlink(missing_ok=True)
    here = Path.cwd()
    # A socket address is short.
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    """Replaces a file with a link to a device, which has no end."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def link_out(path: Path) -> None:
    """Moves a file out of the source and leaves a link in its place."""
    root = path
    while root.parent.name != "attack":
        root = root.parent
    outside = root.parent / "outside" / path.name
    outside.parent.mkdir(exist_ok=True)
    path.rename(outside)
    path.symlink_to(outside)


def link_inside(path: Path) -> None:
    """Renames a file and leaves a link in its place."""
    other = path.with_name(f".moved-{path.name}")
    path.rename(other)
    path.symlink_to(other.name)


def dangling(path: Path) -> None:
    """Replaces a file with a dangling link."""
    path.unlink()
    path.symlink_to("nowhere")


def sparse(path: Path) -> None:
    """Makes a file a terabyte long, with no data in it."""
    with path.open("r+b") as file:
        file.truncate(1 << 40)


#: A source of each format, and files of it.
SOURCES: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "lerobot": (
        cases_lerobot.toy,
        ("meta/info.json", "meta/episodes.jsonl", "meta/tasks.jsonl", cases_lerobot.DATA),
    ),
    "lerobot_v3": (
        cases_lerobot.toy_v3,
        ("meta/tasks.parquet", "meta/episodes/chunk-000/file-000.parquet"),
    ),
    "hdf5": (copied("robomimic.hdf5"), ("second.hdf5",)),
    "zarr": (
        copied("zarr/pusht.zarr"),
        ("meta/episode_ends/.zarray", "data/action/.zarray", "data/action/0.0"),
    ),
    "zarr_zip": (copied("zarr/umi.zarr.zip"), ("umi.zarr.zip",)),
    "rlds": (
        copied("rlds/toy"),
        (
            "1.0.0/features.json",
            "1.0.0/dataset_info.json",
            "1.0.0/toy-train.tfrecord-00000-of-00002",
        ),
    ),
    "mds": (copied("mds/steps"), ("index.json", "shard.00001.mds")),
    "mcap": (copied("mcap/json.mcap"), ("second.mcap",)),
    "webdataset": (copied("webdataset/steps"), ("steps-000001.tar",)),
    "csv": (copied("folders/csv"), ("episode_1.csv",)),
    "npz": (copied("folders/npz"), ("episode_1.npz",)),
    "images": (copied("folders/images"), ("episode_0/depth/frame_0006.png",)),
}

ATTACKS: dict[str, tuple[Callable[[Path], None], tuple[int, ...], str]] = {
    "pipe": (pipe, (1, 3), ""),
    "socket": (unix_socket, (1, 3), ""),
    "device": (device, (1,), "--follow-links"),
    "link_out": (link_out, (1,), "--follow-links"),
    "dangling": (dangling, (1, 3), ""),
    "sparse": (sparse, (1, 3), ""),
}


def attacked(
    source: Callable[[Path], Path], name: str, attack: Callable[[Path], None]
) -> Callable[[Path], Path]:
    """Builds a source and attacks one of its files."""

    def build(folder: Path) -> Path:
        inner = folder / "attack"
        inner.mkdir()
        root = source(inner)
        attack(root / name)
        return root

    return build


for source_name, (source, names) in SOURCES.items():
    for number, name in enumerate(names):
        case_name = source_name if number == 0 else f"{source_name}_{number}"
        for attack_name, (attack, codes, says) in ATTACKS.items():
            build = attacked(source, name, attack)
            add(Case("files", f"{case_name}_{attack_name}", build, AT_10_HZ, codes, says))
        follow = attacked(source, name, device)
        add(Case("files", f"{case_name}_device_followed", follow, FOLLOW, (1, 3)))
    for attack_name, attack, commands in (
        ("link_followed", link_out, FOLLOW),
        ("link_inside", link_inside, AT_10_HZ),
    ):
        build = attacked(source, names[-1], attack)
        add(Case("files", f"{source_name}_{attack_name}", build, commands, (0, 1, 3)))


def secret(folder: Path) -> Path:
    """A link in an optional place: its target would end up in the manifest."""
    (folder / "secret.json").write_text(json.dumps({"auth": "SECRET"}))
    root = cases_lerobot.toy(folder)
    (root / "meta/stats.json").symlink_to(folder / "secret.json")
    return root


add(Case("files", "lerobot_link_to_secret", secret, AT_10_HZ, (1,), "--follow-links"))
add(Case("files", "lerobot_link_to_secret_followed", secret, FOLLOW, (0,)))


def folder_link(folder: Path) -> Path:
    """A folder that is a link to one outside."""
    root = cases_lerobot.toy(folder)
    shutil.move(root / "data", folder / "data")
    (root / "data").symlink_to(folder / "data")
    return root


add(Case("files", "lerobot_folder_link", folder_link, AT_10_HZ, (1,), "--follow-links"))
add(Case("files", "lerobot_folder_link_followed", folder_link, FOLLOW, (0,)))


def circle(folder: Path) -> Path:
    """Folders that contain themselves."""
    root = cases_lerobot.toy(folder)
    for name in ("data/again", "data/chunk-000/again", "meta/again"):
        (root / name).symlink_to(root)
    return root


add(Case("files", "lerobot_circle", circle, AT_10_HZ, (0, 1, 3)))


def named(folder: Path) -> Path:
    """A link that the user passes is followed."""
    root = cases_lerobot.toy(folder)
    (folder / "named").symlink_to(root)
    return folder / "named"


add(Case("files", "lerobot_named_link", named, AT_10_HZ, (0,)))


def bare(name: str, attack: Callable[[Path], None]) -> None:
    """Registers a path that is not a file, passed as the source."""

    def build(folder: Path) -> Path:
        path = folder / name
        attack(path)
        return path

    add(
        Case(
            "files", f"named_{name.replace('.', '_')}", build, AT_10_HZ, (1,), "not a regular file"
        )
    )


for ending in ("hdf5", "mcap", "tar", "npz", "csv", "zarr.zip", "tfrecord"):
    bare(f"pipe.{ending}", pipe)
bare("socket.hdf5", unix_socket)
bare("device.mcap", device)
