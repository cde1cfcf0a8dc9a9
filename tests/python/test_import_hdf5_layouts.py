"""HDF5 of any layout, with and without a mapping: what is packed is what h5py reads, bit for bit."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import kinograph

ROOT = pathlib.Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(7)


def camera(frames: int, height: int = 24, width: int = 32) -> np.ndarray:
    return RNG.integers(0, 255, size=(frames, height, width, 3), dtype="u1")


def encoded(images: np.ndarray, form: str) -> list[bytes]:
    """Images as files, as a lab with cv2.imencode or Pillow writes them."""
    files = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, form)
        files.append(file.getvalue())
    return files


def vlen(group: h5py.Group, name: str, files: list[bytes]) -> None:
    made = group.create_dataset(name, (len(files),), dtype=h5py.vlen_dtype(np.uint8))
    for row, file in enumerate(files):
        made[row] = np.frombuffer(file, "u1")


def decoded(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)))


def episode(group: h5py.Group, frames: int) -> None:
    group["action"] = RNG.normal(size=(frames, 7)).astype("f4")
    group["observation"] = RNG.normal(size=(frames, 30))


def same(stream: kinograph.Stream, expected: np.ndarray) -> None:
    found = stream[:]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def suggest(source: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kinograph", "pack", "--suggest-mapping", str(source)]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def packed_by_its_draft(source: pathlib.Path, tmp_path: pathlib.Path, **options: Any) -> None:
    """The draft of a mapping packs what is packed without one."""
    draft = suggest(source)
    assert draft.returncode == 0, draft.stderr
    mapping = tmp_path / "draft.toml"
    mapping.write_text(draft.stdout)
    kinograph.pack(source, tmp_path / "without.kino", **options)
    kinograph.pack(source, tmp_path / "with.kino", mapping=mapping, **options)
    without, with_it = (kinograph.open(tmp_path / f"{name}.kino") for name in ("without", "with"))
    assert [one.id for one in with_it] == [one.id for one in without]
    for one in without:
        other = with_it[one.id]
        assert sorted(other.streams) == sorted(one.streams)
        for name in one.streams:
            assert other[name].kind == one[name].kind, name
            assert np.array_equal(other[name].timestamps_ns, one[name].timestamps_ns), name
            assert np.array_equal(other[name][:], one[name][:]), name


def test_groups_of_arrays_of_one_length_are_episodes_and_only_the_rate_is_asked_for(tmp_path):
    source = tmp_path / "lab.h5"
    with h5py.File(source, "w") as file:
        for number, frames in [(7, 40), (10, 55), (8, 33)]:
            episode(file.create_group(f"demo_{number}"), frames)
            file[f"demo_{number}"].attrs["language_instruction"] = f"task {number}"
    with pytest.raises(kinograph.InvalidArgumentError, match=r"no rate or timestamps.*--rate 20"):
        kinograph.pack(source, tmp_path / "no.kino")
    assert not (tmp_path / "no.kino").exists()
    packed = kinograph.pack(source, tmp_path / "lab.kino", rate_hz=20)
    assert packed.defects == []
    ds = kinograph.open(tmp_path / "lab.kino")
    assert [one.id for one in ds] == ["demo_7", "demo_8", "demo_10"]
    with h5py.File(source) as file:
        for one in ds:
            assert one.task == f"task {one.id.removeprefix('demo_')}"
            for name in ("action", "observation"):
                same(one[name], file[one.id][name][:])
                assert one[name].timestamps_ns[1] == 50_000_000
    packed_by_its_draft(source, tmp_path, rate_hz=20)


def test_nested_groups_text_and_channels_first_are_understood(tmp_path):
    source = tmp_path / "nested.hdf5"
    images = camera(20)
    with h5py.File(source, "w") as file:
        file.attrs["fps"] = 10
        for task in ("open", "close"):
            for number in range(2):
                one = file.create_group(f"{task}/traj{number}")
                one["obs/image"] = images.transpose(0, 3, 1, 2)
                one["obs/state"] = RNG.normal(size=(20, 9))
                one["action"] = RNG.normal(size=(20, 7))
                one["note"] = ["grasp", "lift"] * 10
                one["calibration"] = np.eye(4)
                one["success"] = number == 0
    packed = kinograph.pack(source, tmp_path / "nested.kino")
    assert [defect.action for defect in packed.defects] == ["note"]
    assert "contains CHW images" in packed.defects[0].what
    ds = kinograph.open(tmp_path / "nested.kino")
    assert [one.id for one in ds] == ["close/traj0", "close/traj1", "open/traj0", "open/traj1"]
    one = ds["open/traj0"]
    assert sorted(one.streams) == ["action", "note", "obs/image", "obs/state"]
    assert one["obs/image"].kind == "image"
    same(one["obs/image"], images)
    assert list(one["note"][:4]) == ["grasp", "lift", "grasp", "lift"]
    assert one.attributes["calibration"] == np.eye(4).tolist()
    assert [ds[f"open/traj{number}"].success for number in range(2)] == [True, False]
    packed_by_its_draft(source, tmp_path)


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("storage", ["vlen", "padded"])
def test_image_files_in_rows_are_images(form, storage, tmp_path):
    source = tmp_path / "files.h5"
    images = camera(12)
    files = encoded(images, form)
    times = 1.76e9 + np.arange(12) / 15 + RNG.normal(size=12) / 1000
    with h5py.File(source, "w") as file:
        for number in range(2):
            one = file.create_group(f"ep_{number}")
            if storage == "vlen":
                vlen(one, "front", files)
            else:
                width = max(map(len, files))
                padded = [np.frombuffer(image.ljust(width, b"\0"), "u1") for image in files]
                one["front"] = np.stack(padded)
            one["action"] = RNG.normal(size=(12, 7))
            one["timestamp"] = times
    packed = kinograph.pack(source, tmp_path / "files.kino")
    assert [defect.action for defect in packed.defects] == ["note"]
    assert "read as timestamps in s" in packed.defects[0].what
    one = kinograph.open(tmp_path / "files.kino")["ep_1"]
    assert sorted(one.streams) == ["action", "front"]
    assert one["front"].kind == "image"
    expected = np.round(times * 1e9).astype("i8")
    for name in one.streams:
        assert np.array_equal(one[name].timestamps_ns, expected)
    # A JPEG file is stored unchanged; decoders may differ by a rounding.
    off = np.abs(one["front"][:].astype(int) - [decoded(file) for file in files])
    assert off.max() <= (3 if form == "JPEG" else 0)
    packed_by_its_draft(source, tmp_path)


def test_bytes_that_are_not_images_are_a_defect(tmp_path):
    source = tmp_path / "bytes.h5"
    with h5py.File(source, "w") as file:
        one = file.create_group("demo_0")
        episode(one, 40)
        vlen(one, "blob", [b"\1" * (1 + row) for row in range(40)])
    with pytest.raises(kinograph.CorruptDataError, match=r"blob: .*neither JPEG nor PNG"):
        kinograph.pack(source, tmp_path / "no.kino", rate_hz=20)
    kinograph.pack(source, tmp_path / "kept.kino", rate_hz=20, on_defect="keep")
    streams = kinograph.open(tmp_path / "kept.kino")["demo_0"].streams
    assert sorted(streams) == ["action", "observation"]


def test_a_damaged_image_in_the_middle_names_its_row(tmp_path):
    source = tmp_path / "cut.h5"
    files = encoded(camera(12), "JPEG")
    files[5] = files[5][: len(files[5]) // 2]
    with h5py.File(source, "w") as file:
        one = file.create_group("demo_0")
        vlen(one, "front", files)
        one["action"] = np.zeros((12, 7))
    with pytest.raises(kinograph.CorruptDataError, match="row 5 is not a complete JPEG file"):
        kinograph.pack(source, tmp_path / "no.kino", rate_hz=20)


def test_a_robonet_like_file_is_one_episode_with_one_more_observation_than_actions(tmp_path):
    frames = np.stack([camera(31), camera(31)], axis=1)
    for number in range(2):
        with h5py.File(tmp_path / f"robonet_{number}.hdf5", "w") as file:
            file["env/frames"] = frames
            file["env/state"] = RNG.normal(size=(31, 5)).astype("f4")
            file["env/qpos"] = RNG.normal(size=(31, 7))
            file["policy/actions"] = RNG.normal(size=(30, 4)).astype("f4")
            file["metadata/object_classes"] = ["cup", "towel"]
            file["metadata"].attrs["robot"] = "sawyer"
    kinograph.pack(tmp_path, tmp_path / "out.kino", rate_hz=5)
    ds = kinograph.open(tmp_path / "out.kino")
    assert [one.id for one in ds] == ["robonet_0", "robonet_1"]
    one = ds["robonet_1"]
    assert sorted(one.streams) == [
        "env/frames/0",
        "env/frames/1",
        "env/qpos",
        "env/state",
        "policy/actions",
    ]
    same(one["env/frames/0"], frames[:, 0])
    same(one["env/frames/1"], frames[:, 1])
    assert (len(one["env/state"]), len(one["policy/actions"])) == (31, 30)
    assert one.attributes["metadata/object_classes"] == ["cup", "towel"]
    assert one.attributes["metadata@robot"] == "sawyer"
    packed_by_its_draft(tmp_path / "robonet_0.hdf5", tmp_path, rate_hz=5)


def test_streams_of_many_rates_have_their_own_clocks(tmp_path):
    source = tmp_path / "session.hdf5"
    clocks, values = {}, {}
    with h5py.File(source, "w") as file:
        for name, rate, shape in [
            ("action", 20, (7,)),
            ("cam/rgb", 30, (24, 32, 3)),
            ("ft", 1000, (6,)),
        ]:
            count = int(rate * 1.5)
            clocks[name] = 1_760_000_000_000_000_000 + np.arange(count) * (10**9 // rate)
            values[name] = RNG.integers(0, 255, size=(count, *shape)).astype("u1")
            file[f"{name}/data"] = values[name]
            file[f"{name}/t"] = clocks[name]
        file["language/data"] = np.array([b"pick", b"place"])
        file["language/t"] = clocks["action"][[0, 20]]
        file["joints"] = np.zeros((700, 7))
        file["joints_time_ms"] = np.arange(700) * 2.0
    kinograph.pack(source, tmp_path / "out.kino")
    one = kinograph.open(tmp_path / "out.kino")["session"]
    assert sorted(one.streams) == ["action", "cam/rgb", "ft", "joints", "language"]
    for name, expected in values.items():
        same(one[name], expected)
        assert np.array_equal(one[name].timestamps_ns, clocks[name])
    assert list(one["language"][:]) == ["pick", "place"]
    assert one["joints"].timestamps_ns[699] == 699 * 2_000_000
    packed_by_its_draft(source, tmp_path)


@pytest.mark.parametrize("marker", ["episode_ends", "ep_len", "episode_index"])
def test_rows_of_flat_arrays_are_episodes(marker, tmp_path):
    source = tmp_path / "flat.h5"
    ends = [30, 75, 100]
    action, images = RNG.normal(size=(100, 7)), camera(100)
    times = np.concatenate([np.arange(count) * 0.1 for count in np.diff([0, *ends])])
    with h5py.File(source, "w") as file:
        file["data/action"] = action
        file.create_dataset("data/img", data=images, chunks=(9, 24, 32, 3), compression="gzip")
        file["data/timestamp"] = times
        lengths = np.diff([0, *ends])
        index = np.repeat([4, 5, 9], lengths)
        file[f"meta/{marker}"] = {"episode_ends": ends, "ep_len": lengths}.get(marker, index)
    kinograph.pack(source, tmp_path / "flat.kino")
    ds = kinograph.open(tmp_path / "flat.kino")
    numbers = [4, 5, 9] if marker == "episode_index" else [0, 1, 2]
    assert [one.id for one in ds] == [f"episode_{number}" for number in numbers]
    for one, start, end in zip(ds, [0, *ends], ends, strict=False):
        assert sorted(one.streams) == ["action", "img"]
        same(one["action"], action[start:end])
        same(one["img"], images[start:end])
        assert np.array_equal(one["img"].timestamps_ns, np.arange(end - start) * 100_000_000)
    packed_by_its_draft(source, tmp_path)


def test_ends_that_do_not_fit_the_arrays_are_an_error(tmp_path):
    for ends, what in [([30, 20, 40], "decreases at index 1"), ([10, 30], "at row 30")]:
        source = tmp_path / "wrong.h5"
        with h5py.File(source, "w") as file:
            file["action"] = np.zeros((40, 7))
            file["state"] = np.zeros((40, 9))
            file["episode_ends"] = ends
        with pytest.raises(kinograph.CorruptDataError, match=what):
            kinograph.pack(source, tmp_path / "no.kino", rate_hz=20)


def test_an_array_of_another_length_is_a_defect_that_points_to_a_mapping(tmp_path):
    source = tmp_path / "rates.h5"
    force = RNG.normal(size=(400, 6))
    with h5py.File(source, "w") as file:
        episode(file.create_group("demo_0"), 40)
        file["demo_0/force"] = force
        file["demo_0/intrinsics"] = np.eye(3)
    with pytest.raises(
        kinograph.CorruptDataError, match=r"400 rows, but most .* 40.*--suggest-mapping"
    ):
        kinograph.pack(source, tmp_path / "no.kino", rate_hz=20)
    draft = suggest(source).stdout
    assert "# FILL IN" in draft
    text = draft.replace("# rate_hz = 20.0", "rate_hz = 20.0")
    start, end = text.index("# [[stream]]"), text.index("# FILL IN, or")
    text = text[:start] + text[start:end].replace("# ", "") + text[end:]
    mapping = tmp_path / "filled_in.toml"
    mapping.write_text(text.replace("100.0", "200.0"))
    assert kinograph.pack(source, tmp_path / "out.kino", mapping=mapping).defects == []
    one = kinograph.open(tmp_path / "out.kino")["demo_0"]
    same(one["force"], force)
    assert one["force"].timestamps_ns[1] == 5_000_000
    assert one["action"].timestamps_ns[1] == 50_000_000


def test_a_count_of_frames_is_not_taken_for_times(tmp_path):
    source = tmp_path / "count.h5"
    with h5py.File(source, "w") as file:
        episode(file.create_group("demo_0"), 40)
        file["demo_0/t"] = np.arange(40)
    with pytest.raises(kinograph.InvalidArgumentError, match="no rate or timestamps"):
        kinograph.pack(source, tmp_path / "no.kino")
    kinograph.pack(source, tmp_path / "out.kino", rate_hz=20)
    same(kinograph.open(tmp_path / "out.kino")["demo_0"]["t"], np.arange(40))


def test_a_rate_that_is_given_overrules_the_times_in_the_file(tmp_path):
    source = tmp_path / "times.h5"
    with h5py.File(source, "w") as file:
        episode(file.create_group("demo_0"), 40)
        file["demo_0/time"] = np.arange(40) * 0.1
    kinograph.pack(source, tmp_path / "own.kino")
    kinograph.pack(source, tmp_path / "given.kino", rate_hz=50)
    own, given = (kinograph.open(tmp_path / f"{name}.kino")["demo_0"] for name in ("own", "given"))
    assert own["action"].timestamps_ns[1] == 100_000_000
    assert given["action"].timestamps_ns[1] == 20_000_000
    assert sorted(given.streams) == ["action", "observation", "time"]


def test_float_images_are_kept_as_they_are_with_advice(tmp_path):
    source = tmp_path / "float.h5"
    images = (camera(20) / 255).astype("f4")
    with h5py.File(source, "w") as file:
        file["demo_0/image"] = images
        file["demo_0/action"] = np.zeros((20, 7))
    packed = kinograph.pack(source, tmp_path / "out.kino", rate_hz=20)
    assert [defect.action for defect in packed.defects] == ["note"]
    assert "looks like float images" in packed.defects[0].what
    same(kinograph.open(tmp_path / "out.kino")["demo_0"]["image"], images)


def test_files_of_several_episodes_keep_them_apart_and_splits_are_those_of_masks(tmp_path):
    for name in ("monday", "tuesday"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            for number in range(2):
                episode(file.create_group(f"demo_{number}"), 40)
            file["mask/train"] = ["demo_1"]
            file["mask/valid"] = ["demo_0", "demo_9"]
            file["notes/gains"] = np.arange(6.0)
            file.attrs["lab"] = "ours"
    packed = kinograph.pack(tmp_path, tmp_path / "out.kino", rate_hz=20, on_defect="keep")
    assert sum("demo_9" in defect.what for defect in packed.defects) == len(packed.defects) == 2
    ds = kinograph.open(tmp_path / "out.kino")
    splits = {one.id: one.splits for one in ds}
    assert splits == {
        "monday/demo_0": ["valid"],
        "monday/demo_1": ["train"],
        "tuesday/demo_0": ["valid"],
        "tuesday/demo_1": ["train"],
    }
    about = ds.attributes["tuesday"]
    assert (about["/@lab"], about["/notes/gains"]) == ("ours", [0, 1, 2, 3, 4, 5])


def test_a_video_in_bytes_is_named_as_what_it_is(tmp_path):
    """RoboNet keeps the frames of a camera as the bytes of an MP4 file."""
    source = tmp_path / "video.h5"
    video = b"\0\0\0\x18ftypmp42" + bytes(5000)
    with h5py.File(source, "w") as file:
        file["env/cam0_video/frames"] = np.frombuffer(video, "u1")
        file["env/state"] = np.zeros((31, 5))
        file["policy/actions"] = np.zeros((30, 4))
    with pytest.raises(kinograph.CorruptDataError, match="contains an MP4 file as bytes"):
        kinograph.pack(source, tmp_path / "no.kino", rate_hz=5)


MAPPING = """
episodes = "/action/*"
split = { from = "/@split" }
task = "fold the towel"
licence = "CC-BY-4.0"

[[stream]]
name = "arm"
from = "/action/{episode}"
unit = "rad"
timestamps = "/clock/{episode}"
timestamps_unit = "us"

[[stream]]
name = "wrist"
from = "/cams/{episode}"
kind = "image"
layout = "chw"
index = 1
rate_hz = 12.5

[[stream]]
name = "range"
from = "/range/{episode}"
kind = "depth"
rate_hz = 10
optional = true
"""


def test_a_mapping_says_where_everything_is(tmp_path):
    """Episodes are datasets here: `action/red`, `cams/red`, with the names of episodes below those of streams."""
    source = tmp_path / "transposed.h5"
    cams = {name: np.stack([camera(20), camera(20)], axis=1) for name in ("red", "blue")}
    ranges = RNG.integers(0, 5000, size=(15, 24, 32), dtype="u2")
    clock = np.cumsum(RNG.integers(40_000, 60_000, size=20))
    with h5py.File(source, "w") as file:
        file.attrs["split"] = "train"
        for name, images in cams.items():
            file[f"action/{name}"] = np.arange(140.0).reshape(20, 7)
            file[f"clock/{name}"] = clock
            file[f"cams/{name}"] = images.transpose(0, 1, 4, 2, 3)
        file["range/red"] = ranges
        file["noise/red"] = np.zeros((500, 3))
    mapping = tmp_path / "map.toml"
    mapping.write_text(MAPPING)
    packed = kinograph.pack(source, tmp_path / "out.kino", mapping=mapping)
    assert ["/noise/red" in defect.what for defect in packed.defects] == [True]
    assert packed.defects[0].action == "note"
    ds = kinograph.open(tmp_path / "out.kino")
    assert [one.id for one in ds] == ["blue", "red"]
    red = ds["red"]
    assert sorted(red.streams) == ["arm", "range", "wrist"]
    same(red["wrist"], cams["red"][:, 1])
    same(red["range"], ranges)
    assert (red["range"].kind, red["wrist"].kind) == ("depth", "image")
    assert np.array_equal(red["arm"].timestamps_ns, clock * 1000)
    assert red["wrist"].timestamps_ns[1] == 80_000_000
    assert (red.task, red.splits) == ("fold the towel", ["train"])
    assert sorted(ds["blue"].streams) == ["arm", "wrist"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('episodes = "take_*"', r"episodes = .take_\*. matches no group"),
        ('[[stream]]\nfrom = "torque"', "line 1: no episode has .torque."),
        ('[[stream]]\nfrom = "action"\ncolour = "red"', "colour"),
        ('[[stream]]\nfrom = "action"\nlayout = "chw"', "layout = .chw. requires uint8 images"),
        ('[[stream]]\nfrom = "action"\nkind = "image"', "cannot be of kind image"),
        ('task = { from = "lang" }', "task = .*: no episode has this attribute"),
        ('[[stream]]\nfrom = "action"\nindex = 9', "no index 9 on its second axis"),
        ('[[stream]]\nname = "x"\nfrom = "*"', "matches 2 datasets; remove `name`"),
        (
            'timestamps = "observation"\ntimestamps_unit = "s"\n[[stream]]\nfrom = "action"',
            "cannot be timestamps",
        ),
        (
            'timestamps = "clock"\ntimestamps_unit = "s"\n[[stream]]\nfrom = "action"',
            "the mapping takes timestamps from it",
        ),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused_with_the_reason(text, what, tmp_path):
    source = tmp_path / "lab.h5"
    with h5py.File(source, "w") as file:
        episode(file.create_group("demo_0"), 40)
    mapping = tmp_path / "map.toml"
    mapping.write_text(text)
    rate = {} if text.startswith("timestamps") else {"rate_hz": 20}
    with pytest.raises(kinograph.KinographError, match=what):
        kinograph.pack(source, tmp_path / "no.kino", mapping=mapping, **rate)
    assert not (tmp_path / "no.kino").exists()


def test_a_file_that_nothing_fits_says_what_is_in_it_and_what_to_do(tmp_path):
    source = tmp_path / "odd.h5"
    with h5py.File(source, "w") as file:
        for number, rows in enumerate([100, 230, 370, 555]):
            file[f"sensor_{number}"] = np.zeros((rows, 40))
    with pytest.raises(kinograph.UnsupportedError) as refused:
        kinograph.pack(source, tmp_path / "no.kino", rate_hz=20)
    for words in [
        "an unknown layout",
        "4 datasets: `/sensor_0` [100, 40]",
        "--suggest-mapping",
        "kinograph.pack(episodes(), target)",
    ]:
        assert words in str(refused.value)
    assert "sensor_1" in suggest(source).stdout


def test_a_draft_is_written_to_a_file_and_never_over_one(tmp_path):
    source = tmp_path / "lab.h5"
    with h5py.File(source, "w") as file:
        episode(file.create_group("demo_0"), 40)
    target = tmp_path / "map.toml"
    first = suggest(source, str(target))
    assert (first.returncode, first.stdout) == (0, "")
    assert target.read_text() == suggest(source).stdout
    second = suggest(source, str(target))
    assert second.returncode == 1
    assert "choose another name" in second.stderr
    refused = suggest(tmp_path / "no.h5")
    assert refused.returncode == 1


def test_names_that_toml_must_quote_survive_a_draft(tmp_path):
    source = tmp_path / "quotes.h5"
    name = 'a"b\\c # ü\n'
    with h5py.File(source, "w") as file:
        file[f"demo_0/{name}"] = np.zeros((40, 7))
        file["demo_0/action"] = np.zeros((40, 7))
        file["demo_0"].attrs['say "so"\n'] = 'quote " and\nbreak'
    draft = tmp_path / "draft.toml"
    draft.write_text(suggest(source).stdout)
    kinograph.pack(source, tmp_path / "out.kino", mapping=draft, rate_hz=20, on_defect="keep")
    assert len(kinograph.open(tmp_path / "out.kino")["demo_0"].streams) == 2


def test_plain_folders_and_mcap_have_drafts_and_other_formats_say_why_not(tmp_path):
    takes = tmp_path / "takes"
    takes.mkdir()
    for number in range(2):
        arrays = {"action": np.zeros((40, 7)), "time_s": np.arange(40) / 20}
        np.savez(takes / f"take_{number}.npz", **arrays)
    packed_by_its_draft(takes, tmp_path)
    (tmp_path / "mcap").mkdir()
    fixtures = ROOT / "crates/kino_import/tests/fixtures/mcap"
    packed_by_its_draft(fixtures / "json.mcap", tmp_path / "mcap")
    replay = tmp_path / "replay.zarr"
    replay.mkdir()
    (replay / ".zgroup").write_text('{"zarr_format": 2}')
    refused = suggest(replay)
    assert refused.returncode == 1
    assert "`zarr` does not take a mapping" in refused.stderr
