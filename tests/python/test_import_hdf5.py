"""HDF5 recordings with links, texts and odd storage: what is packed is what h5py sees, stream by stream and bit by bit."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np
import pytest

import kinograph

ENV_ARGS = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20}})
LIBVERS = ["earliest", "v108", "v114"]
FRAMES = 12


def recording(path: pathlib.Path, libver: str = "earliest", **options: Any) -> h5py.File:
    file = h5py.File(path, "w", libver=libver, **options)
    file.create_group("data").attrs["env_args"] = ENV_ARGS
    return file


def demo(group: h5py.Group, name: str, seed: int = 0) -> h5py.Group:
    """A demo with an array of each of a few types."""
    rng = np.random.default_rng(seed)
    made = group.create_group(name)
    made.attrs["num_samples"] = FRAMES
    made["actions"] = rng.normal(size=(FRAMES, 7))
    made["obs/joints"] = rng.normal(size=(FRAMES, 6)).astype("f4")
    made["obs/counts"] = rng.integers(0, 1 << 30, size=FRAMES)
    made.create_dataset(
        "obs/camera",
        data=rng.integers(0, 255, size=(FRAMES, 8, 9, 3), dtype="u1"),
        compression="gzip",
    )
    return made


def arrays(group: h5py.Group, above: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Every array that h5py reaches from a group, through whatever links, by its path."""
    for name in group:
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from arrays(item, f"{above}{name}/")
        else:
            yield above + name, item[()]


def check(source: pathlib.Path, target: pathlib.Path, **options: Any) -> int:
    """Packs a recording, compares everything with h5py, and gives how many streams there are."""
    packed = kinograph.pack(source, target, **options)
    assert packed.defects == []
    ds = kinograph.open(target)
    count = 0
    with h5py.File(source) as file:
        assert sorted(episode.id for episode in ds) == sorted(file["data"])
        for name in file["data"]:
            expected = dict(arrays(file["data"][name]))
            assert sorted(ds[name].streams) == sorted(expected)
            for stream, values in expected.items():
                found = ds[name][stream][:]
                if values.dtype == object:
                    assert list(found) == [text.decode() for text in values], stream
                else:
                    assert (found.dtype, found.shape) == (values.dtype, values.shape), stream
                    assert found.tobytes() == values.tobytes(), stream
                count += 1
    return count


def soft_dataset(file: h5py.File) -> None:
    one = demo(file["data"], "demo_0")
    one["obs/same"] = h5py.SoftLink("/data/demo_0/actions")
    one["obs/near"] = h5py.SoftLink("joints")
    one["obs/dotted"] = h5py.SoftLink("././joints")


def soft_demo(file: h5py.File) -> None:
    demo(file.create_group("real"), "take", 1)
    demo(file["data"], "demo_0")
    file["data/demo_1"] = h5py.SoftLink("/real/take")


def soft_data(file: h5py.File) -> None:
    group = file.create_group("elsewhere")
    group.attrs["env_args"] = ENV_ARGS
    demo(group, "demo_0", 2)
    del file["data"]
    file["data"] = h5py.SoftLink("elsewhere")


def chain(file: h5py.File) -> None:
    one = demo(file["data"], "demo_0")
    demo(file.create_group("pool"), "take", 3)
    file["first"] = h5py.SoftLink("/pool")
    file["second"] = h5py.SoftLink("/first/take")
    for step in range(9):
        file[f"pool/step_{step + 1}"] = h5py.SoftLink(f"step_{step}" if step else "take/actions")
    one["obs/through"] = h5py.SoftLink("/second/obs/joints")
    one["obs/long"] = h5py.SoftLink("/pool/step_9")


def hard(file: h5py.File) -> None:
    one = demo(file["data"], "demo_0")
    one["obs/same"] = one["actions"]
    one["more"] = one["obs"]
    file["data/demo_1"] = one


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("build", [soft_dataset, soft_demo, soft_data, chain, hard])
def test_links_inside_a_file_are_followed(
    build: Callable[[h5py.File], None], libver: str, tmp_path: pathlib.Path
) -> None:
    source = tmp_path / "links.hdf5"
    with recording(source, libver) as file:
        build(file)
    assert check(source, tmp_path / "links.kino") >= 4


@pytest.mark.parametrize("libver", LIBVERS)
def test_external_links_inside_the_folder_are_followed(libver: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "takes").mkdir()
    with recording(tmp_path / "takes" / "one.h5", libver) as file:
        demo(file["data"], "demo_0", 4)
        file["values"] = np.arange(FRAMES * 3.0).reshape(FRAMES, 3)
        file["back"] = h5py.ExternalLink("../main.hdf5", "/data/demo_0/obs/joints")
    with recording(tmp_path / "main.hdf5", libver) as file:
        one = demo(file["data"], "demo_0")
        one["obs/outer"] = h5py.ExternalLink("takes/one.h5", "/values")
        one["obs/there_and_back"] = h5py.ExternalLink("takes/one.h5", "back")
        file["data/demo_1"] = h5py.ExternalLink("takes/one.h5", "/data/demo_0")
        file["data/demo_2"] = h5py.SoftLink("demo_1")
    assert check(tmp_path / "main.hdf5", tmp_path / "out.kino") == 14
    sources = kinograph.open(tmp_path / "out.kino").attributes["sources"]
    names = [pathlib.Path(file["path"]).name for file in sources[0]["files"]]
    assert names == ["main.hdf5", "one.h5"]


def test_an_external_link_out_of_the_folder_is_followed_on_request_only(
    tmp_path: pathlib.Path,
) -> None:
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["values"] = np.arange(FRAMES * 3.0).reshape(FRAMES, 3)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "link.h5").symlink_to(tmp_path / "outside.h5")
    targets = ["../outside.h5", str(tmp_path / "outside.h5"), "link.h5"]
    for number, target in enumerate(targets):
        source = inner / f"main_{number}.hdf5"
        with recording(source) as file:
            demo(file["data"], "demo_0")["obs/outer"] = h5py.ExternalLink(target, "/values")
        with pytest.raises(kinograph.CorruptDataError, match="outside the folder of the recording"):
            kinograph.pack(source, tmp_path / f"{number}.kino")
        assert not (tmp_path / f"{number}.kino").exists()
        followed = tmp_path / f"followed_{number}.kino"
        assert check(source, followed, follow_links=True) == 5


def loop(file: h5py.File) -> None:
    file["data/demo_1/obs/lost"] = h5py.SoftLink("lost")


def to_each_other(file: h5py.File) -> None:
    file["data/demo_1/obs/lost"] = h5py.SoftLink("/other")
    file["other"] = h5py.SoftLink("/data/demo_1/obs/lost")


BROKEN: dict[str, tuple[Callable[[h5py.File], None], str]] = {
    "soft": (
        lambda file: file.update({"data/demo_1/obs/lost": h5py.SoftLink("/nowhere")}),
        "is a soft link to `/nowhere`, which does not exist",
    ),
    "soft through a dataset": (
        lambda file: file.update({"data/demo_1/obs/lost": h5py.SoftLink("joints/x")}),
        "which does not exist",
    ),
    "loop": (loop, "or a cycle"),
    "to each other": (to_each_other, "or a cycle"),
    "group that contains it": (
        lambda file: file.update({"data/demo_1/obs/lost": file["data"]}),
        "is a link to a group that contains it",
    ),
    "soft to a group that contains it": (
        lambda file: file.update({"data/demo_1/obs/lost": h5py.SoftLink("/")}),
        "is a link to a group that contains it",
    ),
    "missing file": (
        lambda file: file.update({"data/demo_1/obs/lost": h5py.ExternalLink("no.h5", "/x")}),
        "is an external link to `/x` of `no.h5`, which does not exist",
    ),
    "missing object": (
        lambda file: file.update({"data/demo_1/obs/lost": h5py.ExternalLink("other.h5", "/no")}),
        "which does not exist",
    ),
    "not HDF5": (
        lambda file: file.update({"data/demo_1/obs/lost": h5py.ExternalLink("text.h5", "/no")}),
        "which is not an HDF5 file",
    ),
}


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_link_that_leads_nowhere_is_a_defect_of_its_episode(
    name: str, libver: str, tmp_path: pathlib.Path
) -> None:
    break_it, what = BROKEN[name]
    source = tmp_path / "broken.hdf5"
    (tmp_path / "text.h5").write_text("no HDF5\n" * 100)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with recording(source, libver) as file:
        demo(file["data"], "demo_0")
        demo(file["data"], "demo_1", 1)
        break_it(file)
    with pytest.raises(kinograph.CorruptDataError) as refused:
        kinograph.pack(source, tmp_path / "error.kino")
    assert "broken.hdf5:/data/demo_1/obs/lost" in str(refused.value)
    assert what in str(refused.value)
    assert not (tmp_path / "error.kino").exists()

    kept = kinograph.pack(source, tmp_path / "keep.kino", on_defect="keep")
    lost = [defect for defect in kept.defects if "/data/demo_1/obs/lost" in defect.place]
    assert [(defect.episode, defect.action) for defect in lost] == [("demo_1", "lost")]
    assert kept.episodes == 2
    assert len(kinograph.open(tmp_path / "keep.kino")["demo_1"].streams) >= 4

    kinograph.pack(source, tmp_path / "drop.kino", on_defect="drop-episode")
    assert [episode.id for episode in kinograph.open(tmp_path / "drop.kino")] == ["demo_0"]


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("count", [3, 9, 40, 700])
def test_groups_of_any_size_are_listed_whole(
    libver: str, count: int, tmp_path: pathlib.Path
) -> None:
    """Few links lie in the header, many in a heap with a tree over it, which grows by levels."""
    source = tmp_path / "wide.hdf5"
    with recording(source, libver) as file:
        one = demo(file["data"], "demo_0")
        for number in range(count):
            name = f"obs/{'long' * (number % 50)}_{number}"
            if number % 3 == 0:
                one[name] = np.full(FRAMES, number)
            elif number % 3 == 1:
                one[name] = h5py.SoftLink("/data/demo_0/actions")
            else:
                one[name] = one["obs/joints"]
    assert check(source, tmp_path / "wide.kino") == 4 + count


@pytest.mark.parametrize("libver", LIBVERS)
def test_a_group_with_its_order_and_a_user_block_is_read(
    libver: str, tmp_path: pathlib.Path
) -> None:
    source = tmp_path / "block.hdf5"
    with recording(source, libver, userblock_size=1024, track_order=True) as file:
        one = demo(file["data"], "demo_0")
        wide = one.create_group("wide", track_order=True)
        for number in range(30):
            wide[f"{30 - number}"] = np.full(FRAMES, number)
        wide["link"] = h5py.SoftLink("3")
        one.create_dataset("text", data=["ö" * number for number in range(FRAMES)])
    assert check(source, tmp_path / "block.kino") == 36


def test_texts_of_any_length_are_those_of_h5py(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "texts.hdf5"
    texts = ["", "a", "žluťoučký kůň", "\N{REPLACEMENT CHARACTER}", "x" * 70_000, "{}"] * 2
    with recording(source) as file:
        one = demo(file["data"], "demo_0")
        one.create_dataset("plain", data=texts)
        one.create_dataset("chunked", data=texts, chunks=(5,), compression="gzip")
        one.create_dataset("unwritten", (FRAMES,), dtype=h5py.string_dtype())
    assert check(source, tmp_path / "texts.kino") == 7


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_text_that_is_not_utf8_is_refused_and_never_changed(
    encoding: str, tmp_path: pathlib.Path
) -> None:
    source = tmp_path / "bytes.hdf5"
    with recording(source) as file:
        demo(file["data"], "demo_0")
        one = demo(file["data"], "demo_1", 1)
        texts = one.create_dataset("text", (FRAMES,), dtype=h5py.string_dtype(encoding))
        texts[:] = [b"fine"] * 7 + [b"\xff\xfe"] + [b"fine"] * (FRAMES - 8)
    with pytest.raises(kinograph.CorruptDataError, match="row 7 is not UTF-8 text"):
        kinograph.pack(source, tmp_path / "error.kino")
    kept = kinograph.pack(source, tmp_path / "keep.kino", on_defect="keep")
    assert any("row 7 is not UTF-8 text" in defect.what for defect in kept.defects)
    assert [episode.id for episode in kinograph.open(tmp_path / "keep.kino")] == ["demo_0"]


def test_an_attribute_that_is_not_utf8_is_a_defect(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "attribute.hdf5"
    with recording(source) as file:
        one = demo(file["data"], "demo_0")
        one.attrs.create("note", b"\xff\xfe", dtype=h5py.string_dtype())
        one.attrs.create("fine", "fine")
    with pytest.raises(kinograph.CorruptDataError, match=r"demo_0@note.*not UTF-8"):
        kinograph.pack(source, tmp_path / "error.kino")
    kinograph.pack(source, tmp_path / "keep.kino", on_defect="keep")
    attributes = kinograph.open(tmp_path / "keep.kino")["demo_0"].attributes
    assert "note" not in attributes
    assert attributes["fine"] == "fine"


def test_chunks_larger_than_the_memory_allows_are_refused_by_name(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "chunks.hdf5"
    with recording(source) as file:
        one = demo(file["data"], "demo_0")
        one.create_dataset("large", (FRAMES, 1 << 20), "f4", chunks=(FRAMES, 1 << 20))
        one["large"][0, 0] = 1
    with pytest.raises(kinograph.UnsupportedError) as refused:
        kinograph.pack(source, tmp_path / "no.kino", memory=100_000_000)
    assert "/data/demo_0/large" in str(refused.value)
    assert f"{FRAMES << 22} bytes each; the limit is 25000000" in str(refused.value)
    assert check(source, tmp_path / "yes.kino", memory=500_000_000) == 5


def test_odd_storage_is_read_as_h5py_reads_it(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "odd.hdf5"
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1000, size=(FRAMES, 5, 3))
    with recording(source, "v114") as file:
        one = demo(file["data"], "demo_0")
        one["big"] = values.astype(">i4")
        one["half"] = values.astype(">f2")
        one["flags"] = values % 2 == 0
        one.create_dataset("array", data=values[:, 0], dtype="i8")
        one.create_dataset("unwritten", (FRAMES, 4), "f8", fillvalue=2.5)
        one.create_dataset("partly", (FRAMES, 4), "f8", chunks=(5, 4), fillvalue=-1.0)
        one["partly"][3:5] = 7
        one.create_dataset("grows", data=values, maxshape=(None, 5, 3), chunks=(4, 5, 3))
        one.create_dataset("summed", data=values, chunks=(4, 5, 3), fletcher32=True, shuffle=True)
        one.create_dataset("lzf", data=values, chunks=(12, 2, 3), compression="lzf")
        one.create_dataset("scaled", data=values, chunks=(4, 5, 3), scaleoffset=0)
        one.create_dataset("empty", data=np.zeros((FRAMES, 0)))
    kinograph.pack(source, tmp_path / "odd.kino")
    with h5py.File(source) as file:
        episode = kinograph.open(tmp_path / "odd.kino")["demo_0"]
        for name, expected in arrays(file["data/demo_0"]):
            native = expected.astype(expected.dtype.newbyteorder("="))
            assert episode[name][:].tobytes() == native.tobytes(), name
