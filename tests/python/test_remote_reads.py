"""What a loader reads of a remote dataset: how many round trips the first batch takes, and that no byte comes twice."""

import itertools
import re
import threading

import numpy as np
import pytest
from remote_servers import Web, serving

import kinograph


class Rounds:
    """Holds requests back until no more come, and then answers all of them: a round trip."""

    QUIET_S = 0.15

    def __init__(self):
        self.count = 0
        self._waiting = 0
        self._changed = threading.Condition()

    def wait(self):
        """Wait for the end of the round trip."""
        with self._changed:
            mine = self.count
            self._waiting += 1
            while self.count == mine:
                seen = self._waiting
                if not self._changed.wait(self.QUIET_S) and seen == self._waiting:
                    self.count += 1
                    self._waiting = 0
                    self._changed.notify_all()


class Noting(Web):
    """Notes which bytes of shards are asked for."""

    ranges: list[tuple[str, int, int]]
    rounds: Rounds | None = None

    def answer(self, *, with_body):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and self.path.endswith(".kshard"):
            self.ranges.append((self.path, int(asked[1]), int(asked[2]) + 1))
        if self.rounds:
            self.rounds.wait()
        super().answer(with_body=with_body)


@pytest.fixture(scope="module")
def cameras(tmp_path_factory):
    """Twenty episodes in a few shards: the first batch has frames of most of them."""
    path = tmp_path_factory.mktemp("reads") / "cameras.kino"
    random = np.random.default_rng(8)
    with kinograph.Writer(path, shard_size="2MB") as writer:
        for number in range(20):
            images = random.integers(0, 255, (60, 48, 48, 3), dtype=np.uint8)
            streams = {"camera": images, "actions": random.normal(size=(60, 7)).astype(np.float32)}
            writer.add_episode(streams, rate_hz=20.0, id=f"e{number}")
    return path


def loader_of(place):
    samples = kinograph.open(place, cache=False).samples(windows={"camera": [0], "actions": [0, 1]})
    return kinograph.numpy.Loader(samples, batch_size=32, seed=3)


def test_the_first_batch_takes_few_round_trips_however_many_episodes_it_mixes(cameras):
    rounds = Rounds()
    with (
        serving(Noting, folder=cameras.parent, rounds=rounds, ranges=[]) as web,
        loader_of(f"{web.url}/{cameras.name}") as loader,
    ):
        batch = next(iter(loader))
        # Versions, manifest, table; directories and indexes of some episodes; those of the others; pages. Threads that
        # were late, on a busy machine, take a round trip of their own.
        assert rounds.count <= 16, rounds.count
        rounds.QUIET_S = 0.01
    episodes = {int(place["sample"]) // 60 for place in loader.order.batch(0)}
    assert len(episodes) > 10
    with loader_of(cameras) as local:
        expected = next(iter(local))
    assert all(np.array_equal(batch[key], expected[key]) for key in expected)


def test_the_pages_of_the_first_batch_are_not_read_twice(cameras):
    ranges = []
    with (
        serving(Noting, folder=cameras.parent, ranges=ranges) as web,
        loader_of(f"{web.url}/{cameras.name}") as loader,
        loader_of(cameras) as local,
    ):
        for _ in range(2):
            for batch, expected in zip(loader, local, strict=True):
                assert all(np.array_equal(batch[key], expected[key]) for key in expected)
    stored = sum(file.stat().st_size for file in (cameras / "shards").iterdir())
    read = sum(end - start for _, start, end in ranges)
    # Directories and indexes are read beside the pages; some of them by the look at a few episodes, too.
    assert stored * 0.9 < read < stored * 1.1
    sizes = {file.name: file.stat().st_size for file in (cameras / "shards").iterdir()}
    # What ends with the shard is its directory.
    pages = [one for one in ranges if one[2] < sizes[one[0].rsplit("/", 1)[-1]]]
    pages = sorted(one for one in pages if one[2] - one[1] > 5000)
    assert len(pages) > 20
    for (path, _, end), (other, start, _) in itertools.pairwise(pages):
        assert path != other or end <= start, "read twice"


def write_short(path, episodes):
    """Very short episodes in a few shards; not all have both streams in full, so that samples are counted one by one."""
    with kinograph.Writer(path, shard_size="20kB") as writer:
        for number in range(episodes):
            steps = np.arange(5 + number % 2, dtype=np.float32) + 10 * number
            streams = {"action": steps, "state": steps[:5]}
            writer.add_episode(streams, rate_hz={"action": 20.0, "state": 20.0}, id=f"e{number}")


def test_round_trips_do_not_grow_with_the_number_of_short_episodes(tmp_path):
    options = {"windows": {"action": [0], "state": [0]}, "shuffle": "global", "seed": 5}
    counts, batches = [], []
    for episodes in (12, 192):
        path = tmp_path / f"short_{episodes}.kino"
        write_short(path, episodes)
        rounds = Rounds()
        with serving(Noting, folder=tmp_path, rounds=rounds, ranges=[]) as web:
            for place in (f"{web.url}/{path.name}", path):
                dataset = kinograph.open(place, cache=False)
                opened = rounds.count
                with kinograph.numpy.Loader(dataset, batch_size=episodes, **options) as loader:
                    batches.append(next(iter(loader)))
                    if place != path:
                        counts.append((opened, rounds.count - opened))
                        rounds.QUIET_S = 0.01
    # One after the other, 192 episodes would take two round trips each.
    assert counts[1][0] <= counts[0][0] + 2, counts
    assert counts[1][1] <= counts[0][1] + 6 < 20, counts
    for remote, local in (batches[:2], batches[2:]):
        assert all(np.array_equal(remote[key], local[key]) for key in local)


def test_the_number_of_reads_at_once_is_in_the_report(cameras):
    with (
        serving(Noting, folder=cameras.parent, ranges=[]) as web,
        loader_of(f"{web.url}/{cameras.name}") as loader,
        loader_of(cameras) as local,
    ):
        assert sum(1 for _ in loader) == sum(1 for _ in local)
        report, of_folder = loader.report(), local.report()
    assert report.readers_changes[0] == (0.0, 64)
    assert 1 <= report.readers_active == report.readers_changes[-1][1] <= 128
    assert of_folder.readers_changes == ()


@pytest.mark.filterwarnings("ignore:each frame will be decoded")
def test_gaps_that_are_read_through_add_little_and_are_counted(cameras):
    options = {"windows": {"camera": [-5, 0]}, "anchor": "camera"}
    with serving(Noting, folder=cameras.parent, latency_s=0.02, ranges=[]) as web:
        found = []
        for place in (f"{web.url}/{cameras.name}", cameras):
            dataset = kinograph.open(place)
            samples = dataset.samples(**options)
            # With hardly any memory, the frames of each sample are read by themselves.
            with kinograph.numpy.Loader(
                samples, batch_size=32, seed=3, shuffle="global", memory="200KB"
            ) as loader:
                found.append([batch["camera"].tobytes() for batch in loader])
            if read := dataset.storage:
                assert read["answer_bytes_per_s"] > 0
                assert 1 <= read["bytes_read"] / read["used_bytes"] < 1.3
    assert found[0] == found[1]
