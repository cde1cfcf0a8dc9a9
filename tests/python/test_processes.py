"""Pickling, other processes, threads, and the GIL."""

import multiprocessing
import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import samples

import kinograph


def read(ds, episode, name):
    """Read a stream of a dataset, possibly in another process."""
    return ds[episode][name][5:25]


def read_stream(stream):
    return stream[::2]


def test_datasets_episodes_and_streams_are_pickled_by_path_and_version(lift, lift_path):
    for thing in (lift, lift[1], lift[1]["actions"]):
        assert len(pickle.dumps(thing)) < 1000
    ds = pickle.loads(pickle.dumps(lift))
    assert (ds.id, ds.version, ds.path) == (lift.id, 1, lift_path)
    assert pickle.loads(pickle.dumps(lift[1])).id == "demo_1"
    stream = pickle.loads(pickle.dumps(lift[1]["actions"]))
    assert samples.same_bits(stream[:], lift[1]["actions"][:])


def test_a_pickle_keeps_its_version_and_does_not_depend_on_the_current_folder(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    first = samples.write("d.kino", [{"x": np.arange(5)}])
    with kinograph.Writer("d.kino", mode="append") as writer:
        writer.add_episode({"x": np.arange(9)}, rate_hz=20.0)
    packed = pickle.dumps(first)
    monkeypatch.chdir("/")
    assert len(pickle.loads(packed)) == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_other_processes_read_what_this_one_opened(lift, lift_streams, method):
    # Opened and used before the fork, so that shards, decoders and their buffers are inherited.
    assert len(lift[0]["obs/agentview_image"][:]) == 60
    with multiprocessing.get_context(method).Pool(2) as pool:
        jobs = [(lift, episode, name) for episode in range(3) for name in lift[0].streams]
        found = pool.starmap(read, jobs)
        odd = pool.map(read_stream, [lift[0]["obs/agentview_image"]])
    for (_, episode, name), frames in zip(jobs, found, strict=True):
        assert np.array_equal(frames, lift_streams[episode][name][5:25])
    assert samples.same_bits(odd[0], lift_streams[0]["obs/agentview_image"][::2])


def test_many_threads_read_one_stream_and_one_dataset(lift, lift_streams):
    stream = lift[0]["obs/agentview_image"]
    expected = lift_streams[0]["obs/agentview_image"]

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(20):
            first, last = np.sort(rng.integers(0, 60, 2))
            assert samples.same_bits(stream[first:last], expected[first:last])
            episode = int(rng.integers(3))
            name = rng.choice(["actions", "obs/joints"])
            assert samples.same_bits(lift[episode][name][:], lift_streams[episode][name])
            assert lift.episodes["frames"].sum() == 178
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_many_threads_add_episodes_to_one_writer(tmp_path):
    arrays = {
        f"demo_{number}": samples.numbers("float32", (200, 5), seed=number) for number in range(16)
    }
    with kinograph.Writer(tmp_path / "d.kino") as writer, ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda item: writer.add_episode({"x": item[1]}, rate_hz=9.0, id=item[0]),
                arrays.items(),
            )
        )
    ds = kinograph.open(tmp_path / "d.kino")
    assert len(ds) == 16
    for name, array in arrays.items():
        assert samples.same_bits(ds[name]["x"][:], array)


class Counter(threading.Thread):
    """Counts until stopped; it releases the GIL after every step."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count = 0
        self.running = True

    def run(self):
        while self.running:
            self.count += 1
            time.sleep(0)


@pytest.fixture
def counter():
    # With a switch interval of 100 s, the counter runs only when this thread releases the GIL.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    thread = Counter()
    thread.start()
    yield thread
    thread.running = False
    time.sleep(0.01)
    sys.setswitchinterval(interval)
    thread.join()


def gives_up_the_gil(counter, call, calls=100_000):
    """Whether another thread ran during one of many calls; on a busy machine it may miss thousands of them."""
    for _ in range(calls):
        before = counter.count
        call()
        if counter.count > before:
            return True
    return False


def test_other_threads_run_while_frames_are_read_and_written(tmp_path, counter):
    path = tmp_path / "d.kino"
    assert not gives_up_the_gil(counter, lambda: sum(range(1000)), calls=200)
    camera = samples.image(100, 120, 160)
    writer = kinograph.Writer(path)
    assert gives_up_the_gil(
        counter, lambda: writer.add_episode({"c": camera, "t": ["x"] * 100}, rate_hz=30.0)
    )
    assert gives_up_the_gil(counter, writer.commit)
    assert gives_up_the_gil(counter, lambda: kinograph.open(path))
    stream, text = kinograph.open(path)[0]["c"], kinograph.open(path)[0]["t"]
    assert gives_up_the_gil(counter, lambda: stream[:])
    assert gives_up_the_gil(counter, lambda: text[:])
    assert gives_up_the_gil(counter, lambda: kinograph.verify(path, decode=True))
