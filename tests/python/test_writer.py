"""Writing: modes, plans, what is refused, and that nothing half-written is ever seen."""

import functools
import io
import os
import pickle
import shutil
import textwrap

import numpy as np
import pytest
import samples

import kinograph

VECTOR = {"x": np.arange(10.0)}


def refuse(tmp_path, message, streams, **options):
    """Check that an episode is refused, and that the writer goes on without it."""
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        with pytest.raises(kinograph.InvalidArgumentError, match=message):
            writer.add_episode(streams, **({"rate_hz": 20.0} | options))
        writer.add_episode(VECTOR, rate_hz=20.0, id="sound")
    ds = kinograph.open(tmp_path / "d.kino")
    assert [episode.id for episode in ds] == ["sound"]
    assert ds[0]["x"][:].tolist() == list(range(10))


def write_and_raise(path, error, **options):
    """Write an episode, then raise inside the block."""
    with kinograph.Writer(path, **options) as writer:
        writer.add_episode(VECTOR, rate_hz=20.0)
        raise error


def test_small_streams_are_stored_before_images(tmp_path):
    camera = samples.image(10, 8, 8)
    depth = np.zeros((10, 8, 8), np.uint16)
    streams = {
        "camera": camera,
        "b": np.arange(10),
        "depth": depth,
        "text": ["x"] * 10,
        "a": np.arange(10),
    }
    ds = samples.write(tmp_path / "d.kino", [streams])
    assert ds[0].streams == ["b", "text", "a", "camera", "depth"]


def test_ids_are_made_from_the_place_where_none_is_given(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(VECTOR, rate_hz=20.0)
        writer.add_episode(VECTOR, rate_hz=20.0, id="mine")
        writer.add_episode(VECTOR, rate_hz=20.0)
    assert [episode.id for episode in kinograph.open(tmp_path / "d.kino")] == [
        "episode_0",
        "mine",
        "episode_2",
    ]


def test_a_commit_says_what_it_made(tmp_path):
    writer = kinograph.Writer(tmp_path / "d.kino")
    assert repr(writer) == f"Writer('{tmp_path / 'd.kino'}', open)"
    assert writer.path == tmp_path / "d.kino"
    writer.add_episode(VECTOR, rate_hz=20.0)
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(tmp_path / "d.kino")
    committed = writer.commit("the first")
    ds = kinograph.open(tmp_path / "d.kino")
    assert committed == (1, ds.id, 1)
    assert (committed.version, committed.episodes) == (1, 1)
    assert "closed" in repr(writer)
    for call in (
        writer.commit,
        lambda: writer.add_episode(VECTOR, rate_hz=1.0),
        lambda: writer.resumed,
    ):
        with pytest.raises(kinograph.InvalidArgumentError, match="the writer is closed"):
            call()
    writer.abandon()


def test_a_commit_inside_the_block_is_the_only_one(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(VECTOR, rate_hz=20.0)
        writer.commit()
    assert kinograph.open(tmp_path / "d.kino").versions == [1]


def test_nothing_is_visible_when_the_block_raises(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_and_raise(tmp_path / "d.kino", ZeroDivisionError)
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(tmp_path / "d.kino")


def test_an_abandoned_append_leaves_the_old_version(tmp_path):
    samples.write(tmp_path / "d.kino", [VECTOR])
    with pytest.raises(KeyboardInterrupt):
        write_and_raise(tmp_path / "d.kino", KeyboardInterrupt, mode="append")
    ds = kinograph.open(tmp_path / "d.kino")
    assert (ds.versions, len(ds)) == ([1], 1)
    assert kinograph.verify(tmp_path / "d.kino", decode=True) == []


def test_a_writer_that_is_forgotten_warns_that_its_episodes_are_lost(tmp_path):
    writer = kinograph.Writer(tmp_path / "d.kino")
    writer.add_episode(VECTOR, rate_hz=20.0)
    with pytest.warns(ResourceWarning, match="was never committed: its episodes are lost"):
        del writer


def test_a_new_dataset_needs_an_empty_place(tmp_path):
    path = tmp_path / "d.kino"
    samples.write(path, [VECTOR])
    with pytest.raises(kinograph.ConflictError, match="already contains a dataset of 1 episodes"):
        kinograph.Writer(path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(kinograph.ConflictError, match="is not empty and is not a dataset"):
        kinograph.Writer(tmp_path / "other")


def test_appending_needs_a_dataset(tmp_path):
    with pytest.raises(kinograph.NotFoundError, match="does not exist"):
        kinograph.Writer(tmp_path / "nothing", mode="append")
    (tmp_path / "empty").mkdir()
    with pytest.raises(kinograph.NotFoundError, match="does not contain a dataset to append to"):
        kinograph.Writer(tmp_path / "empty", mode="append")


def test_appended_episodes_come_after_the_others(tmp_path):
    path = tmp_path / "d.kino"
    samples.write(path, [VECTOR], attributes={"robot": "panda", "lab": "a"})
    with kinograph.Writer(path, mode="append", attributes={"lab": "b"}) as writer:
        assert writer.resumed == frozenset()
        writer.add_episode({"x": np.arange(5.0), "y": np.ones(5, int)}, rate_hz=10.0)
    ds = kinograph.open(path)
    assert [episode.id for episode in ds] == ["demo_0", "episode_1"]
    assert ds.attributes == {"robot": "panda", "lab": "b"}
    assert ds[0].streams == ["x"]
    assert ds.streams["y"].episodes == 1
    assert ds[1]["x"].rate_hz == 10.0


def test_a_stream_keeps_its_type_in_every_episode(tmp_path):
    path = tmp_path / "d.kino"
    samples.write(path, [VECTOR])
    with kinograph.Writer(path, mode="append") as writer:
        with pytest.raises(
            kinograph.InvalidArgumentError, match=r"stream `x` is .* in other episodes"
        ):
            writer.add_episode({"x": np.arange(5)}, rate_hz=20.0)
        writer.add_episode({"x": np.arange(5.0)}, rate_hz=20.0)
    assert len(kinograph.open(path)) == 2


def test_an_interrupted_writer_is_resumed_after_its_last_shard(tmp_path):
    path = tmp_path / "d.kino"
    episodes = {
        f"demo_{number}": samples.numbers("float64", (500, 4), seed=number) for number in range(8)
    }
    writer = kinograph.Writer(path, shard_size=1, memory=1, settings={"source": "demos"})
    for name, array in list(episodes.items())[:5]:
        writer.add_episode({"x": array}, rate_hz=20.0, id=name)
    writer.abandon()

    with pytest.raises(kinograph.ConflictError, match="contains an interrupted pack"):
        kinograph.Writer(path)
    with kinograph.Writer(
        path, mode="resume", shard_size=1, settings={"source": "demos"}
    ) as writer:
        done = writer.resumed
        assert done < set(episodes)
        for name, array in episodes.items():
            if name not in done:
                writer.add_episode({"x": array}, rate_hz=20.0, id=name)
    ds = kinograph.open(path)
    assert len(done) > 0
    assert sorted(episode.id for episode in ds) == sorted(episodes)
    for name, array in episodes.items():
        assert samples.same_bits(ds[name]["x"][:], array)
    assert ds.stats["x"].frames == 4000
    assert kinograph.verify(path, decode=True) == []


def test_resuming_where_nothing_was_begun_starts_anew(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino", mode="resume") as writer:
        assert writer.resumed == frozenset()
        writer.add_episode(VECTOR, rate_hz=20.0)
    assert len(kinograph.open(tmp_path / "d.kino")) == 1


def test_a_plan_chooses_codecs_from_a_file_or_a_dict(tmp_path):
    text = """
        [[stream]]
        match = "obs/*"
        codec = "raw"

        [[stream]]
        kind = "vector"
        codec = "zstd:level=1"
        page_frames = 16
    """
    (tmp_path / "plan.toml").write_text(textwrap.dedent(text))
    rules = [
        {"match": "obs/*", "codec": "raw"},
        {"kind": "vector", "codec": "zstd:level=1", "page_frames": 16},
    ]
    streams = {"obs/x": np.arange(50.0), "y": np.arange(50.0), "camera": samples.image(50, 8, 8)}
    plans = (tmp_path / "plan.toml", str(tmp_path / "plan.toml"), {"stream": rules})
    for number, plan in enumerate(plans):
        ds = samples.write(tmp_path / f"{number}.kino", [streams], plan=plan)
        assert ds[0]["obs/x"].codec == "raw"
        assert ds[0]["y"].codec.startswith("zstd:level=1")
        assert ds[0]["camera"].codec.split(":")[0] in ("predict", "camera")  # whichever is smaller
        assert samples.same_bits(ds[0]["y"][:], streams["y"])
    # Noise is smaller as JPEG; what little 8x8 pixels hold is not.
    streams["noise"] = np.random.default_rng(1).integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    ds = samples.write(tmp_path / "q.kino", [streams], plan={"stream": rules}, quality=80)
    assert ds[0]["noise"].codec == "jpeg:q=80,sub=444"
    assert ds[0]["camera"].codec.split(":")[0] in ("predict", "camera")


def test_a_wrong_plan_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "d.kino"
    for plan, message in [
        ({"stream": [{"codec": "no-such"}]}, "no-such"),
        ({"streams": []}, "streams"),
        ({"stream": [{"bound": "cm(1)"}]}, r"cm\(1\)"),
        ({"stream": [{"protect": ["grasp"]}]}, "grasp"),
        ({"stream": {1, 2}}, "cannot be stored as JSON"),
        (3, "must be a path, a dict, or what"),
    ]:
        with pytest.raises(kinograph.InvalidArgumentError, match=message):
            kinograph.Writer(path, plan=plan)
    (tmp_path / "plan.toml").write_text("[[stream]]\nspeed = 3")
    with pytest.raises(kinograph.InvalidArgumentError, match="cannot parse the plan"):
        kinograph.Writer(path, plan=tmp_path / "plan.toml")
    with pytest.raises(kinograph.NotFoundError, match=r"the plan .*missing\.toml does not exist"):
        kinograph.Writer(path, plan=tmp_path / "missing.toml")
    with pytest.raises(kinograph.StorageError, match="cannot read the plan"):
        kinograph.Writer(path, plan=tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(kinograph.InvalidArgumentError, match="is not UTF-8 text"):
        kinograph.Writer(path, plan=tmp_path / "binary.toml")
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": 0}, "quality is 0; give a whole number from 1 to 100"),
        ({"quality": 300}, "quality is 300; give a whole number from 1 to 100"),
        ({"mode": "replace"}, 'mode "replace" is not "new", "append", "resume" or "overwrite"'),
        ({"shard_size": -1}, "shard_size .bytes. is -1"),
        ({"memory": 1.5}, "memory is 1.5"),
        ({"threads": True}, "threads is True"),
        ({"threads": "2"}, "threads is '2'"),
        ({"quality": True}, "quality is True"),
        ({"quality": "90"}, "quality is '90'"),
        ({"quality": 90.5}, "quality is 90.5"),
        ({"attributes": {"x": {1}}}, "attributes of the dataset: cannot be stored as JSON: set"),
        (
            {"attributes": {"x": float("nan")}},
            "attributes of the dataset: cannot be stored as JSON",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_reason(tmp_path, options, message):
    with pytest.raises(kinograph.InvalidArgumentError, match=message):
        kinograph.Writer(tmp_path / "d.kino", **options)


@pytest.mark.parametrize(
    ("streams", "options", "message"),
    [
        (VECTOR, {"rate_hz": None}, "stream `x` has neither a rate nor timestamps; give rate_hz="),
        (VECTOR, {"rate_hz": {}}, "stream `x` has neither a rate nor timestamps"),
        (VECTOR, {"rate_hz": 0.0}, "stream `x`: .*rate 0 Hz is outside"),
        (VECTOR, {"rate_hz": float("nan")}, "NaN Hz is outside"),
        (VECTOR, {"rate_hz": "fast"}, "is 'fast'; give a number"),
        (VECTOR, {"rate_hz": "10"}, "rate_hz of stream `x` is '10'; give a number"),
        (VECTOR, {"rate_hz": True}, "rate_hz of stream `x` is True; give a number"),
        (VECTOR, {"rate_hz": {"x": np.True_}}, "rate_hz of stream `x` is .*True.*; give a number"),
        (VECTOR, {"rate_hz": np.timedelta64(3, "s")}, "rate_hz of stream `x` .* give a number"),
        (VECTOR, {"rate_hz": np.ma.masked}, "rate_hz of stream `x` .* give a number"),
        (
            VECTOR,
            {"rate_hz": None, "timestamps_ns": np.arange(10).astype("M8[ns]")},
            r"must be integer nanoseconds: stamps.astype\('datetime64",
        ),
        (
            VECTOR,
            {"rate_hz": None, "timestamps_ns": np.ma.masked_less(np.arange(10), 3)},
            "timestamps_ns of stream `x` is a masked array with 3 masked values",
        ),
        (
            {"x": np.ma.masked_less(np.arange(10), 3)},
            {},
            r"stream `x` is a masked array with 3 masked values.*array\.filled",
        ),
        (
            {"x": [np.ma.masked_less(np.arange(3), 1)] * 2},
            {},
            "a frame of stream `x` is a masked array",
        ),
        ({"x": [1.0, np.ma.masked]}, {}, "a frame of stream `x` is a masked array"),
        (VECTOR, {"labels": {"a": np.datetime64("2025-01-01")}}, "label `a` is .*attributes="),
        (VECTOR, {"labels": {"a": np.timedelta64(3, "ns")}}, "label `a` is .*attributes="),
        (VECTOR, {"labels": {"a": np.ma.masked}}, "label `a` is .*attributes="),
        (VECTOR, {"protect": [(True, 2.0)]}, "protect has"),
        (VECTOR, {"protect": [("0", "1")]}, "protect has"),
        (
            VECTOR,
            {"rate_hz": {"y": 1.0}},
            "rate_hz names the stream `y`, which is not in the episode; use one of x",
        ),
        (VECTOR, {"kinds": {"y": "image"}}, "kinds names the stream `y`"),
        (
            VECTOR,
            {"kinds": {"x": "video"}},
            'kind "video" is not "vector", "image", "depth" or "text"',
        ),
        (VECTOR, {"kinds": {"x": "text"}}, "stream `x` .* it stores strings"),
        (VECTOR, {"timestamps_ns": np.arange(10)}, "stream `x` has both a rate and timestamps"),
        (VECTOR, {"rate_hz": None, "timestamps_ns": np.arange(9)}, "10 frames but 9 timestamps"),
        (
            VECTOR,
            {"rate_hz": None, "timestamps_ns": np.arange(10.0)},
            "must be integer nanoseconds",
        ),
        (
            VECTOR,
            {"rate_hz": None, "timestamps_ns": np.zeros((10, 1), int)},
            "must be integer nanoseconds",
        ),
        (
            VECTOR,
            {"rate_hz": None, "timestamps_ns": np.arange(10)[::-1]},
            "timestamps decrease from 9 ns",
        ),
        (
            VECTOR,
            {"rate_hz": None, "timestamps_ns": np.full(10, 1 << 63, np.uint64)},
            "do not fit int64",
        ),
        ({"x": np.arange(10), "y": np.arange(9)}, {}, "different numbers of frames: `x` 10, `y` 9"),
        ({}, {}, "has no streams"),
        ([1, 2], {}, "a dict of name to array, not list"),
        ({"x": np.array(3.0)}, {}, "stream `x` is a single value"),
        ({"x": np.zeros((0, 3))}, {}, "stream `x` has no frames"),
        ({"x": []}, {}, "stream `x` has no frames"),
        ({"x": np.zeros(5, complex)}, {}, "complex128, .*store the real and the imaginary part"),
        ({"x": np.zeros(5, "M8[ns]")}, {}, r"datetime64\[ns\], .*store it as integers"),
        ({"x": np.zeros(5, np.longdouble)}, {}, "convert it to float64"),
        ({"x": np.zeros(5, [("a", "f4")])}, {}, "store each field as a stream"),
        ({"x": np.array([b"ab", b"cd"])}, {}, "decode it to text"),
        (
            {"x": np.array([1, "a", None], dtype=object)},
            {},
            "dtype object, .*store frames of one dtype",
        ),
        ({"x": [[1, 2], [3]]}, {}, "stream `x` cannot be made into one array"),
        ({"x": "lift the cube"}, {}, "a single str, not one per frame.*task="),
        ({"x": b"\xff\xd8"}, {}, "a single bytes, not one per frame"),
        ({"x": [b"\x89PNG", b"\x89PNG"]}, {}, "not JPEG files that can be stored as they are"),
        ({"x": [b"\xff\xd8\xff"]}, {}, "not JPEG files that can be stored as they are"),
        ({"x": ["a", "b"]}, {"kinds": {"x": "vector"}}, "is text and cannot be of kind 'vector'"),
        ({"x": ["\ud800"]}, {}, "not valid Unicode"),
        ({"x": np.zeros((2,) + (1,) * 9)}, {}, "9 dimensions, at most 8"),
        (VECTOR, {"splits": "train"}, r"splits must be a list of names: \['train'\]"),
        (VECTOR, {"labels": {"a": [1]}}, "label `a` is .*attributes="),
        (VECTOR, {"labels": {"a": 1 << 63}}, "does not fit into 64 bits"),
        (VECTOR, {"labels": {"frames": 3}}, "label `frames` has the name of a built-in column"),
        (
            VECTOR,
            {"attributes": {"a": object()}},
            "attributes of the episode: cannot be stored as JSON: object",
        ),
        (VECTOR, {"id": "a\nb"}, "U.000A"),
        (VECTOR, {"id": "x" * 300}, "use at most 255"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_an_episode_that_cannot_be_stored_is_refused_with_the_reason(
    tmp_path, streams, options, message
):
    refuse(tmp_path, message, streams, **options)


@pytest.mark.parametrize("name", ["../x", "", "/x", "x//y", "a\nb", "x" * 300])
def test_a_stream_name_is_a_relative_path(tmp_path, name):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        with pytest.raises(kinograph.KinographError, match="is not a relative path"):
            writer.add_episode({"x": np.arange(3.0), name: np.arange(3)}, rate_hz=20.0)
        writer.add_episode(VECTOR, rate_hz=20.0)
    ds = kinograph.open(tmp_path / "d.kino")
    assert (len(ds), ds[0]["x"][:].tolist(), ds.stats["x"].frames) == (1, list(range(10)), 10)
    assert kinograph.verify(tmp_path / "d.kino", decode=True) == []


def test_ids_are_unique(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(VECTOR, rate_hz=20.0, id="a")
        with pytest.raises(
            kinograph.InvalidArgumentError, match="episode `a` is already in the dataset"
        ):
            writer.add_episode(VECTOR, rate_hz=20.0, id="a")
    with (
        kinograph.Writer(tmp_path / "d.kino", mode="append") as writer,
        pytest.raises(kinograph.InvalidArgumentError, match="ids must be unique"),
    ):
        writer.add_episode(VECTOR, rate_hz=20.0, id="a")


def test_a_dataset_has_at_least_one_episode(tmp_path):
    with (
        pytest.raises(kinograph.InvalidArgumentError, match="no episodes were written"),
        kinograph.Writer(tmp_path / "d.kino"),
    ):
        pass


def test_streams_of_one_rate_may_differ_in_length_when_said_so(tmp_path):
    streams = {"obs": np.arange(11), "actions": np.arange(10)}
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(streams, rate_hz=dict.fromkeys(streams, 20.0))
    assert kinograph.open(tmp_path / "d.kino")[0].frames == 11


def test_a_kind_can_be_said_where_the_shape_does_not_tell(tmp_path):
    grey, small = samples.image(5, 8, 8, 1)[..., 0], np.zeros((5, 2, 2, 3), np.uint8)
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(
            {"grey": grey, "tactile": small},
            rate_hz=20.0,
            kinds={"grey": "image", "tactile": "vector"},
        )
    episode = kinograph.open(tmp_path / "d.kino")[0]
    assert (episode["grey"].kind, episode["tactile"].kind) == ("image", "vector")
    assert samples.same_bits(episode["grey"][:], grey)


def test_labels_and_attributes_take_numpys_numbers(tmp_path):
    labels = {"n": np.int32(3), "s": np.float32(0.5), "ok": np.bool_(True), "who": np.str_("ana")}
    attributes = {"camera": np.eye(2), "count": np.uint8(7), "nested": {"list": [1, None, "x"]}}
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(
            VECTOR,
            rate_hz=20.0,
            labels=labels,
            attributes=attributes,
            success=np.bool_(False),
            licence="CC-BY-4.0",
            consent="research",
            source="demos.hdf5",
        )
    ds = kinograph.open(tmp_path / "d.kino")
    assert ds[0].labels == {"n": 3, "ok": True, "s": 0.5, "who": "ana"}
    assert ds[0].attributes == {
        "camera": [[1.0, 0.0], [0.0, 1.0]],
        "count": 7,
        "nested": {"list": [1, None, "x"]},
    }
    assert ds[0].success is False
    for column, expected in (
        ("licence", "CC-BY-4.0"),
        ("consent", "research"),
        ("source", "demos.hdf5"),
    ):
        assert ds.episodes[column].tolist() == [expected]


def test_jpeg_files_of_different_sizes_are_refused(tmp_path):
    image = pytest.importorskip("PIL.Image")

    def file(width):
        buffer = io.BytesIO()
        image.new("RGB", (width, 8)).save(buffer, "JPEG")
        return buffer.getvalue()

    with (
        pytest.raises(
            kinograph.KinographError, match=r"stream `camera`.*\(8, 24, 3\).*\(8, 16, 3\)"
        ),
        kinograph.Writer(tmp_path / "d.kino") as writer,
    ):
        writer.add_episode({"camera": [file(16), file(24)]}, rate_hz=20.0)


def test_a_writer_is_not_pickled(tmp_path):
    writer = kinograph.Writer(tmp_path / "d.kino")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(writer)
    writer.abandon()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_leaves_its_parents_writer_alone(tmp_path):
    writer = kinograph.Writer(tmp_path / "d.kino")
    writer.add_episode(VECTOR, rate_hz=20.0, id="before")
    child = os.fork()
    if child == 0:
        try:
            writer.add_episode(VECTOR, rate_hz=20.0)
            code = 1
        except kinograph.InvalidArgumentError as error:
            code = 0 if "which this one was forked from" in str(error) else 2
        del writer
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.add_episode(VECTOR, rate_hz=20.0, id="after")
    writer.commit()
    ds = kinograph.open(tmp_path / "d.kino")
    assert [episode.id for episode in ds] == ["before", "after"]
    assert kinograph.verify(tmp_path / "d.kino", decode=True) == []


def test_bools_that_are_neither_0_nor_1_are_refused(tmp_path):
    path = tmp_path / "b.kino"
    with kinograph.Writer(path) as writer:
        odd = np.frombuffer(bytes([0, 1, 2, 255] * 5), dtype=bool)
        with pytest.raises(kinograph.InvalidArgumentError, match="frame 2 has a bool"):
            writer.add_episode({"contact": odd}, rate_hz=10.0)
        writer.add_episode({"contact": odd.view(np.uint8) != 0}, rate_hz=10.0)
    expected = [False, True, True, True] * 5
    assert kinograph.open(path)[0]["contact"][:].tolist() == expected


def test_an_append_tells_of_work_that_can_be_resumed_and_gc_lists_it(tmp_path):
    path = tmp_path / "a.kino"
    episode = {"x": np.zeros((4, 2))}
    with kinograph.Writer(path) as writer:
        writer.add_episode(episode, rate_hz=10.0)
    options = {"shard_size": 1, "memory": 1}
    dead = kinograph.Writer(path, mode="append", **options)
    for number in range(4):
        dead.add_episode(episode, rate_hz=10.0, id=f"dead_{number}")
    dead.abandon()
    with (
        pytest.warns(UserWarning, match="finished episodes of an interrupted writer"),
        kinograph.Writer(path, mode="append", **options) as writer,
    ):
        writer.add_episode(episode, rate_hz=10.0)
    (work,) = kinograph.gc(path).writers
    assert work.state == "can be resumed"
    assert work.episodes >= 1
    with kinograph.Writer(path, mode="resume", **options) as writer:
        assert len(writer.resumed) == work.episodes
    ids = [episode.id for episode in kinograph.open(path)]
    assert ids == ["episode_0", "episode_1", *(f"dead_{number}" for number in range(work.episodes))]
    assert kinograph.gc(path) == (0, [], [])


def test_two_writers_cannot_give_one_stream_two_types(tmp_path):
    path = tmp_path / "a.kino"
    with kinograph.Writer(path) as writer:
        writer.add_episode({"base": np.zeros((5, 2), "f4")}, rate_hz=10.0)
    one, two = (kinograph.Writer(path, mode="append") for _ in range(2))
    one.add_episode({"x": np.ones((5, 3), "f4")}, rate_hz=10.0)
    two.add_episode({"x": np.ones((5, 3), "f8")}, rate_hz=10.0)
    one.commit()
    with pytest.raises(kinograph.InvalidArgumentError, match="version 2, which another writer"):
        two.commit()
    assert len(kinograph.open(path)) == 2


def test_a_masked_array_that_hides_nothing_is_an_array(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode({"x": np.ma.MaskedArray(np.arange(4.0))}, rate_hz=10.0)
    np.testing.assert_array_equal(kinograph.open(tmp_path / "d.kino")[0]["x"][:], np.arange(4.0))


@pytest.mark.parametrize("rate_hz", [True, "10", np.ma.masked])
def test_pack_takes_a_rate_that_is_a_number(tmp_path, rate_hz):
    for source in (tmp_path / "demos.hdf5", [{"streams": VECTOR}]):
        with pytest.raises(kinograph.InvalidArgumentError, match=r"rate_hz is .*; give a number"):
            kinograph.pack(source, tmp_path / "d.kino", rate_hz=rate_hz)


ODD = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u061c\u200e\u200f\u2028\u2029"]
ODD += [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"U+{ord(odd):04X}")
def test_new_names_have_no_character_that_a_terminal_obeys(tmp_path, odd):
    name = f"a{odd}b"
    writer = kinograph.Writer(tmp_path / "d.kino")
    for options in ({"id": name}, {"labels": {name: 1}}):
        with pytest.raises(kinograph.InvalidArgumentError) as refused:
            writer.add_episode(VECTOR, rate_hz=10.0, **options)
        assert odd not in str(refused.value)
    with pytest.raises(kinograph.InvalidArgumentError, match="stream name") as refused:
        writer.add_episode({name: np.arange(10.0)}, rate_hz=10.0)
    assert odd not in str(refused.value) or odd in "\n\t"
    # Text may hold anything.
    writer.add_episode(VECTOR, rate_hz=10.0, id="größe 日本", task=name, splits=[name])
    writer.commit()
    assert kinograph.open(tmp_path / "d.kino")[0].task == name


def add_and_commit(writer, count):
    for place in range(count):
        writer.add_episode({"x": np.arange(10.0) + place}, rate_hz=20.0, id=f"late {place}")
    writer.commit()


def _move(path):
    path.rename(path.with_name("elsewhere.kino"))


def _empty(path):
    _move(path)
    path.mkdir()


def _replace(path):
    _move(path)
    with kinograph.Writer(path) as writer:
        writer.add_episode(VECTOR, rate_hz=20.0, id="another's")


@pytest.mark.parametrize("change", [_move, _empty, _replace])
@pytest.mark.parametrize("late", [0, 1], ids=["at the commit", "before an episode"])
@pytest.mark.parametrize("mode", ["new", "append"])
def test_a_dataset_that_is_moved_while_it_is_written_is_not_committed_to(
    mode, late, change, tmp_path
):
    path = tmp_path / "a.kino"
    if mode == "append":
        with kinograph.Writer(path) as writer:
            writer.add_episode(VECTOR, rate_hz=20.0, id="old")
    # Every episode is a shard of its own, and some of them are written before the change.
    writer = kinograph.Writer(path, mode=mode, shard_size=0, memory=0)
    shards = len(list(path.glob("shards/*")))
    for place in range(5):
        writer.add_episode({"x": np.arange(10.0) * place}, rate_hz=20.0, id=f"early {place}")
    assert len(list(path.glob("shards/*"))) > shards
    change(path)
    refusals = (kinograph.NotFoundError, kinograph.StorageError, kinograph.ConflictError)
    with pytest.raises(refusals):
        add_and_commit(writer, late)
    writer.abandon()
    if change is _replace:
        assert [episode.id for episode in kinograph.open(path)] == ["another's"]
        assert kinograph.verify(path, decode=True) == []
    if mode == "append":
        moved = tmp_path / "elsewhere.kino"
        assert [episode.id for episode in kinograph.open(moved)] == ["old"]
        assert kinograph.verify(moved, decode=True) == []


NESTED = {"x": functools.reduce(lambda inner, _: [inner], range(100_000), 1)}


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("does not fit into 64 bits", {"attributes": {"x": [1, {"y": 2**64}]}}),
        ("does not fit into 64 bits", {"attributes": {"x": -(2**63) - 1}}),
        ("two keys are '1'", {"attributes": {"x": {1: "a", "1": "b"}}}),
        ("cannot be stored as JSON", {"attributes": NESTED}),
        ("id is 5; give a str", {"id": 5}),
        ("splits is None", {"splits": None}),
        ("a split is 1; give a str", {"splits": [1]}),
        ("not valid Unicode", {"id": "\ud800"}),
        ("not valid Unicode", {"task": "\udfff"}),
        ("not valid Unicode", {"splits": ["a", "\ud800"]}),
        ("not valid Unicode", {"labels": {"\ud800": 1}}),
        ("not valid Unicode", {"labels": {"x": "\ud800"}}),
    ],
)
def test_what_would_be_stored_as_something_else_is_refused(tmp_path, message, options):
    refuse(tmp_path, message, VECTOR, **options)


@pytest.mark.parametrize("value", [None, {1, 2}, (number for number in range(3))])
def test_a_stream_that_is_no_array_is_refused(tmp_path, value):
    refuse(tmp_path, "its first axis must be time", {"a": value})


def test_a_stream_name_that_is_no_text_is_refused(tmp_path):
    refuse(tmp_path, "give a str", {5: np.zeros(3)})
    shutil.rmtree(tmp_path / "d.kino")
    refuse(tmp_path, "not valid Unicode", {"\ud800": np.zeros(3)})


def test_integers_of_64_bits_come_back_in_attributes(tmp_path):
    known = {"least": -(2**63), "most": 2**64 - 1, "nested": [{"a": 2**63}]}
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode(VECTOR, rate_hz=20.0, attributes=known)
    found = kinograph.open(tmp_path / "d.kino")[0].attributes
    assert found == known
    assert all(type(found[name]) is int for name in ("least", "most"))


@pytest.mark.parametrize(
    "options",
    [
        {"task": "x" * 65_537},
        {"source": "x" * 65_537},
        {"labels": {"note": "x" * 65_537}},
        {"splits": [f"split {number}" for number in range(257)]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_the_table_cannot_hold_costs_its_own_episode_only(tmp_path, options):
    refuse(tmp_path, "at most", VECTOR, **options)


def test_nested_streams_are_refused_with_the_name_to_use(tmp_path):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        with pytest.raises(kinograph.InvalidArgumentError, match="such as `obs/joints`"):
            writer.add_episode({"obs": {"joints": np.zeros((4, 2))}}, rate_hz=10.0)
        writer.add_episode({"obs/joints": np.zeros((4, 2))}, rate_hz=10.0)
    with pytest.raises(kinograph.InvalidArgumentError, match="such as `obs/joints`"):
        kinograph.pack(
            [{"streams": {"obs": {"joints": np.zeros((4, 2))}}}], tmp_path / "e.kino", rate_hz=10.0
        )


@pytest.mark.parametrize(
    ("array", "advice"),
    [
        (np.zeros((5, 3, 48, 64), np.uint8), "looks like CHW images; pass HWC: np.moveaxis"),
        (np.zeros((5, 1, 48, 64), np.uint8), "looks like CHW images"),
        (np.full((5, 48, 64, 3), 0.5, np.float32), "looks like float32 images from 0 to 1"),
        (np.full((5, 3, 48, 64), 0.5), "looks like float64 images from 0 to 1"),
    ],
)
def test_images_in_another_form_are_refused_with_the_line_to_type(tmp_path, array, advice):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        with pytest.raises(kinograph.InvalidArgumentError, match=advice):
            writer.add_episode({"camera": array}, rate_hz=10.0)
        writer.add_episode({"camera": array}, rate_hz=10.0, kinds={"camera": "vector"})
    (episode,) = kinograph.open(tmp_path / "d.kino")
    assert episode["camera"].kind == "vector"
    assert np.array_equal(episode["camera"][:], array)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((5, 3, 8, 8), np.uint8),
        np.full((5, 48, 64, 3), -0.5),
        np.full((5, 48, 64), 0.5),
        np.zeros((5, 4, 4)),
    ],
)
def test_arrays_that_only_have_four_axes_are_vectors(tmp_path, array):
    with kinograph.Writer(tmp_path / "d.kino") as writer:
        writer.add_episode({"x": array}, rate_hz=10.0)
    assert kinograph.open(tmp_path / "d.kino")[0]["x"].kind == "vector"


def test_overwriting_replaces_a_dataset_at_the_commit_and_nothing_else(tmp_path):
    path = tmp_path / "d.kino"
    for round_ in range(3):
        with kinograph.Writer(path, mode="overwrite") as writer:
            writer.add_episode({"x": np.full(4, round_)}, rate_hz=10.0)
            if round_:
                assert kinograph.open(path)[0]["x"][0] == round_ - 1
        ds = kinograph.open(path)
        assert (ds.version, len(ds), ds[0]["x"][0]) == (1, 1, round_)

    def failing():
        yield {"streams": {"x": np.zeros(4)}, "rate_hz": 10.0}
        raise RuntimeError("the robot fell over")

    with pytest.raises(RuntimeError):
        kinograph.pack(failing(), path, mode="overwrite")
    assert kinograph.open(path)[0]["x"][0] == 2
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "thesis.tex").write_text("years")
    with pytest.raises(kinograph.ConflictError, match="is not overwritten"):
        kinograph.Writer(other, mode="overwrite")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["d.kino", "thesis"]
    assert (other / "thesis.tex").read_text() == "years"
