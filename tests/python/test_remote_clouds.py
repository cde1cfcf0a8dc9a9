"""Remote datasets are written, appended and committed in the same way on S3, Google Cloud Storage and Azure."""

import base64
import threading
from pathlib import Path

import numpy as np
import pytest
import samples
from clouds import CLOUDS
from remote_servers import Faults
from samples import batches, write_numbered

import kinograph

pytestmark = pytest.mark.usefixtures("work_folder")

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "lift_3demos.hdf5"


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(request):
    """A server, which this process uses."""
    with CLOUDS[request.param]() as running, pytest.MonkeyPatch.context() as patch:
        running.use(patch, f"http://{running.authority}")
        yield running


def test_samples_are_those_of_a_folder_even_if_the_server_fails_now_and_then(
    cloud, camera_path, monkeypatch
):
    url = cloud.url("same.kino")
    kinograph.open(camera_path).copy(url)
    expected = batches(camera_path)
    assert batches(url) == expected
    faults = Faults(busy=0.1, reset=0.1, cut=0.1)
    with cloud.faulty(monkeypatch, faults=faults):
        assert batches(url) == expected
        dataset = kinograph.open(url)
        dataset[0]["camera"][:]
        assert dataset.storage["gets"] > 0
    assert sum(faults.seen.values()) > 2


def test_a_dataset_is_written_appended_verified_and_repacked_remotely(cloud, tmp_path):
    url = cloud.url("made.kino")
    write_numbered(url, [0, 1])
    with pytest.raises(kinograph.ConflictError, match="already contains a dataset"):
        write_numbered(url, [5])
    write_numbered(url, [2], mode="append")
    dataset = kinograph.open(url)
    assert (dataset.version, dataset.versions, str(dataset.path)) == (2, [1, 2], url)
    assert [episode.id for episode in dataset] == ["e0", "e1", "e2"]
    assert np.all(dataset["e2"]["joints"][:] == 2)
    assert not kinograph.verify(url)
    kinograph.repack(url, cloud.url("copy.kino"))
    kinograph.repack(url, tmp_path / "copy.kino")
    for copy in (cloud.url("copy.kino"), tmp_path / "copy.kino"):
        for number, episode in enumerate(kinograph.open(copy)):
            assert np.all(episode["joints"][:] == number)
    kinograph.export(url, tmp_path / "out", to="webdataset", on_defect="keep")
    with pytest.raises(kinograph.InvalidArgumentError, match="cannot be overwritten"):
        write_numbered(url, [5], mode="overwrite")
    assert kinograph.gc(url) == (0, [], [])
    with pytest.raises(kinograph.NotFoundError, match="is not a Kinograph dataset"):
        kinograph.open(cloud.url("nothing.kino"))


def test_a_shard_that_is_uploaded_in_parts_arrives(cloud):
    values = np.random.default_rng(1).normal(size=(1000, 4500))
    with kinograph.Writer(cloud.url("large.kino")) as writer:
        writer.add_episode({"x": values}, rate_hz=20.0, id="e0")
    dataset = kinograph.open(cloud.url("large.kino"))
    assert samples.same_bits(dataset["e0"]["x"][:], values)


def test_what_was_not_committed_is_resumed(cloud):
    url = cloud.url("resumed.kino")
    arrays = {
        f"e{number}": samples.numbers("float64", (500, 4), seed=number) for number in range(6)
    }
    writer = kinograph.Writer(url, shard_size=1, memory=1)
    for name in list(arrays)[:4]:
        writer.add_episode({"x": arrays[name]}, rate_hz=20.0, id=name)
    writer.abandon()
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(url)
    with pytest.raises(kinograph.ConflictError, match="contains an interrupted pack"):
        kinograph.Writer(url)
    with kinograph.Writer(url, mode="resume", shard_size=1) as writer:
        done = writer.resumed
        for name in set(arrays) - done:
            writer.add_episode({"x": arrays[name]}, rate_hz=20.0, id=name)
    assert done
    dataset = kinograph.open(url)
    assert {episode.id for episode in dataset} == set(arrays)
    assert all(samples.same_bits(dataset[name]["x"][:], array) for name, array in arrays.items())


def test_a_lost_answer_to_a_commit_is_not_a_conflict(cloud, monkeypatch):
    with cloud.faulty(monkeypatch, lost=["versions/00000001.json"]) as proxy:
        write_numbered(cloud.url("lost.kino"), [0])
        assert proxy.lost == []
    dataset = kinograph.open(cloud.url("lost.kino"))
    assert (dataset.versions, len(dataset)) == ([1], 1)


def test_machines_that_share_nothing_but_the_bucket_pack_one_dataset(cloud, tmp_path, monkeypatch):
    options = {"shard_size": "10KB", "created": "2026-11-19T12:00:00Z"}
    kinograph.pack(SAMPLE, tmp_path / "whole.kino", **options)
    for part in ("2/3", "1/3", "3/3"):
        with pytest.raises(kinograph.KinographError, match="--part"):
            kinograph.commit_parts(cloud.url("parts.kino"))
        monkeypatch.setenv("KINOGRAPH_WORK", str(tmp_path / part.replace("/", "-")))
        kinograph.pack_part(SAMPLE, cloud.url("parts.kino"), part=part, **options)
    assert kinograph.commit_parts(cloud.url("parts.kino")).episodes == 3
    whole = kinograph.open(tmp_path / "whole.kino")
    assert kinograph.open(cloud.url("parts.kino")).id == whole.id
    assert kinograph.commit_parts(cloud.url("parts.kino")).episodes == 3, "it may be repeated"


def test_a_server_that_ignores_conditions_is_refused(cloud, monkeypatch):
    if cloud.scheme == "az":
        pytest.skip("Azurite verifies the signature, of which the condition is a part")
    with (
        cloud.faulty(monkeypatch, ignores_conditions=True),
        pytest.raises(kinograph.InvalidArgumentError, match="ignores the condition"),
    ):
        write_numbered(cloud.url("unsafe.kino"), [0])
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(cloud.url("unsafe.kino"))


def test_of_rival_writers_none_loses_an_episode(cloud):
    url = cloud.url("rivals.kino")
    write_numbered(url, [0])
    failures = []

    def append(first):
        try:
            for number in range(first, first + 3):
                write_numbered(url, [number], mode="append")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=append, args=(100 * one,)) for one in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    dataset = kinograph.open(url)
    assert dataset.versions == list(range(1, 14)), "one winner each"
    expected = {0, *(100 * one + number for one in range(1, 5) for number in range(3))}
    assert {episode.id for episode in dataset} == {f"e{number}" for number in expected}


def test_a_key_that_is_refused_is_not_in_the_error(cloud, monkeypatch):
    if cloud.scheme != "az":
        pytest.skip("of these servers only Azurite verifies signatures")
    wrong = base64.b64encode(b"a-very-secret-key").decode()
    monkeypatch.setenv("AZURE_STORAGE_KEY", wrong)
    with pytest.raises(kinograph.StorageError, match="AZURE_") as raised:
        kinograph.open(cloud.url("a.kino"))
    assert cloud.url("a.kino") in str(raised.value)
    assert wrong not in str(raised.value)
