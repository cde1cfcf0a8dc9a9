"""Remote datasets: the same samples from every storage, whatever goes wrong on the way."""

import dataclasses
import json
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from clouds import moto_server, use_s3
from remote_servers import Faults, Proxy, Web, serving
from samples import batches, write_numbered

import kinograph

pytestmark = pytest.mark.usefixtures("work_folder")


@pytest.fixture(scope="module")
def s3():
    """A client of an S3 server, which this process uses."""
    with moto_server() as client, pytest.MonkeyPatch.context() as patch:
        use_s3(patch, f"http://{client.authority}")
        yield client


def upload(client, folder, key):
    for file in Path(folder).rglob("*"):
        if file.is_file():
            client.upload_file(str(file), "lab", f"{key}/{file.relative_to(folder)}")


def test_samples_are_the_same_from_a_folder_s3_and_http(s3, camera_path):
    upload(s3, camera_path, "same.kino")
    expected = batches(camera_path)
    assert len(expected) == 8
    assert batches("s3://lab/same.kino") == expected
    assert batches(Path("s3://lab/same.kino")) == expected, "pathlib merges the slashes"
    with serving(Web, folder=camera_path.parent) as web:
        assert batches(f"{web.url}/{camera_path.name}") == expected


@pytest.mark.parametrize("fault", ["busy", "stall", "reset", "cut", "etag"])
def test_samples_are_the_same_if_answers_go_wrong(camera_path, fault):
    faults = Faults(**{fault: 0.05 if fault == "stall" else 0.2}, stall_s=3.0)
    with serving(Web, folder=camera_path.parent, faults=faults) as web:
        assert batches(f"{web.url}/{camera_path.name}", epochs=2) == batches(camera_path, epochs=2)
    assert faults.seen[fault] > 0


def test_samples_are_the_same_from_every_storage_if_everything_goes_wrong_at_once(
    s3, monkeypatch, camera_path, tmp_path
):
    upload(s3, camera_path, "all.kino")
    expected = batches(camera_path, epochs=2)
    shares = {"busy": 0.1, "reset": 0.05, "cut": 0.05, "etag": 0.05, "stall": 0.02}
    faults = Faults(**shares, stall_s=3.0)
    with serving(Proxy, upstream=s3.authority, faults=faults) as proxy:
        use_s3(monkeypatch, proxy.url)
        assert batches("s3://lab/all.kino", epochs=2, cache=False) == expected
        # Filled while answers go wrong, and then read.
        for _ in range(2):
            assert batches("s3://lab/all.kino", epochs=2, cache=tmp_path / "cache") == expected
    with serving(Web, folder=camera_path.parent, faults=faults) as web:
        assert batches(f"{web.url}/{camera_path.name}", epochs=2, cache=False) == expected
    assert faults.seen["busy"] > 0


def test_an_outage_is_an_error_that_says_where(camera_path):
    with serving(Web, folder=camera_path.parent) as web:
        url = f"{web.url}/{camera_path.name}"
        dataset = kinograph.open(url)
        web.RequestHandlerClass.faults = Faults(reset=1.0)
        with pytest.raises(kinograph.StorageError, match=f"cannot read {url}/shards/"):
            dataset[0]["camera"][:]


def test_a_server_without_ranges_is_refused(camera_path):
    with serving(Web, folder=camera_path.parent, has_ranges=False) as web:
        dataset = kinograph.open(f"{web.url}/{camera_path.name}")
        with pytest.raises(kinograph.InvalidArgumentError, match="supports range requests"):
            dataset[0]["camera"][:]


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("s3://no-such-bucket/a.kino", kinograph.NotFoundError, "no-such-bucket"),
        ("s3://lab/nothing.kino", kinograph.NotFoundError, "is not a Kinograph dataset"),
        ("s3://", kinograph.InvalidArgumentError, "names no bucket"),
        ("ftp://host/a.kino", kinograph.InvalidArgumentError, "is not a storage"),
        ("file:///data/a.kino", kinograph.InvalidArgumentError, "without `file://`"),
        ("hf://datasets/only-one", kinograph.InvalidArgumentError, "hf://datasets/ORG/NAME"),
        ("s3://key:secret@lab/a", kinograph.InvalidArgumentError, "in the environment"),
        ("https://host/a?sig=secret", kinograph.InvalidArgumentError, "presigned"),
        ("http://127.0.0.1:9/a.kino", kinograph.StorageError, "http://127.0.0.1:9/a.kino"),
    ],
)
def test_what_cannot_be_opened_says_why(s3, url, error, says):
    with pytest.raises(error, match=says) as raised:
        kinograph.open(url)
    assert "secret" not in str(raised.value)


def test_a_refused_key_says_where_keys_are_looked_for_and_never_the_key(s3, monkeypatch):
    with serving(Proxy, upstream=s3.authority, refuses=403) as proxy:
        use_s3(monkeypatch, proxy.url)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-very-secret-key")
        with pytest.raises(kinograph.StorageError, match="AWS_SKIP_SIGNATURE") as raised:
            kinograph.open("s3://lab/a.kino")
    assert "s3://lab/a.kino" in str(raised.value)
    assert "a-very-secret-key" not in str(raised.value)
    assert "test-key" not in str(raised.value)


def test_the_commands_take_urls(s3, camera_path):
    upload(s3, camera_path, "cli.kino")
    for arguments in (["info"], ["verify"], ["gc"], ["cat", "--episode", "0"]):
        verb, *rest = arguments
        command = [sys.executable, "-m", "kinograph", verb, "s3://lab/cli.kino", *rest]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 2), done.stderr
        assert "secret" not in done.stdout + done.stderr


def test_a_cache_answers_and_survives_restarts_and_damage(camera_path, tmp_path, monkeypatch):
    expected = batches(camera_path)
    cache = tmp_path / "cache"
    with serving(Web, folder=camera_path.parent) as web:
        url, counts = f"{web.url}/{camera_path.name}", web.RequestHandlerClass.counts
        assert batches(url, cache=cache) == expected
        asked = counts["GET"]
        blocks = [path for path in cache.glob("*/*") if path.name.isdigit()]
        assert sum(path.stat().st_size for path in blocks) > 2e6
        monkeypatch.setenv("KINOGRAPH_CACHE", str(cache))
        assert batches(url) == expected
        assert counts["GET"] - asked <= 4, "the manifest, the table, the statistics"
        for path in blocks[::2]:
            whole = bytearray(path.read_bytes())
            whole[len(whole) // 2] ^= 1
            path.write_bytes(whole)
        assert batches(url) == expected
        asked = counts["GET"]
        assert batches(url, cache=False) == expected
        assert counts["GET"] - asked > 4


READ = """
import sys, kinograph
dataset = kinograph.open(sys.argv[1])
print(sum(int(episode["camera"][:].sum()) for episode in dataset))
"""


def test_eight_processes_share_a_cache_and_one_may_be_killed(camera_path, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("KINOGRAPH_CACHE", str(cache))
    expected = sum(int(episode["camera"][:].sum()) for episode in kinograph.open(camera_path))
    with serving(Web, folder=camera_path.parent, latency_s=0.01) as web:
        command = [sys.executable, "-c", READ, f"{web.url}/{camera_path.name}"]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(9)]
        while not list(cache.glob("*/0")):
            time.sleep(0.01)
        processes[0].kill()
        answers = [process.communicate()[0].decode() for process in processes]
    assert [int(answer) for answer in answers[1:]] == [expected] * 8
    listed = subprocess.run(
        [sys.executable, "-m", "kinograph", "cache", "--json"], capture_output=True, check=True
    )
    listed = json.loads(listed.stdout)
    stored = sum(path.stat().st_size for path in cache.glob("*/*"))
    assert listed["used_bytes"] == stored
    assert stored < 1.02 * sum(path.stat().st_size for path in camera_path.glob("shards/*")), "once"


def test_a_limited_cache_keeps_its_share_of_every_epoch(camera_path, tmp_path):
    size = sum(path.stat().st_size for path in camera_path.glob("shards/*"))
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "kinograph", "cache", str(cache), "--limit", f"{size // 2}B"]
    subprocess.run(command, check=True, capture_output=True)
    with serving(Web, folder=camera_path.parent) as web:
        url = f"{web.url}/{camera_path.name}"
        first = batches(url, cache=cache)
        dataset = kinograph.open(url, cache=cache)
        for episode in dataset:
            episode["camera"][:]
        report = dataset.storage["cache"]
        block = 256 << 10
        assert (
            report["limit_bytes"] - block < report["used_bytes"] + 100 < report["limit_bytes"] + 100
        )
        assert report["hit_bytes"] >= 0.85 * report["used_bytes"], "what is kept stays"
        assert first == batches(camera_path)


def test_a_cache_that_cannot_be_written_is_one_warning(camera_path, tmp_path):
    cache = tmp_path / "cache"
    with serving(Web, folder=camera_path.parent) as web:
        dataset = kinograph.open(f"{web.url}/{camera_path.name}", cache=cache)
        # Files in the places of the shards' folders fail as a full disk does: no block can be stored.
        for shard in camera_path.glob("shards/*"):
            (cache / shard.stem).write_bytes(b"")
        with kinograph.numpy.Loader(dataset, windows={"camera": [0]}, batch_size=32) as loader:
            batches = sum(1 for _ in loader)
            with pytest.warns(kinograph.KinographWarning, match="cannot be written"):
                report = loader.report()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert "cannot be written" in str(loader.report())
    assert batches == 8
    assert "GETs" in str(report)


def test_an_estimate_is_near_what_an_epoch_needs(camera_path, tmp_path):
    options = {"windows": {"camera": [0], "actions": [0]}, "batch_size": 32}
    with serving(Web, folder=camera_path.parent) as web:
        url = f"{web.url}/{camera_path.name}"
        dataset = kinograph.open(url, cache=False)
        with kinograph.numpy.Loader(dataset, **options) as loader:
            estimate = loader.estimate(gb_price=0.09)
            assert sum(1 for _ in loader) == 8
        read = dataset.storage
        # The command line says the same, without a loader.
        windows = ("--window", "camera=0:1", "--window", "actions=0:1", "--batch-size", "32")
        prices = ("--cost", "--gb-price", "0.09", "--json")
        command = [sys.executable, "-m", "kinograph", "doctor", url, *windows, *prices]
        cost = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        cached = kinograph.open(url, cache=tmp_path / "cache")
        with kinograph.numpy.Loader(cached, **options) as loader:
            later = loader.estimate()
    assert 0.8 < read["bytes_read"] / estimate.bytes < 1.25
    assert 0.5 < read["gets"] / estimate.gets < 2
    dollars = estimate.gets / 1000 * 0.0004 + estimate.bytes / 1e9 * 0.09
    assert estimate.dollars == pytest.approx(dollars, rel=0.01)
    assert estimate.hit_rate == 0
    assert cost == pytest.approx(dataclasses.asdict(estimate), rel=0.01)
    assert 0 < estimate.later_gets < estimate.gets, "the first reads are small"
    assert (later.hit_rate, later.later_bytes, later.later_dollars) == (1, 0, 0)
    with kinograph.numpy.Loader(camera_path, **options) as loader:
        assert loader.estimate().gets == 0
        assert str(loader.estimate()) == "every dataset is local: no requests"
        with pytest.raises(kinograph.InvalidArgumentError, match="price is negative"):
            loader.estimate(get_price=-1)


def test_a_copy_is_the_same_version_and_goes_on_where_it_stopped(s3, camera_path, tmp_path):
    upload(s3, camera_path, "staged.kino")
    remote = kinograph.open("s3://lab/staged.kino")
    staged = tmp_path / "staged.kino"

    def stop(done, total):
        assert 0 <= done <= total
        if any(staged.glob("shards/*")):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        remote.copy(staged, progress=stop)
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(staged)
    assert remote.copy(staged).id == remote.id
    assert batches(staged) == batches(camera_path)
    shard = next(staged.glob("shards/*"))
    shard.write_bytes(bytes(len(shard.read_bytes())))
    remote.copy(staged)
    assert kinograph.verify(staged) == [], (
        "what is there is compared, and copied again if it differs"
    )
    other = tmp_path / "other.kino"
    write_numbered(other, [0])
    with pytest.raises(kinograph.ConflictError, match="has another dataset"):
        remote.copy(other)
    kinograph.open(staged).copy("s3://lab/uploaded.kino")
    assert kinograph.open("s3://lab/uploaded.kino").id == remote.id


def test_a_damaged_shard_is_not_copied(camera_path, tmp_path):
    damaged = tmp_path / "damaged.kino"
    shutil.copytree(camera_path, damaged)
    shard = next(damaged.glob("shards/*"))
    whole = bytearray(shard.read_bytes())
    whole[len(whole) // 2] ^= 1
    shard.write_bytes(whole)
    with pytest.raises(kinograph.CorruptDataError, match=shard.name):
        kinograph.open(damaged).copy(tmp_path / "copy.kino")
    with pytest.raises(kinograph.NotFoundError):
        kinograph.open(tmp_path / "copy.kino")


def test_a_commit_that_loses_a_race_reads_only_what_the_winner_changed(s3, tmp_path, monkeypatch):
    """A rival's version appears just before ours; what is asked for afterwards is counted."""
    rival = tmp_path / "rival.kino"
    write_numbered(rival, [0])
    write_numbered(rival, [1], mode="append")
    upload(s3, rival, "race.kino")
    late = (rival / "versions/00000002.json").read_bytes()
    s3.delete_object(Bucket="lab", Key="race.kino/versions/00000002.json")
    url, asked = "s3://lab/race.kino", []

    class Race(Proxy):
        def forward(self):
            path = self.path.removeprefix("/lab/race.kino/")
            asked.append((self.command, path))
            if asked.count(("PUT", "versions/00000002.json")) == 1 and late:
                s3.put_object(Bucket="lab", Key="race.kino/versions/00000002.json", Body=late)
            super().forward()

        do_GET = do_HEAD = do_PUT = forward  # noqa: N815 (the names that the base class calls)

    with serving(Race, upstream=s3.authority) as proxy:
        use_s3(monkeypatch, proxy.url)
        write_numbered(url, [2], mode="append")
        lost = asked.index(("PUT", "versions/00000002.json"))
        after = asked[lost + 1 :]
        asked.clear()
        write_numbered(url, [3], mode="append")
        again = list(asked)
    use_s3(monkeypatch, f"http://{s3.authority}")
    dataset = kinograph.open(url)
    assert [episode.id for episode in dataset] == ["e0", "e1", "e2", "e3"]
    assert dataset.versions == [1, 2, 3, 4]
    assert kinograph.verify(url) == []
    kinds = [
        "LIST" if "list-type" in path else f"{command} {path.split('/')[0]}"
        for command, path in after
    ]
    # The winner's manifest, read once to find that it is not ours; then what it names, and our next try.
    assert sorted(kinds) == sorted(
        [
            "GET versions",
            "LIST",
            "GET episodes",
            "GET stats",
            "PUT episodes",
            "PUT stats",
            "PUT versions",
        ]
    )
    starts = [path for command, path in again if command == "GET" and "list-type" in path]
    assert len(starts) == 2
    assert all("start-after" in path and "00000002.json" in path for path in starts), (
        "versions before the last one that was seen are not listed again"
    )
    assert len(again) == 11, again
    assert sum(command == "PUT" and path.startswith("stats/") for command, path in again) == 1, (
        "whether conditions are kept was asked once"
    )
